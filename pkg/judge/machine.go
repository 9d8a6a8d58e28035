package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// A Machine is the part of a window that is the machine's and not Kubernetes': so many
// requests and process starts lie in it, one after the other, and the window has room
// for them. Where as many that were measured near the step took longer than that, the
// window is wider by the difference. All values but Trips are seconds.
//
// Measured are the API server, nodes that are not meddled with, and never the node that
// is broken or how long a controller took to act: a controller or kubelet that stands
// still on a quick machine makes no window wider.
type Machine struct {
	Trips   int     `json:"trips"`
	Room    float64 `json:"room"`
	Took    float64 `json:"took"`    // as many, the slowest measured near the step
	Slowest float64 `json:"slowest"` // the longest of them
	Added   float64 `json:"added"`   // to each upper bound
	// TooSlow says that the window would have to be wider by more than its share: what
	// lies outside of it can then not be held against Kubernetes.
	TooSlow bool `json:"tooSlow,omitempty"`
}

// share is by how much of itself a window may be wider for the machine's sake.
const share = 0.5

// String says what the machine needed: "the machine: 5 requests took up to 1.55 s, the
// slowest 0.6 s, and the window has room for 1 s".
func (m Machine) String() string {
	s := fmt.Sprintf("the machine: %d requests took up to %.2f s, the slowest %.2f s, and the window has room for %g s", m.Trips, m.Took, m.Slowest, round2(m.Room))
	if m.TooSlow {
		return s + ", too slow to judge what lies outside"
	}
	return s
}

// takes notes the machine's part of a window: how many trips lie in it, and the seconds
// that its upper bounds have for them.
func (w Window) takes(trips int, room float64) Window {
	w.trips, w.room = trips, room
	return w
}

// Rule says where a window comes from: the terms that are Kubernetes', and what it holds
// for the machine.
func (w Window) Rule() string {
	if w.trips == 0 || w.Machine != nil { // then Why tells more
		return w.Why
	}
	return join(w.Why, fmt.Sprintf("%g s of it is for the machine: %d requests", round2(w.room), w.trips))
}

// A trip is one request, or the start of one process, and how long it took.
type trip struct {
	from, to time.Duration
}

func (t trip) took() time.Duration { return t.to - t.from }

// tripOf reads from a fact how long a trip took: the API server over a write, a kubelet
// that is not meddled with over the renewal of its Lease (its renewTime is the moment
// before the request), the shell that watches such a node over starting a process, or over
// waking up. at is its time since the start of the timeline. A renewal that took longer than its client
// waits for an answer is none: the times contradict each other.
func tripOf(e fact, at, patience time.Duration, meddled func(node string) bool) (trip, bool) {
	var took time.Duration
	if r, ok := entryOf(e.says); ok && r.changed() {
		took = r.took
	}
	switch w := e.says.(type) {
	case renewal:
		if sent, err := time.Parse(time.RFC3339Nano, w.renew); err == nil && !meddled(w.node) {
			if d := e.Stamp.Sub(sent); d <= patience {
				took = max(took, d)
			}
		}
	case paceSeen:
		if !meddled(w.node) {
			took = max(w.look, w.late)
		}
	}
	return trip{at - took, at}, took > 0
}

// measure notes how long a trip took. A kubelet waits for the answer to a renewal as long as
// its Lease lasts (cmd/kubelet/app/server.go: the timeout of the heartbeat client).
func (f *Fold) measure(e fact, at time.Duration) {
	meddled := func(node string) bool { n := f.nodes[node]; return n == nil || n.target }
	if t, ok := tripOf(e, at, f.tim.D, meddled); ok {
		f.trips = append(f.trips, t)
	}
}

// near returns how long the trips took that were under way within a renew interval of
// any of some moments, the longest first: so near to each there is at least one renewal
// of every node.
func (f *Fold) near(moments ...time.Duration) []time.Duration {
	var all []time.Duration
	for _, t := range f.trips {
		if slices.ContainsFunc(moments, func(at time.Duration) bool { return t.from <= at+f.tim.I() && t.to >= at-f.tim.I() }) {
			all = append(all, t.took())
		}
	}
	slices.SortFunc(all, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	return all
}

// row is what so many trips take one after the other: those that took longest. Where
// fewer were measured, the others took as long as these in the mean.
func row(took []time.Duration, trips int) (sum time.Duration) {
	if len(took) == 0 || trips == 0 {
		return 0
	}
	n := min(trips, len(took))
	for _, t := range took[:n] {
		sum += t
	}
	return sum * time.Duration(trips) / time.Duration(n)
}

// interval is the longest gap between two accepted renewals of a healthy Lease at some
// time: on a slow machine its request takes longer than Timing.I has it, and so does
// waking up for it.
func (f *Fold) interval(at time.Duration) time.Duration {
	return f.tim.I() + max(0, row(f.near(at), 2)-requested)
}

// widen gives a window what the machine needed for the trips that lie in it.
func (f *Fold) widen(k Key, w Window) Window {
	if m := f.needs(k, w); m.Added > 0 {
		if w.quick == nil {
			w.quick = slices.Clone(w.Intervals)
		}
		for i := range w.Intervals {
			w.Intervals[i].Max += m.Added
		}
		w.Machine, w.slow = &m, join(w.slow, m.String())
	}
	w.Why = join(w.Why, w.slow)
	return w
}

// needs is what the machine needed of a window. A window that has not begun is a forecast.
func (f *Fold) needs(k Key, w Window) Machine {
	from, ok := f.Get(w.after)
	if w.Class != Derived || w.trips == 0 || !ok {
		return Machine{}
	}
	end := f.now
	if m, ok := f.Get(k); ok {
		end = m.At
	}
	took := f.near(from.At, end)
	if len(took) == 0 {
		return Machine{}
	}
	needs := row(took, w.trips).Seconds()
	most := share * w.Max()
	return Machine{Trips: w.trips, Room: w.room, Took: round(needs), Slowest: round(took[0].Seconds()),
		Added: round(min(needs-w.room, most)), TooSlow: needs-w.room > most}
}

// A Pace is how promptly the machine worked in a run: what was measured of it, in
// seconds. A quiet one renews a Lease within 5 ms in the median and 99 of 100 within 20.
type Pace struct {
	Measured int     `json:"measured"`
	Median   float64 `json:"median"`
	P95      float64 `json:"p95"`
	Max      float64 `json:"max"`
	MaxAt    float64 `json:"maxAt"` // since the injection
}

// String says it in words: "267 requests took 15 ms in the median, 95 of 100 up to 65 ms,
// the slowest 155 ms at 68.2 s".
func (p *Pace) String() string {
	ms := func(s float64) float64 { return math.Round(s * 1e3) }
	return fmt.Sprintf("%d requests took %g ms in the median, 95 of 100 up to %g ms, the slowest %g ms at %.1f s", p.Measured, ms(p.Median), ms(p.P95), ms(p.Max), p.MaxAt)
}

// pace sums up the trips of a run.
func (j *judgement) pace() *Pace {
	trips := slices.Clone(j.fold.trips)
	if len(trips) == 0 {
		return nil
	}
	slices.SortFunc(trips, func(a, b trip) int { return cmp.Compare(a.took(), b.took()) })
	last := trips[len(trips)-1]
	return &Pace{Measured: len(trips), Median: ms(trips[len(trips)/2].took()), P95: ms(trips[len(trips)*95/100].took()), Max: ms(last.took()), MaxAt: ms(last.to - j.fold.zero)}
}
