# shellcheck shell=bash
# Makes the folder $1 with what its timer needs, and the timer $2 of systemd, for armScript of
# deadman.go. Each argument from the seventh on is a step.
set -e
dir=$1 unit=$2 alone=$3 deadman=$4 after=$5 more=$6
shift 6
mkdir -p "$dir"
cd "$dir"
printf '%s\n' "$alone" > alone
printf '%s\n' "$deadman" > deadman
i=0
for step; do
	printf '%s\n' "$step" > step-$i
	i=$((i + 1))
done
printf '%s\n' '[Service]' "ExecStart=/bin/bash $dir/deadman $dir $after $more" > "/etc/systemd/system/$unit.service"
printf '%s\n' '[Timer]' OnActiveSec=10 OnUnitActiveSec=10 AccuracySec=1s '[Install]' WantedBy=timers.target > "/etc/systemd/system/$unit.timer"
sign
sync -f .
systemctl daemon-reload
systemctl enable --quiet --now "$unit.timer"
systemctl is-active --quiet "$unit.timer"
