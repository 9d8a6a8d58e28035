package chaos

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// host is where a step runs that no node can take: on the machine of the container
// engine's client.
const host = "host"

// onHost runs scripts there, as a node does in itself.
var onHost = Node{Name: host, Node: hostNode{}}

type hostNode struct{}

// Exec runs a command on this machine. It has a process group of its own: ^C on the
// terminal must not kill what takes a fault back.
func (hostNode) Exec(ctx context.Context, stdin io.Reader, stdout io.Writer, argv ...string) error {
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, &stderr
	cmd.WaitDelay = 2 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("running %s on the host: %w: %s", argv[0], err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// at finds where a step runs.
func at(nodes map[string]Node, on string) (Node, bool) {
	if on == host {
		return onHost, true
	}
	n, ok := nodes[on]
	return n, ok
}

// stageOn is the folder that belongs to one run, in a node or on the host.
func stageOn(on, runID string) string {
	if on == host {
		return filepath.Join(os.TempDir(), "flatline-"+runID)
	}
	return stage(runID)
}

// paused says whether a node's container is paused: then nothing can be asked of it.
func paused(ctx context.Context, node string) bool {
	out, err := onHost.script(ctx, nil, "docker inspect --format '{{.State.Paused}}' "+node)
	return err == nil && strings.TrimSpace(out) == "true"
}
