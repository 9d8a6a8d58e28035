package compare

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/flatline-chaos/flatline/pkg/judge"
)

// Knobs says what one flag at a time does to every step.
type Knobs struct {
	Base  string   `json:"base"` // the flags that were changed, as they are in the arm that all are compared with
	Runs  int      `json:"runs"` // of it
	Facts []string `json:"facts"`
	Knobs []Knob   `json:"knobs"`
	Notes []string `json:"notes"`
}

// A Knob is one flag with another value.
type Knob struct {
	Change
	Runs    int      `json:"runs"`
	Effects []Effect `json:"effects"`
}

// An Effect is what a knob does to one step.
type Effect struct {
	Milestone   string   `json:"milestone"`
	From        string   `json:"from"`
	Delta       *float64 `json:"delta"`   // of medians, in seconds
	DeltaLo     *float64 `json:"deltaLo"` // the nearest that the intervals of the medians allow
	DeltaHi     *float64 `json:"deltaHi"` // and the farthest
	Model       *float64 `json:"model"`   // delta
	Slope       *float64 `json:"slope"`   // delta by the change of the flag
	ModelSlope  *float64 `json:"modelSlope"`
	P           *float64 `json:"p"` // corrected; nil since the injection
	Significant bool     `json:"significant"`
}

// worth is the shift, in seconds, from which the model has a step be told of.
const worth = 0.05

// Attribute holds the arms that differ from one of them in a single flag against that
// one: it is the one for which there are most of those. The error says why there is none.
func Attribute(runs []*judge.Run) (*Knobs, error) {
	byFlags := map[string]*Arm{}
	var arms []*Arm
	for _, r := range runs {
		text, _ := json.Marshal([]any{r.Experiment, r.Profile, r.KubernetesVersion, flat(r)}) // strings only
		if byFlags[string(text)] == nil {
			byFlags[string(text)] = &Arm{Name: "arm"}
			arms = append(arms, byFlags[string(text)])
		}
		a := byFlags[string(text)]
		a.Runs = append(a.Runs, r)
	}
	var base *Arm
	var turned []Arm
	for _, a := range arms {
		var near []Arm
		for _, b := range arms {
			if alike(a, b) && len(changes(a.Runs, b.Runs)) == 1 {
				near = append(near, *b)
			}
		}
		// Of two that have as many, the one with more runs.
		if len(near) > len(turned) || len(near) == len(turned) && base != nil && len(a.Runs) > len(base.Runs) {
			base, turned = a, near
		}
	}
	if base == nil {
		return nil, errors.New("no two sets of runs differ in a single flag")
	}
	k := Against(*base, turned)
	left := -1 - len(turned) // itself
	for _, a := range arms {
		if alike(base, a) {
			left++
		}
	}
	if left > 0 {
		k.Notes = append(k.Notes, fmt.Sprintf("%d other sets of runs differ in more than one flag and are left out", left))
	}
	return k, nil
}

// alike says whether two arms are of one experiment and version.
func alike(a, b *Arm) bool {
	x, y := a.Runs[0], b.Runs[0]
	return x.Experiment == y.Experiment && x.Profile == y.Profile && x.KubernetesVersion == y.KubernetesVersion
}

// Against holds arms that differ from a base in a single flag against it.
func Against(base Arm, turned []Arm) *Knobs {
	k := &Knobs{Notes: []string{}}
	var flags []string
	for _, a := range turned {
		differs := changes(base.Runs, a.Runs)
		if n := len(differs); n != 1 {
			k.Notes = append(k.Notes, fmt.Sprintf("%s differs in %d flags and is left out", a.Name, n))
			continue
		}
		knob := Knob{Change: differs[0]}
		t := New("", Arm{"the base", base.Runs}, Arm{knob.String(), a.Runs})
		k.Runs, k.Facts, knob.Runs = t.Arms[0].Runs, t.Facts, t.Arms[1].Runs
		for _, r := range t.Totals {
			if r.Milestone == judge.ReadyUnknown {
				knob.Effects = append(knob.Effects, effect(knob.Change, r))
			}
		}
		for _, r := range t.Rows {
			e := effect(knob.Change, r)
			if e.Significant || e.Model != nil && math.Abs(*e.Model) >= worth {
				knob.Effects = append(knob.Effects, e)
			}
		}
		for _, n := range t.Notes {
			if !slices.Contains(k.Notes, n) { // of the base, it is told once
				k.Notes = append(k.Notes, n)
			}
		}
		flags = append(flags, strings.TrimPrefix(knob.Flag, strings.Split(knob.Flag, ".")[0]+".")+" "+knob.Change.From)
		k.Knobs = append(k.Knobs, knob)
	}
	slices.Sort(flags)
	k.Base = strings.Join(slices.Compact(flags), ", ")
	slices.SortStableFunc(k.Knobs, func(a, b Knob) int { return cmp.Or(cmp.Compare(a.Flag, b.Flag), smaller(a.To, b.To)) })
	return k
}

// effect is a row of two arms, by the change of the flag where that is a number.
func effect(c Change, r Row) Effect {
	base, other := r.Cells[0], r.Cells[1]
	e := Effect{Milestone: r.Milestone, From: r.From, Delta: other.Delta, Model: other.ModelDelta, P: other.P, Significant: other.Significant}
	if base.Lo != nil && base.Hi != nil && other.Lo != nil && other.Hi != nil {
		e.DeltaLo, e.DeltaHi = ptr(*other.Lo-*base.Hi), ptr(*other.Hi-*base.Lo)
	}
	from, ok1 := number(c.From)
	to, ok2 := number(c.To)
	if !ok1 || !ok2 {
		return e
	}
	by := func(v *float64) *float64 {
		if v == nil {
			return nil
		}
		return ptr(*v / (to - from))
	}
	e.Slope, e.ModelSlope = by(e.Delta), by(e.Model)
	return e
}
