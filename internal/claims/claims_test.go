package claims

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flatline-chaos/flatline/pkg/judge"
)

// tunedRun is a run of kubelet-stopped with a Lease duration, a report frequency and a
// grace, in which Unknown came so long after the last renewal.
func tunedRun(profile, lease, frequency, grace string, unknown float64) *judge.Run {
	report := "5m0s"
	if frequency != "10s" {
		report = frequency // it follows
	}
	return &judge.Run{RunID: fmt.Sprint(profile, lease, frequency, unknown), Experiment: "kubelet-stopped", Profile: profile,
		Outcome: judge.OutcomePass, Target: []string{"w1"},
		Flags: map[string]map[string]judge.Flag{
			"kubelet": {"nodeLeaseDurationSeconds": {Value: lease}, "nodeStatusUpdateFrequency": {Value: frequency},
				"nodeStatusReportFrequency": {Value: report}},
			"kube-controller-manager": {"node-monitor-grace-period": {Value: grace}, "node-monitor-period": {Value: "5s"}},
			"kubelet/w2":              {"nodeLeaseDurationSeconds": {Value: fmt.Sprint(unknown)}}, // of one cluster only
		},
		Milestones: []judge.Result{{Name: judge.ReadyUnknown, Node: "w1", Seconds: &unknown,
			After: &judge.After{Name: judge.LeaseStalled, Seconds: unknown}}},
	}
}

func TestOneFlagChanged(t *testing.T) {
	var runs []*judge.Run
	for i := range 3 {
		d := float64(i) / 10
		runs = append(runs, tunedRun("fast", "8", "10s", "12s", 12.4+d), tunedRun("fast", "16", "10s", "12s", 12.5+d),
			tunedRun("fast", "8", "4s", "12s", 12.6+d), tunedRun("fast", "8", "10s", "16s", 16.4+d))
	}
	for name, want := range map[string]string{
		"nodeLeaseDurationSeconds": "with a grace of 12s, Ready=Unknown after the last renewal: 12.6 s with " +
			"nodeLeaseDurationSeconds 16 (median of 3), 12.5 s with nodeLeaseDurationSeconds 8 (median of 3)",
		"nodeStatusUpdateFrequency": "with a grace of 12s, Ready=Unknown after the last renewal: 12.5 s with " +
			"nodeStatusUpdateFrequency 10s (median of 3), 12.7 s with nodeStatusUpdateFrequency 4s (median of 3)",
	} {
		if got := oneFlagChanged(runs, "kubelet", name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := oneFlagChanged(runs[:1], "kubelet", "nodeLeaseDurationSeconds"); got != "" {
		t.Errorf("one run alone: %q", got)
	}
	if runs[0].Flags["kubelet"]["nodeStatusReportFrequency"].Value != "5m0s" {
		t.Error("the runs themselves were changed")
	}
}

// A run of the default profile with other timers says nothing about defaults.
func TestDefaultsAreKubernetesOwn(t *testing.T) {
	own, other := tunedRun("default", "40", "10s", "50s", 53), tunedRun("default", "40", "10s", "20s", 23)
	own.Experiment, other.Experiment = "csr-denied", "csr-denied"
	for _, a := range Answers([]*judge.Run{own, other}) {
		if a.ID == "C04" && !strings.HasPrefix(a.Measured, "Ready=Unknown 53 s after the last renewal") {
			t.Errorf("C04: %q", a.Measured)
		}
		if a.ID == "C11" && (len(a.Runs) != 1 || a.Runs[0] != own.RunID) {
			t.Errorf("C11 is answered by %v", a.Runs)
		}
	}
}

// A claim about a time stands at its own milestone and at no other.
func TestOn(t *testing.T) {
	for _, test := range []struct{ milestone, subject, want string }{
		{judge.LeaseStalled, "", "C10 10"},
		{judge.ReadyUnknown, "", "C11 40"},
		{judge.PodEvicted, "300s", "C15 300"},
		{judge.PodEvicted, "5s", ""},
		{judge.CSRCreated, "", ""},
		{"", "", ""}, // of a record of strangers
	} {
		got := ""
		for _, c := range On(judge.Result{Name: test.milestone, Subject: test.subject}) {
			got += fmt.Sprintf("%s %g", c.ID, c.Seconds)
		}
		if got != test.want {
			t.Errorf("%s %s: %q, want %q", test.milestone, test.subject, got, test.want)
		}
	}
}

// Every statement can be answered in one way at most, and one that is about runs says what
// they show.
func TestStatementsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range statements {
		ways := 0
		for _, has := range []bool{s.answer != nil, s.measured != nil, s.text != ""} {
			if has {
				ways++
			}
		}
		if ways > 1 || (s.shows != "") != (s.measured != nil || s.text != "") || s.said == "" || seen[s.id] {
			t.Errorf("%s: %d ways to answer it, shows %q, said %q, listed before %v", s.id, ways, s.shows, s.said, seen[s.id])
		}
		seen[s.id] = true
	}
}
