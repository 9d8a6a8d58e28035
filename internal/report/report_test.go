package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flatline-chaos/flatline/internal/golden"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

func window(class string, branch string, bounds ...float64) *judge.Window {
	w := &judge.Window{Class: class, Branch: branch, Why: "because of " + class}
	for i := 0; i < len(bounds); i += 2 {
		w.Intervals = append(w.Intervals, judge.Interval{Min: bounds[i], Max: bounds[i+1]})
	}
	return w
}

// passed is a run with every shape of row; the others change it.
func passed() *judge.Run {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	s := func(f float64) *float64 { return &f }
	const target = "c1-worker2"
	return &judge.Run{
		APIVersion: judge.APIVersion, Kind: "Run", RunID: "20260102t030405z-beef", Experiment: "csr-denied", Profile: "fast", Outcome: judge.OutcomePass,
		KubernetesVersion: "v1.37.2", NodeImage: "flatline-node:v1.37.2", Cluster: "c1", Target: []string{target}, ControlNodes: []string{"c1-control-plane", "c1-worker"},
		Flags: map[string]map[string]judge.Flag{
			"kubelet":                 {"nodeLeaseDurationSeconds": {Value: "8", Origin: "configz"}},
			"kube-controller-manager": {"node-monitor-grace-period": {Value: "12s", Origin: "flagz"}, "feature-gates": {}},
		},
		InjectedAt: &at,
		Milestones: []judge.Result{
			{Name: "FaultInjected", Node: target, Seconds: s(0), Source: "run", Seen: map[string]float64{"run": 0}},
			{Name: "CSRCreated", Node: target, Seconds: s(1.234), After: &judge.After{Name: "KubeletStarted", Seconds: 0.5}, Window: window(judge.Derived, "", 0, 5),
				Seen: map[string]float64{"watch": 1.3, "audit": 1.234}, Expected: true, Verdict: judge.Pass},
			{Name: "CertificateExpired", Node: target, Seconds: s(40), After: &judge.After{Name: "FaultInjected", Seconds: 40}, Window: window(judge.Ordered, ""), Expected: true, Verdict: judge.Pass},
			{Name: "NoExecuteTainted", Node: target, Seconds: s(52.125), After: &judge.After{Name: "ReadyUnknown", Seconds: 1.015}, Window: window(judge.Derived, "B: a pass later", -0.05, 0.05, 0.9, 1.11),
				Expected: true, Verdict: judge.Pass, Note: "seen late"},
			{Name: "PodEvicted", Node: target, Subject: "5s", Seconds: s(57.2), After: &judge.After{Name: "NoExecuteTainted", Seconds: 5.075}, Window: window(judge.Derived, "", 5, 6),
				Limit: &judge.Limit{Max: 7, Why: "ours"}, Expected: true, Verdict: judge.Pass},
			{Name: "ReplacementReady", Node: target, Subject: "5s", Seconds: s(58), After: &judge.After{Name: "PodEvicted", Seconds: 0.8}, Window: window(judge.Budget, ""),
				Limit: &judge.Limit{Min: 0.5, Why: "ours"}, Expected: true, Verdict: judge.Pass},
			{Name: "CSRIssued", Node: target, Never: true, Verdict: judge.Pass},
			{Name: "CSRApproved", Node: "c1-worker", Seconds: s(3)},
		},
		Heartbeats: []judge.Heartbeat{
			{Node: "c1-worker", Renewals: 40, GapMin: 2.001, GapMedian: 2.04, GapMax: 2.08, Verbs: map[string]int{"update": 39, "patch": 1}, BytesMedian: 512},
			{Node: target, Renewals: 3, GapMin: 2, GapMedian: 2, GapMax: 2, Verbs: map[string]int{"update": 3}, BytesMedian: 513},
		},
		Differences: []judge.Difference{{Milestone: "CSRCreated", Node: target, Seconds: 0.066}, {Milestone: "NoExecuteTainted", Node: target, Seconds: -0.002}},
		Cost: judge.Cost{WallSeconds: 181.4, OverheadSeconds: 12.34, ObserveSeconds: 120, APIRequests: 60, ObserverCPUSeconds: 1.5,
			Phases: map[string]float64{"create": 40.6, "delete": 3.2}},
	}
}

func runs() map[string]*judge.Run {
	s := func(f float64) *float64 { return &f }
	failed := passed()
	failed.Outcome, failed.Profile = judge.OutcomeFail, "default"
	failed.Reasons = []string{"NoExecuteTainted: 2.00 s after ReadyUnknown, outside [-0.05, 0.05] or [0.9, 1.11]", "PodEvicted 5s: not reached, 100 % | censored\nat the end"}
	failed.Milestones[3].After.Seconds, failed.Milestones[3].Window.Branch, failed.Milestones[3].Verdict = 2, "", judge.Fail
	failed.Milestones[4].Seconds, failed.Milestones[4].After.Seconds, failed.Milestones[4].Verdict = nil, 0, judge.Fail
	failed.Milestones[4].Note = "not reached | censored"
	failed.Milestones[5].Verdict = judge.Inconclusive
	failed.Milestones[6].Seconds, failed.Milestones[6].Verdict = s(9), judge.Fail
	failed.Milestones = append(failed.Milestones, judge.Result{Name: "ReadyUnknown", Node: "c1-worker", Seconds: s(20)})
	failed.Warnings = []string{"flag a of b is c"}
	failed.Gaps = []judge.Gap{{Source: "watch leases", From: 3.04, To: s(5.06), Why: "too old"}, {Source: "audit", From: 7, Why: "the stream ended"}}

	noSetup := &judge.Run{APIVersion: judge.APIVersion, Kind: "Run", RunID: "20260102t030405z-dead", Experiment: "csr-denied", Profile: "fast", Outcome: judge.OutcomeSetupFailed,
		Reasons: []string{"creating cluster flatline-dead: no space left on device"}, Cost: judge.Cost{WallSeconds: 3.6}}

	dirty := passed()
	dirty.Outcome, dirty.Reasons = judge.OutcomeDirty, []string{"undo: restoring the binding on c1-control-plane: exit status 1"}
	dirty.Target = append(dirty.Target, "c1-worker3")
	return map[string]*judge.Run{"pass": passed(), "fail": failed, "setup-failed": noSetup, "dirty": dirty}
}

var renderings = map[string]func(io.Writer, *judge.Run) error{
	"txt": Text, "wide.txt": Wide, "md": Markdown, "xml": JUnit, "bench": Bench, "annotations": Annotations,
	"summary.txt": func(w io.Writer, r *judge.Run) error { return Summary(w, []*judge.Run{r}) },
}

func TestRenderings(t *testing.T) {
	for name, r := range runs() {
		for ext, render := range renderings {
			var first string
			for range 5 { // the order of a map must not show
				var b strings.Builder
				if err := render(&b, r); err != nil {
					t.Errorf("%s %s: %v", name, ext, err)
				}
				if first == "" {
					first = b.String()
				} else if b.String() != first {
					t.Errorf("%s %s: two texts for one run:\n%s\n%s", name, ext, first, b.String())
					break
				}
			}
			golden.Lines(t, "testdata/"+name+"."+ext, first)
			// The last word of a text is the outcome with its reasons.
			if _, last, _ := strings.Cut(first, "\noutcome: "); strings.HasSuffix(ext, "txt") && ext != "summary.txt" && !strings.HasPrefix(last, string(r.Outcome)) {
				t.Errorf("%s %s ends with %q", name, ext, last)
			}
		}
	}
}

// CI systems read the numbers, not the text.
func TestJUnitCounts(t *testing.T) {
	for name, want := range map[string][3]int{"pass": {7, 0, 0}, "fail": {7, 3, 1}, "setup-failed": {1, 0, 1}, "dirty": {7, 0, 1}} {
		var b bytes.Buffer
		if err := JUnit(&b, runs()[name]); err != nil {
			t.Fatal(err)
		}
		var got junitSuites
		if err := xml.Unmarshal(b.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		s := got.Suites[0]
		var failures, errs int
		for _, c := range s.Cases {
			if c.Failure != nil {
				failures++
			}
			if c.Error != nil {
				errs++
			}
		}
		if counted := [3]int{len(s.Cases), failures, errs}; counted != want || [3]int{s.Tests, s.Failures, s.Errors} != want {
			t.Errorf("%s: tests, failures, errors %v, said to be %d, %d, %d; want %v", name, counted, s.Tests, s.Failures, s.Errors, want)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestRenderingsFail(t *testing.T) {
	for ext, render := range renderings {
		if err := render(full{}, runs()["fail"]); err == nil {
			t.Errorf("%s: no error from a full disk", ext)
		}
	}
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	tr, r := judgeAndTrace(t, readTimeline(t, recordings["fast"]))
	if err := os.WriteFile(filepath.Join(dir, "report.md"), []byte("of yesterday"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Folder(dir, tr, r); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"report.html": "<title>csr-denied fast: pass</title>", "report.md": "### ✓ csr-denied, profile fast: pass", "junit.xml": "<testsuite", "bench.txt": "BenchmarkCsrDenied/phase=ReadyUnknown"} {
		got, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(got), want) {
			t.Errorf("%s: no %q in %.300s", file, want, got)
		}
	}
	// A run that could not be judged has a page all the same.
	dirty := &judge.Run{RunID: "r", Experiment: "csr-denied", Profile: "fast", Outcome: judge.OutcomeDirty, Reasons: []string{"not judged"}}
	if err := Folder(t.TempDir(), &judge.Trace{}, dirty); err != nil {
		t.Error(err)
	}
	if err := Folder(filepath.Join(dir, "nowhere"), tr, r); err == nil {
		t.Error("no error without a folder")
	}
}

func TestPrint(t *testing.T) {
	for _, format := range Formats {
		var b strings.Builder
		if err := Print(&b, format, passed()); err != nil {
			t.Errorf("%s: %v", format, err)
		}
		switch got := b.String(); format {
		case "text":
			golden.Lines(t, "testdata/pass.txt", got)
		case "wide":
			golden.Lines(t, "testdata/pass.wide.txt", got)
		default:
			golden.Lines(t, "testdata/pass."+format, got)
		}
	}
}

func TestLine(t *testing.T) {
	var b strings.Builder
	for _, m := range runs()["fail"].Milestones {
		b.WriteString(Line(m) + "\n")
	}
	golden.Lines(t, "testdata/lines.golden", b.String())
}

func TestCountdown(t *testing.T) {
	s := func(f float64) time.Duration { return time.Duration(f * float64(time.Second)) }
	due := judge.Due{Key: judge.Key{Name: "PodEvicted", Node: "n", Subject: "5s"}, From: s(10), To: s(12.6), Known: true}
	for _, tc := range []struct {
		now  time.Duration
		want string
	}{
		{0, "PodEvicted 5s in 10 s"},
		{s(9.9), "PodEvicted 5s in 0 s"},
		{s(10), "PodEvicted 5s at any moment, at the latest in 3 s"},
		{s(12), "PodEvicted 5s at any moment, at the latest in 1 s"},
		{s(20), "PodEvicted 5s at any moment, at the latest in 0 s"},
	} {
		if got := Countdown(due, tc.now); got != tc.want {
			t.Errorf("at %s: %q, want %q", tc.now, got, tc.want)
		}
	}
	if got, want := Countdown(judge.Due{Key: judge.Key{Name: "ReadyUnknown"}, From: s(3)}, 0), "ReadyUnknown in 3 s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func news() []judge.Update {
	s := func(f float64) time.Duration { return time.Duration(f * float64(time.Second)) }
	reached := passed().Milestones[3]
	next := &judge.Due{Key: judge.Key{Name: "ReadyUnknown", Node: "c1-worker2"}, From: s(80), To: s(82), Known: true}
	return []judge.Update{
		{Elapsed: 0, Phase: "setup"},
		{Elapsed: s(0.26), Text: "node image x (built here)"},
		{Elapsed: s(61.04), Phase: "hold"},
		{Elapsed: s(62), Next: next},
		{Elapsed: s(63), Next: next},
		{Elapsed: s(63.5), Milestone: &reached},
		{Elapsed: s(64), Next: next},
		{Elapsed: s(81), Next: next},
		{Elapsed: s(1000.06), Phase: "undo"},
		{Elapsed: s(1001), Next: next},
		{Elapsed: s(1002), Text: "100% done"},
		{Elapsed: s(1003), Phase: "end"},
		{Elapsed: s(1004)},
	}
}

func TestLive(t *testing.T) {
	for name, terminal := range map[string]bool{"live.txt": false, "live-terminal.txt": true} {
		var b strings.Builder
		l := NewLive(&b, terminal)
		for _, n := range news() {
			l.Show(n)
		}
		got := b.String()
		if !terminal && strings.ContainsAny(got, "\r\x1b") {
			t.Errorf("control characters in a file: %q", got)
		}
		// On a terminal: nothing may be left of a status line.
		for line := range strings.Lines(got) {
			status, rest, cleared := strings.Cut(line, "\r\x1b[K")
			for cleared {
				if !strings.Contains(status, "; next: ") {
					t.Errorf("cleared what is no status line: %q", status)
				}
				status, rest, cleared = strings.Cut(rest, "\r\x1b[K")
			}
			if strings.Contains(status, "; next: ") {
				t.Errorf("a status line that stays: %q", line)
			}
		}
		golden.Lines(t, "testdata/"+name, strings.NewReplacer("\r", "<CR>", "\x1b[K", "<CLEAR>").Replace(got))
	}
}

func TestWindowsOfSeveralRuns(t *testing.T) {
	for _, c := range [][3]string{
		{"[0, 1]", "[0, 1]", "[0, 1]"},
		{"[0, 1]", "[0, 1] or [10, 11.3]", "[0, 1] or [10, 11.3]"},
		{"[0, 1] or [10, 11.3]", "[0, 1]", "[0, 1] or [10, 11.3]"},
		{"[33.5, 131.5]", "[33.7, 131.7]", "each run its own"},
		{"each run its own", "[33.7, 131.7]", "each run its own"},
		{"", "", ""},
	} {
		if got := both(c[0], c[1]); got != c[2] {
			t.Errorf("both(%q, %q) = %q, want %q", c[0], c[1], got, c[2])
		}
	}
}
