package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flatline-chaos/flatline/pkg/cluster"
)

// A pauser is a node that the engine can stop as a whole and let go on.
type pauser interface {
	Pause(ctx context.Context) error
	Unpause(ctx context.Context) error
	Paused(ctx context.Context) (bool, error)
}

// A guarded node can have a guard at the engine: it lets the node go on when no sign of
// life came for a time, and for a while more.
type guarded interface {
	Guard(ctx context.Context, after, more time.Duration) error
	Sign(ctx context.Context) (fired bool, err error)
	Unguard(ctx context.Context) error
}

// as is a node of which more can be asked than to run something.
func as[T any](n Node) (T, error) {
	more, ok := n.Node.(T)
	if !ok {
		return more, fmt.Errorf("node %s: the engine cannot be asked about it", n.Name)
	}
	return more, nil
}

// verbs are what steps may have done with a node from outside. Each may be done any number
// of times, and prints when it changed something.
var verbs = map[string]func(ctx context.Context, n Node) (string, error){
	"unpause": unpause,
	"unguard": func(ctx context.Context, n Node) (string, error) {
		g, err := as[guarded](n)
		if err != nil {
			return "", err
		}
		return "", g.Unguard(ctx)
	},
}

// unpause has nothing to do where the container is gone or not paused.
func unpause(ctx context.Context, n Node) (string, error) {
	p, err := as[pauser](n)
	if err != nil {
		return "", err
	}
	paused, err := p.Paused(ctx)
	if errors.Is(err, cluster.ErrNotFound) || err == nil && !paused {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	at := time.Now()
	if err := p.Unpause(ctx); err != nil {
		if again, lookErr := p.Paused(ctx); lookErr != nil || again { // its guard may have been faster
			return "", err
		}
	}
	return epoch(at), nil
}

// epoch writes a time as date +%s.%N does.
func epoch(t time.Time) string { return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond()) }

// paused says whether a node is known to be paused: then nothing can be asked of it.
func paused(ctx context.Context, n Node) bool {
	p, err := as[pauser](n)
	if err != nil {
		return false
	}
	is, err := p.Paused(ctx)
	return err == nil && is
}
