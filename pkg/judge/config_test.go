package judge

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestDurationReadsAndWritesAsOneDoes(t *testing.T) {
	for text, want := range map[string]struct {
		d    time.Duration
		back string
	}{
		`"12s"`: {12 * time.Second, `"12s"`}, `"5m"`: {5 * time.Minute, `"5m"`}, `"5m0s"`: {5 * time.Minute, `"5m"`}, `"1h"`: {time.Hour, `"1h"`},
		`"60m"`: {time.Hour, `"1h"`}, `"1h0m10s"`: {time.Hour + 10*time.Second, `"1h0m10s"`}, `"0s"`: {0, `"0s"`}, `"1.5s"`: {1500 * time.Millisecond, `"1.5s"`},
		`"10m"`: {10 * time.Minute, `"10m"`}, `"100h"`: {100 * time.Hour, `"100h"`}, `"250µs"`: {250 * time.Microsecond, `"250µs"`}, `"1h30m"`: {90 * time.Minute, `"1h30m"`},
	} {
		var d Duration
		if err := json.Unmarshal([]byte(text), &d); err != nil || time.Duration(d) != want.d {
			t.Errorf("%s is %v, %v; want %v", text, d, err, want.d)
		}
		if back, err := json.Marshal(d); err != nil || string(back) != want.back {
			t.Errorf("%s is written %s, %v; want %s", text, back, err, want.back)
		}
	}
}

func TestDurationNamesTheFieldThatIsNone(t *testing.T) {
	for _, text := range []string{`5`, `"5"`, `null`, `""`, `"-1s"`, `"soon"`, `true`, `{}`, `"1d"`, `["5s"]`} {
		var x struct {
			Spec struct{ Max Duration }
		}
		x.Spec.Max = 7
		err := json.Unmarshal([]byte(`{"Spec":{"Max":`+text+`}}`), &x)
		if err == nil || !strings.Contains(err.Error(), "Spec.Max") {
			t.Errorf("%s: got error %v, want one that names Spec.Max", text, err)
		}
		if x.Spec.Max != 7 {
			t.Errorf("%s: refused, and yet it is %v", text, x.Spec.Max)
		}
	}
}

func FuzzDuration(f *testing.F) {
	for _, s := range []string{`"12s"`, `"5m0s"`, `"-1s"`, `null`, `"1h0m"`, `"2540400h"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var d, back Duration
		if json.Unmarshal(text, &d) != nil {
			return
		}
		out, err := json.Marshal(d)
		if err != nil || d < 0 {
			t.Fatalf("%s was read as %d and written with %v", text, d, err)
		}
		if err := json.Unmarshal(out, &back); err != nil || back != d {
			t.Errorf("%s is %d, written %s, read as %d, %v", text, d, out, back, err)
		}
	})
}

// testConfig has the flags of a cluster without any of its own: D=40, G=50, P=5.
func testConfig(version string) *Config {
	return &Config{KubernetesVersion: version,
		Flags: map[string]map[string]Flag{
			"kubelet": {"nodeLeaseDurationSeconds": {"40", "configz"}},
			"kube-controller-manager": {"node-monitor-grace-period": {"50s", "flagz"}, "node-monitor-period": {"5s", "flagz"},
				"leader-elect-lease-duration": {Value: "15s"}, "leader-elect-retry-period": {Value: "2s"}, "node-eviction-rate": {"0.1", "flagz"}},
		},
		Nodes:  []Node{{"cp", "control-plane", "10.0.0.1"}, {"w1", "worker", "10.0.0.2"}, {"w2", "worker", "10.0.0.3"}},
		Target: []string{"w1"}, ControlNodes: []string{"cp", "w2"}, Canaries: []string{"0s", "300s"}}
}

func TestTimingNamesTheFlagThatIsWrong(t *testing.T) {
	for name, tc := range map[string]struct {
		set  func(*Config)
		want string
	}{
		"no flags":       {func(c *Config) { c.Flags = nil }, "nodeLeaseDurationSeconds of kubelet"},
		"no duration":    {func(c *Config) { delete(c.Flags["kubelet"], "nodeLeaseDurationSeconds") }, "nodeLeaseDurationSeconds of kubelet"},
		"bad duration":   {func(c *Config) { c.Flags["kubelet"]["nodeLeaseDurationSeconds"] = Flag{"forty", ""} }, `nodeLeaseDurationSeconds of kubelet: "forty"`},
		"no grace":       {func(c *Config) { delete(c.Flags["kube-controller-manager"], "node-monitor-grace-period") }, "node-monitor-grace-period of kube-controller-manager"},
		"no period":      {func(c *Config) { delete(c.Flags["kube-controller-manager"], "node-monitor-period") }, "node-monitor-period of kube-controller-manager"},
		"no rate":        {func(c *Config) { delete(c.Flags["kube-controller-manager"], "node-eviction-rate") }, "node-eviction-rate of kube-controller-manager"},
		"rate of zero":   {func(c *Config) { c.Flags["kube-controller-manager"]["node-eviction-rate"] = Flag{"0", ""} }, "node-eviction-rate"},
		"rate of NaN":    {func(c *Config) { c.Flags["kube-controller-manager"]["node-eviction-rate"] = Flag{"NaN", ""} }, "node-eviction-rate"},
		"rate below":     {func(c *Config) { c.Flags["kube-controller-manager"]["node-eviction-rate"] = Flag{"-1", ""} }, "node-eviction-rate"},
		"no version":     {func(c *Config) { c.KubernetesVersion = "" }, "kubernetesVersion"},
		"bare version":   {func(c *Config) { c.KubernetesVersion = "1.37.2" }, "kubernetesVersion"},
		"worded version": {func(c *Config) { c.KubernetesVersion = "vlatest" }, "kubernetesVersion"},
	} {
		t.Run(name, func(t *testing.T) {
			c := testConfig("v1.37.2")
			tc.set(c)
			if _, err := c.Timing(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
			if _, err := NewFold(c, FaultPlan{}, start); err == nil {
				t.Error("a fold was made of it")
			}
		})
	}
}

func TestTimingOfFlags(t *testing.T) {
	c := testConfig("v1.33.13")
	got, err := c.Timing()
	if want := (Timing{D: 40 * time.Second, G: 50 * time.Second, P: 5 * time.Second, Q: 0.1, F: 10 * time.Second, R: 5 * time.Minute, Unhealthy: 0.55}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if got.I() != 10900*time.Millisecond || got.Pass() != 5050*time.Millisecond {
		t.Errorf("I is %v and P' %v, want 10.9s and 5.05s", got.I(), got.Pass())
	}
	for version, race := range map[string]bool{"v1.33.0": false, "v1.34.0": true, "v1.34.0-beta.0": true, "v1.37.2": true, "v1.9.1": false, "v2.0.0": true, "v1.40.0+build": true} {
		c.KubernetesVersion = version
		if tim, err := c.Timing(); err != nil || tim.Race != race {
			t.Errorf("%s: race %v, %v; want %v", version, tim.Race, err, race)
		}
	}
}

func TestTimingWarnsWhenHealthyNodesWouldFlap(t *testing.T) {
	for _, tc := range []struct {
		d, g, r time.Duration
		warn    bool
	}{
		{40 * time.Second, 50 * time.Second, 0, false},
		{40 * time.Second, 10400 * time.Millisecond, 0, true}, // G = 0.26 D: not longer
		{40 * time.Second, 10401 * time.Millisecond, 0, false},
		{8 * time.Second, 2 * time.Second, 5 * time.Minute, true},
		{200 * time.Second, 50 * time.Second, 0, true},
		// A status report is a heartbeat too: with F = 1 s and reports as often.
		{40 * time.Second, 5 * time.Second, time.Second, false},
		{40 * time.Second, 1040 * time.Millisecond, time.Second, true},
		{40 * time.Second, 5 * time.Second, 4500 * time.Millisecond, true}, // in the fifth sync
		{40 * time.Second, 5201 * time.Millisecond, 4500 * time.Millisecond, false},
	} {
		w := Timing{D: tc.d, G: tc.g, F: time.Second, R: tc.r}.Warnings()
		if (len(w) > 0) != tc.warn {
			t.Errorf("D=%v G=%v: warnings %q", tc.d, tc.g, w)
		}
		if tc.warn && !strings.Contains(w[0], "node-monitor-grace-period "+Duration(tc.g).String()) {
			t.Errorf("the warning names no flag: %s", w[0])
		}
	}
}

func TestFlagOfNobodyIsEmpty(t *testing.T) {
	c := testConfig("v1.37.2")
	if got := c.Flag("kubelet", "nodeLeaseDurationSeconds") + c.Flag("kubelet", "x") + c.Flag("etcd", "x") + (&Config{}).Flag("a", "b"); got != "40" {
		t.Errorf("got %q", got)
	}
}

// A node is given up in a pass: a grace between two of them lasts to the next.
func TestWhole(t *testing.T) {
	for _, c := range []struct{ g, p, want time.Duration }{
		{50 * time.Second, 5 * time.Second, 50 * time.Second},
		{14 * time.Second, 3 * time.Second, 15 * time.Second},
		{2 * time.Second, 5 * time.Second, 5 * time.Second},
		{12 * time.Second, 0, 12 * time.Second},
	} {
		if got := (Timing{G: c.g, P: c.p}).Whole(); got != c.want {
			t.Errorf("a grace of %s in passes of %s is %s, want %s", c.g, c.p, got, c.want)
		}
	}
}

func TestSameValue(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"60s", "1m0s", true}, {"60s", "61s", false}, {"0.10", "0.1", true}, {"1", "1.0", true}, {"8", "8s", false}, {"8s", "8", false},
		{"True", "true", true}, {"true", "false", false}, {"", "", true}, {"", "0", false}, {"a", "a", true}, {"a", "b", false},
	} {
		if got := SameValue(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %v", c.a, c.b, got)
		}
	}
}

// A kubelet's syncs have 4 % of jitter, and a report waits for a sync.
func TestSyncsAndReports(t *testing.T) {
	for _, tc := range []struct{ f, r, sync, report time.Duration }{
		{10 * time.Second, 5 * time.Minute, 10400 * time.Millisecond, 312 * time.Second},
		{20 * time.Second, 20 * time.Second, 20800 * time.Millisecond, 20800 * time.Millisecond},
		{20 * time.Second, time.Second, 20800 * time.Millisecond, 20800 * time.Millisecond},
		{time.Second, 1500 * time.Millisecond, 1040 * time.Millisecond, 2080 * time.Millisecond},
	} {
		if tim := (Timing{F: tc.f, R: tc.r}); tim.Sync() != tc.sync || tim.Report() != tc.report {
			t.Errorf("F = %v, R = %v: %v, %v; want %v, %v", tc.f, tc.r, tim.Sync(), tim.Report(), tc.sync, tc.report)
		}
	}
	c := testConfig("v1.37.2")
	c.Flags["kubelet"]["nodeStatusUpdateFrequency"] = Flag{Value: "soon"}
	if _, err := c.Timing(); err == nil || !strings.Contains(err.Error(), "nodeStatusUpdateFrequency") {
		t.Errorf("error %v", err)
	}
}
