# shellcheck shell=bash disable=SC2154 # variables of the build script
# The steps that compile. Each upstream has a module of its own below this
# folder, so that none is built with the dependencies of another.

# go_in MODULE ARGUMENTS...: the go command in the folder of a module, such that
# programs come out the same on every machine and need no library of the image
# they are put into.
go_in() {
  env -C "$here/$1" -u GOOS -u GOARCH CGO_ENABLED=0 GOWORK=off \
    GOFLAGS='-mod=readonly -trimpath -buildvcs=false' go "${@:2}"
}

# go_tools MODULE OUT FLAGS...: builds all tools of a module in one go build and
# puts the licences of what is linked into them beside them.
go_tools() {
  go_in "$1" build -v "${@:3}" -o "$2/" tool
  go_licences "$1" "$2/LICENSES"
}

# go_licences MODULE OUT: copies licence and notice files of the modules that
# the tools of the module are made of.
go_licences() {
  local path dir file
  go_in "$1" list -deps -f '{{with .Module}}{{.Path}} {{.Dir}}{{end}}' tool | sort -u |
    while read -r path dir; do
      find "$dir" -maxdepth 1 -type f -iregex '.*/\(license\|licence\|notice\|copying\|patents\)[^/]*' |
        while read -r file; do
          install -D -m 0644 "$file" "$2/$path/$(basename "$file")"
        done
    done
}

kubernetes() {
  local major minor package stamps=''
  IFS=. read -r major minor _ <<<"${kubernetes_version#v}"
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    stamps+=" -X $package.gitVersion=$kubernetes_version -X $package.gitTreeState=clean"
    stamps+=" -X $package.gitMajor=$major -X $package.gitMinor=$minor"
  done
  go_tools kubernetes "$1" -ldflags "-s -w$stamps"
}

runtime() {
  local containerd=github.com/containerd/containerd/v2 cri=sigs.k8s.io/cri-tools
  local cni=github.com/containernetworking/plugins
  # The snapshotters left out are those that kind's own base image lacks.
  go_tools containerd "$1/bin" -tags no_aufs,no_zfs,no_btrfs,no_devmapper \
    -ldflags "-s -w -X $containerd/version.Version=$(pinned containerd $containerd)"
  go_tools cri-tools "$1/bin" \
    -ldflags "-s -w -X $cri/pkg/version.Version=$(pinned cri-tools $cri)"
  go_tools cni-plugins "$1/cni" \
    -ldflags "-s -w -X $cni/pkg/utils/buildversion.BuildVersion=$(pinned cni-plugins $cni)"
}

addons() {
  go_tools etcd "$1" -ldflags '-s -w'
  mv "$1/server" "$1/etcd" # a program is named after its package
  go_tools coredns "$1" -ldflags '-s -w'
}

programs() {
  go_in . build -v -ldflags '-s -w' -o "$1/" ./archive ./cni
  # pause has no Go code: all it does is to reap children and to wait.
  local kubernetes
  kubernetes=$(go_in kubernetes list -m -f '{{.Dir}}' k8s.io/kubernetes)
  gcc -Os -Wall -static -s "-DVERSION=v$(pause_tag)" -o "$1/pause" \
    "$kubernetes/build/pause/linux/pause.c"
}

# kind_files: the folder with what kind's own base image is made of.
kind_files() {
  go_in . mod download sigs.k8s.io/kind
  echo "$(go_in . list -m -f '{{.Dir}}' sigs.k8s.io/kind)/images/base/files"
}

# pause_image: the name under which containerd looks for pause.
pause_image() {
  sed -n 's/^ *sandbox_image = "\(.*\)"$/\1/p' "$(kind_files)/etc/containerd/config.toml"
}

pause_tag() {
  local image
  image=$(pause_image)
  echo "${image##*:}"
}
