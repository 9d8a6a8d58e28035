package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flatline-chaos/flatline/experiments"
	"github.com/flatline-chaos/flatline/internal/record"
	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

const (
	grace = "kube-controller-manager.node-monitor-grace-period="
	lease = "kubelet.nodeLeaseDurationSeconds="
)

func sweepOf(t *testing.T, count int, set ...string) *Sweep {
	t.Helper()
	exp, err := chaos.Load(experiments.FS, "kubelet-stopped", "fast")
	if err != nil {
		t.Fatal(err)
	}
	s := &Sweep{Experiment: exp, Count: count}
	for _, text := range set {
		axis, err := chaos.ParseSettings(text)
		if err != nil {
			t.Fatal(err)
		}
		s.Axes = append(s.Axes, axis)
	}
	return s
}

func planOf(t *testing.T, s *Sweep, recs ...*record.Record) *Plan {
	t.Helper()
	p, err := s.Plan(recs)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func names(arms []*Arm) string {
	var s []string
	for _, a := range arms {
		s = append(s, strings.NewReplacer("node-monitor-grace-period=", "G", "nodeLeaseDurationSeconds=", "D").Replace(a.Name()))
	}
	return strings.Join(s, ", ")
}

func TestArms(t *testing.T) {
	each := sweepOf(t, 1, grace+"8s,12s,16s", lease+"4,8")
	each.Each = true
	for _, c := range []struct {
		sweep *Sweep
		want  string
	}{
		{sweepOf(t, 1, grace+"8s,12s,16s"), "G8s, G12s, G16s"},
		{sweepOf(t, 1, grace+"8s,16s", lease+"4,8"), "G8s D4, G8s D8, G16s D4, G16s D8"},
		{each, "as it stands, G8s, G16s, D4"}, // 12s and 8 are those of the profile

	} {
		if got := names(planOf(t, c.sweep).Arms); got != c.want {
			t.Errorf("arms are %s, want %s", got, c.want)
		}
	}
}

// Runs are interleaved, there and back again; what is on record is left out.
func TestOrder(t *testing.T) {
	p := planOf(t, sweepOf(t, 3, grace+"8s,12s,16s"))
	p.Arms[1].Runs = make([]*judge.Run, 2)
	if got := names(p.order(p.Arms)); got != "G8s, G12s, G16s, G16s, G8s, G8s, G16s" {
		t.Errorf("order is %s", got)
	}
}

// The shares of all shards are the whole, and hardly differ.
func TestShard(t *testing.T) {
	for count := range 12 {
		for of := 1; of < 6; of++ {
			sum, least, most := 0, count, 0
			for i := 1; i <= of; i++ {
				share := Shard{i, of}.share(count)
				sum, least, most = sum+share, min(least, share), max(most, share)
			}
			if sum != count || most-least > 1 {
				t.Errorf("%d runs in %d shards: %d, of %d to %d each", count, of, sum, least, most)
			}
		}
	}
	for _, text := range []string{"", "1", "0/2", "3/2", "a/2", "1/2/3"} {
		if _, err := ParseShard(text); err == nil {
			t.Errorf("shard %q is accepted", text)
		}
	}
	if s, err := ParseShard("2/3"); err != nil || s != (Shard{2, 3}) {
		t.Errorf("2/3 is %v, %v", s, err)
	}
}

func TestPlanRefuses(t *testing.T) {
	for _, c := range []struct {
		sweep *Sweep
		want  string
	}{
		{sweepOf(t, 0, grace+"8s"), "0 runs of each arm: want 1 or more"},
		{sweepOf(t, 1, grace+"8s", grace+"12s"), "kube-controller-manager.node-monitor-grace-period is set twice"},
		{sweepOf(t, 1, "kube-controller-manager.node-eviction-rate=0"), "node-eviction-rate"},
	} {
		var invalid *chaos.InvalidError
		if _, err := c.sweep.Plan(nil); !errors.As(err, &invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
}

// A setting with which healthy nodes flap by construction is not run, unless asked for.
func TestFlapping(t *testing.T) {
	s := sweepOf(t, 2, grace+"2s,8s")
	if p := planOf(t, s); !strings.Contains(p.Arms[0].Skip, "flap") || p.Arms[1].Skip != "" || p.Arms[0].missing() != 0 {
		t.Errorf("skipped: %q and %q", p.Arms[0].Skip, p.Arms[1].Skip)
	}
	s.AllowFlapping = true
	if p := planOf(t, s); p.Arms[0].Skip != "" || p.Arms[0].missing() != 2 {
		t.Errorf("skipped although allowed: %q", p.Arms[0].Skip)
	}
}

// A lab that has no clusters: it takes note of what is asked, and keeps what a disk would.
type fakeLab struct {
	did     []string
	disk    []*record.Record
	outcome func(exp *chaos.Experiment, n int) judge.Outcome
	runs    int
	stop    func() // called before the run with number stopAt
	stopAt  int
	flags   string // that the cluster goes by; "" without one
	refuse  error  // what Prepare says to a grace of 8s
	flap    bool   // a control node is Unknown for a moment
}

func (l *fakeLab) Prepare(_ context.Context, base, arm *chaos.Experiment) error {
	if l.flags == "" {
		l.did = append(l.did, "make")
	}
	if l.refuse != nil && arm.Flags()["kube-controller-manager"]["node-monitor-grace-period"] == "8s" {
		l.flags = "half"
		return l.refuse
	}
	flags, err := json.Marshal(arm.Flags())
	if err != nil {
		return err
	}
	if l.flags != string(flags) {
		l.did = append(l.did, "G"+arm.Flags()["kube-controller-manager"]["node-monitor-grace-period"])
	}
	l.flags = string(flags)
	return nil
}

func (l *fakeLab) Run(ctx context.Context, exp *chaos.Experiment) (*chaos.Result, error) {
	l.runs++
	l.did = append(l.did, exp.Metadata.Name)
	if l.stop != nil && l.runs == l.stopAt {
		l.stop()
		return nil, ctx.Err()
	}
	run := &judge.Run{RunID: fmt.Sprint(l.runs), Outcome: judge.OutcomePass, NodeImage: "node:1", Cost: judge.Cost{WallSeconds: 40, Phases: map[string]float64{}}}
	if l.outcome != nil {
		run.Outcome = l.outcome(exp, l.runs)
	}
	if l.flap {
		run.ControlChanges = []string{"control node worker changed: ReadyUnknown"}
		run.Reasons = run.ControlChanges
	}
	data, err := json.Marshal(exp)
	l.disk = append(l.disk, &record.Record{Experiment: data, Run: run})
	return &chaos.Result{Run: run}, err
}

func (l *fakeLab) Discard(context.Context) error {
	if l.flags != "" {
		l.did = append(l.did, "delete")
	}
	l.flags = ""
	return nil
}

func (l *fakeLab) count(name string) int {
	n := 0
	for _, d := range l.did {
		if d == name {
			n++
		}
	}
	return n
}

func quiet(string, ...any) {}

func TestRun(t *testing.T) {
	lab := &fakeLab{}
	p := planOf(t, sweepOf(t, 2, grace+"8s,12s"))
	if err := p.Run(t.Context(), lab, quiet); err != nil {
		t.Fatal(err)
	}
	const want = "make G8s soak kubelet-stopped G12s soak kubelet-stopped kubelet-stopped G8s kubelet-stopped delete"
	if got := strings.Join(lab.did, " "); got != want {
		t.Errorf("it did %s, want %s", got, want)
	}
}

// Wherever a sweep is stopped, the same one goes on and makes what is missing, and
// nothing twice.
func TestGoesOn(t *testing.T) {
	for at := 1; at <= 9; at++ {
		ctx, cancel := context.WithCancel(t.Context())
		lab := &fakeLab{stop: cancel, stopAt: at}
		s := sweepOf(t, 3, grace+"8s,12s")
		if err := planOf(t, s).Run(ctx, lab, quiet); at <= 8 && !errors.Is(err, context.Canceled) {
			t.Errorf("stopped at run %d: error %v", at, err)
		}
		if lab.flags != "" {
			t.Errorf("stopped at run %d: the cluster is left", at)
		}
		// A run that was cut short lies on the disk too.
		lab.disk = append(lab.disk, &record.Record{Experiment: lab.disk0(t, s), Run: &judge.Run{RunID: "cut", Outcome: judge.OutcomeContaminated}})
		lab.stop = nil
		if err := planOf(t, s, lab.disk...).Run(t.Context(), lab, quiet); err != nil {
			t.Fatal(err)
		}
		made := 8 // 6 and two soaks
		if at <= 8 {
			made++ // what was cut
		}
		if lab.runs != made {
			t.Errorf("stopped at run %d: %d runs were begun, want %d", at, lab.runs, made)
		}
		p := planOf(t, s, lab.disk...)
		if _, _, missing := p.Takes(); missing != 0 || len(p.Arms[0].Runs) != 3 || len(p.Arms[1].Runs) != 3 || p.Ignored != 1 {
			t.Errorf("stopped at run %d: %d are missing, arms have %d and %d, %d are ignored", at, missing, len(p.Arms[0].Runs), len(p.Arms[1].Runs), p.Ignored)
		}
	}
}

// disk0 is the first arm's experiment, as a record has it.
func (l *fakeLab) disk0(t *testing.T, s *Sweep) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(planOf(t, s).Arms[0].Experiment)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Runs of another node image, of other flags or of another profile are none of an arm.
func TestCountsOnlyItsOwn(t *testing.T) {
	lab := &fakeLab{}
	if err := planOf(t, sweepOf(t, 1, grace+"8s,12s")).Run(t.Context(), lab, quiet); err != nil {
		t.Fatal(err)
	}
	if p := planOf(t, sweepOf(t, 1, grace+"12s,16s"), lab.disk...); len(p.Arms[0].Runs) != 1 || len(p.Arms[1].Runs) != 0 {
		t.Errorf("arms have %d and %d runs, want 1 and 0", len(p.Arms[0].Runs), len(p.Arms[1].Runs))
	}
	other := sweepOf(t, 1, grace+"8s")
	other.Image = "node:2"
	if p := planOf(t, other, lab.disk...); len(p.Arms[0].Runs) != 0 || p.Arms[0].Soaked || p.Ignored != 1 {
		t.Errorf("runs of another image count: %d, %v, %d ignored", len(p.Arms[0].Runs), p.Arms[0].Soaked, p.Ignored)
	}
}

// An image of the same name and other content is another image.
func TestSameImage(t *testing.T) {
	s := &Sweep{Image: "node:1", ImageID: "sha256:1"}
	for id, want := range map[string]bool{"sha256:1": true, "sha256:2": false, "": true} {
		if got := s.sameImage(&judge.Run{NodeImage: "node:1", NodeImageID: id}); got != want {
			t.Errorf("%q counts: %t", id, got)
		}
	}
}

// Two shards, each with records of its own, are together what the whole is.
func TestShardsAreTheWhole(t *testing.T) {
	s := sweepOf(t, 3, grace+"8s,12s")
	var all []*record.Record
	for i := 1; i <= 2; i++ {
		lab := &fakeLab{}
		s.Shard = Shard{i, 2}
		if err := planOf(t, s).Run(t.Context(), lab, quiet); err != nil {
			t.Fatal(err)
		}
		all = append(all, lab.disk...)
	}
	s.Shard = Shard{}
	p := planOf(t, s, all...)
	if _, _, missing := p.Takes(); missing != 0 || len(p.Arms[0].Runs) != 3 || len(p.Arms[1].Runs) != 3 {
		t.Errorf("%d are missing, arms have %d and %d", missing, len(p.Arms[0].Runs), len(p.Arms[1].Runs))
	}
}

// A run without an answer is made again on another cluster; an arm that never comes to
// one is given up, and the others go on.
func TestNoAnswer(t *testing.T) {
	lab := &fakeLab{}
	lab.outcome = func(exp *chaos.Experiment, n int) judge.Outcome {
		if exp.Metadata.Name != "soak" && exp.Flags()["kube-controller-manager"]["node-monitor-grace-period"] == "8s" || n == 4 {
			return judge.OutcomeContaminated
		}
		return judge.OutcomePass
	}
	p := planOf(t, sweepOf(t, 1, grace+"8s,12s"))
	if err := p.Run(t.Context(), lab, quiet); err != nil {
		t.Fatal(err)
	}
	if a := p.Arms[0]; !strings.Contains(a.Skip, "no answer 3 times in a row") || len(a.Runs) != 0 {
		t.Errorf("the arm: %q, %d runs", a.Skip, len(a.Runs))
	}
	if a := p.Arms[1]; a.Skip != "" || len(a.Runs) != 1 {
		t.Errorf("the other arm: %q, %d runs", a.Skip, len(a.Runs))
	}
	if made, deleted := lab.count("make"), lab.count("delete"); made < 4 || made != deleted {
		t.Errorf("%d clusters were made and %d deleted: %v", made, deleted, lab.did)
	}
}

// A component that does not start with its flags ends its arm, and no other; without a
// cluster there is nothing to go on with.
func TestCannotPrepare(t *testing.T) {
	lab := &fakeLab{refuse: fmt.Errorf("setting flags: %w", &cluster.StartError{Component: "kube-controller-manager", Words: "unknown flag"})}
	p := planOf(t, sweepOf(t, 1, grace+"8s,12s"))
	if err := p.Run(t.Context(), lab, quiet); err != nil {
		t.Fatal(err)
	}
	if a := p.Arms[0]; a.Skip != "it cannot have its flags: setting flags: starting kube-controller-manager: unknown flag" || len(p.Arms[1].Runs) != 1 || lab.count("delete") != 2 {
		t.Errorf("skipped %q, the other has %d runs, %v", a.Skip, len(p.Arms[1].Runs), lab.did)
	}
	lab = &fakeLab{refuse: errors.New("the engine did not answer")} // which may pass
	p = planOf(t, sweepOf(t, 1, grace+"8s,12s"))
	if err := p.Run(t.Context(), lab, quiet); err != nil || !strings.Contains(p.Arms[0].Skip, "no answer 3 times") || len(p.Arms[1].Runs) != 1 {
		t.Errorf("%v, skipped %q, the other has %d runs", err, p.Arms[0].Skip, len(p.Arms[1].Runs))
	}
	lab = &fakeLab{refuse: fmt.Errorf("%w: no engine", ErrNoCluster)}
	if err := planOf(t, sweepOf(t, 1, grace+"8s,12s")).Run(t.Context(), lab, quiet); !errors.Is(err, ErrNoCluster) {
		t.Errorf("error %v", err)
	}
}

// An arm in which healthy nodes do not stay Ready is not run, unless asked for.
func TestSoak(t *testing.T) {
	for _, allow := range []bool{false, true} {
		// All nodes have the same flags: control nodes flap too, which contaminates.
		lab := &fakeLab{flap: true, outcome: func(*chaos.Experiment, int) judge.Outcome { return judge.OutcomeContaminated }}
		s := sweepOf(t, 2, grace+"8s")
		s.AllowFlapping = allow
		p := planOf(t, s)
		if err := p.Run(t.Context(), lab, quiet); err != nil {
			t.Fatal(err)
		}
		if a := p.Arms[0]; (a.Skip == "") != allow || (len(a.Runs) == 2) != allow || lab.runs != map[bool]int{false: 1, true: 3}[allow] {
			t.Errorf("allowed: %v: %q, %d runs of %d that were begun", allow, a.Skip, len(a.Runs), lab.runs)
		}
		if p := planOf(t, s, lab.disk...); allow && (len(p.Arms[0].Runs) != 2 || !p.Arms[0].Soaked) {
			t.Errorf("on record are %d runs, soaked: %v", len(p.Arms[0].Runs), p.Arms[0].Soaked)
		}
	}
}

// Flags that are changed in place share a cluster, made with what all arms have.
func TestGroups(t *testing.T) {
	each := sweepOf(t, 1, grace+"8s", lease+"4", "etcd.heartbeat-interval=200")
	each.Each = true
	groups := planOf(t, each).groups()
	if len(groups) != 2 || names(groups[0].arms) != "as it stands, G8s, D4" || names(groups[1].arms) != "heartbeat-interval=200" {
		t.Fatalf("groups are %v", groups)
	}
	flags := groups[0].base.Flags()
	if _, ok := flags["kubelet"]["nodeLeaseDurationSeconds"]; ok || flags["kube-controller-manager"]["node-monitor-period"] != "1s" || flags["kube-controller-manager"]["node-monitor-grace-period"] != "" {
		t.Errorf("the cluster is made with %v", flags)
	}
}

// Runs on record that name the statements they answer, a field of old, count as before.
func TestRecordsWithAnswersCount(t *testing.T) {
	exp, err := chaos.Load(experiments.FS, "csr-refused", "fast")
	if err != nil {
		t.Fatal(err)
	}
	recs, err := record.Read([]string{"../../docs/evidence/csr-refused-fast"})
	if err != nil {
		t.Fatal(err)
	}
	old := 0
	for _, rec := range recs {
		if strings.Contains(string(rec.Experiment), `"answers":[`) {
			old++
		}
	}
	if p := planOf(t, &Sweep{Experiment: exp, Count: 1}, recs...); old == 0 || len(p.Arms[0].Runs) != len(recs) {
		t.Errorf("of %d runs, %d with answers, %d count", len(recs), old, len(p.Arms[0].Runs))
	}
}
