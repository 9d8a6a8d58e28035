package judge

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// Two right chains of busy machines, which were judged fail once: a pass of the node
// controller took a second, and a watch was late.
func TestSlowMachinesOnRecord(t *testing.T) {
	for file, tc := range map[string]struct{ milestone, why string }{
		"csr-denied-slow-machine":        {PodsUnready, "the machine: a pass of 6 updates, 1 of them in conflict, took 1.08 s"},
		"kubelet-stopped-loaded-machine": {TaintsGone, "NoExecute goes in the next pass"},
	} {
		t.Run(file, func(t *testing.T) {
			tl, err := timeline.ReadFile(filepath.Join("testdata", file+".jsonl.gz"))
			if err != nil {
				t.Fatal(err)
			}
			r := judged(t, tl)
			if r.Outcome != OutcomePass {
				t.Errorf("outcome %s: %q", r.Outcome, r.Reasons)
			}
			i := slices.IndexFunc(r.Milestones, func(m Result) bool { return m.Name == tc.milestone })
			m := r.Milestones[i]
			if m.Verdict != Pass || !strings.Contains(m.Window.Why, tc.why) {
				t.Errorf("%s: %s, %q; want %q", m.Title(), m.Verdict, m.Window.Why, tc.why)
			}
			if tc.milestone == PodsUnready && !strings.Contains(m.Note, tc.why) {
				t.Errorf("the term that ruled is not told: %q", m.Note)
			}
		})
	}
}

// A pass that took long is believed as far as the machine was seen to be slow: who takes
// away what shows that has a missed window.
func TestASlowPassNeedsASlowMachine(t *testing.T) {
	tl, err := timeline.ReadFile("testdata/csr-denied-slow-machine.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range tl.Events { // the renewals are there, and nobody knows how long they took
		d := maps.Clone(e.Detail)
		delete(d, "renew")
		tl.Events[i].Detail = d
	}
	r := judged(t, tl)
	i := slices.IndexFunc(r.Milestones, func(m Result) bool { return m.Name == PodsUnready })
	if m := r.Milestones[i]; m.Verdict != Fail || m.Window.String() != "[-0.05, 0.8] or [0.95, 1.81]" {
		t.Errorf("%s: %s in %s", m.Title(), m.Verdict, m.Window)
	}
}

// slow makes all renewals of the nodes that are not meddled with take so long.
func slow(by time.Duration) func(*testing.T, *timeline.Timeline) {
	return func(t *testing.T, tl *timeline.Timeline) {
		for i, e := range tl.Events {
			sent, err := time.Parse(time.RFC3339Nano, e.Detail["renew"])
			if e.Source != "audit" || err != nil || !strings.HasPrefix(e.Object, "leases ") {
				continue
			}
			d := maps.Clone(e.Detail)
			d["renew"] = sent.Add(-by).Format(time.RFC3339Nano)
			tl.Events[i].Detail = d
		}
	}
}

// postponed makes the node controller's NoSchedule taint, and all it does after that, later.
func postponed(by time.Duration) func(*testing.T, *timeline.Timeline) {
	return func(t *testing.T, tl *timeline.Timeline) {
		r := judged(t, tl)
		m := milestone(t, r, NoScheduleTainted, "")
		from := r.InjectedAt.Add(time.Duration((*m.Seconds - m.After.Seconds/2) * float64(time.Second)))
		for i := range tl.Events {
			e := &tl.Events[i]
			if e.Source != "audit" || strings.HasPrefix(e.Object, "leases ") || !e.Stamp.After(from) || e.Detail["user"] != nodeController {
				continue
			}
			e.Stamp, e.At = e.Stamp.Add(by), e.At+by
		}
		drop(func(_ *timeline.Timeline, e timeline.Event) bool {
			return e.Source == "watch" && strings.HasPrefix(e.Object, "nodes ")
		})(t, tl)
	}
}

// How slow the machine was decides what a late step says of the cluster.
func TestALateStep(t *testing.T) {
	for name, tc := range map[string]struct {
		slow, late time.Duration
		verdict    Verdict
		window     string
		why        string
	}{
		"a quick machine":                         {0, 0, Pass, "[-0.05, 1]", ""},
		"late on a quick machine":                 {0, 2 * time.Second, Fail, "[-0.05, 1]", ""},
		"a slow machine":                          {200 * time.Millisecond, 0, Pass, "[-0.05, 1.22]", ""},
		"late on a machine that is as slow":       {200 * time.Millisecond, 1100 * time.Millisecond, Pass, "[-0.05, 1.22]", "the machine: 5 requests took up to 1.22 s, the slowest 0.37 s, and the window has room for 1 s"},
		"later than that":                         {200 * time.Millisecond, 4 * time.Second, Fail, "[-0.05, 1.22]", ""},
		"late on one that is too slow":            {time.Second, 4 * time.Second, Inconclusive, "[-0.05, 1.5]", "too slow to judge what lies outside"},
		"in time on one that is too slow":         {time.Second, 0, Pass, "[-0.05, 1.5]", ""},
		"longer than a client waits is no answer": {time.Minute, 2 * time.Second, Fail, "[-0.05, 1]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			tl := recorded(t)
			if tc.late > 0 {
				postponed(tc.late)(t, tl)
			}
			if tc.slow > 0 {
				slow(tc.slow)(t, tl)
			}
			m := milestone(t, judged(t, tl), NoScheduleTainted, "")
			if m.Verdict != tc.verdict || m.Window.String() != tc.window || !strings.Contains(m.Note, tc.why) {
				t.Errorf("%.3f s: %s, window %s, note %q; want %s, %s, %q", m.After.Seconds, m.Verdict, m.Window, m.Note, tc.verdict, tc.window, tc.why)
			}
		})
	}
}

// What was measured counts as far as it was near.
func TestTripsInARow(t *testing.T) {
	took := []time.Duration{4 * time.Second, 2 * time.Second, time.Second}
	for trips, want := range map[int]time.Duration{0: 0, 1: 4 * time.Second, 2: 6 * time.Second, 3: 7 * time.Second, 6: 14 * time.Second} {
		if got := row(took, trips); got != want {
			t.Errorf("%d trips take %s, want %s", trips, got, want)
		}
	}
	if got := row(nil, 5); got != 0 {
		t.Errorf("nothing measured, and yet %s", got)
	}
}

// A watch's event stands at the write that made it: by the version that the write names,
// or by the state that it brought.
func TestByCause(t *testing.T) {
	node := func(at float64, ready, taints, rv string) timeline.Event {
		return seen("watch", at, "modified", "nodes w1", "ready="+ready, "taints="+taints, "rv="+rv)
	}
	both := both(unreachable)
	tl := timelineOf(t, `{}`,
		node(1, "True", "none", "7"),
		audit(2, "update", "nodes/status w1", "code=200", "ready=Unknown", "base=7"),
		audit(2.2, "patch", "nodes w1", "code=200", "taints="+both, "base=8"),
		node(2.5, "Unknown", "none", "8"), // late: the taint was stamped before it came
		node(2.6, "Unknown", both, "9"),
		audit(4, "patch", "nodes/status w1", "code=200", "ready=True"), // a patch names no version
		node(4.4, "True", both, "12"),
		node(9, "True", "none", "14"), // made by nothing on record: it stands where it came
	)
	var got []string
	for _, e := range byCause(readAll(tl.Events), newClock(&Config{}, tl.Header.Start)) {
		got = append(got, e.Source+" "+e.Detail["ready"]+" "+e.Detail["rv"])
	}
	want := []string{"watch True 7", "audit Unknown ", "watch Unknown 8", "audit  ", "watch Unknown 9", "audit True ", "watch True 12", "watch True 14"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
