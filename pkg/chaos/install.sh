# shellcheck shell=bash
# Makes the staged file $1 the kubelet's current certificate, as $2 in the folder $3, for
# installScript of certificate.go.
set -e
mkdir -p "$3"
install -m 600 "$1" "$3/$2"
rm -f "$3/kubelet-client-updated.pem"
ln -sfn "$3/$2" "$3/flatline-link"
mv -T "$3/flatline-link" "$3/kubelet-client-current.pem"
sync -f "$3"
