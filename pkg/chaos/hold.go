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

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

var errTooLate = errors.New("it took too long")

// wait returns when the condition holds for what was seen so far, or errTooLate.
// It tells once a second what is expected next.
func (r *run) wait(ctx context.Context, atMost time.Duration, ok func(*judge.Fold) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, atMost, errTooLate)
	defer cancel()
	looks := 0
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
		r.mu.Lock()
		done := ok(r.fold)
		next := r.next()
		r.mu.Unlock()
		if !done && looks%10 == 0 && next != nil {
			r.update(judge.Update{Next: next})
		}
		looks++
		return done, nil
	})
	if err != nil {
		return context.Cause(ctx)
	}
	return nil
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

// witnessEvery is how often the fault is looked at, witnessDeadline ends a look that hangs.
const (
	witnessEvery    = 5 * time.Second
	witnessDeadline = time.Minute
)

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
		r.fact(timeline.TypeInterrupted, "", nil)
	}
}

// meanwhile does what goes on beside the hold until stop is called: the fault is
// looked at and attended to, and what comes at a moment of its own comes.
func (r *run) meanwhile(ctx context.Context) (stop func()) {
	if r.fault == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { r.watchFault(ctx) })
	if a, ok := r.fault.(Attendant); ok {
		all.Go(func() { a.Attend(ctx, r.target) })
	}
	spec := r.exp.Spec.Fault
	r.coming.Add(int32(count(spec.At != nil) + count(spec.Release != nil)))
	all.Go(func() {
		if spec.At != nil {
			r.atMoment(ctx, *spec.At, func() error { return r.strike(ctx) })
		}
		if rel := spec.Release; rel != nil {
			r.atMoment(ctx, rel.Moment, func() error { return r.release(ctx) })
		}
	})
	return func() { cancel(); all.Wait() }
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// atMoment waits for a moment of the first target and does what comes then.
func (r *run) atMoment(ctx context.Context, w judge.Moment, do func() error) {
	defer r.coming.Add(-1)
	first := r.target.Nodes[0].Name
	err := r.wait(ctx, r.longestHold(), func(f *judge.Fold) bool {
		m, ok := f.Get(judge.Key{Name: w.After, Node: first})
		return ok && time.Since(r.rec.Start()) >= m.At+time.Duration(w.Plus)
	})
	switch {
	case errors.Is(err, errTooLate):
		err = fmt.Errorf("%s, after which it comes, was not reached", w.After)
	case err == nil:
		err = do()
	}
	if err != nil && ctx.Err() == nil {
		r.injectFailed(err)
	}
}

// release takes the fault back and leaves the targets to themselves.
func (r *run) release(ctx context.Context) error {
	rel, ok := r.fault.(Releaser)
	if !ok {
		return fmt.Errorf("fault %s cannot be taken back without a repair", r.exp.Spec.Fault.Type)
	}
	r.acting.Lock()
	defer r.acting.Unlock()
	r.released.Store(true)
	at, err := rel.Release(ctx, r.target)
	if err != nil {
		return err
	}
	r.rec.Emit(timeline.Event{Stamp: at, Source: "run", Type: timeline.TypeReleased})
	return nil
}

// watchFault records what the witness sees until ctx ends.
func (r *run) watchFault(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, witnessEvery, false, func(ctx context.Context) (over bool, _ error) {
		if r.released.Load() {
			return true, nil
		}
		r.acting.Lock()
		look, cancel := context.WithTimeout(ctx, witnessDeadline)
		ev, err := r.fault.Witness(look, r.target)
		cancel()
		r.acting.Unlock()
		switch {
		case ctx.Err() != nil, r.released.Load(): // what was seen may be of either time
			return true, nil
		case err != nil:
			r.fact(timeline.TypeWitnessFailed, "", map[string]string{"why": err.Error()})
		default:
			r.fact(timeline.TypeWitness, "", map[string]string{"inPlace": fmt.Sprint(ev.InPlace), "biting": fmt.Sprint(ev.Biting), "seen": ev.Seen})
		}
		return false, nil
	})
}

// patience is how long a milestone without a derived bound is waited for, far above what
// the slowest machine takes.
const patience = 2 * time.Minute

// settled says whether nothing more can come before the undo.
func (r *run) settled(f *judge.Fold) bool {
	if r.coming.Load() > 0 {
		return false
	}
	for _, n := range r.target.Nodes {
		for _, x := range r.exp.Spec.Expect {
			if !f.Recovery(x.Milestone) && r.cfg.Concerns(x, n.Name) &&
				!f.Settled(judge.Key{Name: x.Milestone, Node: n.Name, Subject: x.Subject}, patience) {
				return false
			}
		}
	}
	return true
}

// longestHold bounds the hold whatever the milestones do: what is left of the
// certificate, the grace, a spent eviction token, the longest toleration, and what a slow
// machine takes besides.
func (r *run) longestHold() time.Duration {
	tim, err := r.cfg.Timing()
	if err != nil {
		return time.Minute
	}
	long := recoverDeadline + 2*tim.G + time.Duration(float64(time.Second)/tim.Q) + time.Duration(r.exp.Spec.Hold)
	if tolerations := r.exp.Spec.Canaries.Tolerations; len(tolerations) > 0 {
		long += time.Duration(slices.Max(tolerations))
	}
	spec := r.exp.Spec.Fault
	if spec.At != nil {
		long += time.Duration(spec.At.Plus) + electionTime
	}
	if spec.Release != nil {
		long += time.Duration(spec.Release.Plus) + electionTime
	}
	switch c := spec.Certificate; {
	case c == Certificate{}:
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

// electionTime is what it may take until another controller manager leads: the Lease
// of the one before is good for 15 s, and its process must start.
const electionTime = 2 * time.Minute

// pause waits before the undo, for somebody who wants to look around.
func (r *run) pause(ctx context.Context) {
	r.phase("pause")
	file := filepath.Join(r.dir, "continue")
	r.say("stopped before the undo; look around with\n  export KUBECONFIG=%s\nand go on with\n  touch %s",
		quote(r.cluster.Kubeconfig()), quote(file))
	err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(context.Context) (bool, error) {
		_, err := os.Stat(file)
		return err == nil, nil
	})
	if err != nil {
		r.fact(timeline.TypeInterrupted, "", nil)
	}
}
