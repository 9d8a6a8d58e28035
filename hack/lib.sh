# shellcheck shell=bash
# Sourced by the scripts of this folder, and by those of docker and browser through
# docker/lib.sh. Works with the bash 3.2 of macOS. The scripts of nodeimage have their own say:
# the name of the image is a hash over that folder, and over nothing outside of it.

# say TEXT...: one line for people.
say() { printf '%s\n' "$*" >&2; }

# heading TEXT...: the same, above what follows.
heading() { say "== $*"; }

# fail TEXT [CODE]: one message, and the exit code, 3 unless told: something of this machine.
fail() {
	say "error: $1"
	exit "${2:-3}"
}

# usage: the line of the script's own head that says how it is called, and exit code 2. The
# script has gone to the root of the repository, and was named from where it came.
usage() {
	(cd "${OLDPWD:-.}" && sed -n 's/^# Usage/usage/p' "$0") >&2
	exit 2
}

# --- runs on record, from the root of the repository ---------------------------

# run_folder: the folder of a run, out of what flatline run said on stdout. The link to the
# latest run may be another's by now.
run_folder() { tail -n 1; }

# on_record RECORDS: how many runs are in that folder of docs/evidence.
on_record() { find "docs/evidence/$1" -name '*.jsonl.gz' 2>/dev/null | wc -l; }

# put_on_record RECORDS FOLDER: has a run there as a whole, or fails where it left no timeline.
put_on_record() {
	local records=docs/evidence/$1 folder=$2
	[[ -e $folder/timeline.jsonl ]] || return 1
	if ! { mkdir -p "$records" && gzip -9 -n -c "$folder/timeline.jsonl" >"$records/.new" &&
		mv "$records/.new" "$records/${folder##*/}.jsonl.gz"; }; then fail "cannot write $records"; fi
}
