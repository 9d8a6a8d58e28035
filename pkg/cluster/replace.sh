# shellcheck shell=sh
# Puts standard input in the place of the file $1, with the mode and owner of $2, which goes, for
# replaceScript of setflags.go.
set -eu
new=$(dirname "$1")/.$(basename "$1").new
cp -p "$2" "$new"
cat >"$new"
mv "$new" "$1"
if [ "$1" != "$2" ]; then rm "$2"; fi
