package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// A fakeNode answers scripts and remembers them in order.
type fakeNode struct {
	mu      sync.Mutex
	scripts []string
	stdin   []string
	answer  func(ctx context.Context, script string) (string, error)
}

func (n *fakeNode) Exec(ctx context.Context, stdin io.Reader, stdout io.Writer, argv ...string) error {
	script := scriptOf(argv)
	var in []byte
	if stdin != nil {
		in, _ = io.ReadAll(stdin)
	}
	n.mu.Lock()
	n.scripts = append(n.scripts, script)
	n.stdin = append(n.stdin, string(in))
	n.mu.Unlock()
	if n.answer == nil {
		return nil
	}
	out, err := n.answer(ctx, script)
	_, _ = io.WriteString(stdout, out)
	return err
}

// scriptOf is what a node is told to run: a step without what has it run alone, a script
// with its arguments.
func scriptOf(argv []string) string {
	switch {
	case len(argv) < 3 || argv[0] != "bash" || argv[1] != "-c":
		return strings.Join(argv, " ")
	case argv[2] == aloneScript:
		return argv[4]
	case len(argv) > 4:
		return argv[2] + "\n" + strings.Join(argv[4:], "\n")
	}
	return argv[2]
}

// A shellNode runs scripts with the real bash, below a folder of the test instead
// of / and with stand-ins for systemctl, kubectl and sleep. Each stand-in
// writes what it was called with to calls, then does what the test says; it returns,
// and does not exit.
type shellNode struct {
	root string
	t    *testing.T
}

// needLinux skips where a node's scripts cannot be run.
func needLinux(t testing.TB) {
	if runtime.GOOS != "linux" {
		t.Skip("the scripts are for the bash and coreutils of a node")
	}
}

// standIn puts a stand-in for a command into a folder. It is a function of each bash
// that has the environment of that folder, so that a call takes no process; anybody who
// looks for a program, as xargs and timeout do, finds one that calls the function.
// Nothing that can be run is ever written: a process that another test makes at that
// moment would have it open, and what is open for writing cannot be run. The options
// of a script do not reach into its stand-ins.
func standIn(t testing.TB, dir, name, body string) {
	t.Helper()
	program, err := filepath.Abs("testdata/stand-in")
	if _, there := os.Stat(program); err != nil || there != nil { // without it the real command would be run
		t.Fatal(err, there)
	}
	bin := filepath.Join(dir, "bin")
	if err := errors.Join(os.MkdirAll(bin, 0o755), os.Symlink(program, filepath.Join(bin, name))); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	profile, err := os.OpenFile(filepath.Join(dir, "profile"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(profile, "%s() {\nlocal -\nset +e +o pipefail\n%s\n}\n", name, body)
	if err := errors.Join(err, profile.Close()); err != nil {
		t.Fatal(err)
	}
}

// withStandIns is the environment of a shell that has the stand-ins of a folder.
func withStandIns(dir, home string) []string {
	return []string{"PATH=" + dir + "/bin:" + os.Getenv("PATH"), "HOME=" + home, "BASH_ENV=" + dir + "/profile"}
}

// nodeClock is the time in a node whose clock stands still, so that it does not matter
// how long anything takes. Whatever is written is younger.
const nodeClock = 1_000_000_000

// nodeUptime is /proc/uptime of a machine that was started so many seconds ago.
const nodeUptime = "1000000.25 1900000.50\n"

// standingClock is the body of its date.
var standingClock = fmt.Sprintf(`case "$*" in
+%%s) echo %[1]d;;
+%%s.%%N) echo %[1]d.000000001;;
*) echo "date $*" >&2; return 1;;
esac`, nodeClock)

func newShellNode(t *testing.T) *shellNode {
	needLinux(t)
	n := &shellNode{root: t.TempDir(), t: t}
	for _, dir := range []string{"flatline", "pki", "proc", "etc/systemd/system"} {
		n.must(os.MkdirAll(n.path(dir), 0o755))
	}
	n.write("proc/uptime", nodeUptime)
	for _, name := range []string{"systemctl", "kubectl", "sleep"} {
		n.stub(name, "")
	}
	return n
}

func (n *shellNode) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *shellNode) stub(name, body string) {
	standIn(n.t, n.root, name, fmt.Sprintf("echo \"%s $*\" >> %s/calls\n%s", name, n.root, body))
}

// here puts the folders of a node below another.
func here(root, script string) string {
	return strings.NewReplacer("/var/lib/flatline", root+"/flatline", kubeletConfig, root+"/config.yaml", pkiDir, root+"/pki",
		"/etc/kubernetes", root+"/etc", "/etc/systemd", root+"/etc/systemd", "/proc/", root+"/proc/", "/run/flatline", root+"/run-flatline").Replace(script)
}

func (n *shellNode) here(script string) string { return here(n.root, script) }

func (n *shellNode) Exec(ctx context.Context, stdin io.Reader, stdout io.Writer, argv ...string) error {
	var there []string
	for _, a := range argv {
		there = append(there, n.here(a))
	}
	return shell(ctx, n.root, withStandIns(n.root, n.root), stdin, stdout, there)
}

// shell runs a command with the environment of a node.
func shell(ctx context.Context, dir string, env []string, stdin io.Reader, stdout io.Writer, argv []string) error {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, stderr.String())
	}
	return nil
}

// run runs a script that must succeed.
func (n *shellNode) run(script string) string {
	n.t.Helper()
	out, err := Node{"n", n}.script(n.t.Context(), nil, script)
	n.must(err)
	return out
}

func (n *shellNode) path(name string) string { return filepath.Join(n.root, name) }

func (n *shellNode) exists(name string) bool {
	_, err := os.Lstat(n.path(name))
	return err == nil
}

func (n *shellNode) read(name string) string {
	n.t.Helper()
	data, err := os.ReadFile(n.path(name))
	n.must(err)
	return string(data)
}

func (n *shellNode) write(name, text string) {
	n.t.Helper()
	n.must(os.WriteFile(n.path(name), []byte(text), 0o644))
}

// calls returns what was called since the last time.
func (n *shellNode) calls() string {
	data, _ := os.ReadFile(n.path("calls"))
	_ = os.Remove(n.path("calls"))
	return string(data)
}

// parses checks the syntax of a script.
func parses(t *testing.T, what, script string) {
	t.Helper()
	cmd := exec.Command("bash", "-n")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s\n%s", what, err, out, script)
	}
}
