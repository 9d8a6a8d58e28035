package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
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
	script := strings.Join(argv, " ")
	if len(argv) == 3 && argv[0] == "bash" && argv[1] == "-c" {
		script = argv[2]
	}
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

// A shellNode runs scripts with the real bash, below a folder of the test instead
// of / and with stand-ins for systemctl, systemd-run, kubectl and sleep. Each stand-in
// writes what it was called with to calls, then does what the test says.
type shellNode struct {
	root string
	t    *testing.T
}

func newShellNode(t *testing.T) *shellNode {
	if runtime.GOOS != "linux" {
		t.Skip("the scripts are for the bash and coreutils of a node")
	}
	n := &shellNode{root: t.TempDir(), t: t}
	for _, dir := range []string{"bin", "flatline", "pki"} {
		n.must(os.Mkdir(filepath.Join(n.root, dir), 0o755))
	}
	for _, name := range []string{"systemctl", "systemd-run", "kubectl", "sleep"} {
		n.stub(name, "exit 0")
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
	text := fmt.Sprintf("#!/bin/bash\necho \"%s $*\" >> %s/calls\n%s\n", name, n.root, body)
	n.must(os.WriteFile(filepath.Join(n.root, "bin", name), []byte(text), 0o755))
}

// here puts the folders of a node below the test's.
func (n *shellNode) here(script string) string {
	return strings.NewReplacer("/var/lib/flatline", n.root+"/flatline", kubeletConfig, n.root+"/config.yaml", pkiDir, n.root+"/pki",
		"/etc/kubernetes", n.root+"/etc", "/etc/systemd", n.root+"/etc/systemd", "/proc/", n.root+"/proc/").Replace(script)
}

func (n *shellNode) Exec(ctx context.Context, stdin io.Reader, stdout io.Writer, argv ...string) error {
	var stderr bytes.Buffer
	for i := range argv {
		argv[i] = n.here(argv[i])
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = n.root
	cmd.Env = []string{"PATH=" + n.root + "/bin:" + os.Getenv("PATH"), "HOME=" + n.root, "BASH_ENV=" + n.root + "/profile"}
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
