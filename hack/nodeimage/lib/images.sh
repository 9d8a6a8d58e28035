# shellcheck shell=bash disable=SC2154 # variables of the build script
# The step that makes the images inside the node image: docker archives, each
# of one static program, and where programs of Debian are called of these too.

images() {
  local out=$1 netfilter=$1/netfilter.tar kubernetes=$work/kubernetes
  netfilter_layer "$TMPDIR" "$netfilter"

  local image name
  "$kubernetes/kubeadm" config images list --kubernetes-version "$kubernetes_version" >"$TMPDIR/list"
  while read -r image; do
    name=${image##*/}
    name=${name%%:*}
    case $name in
      kube-proxy)
        archive "$out/$name.tar" "$image" -layer "$netfilter" \
          -add "$kubernetes/kube-proxy=/usr/local/libexec/kube-proxy" \
          -add "$here/files/kube-proxy=/usr/local/bin/kube-proxy" ;;
      kube-*)
        archive "$out/$name.tar" "$image" -add "$kubernetes/$name=/usr/local/bin/$name" ;;
      etcd)
        expect_version "$image" "$(pinned etcd go.etcd.io/etcd/server/v3)"
        archive "$out/$name.tar" "$image" -add "$work/addons/etcd=/usr/local/bin/etcd" ;;
      coredns)
        expect_version "$image" "$(pinned coredns github.com/coredns/coredns)"
        archive "$out/$name.tar" "$image" -add "$work/addons/coredns=/coredns" \
          -entrypoint /coredns ;;
      pause)
        # containerd has its own idea of which tag to use: the one that counts.
        archive "$out/$name.tar" "$(pause_image)" -add "$work/programs/pause=/pause" \
          -entrypoint /pause ;;
      *)
        echo "kubeadm wants an image that this recipe does not know: $image"
        return 1 ;;
    esac
  done <"$TMPDIR/list"

  image=$(sed -n 's/^ *image: \(flatline\/.*\)$/\1/p' "$here/default-cni.yaml")
  archive "$out/cni.tar" "$image" -layer "$netfilter" \
    -add "$work/programs/cni=/usr/local/bin/flatline-cni" -entrypoint /usr/local/bin/flatline-cni
}

# archive FILE IMAGE ARGUMENTS...
archive() {
  echo "image $2"
  "$work/programs/archive" -o "$1" -tag "$2" -compress zstd "${@:3}"
}

# expect_version IMAGE VERSION: fails unless kubeadm wants the pinned version.
expect_version() {
  case ${1##*:} in
    "$2" | "${2#v}"-*) return 0 ;;
  esac
  echo "kubeadm wants $1, but the module pins $2"
  return 1
}

# netfilter_layer DIR OUT: a tar of the programs with which kube-proxy and the
# CNI agent program the kernel, with the libraries these need and a shell for
# the script that picks among them. Both images share it as their first layer.
netfilter_layer() {
  local root=$1/root layer=$1/layer name mode
  mkdir "$root" "$layer"
  tar -C "$root" -xf "$work/rootfs/root.tar"

  local files=(
    /bin/sh
    /usr/sbin/xtables-legacy-multi /usr/sbin/xtables-nft-multi # iptables, both kinds
    /usr/sbin/nft
  )
  # iptables loads the code for each match and target when a rule has it.
  mapfile -t -O ${#files[@]} files < <(cd "$root" && find usr/lib -path '*/xtables/*.so' -printf '/%p\n')
  # ldd says "name => /path (address)" or "/path (address)".
  chroot "$root" ldd "${files[@]}" | awk '$1 !~ /:$/ { for (i = 1; i <= NF; i++) if ($i ~ /^\//) print $i }' >"$1/libraries"
  printf '%s\n' "${files[@]}" | sort -u - "$1/libraries" | sed 's,^/,,' >"$1/files"
  tar -C "$root" -ch -T "$1/files" | tar -C "$layer" -x

  for mode in legacy nft; do
    mkdir -p "$layer/usr/lib/iptables/$mode"
    for name in {iptables,ip6tables}{,-save,-restore}; do
      ln -s "/usr/sbin/xtables-$mode-multi" "$layer/usr/lib/iptables/$mode/$name"
    done
  done
  tar -C "$layer" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf "$2" .
}
