package judge

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// What an experiment asks for and nobody can ever see: told before anything is run.

// An Unseen is an expectation that no run can meet. Field is what of it is wrong, "min", "max" or
// "milestone"; Want is what would be right.
type Unseen struct{ Field, Want string }

// Unseen looks, by the flags of a cluster, for what is wrong with one expectation of a plan: a
// limit that has nothing in common with the window, which is judged beside it, or a milestone that
// must come before the undo and must not. ok is false where nothing is.
func (c *Config) Unseen(plan *Plan, x Expectation) (u Unseen, ok bool, err error) {
	f, err := NewFold(c, plan.Spec.Fault, time.Time{})
	if err != nil {
		return Unseen{}, false, err
	}
	k := Key{x.Milestone, "", x.Subject}
	if !f.Recovery(x.Milestone) && slices.ContainsFunc(plan.Spec.Never, func(n Expectation) bool {
		return n.Milestone == x.Milestone && n.Subject == x.Subject
	}) {
		return Unseen{"milestone", "it is under never too, and comes before the undo: take it out of one of the lists"}, true, nil
	}
	w := f.WindowOf(k).rounded()
	if w.Class != Derived || len(w.Intervals) == 0 {
		return Unseen{}, false, nil
	}
	slack := 0.0
	if k.Name == CSRCreated && f.fault.mints() { // the run reads it from the certificate, and counts from the injection
		slack = lead
	}
	low, high := time.Duration(x.Min).Seconds(), time.Duration(x.Max).Seconds()
	if x.Max == 0 {
		high = math.Inf(1)
	}
	if slices.ContainsFunc(w.Intervals, func(i Interval) bool { return low <= i.Max+slack && high >= i.Min-slack }) {
		return Unseen{}, false, nil
	}
	first := w.Intervals[0].Min
	for _, i := range w.Intervals {
		first = min(first, i.Min)
	}
	window := fmt.Sprintf("the window, %s s after %s, in which %s must come", w, w.after.title(), k.title())
	switch {
	case high < first:
		return Unseen{"max", "it is before " + window + ": at least " + secondsOf(first) + ", or no max"}, true, nil
	case low > w.Max():
		return Unseen{"min", "it is after " + window + ": at most " + secondsOf(w.Max()) + ", or no min"}, true, nil
	}
	return Unseen{"min", "no part of " + window + ", lies between min and max: a part of it, or no limit"}, true, nil
}

// secondsOf writes seconds as an experiment does.
func secondsOf(s float64) string {
	return Duration(time.Duration(math.Round(max(0, s)*1e3)) * time.Millisecond).String()
}

// A Denial is a milestone that must not occur before the undo. Vacuous says why no record can
// ever show it in this chain, so that the denial is true whatever happens; empty where one can.
type Denial struct {
	Key
	Vacuous string
}

// Denials are what must not occur.
func Denials(plan *Plan) ([]Denial, error) {
	fault, err := newFault(plan.Spec.Fault)
	if err != nil {
		return nil, err
	}
	var all []Denial
	for _, x := range plan.Spec.Never {
		k := Key{x.Milestone, "", x.Subject}
		all = append(all, Denial{k, unrecorded(fault, plan, k)})
	}
	return all, nil
}

// unrecorded says why a milestone cannot be recorded before the undo.
func unrecorded(f fault, plan *Plan, k Key) string {
	row := RowOf(k.Name)
	switch {
	case len(row.Sources) == 0:
		return "it is what the run itself does, and says nothing of the cluster"
	case k.Name == CertificateExpired && f.effect == EffectCrashLoop && f.Empties:
		return "the file holds no certificate whose end could be read"
	}
	needs := row.Needs
	if k.Name == ReadyTrue && f.effect == EffectNotReady {
		needs = append(slices.Clone(needs), ReadyFalse)
	}
	if k.Subject == Again {
		needs = []string{k.Name}
	}
	var why []string
	for _, name := range needs {
		switch {
		case slices.ContainsFunc(plan.Spec.Never, func(x Expectation) bool { return x.Milestone == name && x.Subject == "" }):
			why = append(why, name+", which must not occur either")
		case unrecorded(f, plan, Key{Name: name}) != "":
			why = append(why, name+", which is not recorded either")
		default:
			return ""
		}
	}
	if len(why) == 0 {
		return ""
	}
	return "it is recorded only after " + strings.Join(why, " or ")
}
