package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flatline-chaos/flatline/experiments"
	"github.com/flatline-chaos/flatline/internal/kubefake"
	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
)

// A brittle world has nodes that answer whatever is asked, but for one time.
type brittle struct {
	t      *testing.T
	mu     sync.Mutex
	asked  int // so far
	fails  int // the one that fails; 0 is none
	failed string
	ca     string
	// changed says that something was to be broken, tried which scripts and verbs ran or failed.
	changed bool
	tried   map[string]int
}

var errBrittle = errors.New("it broke")

func (b *brittle) ask(what string, change bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	b.tried[what]++
	b.changed = b.changed || change
	if b.asked == b.fails {
		b.failed = what
		return errBrittle
	}
	return nil
}

// A brittleNode is one of them, which can be paused and guarded too.
type brittleNode struct {
	*brittle
	name   string
	paused bool
}

func (n *brittleNode) Exec(_ context.Context, stdin io.Reader, stdout io.Writer, argv ...string) error {
	if stdin != nil {
		_, _ = io.Copy(io.Discard, stdin)
	}
	script := scriptOf(argv)
	if err := n.ask(n.name+" "+script, slices.Contains(argv, "change")); err != nil {
		return err
	}
	for _, a := range [][2]string{
		{"cat /etc/kubernetes/pki", n.ca}, {`echo "$at $id"`, "1000.000000001 " + oldID + "\n"}, {"seq 1200", "1001.750000000\n"}, {"MainPID", "17\n"},
		{"echo $at $started", "1002.500000000 1002.600000000\n"}, {"date +%s.%N", "1002.500000000\n"}, {"systemctl is-active --quiet", ""}, {"get csr", "csr-1\n"},
	} {
		if strings.Contains(script, a[0]) {
			_, _ = io.WriteString(stdout, a[1])
			return nil
		}
	}
	return nil
}

func (n *brittleNode) Pause(context.Context) error {
	n.paused = true
	return n.ask(n.name+" pause", true)
}

func (n *brittleNode) Unpause(context.Context) error {
	err := n.ask(n.name+" unpause", false)
	n.paused = n.paused && err != nil
	return err
}

func (n *brittleNode) Paused(context.Context) (bool, error) { return n.paused, nil }

func (n *brittleNode) Guard(context.Context, time.Duration, time.Duration) error {
	return n.ask(n.name+" guard", false)
}

func (n *brittleNode) Sign(context.Context) (bool, error) { return false, nil }

func (n *brittleNode) Unguard(context.Context) error { return n.ask(n.name+" unguard", false) }

// unseen is a fault whose witness sees nothing, so that it is injected.
type unseen struct{ Fault }

func (unseen) Witness(context.Context, *Target) (Evidence, error) { return Evidence{}, nil }

func (f unseen) Kept(ctx context.Context, t *Target) error {
	if k, ok := f.Fault.(Keeper); ok {
		return k.Kept(ctx, t)
	}
	return nil
}

// brittleStory is a run's story from the snapshot before to the one after, of which the
// part of the given number fails.
func brittleStory(t *testing.T, exp *Experiment, ca string, fails int) (b *brittle, r *run) {
	b = &brittle{t: t, fails: fails, ca: ca, tried: map[string]int{}}
	r = &run{exp: exp, id: runID, dir: t.TempDir(), fault: unseen{kinds()[exp.Spec.Fault.Type].make()}, nodes: map[string]Node{}, stopAlive: func() {}}
	r.rec = observe.NewRecorder(nil)
	client, _ := kubefake.New(renewedLater("c1-worker2"), renewedLater("c1-worker3"), binding(rotationRole, allNodes))
	r.target = &Target{RunID: runID, Spec: exp.Spec.Fault, Client: client, Emit: r.rec.Emit}
	containers := map[string]string{}
	for _, name := range []string{"c1-control-plane", "c1-worker", "c1-worker2", "c1-worker3"} {
		n := Node{name, &brittleNode{brittle: b, name: name}}
		r.nodes[name], containers[name] = n, "id"
		if name < "c1-worker2" {
			r.target.ControlNodes = append(r.target.ControlNodes, n)
		} else {
			r.target.Nodes = append(r.target.Nodes, n)
		}
	}
	r.target.ControlPlane = r.nodes["c1-control-plane"]
	plan, err := PlanFor(exp, "v1.37")
	if err != nil {
		t.Fatal(err)
	}
	r.cfg = plan.Config
	if r.target.Timing, err = r.cfg.Timing(); err != nil {
		t.Fatal(err)
	}
	if r.fold, err = judge.NewFold(&r.cfg, judge.FaultPlan{}, r.rec.Start()); err != nil {
		t.Fatal(err)
	}
	if r.journal, err = CreateJournal(filepath.Join(r.dir, "journal.jsonl"), "c1", runID, containers); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	before := func() error {
		found := r.snapshot(ctx, "before")
		if left := leftover(found); left != "" {
			return errors.New(left)
		}
		return errors.Join(r.journal.Before(found), r.stageSpares(ctx), r.prepare(ctx))
	}
	if err := before(); err != nil {
		r.setupFailed(ctx, err)
		return b, r
	}
	if err := r.strike(ctx); err != nil {
		r.injectFailed(err)
	}
	r.putRight(ctx)
	r.conclude()
	return b, r
}

// Of every fault every single thing that is asked of a node fails in turn. Before the first
// change nothing is broken then, and what was staged goes; after it each step of the undo and the
// repair is taken all the same, and a step that failed leaves the journal open.
func TestEveryStepFailsOnce(t *testing.T) {
	authority := testAuthority(t, newKey(t))
	ca := block("CERTIFICATE", authority.cert.Raw) + pkcs8(t, authority.key)
	var mu sync.Mutex
	points := map[string]int{}
	t.Cleanup(func() {
		sum := 0
		for _, n := range points {
			sum += n
		}
		t.Logf("%d faults and triggers, %d points", len(points), sum)
	})
	for name, k := range kinds() {
		if k.make == nil {
			continue
		}
		for _, trigger := range []string{"", byRestart, byRotation} {
			exp := experimentOf(t, name, trigger)
			if exp == nil {
				continue
			}
			t.Run(strings.TrimSpace(name+" "+trigger), func(t *testing.T) {
				t.Parallel()
				each := 1
				if testing.Short() { // with the race detector a part of them is enough
					each = 9
				}
				for fails := 0; ; fails += each {
					var b *brittle
					synctest.Test(t, func(t *testing.T) {
						var r *run
						b, r = brittleStory(t, exp, ca, fails)
						b.check(t, r)
					})
					if fails > 0 && b.failed == "" {
						break
					}
					mu.Lock()
					points[name+" "+trigger] += min(fails, 1) // without a failure it is none
					mu.Unlock()
				}
			})
		}
	}
}

// experimentOf is one that ships with that fault, as it is in the fast profile; nil if none does.
func experimentOf(t *testing.T, name, trigger string) *Experiment {
	all, err := fs.Glob(experiments.FS, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		exp, err := Load(experiments.FS, strings.TrimSuffix(file, ".yaml"), "fast")
		if err == nil && exp.Spec.Fault.Type == name && exp.Spec.Fault.Trigger == trigger {
			return exp
		}
	}
	return nil
}

func (b *brittle) check(t *testing.T, r *run) {
	t.Helper()
	outcome := r.verdict().Outcome
	where := fmt.Sprintf("at %d, %.80q", b.fails, b.failed)
	missing := func(kinds ...string) {
		for _, kind := range kinds {
			for _, s := range r.journal.Steps(kind) {
				if b.tried[s.On+" "+cmp.Or(s.Script, s.Do)] == 0 && s.Do != "unpause" { // which looks first
					t.Errorf("%s: %s was not tried: %s on %s", where, kind, s.Desc, s.On)
				}
			}
		}
	}
	step := func(kinds ...string) bool {
		for _, kind := range kinds {
			for _, s := range r.journal.Steps(kind) {
				if b.failed == s.On+" "+cmp.Or(s.Script, s.Do) {
					return true
				}
			}
		}
		return false
	}
	if b.changed {
		missing("undo", "repair")
	} else {
		missing("clean")
	}
	for name, n := range r.nodes {
		if n.Node.(*brittleNode).paused && !step("undo") && !strings.HasSuffix(b.failed, "unpause") {
			t.Errorf("%s: %s stays paused", where, name)
		}
	}
	closed := r.journal.records[len(r.journal.records)-1].Kind == "closed"
	if (outcome == judge.OutcomeDirty) == closed {
		t.Errorf("%s: outcome %s, journal closed %v", where, outcome, closed)
	}
	if step("undo", "repair") { // what is staged is needed for the next try
		for _, s := range r.journal.Steps("clean") {
			if b.tried[s.On+" "+cmp.Or(s.Script, s.Do)] > 0 {
				t.Errorf("%s: a step failed, and %s on %s", where, s.Desc, s.On)
			}
		}
	}
	if step("undo", "repair", "clean") && outcome != judge.OutcomeDirty {
		t.Errorf("%s: a step failed, and the outcome is %s", where, outcome)
	}
	if b.fails == 0 && (outcome == judge.OutcomeDirty || outcome == judge.OutcomeSetupFailed) {
		t.Errorf("nothing failed, and the outcome is %s: %q", outcome, r.verdict().Reasons)
	}
}
