# shellcheck shell=sh
# Prints the file $1 as it was when the cluster was created, for madeScript of setflags.go.
set -eu
dir=/etc/flatline/created
copy=$dir/$(basename "$1")
if [ ! -e "$copy" ]; then
	mkdir -p "$dir"
	cp -p "$1" "$copy.new"
	mv "$copy.new" "$copy"
fi
cat "$copy"
