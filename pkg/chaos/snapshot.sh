# shellcheck shell=bash
# Prints what a run must leave as it found it in a node: of the folder of certificates $1, the
# kubelet's configuration $2 and the manifests $3, for snapshotScript of repair.go.
# shellcheck disable=SC2046 # what is said of a thing is one line, with one blank between words
# shellcheck disable=SC2012 # names of drop-ins and of runs hold no blanks
own=$(for ip in $(hostname -I); do printf 's/\\b%s\\b/IP/g;' "${ip//./\\.}"; done)
echo kubelet=$(systemctl is-active kubelet)
echo kubeconfig=$(sed "$own" /etc/kubernetes/kubelet.conf | sha256sum | cut -c1-16)
echo bootstrap=$([ -e /etc/kubernetes/bootstrap-kubelet.conf ] && echo present || echo absent)
echo dropins=$(cd /etc/systemd/system/kubelet.service.d && ls | tr '\n' ' ')
echo config=$(sha256sum < "$2" | cut -c1-16)
echo files=$(cd "$1" && stat -c '%A %U:%G %n,' -- . * | sed 's/client-20[-0-9]*/client-DATE/' | sort -u)
# Attributes that only the filesystem sets are left out: a folder that many files went through
# is indexed (I) afterwards, and that is nobody's doing.
echo attributes=$(lsattr -d "$1" 2>/dev/null | cut -d' ' -f1 | tr eEhINV -)
echo mounts=$(grep -c " $1 " /proc/mounts)
echo beside=$(cd "${1%/*}" && ls -d "${1##*/}".* 2>/dev/null)
echo link=$([ -L "$1/kubelet-client-current.pem" ] && [ -e "$1/kubelet-client-current.pem" ] && echo good || echo bad)
echo ours=$(compgen -G "$1/flatline-*" | wc -l)
echo pending=$([ -e "$1/kubelet-client-updated.pem" ] && echo present || echo absent)
echo manifests=$(cd "$3" 2>/dev/null && for f in *; do echo "$f"; sed "$own" "$f"; done 2>/dev/null | sha256sum | cut -c1-16)
# shellcheck disable=SC2009 # it asks for a state and not for a name
echo frozen=$(ps -eo stat= | grep -c '^T')
echo staged=$(ls /var/lib/flatline 2>/dev/null | tr '\n' ' ')
echo timers=$(systemctl list-units --all --no-legend 'flatline-*' | wc -l)
