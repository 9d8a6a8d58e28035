package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Node is one node of a cluster. Its container, its host name and its Kubernetes
// Node object share one name.
type Node struct {
	Name string
	Role string // "control-plane" or "worker"
	IP   string // address in the container network when the cluster was created or opened
	ID   string // of its container, by the engine: another one of the same name has another
}

// Exec runs argv inside the node, as root. What it writes to stderr becomes part of the
// error; an exit code can be had with errors.As and *exec.ExitError. Exec has no
// deadline of its own: streams are its users too.
//
// When ctx ends Exec returns the cause, but the process inside the node goes on:
// argv that may outlive its caller has to bound itself.
func (n *Node) Exec(ctx context.Context, stdin io.Reader, stdout io.Writer, argv ...string) error {
	args := []string{"exec", "--privileged"} // as kind does it
	if stdin != nil {
		args = append(args, "--interactive")
	}
	args = append(append(args, n.Name), argv...)
	if err := run(ctx, stdin, stdout, args...); err != nil {
		return fmt.Errorf("running %s in %s: %w", argv[0], n.Name, err)
	}
	return nil
}

// output is Exec for short commands: it has a deadline and returns stdout.
func (n *Node) output(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, execTimeout)
	defer cancel()
	var out bytes.Buffer
	err := n.Exec(ctx, nil, &out, argv...)
	return out.String(), err
}

// Limits that end what hangs, far above what the slowest machine takes.
const (
	execTimeout   = 2 * time.Minute  // one short command inside a node
	engineTimeout = 10 * time.Minute // one request to the container engine
	drainTimeout  = 2 * time.Minute  // reading what a command wrote that has ended
)

// docker makes one request to the container engine and returns what it answers on stdout.
func docker(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	var out bytes.Buffer
	if err := run(ctx, stdin, &out, args...); err != nil {
		return "", fmt.Errorf("docker %s: %w", args[0], err)
	}
	return strings.TrimSuffix(out.String(), "\n"), nil // empty columns at its end stay
}

// run runs the docker client until it ends or ctx does.
func run(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) error {
	var stderr tail
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, &stderr
	// A process group of its own: ^C on the terminal is for us to act on, and must
	// not kill the commands that undo a fault. When ctx ends all of the group does, so
	// that nobody holds the streams open. What is cut off after the delay is an error even
	// where the command succeeded: nobody knows what it would have said.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = drainTimeout
	err := cmd.Run()
	switch said := strings.TrimSpace(string(stderr)); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case said != "":
		return fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// tail is a writer that keeps the end of what is written to it.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	const limit = 4096
	*t = append(*t, p...)
	if over := len(*t) - limit; over > 0 {
		*t = append((*t)[:0], (*t)[over:]...)
	}
	return len(p), nil
}
