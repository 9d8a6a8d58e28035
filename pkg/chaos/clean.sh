# shellcheck shell=bash
# Removes the timer $1, the folder $2, and from the folder $3 the certificates of ours that the
# kubelet has rotated away from, for cleanScript of deadman.go.
systemctl disable --quiet --now "$1.timer" 2>/dev/null
systemctl stop "$1.service" 2>/dev/null
rm -f "/etc/systemd/system/$1.timer" "/etc/systemd/system/$1.service"
systemctl daemon-reload
systemctl reset-failed "$1.service" "$1.timer" 2>/dev/null
for f in "$3"/flatline-*.pem; do
	[ -e "$f" ] && [ "$(readlink -f "$3/kubelet-client-current.pem")" != "$f" ] && rm -f "$f"
done
cd /
rm -rf "$2"
rmdir /var/lib/flatline 2>/dev/null
exit 0
