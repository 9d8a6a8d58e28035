# shellcheck shell=bash
# Waits up to three minutes until the kubelet's certificate, the link $1, is none of ours, for
# waitRotated of repair.go.
for _ in $(seq 180); do
	case "$(readlink -f "$1")" in */flatline-*) sleep 1;; *) exit 0;; esac
done
echo "the kubelet does not rotate its certificate" >&2
exit 1
