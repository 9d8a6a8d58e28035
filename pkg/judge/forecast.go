package judge

import (
	"fmt"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// What must hold before a fault and after a repair, and what is expected when.

// Unsteady says what is missing before a fault may be injected: every node Ready
// and untainted, every Lease renewed twice since the timeline began, one ready pod
// of every canary on the target. Empty means steady.
func (f *Fold) Unsteady() string {
	if why := f.Unready(); why != "" {
		return why
	}
	for _, node := range f.cfg.Nodes {
		switch n := f.nodes[node.Name]; {
		case n.renewals < 2:
			return fmt.Sprintf("the Lease of node %s was renewed %d times so far", node.Name, n.renewals)
		case n.inUse.notAfter.IsZero():
			return fmt.Sprintf("the client certificate of node %s was not read yet", node.Name)
		}
	}
	for _, c := range f.cfg.Canaries {
		home, where := f.cfg.Target[0], "nowhere"
		for _, p := range f.pods {
			if p.canary == c && p.ready && !p.deleting && (where == "nowhere" || p.node == home) {
				where = p.node
			}
		}
		if where != home {
			return fmt.Sprintf("canary %s is ready on %s and not on %s", c, where, home)
		}
	}
	return ""
}

// Unready says which node is not fit to take pods; empty means that all are.
func (f *Fold) Unready() string {
	for _, node := range f.cfg.Nodes {
		switch n := f.nodes[node.Name]; {
		case n.ready[timeline.SourceWatch] != "True":
			return fmt.Sprintf("node %s is not Ready", node.Name)
		case strings.Contains(n.taints[timeline.SourceWatch], unreachable), strings.Contains(n.taints[timeline.SourceWatch], notReady):
			return fmt.Sprintf("node %s is tainted: %s", node.Name, n.taints[timeline.SourceWatch])
		}
	}
	return ""
}

// Recovery says whether a milestone belongs to the way back: it is waited for after the undo.
func (f *Fold) Recovery(name string) bool { return f.fault.recovers(f.rows[name].Part) }

// A Due is a milestone that is still to come.
type Due struct {
	Key
	// From and To are the bounds of its window since the start of the timeline;
	// Known is false while the milestone from which they count is still to come.
	From, To time.Duration
	Known    bool
}

// Due tells when an expected milestone must come. Done is true when it has.
func (f *Fold) Due(k Key) (due Due, done bool) {
	if _, ok := f.Get(k); ok {
		return Due{Key: k}, true
	}
	w := f.WindowOf(k)
	due = Due{Key: k}
	from, ok := f.Get(w.after)
	if !ok || len(w.Intervals) == 0 {
		return due, false
	}
	due.Known = true
	due.From = from.At + time.Duration(w.Intervals[0].Min*float64(time.Second))
	due.To = from.At + time.Duration(w.Max()*float64(time.Second))
	return due, false
}

// belated is how long after its window a milestone is still waited for: on a slow machine it
// comes late, and is heard of later still. Only what does not come at all costs that time.
const belated = 10 * time.Second

// Settled says whether a milestone has come or can no longer come: its window has
// passed, or that of the milestone from which it counts. One without a bound is
// waited for with the given patience.
func (f *Fold) Settled(k Key, patience time.Duration) bool {
	if _, ok := f.Get(k); ok || f.Suppressed(k) != "" {
		return true
	}
	w := f.WindowOf(k)
	from, ok := f.Get(w.after)
	if !ok {
		return w.after.Name != FaultInjected && f.Settled(w.after, patience)
	}
	switch {
	case k.Name == LeaseStalled: // it lies in the past: it is noticed at a refusal, or by silence
		patience = f.tim.G + belated
	case len(w.Intervals) > 0:
		patience = time.Duration(w.Max()*float64(time.Second)) + belated
	}
	return f.now > from.At+patience
}

// Unhealed says what a repaired target still lacks; empty means that it is as
// before: with a certificate it rotated to by itself and, where they were lost,
// its heartbeat, readiness and pods.
func (f *Fold) Unhealed() string {
	for _, t := range f.cfg.Target {
		repaired, ok := f.Get(Key{Name: RepairDone, Node: t})
		if !ok {
			return "node " + t + " was not repaired"
		}
		if f.nodes[t].rotated <= repaired.At {
			return "the kubelet of " + t + " has not rotated its certificate"
		}
		if n := f.nodes[t]; n.ready[timeline.SourceWatch] != "True" || f.Renewed(t) <= repaired.At {
			return "node " + t + " is not Ready"
		}
		if !f.reached(ReadyUnknown, t) {
			continue
		}
		for _, name := range []string{LeaseResumed, ReadyTrue, TaintsGone, PodsBack} {
			if !f.reached(name, t) {
				return name + " was not reached on " + t
			}
		}
	}
	return ""
}

// A Forecast is an expected milestone before anything has happened.
type Forecast struct {
	Key
	Window Window
	After  string // the milestone from which the window counts
	Limit  *Limit // the user's own
	// From and To are bounds since the injection; Bounded is false for the way
	// back, which begins when the hold is over, and for what has no bound.
	From, To time.Duration
	Bounded  bool
}

// Foretell derives the windows of an experiment from flags alone.
func Foretell(cfg *Config, plan *Plan) ([]Forecast, error) {
	f, err := NewFold(cfg, plan.Spec.Fault, time.Time{})
	if err != nil {
		return nil, err
	}
	var all []Forecast
	for _, x := range plan.Spec.Expect {
		k := Key{x.Milestone, "", x.Subject}
		w := f.WindowOf(k).rounded()
		fc := Forecast{Key: k, Window: w, After: after(w.after, k).Title(), Limit: limit(x)}
		if !f.Recovery(k.Name) {
			fc.From, fc.To, fc.Bounded = f.bounds(k)
		}
		all = append(all, fc)
	}
	return all, nil
}

// bounds adds up the windows from the injection to a milestone.
func (f *Fold) bounds(k Key) (from, to time.Duration, ok bool) {
	switch k.Name {
	case FaultInjected:
		return 0, 0, true
	case KubeletStarted: // stop, install, start
		return 0, 5 * time.Second, true
	case KubeletStopped:
		return 0, time.Second, f.fault.At == nil
	}
	w := f.WindowOf(k)
	if len(w.Intervals) == 0 {
		return 0, 0, false
	}
	from, to, ok = f.bounds(w.after)
	return from + time.Duration(w.Intervals[0].Min*float64(time.Second)), to + time.Duration(w.Max()*float64(time.Second)), ok
}
