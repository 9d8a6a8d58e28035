# shellcheck shell=bash
# Keeps a copy of the manifest $1 and removes it, and says when and which container ran, for
# Inject of controllerStopped.
set -eo pipefail
id=$(container)
cp -p "$1" manifest.new
sync manifest.new
mv manifest.new manifest
at=$(date +%s.%N)
rm "$1"
echo "$at $id"
