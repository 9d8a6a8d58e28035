package cluster

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"strings"
	"time"
)

// Paused says whether the engine has paused the node: then no process in it runs, and
// nothing can be asked of it. The error wraps ErrNotFound if there is no such container.
func (n *Node) Paused(ctx context.Context) (bool, error) {
	out, err := docker(ctx, nil, "container", "inspect", "--format", "{{.State.Paused}}", n.Name)
	if err != nil && strings.Contains(strings.ToLower(err.Error()), "no such") {
		return false, fmt.Errorf("node %s: %w", n.Name, ErrNotFound)
	}
	if err != nil {
		return false, fmt.Errorf("looking whether node %s is paused: %w", n.Name, err)
	}
	return out == "true", nil
}

// Pause has the engine stop every process of the node.
func (n *Node) Pause(ctx context.Context) error {
	if _, err := docker(ctx, nil, "pause", n.Name); err != nil {
		return fmt.Errorf("pausing node %s: %w", n.Name, err)
	}
	return nil
}

// Unpause lets the node go on.
func (n *Node) Unpause(ctx context.Context) error {
	if _, err := docker(ctx, nil, "unpause", n.Name); err != nil {
		return fmt.Errorf("letting node %s go on: %w", n.Name, err)
	}
	return nil
}

// guardOf is the name of the container that guards a node.
func guardOf(node string) string { return node + "-guard" }

// guardScript lets a paused node go on when no sign of life came for so many seconds, and
// for some more. Ages are those of /proc/uptime, which no clock setting moves and which
// goes on while a machine sleeps. It ends when the node is gone.
//
//go:embed guard.sh
var guardScript string

// Guard puts a container beside the node that lets it go on when Sign was not called for
// after, and for a while more. It runs at the engine, so that it outlives the caller's
// process, cgroup, container and machine, and is proved able to act before Guard returns.
func (n *Node) Guard(ctx context.Context, after, more time.Duration) error {
	image, err := docker(ctx, nil, "container", "inspect", "--format", "{{.Image}}", n.Name)
	if err != nil {
		return fmt.Errorf("guarding node %s: %w", n.Name, err)
	}
	if err := n.Unguard(ctx); err != nil { // of a run that was killed here
		return err
	}
	_, err = docker(ctx, nil, "run", "--detach", "--name", guardOf(n.Name), "--label", labelWatch+"="+n.Name,
		"--network", "none", "--security-opt", "label=disable", "--volume", engineSocket(ctx)+":/engine.sock",
		"--entrypoint", "bash", image, "-c", guardScript, "guard", n.Name, seconds(after), seconds(more))
	if err != nil {
		return fmt.Errorf("guarding node %s: %w", n.Name, err)
	}
	const prove = `until [ -e /guard/alive ]; do sleep 0.1; done
curl --silent --show-error --fail --max-time 60 --unix-socket /engine.sock "http://engine/containers/$1/json" | jq -r .State.Running`
	out, err := docker(ctx, nil, "exec", guardOf(n.Name), "timeout", "60", "bash", "-c", prove, "prove", n.Name)
	if err == nil && out != "true" {
		err = fmt.Errorf("it sees the node's State.Running as %q", out)
	}
	if err != nil {
		return fmt.Errorf("guarding node %s: the guard cannot ask the engine: %w", n.Name, err)
	}
	return nil
}

// Sign gives the node's guard a sign of life, and says whether the guard has let the node
// go on. Without a guard there is nothing to do.
func (n *Node) Sign(ctx context.Context) (fired bool, err error) {
	const sign = `cd /guard && cut -d. -f1 /proc/uptime > alive.new && mv alive.new alive || exit 1
[ ! -e fired ] || echo fired`
	out, err := docker(ctx, nil, "exec", guardOf(n.Name), "bash", "-c", sign)
	if err != nil && strings.Contains(strings.ToLower(err.Error()), "no such container") {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("giving a sign of life to the guard of %s: %w", n.Name, err)
	}
	return out == "fired", nil
}

// Unguard removes the node's guard; without one there is nothing to do.
func (n *Node) Unguard(ctx context.Context) error {
	out, err := docker(ctx, nil, "ps", "--all", "--quiet", "--filter", "label="+labelWatch+"="+n.Name)
	for id := range strings.FieldsSeq(out) {
		if err == nil {
			_, err = docker(ctx, nil, "rm", "--force", "--volumes", id)
		}
	}
	if err != nil {
		return fmt.Errorf("removing the guard of %s: %w", n.Name, err)
	}
	return nil
}

// engineSocket is the socket of the engine by its name on the engine's machine.
func engineSocket(ctx context.Context) string {
	endpoint := os.Getenv("DOCKER_HOST")
	if endpoint == "" {
		endpoint, _ = docker(ctx, nil, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
	}
	if path, ok := strings.CutPrefix(endpoint, "unix://"); ok {
		return path
	}
	return "/var/run/docker.sock"
}

// seconds are whole ones, rounded up.
func seconds(d time.Duration) string { return fmt.Sprint(int64((d + time.Second - 1) / time.Second)) }
