package compare

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"

	"github.com/flatline-chaos/flatline/pkg/judge"
)

// A sight is one milestone of one run.
type sight struct {
	milestone, from string
	at              *float64 // since the injection
	seconds         *float64 // nil: not reached
	windows         [][2]float64
	model           *float64
}

// A taker says what of a milestone goes into a table, and whether it does.
type taker func(r *judge.Run, m judge.Result) (sight, bool)

// ofCause takes a milestone from its cause. What has an order only is the run's own doing,
// or has no time of its own.
func ofCause(r *judge.Run, m judge.Result) (sight, bool) {
	if !m.Expected || m.Window == nil || m.Window.Class == judge.Ordered {
		return sight{}, false
	}
	if m.After == nil { // it could not come, or nobody knows
		return sight{}, false
	}
	s := sight{milestone: m.Title(), from: m.After.Title(), at: m.Seconds}
	if m.Seconds != nil {
		s.seconds = &m.After.Seconds
	} else if _, ok := cause(r, m); !ok || m.Verdict == judge.Pass { // it is its cause that was missed, or it was not to come
		return sight{}, false
	}
	if m.Window.Class == judge.Derived {
		for _, i := range m.Window.Intervals {
			s.windows = append(s.windows, [2]float64{i.Min, i.Max})
		}
		s.model = middle(m.Window)
	}
	return s, true
}

func middle(w *judge.Window) *float64 {
	if w == nil || w.Class != judge.Derived || len(w.Intervals) == 0 {
		return nil
	}
	mid := (w.Intervals[0].Min + w.Intervals[0].Max) / 2
	return &mid
}

// totals are the milestones whose time since the injection matters to anybody who tunes.
var totals = []string{judge.ReadyUnknown, judge.NoExecuteTainted, judge.PodEvicted}

// ofInjection takes a milestone since the injection. Its model is the sum of those of
// its causes, as far as these have one; the rest is taken as it was measured.
func ofInjection(r *judge.Run, m judge.Result) (sight, bool) {
	if !m.Expected || !slices.Contains(totals, m.Name) {
		return sight{}, false
	}
	s := sight{milestone: m.Title(), from: judge.FaultInjected, at: m.Seconds, seconds: m.Seconds}
	sum, lo, hi := 0.0, 0.0, 0.0
	for at := &m; at.After != nil; {
		if mid := middle(at.Window); mid != nil {
			i := taken(at.Window)
			sum, lo, hi = sum+*mid, lo+i.Min, hi+i.Max
		} else {
			sum, lo, hi = sum+at.After.Seconds, lo+at.After.Seconds, hi+at.After.Seconds
		}
		next, ok := cause(r, *at)
		if !ok {
			return s, true
		}
		at = next
	}
	if m.Seconds != nil {
		s.model, s.windows = &sum, [][2]float64{{lo, hi}}
	}
	return s, true
}

// taken is the branch of a window that was hit, else the first.
func taken(w *judge.Window) judge.Interval {
	for _, i := range w.Intervals {
		if i.Branch == w.Branch {
			return i
		}
	}
	return w.Intervals[0]
}

// cause finds the milestone from which another one counts, if it was reached.
func cause(r *judge.Run, m judge.Result) (*judge.Result, bool) {
	subject := cmp.Or(m.After.Subject, m.Subject)
	i := slices.IndexFunc(r.Milestones, func(o judge.Result) bool {
		return o.Name == m.After.Name && o.Node == m.Node && (o.Subject == subject || o.Subject == "") && o.Seconds != nil
	})
	if i < 0 {
		return nil, false
	}
	return &r.Milestones[i], true
}

// rows collects what take takes, in the order in which it mostly came.
func rows(arms []Arm, take taker) []Row {
	type key struct{ milestone, from string }
	drafts := map[key]*draft{}
	for i, a := range arms {
		for _, r := range a.Runs {
			for k, b := range bundles(r, take) {
				at := key{k, b.from}
				if drafts[at] == nil {
					drafts[at] = &draft{row: Row{Milestone: k, From: b.from, Cells: make([]Cell, len(arms))}, models: make([][]float64, len(arms))}
				}
				drafts[at].add(i, b)
			}
		}
	}
	sorted := slices.SortedFunc(maps.Values(drafts), func(a, b *draft) int {
		return cmp.Or(cmp.Compare(a.when(), b.when()), cmp.Compare(a.row.Milestone, b.row.Milestone), cmp.Compare(a.row.From, b.row.From))
	})
	all := []Row{}
	for _, d := range sorted {
		all = append(all, d.finish())
	}
	return all
}

// A draft is a row in the making.
type draft struct {
	row    Row
	ats    []float64   // since the injection
	models [][]float64 // of each arm
}

func (d *draft) add(arm int, b *bundle) {
	c := &d.row.Cells[arm]
	if v, ok := b.value(); ok {
		c.Values = append(c.Values, v)
	} else {
		c.NotReached++
	}
	c.Windows = append(c.Windows, b.windows...)
	d.ats = append(d.ats, b.ats...)
	if b.model != nil {
		d.models[arm] = append(d.models[arm], *b.model)
	}
}

// when is the time at which it mostly came.
func (d *draft) when() float64 {
	if len(d.ats) == 0 {
		return math.Inf(1)
	}
	return median(d.ats)
}

func (d *draft) finish() Row {
	for i := range d.row.Cells {
		c := &d.row.Cells[i]
		slices.Sort(c.Values)
		slices.SortFunc(c.Windows, func(a, b [2]float64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
		c.Windows = slices.Compact(c.Windows)
		if len(d.models[i]) > 0 {
			c.Model = ptr(median(d.models[i]))
		}
		c.summarize()
	}
	return d.row
}

// A bundle is one milestone of one run, on all of its targets.
type bundle struct {
	from    string
	ats     []float64
	seconds []float64
	missed  int
	windows [][2]float64
	model   *float64
}

// value is the run's one number, the median over its targets; there is none where that is one
// that was not reached.
func (b *bundle) value() (float64, bool) {
	all := slices.Clone(b.seconds)
	for range b.missed {
		all = append(all, math.Inf(1))
	}
	v := median(all)
	return *ptr(v), !math.IsInf(v, 0)
}

// bundles are the milestones of a run that take takes, by title.
func bundles(r *judge.Run, take taker) map[string]*bundle {
	all := map[string]*bundle{}
	for _, m := range r.Milestones {
		if m.Verdict == judge.Inconclusive || !slices.Contains(r.Target, m.Node) {
			continue
		}
		s, ok := take(r, m)
		if !ok {
			continue
		}
		b := all[s.milestone]
		if b == nil {
			b = &bundle{from: s.from, model: s.model}
			all[s.milestone] = b
		}
		b.windows = append(b.windows, s.windows...)
		if s.seconds == nil {
			b.missed++
			continue
		}
		b.ats, b.seconds = append(b.ats, *s.at), append(b.seconds, *s.seconds)
	}
	return all
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// ptr takes a number without what arithmetic leaves of it behind the sixth decimal.
func ptr(v float64) *float64 {
	v = math.Round(v*1e6)/1e6 + 0 // and not -0
	return &v
}

// sample has what was not reached behind all that was, in this cell and in another.
func (c Cell) sample(beyond float64) *benchmath.Sample {
	values := slices.Clone(c.Values)
	for range c.NotReached {
		values = append(values, beyond)
	}
	return benchmath.NewSample(values, &benchmath.Thresholds{CompareAlpha: Alpha})
}

// largest is that of the values of some cells, 0 if there are none.
func largest(cells ...Cell) float64 {
	var all []float64
	for _, c := range cells {
		all = append(all, c.Values...)
	}
	if len(all) == 0 {
		return 0
	}
	return slices.Max(all)
}

// summarize computes the median and its interval.
func (c *Cell) summarize() {
	if c.N() == 0 {
		return
	}
	most := largest(*c)
	s := benchmath.AssumeNothing.Summary(c.sample(most+1), Confidence)
	number := func(v float64) *float64 {
		if math.IsInf(v, 0) || len(c.Values) == 0 || c.NotReached > 0 && v > most {
			return nil
		}
		return ptr(v)
	}
	c.Median, c.Lo, c.Hi = number(s.Center), number(s.Lo), number(s.Hi)
}

// against computes the shifts of a cell against that of the first arm.
func against(base Cell, c *Cell) {
	if base.Median != nil && c.Median != nil {
		c.Delta = ptr(*c.Median - *base.Median)
	}
	if base.Model != nil && c.Model != nil {
		c.ModelDelta = ptr(*c.Model - *base.Model)
	}
}
