# shellcheck shell=bash
# Kills the controller manager, and says when and which container ran, for Inject of
# controllerKilled.
set -eo pipefail
id=$(container)
[ -n "$id" ] || { echo 'no container runs' >&2; exit 1; }
p=$(process)
at=$(date +%s.%N)
kill -KILL "$p"
echo "$at $id"
