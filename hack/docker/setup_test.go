// Package docker holds the set-up of the Docker engine; its tests run the
// scripts against a stub of docker, never against the engine of this machine.
package docker

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// stubDocker answers from files of $STUB and notes how it was called.
const stubDocker = `#!/bin/sh
echo "$*" >>"$STUB/calls"
case $1 in
info) cat "$STUB/info" 2>/dev/null ;;
import) cat >/dev/null ;;
run) if [ -e "$STUB/run-error" ]; then cat "$STUB/run-error" >&2; exit 125; fi ;;
exec) cat "$STUB/limits" ;;
ps) case $* in *--no-trunc*) cat "$STUB/ids" ;; *) cat "$STUB/ps" ;; esac 2>/dev/null || true ;;
inspect) cat "$STUB/inspect" ;;
image) exit 1 ;;
esac
`

// stubTimeout has the engine answer however slow the machine is.
const stubTimeout = `#!/bin/sh
shift
exec "$@"
`

var toolCache string // shared, since it holds what is built

func TestMain(m *testing.M) {
	if runtime.GOOS != "linux" {
		fmt.Println("the scripts are tested on Linux only")
		return
	}
	dir, err := os.MkdirTemp("", "flatline-docker-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	toolCache = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// host is a machine with a stubbed docker.
type host struct {
	t    *testing.T
	dir  string
	repo string
	env  []string
}

type result struct {
	stdout, stderr string
	code           int
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir := t.TempDir()
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, dir: dir, repo: repo}
	h.write("bin/docker", stubDocker)
	h.write("bin/timeout", stubTimeout)
	h.write("limits", "8192 1048576\n")
	h.env = append(os.Environ(),
		"PATH="+h.path("bin")+":"+os.Getenv("PATH"),
		"STUB="+dir,
		"FLATLINE_CACHE="+toolCache,
		"FLATLINE_STATE="+h.path("state"),
		"DOCKER_HOST=", "YES=",
	)
	return h
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

func (h *host) write(name, text string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(h.path(name)), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(h.path(name), []byte(text), 0o755); err != nil {
		h.t.Fatal(err)
	}
}

// private demands that only its owner can read a file.
func (h *host) private(name string) {
	h.t.Helper()
	info, err := os.Stat(h.path(name))
	if err != nil {
		h.t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		h.t.Errorf("%s has mode %v, want 0600", name, info.Mode().Perm())
	}
}

func (h *host) read(name string) string {
	h.t.Helper()
	data, err := os.ReadFile(h.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Fatal(err)
	}
	return string(data)
}

// engine lets docker info answer; the kernel is another one, so that the
// limits of the machine that runs the test do not matter.
func (h *host) engine(runtime, driver string, memory int) {
	h.write("info", fmt.Sprintf("%s|20.10.24+dfsg1|%s|%s|/nowhere|%d|0.0-stub|stub\n", h.t.Name(), runtime, driver, memory))
}

func (h *host) run(name string, args ...string) result {
	h.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = h.env
	cmd.Dir = h.dir
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

func (h *host) setup(args ...string) result {
	return h.run(filepath.Join(h.repo, "hack/docker/setup"), args...)
}

// with runs main of a script after some of its functions or variables were
// replaced.
func (h *host) with(script, overrides string) result {
	return h.run("bash", "-c", `source "$1"; eval "$2"; main`, "test", filepath.Join(h.repo, script), overrides)
}

// oneError demands exit code 3 and a single message.
func (r result) oneError(t *testing.T, part string) {
	t.Helper()
	if r.code != 3 {
		t.Errorf("exit code %d, want 3", r.code)
	}
	if strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "error: ") || !strings.Contains(r.stderr, part) {
		t.Errorf("stderr %q, want one error with %q", r.stderr, part)
	}
}

const gib = 1 << 30

func TestWorkingEngineIsLeftAlone(t *testing.T) {
	h := newHost(t)
	h.engine("runc", "overlay2", 8*gib)
	r := h.setup()
	if r.code != 0 || r.stdout != "Docker engine: 20.10.24, ready\n" || r.stderr != "" {
		t.Fatalf("got %+v", r)
	}
	var verbs []string
	for line := range strings.Lines(h.read("calls")) {
		verbs = append(verbs, strings.Fields(line)[0])
	}
	if want := []string{"info", "import", "run", "exec", "rm", "rmi"}; !slices.Equal(verbs, want) {
		t.Errorf("docker was called for %v, want %v", verbs, want)
	}
	if _, err := os.Stat(h.path("state")); err == nil {
		t.Error("changes of the host were recorded, none are needed")
	}

	h.write("calls", "")
	if r := h.setup(); r.code != 0 {
		t.Fatalf("second time: %+v", r)
	}
	if calls := h.read("calls"); strings.Count(calls, "\n") != 1 || !strings.HasPrefix(calls, "info ") {
		t.Errorf("second time docker was called for\n%s, want info only", calls)
	}

	// Another default runtime is another engine.
	h.engine("other", "overlay2", 8*gib)
	h.write("calls", "")
	h.setup()
	if calls := h.read("calls"); !strings.Contains(calls, "run --detach --privileged") {
		t.Errorf("not probed again: %s", calls)
	}
}

func TestEngineThatCannot(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(*host)
		part    string
	}{
		{"privileged containers refused", func(h *host) {
			h.write("run-error", "docker: Error response: not allowed here.\nSee 'docker run --help'.\n")
		}, "cannot run privileged containers, which kind needs: docker: Error response: not allowed here."},
		{"limits of another machine", func(h *host) { h.write("limits", "128 8192\n") }, "max_user_instances is 128 and max_user_watches 8192"},
		{"memory", func(h *host) { h.engine("runc", "overlay2", 3*gib) }, "3.0 GiB of memory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			h.engine("runc", "overlay2", 8*gib)
			tt.prepare(h)
			h.setup().oneError(t, tt.part)
		})
	}
}

func TestWarnings(t *testing.T) {
	h := newHost(t)
	h.engine("runc", "vfs", 3*gib)
	h.write("ps", "0123456789ab\n") // a cluster is up already and has taken its memory
	r := h.setup()
	if r.code != 0 || !strings.Contains(r.stderr, "storage driver is vfs") || !strings.Contains(r.stderr, "only 3.0 GiB") {
		t.Errorf("got %+v", r)
	}
}

func TestNoEngineNoRemedy(t *testing.T) {
	debian := func(h *host) { h.write("os-release", "ID=debian\n") }
	tests := []struct {
		name    string
		prepare func(*host)
		part    string
	}{
		{"macOS", func(h *host) { h.write("bin/uname", "#!/bin/sh\necho Darwin\n") }, "start Docker Desktop"},
		{"remote", func(h *host) { h.env = append(h.env, "DOCKER_HOST=tcp://192.0.2.1:2375") }, "answers at tcp://192.0.2.1:2375"},
		{"socket of another engine", func(h *host) { h.env = append(h.env, "DOCKER_HOST=unix:///home/u/docker.sock") }, "answers at unix:///home/u/docker.sock"},
		{"another distribution", func(h *host) { h.write("os-release", "ID=fedora\n") }, "install Docker"},
		{"no root", func(h *host) {
			debian(h)
			h.write("bin/id", "#!/bin/sh\necho 1000\n")
		}, "run this once as root"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			tt.prepare(h)
			h.with("hack/docker/setup", `os_release=$STUB/os-release docker_socket=$STUB/docker.sock`).oneError(t, tt.part)
			if state := h.read("state/host-changes.tsv"); state != "" {
				t.Errorf("recorded changes: %s", state)
			}
		})
	}
}

func TestDebianLike(t *testing.T) {
	for text, want := range map[string]int{
		"ID=debian\nVERSION_ID=\"12\"\n":            0,
		"ID=ubuntu\nID_LIKE=debian\n":               0,
		"ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n": 0,
		"ID=\"debian\"\n":                           0,
		"ID=fedora\n":                               1,
		"ID=arch\nHOME_URL=debian\n":                1,
		"ID=debianish\n":                            1,
		"VARIANT_ID=debian\n":                       1,
	} {
		h := newHost(t)
		h.write("os-release", text)
		if r := h.run("bash", "-c", `source "$0"; debian_like os-release`, filepath.Join(h.repo, "hack/docker/lib.sh")); r.code != want {
			t.Errorf("%q: %d, want %d", text, r.code, want)
		}
	}
	h := newHost(t)
	if r := h.run("bash", "-c", `source "$0"; debian_like missing`, filepath.Join(h.repo, "hack/docker/lib.sh")); r.code != 1 || r.stderr != "" {
		t.Errorf("no file: %+v", r)
	}
}

// lacking is a host of root without some capability. Once its engine reads
// daemon.json again, privileged containers work.
const lacking = `
daemon_json=$STUB/etc/daemon.json runtime_path=$STUB/lib/flatline-runc
is_root() { :; }
lacks_capabilities() { :; }
engine_is_local() { :; }
plan_limit() { :; }
check_host() { :; }
reload_engine() { sed -i 's/|runc|/|flatline-runc|/' "$STUB/info"; rm -f "$STUB/run-error"; }
`

const capsError = "docker: OCI runtime create failed: unable to apply caps: operation not permitted: unknown.\n"

func newLackingHost(t *testing.T) *host {
	h := newHost(t)
	h.engine("runc", "overlay2", 8*gib)
	h.write("run-error", capsError)
	return h
}

func TestRuntimeComesAndGoes(t *testing.T) {
	for _, original := range []string{"", "{ \"debug\":true,\n  \"data-root\": \"/d\" }"} {
		t.Run(fmt.Sprintf("original %d bytes", len(original)), func(t *testing.T) {
			h := newLackingHost(t)
			if original != "" {
				h.write("etc/daemon.json", original)
			}
			r := h.with("hack/docker/setup", lacking)
			if r.code != 0 || !strings.Contains(r.stderr, "Changes to this machine") {
				t.Fatalf("setup: %+v", r)
			}
			h.private("state/daemon.json.written")
			merged := h.read("etc/daemon.json")
			if !strings.Contains(merged, `"default-runtime": "flatline-runc"`) || !strings.Contains(merged, h.path("lib/flatline-runc")) {
				t.Errorf("merged daemon.json: %s", merged)
			}
			if original != "" && !strings.Contains(merged, `"data-root": "/d"`) {
				t.Errorf("lost data-root: %s", merged)
			}

			if r := h.with("hack/unsetup", lacking); r.code != 0 {
				t.Fatalf("unsetup: %+v", r)
			}
			if got := h.read("etc/daemon.json"); got != original {
				t.Errorf("daemon.json after unsetup %q, want %q", got, original)
			}
			for _, name := range []string{"lib/flatline-runc", "state"} {
				if _, err := os.Stat(h.path(name)); err == nil {
					t.Errorf("%s is left", name)
				}
			}
			if r := h.with("hack/unsetup", lacking); r.code != 0 || !strings.Contains(r.stderr, "nothing to take back") {
				t.Errorf("unsetup again: %+v", r)
			}
		})
	}
}

func TestUnsetupKeepsLaterEdits(t *testing.T) {
	h := newLackingHost(t)
	if r := h.with("hack/docker/setup", lacking); r.code != 0 {
		t.Fatalf("setup: %+v", r)
	}
	h.write("etc/daemon.json", strings.Replace(h.read("etc/daemon.json"), "{\n", "{\n  \"debug\": true,\n", 1))
	if err := os.Chmod(h.path("etc/daemon.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := h.with("hack/unsetup", lacking); r.code != 0 {
		t.Fatalf("unsetup: %+v", r)
	}
	if got, want := h.read("etc/daemon.json"), "{\n  \"debug\": true\n}\n"; got != want {
		t.Errorf("daemon.json %q, want %q", got, want)
	}
	h.private("etc/daemon.json")
}

func TestDaemonJSONThatCannotTakeTheRuntime(t *testing.T) {
	for _, original := range []string{`{"default-runtime": "nvidia"}`, `{"debug": true,}`} {
		h := newLackingHost(t)
		h.write("etc/daemon.json", original)
		r := h.with("hack/docker/setup", lacking)
		if r.code != 3 || !strings.Contains(r.stderr, "was left alone") {
			t.Errorf("%s: %+v", original, r)
		}
		if got := h.read("etc/daemon.json"); got != original {
			t.Errorf("daemon.json became %s", got)
		}
		if changes := h.read("state/host-changes.tsv"); changes != "" {
			t.Errorf("recorded %s", changes)
		}
	}
}

// A host that lacks capabilities may have other reasons to refuse.
func TestOtherErrorsAreNotTreated(t *testing.T) {
	h := newLackingHost(t)
	h.write("run-error", "docker: Error response: no space left on device.\n")
	h.with("hack/docker/setup", lacking).oneError(t, "no space left on device")
}

func TestUnsetupRefusesWhileInUse(t *testing.T) {
	h := newHost(t)
	h.engine("runc", "overlay2", 8*gib)
	const line = "2026-01-01T00:00:00Z\tdockerd\t999999999\t1\t-\n"
	h.write("state/host-changes.tsv", line)
	h.write("ps", "lab-control-plane (cluster lab)\n")
	r := h.with("hack/unsetup", "is_root() { :; }")
	if r.code != 3 || !strings.Contains(r.stderr, "kind clusters exist") || !strings.Contains(r.stderr, "lab-control-plane") {
		t.Errorf("got %+v", r)
	}
	if got := h.read("state/host-changes.tsv"); got != line {
		t.Errorf("changes became %q", got)
	}
}

// A stopped container keeps the runtime that it was made with, and starts with no other.
func TestUnsetupRefusesWhileARuntimeIsNeeded(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*host)
		part    string // of the refusal; without it there is none
	}{
		"stopped": {func(h *host) {
			h.engine("flatline-runc", "overlay2", 8*gib)
			h.write("ids", "01\n02\n")
			h.write("inspect", "flatline-runc /db\nrunc /web\n")
		}, "made with the runtime flatline-runc"},
		"not to be asked": {func(h *host) {
			h.engine("flatline-runc", "overlay2", 8*gib)
			h.write("ids", "01\n")
		}, "does not say which runtime"},
		"others": {func(h *host) {
			h.engine("flatline-runc", "overlay2", 8*gib)
			h.write("ids", "02\n")
			h.write("inspect", "runc /web\n")
		}, ""},
		"the engine is down": {func(h *host) {
			h.write("etc/daemon.json", `{"data-root": "`+h.path("data")+`"}`)
			h.write("data/containers/01/hostconfig.json", `{"Binds":null,"Runtime":"flatline-runc","Isolation":""}`)
			h.write("data/containers/01/config.v2.json", `{"ID":"01","Name":"/db","MountPoints":{"/d":{"Name":"volume"}}}`)
			h.write("data/containers/02/hostconfig.json", `{"Runtime":"runc"}`)
			h.write("data/containers/02/config.v2.json", `{"Name":"/web"}`)
		}, "made with the runtime"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			line := "2026-01-01T00:00:00Z\tfile\t" + h.path("lib/flatline-runc") + "\t-\t-\n"
			h.write("state/host-changes.tsv", line)
			test.prepare(h)
			r := h.with("hack/unsetup", "is_root() { :; }; daemon_json=$STUB/etc/daemon.json")
			if test.part == "" {
				if r.code != 0 {
					t.Errorf("got %+v", r)
				}
				return
			}
			if r.code != 3 || !strings.Contains(r.stderr, test.part) || strings.Contains(r.stderr, "web") {
				t.Errorf("got %+v", r)
			}
			if test.part != "does not say which runtime" && !strings.HasSuffix(r.stderr, ":\ndb\n") {
				t.Errorf("the container is not named: %s", r.stderr)
			}
			if got := h.read("state/host-changes.tsv"); got != line {
				t.Errorf("changes became %q", got)
			}
		})
	}
}

// stubAptGet notes how it was called and has one package to install; it fails to.
const stubAptGet = `#!/bin/sh
echo "$*" >>"$STUB/apt"
case " $* " in
*" -s "*) echo "Inst mmdebstrap (1.3 stub)" ;;
*" install "*) echo "E: not here"; exit 100 ;;
esac
`

// What the build of the node image takes of Debian is on the list of changes, as all is.
func TestPackagesOfTheNodeImage(t *testing.T) {
	h := newHost(t)
	h.engine("runc", "overlay2", 8*gib)
	h.write("os-release", "ID=debian\n")
	h.write("bin/apt-get", strings.Replace(stubAptGet, "exit 100", "exit 0", 1))
	const debian = "is_root() { :; }; os_release=$STUB/os-release; find_missing() { packages=(mmdebstrap); }"
	r := h.with("hack/docker/host-check", debian)
	if r.code != 0 || !strings.Contains(r.stderr, "Changes to this machine") || !strings.Contains(r.stderr, "install the Debian packages mmdebstrap, to build the node image") {
		t.Errorf("got %+v", r)
	}
	if changes := h.read("state/host-changes.tsv"); !strings.Contains(changes, "\tpackage\tmmdebstrap\t") {
		t.Errorf("recorded %q", changes)
	}

	h = newHost(t)
	h.engine("runc", "overlay2", 8*gib)
	h.with("hack/docker/host-check", debian+"; is_root() { return 1; }").oneError(t, "the node image is built with the Debian packages mmdebstrap: install them")
	if r := h.with("hack/docker/host-check", "find_missing() { packages=(); }"); r.code != 0 || r.stderr != "" {
		t.Errorf("nothing is missing: %+v", r)
	}
}

// The build itself comes to apt-get only through that list.
func TestBuildInstallsNothingUnrecorded(t *testing.T) {
	h := newHost(t)
	h.engine("runc", "overlay2", 8*gib)
	h.write("bin/apt-get", stubAptGet)
	h.write("bin/id", "#!/bin/sh\necho 0\n")
	h.write("env", `command() { if [[ ${2-} == mmdebstrap ]]; then return 1; fi; builtin command "$@"; }`+"\n")
	h.env = append(h.env, "FLATLINE_CACHE="+h.path("cache"), "BASH_ENV="+h.path("env"))
	r := h.run(filepath.Join(h.repo, "hack/nodeimage/build"))
	if r.code != 3 {
		t.Errorf("got %+v", r)
	}
	// On Debian it tries; elsewhere it says what is missing.
	if calls := h.read("apt"); calls != "" && !strings.Contains(h.read("state/host-changes.tsv"), "\tpackage\tmmdebstrap\t") {
		t.Errorf("apt-get was called for\n%sand nothing is recorded", calls)
	}
}

func TestRestartEndsTheEngineAndSetsItUp(t *testing.T) {
	h := newHost(t)
	h.write("old/dockerd", "#!/bin/sh\nread line <\"$STUB/end\"\n")
	h.write("new/setup", "#!/bin/sh\necho set up\n")
	if err := syscall.Mkfifo(h.path("end"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := exec.Command(h.path("old/dockerd"))
	old.Env = h.env
	if err := old.Start(); err != nil {
		t.Fatal(err)
	}
	end, err := os.OpenFile(h.path("end"), os.O_WRONLY, 0) // it runs, and waits for a line
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	h.write("docker.pid", fmt.Sprint(old.Process.Pid))
	r := h.with("hack/docker/restart", "is_root() { :; }; has_systemd() { return 1; }; docker_dir=$STUB/new dockerd_pid_file=$STUB/docker.pid")
	if r.code != 0 || r.stdout != "set up\n" {
		old.Process.Kill()
		t.Errorf("got %+v", r)
	}
	if err := old.Wait(); err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("the old engine: %v, want it terminated", err)
	}
}

func TestUnsetupLeavesForeignValues(t *testing.T) {
	h := newHost(t)
	h.write("state/host-changes.tsv", "2026-01-01T00:00:00Z\tsysctl\tkernel.ostype\tPlan9\tInferno\n"+
		"2026-01-01T00:00:00Z\tdockerd\t"+fmt.Sprint(os.Getpid())+"\t1\t-\n")
	r := h.with("hack/unsetup", "is_root() { :; }")
	if r.code != 0 || !strings.Contains(r.stderr, "kernel.ostype is Linux now, not the Inferno it was set to: left alone") {
		t.Errorf("got %+v", r)
	}
}

// An engine that was killed leaves the numbers of its processes behind. A pid
// file that names nobody must not end the set-up: once it did, silently, since
// bash ends a script under set -e for $(<file) of a file that is not there.
func TestKilledEngineIsStartedAgain(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for name, pid := range map[string]int{"nobody": gone.Process.Pid, "somebody else": os.Getpid()} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.write("os-release", "ID=debian\n")
			h.write("docker.pid", fmt.Sprint(pid))
			h.write("containerd.pid", fmt.Sprint(pid))
			h.write("bin/iptables", "#!/bin/sh\n")
			// It lives until the test opens the other end.
			h.write("bin/dockerd", "#!/bin/sh\necho 'engine|20.10.24|runc|overlay2|/nowhere|8589934592|0.0-stub|stub' >\"$STUB/info\"\nread line <\"$STUB/end\"\n")
			if err := syscall.Mkfifo(h.path("end"), 0o600); err != nil {
				t.Fatal(err)
			}
			defer func() {
				mode := os.O_WRONLY
				if h.read("info") == "" { // it was not started: nobody opens this end
					mode |= syscall.O_NONBLOCK
				}
				if end, err := os.OpenFile(h.path("end"), mode, 0); err == nil {
					end.Close()
				}
			}()
			// Without its meaning SECONDS stands still: the engine may take its time.
			r := h.with("hack/docker/setup", `
unset SECONDS; SECONDS=0
is_root() { :; }
has_systemd() { return 1; }
plan_limit() { :; }
os_release=$STUB/os-release docker_socket=$STUB/docker.sock dockerd_pid_file=$STUB/docker.pid containerd_pid_file=$STUB/containerd.pid`)
			if r.code != 0 || r.stdout != "Docker engine: 20.10.24, ready\n" {
				t.Fatalf("got %+v", r)
			}
			for _, name := range []string{"docker.pid", "containerd.pid"} {
				if !strings.Contains(r.stderr, "removing "+h.path(name)) {
					t.Errorf("%s was not removed: %s", name, r.stderr)
				}
			}
		})
	}
}

// The engine must not hold what its starter had open.
func TestDockerdIsDetached(t *testing.T) {
	h := newHost(t)
	h.write("bin/dockerd", `#!/bin/bash
for fd in /proc/$$/fd/*; do [[ ${fd##*/} == 255 ]] || readlink "$fd"; done >"$STUB/open"
pwd >"$STUB/cwd"
`)
	pipe, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer other.Close()
	h.write("state/dockerd.log", "")
	cmd := exec.Command(filepath.Join(h.repo, "hack/docker/setup"), "--become-dockerd")
	cmd.Env = h.env
	cmd.ExtraFiles = []*os.File{other, other, other, other, other, other, other, other}
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v: %s", err, out)
	}
	log := h.path("state/dockerd.log")
	open := strings.Fields(h.read("open"))
	// The loop of the stub itself has its output open.
	open = slices.DeleteFunc(open, func(f string) bool { return f == h.path("open") })
	for _, f := range open {
		if f != "/dev/null" && f != log {
			t.Errorf("dockerd has %s open", f)
		}
	}
	if cwd := h.read("cwd"); cwd != "/\n" {
		t.Errorf("dockerd runs in %s", cwd)
	}
	if changes := h.read("state/host-changes.tsv"); !strings.Contains(changes, "\tdockerd\t"+fmt.Sprint(cmd.Process.Pid)+"\t") {
		t.Errorf("its process %d is not recorded: %s", cmd.Process.Pid, changes)
	}
}

const stubMain = `package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 || os.Args[1] != "node-image" {
		os.Exit(2)
	}
	if os.Getenv("STUB_FAIL") != "" {
		fmt.Fprintln(os.Stderr, "error: no image")
		os.Exit(5)
	}
	fmt.Println("example/node:v1")
}
`

func TestWholeSetup(t *testing.T) {
	h := newHost(t)
	h.engine("runc", "overlay2", 8*gib)
	h.write("repo/go.mod", "module stub\n\ngo 1.26\n")
	h.write("repo/main.go", stubMain)
	if out, err := exec.Command("cp", "-r", filepath.Join(h.repo, "hack/docker"), filepath.Join(h.repo, "hack/setup"), filepath.Join(h.repo, "hack/binary"), filepath.Join(h.repo, "hack/lib.sh"), h.path("repo/")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	h.write("repo/hack/.keep", "")
	for _, name := range []string{"docker", "setup", "binary", "lib.sh"} {
		if err := os.Rename(h.path("repo/"+name), h.path("repo/hack/"+name)); err != nil {
			t.Fatal(err)
		}
	}
	script := h.path("repo/hack/setup")

	r := h.run(script)
	if r.code != 0 || r.stdout != "" {
		t.Fatalf("got %+v", r)
	}
	for _, part := range []string{"[1/3] ", "s  Docker engine: 20.10.24, ready\n", "[2/3] ", "s  flatline binary: bin/flatline\n", "[3/3] ", "s  node image: example/node:v1\n"} {
		if !strings.Contains(r.stderr, part) {
			t.Errorf("no %q in\n%s", part, r.stderr)
		}
	}
	if r := h.run(script); r.code != 0 || strings.Count(r.stderr, "\n") != 3 {
		t.Errorf("second time: %+v", r)
	}

	env := h.env
	h.env = append(slices.Clone(env), "STUB_FAIL=1")
	if r := h.run(script); r.code != 5 || !strings.Contains(r.stderr, "error: no image\n[3/3] ") {
		t.Errorf("node-image fails: %+v", r)
	}
	h.env = env
	h.write("repo/main.go", "package main\n\nfunc main() { nothing }\n")
	if r := h.run(script); r.code != 3 || !strings.Contains(r.stderr, "flatline does not build") || strings.Contains(r.stderr, "[3/3]") {
		t.Errorf("build fails: %+v", r)
	}
	h.engine("runc", "overlay2", gib)
	if r := h.run(script); r.code != 3 || !strings.Contains(r.stderr, "GiB of memory") || strings.Contains(r.stderr, "[2/3]") {
		t.Errorf("host too small: %+v", r)
	}
}
