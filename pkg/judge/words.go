package judge

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Title is the name of the milestone with its subject.
func (a After) Title() string { return strings.TrimSpace(a.Name + " " + a.Subject) }

// Title is the name of a milestone with its subject.
func (r Result) Title() string {
	if r.Subject != "" {
		return r.Name + " " + r.Subject
	}
	return r.Name
}

// Explain says in words where a milestone lies against its window.
func (r Result) Explain() string {
	var s string
	if r.Seconds != nil && r.After != nil {
		s = fmt.Sprintf("%.3f s after %s", r.After.Seconds, r.After.Title())
		if inside, judged := r.Inside(); judged && !inside && r.Verdict == Fail {
			s += ", outside " + r.Window.String()
		}
	}
	return join(s, r.Note)
}

// String writes the intervals: "[12, 14.1]", joined by "or".
func (w Window) String() string {
	var s []string
	for _, i := range w.Intervals {
		s = append(s, i.String())
	}
	return strings.Join(s, " or ")
}

// String writes one interval: "[12, 14.1]".
func (i Interval) String() string { return fmt.Sprintf("[%g, %g]", round2(i.Min), round2(i.Max)) }

// String says a limit and its reason: "at most 10 s, our own objective".
func (l Limit) String() string {
	s := fmt.Sprintf("at most %g s", l.Max)
	switch {
	case l.Max == 0:
		s = fmt.Sprintf("at least %g s", l.Min)
	case l.Min > 0:
		s = fmt.Sprintf("%g to %g s", l.Min, l.Max)
	}
	if l.Why != "" {
		s += ", " + l.Why
	}
	return s
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

func sortedKeys(ms ...map[string]string) []string {
	var keys []string
	for _, m := range ms {
		for k := range m {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// ms is d in seconds, to the millisecond.
func ms(d time.Duration) float64 { return round(d.Seconds()) }

func round(s float64) float64 { return math.Round(s*1e3)/1e3 + 0 } // and not -0

func round2(s float64) float64 { return math.Round(s*1e2)/1e2 + 0 }
