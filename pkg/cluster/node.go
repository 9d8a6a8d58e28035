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

const (
	execTimeout   = 30 * time.Second // one short command inside a node
	engineTimeout = 2 * time.Minute  // one request to the container engine
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
	cmd.WaitDelay = 2 * time.Second
	// A process group of its own: ^C on the terminal is for us to act on, and must
	// not kill the commands that undo a fault.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
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
