//go:build real

package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/flatline-chaos/flatline/experiments"
)

// Anybody who undoes is not alone: a timer, two people, a runner that was thought dead. So every
// fault is taken back and repaired by two at once, again and again, and then the cluster is
// healed: it is as it was before, whatever came before what.
//
//	TWICE='csr-denied cert-empty-restart' ROUNDS=20 go test -tags real -run TestTwiceAtOnce ...
//
// chooses experiments; without TWICE it is one for each type of fault and trigger. They
// share a cluster where that fits. EVIDENCE names a file that gets a line for each.
func TestTwiceAtOnce(t *testing.T) {
	rounds, err := strconv.Atoi(cmp.Or(os.Getenv("ROUNDS"), "20"))
	if err != nil {
		t.Fatal(err)
	}
	var lab twiceLab
	t.Cleanup(func() { lab.discard(t) })
	for _, name := range oneOfEachFault(t) {
		t.Run(name, func(t *testing.T) {
			exp, err := Load(experiments.FS, name, "fast")
			if err != nil {
				t.Fatal(err)
			}
			exp.Spec.Fault.At, exp.Spec.Fault.Release = nil, nil // the fault comes at once, and goes by its undo
			r := lab.begin(t, exp)
			diffs := twiceAtOnce(t, r, rounds)
			if len(diffs) > 0 {
				t.Errorf("healed, and yet\n%s", strings.Join(diffs, "\n"))
			}
			if file := os.Getenv("EVIDENCE"); file != "" && !t.Failed() {
				appendLine(t, file, fmt.Sprintf("%s\t%s\t%s\t%d\tas before", exp.Spec.Fault.Type, cmp.Or(exp.Spec.Fault.Trigger, "-"), name, rounds))
			}
		})
	}
}

// twiceAtOnce breaks, and takes back twice at the same time, so many times; then it heals
// and returns what is not as before.
func twiceAtOnce(t *testing.T, r *run, rounds int) []string {
	ctx := t.Context()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	must("setting up", r.setUp(ctx))
	must("waiting for the steady state", r.steady(ctx))
	must("preparing", r.prepare(ctx))
	steps := slices.Concat(r.journal.Steps("undo"), r.journal.Steps("repair"))
	ca := r.target.ca // a run signs once
	for n := range rounds {
		r.target.ca = ca
		r.fault = kinds()[r.exp.Spec.Fault.Type].make()
		if err := r.inject(ctx); err != nil {
			t.Logf("round %d: injecting: %v", n, err) // a node may not be back yet: the undo has to work all the same
		}
		both := make([]error, 2)
		var all sync.WaitGroup
		for i := range both {
			all.Go(func() { _, both[i] = runSteps(ctx, r.nodes, steps) })
		}
		all.Wait()
		must(fmt.Sprintf("round %d", n), errors.Join(both...))
	}
	r.stopAlive()
	r.rec.Stop()
	r.lock.Release()
	p, err := Examine(ctx, r.dir)
	must("examining", err)
	must("healing", p.Heal(ctx, func(string) {}))
	diffs := p.Differences(ctx)
	must("removing the canaries", deleteCanaries(context.WithoutCancel(ctx), r.target.Client, r.id))
	return diffs
}

// oneOfEachFault names an experiment with a fast profile for each type of fault and trigger.
func oneOfEachFault(t *testing.T) []string {
	if names := strings.Fields(os.Getenv("TWICE")); len(names) > 0 {
		return names
	}
	names, err := Names(experiments.FS)
	if err != nil {
		t.Fatal(err)
	}
	first := map[string]string{}
	for _, name := range names {
		exp, err := Load(experiments.FS, name, "fast")
		if err != nil || kinds()[exp.Spec.Fault.Type].make == nil {
			continue
		}
		what := exp.Spec.Fault.Type + " " + exp.Spec.Fault.Trigger
		if _, there := first[what]; !there {
			first[what] = name
		}
	}
	return slices.Sorted(maps.Values(first))
}

// A twiceLab has the cluster that the last experiment left.
type twiceLab struct{ last *run }

// begin begins a run on the cluster that is there, if it fits.
func (l *twiceLab) begin(t *testing.T, exp *Experiment) *run {
	opts := Options{Artifacts: t.TempDir(), Keep: KeepAlways}
	if l.last != nil && l.last.cluster != nil {
		old := l.last
		if fmt.Sprint(old.exp.Spec.Cluster) == fmt.Sprint(exp.Spec.Cluster) {
			opts.Cluster = old.cluster
		} else {
			l.discard(t)
		}
	}
	opts.Image.Override = os.Getenv("NODE_IMAGE")
	opts.Log = t.Output()
	r, err := begin(exp, opts)
	if err != nil {
		t.Fatal(err)
	}
	l.last = r
	return r
}

func (l *twiceLab) discard(t *testing.T) {
	if l.last == nil || l.last.cluster == nil {
		return
	}
	if err := l.last.cluster.Delete(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	l.last = nil
}

func appendLine(t *testing.T, name, text string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(f, text); errors.Join(err, f.Close()) != nil {
		t.Error(err)
	}
}
