package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flatline-chaos/flatline/internal/golden"
	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// recordings are runs of real clusters, with an outcome of each kind.
var recordings = map[string]string{
	"default":      "../../pkg/judge/testdata/csr-denied-default.jsonl.gz",
	"fast":         "../../pkg/judge/testdata/csr-denied-fast.jsonl.gz",
	"crash-loop":   "../../docs/evidence/cert-unreadable-restart-fast/20261129t202129z-e9c1.jsonl.gz",
	"orphans":      "../../docs/evidence/cert-readonly-rotation-fast/20261129t202540z-35f4.jsonl.gz",
	"not-ready":    "../../docs/evidence/containerd-frozen-fast/20261129t205339z-5268.jsonl.gz",
	"everyone":     "../../docs/evidence/csr-denied-everyone-fast/20261129t155005z-c00f.jsonl.gz",
	"fail":         "testdata/fail.jsonl.gz",
	"not-injected": "testdata/not-injected.jsonl.gz",
	"censored":     "testdata/censored.jsonl.gz",
}

func readTimeline(t testing.TB, name string) *timeline.Timeline {
	t.Helper()
	tl, err := timeline.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

func judgeAndTrace(t testing.TB, tl *timeline.Timeline) (*judge.Trace, *judge.Run) {
	t.Helper()
	r, tr, err := judge.Judge(tl)
	if err != nil {
		t.Fatal(err)
	}
	return tr, r
}

func TestPictures(t *testing.T) {
	for name, file := range recordings {
		t.Run(name, func(t *testing.T) {
			tr, r := judgeAndTrace(t, readTimeline(t, file))
			var svg bytes.Buffer
			if err := SVG(&svg, tr, r); err != nil {
				t.Fatal(err)
			}
			wellFormed(t, svg.String())
			_, drawing, _ := strings.Cut(svg.String(), "</style>") // the style has no place in a golden file
			golden.Lines(t, "testdata/"+name+".svg", drawing)
		})
	}
}

// wellFormed demands XML: browsers forgive in a page what they do not in a file.
func wellFormed(t *testing.T, svg string) {
	t.Helper()
	for dec := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
	}
}

// Every mark that the drawing has for a milestone carries its time, and every
// milestone of the table that was reached has a mark, in both widths.
func TestEveryMilestoneIsDrawn(t *testing.T) {
	for name, file := range recordings {
		tr, r := judgeAndTrace(t, readTimeline(t, file))
		for _, width := range []float64{wideWidth, narrowWidth} {
			drawing := picture(tr, r, width, "x")
			for _, m := range r.Milestones {
				want := fmt.Sprintf(`data-milestone="%s" data-node="%s"`, m.Title(), m.Node)
				if m.Seconds != nil {
					want += fmt.Sprintf(` data-seconds="%g"`, *m.Seconds)
				}
				if drawn := strings.Contains(drawing, want); m.Seconds != nil && !drawn {
					t.Errorf("%s, width %g: no mark with %s", name, width, want)
				}
			}
		}
	}
}

// What a cluster or a user says goes into the page as text.
func TestNothingIsTakenForMarkup(t *testing.T) {
	const evil = `<script>alert("x")</script>&`
	s := 1.0
	r := passed()
	r.Outcome, r.Reasons, r.Warnings = judge.OutcomeFail, []string{evil, evil}, []string{evil}
	r.Experiment, r.Profile = evil, evil
	r.Gaps = []judge.Gap{{Source: evil, Why: evil}}
	for i := range r.Milestones {
		m := &r.Milestones[i]
		m.Node, m.Subject, m.Note = evil, evil, evil
		m.Evidence = &timeline.Event{Source: evil, Type: evil, Object: evil, Detail: map[string]string{evil: evil}}
		if m.Window != nil {
			m.Window.Why, m.Window.Branch = evil, evil
		}
	}
	r.Milestones = append(r.Milestones, judge.Result{Name: evil, Node: evil, Seconds: &s, Limit: &judge.Limit{Max: 1, Why: evil}})
	spans := []judge.Span{{From: 0, To: 70, State: evil, Note: evil}}
	tr := &judge.Trace{From: -5, To: 70, Leader: judge.Lane{Spans: spans}, Gaps: spans, Deeds: []judge.Deed{{What: evil}}, Witnesses: []judge.Witness{{Seen: evil}},
		Fault: judge.Lane{Spans: spans}, Nodes: []judge.NodeTrace{{Name: evil, Target: true, Ready: judge.Lane{Spans: spans}, Taints: []judge.Lane{{Name: evil, Spans: spans}},
			Refused: []judge.Deed{{What: evil}}, Certificates: []judge.Certificate{{Serial: evil, NotAfter: 60, OnDisk: spans[0]}},
			Requests: []judge.Lane{{Name: evil, Spans: spans}}, Pods: []judge.PodTrace{{Canary: evil, On: evil, Lane: judge.Lane{Name: evil, Spans: spans}}}}}}
	r.Target, r.Flags = []string{evil}, map[string]map[string]judge.Flag{evil: {evil: {Value: evil, Origin: evil}}}
	var page, many bytes.Buffer
	if err := errors.Join(HTML(&page, tr, r), Overlay(&many, []*judge.Run{r, r})); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{page.String(), many.String()} {
		if strings.Contains(p, "<script") || strings.Contains(p, `"x"`) {
			t.Errorf("markup of others is in %s", p)
		}
	}
	wellFormed(t, picture(tr, r, wideWidth, "x"))
	wellFormed(t, overlay([]*judge.Run{r}, narrowWidth, "x"))
}

// A run that never had a cluster has a page too.
func TestPageWithoutMilestones(t *testing.T) {
	var page bytes.Buffer
	if err := HTML(&page, &judge.Trace{}, runs()["setup-failed"]); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Nothing was measured, the set-up failed: creating cluster flatline-dead: no space left on device.", "setup-failed"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in %s", want, page.String())
		}
	}
	if strings.Contains(page.String(), "svg class=\"run\"") {
		t.Error("there is a drawing of nothing")
	}
}

func TestSentences(t *testing.T) {
	for name, want := range map[string]string{
		"pass":         "Everything happened as it must: on worker2, at 40.0 s the certificate ran out, at 57.2 s the first pod was evicted.",
		"fail":         "Something did not happen as it must: NoExecuteTainted: 2.00 s after ReadyUnknown, outside [-0.05, 0.05] or [0.9, 1.11] (and 1 more).",
		"setup-failed": "Nothing was measured, the set-up failed: creating cluster flatline-dead: no space left on device.",
		"dirty":        "The cluster was NOT put right, flatline heal does that: undo: restoring the binding on c1-control-plane: exit status 1.",
	} {
		if got := Sentence(runs()[name]); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	control := &judge.Run{Outcome: judge.OutcomePass, Target: []string{"w"}, Milestones: []judge.Result{{Name: "ReadyUnknown", Never: true, Verdict: judge.Pass}}}
	if got, want := Sentence(control), "Everything happened as it must: 1 expectations met."; got != want {
		t.Errorf("control: %q, want %q", got, want)
	}
}

func TestSteps(t *testing.T) {
	for _, c := range []struct {
		span  float64
		parts int
		want  float64
	}{{75, 11, 10}, {600, 11, 100}, {600, 5, 200}, {10, 11, 1}, {0.5, 11, 0.05}, {55, 11, 5}} {
		if got := step(c.span, c.parts); got != c.want {
			t.Errorf("step(%g, %d) = %g, want %g", c.span, c.parts, got, c.want)
		}
	}
}

// long is a timeline of many events: a run in which the Leases of three nodes went
// on being renewed for days.
func long(t testing.TB, events int) *timeline.Timeline {
	tl := readTimeline(t, recordings["fast"])
	var nodes []string
	at := time.Duration(0)
	tail := len(tl.Events)
	for i, e := range tl.Events {
		if e.Source == "run" && e.Type == timeline.TypePhase && e.Object == "undo" {
			tail, at = i, e.At
		}
		if kind, name, _ := strings.Cut(e.Object, " "); e.Source == "audit" && kind == "leases" && e.Type == "update" && !strings.Contains(strings.Join(nodes, " "), name) {
			nodes = append(nodes, name)
		}
	}
	more := make([]timeline.Event, 0, events)
	for i := len(tl.Events); i < events; i++ {
		at += 700 * time.Millisecond
		stamp := tl.Header.Start.Add(at)
		more = append(more, timeline.Event{At: at, Stamp: stamp, Source: "audit", Type: "update", Object: "leases " + nodes[i%len(nodes)],
			Detail: map[string]string{"ns": "kube-node-lease", "code": "200", "renew": stamp.Format(time.RFC3339Nano), "agent": "kubelet", "bytes": "500"}})
	}
	rest := append([]timeline.Event{}, tl.Events[tail:]...)
	shift := at - rest[0].At
	for i := range rest {
		rest[i].At += shift
		if !rest[i].Stamp.IsZero() {
			rest[i].Stamp = rest[i].Stamp.Add(shift)
		}
	}
	tl.Events = append(append(tl.Events[:tail:tail], more...), rest...)
	return tl
}

// The page of a long run is small: strokes nearer than half a unit are one.
func TestTicksAreThinned(t *testing.T) {
	tr, r := judgeAndTrace(t, long(t, 100_000))
	if n := len(tr.Nodes[1].Renewals); n < 20_000 {
		t.Fatalf("%d renewals only", n)
	}
	var page bytes.Buffer
	if err := HTML(&page, tr, r); err != nil {
		t.Fatal(err)
	}
	if page.Len() > 500_000 {
		t.Errorf("the page has %d bytes", page.Len())
	}
}

func BenchmarkReportOfARun(b *testing.B) {
	tl := readTimeline(b, recordings["default"])
	b.ReportAllocs()
	for b.Loop() {
		tr, r := judgeAndTrace(b, tl)
		if err := HTML(io.Discard, tr, r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkJudgeAndDraw100000Events(b *testing.B) {
	tl := long(b, 100_000)
	b.ReportAllocs()
	for b.Loop() {
		tr, r := judgeAndTrace(b, tl)
		if err := HTML(io.Discard, tr, r); err != nil {
			b.Fatal(err)
		}
	}
}

func writeTimeline(t testing.TB, w io.Writer, tl *timeline.Timeline) {
	t.Helper()
	enc := json.NewEncoder(w)
	if err := enc.Encode(tl.Header); err != nil {
		t.Fatal(err)
	}
	for _, e := range tl.Events {
		if err := enc.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzReport(f *testing.F) {
	for _, name := range []string{"fast", "censored"} {
		data := new(bytes.Buffer)
		tl := readTimeline(f, filepath.Clean(recordings[name]))
		writeTimeline(f, data, tl)
		f.Add(data.Bytes())
	}
	tl := readTimeline(f, recordings["fast"])
	for i, evil := range evils[:6] {
		data := new(bytes.Buffer)
		tl.Events[len(tl.Events)-1-i].Detail = map[string]string{"why": evil, evil: evil}
		writeTimeline(f, data, tl)
		f.Add(bytes.ReplaceAll(data.Bytes(), []byte("csr-bvndm"), []byte("::error::x")))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tl, err := timeline.Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		r, tr, err := judge.Judge(tl)
		if err != nil {
			return
		}
		for name, text := range renderAll(t, tr, r) {
			harmless(t, name, text, r)
		}
		annotated(t, r)
		if len(r.Milestones) > 0 {
			if s := picture(tr, r, wideWidth, "x"); strings.Contains(s, "NaN") || strings.Contains(s, "Inf") {
				t.Error("a coordinate is no number")
			}
		}
	})
}
