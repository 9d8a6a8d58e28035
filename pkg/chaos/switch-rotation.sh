# shellcheck shell=bash
# Keeps a copy of the kubelet's configuration $1 and switches rotation off in it, for
# switchRotation of rotationoff.go.
[ -e config-before ] || { cp -p "$1" config-before.new; sync; mv config-before.new config-before; }
# shellcheck disable=SC1003 # a$\ of sed ends the last line, where that has no end
sed 's/^rotateCertificates:.*//;$a\' config-before > config-off
echo 'rotateCertificates: false' >> config-off
chmod --reference=config-before config-off
mv config-off "$1"
