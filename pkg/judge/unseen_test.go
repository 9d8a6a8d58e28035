package judge

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// planWith is an experiment of a fault that expects and denies.
func planWith(t *testing.T, fault string, expect, never []Expectation) *Plan {
	t.Helper()
	var p Plan
	if err := json.Unmarshal([]byte(fault), &p.Spec.Fault); err != nil {
		t.Fatal(err)
	}
	p.Spec.Expect, p.Spec.Never = expect, never
	return &p
}

func TestALimitThatNoRunCanMeetIsTold(t *testing.T) {
	limits := func(milestone, subject string, low, high time.Duration) Expectation {
		return Expectation{Milestone: milestone, Subject: subject, Min: Duration(low), Max: Duration(high), Why: "ours"}
	}
	const denied, rotates = `{"type":"csr-denied","certificate":{"mint":"40s"}}`, `{"type":"rotation","certificate":{"mint":"60s","rotate":"later"}}`
	s := time.Second
	for name, tc := range map[string]struct {
		fault, version string
		x              Expectation
		field, want    string // "" where the limit can be met
	}{
		"a max before the window":           {denied, "v1.37.2", limits(PodEvicted, "30s", 0, 29*s), "max", "at least 29.95s, or no max"},
		"a max in the window":               {denied, "v1.37.2", limits(PodEvicted, "30s", 0, 30*s), "", ""},
		"a max behind the window":           {denied, "v1.37.2", limits(PodEvicted, "30s", 0, 50*s), "", ""},
		"a min behind the window":           {denied, "v1.37.2", limits(PodEvicted, "30s", 32*s, 0), "min", "at most 31s, or no min"},
		"a min and a max behind it":         {denied, "v1.37.2", limits(PodEvicted, "30s", 32*s, 40*s), "min", "at most 31s, or no min"},
		"a min in the window":               {denied, "v1.37.2", limits(PodEvicted, "30s", 30500*time.Millisecond, 40*s), "", ""},
		"between the branches":              {denied, "v1.37.2", limits(NoExecuteTainted, "", 5*s, 6*s), "min", "no part of the window"},
		"one branch of two":                 {denied, "v1.37.2", limits(NoExecuteTainted, "", 2*s, 20*s), "", ""},
		"there is one branch in older ones": {denied, "v1.33.0", limits(NoExecuteTainted, "", 5*s, 6*s), "", ""},
		"a milestone without a bound":       {denied, "v1.37.2", limits(PodsBack, "", 0, time.Millisecond), "", ""},
		"the run knows more than the plan":  {rotates, "v1.37.2", limits(CSRCreated, "", 57*s, 0), "", ""},
		"but not that much":                 {rotates, "v1.37.2", limits(CSRCreated, "", 90*s, 0), "min", "or no min"},
		"no limit":                          {denied, "v1.37.2", limits(PodEvicted, "30s", 0, 0), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			u, ok, err := testConfig(tc.version).Unseen(planWith(t, tc.fault, []Expectation{tc.x}, nil), tc.x)
			if err != nil || ok != (tc.field != "") || u.Field != tc.field || !strings.Contains(u.Want, tc.want) {
				t.Errorf("%+v %v %v, want %s: %s", u, ok, err, tc.field, tc.want)
			}
		})
	}
}

// What comes before the undo cannot be expected and denied. What comes after it can: a denial ends
// with the undo.
func TestWhatIsExpectedAndDenied(t *testing.T) {
	of := func(name string) Expectation { return Expectation{Milestone: name} }
	for name, tc := range map[string]struct {
		fault string
		x     Expectation
		never Expectation
		bad   bool
	}{
		"a loss":                        {`{"type":"kubelet-stopped"}`, of(ReadyUnknown), of(ReadyUnknown), true},
		"the way back":                  {`{"type":"kubelet-stopped"}`, of(ReadyTrue), of(ReadyTrue), false},
		"a way back without a repair":   {`{"type":"rotation","certificate":{"mint":"60s"}}`, of(CertificateRotated), of(CertificateRotated), true},
		"another subject":               {`{"type":"kubelet-stopped"}`, Expectation{Milestone: PodEvicted, Subject: "0s"}, Expectation{Milestone: PodEvicted, Subject: "5s"}, false},
		"another milestone of the loss": {`{"type":"kubelet-stopped"}`, of(ReadyUnknown), of(ReadyFalse), false},
	} {
		t.Run(name, func(t *testing.T) {
			u, ok, err := testConfig("v1.37.2").Unseen(planWith(t, tc.fault, []Expectation{tc.x}, []Expectation{tc.never}), tc.x)
			if err != nil || ok != tc.bad || ok && u.Field != "milestone" {
				t.Errorf("%+v %v %v", u, ok, err)
			}
		})
	}
}

func TestADenialThatIsTrueWhateverHappensIsVacuous(t *testing.T) {
	of := func(names ...string) (xs []Expectation) {
		for _, name := range names {
			name, subject, _ := strings.Cut(name, " ")
			xs = append(xs, Expectation{Milestone: name, Subject: subject})
		}
		return xs
	}
	const crash, frozen, stopped = `{"type":"cert-empty","trigger":"restart"}`, `{"type":"containerd-frozen"}`, `{"type":"kubelet-stopped"}`
	for name, tc := range map[string]struct {
		fault string
		never []Expectation
		want  string // of the last one
	}{
		"what may come":                        {stopped, of(NoExecuteTainted), ""},
		"what may come after what may":         {stopped, of(ReadyTrue), ""},
		"use without rotation":                 {stopped, of(CertificateRotated, CertificateInUse), "only after CertificateRotated, which must not occur either"},
		"use after a rotation that may come":   {stopped, of(CertificateInUse), ""},
		"pods of a node that is not Unknown":   {frozen, of(ReadyUnknown, PodsUnready), "only after ReadyUnknown, which"},
		"Ready after False is on record there": {frozen, of(ReadyUnknown, ReadyTrue), ""},
		"and nowhere else":                     {stopped, of(ReadyUnknown, ReadyTrue), "only after ReadyUnknown, which"},
		"one after the other":                  {stopped, of(ReadyUnknown, PodsBack), "only after ReadyTrue, which is not recorded either"},
		"after one of two":                     {stopped, of(NoScheduleTainted, TaintsGone), ""},
		"after neither of two":                 {stopped, of(NoScheduleTainted, NotReadyTainted, TaintsGone), "only after NoScheduleTainted, which must not occur either or NotReadyTainted"},
		"one effect of two":                    {stopped, of(NoScheduleTainted, "NotReadyTainted NoExecute", TaintsGone), ""},
		"a taint again, without a first":       {stopped, of(NoExecuteTainted, "NoExecuteTainted again"), "only after NoExecuteTainted, which"},
		"a taint again":                        {stopped, of("NoExecuteTainted again"), ""},
		"the end of no certificate":            {crash, of(CertificateExpired), "no certificate whose end"},
		"the end of one that is in memory":     {`{"type":"cert-empty","trigger":"rotation"}`, of(CertificateExpired), ""},
		"the end of one that is there":         {`{"type":"cert-unreadable","trigger":"restart"}`, of(CertificateExpired), ""},
		"what the run does":                    {stopped, of(RepairDone), "what the run itself does"},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := Denials(planWith(t, tc.fault, nil, tc.never))
			if err != nil || len(all) != len(tc.never) {
				t.Fatalf("%v %v", all, err)
			}
			if got := all[len(all)-1]; (got.Vacuous == "") != (tc.want == "") || !strings.Contains(got.Vacuous, tc.want) {
				t.Errorf("%s: %q, want %q", got.title(), got.Vacuous, tc.want)
			}
		})
	}
}

// What a milestone needs stands before it, and somebody can see both.
func TestNeedsAreMilestones(t *testing.T) {
	for _, r := range Chain() {
		for _, name := range r.Needs {
			if RowOf(name).Name == "" || len(r.Sources) == 0 {
				t.Errorf("%s needs %q", r.Name, name)
			}
		}
	}
	for _, name := range []string{NotReadyTainted, NoExecuteTainted} {
		if len(RowOf(name).Sources) == 0 {
			t.Errorf("nobody sees %s", name)
		}
	}
}
