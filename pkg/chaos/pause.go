package chaos

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
)

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
