package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// A Verdict is the judgement of one expectation.
type Verdict string

// Verdicts. Inconclusive means that no source covered the bound.
const (
	Pass         Verdict = "pass"
	Fail         Verdict = "fail"
	Inconclusive Verdict = "inconclusive"
)

func (j *judgement) milestones() {
	zero, began := j.fold.Zero()
	if began {
		at := j.start.Add(zero)
		j.run.InjectedAt = &at
	}
	expected := map[Key]bool{}
	var results []Result
	for _, target := range j.cfg.Target {
		for _, x := range j.plan.Spec.Expect {
			if !j.cfg.Concerns(x, target) {
				continue
			}
			r, k := j.expect(x, target)
			expected[k] = true
			results = append(results, r)
		}
		for _, x := range j.plan.Spec.Never {
			r, k := j.never(x, target)
			expected[k] = true
			results = append(results, r)
		}
	}
	for _, m := range j.fold.Milestones() {
		if !expected[m.Key] {
			results = append(results, j.result(m))
		}
	}
	slices.SortStableFunc(results, func(a, b Result) int { return cmp.Compare(sortKey(a), sortKey(b)) })
	j.run.Milestones = results
	for _, m := range j.fold.Milestones() {
		audit, a := m.Seen[timeline.SourceAudit]
		watch, w := m.Seen[timeline.SourceWatch]
		if a && w {
			j.run.Differences = append(j.run.Differences, Difference{m.Name, m.Node, m.Subject, ms(watch - audit)})
		}
	}
}

// result is a milestone that was reached, with the fact that shows it.
func (j *judgement) result(m *Milestone) Result {
	r := j.fold.Result(m)
	r.Evidence = j.evidence(m)
	return r
}

// evidence finds the event that shows a milestone: of its source and at its time.
// The end of a certificate is no event; what was read from its file is.
func (j *judgement) evidence(m *Milestone) *timeline.Event {
	var found, read *timeline.Event
	for i := range j.events {
		e := &j.events[i].Event
		at := j.clock.when(*e)
		own := strings.HasSuffix(e.Object, " "+m.Node)
		if at == m.At && e.Source == m.Source && (found == nil || own) {
			found = e
		}
		if at <= m.At && own && (e.Type == timeline.TypeCertificate || e.Type == timeline.TypeInstalled) {
			read = e
		}
	}
	if found == nil && m.Name == CertificateExpired {
		return read
	}
	return found
}

// sortKey puts what was reached in order of time and the rest behind it, in the
// order of the chain.
func sortKey(r Result) float64 {
	if r.Seconds != nil {
		return *r.Seconds
	}
	return 1e9 + float64(slices.Index(Names(), r.Name))
}

// expect judges one expectation on one target.
func (j *judgement) expect(x Expectation, target string) (Result, Key) {
	k := Key{x.Milestone, target, x.Subject}
	m, ok := j.fold.Get(k)
	if !ok {
		return j.missing(x, k), k
	}
	r := j.result(m)
	r.Expected, r.Limit = true, limit(x)
	if r.Window == nil { // FaultInjected: all windows count from it
		r.Verdict = Pass
		return r, m.Key
	}
	from, ok := j.fold.Get(r.Window.after)
	switch {
	case !ok:
		r.Verdict, r.Note = j.unreached(r.Window.after.Name), join(r.Note, "it came, but "+r.Window.after.Name+" from which it counts was not seen")
		return r, m.Key
	case m.Late || from.Late:
		r.Verdict, r.Note = Inconclusive, join(r.Note, "seen only in a list after a gap")
		return r, m.Key
	case r.Window.Class == Derived:
		_, in := r.Window.find(r.After.Seconds) // the value that is shown
		switch {
		case in && r.Window.byMachine(r.After.Seconds):
			r.Verdict, r.Note = Pass, join(r.Note, r.Window.slow)
		case in:
			r.Verdict = Pass
		case r.Window.Machine != nil && r.Window.Machine.TooSlow:
			r.Verdict, r.Note = Inconclusive, join(r.Note, r.Window.Machine.String())
		default:
			r.Verdict = Fail
		}
	case m.At >= from.At:
		r.Verdict = Pass
	default:
		r.Verdict, r.Note = Fail, join(r.Note, "it came before "+from.Name)
	}
	if d := m.At - from.At; x.Max > 0 && d > time.Duration(x.Max) || d < time.Duration(x.Min) && x.Min > 0 {
		r.Verdict, r.Note = Fail, join(r.Note, "outside the limit of the experiment: "+r.Limit.String())
	}
	return r, m.Key
}

// missing judges an expectation whose milestone was never seen: it is missed only
// if somebody looked for as long as its window was open.
func (j *judgement) missing(x Expectation, k Key) Result {
	w := j.fold.WindowOf(k).rounded()
	r := Result{Name: k.Name, Node: k.Node, Subject: k.Subject, Window: &w, Limit: limit(x), Expected: true}
	if why := j.fold.Suppressed(k); why != "" {
		r.Verdict, r.Note = Pass, why
		return r
	}
	from, ok := j.fold.Get(w.after)
	if !ok {
		r.After = after(w.after, k)
		r.Verdict, r.Note = j.unreached(k.Name), "not reached, and neither was "+w.after.Name
		if w.after.Name != k.Name && j.missing(Expectation{}, w.after).Verdict == Inconclusive {
			r.Verdict = Inconclusive
		}
		return r
	}
	r.After = after(from.Key, k)
	bound := from.At + time.Duration(max(w.Max(), time.Duration(x.Max).Seconds())*float64(time.Second))
	end, _ := j.observedUntil()
	if len(w.Intervals) == 0 && x.Max == 0 { // without a bound it may come as long as somebody looks
		bound = max(bound, end)
	}
	switch {
	case from.Late:
		r.Verdict, r.Note = Inconclusive, "not seen, and nobody knows when "+from.Name+" was"
	case end < bound:
		r.Verdict, r.Note = Inconclusive, fmt.Sprintf("not reached by the end of the observation, %.1f s before its bound", (bound-end).Seconds())
	case !j.covered(k.Name, from.At, bound):
		r.Verdict, r.Note = Inconclusive, "not seen, but no source was without a gap while its window was open"
	case w.Machine != nil && w.Machine.TooSlow:
		r.Verdict, r.Note = Inconclusive, "not reached; "+w.Machine.String()
	default:
		r.Verdict, r.Note = Fail, "not reached"
	}
	return r
}

// unreached is the verdict on a milestone that was not seen: a fail only if a
// source of it was there all the time until the observation was over.
func (j *judgement) unreached(name string) Verdict {
	if end, over := j.observedUntil(); over && j.covered(name, 0, end) {
		return Fail
	}
	return Inconclusive
}

func (j *judgement) never(x Expectation, target string) (Result, Key) {
	k := Key{x.Milestone, target, x.Subject}
	m, ok := j.fold.Get(k)
	undone, wasUndone := j.fold.Get(Key{Name: FaultUndone, Node: target})
	if ok && (!wasUndone || m.At < undone.At) {
		r := j.result(m)
		r.Never, r.Verdict, r.Note = true, Fail, join(r.Note, "it must not occur")
		return r, m.Key
	}
	r := Result{Name: k.Name, Node: k.Node, Subject: k.Subject, Never: true, Verdict: Pass}
	zero, _ := j.fold.Zero()
	end, _ := j.observedUntil()
	if wasUndone {
		end = undone.At
	}
	if !j.covered(k.Name, zero, end) {
		r.Verdict, r.Note = Inconclusive, "not seen, but no source was without a gap"
	}
	if ok { // it came after the undo: leave its own row to it
		k = Key{}
	}
	return r, k
}

// covered says whether at least one source of a milestone had no gap from a to b.
func (j *judgement) covered(name string, a, b time.Duration) bool {
	row := j.fold.rows[name]
	if len(row.Sources) == 0 && row.Name != "" {
		return true
	}
	for _, source := range row.Sources {
		clear := true
		for _, g := range j.run.Gaps {
			if g.Source != source && !strings.HasPrefix(g.Source, source+" ") {
				continue
			}
			if g.From < b.Seconds() && (g.To == nil || *g.To > a.Seconds()) {
				clear = false
			}
		}
		if clear {
			return true
		}
	}
	return false
}

// Result describes a milestone that was reached, with its window and without a
// verdict.
func (f *Fold) Result(m *Milestone) Result {
	s := ms(m.At - f.zero)
	r := Result{Name: m.Name, Node: m.Node, Subject: m.Subject, Seconds: &s, Source: m.Source, Note: m.Note, Seen: map[string]float64{}}
	for source, at := range m.Seen {
		r.Seen[source] = ms(at - f.zero)
	}
	if m.Name == FaultInjected {
		return r
	}
	if n := f.nodes[m.Node]; m.Name == KubeletExited && n.exits > 0 {
		r.Note = join(r.Note, fmt.Sprintf("systemd started it again %d times, in vain", n.exits))
	}
	w := f.WindowOf(m.Key).rounded()
	r.Window = &w
	if from, ok := f.Get(w.after); ok { // else there is nothing to count from, and no number
		r.After = after(from.Key, m.Key)
		r.After.Seconds = ms(m.At - from.At)
		if i, ok := w.find(r.After.Seconds); ok {
			w.Branch = i.Branch
		}
	}
	return r
}

// Inside says whether a milestone that was reached lies in its derived window;
// judged is false for one without such a window.
func (r Result) Inside() (inside, judged bool) {
	if r.Window == nil || r.Window.Class != Derived || r.Seconds == nil || r.After == nil {
		return false, false
	}
	_, inside = r.Window.find(r.After.Seconds)
	return inside, true
}
