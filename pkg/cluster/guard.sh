# shellcheck shell=bash
# Lets the paused node $1 go on when no sign of life came for $2 seconds, and for $3 more, for
# guardScript of guard.go.
node=$1 after=$2 more=$3
ask() { curl --silent --show-error --max-time 60 --unix-socket /engine.sock --output "${3:-/dev/null}" --write-out '%{http_code}' --request "$1" "http://engine/containers/$node/$2"; }
silent() {
	local last now
	read -r last < alive && read -r now _ < /proc/uptime || return 1
	now=${now%%.*}
	(( now < last || now - last >= after ))
}
mkdir -p /guard && cd /guard || exit 1
cut -d. -f1 /proc/uptime > alive
while :; do
	if silent && sleep "$more" && silent; then
		case $(ask GET json state) in
		404) exit 0 ;;
		200) [ "$(jq -r .State.Paused state)" != true ] || [ "$(ask POST unpause)" != 204 ] || date +%s.%N > fired ;;
		esac
	fi
	sleep 5
done
