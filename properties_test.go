package main

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// sampled is how many records are passed over for one that is tried in a short test: the
// race detector's, which needs no more of them.
const sampled = 10

// passed hands every recorded run that passes to a function, with its timeline.
func passed(t *testing.T, each func(t *testing.T, run *judge.Run, tl *timeline.Timeline)) {
	recs, err := recorded()
	if err != nil {
		t.Fatal(err)
	}
	for i, rec := range recs {
		if rec.Run.Outcome != judge.OutcomePass || testing.Short() && i%sampled != 0 {
			continue
		}
		t.Run(rec.Run.RunID, func(t *testing.T) {
			t.Parallel()
			tl, err := timeline.ReadFile(rec.File)
			if err != nil {
				t.Fatal(err)
			}
			each(t, rec.Run, tl)
		})
	}
}

// with judges a timeline in which each event has become another one.
func with(t *testing.T, tl *timeline.Timeline, change func(timeline.Event) timeline.Event) *judge.Run {
	t.Helper()
	other := *tl
	other.Events = make([]timeline.Event, len(tl.Events))
	for i, e := range tl.Events {
		other.Events[i] = change(e)
	}
	run, _, err := judge.Judge(&other)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// later is an event that came about and was seen so much later.
func later(e timeline.Event, by time.Duration) timeline.Event {
	e.At += by
	if !e.Stamp.IsZero() {
		e.Stamp = e.Stamp.Add(by)
	}
	return e
}

// A busy machine delivers what its watches see later. That is an answer about the
// machine and not about the cluster: the verdict stays.
func TestWatchesMayBeLate(t *testing.T) {
	passed(t, func(t *testing.T, run *judge.Run, tl *timeline.Timeline) {
		for _, by := range []time.Duration{50 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond, 1500 * time.Millisecond} {
			got := with(t, tl, func(e timeline.Event) timeline.Event {
				if e.Source == "watch" && e.Type != "listed" {
					e.At += by
				}
				return e
			})
			if got.Outcome != judge.OutcomePass {
				t.Errorf("watches %s late: %s %q", by, got.Outcome, got.Reasons)
			}
		}
	})
}

// acts are steps of kube-controller-manager.
var acts = []string{judge.CSRApproved, judge.CSRIssued, judge.ReadyUnknown, judge.PodsUnready, judge.NoScheduleTainted, judge.NoExecuteTainted, judge.PodEvicted, judge.TaintsGone}

// A controller manager that stands still for two seconds before one of its steps, on a
// machine that is quick, is held against the cluster.
func TestASingleSlowStepIsNoSlowMachine(t *testing.T) {
	var steps atomic.Int64
	t.Run("run", func(t *testing.T) {
		passed(t, func(t *testing.T, run *judge.Run, tl *timeline.Timeline) {
			for _, m := range run.Milestones {
				const by = 2 * time.Second
				if !m.Expected || m.Seconds == nil || !slices.Contains(acts, m.Name) || !leaves(m, by.Seconds()) {
					continue
				}
				steps.Add(1)
				from := *m.Seconds - min(0.06, max(0, m.After.Seconds)/2) // a watch may be that much ahead
				got := with(t, tl, func(e timeline.Event) timeline.Event {
					if sinceInjection(e, run, tl) >= from && byController(e) {
						return later(e, by)
					}
					return e
				})
				if got.Outcome == judge.OutcomePass || got.Outcome == judge.OutcomeInconclusive {
					t.Errorf("%s %s later: %s %q", m.Title(), by, got.Outcome, got.Reasons)
				}
			}
		})
	})
	least := int64(500)
	if testing.Short() {
		least /= 2 * sampled
	}
	if t.Logf("%d steps", steps.Load()); steps.Load() < least {
		t.Errorf("only %d steps were tried", steps.Load())
	}
}

// byController says whether an event is a step of kube-controller-manager, or what a watch
// shows of one.
func byController(e timeline.Event) bool {
	switch kind, _, _ := strings.Cut(e.Object, " "); {
	case kind == "leases":
		return false
	case e.Source == "audit":
		return e.Detail["agent"] == "kube-controller-manager"
	default:
		return e.Source == "watch"
	}
}

// sinceInjection is when an event came about, in seconds.
func sinceInjection(e timeline.Event, run *judge.Run, tl *timeline.Timeline) float64 {
	at := e.At
	if e.Source != "watch" && !e.Stamp.IsZero() {
		at = e.Stamp.Sub(tl.Header.Start)
	}
	return at.Seconds() - run.InjectedAt.Sub(tl.Header.Start).Seconds()
}

// leaves says whether a milestone that came so much later would be outside of its window.
func leaves(m judge.Result, by float64) bool {
	if inside, derived := m.Inside(); !inside || !derived {
		return false
	}
	after := *m.After
	after.Seconds += by
	m.After = &after
	inside, _ := m.Inside()
	return !inside
}
