# shellcheck shell=bash disable=SC2154 # variables of the build script
# Steps of a long build: numbered, logged, resumable and interruptible.
#
# A step is a function that is called with the path of a folder to fill. It
# runs in a subshell of its own with its output in $work/NAME.log. The folder
# is called $work/NAME.tmp until the step is done and $work/NAME afterwards: a
# step with a folder of that name is not run again.
#
# Uses $work, the folder of the build.

# Seconds between two signs of life of a long step.
if [ -t 2 ]; then progress_period=30; else progress_period=60; fi

step_names=()              # in the order of the build
declare -A step_title step_number step_pid
step_total=0

# say TEXT: one line for the user.
say() {
  printf '%s\n' "$*" >&2
}

# die TEXT: the line for the user that ends the build.
die() {
  say "build: $*"
  exit 1
}

# clock SECONDS: for example 4m07s.
clock() {
  printf '%dm%02ds' $(($1 / 60)) $(($1 % 60))
}

# step_say NAME TEXT: a line about a step.
step_say() {
  say "$(printf '[%d/%d] %6s  %s' "${step_number[$1]}" "$step_total" "$(clock $SECONDS)" "$2")"
}

# lock FILE: waits until no other build holds the lock, and holds it until exit.
lock() {
  exec 9>"$1"
  flock -n 9 && return
  say "another build of the same image is running; waiting for it"
  flock 9
}

# steps TOTAL: how many steps there will be. From here on an exit, however it
# comes about, ends the steps that run and removes what they have not finished.
steps() {
  step_total=$1
  trap stop_steps EXIT
  trap 'interrupted 129' HUP
  trap 'interrupted 130' INT
  trap 'interrupted 143' TERM
}

interrupted() {
  say "interrupted; the same command will go on with the steps that are not done"
  exit "$1"
}

stop_steps() {
  trap '' HUP INT TERM
  local name
  for name in "${!step_pid[@]}"; do
    stop_step "$name"
  done
}

# stop_step NAME: ends what runs of a step and removes what it has made so far.
stop_step() {
  local group=-${step_pid[$1]} tries=0 signal=TERM
  while kill -s "$signal" -- "$group" 2>/dev/null; do
    sleep 0.2
    tries=$((tries + 1))
    case $tries in
      1) signal=0 ;;    # only ask whether the group is still there
      50) signal=KILL ;;
      60) break ;;
    esac
  done
  wait "${step_pid[$1]}" 2>/dev/null || true
  unset "step_pid[$1]"
  # One file system: never follow a mount that somebody left behind.
  rm -rf --one-file-system "$work/$1.tmp"
}

# begin NAME TITLE FUNCTION: starts a step and does not wait for it.
begin() {
  local name=$1 title=$2 function=$3
  step_names+=("$name")
  step_title[$name]=$title
  step_number[$name]=${#step_names[@]}
  if [ -e "$work/$name" ]; then
    step_say "$name" "have it: ${title%% (*}"
    return
  fi
  step_say "$name" "$title"
  rm -rf --one-file-system "$work/$name.tmp"
  mkdir -p "$work/$name.tmp"
  # Job control gives the step a process group of its own, which stop_steps
  # can end with all its children.
  set -m
  perform "$name" "$function" >"$work/$name.log" 2>&1 </dev/null 9>&- &
  step_pid[$name]=$!
  set +m
}

# perform NAME FUNCTION: the step itself, in its subshell. Files that programs
# make for themselves go where they are removed if the step does not succeed.
perform() {
  trap - EXIT HUP INT TERM
  local began=$SECONDS out=$work/$1.tmp
  export TMPDIR=$out/tmp GOTMPDIR=$out/tmp
  mkdir "$TMPDIR"
  "$2" "$out"
  rm -rf --one-file-system "$TMPDIR"
  echo $((SECONDS - began)) >"$work/$1.seconds"
  mv "$out" "$work/$1"
}

# finish NAME: waits for a step that was begun. Ends the build if it, or another
# step that runs beside it, failed.
finish() {
  local name=$1 pid=${step_pid[$1]-} last=$SECONDS other
  [ -n "$pid" ] || return 0
  while kill -0 "$pid" 2>/dev/null; do
    sleep 1
    if [ $((SECONDS - last)) -ge $progress_period ]; then
      last=$SECONDS
      step_say "$name" "  $(progress "$work/$name.log")"
    fi
    for other in "${!step_pid[@]}"; do
      if ! kill -0 "${step_pid[$other]}" 2>/dev/null && [ ! -e "$work/$other" ]; then
        give_up "$other"
      fi
    done
  done
  wait "$pid" || give_up "$name"
  unset "step_pid[$name]"
  step_say "$name" "  done in $(clock "$(cat "$work/$name.seconds")")"
}

# give_up NAME: ends the build because of a step, whose log should say why.
give_up() {
  say "the end of $work/$1.log:"
  tail -n 20 "$work/$1.log" | sed 's/^/  /' >&2
  die "step ${step_number[$1]} failed: ${step_title[$1]%% (*}"
}

# run NAME TITLE FUNCTION: a step from beginning to end.
run() {
  begin "$@"
  finish "$1"
}

# progress LOG: how far a step is. The log of a "go build -v" has one line for
# each package that had to be compiled; how many there will be is not known.
progress() {
  local last
  last=$(tail -n 1 "$1" | cut -c 1-90)
  case "$last" in
    *' '* | '') echo "still at work: ${last:-nothing to tell yet}" ;;
    *) echo "$(wc -l <"$1") packages compiled, the last one $last" ;;
  esac
}

# summary: a table of step and seconds, also for steps of an earlier, unfinished
# build of the same image.
summary() {
  printf 'step\tseconds\n'
  local name
  for name in "${step_names[@]}"; do
    printf '%s\t%s\n' "$name" "$(cat "$work/$name.seconds")"
  done
}

# table FILE: the summary for a reader.
table() {
  awk -F '\t' '{ printf "  %-12s %8s\n", $1, $2 }' "$1" >&2
}

# drop_outputs: removes what the steps made; their logs stay.
drop_outputs() {
  local name
  for name in "${step_names[@]}"; do
    rm -rf --one-file-system "${work:?}/$name"
  done
}
