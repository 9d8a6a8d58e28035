# shellcheck shell=bash
# Waits up to three minutes until the node $1 is Ready, and as long until its taints are gone, for
# waitHealthy of repair.go.
admin wait --for=condition=Ready --timeout=180s "node/$1" >/dev/null || exit 1
for _ in $(seq 180); do
	case "$(admin get node "$1" -o jsonpath='{.spec.taints[*].key}')" in *unreachable*|*not-ready*) sleep 1;; *) exit 0;; esac
done
echo "the taints of $1 do not go" >&2
exit 1
