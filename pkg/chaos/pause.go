package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// nodePaused pauses the target's container: no process in it runs any more, and its
// connections stay. Only the engine can take it back.
type nodePaused struct {
	since time.Time
}

// Undo lets the nodes go on.
func (f *nodePaused) Undo(t *Target) []Step {
	var steps []Step
	for _, n := range t.Nodes {
		steps = append(steps, Step{Desc: "unpausing the node", On: n.Name, Do: "unpause"})
	}
	return steps
}

// Release lets the nodes go on and leaves them to themselves.
func (f *nodePaused) Release(ctx context.Context, t *Target) (time.Time, error) {
	at := t.now()
	for _, n := range t.Nodes {
		if _, err := unpause(ctx, n); err != nil {
			return time.Time{}, err
		}
	}
	return at, nil
}

// Inject pauses each target.
func (f *nodePaused) Inject(ctx context.Context, t *Target) error {
	for i, n := range t.Nodes {
		p, err := as[pauser](n)
		if err != nil {
			return err
		}
		at := t.now()
		if err := p.Pause(ctx); err != nil {
			return err
		}
		if i == 0 {
			f.since = at
			t.injected(at, "the node is paused")
		}
		t.Emit(timeline.Event{Stamp: at, Source: "run", Type: timeline.TypeKubeletStopped, Object: "node " + n.Name,
			Detail: map[string]string{"how": "paused with its node"}})
	}
	return nil
}

// Witness sees it biting when no target has renewed its Lease for longer than a
// start takes.
func (f *nodePaused) Witness(ctx context.Context, t *Target) (Evidence, error) {
	ev := Evidence{InPlace: true}
	for _, n := range t.Nodes {
		p, err := as[pauser](n)
		if err != nil {
			return Evidence{}, err
		}
		is, err := p.Paused(ctx)
		if err != nil {
			return Evidence{}, err
		}
		ev.InPlace = ev.InPlace && is
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
