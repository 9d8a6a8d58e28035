package chaos

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
)

// runtimeFrozen stops the process of the target's containerd with SIGSTOP, and not
// the containers: the kubelet lives and renews, and finds no runtime.
type runtimeFrozen struct {
	since time.Time
}

const (
	// runtimeProcess is that of containerd alone: its unit holds the shims of all
	// containers too.
	runtimeProcess = `p=$(systemctl show containerd -p MainPID --value) || exit 1; [ "$p" != 0 ]`
	thawRuntime    = runtimeProcess + " || exit 0\nkill -CONT $p && date +%s.%N"
)

// Undo lets it go on.
func (f *runtimeFrozen) Undo(t *Target) []Step {
	var steps []Step
	for _, n := range t.Nodes {
		steps = append(steps, Step{Desc: "letting containerd go on", On: n.Name, Script: inStage(t.RunID, thawRuntime)})
	}
	return steps
}

// Release lets it go on with the kubelet left alone.
func (f *runtimeFrozen) Release(ctx context.Context, t *Target) (time.Time, error) {
	var last time.Time
	for _, n := range t.Nodes {
		at, err := n.when(ctx, thawRuntime)
		if err != nil {
			return time.Time{}, fmt.Errorf("letting containerd of %s go on: %w", n.Name, err)
		}
		last = at
	}
	return last, nil
}

// Inject freezes it on each target.
func (f *runtimeFrozen) Inject(ctx context.Context, t *Target) error {
	for i, n := range t.Nodes {
		at, err := n.when(ctx, runtimeProcess+" || exit 1\nkill -STOP $p && date +%s.%N")
		if err != nil {
			return fmt.Errorf("freezing containerd of %s: %w", n.Name, err)
		}
		if i == 0 {
			f.since = at
			t.injected(at, "containerd is frozen")
		}
	}
	return nil
}

// Witness sees it biting when containerd answers nobody.
func (f *runtimeFrozen) Witness(ctx context.Context, t *Target) (Evidence, error) {
	ev := Evidence{InPlace: true, Biting: true}
	var seen []string
	for _, n := range t.Nodes {
		out, err := n.script(ctx, nil, runtimeProcess+` || exit 1
read -r _ _ state _ < /proc/$p/stat
timeout 2 crictl version >/dev/null 2>&1 && echo "$state answers" || echo "$state does not answer"`)
		if err != nil {
			return Evidence{}, fmt.Errorf("looking at containerd of %s: %w", n.Name, err)
		}
		state, answer, _ := strings.Cut(strings.TrimSpace(out), " ")
		ev.InPlace = ev.InPlace && state == "T"
		ev.Biting = ev.Biting && state == "T" && answer == "does not answer"
		seen = append(seen, fmt.Sprintf("%s: containerd in state %s %s", n.Name, state, answer))
	}
	ev.Biting = ev.Biting && !f.since.IsZero()
	ev.Seen = strings.Join(seen, "; ")
	return ev, nil
}

// nodePaused pauses the target's container: no process in it runs any more, and its
// connections stay. Only the host can take it back.
type nodePaused struct {
	since time.Time
}

// unpause has nothing to do where the container is gone or not paused.
func unpause(node string) string {
	return fmt.Sprintf(`paused=$(docker inspect --format '{{.State.Paused}}' %[1]s 2>/dev/null) || { docker version >/dev/null || exit 1; exit 0; }
[ "$paused" = true ] || exit 0
date +%%s.%%N; docker unpause %[1]s >/dev/null`, node)
}

// Undo lets the nodes go on.
func (f *nodePaused) Undo(t *Target) []Step {
	var steps []Step
	for _, n := range t.Nodes {
		steps = append(steps, Step{Desc: "letting node " + n.Name + " go on", On: host, Script: unpause(n.Name)})
	}
	return steps
}

// Release lets the nodes go on and leaves them to themselves.
func (f *nodePaused) Release(ctx context.Context, t *Target) (time.Time, error) {
	at := t.now()
	for _, n := range t.Nodes {
		if _, err := onHost.script(ctx, nil, unpause(n.Name)); err != nil {
			return time.Time{}, fmt.Errorf("letting node %s go on: %w", n.Name, err)
		}
	}
	return at, nil
}

// Inject pauses each target.
func (f *nodePaused) Inject(ctx context.Context, t *Target) error {
	for i, n := range t.Nodes {
		at := t.now()
		if _, err := onHost.script(ctx, nil, "docker pause "+n.Name+" >/dev/null"); err != nil {
			return fmt.Errorf("pausing node %s: %w", n.Name, err)
		}
		if i == 0 {
			f.since = at
			t.injected(at, "the node is paused")
		}
		t.Emit(observe.Event{Stamp: at, Source: "run", Type: judge.TypeKubeletStopped, Object: "node " + n.Name, Detail: map[string]string{"how": "paused with its node"}})
	}
	return nil
}

// Witness sees it biting when no target has renewed its Lease for longer than a
// start takes.
func (f *nodePaused) Witness(ctx context.Context, t *Target) (Evidence, error) {
	ev := Evidence{InPlace: true}
	for _, n := range t.Nodes {
		out, err := onHost.script(ctx, nil, "docker inspect --format '{{.State.Paused}}' "+n.Name)
		if err != nil {
			return Evidence{}, fmt.Errorf("looking at the container of node %s: %w", n.Name, err)
		}
		ev.InPlace = ev.InPlace && strings.TrimSpace(out) == "true"
	}
	if f.since.IsZero() {
		return ev, nil
	}
	silent, ages, err := t.silent(ctx)
	if err != nil {
		return Evidence{}, err
	}
	ev.Biting, ev.Seen = ev.InPlace && silent, fmt.Sprintf("paused: %v; %s", ev.InPlace, ages)
	return ev, nil
}
