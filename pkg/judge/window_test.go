package judge

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// Numbers of windows are those of the flags that a cluster has by itself: D=40,
// G=50, P=5, q=0.1; I = 10.9 and P' = 5.05 follow.
func TestWindows(t *testing.T) {
	fault := []timeline.Event{certificate(1, "w1", "/a.pem", start.Add(40*time.Second)), injected(5)}
	for name, tc := range map[string]struct {
		version string
		events  []timeline.Event
		key     Key
		after   string
		class   string
		want    []Interval
	}{
		"the Lease stalls within a renewal before the end": {key: Key{Name: LeaseStalled}, after: CertificateExpired, class: Derived,
			want: []Interval{{-10.9, 0.05, ""}}},
		"the first refusal comes with the next renewal at the latest": {key: Key{Name: FirstRefused401}, after: CertificateExpired, class: Derived,
			want: []Interval{{0, 10.9, ""}}},
		"a 403 follows a refused Lease at once": {events: []timeline.Event{refused(41, "401", "leases w1")}, key: Key{Name: FirstRefused403}, after: FirstRefused401, class: Derived,
			want: []Interval{{0, 0.5, ""}}},
		"a 403 is expected at once while the 401 is unknown": {key: Key{Name: FirstRefused403}, after: FirstRefused401, class: Derived,
			want: []Interval{{0, 0.5, ""}}},
		"a 403 waits for the next renewal when the 401 was no Lease": {events: []timeline.Event{refused(41, "401", "nodes/status w1")}, key: Key{Name: FirstRefused403}, after: FirstRefused401, class: Derived,
			want: []Interval{{0, 10.9, ""}}},
		"Unknown comes in the pass after the grace": {key: Key{Name: ReadyUnknown}, after: LeaseStalled, class: Derived,
			want: []Interval{{50, 56.05, "next pass"}}},
		"Unknown comes a pass later after a status report": {events: []timeline.Event{renews(35, "w1"), audit(36, "patch", "nodes/status w1", "code=200", "user=system:node:w1"), refused(41, "401", "leases w1")},
			key: Key{Name: ReadyUnknown}, after: LeaseStalled, class: Derived, want: []Interval{{50, 56.05, "next pass"}, {56.05, 62.1, "one pass later: a status report was the last heartbeat"}}},
		"a status report of after explains nothing": {events: []timeline.Event{renews(35, "w1"), refused(41, "401", "leases w1"), status(86, "w1", "Unknown"), audit(120, "patch", "nodes/status w1", "code=200", "user=system:node:w1", "ready=True")},
			key: Key{Name: ReadyUnknown}, after: LeaseStalled, class: Derived, want: []Interval{{50, 56.05, "next pass"}}},
		"a status report of before explains nothing": {events: []timeline.Event{audit(8, "patch", "nodes/status w1", "code=200", "user=system:node:w1"), renews(35, "w1"), refused(41, "401", "leases w1")},
			key: Key{Name: ReadyUnknown}, after: LeaseStalled, class: Derived, want: []Interval{{50, 56.05, "next pass"}}},
		"NoSchedule follows the node's event": {key: Key{Name: NoScheduleTainted}, after: ReadyUnknown, class: Derived, want: []Interval{{0, 1, ""}}},
		"NoExecute since 1.34 has two branches": {version: "v1.34.0", key: Key{Name: NoExecuteTainted}, after: ReadyUnknown, class: Derived,
			want: []Interval{{0, 1, "A: at once"}, {10, 11.3, "B: with the next token"}}},
		"NoExecute before 1.34 comes a pass later": {version: "v1.33.13", key: Key{Name: NoExecuteTainted}, after: ReadyUnknown, class: Derived,
			want: []Interval{{5, 6.05, "next pass"}}},
		"NoExecute waits for the zone's token": {events: []timeline.Event{taint(94, "w2", both(unreachable)), status(100, "w1", "Unknown")}, key: Key{Name: NoExecuteTainted}, after: ReadyUnknown, class: Derived,
			want: []Interval{{4, 5.3, "earlier taint in the zone"}}},
		"NoExecute waits for the zone's token before 1.34 too": {version: "v1.33.13", events: []timeline.Event{taint(99, "w2", both(unreachable)), status(100, "w1", "Unknown")}, key: Key{Name: NoExecuteTainted}, after: ReadyUnknown, class: Derived,
			want: []Interval{{9, 10.3, "earlier taint in the zone"}}},
		"a token that has come back is no matter": {events: []timeline.Event{taint(90, "w2", both(unreachable)), status(100, "w1", "Unknown")}, key: Key{Name: NoExecuteTainted}, after: ReadyUnknown, class: Derived,
			want: []Interval{{0, 1, "A: at once"}, {10, 11.3, "B: with the next token"}}},
		// Were its own token spent in vain, the other node could not have had one.
		"another node was faster to the token": {events: []timeline.Event{status(100, "w1", "Unknown"), taint(101, "w2", both(unreachable))}, key: Key{Name: NoExecuteTainted}, after: ReadyUnknown, class: Derived,
			want: []Interval{{0, 1, "A: at once"}, {11, 12.3, "earlier taint in the zone"}}},
		"a token spent much later is no matter": {events: []timeline.Event{status(100, "w1", "Unknown"), taint(105, "w2", both(unreachable))}, key: Key{Name: NoExecuteTainted}, after: ReadyUnknown, class: Derived,
			want: []Interval{{0, 1, "A: at once"}, {10, 11.3, "B: with the next token"}}},
		"its own taint is no earlier one": {events: []timeline.Event{taint(94, "w1", both(unreachable)), status(100, "w1", "Unknown")}, key: Key{Name: NoExecuteTainted}, after: ReadyUnknown, class: Derived,
			want: []Interval{{0, 1, "A: at once"}, {10, 11.3, "B: with the next token"}}},
		"NoSchedule alone spends nothing": {events: []timeline.Event{taint(94, "w2", unreachable+":NoSchedule"), status(100, "w1", "Unknown")}, key: Key{Name: NoExecuteTainted}, after: ReadyUnknown, class: Derived,
			want: []Interval{{0, 1, "A: at once"}, {10, 11.3, "B: with the next token"}}},
		"an eviction without toleration":                   {key: Key{PodEvicted, "", "0s"}, after: NoExecuteTainted, class: Derived, want: []Interval{{0, 1, ""}}},
		"an eviction after 5 s":                            {key: Key{PodEvicted, "", "5s"}, after: NoExecuteTainted, class: Derived, want: []Interval{{5, 6, ""}}},
		"an eviction after 300 s":                          {key: Key{PodEvicted, "", "300s"}, after: NoExecuteTainted, class: Derived, want: []Interval{{300, 301, ""}}},
		"an eviction of no known toleration":               {key: Key{PodEvicted, "", ""}, after: NoExecuteTainted, class: Ordered},
		"a replacement is as fast as it may be":            {key: Key{ReplacementReady, "", "5s"}, after: PodEvicted, class: Budget},
		"pods are unready at 20 a second":                  {key: Key{Name: PodsUnready}, after: ReadyUnknown, class: Derived, want: []Interval{{0, 0.5, "in the same pass"}}},
		"a rotation after the repair":                      {events: []timeline.Event{seen("run", 90, timeline.TypeRepaired, "node w1")}, key: Key{Name: CertificateRotated}, after: RepairDone, class: Derived, want: []Interval{{0, 30, ""}}},
		"a rotation that is still to come is the repair's": {key: Key{Name: CertificateRotated}, after: RepairDone, class: Derived, want: []Interval{{0, 30, ""}}},
		"a rotation under the fault":                       {events: []timeline.Event{certificate(9, "w1", "/pki/kubelet-client-2026-01-02-03-04-05.pem", start.Add(40*time.Second))}, key: Key{Name: CertificateRotated}, after: FaultInjected, class: Ordered},
		"the Lease resumes with the kubelet":               {key: Key{Name: LeaseResumed}, after: RepairDone, class: Derived, want: []Interval{{0, 6, ""}}},
		"Ready comes with the kubelet":                     {key: Key{Name: ReadyTrue}, after: RepairDone, class: Derived, want: []Interval{{0, 7, ""}}},
		"taints go in the next pass":                       {key: Key{Name: TaintsGone}, after: ReadyTrue, class: Derived, want: []Interval{{0, 6.05, ""}}},
		"pods come back when they do":                      {key: Key{Name: PodsBack}, after: ReadyTrue, class: Budget},
		"a request for a certificate at the start":         {events: []timeline.Event{seen("run", 6, timeline.TypeKubeletStarted, "node w1")}, key: Key{Name: CSRCreated}, after: KubeletStarted, class: Derived, want: []Interval{{0, 5, ""}}},
		"a kubelet that was started exits late":            {key: Key{Name: KubeletExited}, after: CSRCreated, class: Derived, want: []Interval{{902, 914, ""}}},
		"the end of the certificate is known":              {key: Key{Name: CertificateExpired}, after: FaultInjected, class: Ordered, want: []Interval{{35, 35, ""}}},
		"the undo comes after the fault":                   {key: Key{Name: FaultUndone}, after: FaultInjected, class: Ordered},
		"the repair comes after the undo":                  {key: Key{Name: RepairDone}, after: FaultUndone, class: Ordered},
		"all else comes after the fault":                   {key: Key{Name: ControllerStopped}, after: FaultInjected, class: Ordered},
		"an eviction and its replacement agree":            {key: Key{ReplacementReady, "", "300s"}, after: PodEvicted, class: Budget},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig("v1.37.2")
			if tc.version != "" {
				cfg.KubernetesVersion = tc.version
			}
			f := newFold(t, cfg)
			for _, e := range append(slices.Clone(fault), tc.events...) {
				f.Add(e)
			}
			tc.key.Node = "w1"
			w := f.windowOf(tc.key).rounded()
			if w.Class != tc.class || w.after.Name != tc.after || w.after.Node != "w1" || !slices.Equal(w.Intervals, tc.want) {
				t.Errorf("%s window %v after %v, want %s %v after %s", w.Class, w.Intervals, w.after, tc.class, tc.want, tc.after)
			}
			if w.Class == Derived && w.Why == "" {
				t.Error("a derived window does not say from what")
			}
			if tc.key.Name == ReplacementReady && w.after.Subject != tc.key.Subject {
				t.Errorf("it counts from the eviction of %q", w.after.Subject)
			}
		})
	}
}

func TestWindowsOfTheFastProfile(t *testing.T) {
	cfg := testConfig("v1.37.2")
	cfg.Flags["kubelet"]["nodeLeaseDurationSeconds"] = Flag{"8", ""}
	cfg.Flags["kube-controller-manager"]["node-monitor-grace-period"] = Flag{"12s", ""}
	cfg.Flags["kube-controller-manager"]["node-monitor-period"] = Flag{"1s", ""}
	f := newFold(t, cfg)
	if w := f.windowOf(Key{Name: ReadyUnknown, Node: "w1"}); w.Intervals[0].Min != 12 || math.Abs(w.Intervals[0].Max-14.01) > 1e-9 || len(w.Intervals) != 1 {
		t.Errorf("ReadyUnknown %v", w)
	}
	if w := f.windowOf(Key{Name: LeaseStalled, Node: "w1"}); math.Abs(w.Intervals[0].Min+2.58) > 1e-9 {
		t.Errorf("LeaseStalled %v", w)
	}
	// A slow period makes the second branch wait for the pass and not for the token.
	cfg.Flags["kube-controller-manager"]["node-monitor-period"] = Flag{"20s", ""}
	f = newFold(t, cfg)
	if w := f.noExecute(Key{Name: NoExecuteTainted, Node: "w1"}); w.Intervals[1].Min != 20 {
		t.Errorf("NoExecute %v", w)
	}
}

func TestAWindowFindsTheBranchThatWasHit(t *testing.T) {
	w := Window{Intervals: []Interval{{0, 1, "A"}, {10, 11.3, "B"}}}
	for s, want := range map[float64]string{-0.001: "none", 0: "A", 1: "A", 1.001: "none", 9.999: "none", 10: "B", 11.3: "B", 11.301: "none"} {
		i, ok := w.find(s)
		if !ok {
			i.Branch = "none"
		}
		if i.Branch != want {
			t.Errorf("%v s is in branch %s, want %s", s, i.Branch, want)
		}
	}
	if got := w.String(); got != "[0, 1] or [10, 11.3]" {
		t.Errorf("written %q", got)
	}
	if w.Max() != 11.3 || (Window{}).Max() != 0 {
		t.Errorf("max %v and %v", w.Max(), (Window{}).Max())
	}
}

func TestRecoveryIsWhatComesAfterTheUndo(t *testing.T) {
	from := slices.Index(Names(), FaultUndone)
	mintedFold, rotating := foldOf(t, testConfig("v1.37.2"), `{"type":"csr-denied","certificate":{"mint":"1m"}}`), foldOf(t, testConfig("v1.37.2"), `{"type":"rotation"}`)
	for i, name := range Names() {
		if want := i >= from || name == CertificateRotated; mintedFold.Recovery(name) != want {
			t.Errorf("%s: recovery %v, want %v", name, !want, want)
		}
		if want := name == FaultUndone || name == RepairDone; rotating.Recovery(name) != want {
			t.Errorf("%s: recovery %v where the node heals by itself, want %v", name, !want, want)
		}
	}
}

// What follows from a write may be stamped before it; what follows from anything else
// may not.
func TestAWriteIsKnownBeforeItsStamp(t *testing.T) {
	f := folded(t, injected(5))
	for key, want := range map[Key]string{
		{PodEvicted, "w1", "5s"}:          "[4.95, 6]",
		{NoExecuteTainted, "w1", ""}:      "[-0.05, 1] or [9.95, 11.3]",
		{ReadyUnknown, "w1", ""}:          "[49.95, 56.05]",
		{CSRIssued, "w1", ""}:             "[-0.05, 2]",
		{FirstRefused401, "w1", ""}:       "[0, 10.9]",
		{CertificateInUse, "w1", ""}:      "[0, 21.9]",
		{ReplacementReady, "w1", "5s"}:    "",
		{LeaseStalled, "w1", ""}:          "[-10.9, 0.05]",
		{NotReadyTainted, "w1", "NoSche"}: "[-0.05, 1]",
	} {
		if got := f.WindowOf(key).rounded().String(); got != want {
			t.Errorf("%v: %s, want %s", key, got, want)
		}
	}
}

func TestResultsInWords(t *testing.T) {
	for _, tc := range []struct {
		unknown       float64 // LeaseStalled is at 35
		verdict       Verdict
		inside        bool
		branch, words string
	}{
		{85, Pass, true, "next pass", "50.000 s after LeaseStalled"},
		{92, Fail, false, "", "57.000 s after LeaseStalled, outside [49.95, 56.05]"}, // nobody reported a status
		{84.9, Fail, false, "", "49.900 s after LeaseStalled, outside [49.95, 56.05]"},
		{97, Fail, false, "", "62.000 s after LeaseStalled, outside [49.95, 56.05]"},
	} {
		f := folded(t, injected(5), renews(35, "w1"), refused(41, "401", "leases w1"), status(tc.unknown, "w1", "Unknown"))
		m, _ := f.Get(Key{Name: ReadyUnknown, Node: "w1"})
		r := f.Result(m)
		r.Verdict = tc.verdict
		if inside, judged := r.Inside(); inside != tc.inside || !judged {
			t.Errorf("at %v: inside %v, judged %v", tc.unknown, inside, judged)
		}
		if r.Window.Branch != tc.branch || r.Explain() != tc.words || r.Title() != ReadyUnknown {
			t.Errorf("at %v: branch %q, %q", tc.unknown, r.Window.Branch, r.Explain())
		}
	}
	f := folded(t, injected(5))
	m, _ := f.Get(Key{Name: FaultInjected, Node: "w1"})
	r := f.Result(m)
	if _, judged := r.Inside(); judged || r.Explain() != "it" || r.Window != nil {
		t.Errorf("the fault itself: %+v", r)
	}
	if got := (Result{Name: PodEvicted, Subject: "5s"}).Title(); got != "PodEvicted 5s" {
		t.Errorf("title %q", got)
	}
}

func TestWindowsOfACertificateThatTheNodeWasIssued(t *testing.T) {
	f, err := NewFold(testConfig("v1.37.2"), FaultPlan{Type: "csr-denied"}, start)
	if err != nil {
		t.Fatal(err)
	}
	// Issued at 0 s by a signer that dates it five minutes back and gives it
	// three: it asks again after 36 to 132 s.
	e := certificate(0, "w1", "/pki/kubelet-client-2026-01-02-03-04-05.pem", start.Add(180*time.Second))
	e.Detail["notBefore"] = start.Add(-300 * time.Second).Format(time.RFC3339)
	f.Add(e)
	f.Add(seen("run", 6, timeline.TypeInjected, ""))
	for name, want := range map[string]Window{
		CSRCreated:    {Intervals: []Interval{{30, 128, ""}}, after: Key{Name: FaultInjected, Node: "w1"}},
		KubeletExited: {Intervals: []Interval{{290, 302, ""}}, after: Key{Name: CertificateExpired, Node: "w1"}},
	} {
		w := f.windowOf(Key{Name: name, Node: "w1"}).rounded()
		if !slices.Equal(w.Intervals, want.Intervals) || w.after != want.after || w.Class != Derived {
			t.Errorf("%s: %s window %v after %v, want %v after %v", name, w.Class, w.Intervals, w.after, want.Intervals, want.after)
		}
	}
}

func TestKubeletExited(t *testing.T) {
	process := func(at float64, pid, restarts, state, exit string) timeline.Event {
		e := seen("node", at, timeline.TypeProcess, "kubelet w1", "pid="+pid, "restarts="+restarts, "state="+state)
		if exit != "" {
			e.Detail["exit"] = exit
		}
		return e
	}
	injected := seen("run", 5, timeline.TypeInjected, "")
	for name, tc := range map[string]struct {
		events []timeline.Event
		at     float64
		note   string
	}{
		"one that is stopped does not exit":    {[]timeline.Event{process(0, "1", "0", "active", ""), injected, process(6, "0", "0", "inactive", "0"), process(7, "2", "0", "active", "")}, -1, ""},
		"one that ends by itself does":         {[]timeline.Event{process(0, "1", "0", "active", ""), injected, process(300, "0", "0", "activating", "1")}, 300, "exit code 1"},
		"its time is that of the first time":   {[]timeline.Event{process(0, "1", "0", "active", ""), injected, process(300, "0", "0", "activating", "1"), process(301, "2", "1", "active", ""), process(302, "0", "1", "activating", "1"), process(303, "3", "2", "active", "")}, 300, "exit code 1; systemd started it again 2 times, in vain"},
		"one that was started again meanwhile": {[]timeline.Event{process(0, "1", "0", "active", ""), injected, process(301, "2", "1", "active", "")}, 301, "started again before it was seen gone; systemd started it again 1 times, in vain"},
		"what was before the fault is no news": {[]timeline.Event{process(0, "0", "3", "activating", "1"), process(1, "2", "4", "active", ""), injected, process(6, "2", "4", "active", "")}, -1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := folded(t, tc.events...)
			if m := f.at(t, KubeletExited, "w1", "", tc.at, "node"); m != nil && f.Result(m).Note != tc.note {
				t.Errorf("note is %q, want %q", f.Result(m).Note, tc.note)
			}
		})
	}
}

// Three of four workers down are a disrupted zone: anybody who has no taint by then
// gets none, and loses no pods.
func TestADisruptedZoneTaintsNobody(t *testing.T) {
	cfg := testConfig("v1.37.2")
	cfg.Nodes = []Node{{Name: "cp"}, {Name: "w1"}, {Name: "w2"}, {Name: "w3"}}
	cfg.Target, cfg.ControlNodes = []string{"w1", "w2", "w3"}, []string{"cp"}
	f := newFold(t, cfg)
	for _, e := range []timeline.Event{injected(5), status(100, "w1", "Unknown"), taint(100.1, "w1", both(unreachable)), status(100.02, "w2", "Unknown")} {
		f.Add(e)
	}
	if why := f.Suppressed(Key{Name: NoExecuteTainted, Node: "w2"}); why != "" {
		t.Errorf("two of four are no disrupted zone: %s", why)
	}
	if f.Settled(Key{Name: NoExecuteTainted, Node: "w2"}, time.Second) {
		t.Error("the second node may still be tainted")
	}
	f.Add(status(102, "w3", "Unknown"))
	if w := f.windowOf(Key{Name: NoExecuteTainted, Node: "w2"}).rounded(); w.Max() > 3 {
		t.Errorf("a taint after the disruption would pass: %v", w)
	}
	for k, want := range map[Key]bool{
		{Name: NoExecuteTainted, Node: "w2"}:                 true,
		{Name: NoExecuteTainted, Node: "w3"}:                 true,
		{Name: PodEvicted, Node: "w2", Subject: "0s"}:        true,
		{Name: PodEvicted, Node: "w1", Subject: "0s"}:        false, // it was tainted before
		{Name: NoScheduleTainted, Node: "w3"}:                false,
		{Name: ReplacementReady, Node: "w3", Subject: "30s"}: true,
	} {
		if got := f.Suppressed(k); (got != "") != want || want && !strings.Contains(got, "PartialDisruption since 97.00 s") {
			t.Errorf("%v: suppressed %q, want %v", k, got, want)
		}
		if want && !f.Settled(k, time.Second) {
			t.Errorf("%v is waited for", k)
		}
	}
}
