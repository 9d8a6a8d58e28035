package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// byCause puts events, given as they arrived, in the order in which they came about. What
// a server or a node has stamped stands at its stamp. What a watch delivers has none: its
// arrival is the latest time at which it can have come about, and it stands at the write
// that made it, where the audit log has that, behind what the same watch has delivered
// before. A watch that is late on a busy machine does not put an old state behind newer
// ones.
func byCause(events []fact, c *clock) []fact {
	type placed struct {
		fact
		at time.Duration
	}
	all := make([]placed, len(events))
	causes := newCauses(events, c)
	last := map[string]time.Duration{} // of each watch, by resource
	for i, e := range events {
		at := c.when(e.Event)
		if e.Source == timeline.SourceWatch {
			resource, _, _ := strings.Cut(e.Object, " ")
			if cause, ok := causes.of(e, at); ok {
				at = min(at, max(last[resource], cause))
			}
			last[resource] = max(last[resource], at)
		}
		all[i] = placed{e, at}
	}
	slices.SortStableFunc(all, func(a, b placed) int {
		if n := cmp.Compare(a.at, b.at); n != 0 || (a.Source == timeline.SourceWatch) == (b.Source == timeline.SourceWatch) {
			return n
		}
		if a.Source == timeline.SourceWatch { // behind its cause
			return 1
		}
		return -1
	})
	sorted := make([]fact, len(all))
	for i, p := range all {
		sorted[i] = p.fact
	}
	return sorted
}

// causes finds the write that made a state which a watch delivers.
type causes struct {
	byBase  map[string]time.Duration // object and the resourceVersion that the write changed
	byState map[string][]time.Duration
	rv      map[string]string // the last that a watch has shown of an object
	was     map[string]string // and its state
}

func newCauses(events []fact, c *clock) *causes {
	s := &causes{map[string]time.Duration{}, map[string][]time.Duration{}, map[string]string{}, map[string]string{}}
	for _, e := range events {
		r, ok := entryOf(e.says)
		if !ok || !r.changed() {
			continue
		}
		at := c.when(e.Event)
		kind, _, _ := strings.Cut(r.resource, "/")
		if r.base != "" {
			s.byBase[kind+" "+r.name+" "+r.base] = at
		}
		for _, w := range r.states() {
			if w.value != "" {
				state := strings.Join([]string{kind, r.name, w.key, w.value}, " ")
				s.byState[state] = append(s.byState[state], at)
			}
		}
	}
	for _, at := range s.byState {
		slices.Sort(at)
	}
	return s
}

// A state is one thing that a write makes of an object and a watch shows.
type state struct{ key, value string }

func (r *request) states() []state {
	return []state{{"renew", r.renew}, {"ready", r.ready}, {"taints", r.taints}, {"condition", r.condition}}
}

func (l leaseSeen) states() []state { return []state{{"renew", l.renew}} }
func (n nodeSeen) states() []state  { return []state{{"ready", n.ready}, {"taints", n.taints}} }
func (c csrSeen) states() []state   { return []state{{"condition", c.state}} }
func (p podSeen) states() []state   { return nil } // its version alone says what made it

// seen is the object of a watch's fact.
func (c change) seen() change { return c }

// of is when the state that a watch delivers at a time was written. By the version that
// the write names, which is the one that the watch has shown before; else it is the last
// write of what has changed, not longer ago than sameChange.
func (s *causes) of(e fact, at time.Duration) (time.Duration, bool) {
	w, ok := e.says.(interface {
		seen() change
		states() []state
	})
	if !ok {
		return 0, false
	}
	rv, before := w.seen().rv, s.rv[e.Object]
	if rv != "" {
		s.rv[e.Object] = rv
	}
	if e.Type != timeline.TypeModified {
		return 0, false
	}
	if made, ok := s.byBase[e.Object+" "+before]; ok && before != "" && before != rv {
		return made, true
	}
	for _, is := range w.states() {
		thing := e.Object + " " + is.key
		was, known := s.was[thing]
		s.was[thing] = is.value
		if is.value == "" || known && was == is.value {
			continue
		}
		written := s.byState[strings.Join([]string{e.Object, is.key, is.value}, " ")]
		i, _ := slices.BinarySearch(written, at+1)
		if i > 0 && at-written[i-1] <= sameChange {
			return written[i-1], true
		}
	}
	return 0, false
}

// disagreements says where what was told live, in the order in which the events arrived,
// differs from what they say in the order of their causes.
func disagreements(live, sorted *Fold) []string {
	var why []string
	for _, m := range sorted.Milestones() {
		l, ok := live.got[m.Key]
		switch {
		case !ok:
			why = append(why, fmt.Sprintf("%s of %s was not told live", m.title(), m.Node))
		case ms(l.At-m.At) != 0: // to the precision of all that is printed
			why = append(why, fmt.Sprintf("%s of %s was told live at %.3f s and is at %.3f s", m.title(), m.Node, (l.At-live.zero).Seconds(), (m.At-sorted.zero).Seconds()))
		}
	}
	for _, l := range live.Milestones() {
		if _, ok := sorted.got[l.Key]; !ok {
			why = append(why, fmt.Sprintf("%s of %s was told live and is none", l.title(), l.Node))
		}
	}
	return why
}

// title is the name of a milestone with its subject.
func (k Key) title() string { return strings.TrimSpace(k.Name + " " + k.Subject) }
