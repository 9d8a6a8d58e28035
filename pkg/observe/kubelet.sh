# shellcheck shell=bash
# Watches a kubelet from inside its node, whose current certificate is $1, for kubeletScript of
# node.go.
# shellcheck disable=SC2154 # systemctl names them, and they are taken from what it says
cert=$1
n=0 look=0 late=0 rested=
while :; do
	began=${EPOCHREALTIME/./} told=
	[ -n "$rested" ] && (( began - rested - 1000000 > late && (late = began - rested - 1000000) ))
	frozen='' stat=''
	[ -n "$pid" ] && read -r _ _ stat _ 2>/dev/null < "/proc/$pid/stat"
	[ "$stat" = T ] && frozen=yes
	if ! [ -d "/proc/${pid:-none}" ] || [ "$frozen" != "$wasfrozen" ]; then
		told=yes
		eval "$(systemctl show kubelet --timestamp=us+utc -p MainPID,NRestarts,ActiveState,ExecMainCode,ExecMainStatus,ExecMainStartTimestamp,ExecMainExitTimestamp | sed 's/=\(.*\)/="\1"/')"
		[ -n "$frozen" ] && ActiveState=frozen
		if [ "$MainPID $NRestarts $ActiveState" != "$last" ]; then
			at=$(date +%s.%N) exit="- -" why=-
			code=$ExecMainStatus
			[ "$ExecMainCode" -gt 1 ] && code=signal-$code
			if [ -n "$last" ]; then
				[ "$MainPID" != 0 ] && [ "$MainPID" != "$lastpid" ] && at=$(date -d "$ExecMainStartTimestamp" +%s.%N)
				if [ "$MainPID $ActiveState" = "0 activating" ] || [ "$NRestarts" -gt "$lastrestarts" ]; then
					why=$(journalctl -u kubelet --since=-5s -o short-unix -n 300 | grep -v "kubelet\[$MainPID\]" | sed -n 's/^[^]]*\]: \([EF][0-9]\{4\} .*\)/\1/p' | tail -n 3 | cut -c1-400 | base64 -w0)
					case $code in signal-*) why=-;; esac
				fi
			fi
			last="$MainPID $NRestarts $ActiveState" lastpid=$MainPID lastrestarts=$NRestarts
			[ "$MainPID" = 0 ] && [ -n "$ExecMainExitTimestamp" ] && exit="$code $(date -d "$ExecMainExitTimestamp" +%s.%N)"
			echo "process $at $last $exit ${why:--}"
		fi
		pid=$MainPID wasfrozen=$frozen; [ "$pid" = 0 ] && pid=
	fi
	# The time before the look: what changes during the look is seen by the next one, and has then
	# changed after this time. The kernel dates files by its tick, up to 10 ms behind the clock.
	before=$seen seen=$EPOCHREALTIME
	id=$(stat -L -c %i.%Y.%s "$cert" 2>/dev/null || echo gone)
	if [ "$id" != "$lastid" ]; then
		told=yes at=
		# The later of link and file: the date of their content, or that of their place where an old
		# file was moved here. A date before the look before this one, or to come, is of something else.
		for date in %.6Y %.6Z; do
			[ -z "$at" ] && at=$({ stat -c $date "$cert"; stat -L -c $date "$cert"; } 2>/dev/null | sort -n | tail -n 1)
			[[ -n $lastid && -n $at ]] && (( ${at/./} < ${before/./} - 10000 || ${at/./} > ${EPOCHREALTIME/./} )) && at=
		done
		[ -z "$at" ] && at=$seen
		lastid=$id
		to=$(readlink -m "$cert") # name and content of one file, though the link may move now
		echo "certificate $at $to $(sed -n '/BEGIN CERT/,/END CERT/p' "$to" 2>/dev/null | base64 -w0)"
	fi
	looked=$EPOCHREALTIME rested=${EPOCHREALTIME/./}
	[ -z "$told" ] && (( rested - began > look && (look = rested - began) ))
	((++n % 5)) || { echo "alive $looked $look $late"; look=0 late=0; }
	read -r -t 1 _; [ $? -gt 128 ] || exit 0 # the observer is gone
done
