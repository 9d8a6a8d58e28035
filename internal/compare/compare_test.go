package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flatline-chaos/flatline/pkg/judge"
)

// run is a run of kubelet-stopped in which Ready=Unknown came so long after the last
// renewal, and an eviction of its own after it; a NaN was not reached.
func run(id string, grace string, unknown float64) *judge.Run {
	const target = "c-worker2"
	var g float64
	if _, err := fmt.Sscanf(grace, "%gs", &g); err != nil {
		panic(err)
	}
	s := func(v float64) *float64 { return &v }
	r := &judge.Run{RunID: id, Experiment: "kubelet-stopped", Profile: "fast", KubernetesVersion: "v1.37.2",
		NodeImage: "node:1", Outcome: judge.OutcomePass, Target: []string{target},
		Flags: map[string]map[string]judge.Flag{
			"kube-controller-manager": {"node-monitor-grace-period": {Value: grace}},
			"kubelet": {"nodeLeaseDurationSeconds": {Value: "8"}, "nodeStatusUpdateFrequency": {Value: "10s"},
				"nodeStatusReportFrequency": {Value: "5m0s"}},
			"kubelet/c-worker": {"nodeLeaseDurationSeconds": {Value: "9"}},
		}}
	window := func(class string, bounds ...float64) *judge.Window {
		w := &judge.Window{Class: class}
		for i := 0; i < len(bounds); i += 2 {
			w.Intervals = append(w.Intervals, judge.Interval{Min: bounds[i], Max: bounds[i+1]})
		}
		return w
	}
	r.Milestones = []judge.Result{
		{Name: judge.FaultInjected, Node: target, Seconds: s(0), Expected: true},
		{Name: judge.KubeletStopped, Node: target, Seconds: s(0.1), After: &judge.After{Name: judge.FaultInjected, Seconds: 0.1},
			Window: window(judge.Ordered), Expected: true},
		{Name: judge.LeaseStalled, Node: target, Seconds: s(-0.9), After: &judge.After{Name: judge.KubeletStopped, Seconds: -1},
			Window: window(judge.Derived, -2.5, 0.5), Expected: true, Verdict: judge.Pass},
		{Name: judge.ReadyUnknown, Node: target, Window: window(judge.Derived, g, g+2, g+2, g+3), Expected: true, Verdict: judge.Fail},
		{Name: judge.CSRCreated, Node: target, Seconds: s(50), After: &judge.After{Name: "RepairDone", Seconds: 1},
			Window: window(judge.Derived, 0, 6)},
	}
	m := &r.Milestones[3]
	m.After = &judge.After{Name: judge.LeaseStalled}
	if !math.IsNaN(unknown) {
		m.Seconds, m.After.Seconds, m.Verdict = s(unknown-0.9), unknown, judge.Pass
	}
	return r
}

func arm(name, grace string, unknown ...float64) Arm {
	a := Arm{Name: name}
	for i, u := range unknown {
		a.Runs = append(a.Runs, run(fmt.Sprint(name, i), grace, u))
	}
	return a
}

func row(t *testing.T, rows []Row, milestone string) Row {
	t.Helper()
	i := slices.IndexFunc(rows, func(r Row) bool { return r.Milestone == milestone })
	if i < 0 {
		t.Fatalf("no row of %s", milestone)
	}
	return rows[i]
}

func near(t *testing.T, what string, got *float64, want float64) {
	t.Helper()
	if got == nil || math.Abs(*got-want) > 1e-6 {
		t.Errorf("%s is %s, want %g", what, text(got), want)
	}
}

func text(v *float64) string {
	if v == nil {
		return "no number"
	}
	return fmt.Sprint(*v)
}

var nan = math.NaN()

func TestShift(t *testing.T) {
	tab := New("", arm("A", "8s", 8.1, 8.2, 8.3, 8.5, 8.6, 8.7), arm("B", "12s", 12.1, 12.2, 12.3, 12.5, 12.6, 12.7))
	if len(tab.Rows) != 2 || tab.Family != 2 || len(tab.Notes) != 0 {
		t.Errorf("%d rows, a family of %d, notes %q", len(tab.Rows), tab.Family, tab.Notes)
	}
	c := row(t, tab.Rows, judge.ReadyUnknown).Cells
	near(t, "median of A", c[0].Median, 8.4)
	near(t, "lower end of A", c[0].Lo, 8.1)
	near(t, "upper end of A", c[0].Hi, 8.7)
	near(t, "model of A", c[0].Model, 9)
	near(t, "delta", c[1].Delta, 4)
	near(t, "delta of the model", c[1].ModelDelta, 4)
	near(t, "p", c[1].P, 2*2/924.0) // the most extreme of 924 orders, on both sides; two tests
	if !c[1].Significant || !tab.Changed() {
		t.Error("it is not significant")
	}
	c = row(t, tab.Rows, judge.LeaseStalled).Cells
	near(t, "p of what is the same", c[1].P, 1)
	if c[1].Significant {
		t.Error("what is the same is significant")
	}
	c = row(t, tab.Totals, judge.ReadyUnknown).Cells
	near(t, "median since the injection", c[1].Median, 11.5)
	near(t, "its model", c[1].Model, 0.1-1+13) // measured, and the middles of two windows
	if c[1].P != nil {
		t.Error("what contains other rows is tested")
	}
	if len(tab.Arms[1].Differs) != 1 || tab.Arms[1].Differs[0].String() != "node-monitor-grace-period 8s → 12s" {
		t.Errorf("differs %v", tab.Arms[1].Differs)
	}
}

// Four runs against four can show nothing once p is corrected, and it is said.
func TestTooFew(t *testing.T) {
	tab := New("", arm("A", "8s", 8.1, 8.2, 8.3, 8.5), arm("B", "12s", 12.1, 12.2, 12.3, 12.5))
	c := row(t, tab.Rows, judge.ReadyUnknown).Cells[1]
	near(t, "p", c.P, 2*2/70.0)
	notes := strings.Join(tab.Notes, "\n")
	if c.Significant || !tab.Blind || c.Lo != nil || len(tab.Notes) != 3 ||
		!strings.Contains(notes, "4 runs of A and 4 of B cannot show any difference: corrected for 2 milestones, p is never below 0.057") ||
		!strings.Contains(notes, "A has 4 runs: with fewer than 6") {
		t.Errorf("significant: %v, blind: %v, interval from %s, notes\n%s", c.Significant, tab.Blind, text(c.Lo), notes)
	}
}

// What was not reached is no number: it ranks last, and where the median falls into it
// there is none.
func TestNotReached(t *testing.T) {
	tab := New("", arm("A", "8s", 8.1, 8.2, 8.3, 8.5, 8.6, 8.7), arm("B", "8s", 8.15, 8.25, nan, nan, nan, nan))
	c := row(t, tab.Rows, judge.ReadyUnknown).Cells[1]
	if c.N() != 6 || c.NotReached != 4 || c.Median != nil || c.Hi != nil || c.Delta != nil {
		t.Errorf("n %d, %d not reached, median %s to %s, delta %s", c.N(), c.NotReached, text(c.Median), text(c.Hi), text(c.Delta))
	}
	near(t, "lower end", c.Lo, 8.15)
	tab = New("", arm("A", "8s", 8.1, 8.2, 8.3, 8.5, 8.6, 8.7), arm("B", "8s", nan, nan, nan, nan, nan, nan))
	c = row(t, tab.Rows, judge.ReadyUnknown).Cells[1]
	near(t, "p of never reached", c.P, 2*2/924.0)
	if !c.Significant || c.Median != nil || c.Lo != nil {
		t.Errorf("never reached: significant %v, median %s", c.Significant, text(c.Median))
	}
	if len(tab.Rows) != 2 {
		t.Errorf("%d rows: what was not reached has one of its own", len(tab.Rows))
	}
	// What follows from it was not missed too, and what was not to come was not missed.
	b := arm("B", "8s", nan, nan, nan, nan, nan, nan)
	for _, r := range b.Runs {
		r.Milestones = append(r.Milestones,
			judge.Result{Name: judge.NoScheduleTainted, Node: "c-worker2", Expected: true, Verdict: judge.Fail,
				After: &judge.After{Name: judge.ReadyUnknown}, Window: &judge.Window{Class: judge.Derived}},
			judge.Result{Name: judge.NoExecuteTainted, Node: "c-worker2", Expected: true, Verdict: judge.Pass,
				After: &judge.After{Name: judge.LeaseStalled}, Window: &judge.Window{Class: judge.Derived}})
	}
	if tab := New("", arm("A", "8s", 8.1, 8.2, 8.3, 8.5, 8.6, 8.7), b); len(tab.Rows) != 2 {
		t.Errorf("%d rows, want those of what was missed and of what was there", len(tab.Rows))
	}
	// The largest value is a number, and so is one below zero; what lies between a value
	// and what was not reached is none.
	for _, c := range []struct {
		values []float64
		missed int
		want   *float64
	}{
		{[]float64{0.5, 0.7, 0.9}, 2, ptr(0.9)},
		{[]float64{-1.4, -1.3, -1.2}, 2, ptr(-1.2)},
		{[]float64{-1.4, -1.2}, 2, nil},
		{nil, 2, nil},
	} {
		cell := Cell{Values: c.values, NotReached: c.missed}
		cell.summarize()
		if text(cell.Median) != text(c.want) {
			t.Errorf("median of %v and %d that were not reached is %s, want %s", c.values, c.missed, text(cell.Median), text(c.want))
		}
	}
	// Few of many: the median is a number.
	tab = New("", arm("A", "8s", 8.1, 8.2, 8.3, 8.4, nan), arm("B", "8s", 8.1))
	near(t, "median beside one that was not reached", row(t, tab.Rows, judge.ReadyUnknown).Cells[0].Median, 8.3)
}

// Holm's correction, by hand: p of 0.01, 0.04, 0.03 are 0.03, 0.06, 0.06.
func TestHolm(t *testing.T) {
	got := holm([]float64{0.01, 0.04, 0.03})
	for i, want := range []float64{0.03, 0.06, 0.06} {
		near(t, "p", &got[i], want)
	}
	if got := holm([]float64{0.6, 0.9}); got[0] != 1 || got[1] != 1 {
		t.Errorf("p above 1: %v", got)
	}
}

// Two images of one name are two; records of before ids were written down say nothing.
func TestImages(t *testing.T) {
	a, b := arm("A", "8s", 8.1, 8.2), arm("B", "8s", 8.1, 8.2, 8.3)
	b.Runs[2].NodeImageID = "sha256:1"
	if tab := New("", a, b); strings.Contains(strings.Join(tab.Notes, "\n"), "not one image") {
		t.Errorf("notes %q", tab.Notes)
	}
	a.Runs[0].NodeImageID = "sha256:2"
	if tab := New("", a, b); !slices.Contains(tab.Notes, "node image node:1 is not one image: sha256:1, sha256:2") {
		t.Errorf("notes %q", tab.Notes)
	}
}

// Runs without an answer are left out, others named; what is not the same is said.
func TestMixed(t *testing.T) {
	a, b := arm("A", "8s", 8.1, 8.2, 8.3, 8.4, 8.5, 8.6, 8.7), arm("B", "8s", 8.1, 8.2, 8.3, 8.4, 8.5, 8.6)
	a.Runs[0].Outcome = judge.OutcomeContaminated
	a.Runs[1].Outcome, a.Runs[1].Reasons = judge.OutcomeFail, []string{"too late"}
	b.Runs[0].KubernetesVersion = "v1.33.1"
	b.Runs[1].Profile = "default"
	b.Runs[2].Flags["kubelet"]["nodeLeaseDurationSeconds"] = judge.Flag{Value: "40"}
	tab := New("", a, b)
	if tab.Arms[0].Runs != 6 || strings.Join(tab.Facts, ", ") != "experiment kubelet-stopped, node image node:1" {
		t.Errorf("%d runs, facts %q", tab.Arms[0].Runs, tab.Facts)
	}
	notes := strings.Join(tab.Notes, "\n")
	for _, want := range []string{
		"A: 1 runs without an answer are left out: contaminated",
		"A: in run A1 an expectation was missed: too late",
		"the runs are not of one Kubernetes: A: v1.37.2; B: v1.33.1, v1.37.2",
		"the runs are not of one profile: A: fast; B: default, fast",
		"the runs of B have not the same flags: nodeLeaseDurationSeconds 8 → 40",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note %q in\n%s", want, notes)
		}
	}
}

// A run with two targets is one number, and what nobody could see is none.
func TestOneNumberARun(t *testing.T) {
	a := arm("A", "8s", 8.2)
	r := a.Runs[0]
	r.Target = append(r.Target, "c-worker3")
	second := *run("", "8s", 8.6)
	for _, m := range second.Milestones {
		m.Node = "c-worker3"
		r.Milestones = append(r.Milestones, m)
	}
	b := arm("B", "8s", 8.2, 8.3)
	b.Runs[1].Milestones[3].Verdict = judge.Inconclusive
	tab := New("", a, b)
	c := row(t, tab.Rows, judge.ReadyUnknown).Cells
	if len(c[0].Values) != 1 || c[0].Values[0] != 8.4 || c[1].N() != 1 {
		t.Errorf("values %v and %v", c[0].Values, c[1].Values)
	}
}

// Of three targets the median counts, the missed one last; of two with one missed there is
// none.
func TestSomeTargetsMissed(t *testing.T) {
	for _, c := range []struct {
		bundle bundle
		want   float64
		ok     bool
	}{
		{bundle{seconds: []float64{9, 8}, missed: 1}, 9, true},
		{bundle{seconds: []float64{8}, missed: 1}, 0, false},
		{bundle{seconds: []float64{8, 9}}, 8.5, true},
		{bundle{missed: 2}, 0, false},
	} {
		if v, ok := c.bundle.value(); ok != c.ok || ok && v != c.want {
			t.Errorf("%+v is %g, %v, want %g, %v", c.bundle, v, ok, c.want, c.ok)
		}
	}
}

// A milestone that has another cause in one arm cannot be tested, and it is said.
func TestOtherCause(t *testing.T) {
	a, b := arm("A", "8s", 8.1, 8.2, 8.3, 8.5, 8.6, 8.7), arm("B", "8s", 8.1, 8.2, 8.3, 8.5, 8.6, 8.7)
	for _, r := range b.Runs {
		r.Milestones[3].After.Name = judge.ControllerLeads
	}
	notes := strings.Join(New("", a, b).Notes, "\n")
	for _, want := range []string{"ReadyUnknown after LeaseStalled is in A, and not in B",
		"ReadyUnknown after ControllerLeads is in B, and not in A"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note %q in\n%s", want, notes)
		}
	}
}

func TestBy(t *testing.T) {
	const grace = "kube-controller-manager.node-monitor-grace-period"
	var runs []*judge.Run
	for _, g := range []string{"12s", "8s", "100s"} {
		runs = append(runs, arm(g, g, 1, 2).Runs...)
	}
	long := arm("x", "8s", 1).Runs[0]
	long.Flags["kubelet"]["nodeLeaseDurationSeconds"] = judge.Flag{Value: "40"}
	tables, err := By(grace, append(runs, long))
	if err != nil || len(tables) != 1 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	var names []string
	for _, a := range tables[0].Arms {
		names = append(names, fmt.Sprint(a.Name, " ", a.Runs))
	}
	if got := strings.Join(names, ", "); got != "8s 2, 12s 2, 100s 2" {
		t.Errorf("arms are %s", got)
	}
	if _, err := By("kubelet.nodeStatusUpdateFrequency", runs); err == nil ||
		!strings.Contains(err.Error(), "nothing to compare: no two runs are the same but for kubelet.nodeStatusUpdateFrequency, which is 10s") {
		t.Errorf("error %v", err)
	}
	if _, err := By("kubelet.nonsense", runs); err == nil || !strings.Contains(err.Error(), `no run has a flag "kubelet.nonsense"`) {
		t.Errorf("error %v", err)
	}
}

func TestKnobs(t *testing.T) {
	runs := arm("base", "12s", 12.1, 12.2, 12.3, 12.5, 12.6, 12.7).Runs
	runs = append(runs, arm("grace", "16s", 16.1, 16.2, 16.3, 16.5, 16.6, 16.7).Runs...)
	for _, r := range arm("frequency", "12s", 12.11, 12.19, 12.31, 12.49, 12.61, 12.69).Runs {
		r.Flags["kubelet"]["nodeStatusUpdateFrequency"] = judge.Flag{Value: "4s"}
		r.Flags["kubelet"]["nodeStatusReportFrequency"] = judge.Flag{Value: "4s"}
		runs = append(runs, r)
	}
	for _, r := range arm("both", "16s", 1).Runs { // differs from the base in two
		r.Flags["kubelet"]["nodeLeaseDurationSeconds"] = judge.Flag{Value: "40"}
		r.Flags["kubelet"]["nodeStatusUpdateFrequency"] = judge.Flag{Value: "4s"}
		runs = append(runs, r)
	}
	k, err := Attribute(runs)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, knob := range k.Knobs {
		for _, e := range knob.Effects {
			got = append(got, fmt.Sprintf("%s: %s after %s %s, slope %s, model %s, %v", knob.String(), e.Milestone, e.From,
				text(e.Delta), text(e.Slope), text(e.ModelSlope), e.Significant))
		}
	}
	want := []string{
		"node-monitor-grace-period 12s → 16s: ReadyUnknown after FaultInjected 4, slope 1, model 1, false",
		"node-monitor-grace-period 12s → 16s: ReadyUnknown after LeaseStalled 4, slope 1, model 1, true",
		"nodeStatusUpdateFrequency 10s → 4s: ReadyUnknown after FaultInjected 0, slope 0, model 0, false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if k.Base != "node-monitor-grace-period 12s, nodeStatusUpdateFrequency 10s" || k.Runs != 6 || len(k.Notes) != 1 ||
		!strings.Contains(k.Notes[0], "1 other sets of runs") {
		t.Errorf("base %q of %d runs, notes %q", k.Base, k.Runs, k.Notes)
	}
	if _, err := Attribute(runs[:6]); err == nil {
		t.Error("one set of runs has knobs")
	}
}

// A comparison leaves the runs of its arms as they are: they are compared more than once.
func TestArmsKeepTheirRuns(t *testing.T) {
	arms := []Arm{arm("A", "8s", 8.1, 8.2), arm("B", "8s", 8.1, 8.2)}
	arms[1].Runs[0].Outcome = judge.OutcomeContaminated
	for range 2 {
		if notes := strings.Join(New("", arms...).Notes, "\n"); len(arms[1].Runs) != 2 ||
			!strings.Contains(notes, "B: 1 runs without an answer are left out") {
			t.Fatalf("%d runs, notes\n%s", len(arms[1].Runs), notes)
		}
	}
}
