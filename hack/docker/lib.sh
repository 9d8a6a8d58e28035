# shellcheck shell=bash
# Sourced by the scripts of this folder, hack/unsetup, hack/shellcheck and hack/browser/setup. Works with the
# bash 3.2 of macOS, where an engine can at least be used.
# shellcheck disable=SC2034 # many of these are for the sourcing script

# A root shell without a login may lack the folders of dockerd and iptables.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

# shellcheck source=../lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

docker_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FLATLINE_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/flatline}/docker
state=${FLATLINE_STATE:-/var/lib/flatline}
changes=$state/host-changes.tsv
dockerd_log=$state/dockerd.log
dockerd_pid_file=/var/run/docker.pid
containerd_pid_file=/var/run/docker/containerd/containerd.pid
docker_socket=/var/run/docker.sock
os_release=/etc/os-release
daemon_json=/etc/docker/daemon.json
runtime_name=flatline-runc
runtime_path=/usr/local/lib/flatline/$runtime_name

# The host's changes, one a line: time, kind, key, value needed to undo it,
# value it was set to. Written before the change, so that an interrupted set-up
# can be taken back as well.
record() {
	mkdir -p "$state" 2>/dev/null || fail "cannot write $state"
	printf '%s\t%s\t%s\t%s\t%s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$1" "$2" "${3:--}" "${4:--}" >>"$changes" ||
		fail "cannot write $changes"
}

deadline() {
	if command -v timeout >/dev/null; then
		timeout "$@"
	else
		perl -e 'alarm shift; exec @ARGV' "$@"
	fi
}

# engine_answers [SECONDS] asks the engine within a deadline and keeps what it
# says in engine_* variables.
engine_answers() {
	local answer
	command -v docker >/dev/null || return 1
	answer=$(deadline "${1:-6}" docker info --format \
		'{{.ID}}|{{.ServerVersion}}|{{.DefaultRuntime}}|{{.Driver}}|{{.DockerRootDir}}|{{.MemTotal}}|{{.KernelVersion}}|{{.Name}}' \
		2>/dev/null) || return
	IFS='|' read -r engine_id engine_version engine_runtime engine_driver engine_root engine_memory engine_kernel engine_host <<<"$answer"
	[[ -n $engine_version ]]
}

# engine_is_local tells whether the engine runs on this very kernel rather than
# in a virtual machine or elsewhere; only then are this host's limits its own.
engine_is_local() {
	case ${DOCKER_HOST-} in
	'' | unix://*) ;;
	*) return 1 ;;
	esac
	# The engine keeps the name the host had when it started.
	[[ $engine_kernel == "$(uname -r)" ]] && { [[ $engine_host == "$(uname -n)" ]] || dockerd_pid >/dev/null; }
}

# engine_answers_late: a loaded machine is no reason to think there is none.
engine_answers_late() {
	local code=0
	engine_answers || code=$?
	case $code in
	0) return 0 ;;
	124 | 142) ;; # timeout's way of saying so, and the alarm's
	*) return 1 ;;
	esac
	say "  the Docker engine is slow to answer, waiting up to 30 s"
	engine_answers 30
}

# endpoint is the address docker uses, from DOCKER_HOST or its context.
endpoint() {
	printf '%s' "${DOCKER_HOST:-$(deadline 5 docker context inspect --format '{{.Endpoints.docker.Host}}' 2>/dev/null || true)}"
}

has_systemd() { [[ -d /run/systemd/system ]]; }

is_root() { [[ $(id -u) == 0 ]]; }

# debian_like reads an os-release file.
debian_like() {
	local ids
	ids=$(sed -n 's/^ID\(_LIKE\)\{0,1\}=//p' "$1" 2>/dev/null | tr -d \"\' | tr '\n' ' ')
	[[ " $ids " == *" debian "* ]]
}

# start_time tells since when process PID lives, in ticks; a process is known by
# both, since numbers come back. One that is dead and merely not collected by
# its parent does not count.
start_time() {
	local stat
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1 # $(<file) of no file ends the whole script
	# The second field is the name in parentheses and may hold blanks.
	# shellcheck disable=SC2086
	set -- ${stat##*) }
	[[ $1 != Z ]] || return 1
	printf '%s' "${20}"
}

# runs tells whether process PID lives and is a NAME.
runs() {
	[[ $1 =~ ^[0-9]+$ ]] && start_time "$1" >/dev/null && [[ $(cat "/proc/$1/comm" 2>/dev/null) == "$2" ]]
}

# dockerd_pid is the engine's process on this host, whoever started it.
dockerd_pid() {
	local pid
	pid=$(cat "$dockerd_pid_file" 2>/dev/null) || return 1
	runs "$pid" dockerd || return 1
	printf '%s' "$pid"
}

# stop_dockerd PID START-TIME ends the engine, if it is still that process.
stop_dockerd() {
	local pid=$1 time=$2 try
	if [[ $(start_time "$pid") != "$time" ]] || ! runs "$pid" dockerd; then return 0; fi
	say "  stopping dockerd, process $pid"
	kill "$pid"
	for ((try = 0; try < 300; try++)); do
		[[ $(start_time "$pid") == "$time" ]] || return 0
		sleep 0.1
	done
	fail "dockerd, process $pid, does not end"
}

# reload_engine makes the engine read daemon.json again. The default runtime is
# one of the settings that need no restart, so no container notices.
reload_engine() {
	local pid
	if has_systemd; then
		systemctl is-active --quiet docker || return 0
		systemctl reload docker || fail "systemctl reload docker failed"
	elif pid=$(dockerd_pid); then
		kill -HUP "$pid"
	fi
}

build_tools() {
	command -v go >/dev/null || fail "Go is needed to set Docker up, see https://go.dev/dl"
	mkdir -p "$cache" || fail "cannot write $cache"
	(cd "$docker_dir" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$cache/" ./runtime ./probe ./tool) ||
		fail "cannot build $docker_dir"
}

# parse_disk reads the one option of setup and host-check into disk.
parse_disk() {
	disk=5
	if (($# == 0)); then return; fi
	if [[ $# != 2 || $1 != --disk || ! $2 =~ ^[0-9]+$ ]]; then
		say "usage: ${0##*/} [--disk GB]"
		exit 2
	fi
	disk=$2
}

gib() { awk -v b="$1" 'BEGIN { printf "%.1f", b / 1073741824 }'; }

# check_host DISK-GB: memory, disk and storage driver of the engine's machine.
check_host() {
	local need=$1 memory free
	if engine_is_local; then
		memory=$(($(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo) * 1024))
	else
		memory=$engine_memory
	fi
	if ((memory < 4 * 1024 * 1024 * 1024)); then
		# A cluster that is already up has taken its share.
		if [[ -n $(docker ps --quiet --filter label=io.x-k8s.kind.cluster) ]]; then
			say "  warning: only $(gib "$memory") GiB of memory available beside the kind clusters that run"
		else
			fail "$(gib "$memory") GiB of memory available to Docker, a cluster needs 4 GiB: stop something or use a larger machine"
		fi
	fi
	# Also for other users than root, who may not look into the folder itself.
	if engine_is_local && free=$(df -Pk "$engine_root" 2>/dev/null | awk 'NR == 2 { print $4 }') && [[ -n $free ]]; then
		((free >= need * 1000 * 1000)) ||
			fail "$((free / 1000 / 1000)) GB free in $engine_root, $need GB are needed: make room (docker system prune) or move Docker's data-root"
	fi
	if [[ $engine_driver == vfs ]]; then
		say "  warning: Docker's storage driver is vfs, every container is a full copy of its image: slow, and several GB a node"
	fi
}

# --- changes of the host -------------------------------------------------------

notices=() # the changes to be made, for people

# consent lists the changes and asks once, where there is somebody to ask.
consent() {
	local notice answer
	((${#notices[@]})) || return 0
	say "Changes to this machine (hack/unsetup takes them back):"
	for notice in "${notices[@]}"; do say "  - $notice"; done
	if [[ ${YES-} == 1 || ! -t 0 || ! -t 2 ]]; then return 0; fi
	read -r -p "Go on? [y/N] " answer || true
	[[ $answer == [yY]* ]] || fail "nothing was changed"
}

apt() {
	DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 "$@" </dev/null
}

# install_packages installs what the array packages names.
install_packages() {
	local planned package
	mkdir -p "$state"
	if ! planned=$(apt -s install --no-install-recommends "${packages[@]}" 2>/dev/null); then
		say "  apt-get update"
		apt update >"$state/apt.log" 2>&1 || say "  warning: apt-get update failed, see $state/apt.log"
	fi
	# Newer releases keep the command in a package of its own.
	if [[ " ${packages[*]} " == *" docker.io "* ]] && ! command -v docker >/dev/null && apt-cache show docker-cli >/dev/null 2>&1; then packages+=(docker-cli); fi
	planned=$(apt -s install --no-install-recommends "${packages[@]}" 2>&1) ||
		fail "apt-get cannot install ${packages[*]}: $(tail -n 2 <<<"$planned")"
	package=$(awk '$1 == "Remv" { printf " %s", $2 }' <<<"$planned")
	[[ -z $package ]] || fail "apt-get would remove$package to install ${packages[*]}: do that in your own way, then run this again"
	# With the dependencies, so that exactly these can be removed again.
	while read -r package; do record package "$package"; done < <(awk '$1 == "Inst" && $3 !~ /^\[/ { print $2 }' <<<"$planned")
	say "  apt-get install ${packages[*]}"
	if ! apt install -y --no-install-recommends "${packages[@]}" >"$state/apt.log" 2>&1; then
		# Package lists age: what they name may be gone from the mirror.
		say "  apt-get update"
		apt update >>"$state/apt.log" 2>&1 || true
		apt install -y --no-install-recommends "${packages[@]}" >>"$state/apt.log" 2>&1 ||
			fail "apt-get install ${packages[*]} failed, see $state/apt.log: $(grep '^E:' "$state/apt.log" | tail -n 1)"
	fi
	hash -r
}
