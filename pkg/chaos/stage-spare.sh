# shellcheck shell=bash
# Puts standard input into the folder $1 as the spare certificate, for stageSpares of repair.go.
set -e
umask 077
mkdir -p "$1"
cd "$1"
cat > spare.pem
sync spare.pem
