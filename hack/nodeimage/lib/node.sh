# shellcheck shell=bash disable=SC2154 # variables of the build script
# The steps that make root file systems: the one of Debian, and out of it the
# one of a node.

# Debian 12: its systemd, 252, still boots on hosts with cgroup v1.
debian=bookworm

# What kind's base image installs (images/base/Dockerfile of the kind module)
# and for the same reasons, less what nothing here uses:
#   nfs-common, open-iscsi: only for tests of network storage; would bring Python
#   fuse-overlayfs: only for rootless nodes on kernels before 5.13
packages=(
  # The root file system itself, with /bin and /lib as links into /usr.
  usr-is-merged
  # Process 1, which starts containerd and the kubelet.
  systemd
  # What the kubelet, kube-proxy and the CNI plugins call, and what kind's
  # entrypoint prepares a node with.
  conntrack iptables nftables iproute2 ethtool util-linux mount kmod
  # containerd: system call filters, faster unpacking, containers.
  libseccomp2 pigz runc
  # The kubelet makes and checks file systems of volumes.
  e2fsprogs
  # kind's own scripts, and what people expect when they look into a node.
  bash ca-certificates curl jq procps
)

# Files of packages that no node needs. Copyright files stay.
excludes=(
  '/usr/share/doc/*' '/usr/share/man/*' '/usr/share/info/*' '/usr/share/locale/*'
  '/usr/share/lintian/*' '/usr/share/bash-completion/*' '/usr/share/bug/*' '/usr/share/i18n/*'
  '/usr/share/zsh/*' '/usr/share/perl5/*/*.pod' '/usr/lib/*/gconv/*'
)

# rootfs OUT: root.tar, a Debian without a package manager's caches and lists.
rootfs() {
  local options=() path
  for path in "${excludes[@]}"; do
    options+=("--dpkgopt=path-exclude=$path")
  done
  options+=('--dpkgopt=path-include=/usr/share/doc/*/copyright')
  local IFS=,
  mmdebstrap --variant=essential --format=tar "--include=${packages[*]}" "${options[@]}" \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    "$debian" "$1/root.tar" ${FLATLINE_DEBIAN_MIRROR:+"$FLATLINE_DEBIAN_MIRROR"}
}

# node OUT: root.tar, all that a node needs.
node() {
  local root=$1/root
  mkdir "$root"
  tar -C "$root" -xf "$work/rootfs/root.tar"

  install_kind_files "$root"
  install_programs "$root"
  configure "$root"
  import_images "$root/var/lib/containerd"
  clean "$root"

  tar -C "$root" --numeric-owner -cf "$1/root.tar" .
  rm -rf --one-file-system "$root"
}

# install_kind_files ROOT: scripts, units and configuration of kind's own base
# image, out of the pinned module. Two have nothing to work with here: the
# package installer, and the snapshotter of rootless nodes.
install_kind_files() {
  cp -R --no-preserve=mode,ownership "$(kind_files)/." "$1/"
  chmod 0755 "$1"/usr/local/bin/* "$1"/kind/bin/*
  rm "$1/usr/local/bin/clean-install" "$1/etc/systemd/system/containerd-fuse-overlayfs.service"
}

# install_programs ROOT: what was compiled, at the places where kind has it.
install_programs() {
  local root=$1
  install -m 0755 "$work"/kubernetes/{kubeadm,kubelet,kubectl} "$root/usr/bin/"
  install -m 0755 "$work"/runtime/bin/{containerd,containerd-shim-runc-v2,crictl,ctr} "$root/usr/local/bin/"
  mkdir -p "$root/opt/cni/bin"
  install -m 0755 "$work"/runtime/cni/{host-local,loopback,portmap,ptp} "$root/opt/cni/bin/"
  local licences
  for licences in "$work"/{kubernetes,runtime/bin,runtime/cni,addons}/LICENSES; do
    cp -R "$licences/." "$root/LICENSES/"
  done
}

# configure ROOT: what the Dockerfile of kind's base image and kind's own image
# builder do after the files are in place.
configure() {
  local root=$1
  ln -sf /lib/systemd/systemd "$root/sbin/init"

  # Nothing starts but what a node needs: units that set up a real machine
  # would touch devices and mounts of the host.
  rm -f "$root"/lib/systemd/system/{multi-user,local-fs,basic}.target.wants/* \
    "$root"/lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service \
    "$root"/lib/systemd/system/sockets.target.wants/*{udev,initctl}* \
    "$root"/etc/systemd/system/*.wants/*
  chroot "$root" systemctl enable containerd.service kubelet.service undo-mount-hacks.service
  # It would register interpreters with the kernel of the host.
  chroot "$root" systemctl mask systemd-binfmt.service
  # The journal of a node is not the place for messages of the host's kernel.
  echo ReadKMsg=no >>"$root/etc/systemd/journald.conf"

  # Containers get containerd's default specification, with two changes: the
  # hook with which kind hides the host's hardware, and no limits of their own.
  "$work/runtime/bin/ctr" oci spec |
    chroot "$root" jq '.hooks.createContainer += [{path: "/kind/bin/mount-product-files.sh"}] | del(.process.rlimits)' \
      >"$root/etc/containerd/cri-base.json"

  mkdir -p "$root/etc/kubernetes/manifests" "$root/kind/manifests"
  install -m 0644 "$here/default-cni.yaml" "$root/kind/manifests/"
  echo -n "$kubernetes_version" >"$root/kind/version"
}

# import_images STORE: puts the images into the store of containerd, as they
# come: they are unpacked on the node, when they are first used. "Pinned" keeps
# the kubelet from removing them when the disk fills up.
import_images() {
  local state=$TMPDIR/containerd archive
  mkdir "$state"
  cat >"$state/config.toml" <<EOF
version = 3
root = "$1"
state = "$state/run"
disabled_plugins = [
  "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri",
  "io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs",
]
[grpc]
address = "$state/containerd.sock"
[ttrpc]
address = "$state/containerd.sock.ttrpc"
EOF
  "$work/runtime/bin/containerd" --config "$state/config.toml" &
  local containerd=$!
  local ctr=("$work/runtime/bin/ctr" --address "$state/containerd.sock" --namespace k8s.io)
  local tries=0
  until "${ctr[@]}" version >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -gt 50 ] || ! kill -0 "$containerd"; then
      echo "containerd did not start"
      return 1
    fi
    sleep 0.2
  done
  for archive in "$work"/images/*.tar; do
    [ "$(basename "$archive")" = netfilter.tar ] ||
      "${ctr[@]}" images import --label io.cri-containerd.pinned=pinned \
        --all-platforms --no-unpack --digests "$archive"
  done
  "${ctr[@]}" images list
  kill -TERM "$containerd"
  wait "$containerd"
}

# clean ROOT: removes what the node has no use for or must not inherit from the
# machine that builds it.
clean() {
  local root=$1
  rm -rf "$root"/var/lib/apt "$root"/var/cache/{apt,debconf,ldconfig}/* "$root"/var/log/* "$root"/tmp/*
  # Docker mounts the real ones over these.
  : >"$root/etc/resolv.conf"
  : >"$root/etc/hostname"
}
