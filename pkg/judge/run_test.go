package judge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flatline-chaos/flatline/internal/golden"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

const recording = "testdata/csr-denied-fast.jsonl.gz"

// The nodes of the recorded run.
const (
	recTarget  = "flatline-89cd-worker2"
	recControl = "flatline-89cd-worker"
)

// recorded reads the recorded run; what it returns is the caller's to change.
func recorded(t testing.TB) *timeline.Timeline {
	t.Helper()
	tl, err := timeline.ReadFile(recording)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

func judged(t testing.TB, tl *timeline.Timeline) *Run {
	t.Helper()
	r, _, err := Judge(tl)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func asJSON(t testing.TB, r *Run) string {
	t.Helper()
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

// One run of each profile, whole.
func TestRecordedRunsAreJudgedAsBefore(t *testing.T) {
	for _, name := range []string{"csr-denied-fast", "csr-denied-default"} {
		t.Run(name, func(t *testing.T) {
			tl, err := timeline.ReadFile("testdata/" + name + ".jsonl.gz")
			if err != nil {
				t.Fatal(err)
			}
			r := judged(t, tl)
			golden.Lines(t, "testdata/"+name+".run.json", asJSON(t, r))
			if r.Outcome != OutcomePass {
				t.Errorf("outcome %s: %q", r.Outcome, r.Reasons)
			}
		})
	}
}

// The golden file says what came out; this says what must.
func TestRecordedRunHoldsWhatItsExperimentExpects(t *testing.T) {
	tl := recorded(t)
	r := judged(t, tl)
	var plan Plan
	if err := json.Unmarshal(tl.Header.Experiment, &plan); err != nil {
		t.Fatal(err)
	}
	for _, x := range append(slices.Clone(plan.Spec.Expect), plan.Spec.Never...) {
		if !slices.ContainsFunc(r.Milestones, func(m Result) bool {
			return m.Name == x.Milestone && m.Subject == x.Subject && m.Verdict == Pass && (m.Expected || m.Never)
		}) {
			t.Errorf("%s %s has no passing row", x.Milestone, x.Subject)
		}
	}
	if !slices.IsSortedFunc(r.Milestones, func(a, b Result) int { return cmp.Compare(sortKey(a), sortKey(b)) }) {
		t.Error("the milestones are not in order")
	}
	if m := milestone(t, r, PodEvicted, "5s"); m.Source != "audit" || len(m.Seen) != 2 {
		t.Errorf("the eviction is told by %s and seen %v; the taint eviction controller acts as node-controller", m.Source, m.Seen)
	}
}

func milestone(t *testing.T, r *Run, name, subject string) Result {
	t.Helper()
	for _, m := range r.Milestones {
		if m.Name == name && m.Subject == subject && (m.Node == recTarget || m.Node == "w1") {
			return m
		}
	}
	t.Fatalf("no row for %s %s", name, subject)
	return Result{}
}

// An edit changes a timeline as another course of events would have.
type edit func(t *testing.T, tl *timeline.Timeline)

func whenOf(tl *timeline.Timeline, e timeline.Event) time.Duration {
	return newClock(&Config{}, tl.Header.Start).when(e)
}

func zeroOf(t *testing.T, tl *timeline.Timeline) time.Duration {
	t.Helper()
	for _, e := range tl.Events {
		if e.Type == timeline.TypeInjected {
			return whenOf(tl, e)
		}
	}
	t.Fatal("the recording has no fault")
	return 0
}

// sinceFault is a time of the recorded run, in seconds as they stand in run.json.
func sinceFault(t *testing.T, tl *timeline.Timeline, s float64) time.Duration {
	return zeroOf(t, tl) + sec(s)
}

func drop(match func(tl *timeline.Timeline, e timeline.Event) bool) edit {
	return func(t *testing.T, tl *timeline.Timeline) {
		n := len(tl.Events)
		tl.Events = slices.DeleteFunc(tl.Events, func(e timeline.Event) bool { return match(tl, e) })
		if len(tl.Events) == n {
			t.Fatal("the edit found nothing to drop")
		}
	}
}

func add(at float64, e timeline.Event) edit {
	return func(t *testing.T, tl *timeline.Timeline) {
		e.At = sinceFault(t, tl, at)
		if e.Source == "audit" {
			e.Stamp = tl.Header.Start.Add(e.At)
		}
		tl.Events = append(tl.Events, e)
	}
}

// blind makes a source miss what happens between two times.
func blind(from, to float64, source string) edit {
	return all(add(from, timeline.Event{Source: "watch", Type: timeline.TypeGap, Object: source, Detail: map[string]string{"why": "x"}}),
		add(to, timeline.Event{Source: "watch", Type: "Watching", Object: source}))
}

func alter(match func(e timeline.Event) bool, change func(i int, e *timeline.Event)) edit {
	return func(t *testing.T, tl *timeline.Timeline) {
		n := 0
		for i := range tl.Events {
			if e := &tl.Events[i]; match(*e) {
				e.Detail = maps.Clone(e.Detail)
				change(n, e)
				n++
			}
		}
		if n == 0 {
			t.Fatal("the edit found nothing to alter")
		}
	}
}

func isRun(typ string) func(timeline.Event) bool {
	return func(e timeline.Event) bool { return e.Source == "run" && e.Type == typ }
}

func runs(typ string) func(*timeline.Timeline, timeline.Event) bool {
	return func(_ *timeline.Timeline, e timeline.Event) bool { return isRun(typ)(e) }
}

func all(edits ...edit) edit {
	return func(t *testing.T, tl *timeline.Timeline) {
		for _, e := range edits {
			e(t, tl)
		}
	}
}

// lateUnknown has all that follows the controller's decision come 20 s later; the
// other nodes go on renewing meanwhile.
func lateUnknown(t *testing.T, tl *timeline.Timeline) {
	const late = 20 * time.Second
	decision := sinceFault(t, tl, 51.8)
	shift := func(e timeline.Event) timeline.Event {
		e.At += late
		if !e.Stamp.IsZero() {
			e.Stamp = e.Stamp.Add(late)
		}
		return e
	}
	for i, e := range tl.Events {
		at := whenOf(tl, e)
		if at >= decision {
			tl.Events[i] = shift(e)
		} else if name, ok := strings.CutPrefix(e.Object, "leases "); ok && at >= decision-late && e.Detail["code"] != "401" && e.Detail["code"] != "403" &&
			name != recTarget {
			tl.Events = append(tl.Events, shift(e))
		}
	}
}

func biting(v string) edit {
	return alter(isRun(timeline.TypeWitness), func(_ int, e *timeline.Event) { e.Detail["biting"] = v })
}

func lastWitness(t *testing.T, tl *timeline.Timeline) {
	last := -1
	for i, e := range tl.Events {
		if isRun(timeline.TypeWitness)(e) {
			last = i
		}
	}
	tl.Events[last].Detail = map[string]string{"inPlace": "false", "biting": "false", "seen": "the binding is back"}
}

// deafNodes has the nodes' watch miss what came in a gap; where back is 0, it does
// not come back.
func deafNodes(from, back float64) edit {
	return all(
		drop(func(tl *timeline.Timeline, e timeline.Event) bool {
			z := zeroFrom(tl)
			return e.Source == "watch" && strings.HasPrefix(e.Object, "nodes") && e.At >= z+sec(from) && (back == 0 || e.At < z+sec(back))
		}),
		add(from, timeline.Event{Source: "watch", Type: timeline.TypeGap, Object: "nodes", Detail: map[string]string{"why": "too old"}}),
		func(t *testing.T, tl *timeline.Timeline) {
			if back != 0 {
				add(back, timeline.Event{Source: "watch", Type: "Watching", Object: "nodes"})(t, tl)
			}
		})
}

// nodesGap is a gap of the nodes' watch in which nothing happened to be missed.
func nodesGap(from, back float64) edit {
	return all(add(from, timeline.Event{Source: "watch", Type: timeline.TypeGap, Object: "nodes", Detail: map[string]string{"why": "too old"}}),
		add(back, timeline.Event{Source: "watch", Type: "Watching", Object: "nodes"}))
}

func deafAudit(from float64) edit {
	return func(t *testing.T, tl *timeline.Timeline) {
		z := sinceFault(t, tl, from)
		drop(func(tl *timeline.Timeline, e timeline.Event) bool { return e.Source == "audit" && whenOf(tl, e) >= z })(t, tl)
		tl.Events = append(tl.Events, timeline.Event{At: max(z, 0), Source: "recorder", Type: timeline.TypeGap, Object: "audit",
			Detail: map[string]string{"from": timeline.Seconds(max(z, 0)), "why": "cut"}})
	}
}

func zeroFrom(tl *timeline.Timeline) time.Duration {
	for _, e := range tl.Events {
		if e.Type == timeline.TypeInjected {
			return whenOf(tl, e)
		}
	}
	return 0
}

// saysUnknown matches every fact that says the target is Unknown.
func saysUnknown(_ *timeline.Timeline, e timeline.Event) bool {
	return e.Detail["ready"] == "Unknown" && strings.HasSuffix(e.Object, " "+recTarget)
}

func csrIssued(at float64) edit {
	return add(at, timeline.Event{Source: "watch", Type: "modified", Object: "certificatesigningrequests csr-tv8c7",
		Detail: map[string]string{"user": "system:node:" + recTarget, "state": "Issued"}})
}

func evictedLast(_ *timeline.Timeline, e timeline.Event) bool {
	return strings.HasPrefix(e.Object, "pods canary-15s-") && (e.Type == "delete" || e.Type == "deleted" || e.Detail["deleting"] != "")
}

// setExpect replaces what the experiment expects.
func setExpect(never bool, xs ...Expectation) edit {
	return func(t *testing.T, tl *timeline.Timeline) {
		var m map[string]any
		if err := json.Unmarshal(tl.Header.Experiment, &m); err != nil {
			t.Fatal(err)
		}
		key, other := "expect", "never"
		if never {
			key, other = other, key
		}
		m["spec"].(map[string]any)[key] = xs
		delete(m["spec"].(map[string]any), other)
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		tl.Header.Experiment = b
	}
}

func setFault(typ string) edit {
	return func(t *testing.T, tl *timeline.Timeline) {
		tl.Header.Experiment = bytes.Replace(tl.Header.Experiment, []byte(`"type":"csr-denied"`), []byte(`"type":"`+typ+`"`), 1)
	}
}

func controlUnknown(at float64) edit {
	return add(at, timeline.Event{Source: "audit", Type: "update", Object: "nodes/status " + recControl,
		Detail: map[string]string{"code": "200", "ready": "Unknown", "user": nodeController}})
}

func TestOutcomes(t *testing.T) {
	for name, tc := range map[string]struct {
		edit    edit
		outcome Outcome
		reasons []string // each is part of one reason; nil asks for none
		rows    map[string]Verdict
		note    string // part of the note of every row named
	}{
		"Unknown comes too late": {lateUnknown, OutcomeFail, []string{"ReadyUnknown: 32.310 s after LeaseStalled, outside [11.95, 14.01]"},
			map[string]Verdict{ReadyUnknown: Fail, NoExecuteTainted: Pass, LeaseStalled: Pass}, ""},
		"the fault never bites": {biting("false"), OutcomeNotInjected, []string{"never seen biting; last seen: " + recTarget + ": csr-tv8c7 is Pending"}, nil, ""},
		"nobody looked":         {drop(runs(timeline.TypeWitness)), OutcomeNotInjected, []string{"never seen biting; last seen: nobody looked"}, nil, ""},
		"one bite is enough": {all(biting("false"), func(_ *testing.T, tl *timeline.Timeline) {
			tl.Events = append(tl.Events, timeline.Event{At: 100 * time.Second, Source: "run", Type: timeline.TypeWitness, Detail: map[string]string{"biting": "true", "inPlace": "true"}})
		}), OutcomePass, nil, nil, ""},
		"the injection failed":           {all(drop(runs(timeline.TypeInjected)), drop(runs(timeline.TypeWitness))), OutcomeNotInjected, []string{"ended before the fault was in place"}, nil, ""},
		"no fault needs no injection":    {all(drop(runs(timeline.TypeWitness)), setFault("none")), OutcomePass, nil, nil, ""},
		"a step failed":                  {add(69, timeline.Event{Source: "run", Type: timeline.TypeStepFailed, Object: "repair", Detail: map[string]string{"why": "exit 1"}}), OutcomeDirty, []string{"repair: exit 1"}, nil, ""},
		"the node did not heal":          {add(69, timeline.Event{Source: "run", Type: timeline.TypeNotHealed, Detail: map[string]string{"why": "not Ready"}}), OutcomeDirty, []string{"not Ready"}, nil, ""},
		"the fault was not undone":       {drop(runs(timeline.TypeUndone)), OutcomeDirty, []string{"node " + recTarget + ": FaultUndone was not reached"}, nil, ""},
		"the node was not repaired":      {drop(runs(timeline.TypeRepaired)), OutcomeDirty, []string{"node " + recTarget + ": RepairDone was not reached"}, nil, ""},
		"a file is not as it was before": {snapshotAfter("kubeconfig", "0000"), OutcomeDirty, []string{`node ` + recTarget + `: kubeconfig was "053c8311927f35e2" and is "0000"`}, nil, ""},
		"something new is there":         {snapshotAfter("leftover", "yes"), OutcomeDirty, []string{`leftover was "" and is "yes"`}, nil, ""},
		"something is there no more": {alter(func(e timeline.Event) bool {
			return isRun(timeline.TypeSnapshot)(e) && e.Detail["when"] == "after" && e.Object == "node "+recTarget
		}, func(_ int, e *timeline.Event) { delete(e.Detail, "link") }), OutcomeDirty, []string{`link was "good" and is ""`}, nil, ""},
		"a control node falls silent": {controlUnknown(60), OutcomeContaminated, []string{"control node " + recControl + " changed: ReadyUnknown"}, nil, ""},
		"a control node is refused": {add(60, timeline.Event{Source: "audit", Type: "get", Object: "pods x", Detail: map[string]string{"code": "401", "agent": "kubelet", "ip": "172.18.0.3"}}),
			OutcomeContaminated, []string{"control node " + recControl + " changed: FirstRefused401"}, nil, ""},
		"the controller is another": {alter(func(e timeline.Event) bool {
			return isRun(timeline.TypeController)(e) && e.Object == "kube-controller-manager"
		}, func(i int, e *timeline.Event) {
			if i == 1 {
				e.Detail["id"] = "another"
			}
		}), OutcomeContaminated, []string{"kube-controller-manager changed identity from 9a8108c737fc6 to another"}, nil, ""},
		"the fault vanishes":            {lastWitness, OutcomeContaminated, []string{"vanished before the undo: the binding is back"}, nil, ""},
		"the fault takes time to be in": {alter(isRun(timeline.TypeWitness), firstNotInPlace), OutcomePass, nil, nil, ""},
		"the dead-man timer fires":      {add(60, timeline.Event{Source: "run", Type: timeline.TypeDeadMan, Object: "node " + recTarget}), OutcomeContaminated, []string{"node " + recTarget + ": the dead-man timer fired"}, nil, ""},
		"the user interrupts":           {add(60, timeline.Event{Source: "run", Type: timeline.TypeInterrupted}), OutcomeContaminated, []string{"interrupted"}, nil, ""},
		"nobody could see Unknown": {all(drop(saysUnknown), deafAudit(50), nodesGap(50, 80)), OutcomeInconclusive,
			// The taints went by unseen with it, and so the evictions have nothing to count from.
			[]string{"NoScheduleTainted: it came, but ReadyUnknown", "NoExecuteTainted: it came, but ReadyUnknown", "TaintsGone: it came, but ReadyTrue", "ReadyUnknown: not seen, but no source was without a gap",
				"PodsUnready: not reached, and neither", "PodEvicted 0s: not seen, and nobody knows when NoExecuteTainted was", "PodEvicted 5s: not seen, and nobody", "PodEvicted 15s: not seen, and nobody",
				"ReplacementReady 0s: not", "ReplacementReady 5s: not", "ReplacementReady 15s: not", "ReadyTrue: not reached by the end", "PodsBack: not"},
			map[string]Verdict{ReadyUnknown: Inconclusive}, "no source was without a gap"},
		"the watch missed Unknown": {deafNodes(50, 60), OutcomePass, nil, map[string]Verdict{ReadyUnknown: Pass, NoExecuteTainted: Pass, TaintsGone: Pass}, ""},
		"the watch never came back": {deafNodes(50, 0), OutcomePass, nil,
			map[string]Verdict{ReadyUnknown: Pass, TaintsGone: Pass, ReadyTrue: Pass}, ""},
		"the canary stays": {drop(evictedLast), OutcomeFail, []string{"PodEvicted 15s: not reached", "ReplacementReady 15s: not reached", "PodsBack: not reached"},
			map[string]Verdict{PodEvicted + " 15s": Fail}, "not reached"},
		"it is approved under the fault": {csrIssued(30), OutcomeFail, []string{"CSRApproved: 30.000 s after FaultInjected; csr-tv8c7; it must not occur", "CSRIssued: 0.000 s after CSRApproved; csr-tv8c7; it must not occur"},
			map[string]Verdict{CSRIssued: Fail}, "it must not occur"},
		"it is approved after the undo": {csrIssued(68), OutcomePass, nil, nil, ""},
		"a negative needs eyes": {all(blind(20, 25, "certificatesigningrequests"), blind(22, 23, "audit")),
			OutcomeInconclusive, []string{"CSRApproved: not seen", "CSRIssued: not seen"}, nil, ""},
		"the eyes of the audit log will do": {blind(20, 25, "certificatesigningrequests"), OutcomePass, nil, nil, ""},
		"approval is seen without the watch": {all(blind(20, 40, "certificatesigningrequests"), add(30, timeline.Event{Source: "audit", Type: "update", Object: "certificatesigningrequests/approval csr-tv8c7",
			Detail: map[string]string{"code": "200", "condition": "Approved", "agent": "kube-controller-manager"}})),
			OutcomeFail, []string{"CSRApproved: 30.000 s after FaultInjected; csr-tv8c7; it must not occur"}, nil, ""},
		"a witness that cannot look for a while": {drop(func(tl *timeline.Timeline, e timeline.Event) bool {
			return e.Type == timeline.TypeWitness && e.At > zeroFrom(tl)+sec(50)
		}), OutcomePass, nil, nil, ""},
		"a witness that cannot look for long": {all(drop(func(tl *timeline.Timeline, e timeline.Event) bool {
			return e.Type == timeline.TypeWitness && e.At > zeroFrom(tl)+sec(20)
		}),
			add(25, timeline.Event{Source: "run", Type: timeline.TypeWitnessFailed, Detail: map[string]string{"why": "refused"}}),
			add(30, timeline.Event{Source: "run", Type: timeline.TypeWitnessFailed, Detail: map[string]string{"why": "later"}})),
			OutcomeInconclusive, []string{"nobody could look at the fault for 52 s: refused"}, nil, ""},
		"eyes before and after do not matter": {all(add(-3, timeline.Event{Source: "watch", Type: timeline.TypeGap, Object: "certificatesigningrequests", Detail: map[string]string{"why": "x"}}),
			add(-2, timeline.Event{Source: "watch", Type: "Watching", Object: "certificatesigningrequests"}),
			add(68, timeline.Event{Source: "watch", Type: timeline.TypeGap, Object: "certificatesigningrequests", Detail: map[string]string{"why": "x"}})),
			OutcomePass, nil, nil, ""},
		"without the audit log refusals are not seen": {deafAudit(-1e6), OutcomeInconclusive, []string{"FirstRefused401: not seen", "FirstRefused403: not reached, and neither was FirstRefused401"},
			map[string]Verdict{FirstRefused401: Inconclusive, FirstRefused403: Inconclusive, LeaseStalled: Pass, ReadyUnknown: Pass, NoExecuteTainted: Pass, PodEvicted + " 0s": Pass, PodsUnready: Pass, LeaseResumed: Pass, TaintsGone: Pass}, ""},
		"without the audit log the watches carry the rest": {all(deafAudit(-1e6), setExpect(false, Expectation{Milestone: LeaseStalled}, Expectation{Milestone: ReadyUnknown}, Expectation{Milestone: NoExecuteTainted},
			Expectation{Milestone: PodEvicted, Subject: "15s"}, Expectation{Milestone: LeaseResumed}, Expectation{Milestone: TaintsGone})), OutcomePass, nil, nil, ""},
		"a milestone without a bound needs eyes to the end": {all(
			drop(func(tl *timeline.Timeline, e timeline.Event) bool {
				return e.Source == "watch" && strings.HasPrefix(e.Object, "pods") && e.At > zeroFrom(tl)+sec(67)
			}),
			add(67, timeline.Event{Source: "watch", Type: timeline.TypeGap, Object: "pods", Detail: map[string]string{"why": "x"}})),
			OutcomeInconclusive, []string{"ReplacementReady 15s: not seen", "PodsBack: not seen"}, nil, ""},
		"the fault itself may be expected": {setExpect(false, Expectation{Milestone: FaultInjected}), OutcomePass, nil, map[string]Verdict{FaultInjected: Pass}, ""},
		"a limit of one's own is missed": {setExpect(false, Expectation{Milestone: ReplacementReady, Subject: "0s", Max: Duration(500 * time.Millisecond), Why: "ours"}),
			OutcomeFail, []string{"ReplacementReady 0s"}, map[string]Verdict{ReplacementReady + " 0s": Fail}, "outside the limit of the experiment"},
		"a limit of one's own is kept": {setExpect(false, Expectation{Milestone: ReplacementReady, Subject: "0s", Min: Duration(time.Millisecond), Max: Duration(time.Minute), Why: "ours"}),
			OutcomePass, nil, map[string]Verdict{ReplacementReady + " 0s": Pass}, ""},
		"too early for one's own limit": {setExpect(false, Expectation{Milestone: ReplacementReady, Subject: "0s", Min: Duration(time.Minute), Why: "ours"}),
			OutcomeFail, []string{"outside the limit"}, map[string]Verdict{ReplacementReady + " 0s": Fail}, ""},
		"what nobody saw is not reached": {setExpect(false, Expectation{Milestone: CSRDenied}), OutcomeFail, []string{"CSRDenied: not reached"}, map[string]Verdict{CSRDenied: Fail}, ""},
		"the run ends before the bound": {all(setExpect(false, Expectation{Milestone: PodEvicted, Subject: "300s"})), OutcomeInconclusive, []string{"not reached by the end of the observation, "},
			map[string]Verdict{PodEvicted + " 300s": Inconclusive}, ""},
		"it comes, and what it counts from does not": {all(drop(saysUnknown), setExpect(false, Expectation{Milestone: NoExecuteTainted})), OutcomeFail,
			[]string{"NoExecuteTainted: it came, but ReadyUnknown from which it counts was not seen"}, nil, ""},
		"never means the target":  {setExpect(true, Expectation{Milestone: ReadyUnknown}), OutcomeFail, []string{"ReadyUnknown: 12.310 s after LeaseStalled; it must not occur"}, nil, ""},
		"never of one toleration": {setExpect(true, Expectation{Milestone: PodEvicted, Subject: "300s"}), OutcomePass, nil, map[string]Verdict{PodEvicted + " 300s": Pass}, ""},
		"there was no cluster":    {add(-1, timeline.Event{Source: "run", Type: timeline.TypeSetupFailed, Detail: map[string]string{"why": "no Docker"}}), OutcomeSetupFailed, []string{"no Docker"}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tl := recorded(t)
			tc.edit(t, tl)
			r := judged(t, tl)
			if r.Outcome != tc.outcome {
				t.Fatalf("outcome %s: %q; want %s", r.Outcome, r.Reasons, tc.outcome)
			}
			if len(r.Reasons) != len(tc.reasons) {
				t.Errorf("reasons %q, want %d", r.Reasons, len(tc.reasons))
			}
			for _, want := range tc.reasons {
				if !slices.ContainsFunc(r.Reasons, func(s string) bool { return strings.Contains(s, want) }) {
					t.Errorf("reasons %q, want one with %q", r.Reasons, want)
				}
			}
			for title, want := range tc.rows {
				name, subject, _ := strings.Cut(title, " ")
				m := milestone(t, r, name, subject)
				if m.Verdict != want || want != Pass && !strings.Contains(m.Note, tc.note) {
					t.Errorf("%s: verdict %q, note %q; want %s, %q", title, m.Verdict, m.Note, want, tc.note)
				}
				if want == Inconclusive && m.Seconds != nil {
					t.Errorf("%s was not seen, and yet it has the number %v", title, *m.Seconds)
				}
			}
		})
	}
}

func snapshotAfter(key, value string) edit {
	return alter(func(e timeline.Event) bool {
		return isRun(timeline.TypeSnapshot)(e) && e.Detail["when"] == "after" && e.Object == "node "+recTarget
	}, func(_ int, e *timeline.Event) { e.Detail[key] = value })
}

func firstNotInPlace(i int, e *timeline.Event) {
	if i == 0 {
		e.Detail["inPlace"] = "false"
	}
}

func TestTheWorstOutcomeRules(t *testing.T) {
	// Each step leaves what is there and adds what must rule from then on.
	tl := recorded(t)
	for _, step := range []struct {
		edit edit
		want Outcome
	}{
		{func(*testing.T, *timeline.Timeline) {}, OutcomePass},
		{all(drop(saysUnknown), deafAudit(50), nodesGap(50, 80)), OutcomeInconclusive},
		{csrIssued(30), OutcomeFail}, // what was missed is not hidden by what nobody can say
		{add(60, timeline.Event{Source: "run", Type: timeline.TypeDeadMan, Object: "node x"}), OutcomeContaminated},
		{biting("false"), OutcomeNotInjected},
		{add(69, timeline.Event{Source: "run", Type: timeline.TypeStepFailed, Object: "undo", Detail: map[string]string{"why": "x"}}), OutcomeDirty},
	} {
		step.edit(t, tl)
		if r := judged(t, tl); r.Outcome != step.want {
			t.Errorf("outcome %s (%q), want %s", r.Outcome, r.Reasons, step.want)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for o, want := range map[Outcome]int{OutcomePass: 0, OutcomeFail: 1, OutcomeSetupFailed: 3, OutcomeNotInjected: 4, OutcomeContaminated: 4, OutcomeInconclusive: 4, OutcomeDirty: 5, "": 4, "what": 4} {
		if got := o.ExitCode(); got != want {
			t.Errorf("%q exits with %d, want %d", o, got, want)
		}
	}
}

func TestATornTimelineIsAWarning(t *testing.T) {
	tl := recorded(t)
	tl.Torn = true
	r := judged(t, tl)
	if r.Outcome != OutcomePass || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "cut short") {
		t.Errorf("outcome %s, warnings %q", r.Outcome, r.Warnings)
	}
}

func TestWarningsOfTheRunAreKept(t *testing.T) {
	tl := recorded(t)
	editConfig(t, tl, func(c *Config) {
		c.Warnings = []string{"told at the time"}
		c.Flags["kube-controller-manager"]["node-monitor-grace-period"] = Flag{"2s", "flagz"}
	})
	r := judged(t, tl)
	if len(r.Warnings) != 2 || r.Warnings[0] != "told at the time" || !strings.Contains(r.Warnings[1], "will flap") {
		t.Errorf("warnings %q", r.Warnings)
	}
}

func editConfig(t *testing.T, tl *timeline.Timeline, change func(*Config)) {
	t.Helper()
	var c Config
	if err := json.Unmarshal(tl.Header.Config, &c); err != nil {
		t.Fatal(err)
	}
	change(&c)
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	tl.Header.Config = b
}

func TestJudgeNamesWhatItCannotRead(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*timeline.Timeline)
		want string
	}{
		"no config":         {func(tl *timeline.Timeline) { tl.Header.Config = nil }, "header field config"},
		"no experiment":     {func(tl *timeline.Timeline) { tl.Header.Experiment = nil }, "header field experiment"},
		"bad experiment":    {func(tl *timeline.Timeline) { tl.Header.Experiment = []byte(`{"spec":{"expect":[{"max":5}]}}`) }, "expect.max"},
		"a path for a name": {func(tl *timeline.Timeline) { tl.Header.Experiment = []byte(`{"metadata":{"name":"../x"}}`) }, `experiment.metadata.name: "../x"; want lowercase letters`},
		"many targets": {func(tl *timeline.Timeline) {
			editConfig(t, tl, func(c *Config) { c.Target = make([]string, 201) })
		}, "config.target: 201 entries, at most 200 are read"},
		"many expectations": {func(tl *timeline.Timeline) {
			tl.Header.Experiment = []byte(`{"spec":{"expect":[` + strings.Repeat("{},", 200) + `{}]}}`)
		}, "experiment.spec.expect: 201 entries, at most 200 are read"},
		"no flags": {func(tl *timeline.Timeline) { editConfig(t, tl, func(c *Config) { c.Flags = nil }) }, "nodeLeaseDurationSeconds"},
	} {
		t.Run(name, func(t *testing.T) {
			tl := recorded(t)
			tc.edit(tl)
			if r, _, err := Judge(tl); err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tl.Header.RunID) {
				t.Errorf("got %v, error %v; want one with %q and the run's id", r, err, tc.want)
			}
		})
	}
	// A run that has no cluster may have no flags either.
	tl := recorded(t)
	tl.Header.Config = []byte(`{}`)
	add(-1, timeline.Event{Source: "run", Type: timeline.TypeSetupFailed, Detail: map[string]string{"why": "no Docker"}})(t, tl)
	if r := judged(t, tl); r.Outcome != OutcomeSetupFailed {
		t.Errorf("outcome %s", r.Outcome)
	}
}

func TestTheOrderOfLinesDoesNotMatter(t *testing.T) {
	want := asJSON(t, judged(t, recorded(t)))
	for seed := range uint64(20) {
		tl := recorded(t)
		rng := rand.New(rand.NewPCG(seed, 1))
		rng.Shuffle(len(tl.Events), func(i, j int) { tl.Events[i], tl.Events[j] = tl.Events[j], tl.Events[i] })
		if got := asJSON(t, judged(t, tl)); got != want {
			t.Fatalf("seed %d: the Run is another", seed)
		}
	}
}

func TestJudgeLeavesItsTimelineAlone(t *testing.T) {
	tl := recorded(t)
	slices.Reverse(tl.Events)
	first := tl.Events[0]
	a := asJSON(t, judged(t, tl))
	if !slices.Equal([]string{first.Type, first.Object}, []string{tl.Events[0].Type, tl.Events[0].Object}) || first.At != tl.Events[0].At {
		t.Error("the events were sorted in place")
	}
	for range 10 { // maps have another order each time
		if b := asJSON(t, judged(t, tl)); a != b {
			t.Fatal("judged twice, two Runs")
		}
	}
}

func TestNodesThatExpireTogetherAreAlwaysToldInOneOrder(t *testing.T) {
	// Certificates are issued and end on whole seconds: ties are the rule.
	make := func() *timeline.Timeline {
		tl := recorded(t)
		alter(func(e timeline.Event) bool { return e.Type == timeline.TypeCertificate }, func(_ int, e *timeline.Event) { e.Detail["notAfter"] = "2026-11-29T13:50:35Z" })(t, tl)
		return tl
	}
	want := asJSON(t, judged(t, make()))
	for range 20 {
		if got := asJSON(t, judged(t, make())); got != want {
			t.Fatal("judged twice, two Runs")
		}
	}
}

func TestRunDerivesFromTheTimelineAlone(t *testing.T) {
	want := asJSON(t, judged(t, recorded(t)))
	// Written to disk and read again, in another place, zone and century.
	var text bytes.Buffer
	tl := recorded(t)
	enc := json.NewEncoder(&text)
	if err := enc.Encode(tl.Header); err != nil {
		t.Fatal(err)
	}
	for _, e := range tl.Events {
		if err := enc.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(t.TempDir())
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "KUBE") || name == "ARTIFACTS" || name == "HOME" {
			t.Setenv(name, "/nowhere")
		}
	}
	local := time.Local
	t.Cleanup(func() { time.Local = local })
	time.Local = time.FixedZone("far", 13*3600)
	synctest.Test(t, func(t *testing.T) { // its clock stands at the year 2000
		again, err := timeline.Read(bytes.NewReader(text.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if got := asJSON(t, judged(t, again)); got != want {
			t.Error("the Run depends on more than the timeline")
		}
	})
}

func TestJudgeKnowsNoClockEnvironmentOrNetwork(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			switch path, _ := strconv.Unquote(i.Path.Value); path {
			case "os", "os/exec", "net", "net/http", "context", "math/rand", "math/rand/v2", "crypto/rand", "io", "io/fs", "path/filepath", "syscall", "runtime":
				t.Errorf("%s imports %s", name, path)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "Local", "NewTimer", "NewTicker", "Tick"}, s.Sel.Name) {
					t.Errorf("%s uses time.%s", name, s.Sel.Name)
				}
			}
			return true
		})
	}
}

// small is a timeline with a header of its own, for what the recording does not
// have.
func small(t *testing.T, cfg *Config, experiment string, events ...timeline.Event) *timeline.Timeline {
	t.Helper()
	b, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &timeline.Timeline{Header: timeline.Header{Schema: timeline.Schema, RunID: "r", Start: start, Config: b, Experiment: []byte(experiment)}, Events: events}
}

func TestHeartbeats(t *testing.T) {
	bytes := func(e timeline.Event, n string) timeline.Event { e.Detail["bytes"] = n; return e }
	create := renews(1, "w2")
	create.Type, create.Detail["code"] = "create", "201" // counted in no statistic of renewals
	r := judged(t, small(t, testConfig("v1.37.2"), `{"spec":{"fault":{"type":"csr-denied"}}}`,
		bytes(renews(1, "w1"), "100"), bytes(renews(11, "w1"), "300"), bytes(renews(22, "w1"), "200"), bytes(renews(32.5, "w1"), "200"),
		create, renews(10, "w2"), audit(11, "get", "leases w2", "code=200", "ns=kube-node-lease"), audit(12, "update", "leases w2", "code=409"), renews(20, "w2"), renews(99, "w2"), renews(101, "w2"),
		injected(25), seen("run", 100, timeline.TypePhase, "collect")))
	want := []Heartbeat{
		{Node: "cp", Verbs: map[string]int{}},
		{Node: "w1", Renewals: 3, GapMin: 10, GapMedian: 11, GapMax: 11, Verbs: map[string]int{"update": 3}, BytesMedian: 200}, // up to the fault
		{Node: "w2", Renewals: 3, GapMin: 10, GapMedian: 79, GapMax: 79, Verbs: map[string]int{"update": 3}},
	}
	for i, h := range r.Heartbeats {
		if fmt.Sprint(h) != fmt.Sprint(want[i]) {
			t.Errorf("got  %+v\nwant %+v", h, want[i])
		}
	}
}

func TestDifferencesAreWatchMinusAudit(t *testing.T) {
	r := judged(t, small(t, testConfig("v1.37.2"), `{}`, injected(5), nodeShown(6, "w1", "True", "none"), status(70, "w1", "Unknown"), nodeShown(70.25, "w1", "Unknown", unreachable+":NoSchedule"),
		taint(70.5, "w1", unreachable+":NoSchedule"), refused(80, "401", "leases w1")))
	want := []Difference{{ReadyUnknown, "w1", "", 0.25}, {NoScheduleTainted, "w1", "", -0.25}}
	if !slices.Equal(r.Differences, want) {
		t.Errorf("got %+v, want %+v", r.Differences, want)
	}
}

func TestPhasesSumToTheWallTime(t *testing.T) {
	check := func(t *testing.T, r *Run, first float64) {
		t.Helper()
		var sum float64
		for _, s := range r.Cost.Phases {
			sum += s
		}
		if slack := 0.001 * float64(len(r.Cost.Phases)+2); math.Abs(sum+first-r.Cost.WallSeconds) > slack {
			t.Errorf("phases sum to %v, wall time is %v", sum, r.Cost.WallSeconds)
		}
	}
	check(t, judged(t, recorded(t)), 0)
	phase := func(at float64, name string) timeline.Event { return seen("run", at, timeline.TypePhase, name) }
	r := judged(t, small(t, testConfig("v1.37.2"), `{"spec":{"expect":[{"milestone":"RepairDone"}]}}`, phase(0, "setup"), phase(1, "create"), phase(51, "setup"), phase(53, "hold"),
		injected(54), seen("run", 60, timeline.TypeUndone, ""), seen("run", 61, timeline.TypeRepaired, "node w1"), phase(70, "collect"), phase(72, "delete"), phase(75.5, "end"),
		seen("run", 71, timeline.TypeCost, "", "apiRequests=42", "observeSeconds=17.5", "cpuSeconds=1.25")))
	check(t, r, 0)
	want := Cost{WallSeconds: 75.5, OverheadSeconds: 75.5 - 50 - 3.5 - 7, Phases: map[string]float64{"setup": 3, "create": 50, "hold": 17, "collect": 2, "delete": 3.5}, ObserveSeconds: 17.5, APIRequests: 42, ObserverCPUSeconds: 1.25}
	if fmt.Sprint(r.Cost) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", r.Cost, want)
	}
	// Without a fault the hold is the experiment's time.
	r = judged(t, small(t, testConfig("v1.37.2"), `{}`, phase(0, "setup"), phase(2, "hold"), seen("run", 2, timeline.TypeMeasuring, ""), phase(62, "collect"), phase(63, "end")))
	if r.Cost.OverheadSeconds != 3 {
		t.Errorf("overhead %v, want 3", r.Cost.OverheadSeconds)
	}
	// A run that was cut off has no wall time.
	if r = judged(t, small(t, testConfig("v1.37.2"), `{}`, phase(0, "setup"), phase(2, "hold"))); r.Cost.WallSeconds != 0 || r.Cost.OverheadSeconds != 0 {
		t.Errorf("cost %+v", r.Cost)
	}
}

func TestGapsEndWhenTheirSourceIsSeenAtWork(t *testing.T) {
	gap := func(at float64, source, object string, kv ...string) timeline.Event {
		return seen(source, at, timeline.TypeGap, object, append(kv, "why="+object+" broke")...)
	}
	to := func(s float64) *float64 { return &s }
	r := judged(t, small(t, testConfig("v1.37.2"), `{}`,
		gap(10, "watch", "leases"), gap(11, "watch", "leases"), seen("watch", 12, "listed", "leases w1"), seen("watch", 13, "Watching", "leases"),
		gap(14, "watch", "nodes"), seen("watch", 15, "Watching", "pods"),
		gap(20, "node", "kubelet w1"), seen("node", 21, timeline.TypeProcess, "kubelet w2", "pid=1"), seen("node", 22, timeline.TypeCertificate, "certificate w1", "file=/a.pem"),
		gap(30, "recorder", "audit", "from=25.5"), gap(40, "watch", "leases"),
		seen("node", 41, timeline.TypeProcess, "kubelet w1", "pid=1")))
	want := []Gap{{"leases", 10, to(13), "leases broke"}, {"nodes", 14, nil, "nodes broke"}, {"kubelet w1", 20, to(22), "kubelet w1 broke"}, {"audit", 25.5, nil, "audit broke"}, {"leases", 40, nil, "leases broke"}}
	got, err := json.Marshal(r.Gaps)
	if err != nil {
		t.Fatal(err)
	}
	if w, _ := json.Marshal(want); string(got) != string(w) {
		t.Errorf("got  %s\nwant %s", got, w)
	}
}

func TestClockOffsetMovesStampsAndNotObservations(t *testing.T) {
	base := judged(t, recorded(t))
	tl := recorded(t)
	editConfig(t, tl, func(c *Config) { c.ClockOffset = 30 })
	for i, e := range tl.Events { // the nodes' clock goes 30 s ahead, all facts stay
		if !e.Stamp.IsZero() {
			tl.Events[i].Stamp = e.Stamp.Add(30 * time.Second)
		}
		if e.Detail["notAfter"] != "" {
			at, err := time.Parse(time.RFC3339, e.Detail["notAfter"])
			if err != nil {
				t.Fatal(err)
			}
			tl.Events[i].Detail["notAfter"] = at.Add(30 * time.Second).Format(time.RFC3339)
		}
	}
	r := judged(t, tl)
	for i, m := range r.Milestones {
		if b := base.Milestones[i]; m.Name != b.Name || (m.Seconds == nil) != (b.Seconds == nil) || m.Seconds != nil && math.Abs(*m.Seconds-*b.Seconds) > 0.0011 {
			t.Errorf("%s moved", m.Title())
		}
	}
	if !r.InjectedAt.Equal(*base.InjectedAt) {
		t.Errorf("the fault came %v, want %v by the observer's clock", r.InjectedAt, base.InjectedAt)
	}
}

func FuzzJudge(f *testing.F) {
	write := func(tl *timeline.Timeline) {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		if err := enc.Encode(tl.Header); err != nil {
			f.Fatal(err)
		}
		for _, e := range tl.Events {
			if err := enc.Encode(e); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(b.Bytes())
	}
	tl := recorded(f)
	write(tl)
	short := *tl
	short.Events = slices.DeleteFunc(slices.Clone(tl.Events), func(e timeline.Event) bool { return e.Source == "audit" && !strings.HasSuffix(e.Object, recTarget) })
	write(&short)
	for _, e := range []string{
		`{"expect":[{"milestone":"FaultInjected"},{"milestone":"Nothing","subject":"x"}],"never":[{"milestone":"FaultInjected"},{"milestone":""}]}`,
		`{"fault":{"type":"csr-denied"},"expect":[{"milestone":"PodEvicted"},{"milestone":"PodEvicted","subject":"5s","max":"1s"},{"milestone":"CertificateExpired"}]}`,
	} {
		tiny := *tl
		tiny.Header.Experiment = []byte(`{"spec":` + e + `}`)
		tiny.Header.Config = []byte(`{"kubernetesVersion":"v1.33.1","flags":{"kubelet":{"nodeLeaseDurationSeconds":{"value":"40"}},"kube-controller-manager":{"node-monitor-grace-period":{"value":"50s"},"node-monitor-period":{"value":"5"},"node-eviction-rate":{"value":"0.1"}}},"nodes":[{"name":"a","ip":"1"},{"name":"a","ip":"1"}],"target":["a","b"],"controlNodes":["c"],"canaries":["5s"]}`)
		tiny.Events = []timeline.Event{injected(1), certificate(0, "a", "/x", start), refused(3, "401", "leases a", "ip=1"), nodeShown(4, "a", "True", "none"), podShown(5, "added", "p", "a", "True", "canary=5s"),
			status(60, "a", "Unknown"), taint(61, "a", both(unreachable)), podMarkedIs(62, "p"), podShown(67, "deleted", "p", "a", "False", "canary=5s", "deleting=true"),
			seen("node", 68, timeline.TypeGap, "kubelet a", "from=NaN"), seen("run", 70, timeline.TypeUndone, ""), seen("run", 71, timeline.TypeRepaired, "node a"), seen("run", 72, timeline.TypePhase, "collect"), seen("run", 73, timeline.TypePhase, "end")}
		write(&tiny)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tl, err := timeline.Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		r, _, err := Judge(tl)
		if err != nil {
			return
		}
		if r.Outcome == "" || r.Outcome != OutcomePass && len(r.Reasons) == 0 || r.Outcome == OutcomePass && len(r.Reasons) > 0 {
			t.Errorf("outcome %q with reasons %q", r.Outcome, r.Reasons)
		}
		a, aerr := json.Marshal(r)
		again, _, err := Judge(tl)
		if err != nil {
			t.Fatalf("judged once, and then %v", err)
		}
		if b, berr := json.Marshal(again); !bytes.Equal(a, b) || (aerr == nil) != (berr == nil) {
			t.Errorf("judged twice, two Runs:\n%s\n%s", a, b)
		}
	})
}

func BenchmarkJudge(b *testing.B) {
	tl := recorded(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Judge(tl); err != nil {
			b.Fatal(err)
		}
	}
}
