# shellcheck shell=bash
# Puts standard input into the folder $1 as the journal, for copyJournal of run.go.
set -e
mkdir -p "$1"
cd "$1"
cat > journal.new
sync journal.new
mv journal.new journal.jsonl
