package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/flatline-chaos/flatline/pkg/judge"
)

var errTooLate = errors.New("it took too long")

// wait returns when the condition holds for what was seen so far, or errTooLate.
// It tells once a second what is expected next.
func (r *run) wait(ctx context.Context, atMost time.Duration, ok func(*judge.Fold) bool) error {
	deadline := time.NewTimer(atMost)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		r.mu.Lock()
		done := ok(r.fold)
		next := r.next()
		r.mu.Unlock()
		if done {
			return nil
		}
		if n%10 == 0 && next != nil {
			r.update(Update{Next: next})
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return errTooLate
		case <-tick.C:
		}
	}
}

// next is the expected milestone that is due first; the caller holds the lock.
func (r *run) next() *judge.Due {
	var first *judge.Due
	for _, n := range r.target.Nodes {
		for _, x := range r.exp.Spec.Expect {
			due, done := r.fold.Due(judge.Key{Name: x.Milestone, Node: n.Name, Subject: x.Subject})
			if !done && due.Known && (first == nil || due.To < first.To) {
				first = &due
			}
		}
	}
	return first
}

// witnessEvery is how often the fault is looked at.
const witnessEvery = 5 * time.Second

// hold waits until every expected milestone is there or its window has passed,
// and for as long as the experiment says.
func (r *run) hold(ctx context.Context) {
	r.phase("hold")
	least := time.NewTimer(time.Duration(r.exp.Spec.Hold))
	defer least.Stop()
	err := r.wait(ctx, r.longestHold(), r.settled)
	if errors.Is(err, errTooLate) {
		r.say("the expected milestones did not all come; going on")
	}
	select {
	case <-ctx.Done():
	case <-least.C:
	}
	if ctx.Err() != nil {
		r.fact(judge.TypeInterrupted, "", nil)
	}
}

// witness has the fault looked at until stop is called.
func (r *run) witness(ctx context.Context) (stop func()) {
	if r.fault == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() { r.watchFault(ctx) })
	return func() { cancel(); looking.Wait() }
}

// watchFault records what the witness sees until ctx ends.
func (r *run) watchFault(ctx context.Context) {
	tick := time.NewTicker(witnessEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		look, cancel := context.WithTimeout(ctx, witnessEvery)
		ev, err := r.fault.Witness(look, r.target)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.fact(judge.TypeWitnessFailed, "", map[string]string{"why": err.Error()})
		default:
			r.fact(judge.TypeWitness, "", map[string]string{"inPlace": fmt.Sprint(ev.InPlace), "biting": fmt.Sprint(ev.Biting), "seen": ev.Seen})
		}
	}
}

// patience is how long a milestone without a derived bound is waited for.
const patience = 30 * time.Second

// settled says whether nothing more can come before the undo.
func (r *run) settled(f *judge.Fold) bool {
	for _, n := range r.target.Nodes {
		for _, x := range r.exp.Spec.Expect {
			if !judge.Recovery(x.Milestone) && r.cfg.Concerns(x, n.Name) && !f.Settled(judge.Key{Name: x.Milestone, Node: n.Name, Subject: x.Subject}, patience) {
				return false
			}
		}
	}
	return true
}

// longestHold bounds the hold whatever the milestones do: what is left of the
// certificate, the grace, a spent eviction token, the longest toleration, and a
// minute.
func (r *run) longestHold() time.Duration {
	tim, err := r.cfg.Timing()
	if err != nil {
		return time.Minute
	}
	long := time.Minute + 2*tim.G + time.Duration(float64(time.Second)/tim.Q) + time.Duration(r.exp.Spec.Hold)
	if tolerations := r.exp.Spec.Canaries.Tolerations; len(tolerations) > 0 {
		long += time.Duration(slices.Max(tolerations))
	}
	switch c := r.exp.Spec.Fault.Certificate; {
	case c == nil:
	case c.Mint > 0:
		long += time.Duration(c.Mint)
	default:
		for _, n := range r.target.Nodes {
			r.mu.Lock()
			notAfter, _ := r.fold.Certificate(n.Name)
			r.mu.Unlock()
			long += time.Until(notAfter)
		}
	}
	return long
}

// pause waits before the undo, for somebody who wants to look around.
func (r *run) pause(ctx context.Context) {
	r.phase("pause")
	file := filepath.Join(r.dir, "continue")
	r.say("stopped before the undo; look around with\n  export KUBECONFIG=%s\nand go on with\n  touch %s", r.cluster.Kubeconfig(), file)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(file); err == nil {
			return
		}
		select {
		case <-ctx.Done():
			r.fact(judge.TypeInterrupted, "", nil)
			return
		case <-tick.C:
		}
	}
}
