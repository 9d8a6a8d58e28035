# shellcheck shell=bash
# Takes the steps in the folder $1 when there was no sign of life for $2 seconds, and none for $3
# more, for deadManScript of deadman.go.
cd "$1" || exit 0
after=$2 more=$3
alive() {
	local last now
	read -r last < alive && read -r now _ < /proc/uptime || return 1
	now=${now%%.*}
	[ "$now" -ge "$last" ] && [ $((now - last)) -lt "$after" ]
} 2>/dev/null
[ -e fired ] || { alive && exit 0; sleep "$more"; alive && exit 0; date +%s.%N > fired; }
alive && exit 0
i=0
while [ -e step-$i ]; do
	[ -e done-$i ] || { bash alone "$(cat step-$i)" > out-$i 2>&1 && touch done-$i; }
	i=$((i + 1))
done
