//go:build real

// Tests on real clusters that the smoke suite does not need every time: what the
// runner says when it is sabotaged, and what it leaves behind when interrupted.
//
//	NODE_IMAGE=... go test -tags real -run TestReal -timeout 60m -v ./pkg/chaos
package chaos

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flatline-chaos/flatline/experiments"
	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

func realRun(t *testing.T, opts Options) *run { return realRunOf(t, "csr-denied", opts) }

func realRunOf(t *testing.T, name string, opts Options) *run {
	t.Helper()
	exp, err := Load(experiments.FS, name, "fast")
	if err != nil {
		t.Fatal(err)
	}
	opts.Artifacts = cmp.Or(os.Getenv("ARTIFACTS"), t.TempDir()) // to keep the record
	opts.Image = cluster.Choice{Override: os.Getenv("NODE_IMAGE")}
	opts.Log = io.Discard
	r, err := begin(exp, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// An API server reconciles its own roles when it starts. The one that the fault
// changed must stay as it is: nothing is signed before the release.
func TestRealSignerStaysOffWhenTheAPIServerRestarts(t *testing.T) {
	r := realRunOf(t, "signer-off", Options{})
	var restarted atomic.Bool
	r.opts.Progress = func(u judge.Update) {
		logUpdates(t)(u)
		if u.Milestone != nil && u.Milestone.Name == judge.CSRApproved && restarted.CompareAndSwap(false, true) {
			go func() { // not here: the recorder waits
				if _, err := r.target.ControlPlane.script(t.Context(), nil, "crictl stop $(crictl ps -q --name '^kube-apiserver$')"); err != nil {
					t.Errorf("stopping the API server: %v", err)
				}
			}()
		}
	}
	run, err := r.story(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]float64{}
	for _, m := range run.Milestones {
		if m.Seconds != nil {
			at[m.Name] = *m.Seconds
		}
	}
	changed := slices.ContainsFunc(run.Reasons, func(s string) bool { return strings.HasPrefix(s, "kube-apiserver changed identity") })
	if !restarted.Load() || !changed {
		t.Errorf("the API server was not restarted: %s %v", run.Outcome, run.Reasons)
	}
	if at[judge.CSRIssued] == 0 || at[judge.CSRIssued] < at[judge.FaultReleased] {
		t.Errorf("issued at %g s, the right came back at %g s", at[judge.CSRIssued], at[judge.FaultReleased])
	}
	t.Logf("approved at %g s, issued at %g s, the right came back at %g s; %s %v", at[judge.CSRApproved], at[judge.CSRIssued], at[judge.FaultReleased], run.Outcome, run.Reasons)
	nothingLeft(t, r.cluster.Name)
}

// noInjection says that it broke something and does not.
type noInjection struct{ Fault }

func (f noInjection) Inject(_ context.Context, t *Target) error {
	t.injected(time.Now(), "nothing")
	return nil
}

func TestRealInjectionLeftOut(t *testing.T) {
	r := realRun(t, Options{Progress: logUpdates(t)})
	r.fault = noInjection{r.fault}
	run, err := r.story(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if run.Outcome != judge.OutcomeNotInjected {
		t.Errorf("outcome is %s (%v), want %s", run.Outcome, run.Reasons, judge.OutcomeNotInjected)
	}
	nothingLeft(t, r.cluster.Name)
}

// A deafNode does as if every undo and repair step had worked.
type deafNode struct {
	Node
	run *run
}

func (n deafNode) Exec(ctx context.Context, stdin io.Reader, stdout io.Writer, argv ...string) error {
	if n.run.journal != nil {
		for _, s := range append(n.run.journal.Steps("undo"), n.run.journal.Steps("repair")...) {
			if slices.Contains(argv, s.Script) {
				_, err := fmt.Fprintf(stdout, "%d.%09d\n", time.Now().Unix(), time.Now().Nanosecond())
				return err
			}
		}
	}
	return n.Node.Exec(ctx, stdin, stdout, argv...)
}

func TestRealUndoAndRepairLeftOut(t *testing.T) {
	r := realRun(t, Options{Progress: logUpdates(t)})
	r.wrap = func(n Node) Node { return Node{Name: n.Name, Node: deafNode{n, r}} }
	run, err := r.story(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if run.Outcome != judge.OutcomeDirty {
		t.Fatalf("outcome is %s (%v), want %s", run.Outcome, run.Reasons, judge.OutcomeDirty)
	}
	t.Logf("dirty: %s", strings.Join(run.Reasons, "\n"))
	for range 2 { // any number of times
		p, err := Examine(t.Context(), r.dir)
		if err == nil {
			err = p.Heal(t.Context(), func(s string) { t.Log(s) })
		}
		if err != nil {
			t.Error(err)
		}
	}
	c, err := cluster.Open(t.Context(), r.cluster.Name, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes() {
		var out bytes.Buffer
		if err := n.Exec(t.Context(), nil, &out, "bash", "-c", snapshotScript()); err != nil {
			t.Error(err)
		}
		t.Logf("%s after healing:\n%s", n.Name, out.String())
		for _, want := range []string{"kubelet=active\n", "bootstrap=absent\n", "link=good\n", "pending=absent\n", "staged=\n", "ours=0\n", "timers=0\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: not %q after healing", n.Name, strings.TrimSpace(want))
			}
		}
	}
	var binding bytes.Buffer
	if err := c.Nodes()[0].Exec(t.Context(), nil, &binding, "bash", "-c",
		admin+"get clusterrolebinding "+rotationBinding+" -o jsonpath='{.subjects[*].kind} {.subjects[*].name}'; "+admin+"get nodes"); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(binding.String(), "Group system:nodes") || strings.Contains(binding.String(), "NotReady") {
		t.Errorf("after healing: %s", binding.String())
	}
	if err := r.cluster.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	nothingLeft(t, r.cluster.Name)
}

func TestRealInterrupt(t *testing.T) {
	for _, phase := range []string{"create", "steady", "inject", "hold", "undo", "repair", "collect"} {
		t.Run(phase, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var timer *time.Timer
			r := realRun(t, Options{})
			r.opts.Progress = func(u judge.Update) {
				logUpdates(t)(u)
				if u.Phase == phase { // somewhere inside of it
					after := map[string]time.Duration{"create": 20 * time.Second, "steady": 2 * time.Second, "hold": 20 * time.Second}[phase]
					timer = time.AfterFunc(after, cancel)
				}
			}
			run, err := r.story(ctx)
			if timer == nil || !errors.Is(err, context.Canceled) {
				t.Fatalf("the run was not interrupted: %v", err)
			}
			if run.Outcome == judge.OutcomeDirty {
				t.Errorf("dirty: %v", run.Reasons)
			}
			t.Logf("outcome %s: %v", run.Outcome, run.Reasons)
			nothingLeft(t, ClusterName(r.id))
		})
	}
}

func nothingLeft(t *testing.T, name string) {
	t.Helper()
	infos, err := cluster.List(t.Context())
	if err != nil {
		t.Error(err)
	}
	for _, i := range infos {
		if i.Name == name {
			t.Errorf("left behind: %+v", i)
		}
	}
}

func logUpdates(t *testing.T) func(judge.Update) {
	return func(u judge.Update) {
		switch {
		case u.Phase != "" || u.Text != "":
			t.Logf("%6.1fs %s%s", u.Elapsed.Seconds(), u.Phase, u.Text)
		case u.Milestone != nil:
			t.Logf("%6.1fs %s", u.Elapsed.Seconds(), u.Milestone.Title())
		}
	}
}
