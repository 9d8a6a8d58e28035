// Package compare holds runs under different flags against each other: every milestone
// as the time that it took from its own cause, so that one shift does not count ten
// times, and beside it the shift that the windows predict. It is pure.
//
// Statistics are those of golang.org/x/perf/benchmath, which benchstat uses: medians with
// confidence intervals, and the Mann-Whitney U test, which assumes nothing of the
// distributions. A run gives one number for a milestone however many targets it has. What was
// not reached is no number: it ranks behind all that was.
package compare

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/perf/benchmath"

	"github.com/flatline-chaos/flatline/pkg/judge"
)

const (
	// Alpha is the level of significance, after the correction.
	Alpha = 0.05
	// Confidence is that of the intervals round medians.
	Confidence = 0.95
	// Enough is the number of runs from which a median has such an interval.
	Enough = 6
)

// An Arm is runs that are to be the same.
type Arm struct {
	Name string
	Runs []*judge.Run
}

// A Table compares arms with the first of them.
type Table struct {
	Title string `json:"title"`
	// Facts is what all runs have in common: experiment, profile, version.
	Facts []string `json:"facts"`
	Arms  []Column `json:"arms"`
	Rows  []Row    `json:"rows"`
	// Totals are times since the injection. They are not tested: they contain the rows.
	Totals []Row    `json:"totals"`
	Notes  []string `json:"notes"` // what the reader must know
	// Family is the number of milestones that are tested in each arm; p is corrected
	// for so many (Holm).
	Family int `json:"family"`
	// Blind is true where an arm has too few runs for any difference to be significant.
	Blind bool `json:"blind"`
}

// A Column is an arm as it stands in a table.
type Column struct {
	Name string `json:"name"`
	Runs int    `json:"runs"` // that came to an answer
	// Differs are the flags that are other than in the first arm.
	Differs []Change `json:"differs"`
}

// A Change is a flag with its value in the first arm and in another.
type Change struct {
	Flag string `json:"flag"` // component.name
	From string `json:"from"`
	To   string `json:"to"`
}

// String is "node-monitor-grace-period 12s → 16s".
func (c Change) String() string {
	_, name, _ := strings.Cut(c.Flag, ".")
	return fmt.Sprintf("%s %s → %s", name, c.From, c.To)
}

// A Row is one milestone, counted from its cause, in every arm.
type Row struct {
	Milestone string `json:"milestone"`
	From      string `json:"from"`
	Cells     []Cell `json:"cells"`
}

// A Cell is one milestone in one arm. Times are in seconds; a pointer is nil where
// there is no number.
type Cell struct {
	Values     []float64    `json:"values"`     // one a run, ascending
	NotReached int          `json:"notReached"` // runs in which it was expected in vain
	Median     *float64     `json:"median"`
	Lo         *float64     `json:"lo"` // of its confidence interval
	Hi         *float64     `json:"hi"`
	Windows    [][2]float64 `json:"windows,omitempty"` // derived, of all runs
	Model      *float64     `json:"model"`             // the middle of the window, of its first branch

	// Against the first arm:
	Delta       *float64 `json:"delta"`      // of medians
	ModelDelta  *float64 `json:"modelDelta"` // of models
	P           *float64 `json:"p"`          // corrected
	Significant bool     `json:"significant"`
}

// N is the number of runs that the cell is of.
func (c Cell) N() int { return len(c.Values) + c.NotReached }

// Changed says whether anything differs significantly from the first arm.
func (t *Table) Changed() bool {
	return slices.ContainsFunc(t.Rows, func(r Row) bool { return slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.Significant }) })
}

// New compares arms with the first of them.
func New(title string, arms ...Arm) *Table {
	t := &Table{Title: title, Facts: []string{}, Notes: []string{}, Rows: []Row{}, Totals: []Row{}}
	arms = slices.Clone(arms) // the caller's keep their runs without an answer
	for i, a := range arms {
		arms[i].Runs = t.answered(a)
		t.Arms = append(t.Arms, Column{Name: a.Name, Runs: len(arms[i].Runs), Differs: []Change{}})
	}
	t.mixed(arms)
	for i := range arms[1:] {
		t.Arms[i+1].Differs = changes(arms[0].Runs, arms[i+1].Runs)
	}
	t.Rows = rows(arms, ofCause)
	t.Totals = rows(arms, ofInjection)
	t.Family = len(t.Rows)
	for i := range arms[1:] {
		test(t.Rows, i+1)
		for _, r := range t.Totals {
			against(r.Cells[0], &r.Cells[i+1])
		}
	}
	t.oneSided()
	t.tooFew()
	return t
}

// oneSided tells of milestones that some arms have and others have not, from the same
// cause: they cannot be tested.
func (t *Table) oneSided() {
	for _, r := range t.Rows {
		var with, without []string
		for i, c := range r.Cells {
			if c.N() > 0 {
				with = append(with, t.Arms[i].Name)
			} else {
				without = append(without, t.Arms[i].Name)
			}
		}
		if len(with) > 0 && len(without) > 0 {
			t.Notes = append(t.Notes, fmt.Sprintf("%s after %s is in %s, and not in %s", r.Milestone, r.From,
				strings.Join(with, ", "), strings.Join(without, ", ")))
		}
	}
}

// tooFew tells where there are not enough runs to see anything: the smallest p of the rank
// test has both sides apart altogether, in two of all orders.
func (t *Table) tooFew() {
	for _, a := range t.Arms[1:] {
		base := t.Arms[0]
		if base.Runs == 0 || a.Runs == 0 || len(t.Rows) == 0 {
			t.Blind = true
			continue
		}
		orders := math.Exp(logFactorial(base.Runs+a.Runs) - logFactorial(base.Runs) - logFactorial(a.Runs))
		if least := min(1, 2/orders*float64(t.Family)); least >= Alpha {
			t.Blind = true
			t.Notes = append(t.Notes, fmt.Sprintf("%d runs of %s and %d of %s cannot show any difference: corrected for %d "+
				"milestones, p is never below %.2g", base.Runs, base.Name, a.Runs, a.Name, t.Family, least))
		}
	}
	for _, a := range t.Arms {
		if a.Runs < Enough {
			t.Notes = append(t.Notes, fmt.Sprintf("%s has %d runs: with fewer than %d a median has no interval of %.0f %%, and hardly "+
				"any difference can be shown", a.Name, a.Runs, Enough, 100*Confidence))
		}
	}
}

func logFactorial(n int) float64 {
	v, _ := math.Lgamma(float64(n + 1))
	return v
}

// answered drops runs that came to no answer, and says so.
func (t *Table) answered(a Arm) []*judge.Run {
	var runs []*judge.Run
	out := map[judge.Outcome]int{}
	for _, r := range a.Runs {
		if r.Answered() {
			runs = append(runs, r)
		} else {
			out[r.Outcome]++
		}
		if r.Outcome == judge.OutcomeFail {
			t.Notes = append(t.Notes, fmt.Sprintf("%s: in run %s an expectation was missed: %s", a.Name, r.RunID, strings.Join(r.Reasons, "; ")))
		}
	}
	for _, o := range slices.Sorted(maps.Keys(out)) {
		t.Notes = append(t.Notes, fmt.Sprintf("%s: %d runs without an answer are left out: %s", a.Name, out[o], o))
	}
	return runs
}

// mixed tells what the runs have in common, and what they ought to and do not.
func (t *Table) mixed(arms []Arm) {
	for _, of := range []struct {
		what string
		get  func(*judge.Run) string
	}{
		{"experiment", func(r *judge.Run) string { return r.Experiment }},
		{"profile", func(r *judge.Run) string { return r.Profile }},
		{"Kubernetes", func(r *judge.Run) string { return r.KubernetesVersion }},
		{"node image", func(r *judge.Run) string { return r.NodeImage }},
	} {
		all := map[string]bool{}
		var each []string
		for _, a := range arms {
			own := map[string]bool{}
			for _, r := range a.Runs {
				own[of.get(r)], all[of.get(r)] = true, true
			}
			each = append(each, a.Name+": "+strings.Join(slices.Sorted(maps.Keys(own)), ", "))
		}
		if len(all) == 1 {
			for v := range all {
				t.Facts = append(t.Facts, of.what+" "+v)
			}
		} else if len(all) > 1 {
			t.Notes = append(t.Notes, "the runs are not of one "+of.what+": "+strings.Join(each, "; "))
		}
	}
	t.images(arms)
	for _, a := range arms {
		if len(a.Runs) == 0 {
			continue
		}
		for _, r := range a.Runs[1:] {
			if d := changes(a.Runs[:1], []*judge.Run{r}); len(d) > 0 {
				t.Notes = append(t.Notes, fmt.Sprintf("the runs of %s have not the same flags: %s", a.Name, texts(d)))
				break
			}
		}
	}
}

// images tells of node images of one name that are not the same.
func (t *Table) images(arms []Arm) {
	ids := map[string]map[string]bool{}
	for _, a := range arms {
		for _, r := range a.Runs {
			if r.NodeImageID == "" { // from before it was written down
				continue
			}
			if ids[r.NodeImage] == nil {
				ids[r.NodeImage] = map[string]bool{}
			}
			ids[r.NodeImage][r.NodeImageID] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ids)) {
		if len(ids[name]) > 1 {
			t.Notes = append(t.Notes, fmt.Sprintf("node image %s is not one image: %s", name,
				strings.Join(slices.Sorted(maps.Keys(ids[name])), ", ")))
		}
	}
}

func texts(changes []Change) string {
	var s []string
	for _, c := range changes {
		s = append(s, c.String())
	}
	return strings.Join(s, ", ")
}

// changes lists the flags that differ between the first runs of two arms. A flag that follows
// another one is left to that.
func changes(a, b []*judge.Run) []Change {
	list := []Change{}
	if len(a) == 0 || len(b) == 0 {
		return list
	}
	was, is := flat(a[0]), flat(b[0])
	for _, name := range slices.Sorted(maps.Keys(merge(was, is))) {
		if !judge.SameValue(was[name], is[name]) {
			list = append(list, Change{name, was[name], is[name]})
		}
	}
	return slices.DeleteFunc(list, func(c Change) bool {
		leader, ok := follows[c.Flag]
		return ok && slices.ContainsFunc(list, func(o Change) bool { return o.Flag == leader })
	})
}

// follows are flags that move with another one
// (pkg/kubelet/apis/config/v1beta1/defaults.go, SetDefaults_KubeletConfiguration).
var follows = map[string]string{"kubelet.nodeStatusReportFrequency": "kubelet.nodeStatusUpdateFrequency"}

// flat is a run's flags by component.name. What single kubelets have otherwise is named
// by their nodes, which are others in every cluster.
func flat(r *judge.Run) map[string]string {
	all := map[string]string{}
	for component, flags := range r.Flags {
		if strings.Contains(component, "/") {
			continue
		}
		for name, f := range flags {
			all[component+"."+name] = f.Value
		}
	}
	return all
}

func merge(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// test compares an arm with the first in every row, and corrects p for their number.
func test(rows []Row, arm int) {
	p := make([]float64, len(rows))
	for i, r := range rows {
		base, c := r.Cells[0], &r.Cells[arm]
		against(base, c)
		p[i] = 1
		if base.N() > 0 && c.N() > 0 {
			beyond := largest(base, *c) + 1
			p[i] = benchmath.AssumeNothing.Compare(base.sample(beyond), c.sample(beyond)).P
		}
	}
	for i, corrected := range holm(p) {
		c := &rows[i].Cells[arm]
		c.P, c.Significant = ptr(corrected), corrected < Alpha
	}
}

// holm corrects p for the number of tests: the smallest times that number, the next
// times one less, none smaller than the one before (Holm 1979, A Simple Sequentially
// Rejective Multiple Test Procedure).
func holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	corrected := make([]float64, len(p))
	before := 0.0
	for i, k := range order {
		before = max(before, min(1, p[k]*float64(len(p)-i)))
		corrected[k] = before
	}
	return corrected
}

// By compares the values of one flag (component.name; or experiment, profile,
// kubernetes): the runs that are the same but for it are in one table. The first
// arm has the smallest value. The error says why there is nothing to compare.
func By(flag string, runs []*judge.Run) ([]*Table, error) {
	value, err := column(flag, runs)
	if err != nil {
		return nil, err
	}
	type table struct {
		first *judge.Run
		arms  map[string]*Arm
	}
	groups := map[string]*table{}
	for _, r := range runs {
		k := rest(flag, r)
		if groups[k] == nil {
			groups[k] = &table{r, map[string]*Arm{}}
		}
		v := cmp.Or(value(r), "not read")
		if groups[k].arms[v] == nil {
			groups[k].arms[v] = &Arm{Name: v}
		}
		groups[k].arms[v].Runs = append(groups[k].arms[v].Runs, r)
	}
	var tables []*Table
	alone := map[string]bool{}
	for _, k := range slices.Sorted(maps.Keys(groups)) {
		g := groups[k]
		if len(g.arms) < 2 {
			for v := range g.arms {
				alone[v] = true
			}
			continue
		}
		var arms []Arm
		for _, v := range slices.SortedFunc(maps.Keys(g.arms), smaller) {
			arms = append(arms, *g.arms[v])
		}
		if t := New(flag, arms...); len(t.Rows) > 0 { // else they have nothing that could be compared, as runs without a fault
			tables = append(tables, t)
		}
	}
	if len(tables) == 0 {
		if len(alone) == 0 {
			return nil, errors.New("nothing to compare: these runs have no milestones that are expected")
		}
		return nil, fmt.Errorf("nothing to compare: no two runs are the same but for %s, which is %s", flag,
			strings.Join(slices.SortedFunc(maps.Keys(alone), smaller), ", "))
	}
	return tables, nil
}

// column is how to read a flag of a run.
func column(flag string, runs []*judge.Run) (func(*judge.Run) string, error) {
	switch flag {
	case "experiment":
		return func(r *judge.Run) string { return r.Experiment }, nil
	case "profile":
		return func(r *judge.Run) string { return r.Profile }, nil
	case "kubernetes":
		return func(r *judge.Run) string { return r.KubernetesVersion }, nil
	}
	component, name, _ := strings.Cut(flag, ".")
	value := func(r *judge.Run) string { return r.Flags[component][name].Value }
	if !slices.ContainsFunc(runs, func(r *judge.Run) bool { return value(r) != "" }) {
		return nil, fmt.Errorf("no run has a flag %q: want component.name, such as "+
			"kube-controller-manager.node-monitor-grace-period, or experiment, profile, kubernetes", flag)
	}
	return value, nil
}

// rest is all that must be the same in one table.
func rest(flag string, r *judge.Run) string {
	flags := flat(r)
	delete(flags, flag)
	for follower, leader := range follows {
		if leader == flag {
			delete(flags, follower)
		}
	}
	key := []any{r.Experiment, r.Profile, r.KubernetesVersion, flags}
	switch flag {
	case "experiment":
		key = []any{r.Profile, r.KubernetesVersion}
	case "profile": // its flags are what it is
		key = []any{r.Experiment, r.KubernetesVersion}
	case "kubernetes":
		key[2] = ""
	}
	text, _ := json.Marshal(key) // strings only
	return string(text)
}

// smaller orders values as durations or numbers where both are.
func smaller(a, b string) int {
	x, ok1 := number(a)
	y, ok2 := number(b)
	if ok1 && ok2 && x != y {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(a, b)
}

// number reads a duration, in seconds, or a number.
func number(s string) (float64, bool) {
	if v, err := strconv.ParseFloat(s, 64); err == nil {
		return v, true
	}
	d, err := time.ParseDuration(s)
	return d.Seconds(), err == nil
}
