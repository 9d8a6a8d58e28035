# shellcheck shell=bash
# Prints of each file in the folder $1 its mode, owner and what it holds or leads to, and of the
# folder its attributes and mounts, for filesScript of files.go.
cd "$1" || exit 1
# Attributes that only the filesystem sets are left out: a folder that many files went through
# is indexed (I) afterwards, and that is nobody's doing.
echo "attributes=$(lsattr -d . 2>/dev/null | cut -d' ' -f1 | tr eEhINV -)"
echo "mounts=$(grep -c " $1 " /proc/mounts)"
for f in . $(ls -A); do
	what=
	[ -f "$f" ] && what=$(sha256sum < "$f" | cut -c1-16)
	[ -L "$f" ] && what="-> $(readlink "$f")"
	echo "$f=$(stat -c '%A %U:%G' "$f") $what"
done
