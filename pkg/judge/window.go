package judge

// Classes of windows.
const (
	Derived = "derived" // from flags and version; judged
	Ordered = "ordered" // presence and order are judged, the time is not
	Budget  = "budget"  // reported; fails only where the user set a limit
)

// An Interval is one branch of a window, in seconds after the milestone from
// which the window counts.
type Interval struct {
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Branch string  `json:"branch,omitempty"`
}

// A Window is where a milestone must lie: some steps have more than one branch.
type Window struct {
	Class     string     `json:"class"`
	Intervals []Interval `json:"intervals,omitempty"`
	// Branch is the one that was hit, Why the term that ruled.
	Branch string `json:"branch,omitempty"`
	Why    string `json:"why,omitempty"`
	// Machine is there where the window is wider for its sake.
	Machine *Machine `json:"machine,omitempty"`
	trips   int
	room    float64
	slow    string     // what the machine needed, in words
	quick   []Interval // what the intervals would be had it been quick, where they are not that
	// after is the milestone from which the window counts.
	after Key
}

// Max is the latest bound, 0 for a window without intervals.
func (w Window) Max() float64 {
	var m float64
	for _, i := range w.Intervals {
		m = max(m, i.Max)
	}
	return m
}

// rounded rounds the bounds to the millisecond, the precision of all that is
// printed: a value judged must be the value shown.
func (w Window) rounded() Window {
	for i := range w.Intervals {
		w.Intervals[i].Min, w.Intervals[i].Max = round(w.Intervals[i].Min), round(w.Intervals[i].Max)
	}
	return w
}

// byMachine says whether a value lies in a window for the machine's sake alone.
func (w Window) byMachine(s float64) bool {
	_, in := Window{Intervals: w.quick}.find(s)
	return w.quick != nil && !in
}

// find returns the interval that holds s.
func (w Window) find(s float64) (Interval, bool) {
	for _, i := range w.Intervals {
		if s >= i.Min && s <= i.Max {
			return i, true
		}
	}
	return Interval{}, false
}

// ahead is by how much what follows from a write may come before it, in seconds: the
// audit log stamps a write when its response is complete, and anybody who watches may
// know of it before. 7 ms were seen.
const ahead = 0.05

// derived is a window that counts from a milestone; why is the term that rules.
func derived(from Key, why string, in ...Interval) Window {
	return Window{Class: Derived, Intervals: in, Why: why, after: from}
}

// ordered is a window without a bound: it comes after a milestone.
func ordered(from Key) Window { return Window{Class: Ordered, after: from} }

// of is another milestone of the same node.
func (k Key) of(name string) Key { return Key{Name: name, Node: k.Node} }

// WindowOf derives the window of a milestone from the flags in force and from
// what has happened so far.
func (f *Fold) WindowOf(k Key) Window {
	w := f.windowOf(k)
	if w.Class == Derived && f.rows[w.after.Name].Write && !f.rows[k.Name].ownClock {
		early := ahead
		if from, ok := f.Get(w.after); ok {
			early = max(early, from.took.Seconds())
		}
		for i := range w.Intervals {
			w.Intervals[i].Min -= early
		}
	}
	return f.widen(k, w)
}

// windowOf is the window before the machine's part in it is known.
func (f *Fold) windowOf(k Key) Window {
	if row, ok := f.rows[k.Name]; ok {
		return row.window(f, k)
	}
	return f.sinceInjection(k)
}

// How many requests and process starts lie in a window, one after the other, at the most.
const (
	// acting is a controller or kubelet that acts on what it was told: it is told by a
	// watch, reads, writes, meets a conflict, reads and writes again.
	acting = 5
	// starting is a kubelet or controller that starts: processes first, then the
	// requests before the one that is waited for.
	starting = 20
)
