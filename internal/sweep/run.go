package sweep

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// A Lab has the cluster that a sweep works on, one at a time.
type Lab interface {
	// Prepare has the cluster go by the flags of an arm's experiment. If there is none
	// with the flags of base, it is made; ErrNoCluster says that it could not be. Any other
	// error is about the arm's flags.
	Prepare(ctx context.Context, base, arm *chaos.Experiment) error
	// Run runs an experiment on it.
	Run(ctx context.Context, exp *chaos.Experiment) (*chaos.Result, error)
	// Discard deletes it, if there is one.
	Discard(ctx context.Context) error
}

// ErrNoCluster says that a Lab could not make a cluster.
var ErrNoCluster = errors.New("there is no cluster to run on")

// ErrLeft says that the cluster could not be deleted.
var ErrLeft = errors.New("a cluster is left")

// tries is how often in a row an arm may come to no answer before it is given up.
const tries = 3

// Run makes the runs that are missing. Say is told what happens. It ends with ctx, with
// the first error of the Lab, or when all is on record but what was given up: that is
// in the arms' Skip.
func (p *Plan) Run(ctx context.Context, lab Lab, say func(format string, args ...any)) (err error) {
	defer func() {
		if left := lab.Discard(context.WithoutCancel(ctx)); left != nil {
			err = errors.Join(fmt.Errorf("%w: %w", ErrLeft, left), err)
		}
	}()
	for _, g := range p.groups() {
		for order := p.order(g.arms); len(order) > 0; order = p.order(g.arms) { // once more for those without an answer
			for _, a := range order {
				if a.missing() == 0 {
					continue
				}
				if err := p.step(ctx, lab, g, a, say); err != nil {
					return err
				}
			}
		}
		if err := lab.Discard(ctx); err != nil {
			return err
		}
	}
	return nil
}

// step makes one run of an arm, after a soak if it is the first.
func (p *Plan) step(ctx context.Context, lab Lab, g group, a *Arm, say func(string, ...any)) error {
	if err := lab.Prepare(ctx, g.base, a.Experiment); err != nil {
		var cannot *cluster.StartError
		switch {
		case ctx.Err() != nil || errors.Is(err, ErrNoCluster):
			return err
		case !errors.As(err, &cannot):
			return a.unanswered(ctx, lab, err.Error(), say)
		}
		a.Skip = "it cannot have its flags: " + err.Error()
		say("skipped: %s: %s", a.Name(), a.Skip)
		return lab.Discard(ctx)
	}
	if !a.Soaked {
		say("soak: %s, %s without a fault", a.Name(), a.Soak.Spec.Hold)
		soak, err := lab.Run(ctx, a.Soak)
		if err != nil {
			return err
		}
		switch run := soak.Run; {
		case flapped(run) && !p.Sweep.AllowFlapping:
			a.Skip = "healthy nodes did not stay Ready in the soak: " + reason(run)
			say("skipped: %s: %s", a.Name(), a.Skip)
			return nil
		case !flapped(run) && !run.AsWanted():
			return a.unanswered(ctx, lab, reason(run), say)
		}
		a.Soaked = true
	}
	have, want := p.progress()
	say("run %d of %d: %s", have+1, want, a.Name())
	result, err := lab.Run(ctx, a.Experiment)
	if err != nil {
		return err
	}
	run := result.Run
	if !p.Sweep.counts(run) {
		return a.unanswered(ctx, lab, reason(run), say)
	}
	say("%s, %.0f s", run.Outcome, run.Cost.WallSeconds)
	a.tries, a.Runs = 0, append(a.Runs, run)
	return nil
}

// progress is how many runs are on record, and how many are to be.
func (p *Plan) progress() (have, want int) {
	for _, a := range p.Arms {
		if n := len(a.Runs) + a.missing(); n > 0 {
			have, want = have+len(a.Runs), want+n
		}
	}
	return have, want
}

// unanswered takes note of a try that came to no answer. What it left of the cluster is not to
// be trusted.
func (a *Arm) unanswered(ctx context.Context, lab Lab, why string, say func(string, ...any)) error {
	a.tries++
	say("no answer: %s", why)
	if a.tries == tries {
		a.Skip = fmt.Sprintf("no answer %d times in a row, at last: %s", tries, why)
		say("given up: %s", a.Name())
	}
	return lab.Discard(ctx)
}

// flapped says whether healthy nodes did not stay Ready: in a soak it was not to be, and a
// control node never is to change.
func flapped(r *judge.Run) bool {
	return len(r.ControlChanges) > 0 || slices.ContainsFunc(r.Milestones, func(m judge.Result) bool { return m.Never && m.Verdict == judge.Fail })
}

// counts says whether a run is one of those that were asked for.
func (s *Sweep) counts(r *judge.Run) bool {
	return r.Answered() || s.AllowFlapping && r.Outcome == judge.OutcomeContaminated && len(r.ControlChanges) == len(r.Reasons)
}

func reason(r *judge.Run) string {
	if len(r.Reasons) == 0 {
		return string(r.Outcome)
	}
	return string(r.Outcome) + ": " + r.Reasons[0]
}
