package judge

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// clocksCompared adds what a run notes of clocks: one kernel, but for the readings given, by
// "object when"; an empty one is left out.
func clocksCompared(t *testing.T, tl *timeline.Timeline, readings map[string]string) {
	var cfg Config
	editConfig(t, tl, func(c *Config) { cfg = *c })
	objects := []string{"kube-apiserver"}
	for _, n := range cfg.Nodes {
		objects = append(objects, "node "+n.Name)
	}
	for when, at := range map[string]time.Duration{timeline.Before: time.Second, timeline.After: tl.Events[len(tl.Events)-1].At} {
		for _, object := range objects {
			d := detail([]string{"when=" + when, "same=true", "offset=0.000000", "error=0.000000"})
			if r, ok := readings[object+" "+when]; ok {
				d = detail(append([]string{"when=" + when}, strings.Fields(r)...))
				if r == "" {
					continue
				}
			}
			tl.Events = append(tl.Events, timeline.Event{At: at, Source: "run", Type: timeline.TypeClock, Object: object, Detail: d})
		}
	}
}

func TestClocksThatAreApart(t *testing.T) {
	const api, node = "kube-apiserver", "node " + recTarget
	for name, tc := range map[string]struct {
		config   func(*Config)
		readings map[string]string
		want     Outcome
		reasons  []string
	}{
		"one kernel":                         {nil, nil, OutcomePass, nil},
		"as far as is allowed":               {nil, map[string]string{node + " after": "offset=0.150000 error=0.050000"}, OutcomePass, nil},
		"a node is ahead at the end":         {nil, map[string]string{node + " after": "offset=0.150000 error=0.050001"}, OutcomeInconclusive, []string{node + ": its clock was off by 0.150 s, give or take 0.050 s, when compared after the run"}},
		"a node is behind at the start":      {nil, map[string]string{node + " before": "offset=-0.300000 error=0.010000"}, OutcomeInconclusive, []string{node + ": its clock was off by 0.300 s"}},
		"nobody knows how a node stands":     {nil, map[string]string{node + " before": "offset=0.000000 error=0.300000"}, OutcomeInconclusive, []string{"give or take 0.300 s"}},
		"the API server is ahead":            {nil, map[string]string{api + " after": "offset=0.400000 error=0.030000"}, OutcomeInconclusive, []string{api + ": its clock was off by 0.400 s"}},
		"one was not compared at the end":    {nil, map[string]string{node + " after": "why=paused"}, OutcomeInconclusive, []string{node + ": its clock was not compared after the run"}},
		"one was compared at the end alone":  {nil, map[string]string{api + " before": ""}, OutcomeInconclusive, []string{api + ": its clock was not compared before the run"}},
		"one was never compared":             {nil, map[string]string{api + " before": "", api + " after": ""}, OutcomeInconclusive, []string{api + ": its clock was not compared before", api + ": its clock was not compared after"}},
		"a reading that is none":             {nil, map[string]string{node + " after": "offset=soon error=0.1"}, OutcomeInconclusive, []string{node + ": its clock was not compared after the run"}},
		"an offset that is known too little": {func(c *Config) { c.ClockError = 0.21 }, nil, OutcomeInconclusive, []string{"the nodes' clock is known to 0.210 s only"}},
		"an offset that is known well":       {func(c *Config) { c.ClockError = 0.2 }, nil, OutcomePass, nil},
	} {
		t.Run(name, func(t *testing.T) {
			tl := recorded(t)
			clocksCompared(t, tl, tc.readings)
			if tc.config != nil {
				editConfig(t, tl, tc.config)
			}
			r := judged(t, tl)
			if r.Outcome != tc.want || len(r.Reasons) != len(tc.reasons) {
				t.Fatalf("%s %q, want %s %q", r.Outcome, r.Reasons, tc.want, tc.reasons)
			}
			for i, why := range tc.reasons {
				if !strings.Contains(r.Reasons[i], why) {
					t.Errorf("reason %q, want %q", r.Reasons[i], why)
				}
			}
		})
	}
}

// Where clocks are apart no row says that anything was in its window, or outside of it.
func TestNothingIsJudgedByClocksThatAreApart(t *testing.T) {
	tl := recorded(t)
	clocksCompared(t, tl, map[string]string{"kube-apiserver after": "offset=5.000000 error=0.010000"})
	for i, e := range tl.Events { // outside of its window, were it judged
		if e.Detail["ready"] == "Unknown" {
			tl.Events[i] = timeline.Event{At: e.At + 20*time.Second, Stamp: e.Stamp.Add(20 * time.Second), Source: e.Source, Type: e.Type, Object: e.Object, Detail: e.Detail}
		}
	}
	r := judged(t, tl)
	if r.Outcome != OutcomeInconclusive {
		t.Errorf("%s %q", r.Outcome, r.Reasons)
	}
	for _, m := range r.Milestones {
		if m.Verdict != "" && m.Verdict != Inconclusive {
			t.Errorf("%s: %s", m.Title(), m.Verdict)
		}
	}
}

// A clock that is ahead all the time, by as much as the header says, moves nothing: neither what
// has a stamp nor the window of a certificate.
func TestAClockThatIsAheadAndKnownIsJudgedByTheOther(t *testing.T) {
	base := recorded(t)
	clocksCompared(t, base, nil)
	tl := recorded(t)
	readings := map[string]string{}
	var cfg Config
	editConfig(t, tl, func(c *Config) { c.ClockOffset, c.ClockError = 2, 0.05; cfg = *c })
	for _, when := range []string{timeline.Before, timeline.After} {
		readings["kube-apiserver "+when] = "offset=2.010000 error=0.030000"
		for _, n := range cfg.Nodes {
			readings["node "+n.Name+" "+when] = "offset=2.000000 error=0.050000"
		}
	}
	clocksCompared(t, tl, readings)
	for i, e := range tl.Events {
		if !e.Stamp.IsZero() {
			tl.Events[i].Stamp = e.Stamp.Add(2 * time.Second)
		}
		for _, key := range []string{"notBefore", "notAfter", "renew"} {
			if at, err := time.Parse(time.RFC3339Nano, e.Detail[key]); err == nil {
				tl.Events[i].Detail = maps.Clone(tl.Events[i].Detail)
				tl.Events[i].Detail[key] = at.Add(2 * time.Second).Format(time.RFC3339Nano)
			}
		}
	}
	got, want := judged(t, tl), judged(t, base)
	if got.Outcome != OutcomePass || len(got.Milestones) != len(want.Milestones) {
		t.Fatalf("%s %q, %d milestones, want %d", got.Outcome, got.Reasons, len(got.Milestones), len(want.Milestones))
	}
	for i, m := range got.Milestones {
		w := want.Milestones[i]
		if m.Window == nil && w.Window == nil {
			continue
		}
		if m.Title() != w.Title() || m.Verdict != w.Verdict || m.Window.String() != w.Window.String() {
			t.Errorf("%s %s %s, want %s %s %s", m.Title(), m.Verdict, m.Window, w.Title(), w.Verdict, w.Window)
		}
	}

	cert := certificate(1, "w1", "/var/lib/kubelet/pki/kubelet-client-2026-01-02-03-04-05.pem", start.Add(time.Hour))
	cert.Detail["notBefore"] = start.Format(time.RFC3339)
	var windows []Window
	for _, ahead := range []time.Duration{0, 2 * time.Second} {
		cfg := testConfig("v1.37.2")
		cfg.ClockOffset = ahead.Seconds()
		e := cert
		e.Detail = maps.Clone(cert.Detail)
		e.Detail["notBefore"], e.Detail["notAfter"] = start.Add(ahead).Format(time.RFC3339), start.Add(time.Hour+ahead).Format(time.RFC3339)
		windows = append(windows, foldOf(t, cfg, `{"type":"rotation"}`, e, injected(5)).WindowOf(Key{CSRCreated, "w1", ""}))
	}
	if !slices.Equal(windows[0].Intervals, windows[1].Intervals) {
		t.Errorf("the next request is waited for in %v, and in %v where the clock is ahead", windows[0].Intervals, windows[1].Intervals)
	}
}
