// Package suites runs experiments on real clusters as Ginkgo specs. Each
// experiment is an ordered container: it runs once, and every expectation is a
// spec of its own, so that a report tells a missed window from a failed set-up.
//
// Experiments that need the same cluster share one.
package suites

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"

	"github.com/flatline-chaos/flatline/experiments"
	"github.com/flatline-chaos/flatline/internal/report"
	"github.com/flatline-chaos/flatline/internal/sweep"
	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// Limits that end what hangs, far above what the slowest machine takes: no clock of flatline's
// decides whether a spec passes.
const (
	hangTimeout = 6 * time.Hour
	// cleanupTimeout is how long an interrupted run may take to put things right.
	cleanupTimeout = time.Hour
)

func TestSuites(t *testing.T) {
	RegisterFailHandler(Fail)
	profile := os.Getenv("PROFILE")
	if profile == "" {
		profile = "fast"
	}
	names, err := chaos.Names(experiments.FS)
	if err != nil {
		t.Fatal(err)
	}
	suite, reporter := GinkgoConfiguration()
	suite.GracePeriod = cleanupTimeout
	matches, err := types.ParseLabelFilter(suite.LabelFilter)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names { // specs must be there before RunSpecs
		exp, err := chaos.Load(experiments.FS, name, profile)
		if err != nil {
			t.Fatal(err)
		}
		if matches(labelsOf(exp)) { // else its specs would be counted as skipped
			describe(exp)
		}
	}
	if smoke := (Labels{"tier:smoke"}); matches(smoke) && profile == "fast" {
		describeTune(smoke)
	}
	RunSpecs(t, "flatline experiments", suite, reporter)
}

// labelsOf are the labels of an experiment's specs: "tier:smoke".
func labelsOf(exp *chaos.Experiment) Labels {
	var labels Labels
	for _, k := range slices.Sorted(maps.Keys(exp.Metadata.Labels)) {
		labels = append(labels, k+":"+exp.Metadata.Labels[k])
	}
	return labels
}

// describe makes the specs of one experiment.
func describe(exp *chaos.Experiment) bool {
	return Describe(exp.Metadata.Name, Ordered, ContinueOnFailure, labelsOf(exp), func() {
		var run *chaos.Result
		BeforeAll(func(ctx SpecContext) {
			c, err := shared.get(ctx, exp)
			Expect(err).NotTo(HaveOccurred(), "creating the cluster")
			run, err = runOnce(ctx, exp, c)
			Expect(err).NotTo(HaveOccurred(), "running the experiment")
			again := ""
			if run.Outcome.ExitCode() == noAnswer && !run.AsWanted() { // never a fail, never a dirty
				AddReportEntry("repeated once", fmt.Sprintf("%s: %v", run.Outcome, run.Reasons))
				again = fmt.Sprintf("first %s: %v; then ", run.Outcome, run.Reasons)
				run, err = runOnce(ctx, exp, c)
				Expect(err).NotTo(HaveOccurred(), "running the experiment again")
			}
			Expect(run.Outcome).To(BeElementOf(wanted(exp), judge.OutcomeFail), "nothing can be said of the cluster: %s%s: %v", again, run.Outcome, run.Reasons)
		}, NodeTimeout(hangTimeout))

		for _, x := range exp.Spec.Expect {
			It("reaches "+title(x), func() { expectPass(run.Run, x, false) })
		}
		for _, x := range exp.Spec.Never {
			It("does not reach "+title(x)+" before the undo", func() { expectPass(run.Run, x, true) })
		}
		It("comes to "+string(wanted(exp))+" as a whole", func() {
			Expect(run.Outcome).To(Equal(wanted(exp)), "%v", run.Reasons)
		})
	})
}

// describeTune makes the specs of a sweep: a flag of the cluster that the experiments
// share is changed in place, and taken back.
func describeTune(labels Labels) bool {
	return Describe("tune", Ordered, labels, func() {
		const component, flag = "kube-controller-manager", "node-monitor-grace-period"
		var lab *sharedLab
		var plan *sweep.Plan
		BeforeAll(func(ctx SpecContext) {
			exp, err := chaos.Load(experiments.FS, "kubelet-stopped", "fast")
			Expect(err).NotTo(HaveOccurred())
			axis, err := chaos.ParseSettings(component + "." + flag + "=8s")
			Expect(err).NotTo(HaveOccurred())
			plan, err = (&sweep.Sweep{Experiment: exp, Axes: [][]chaos.Setting{axis}, Count: 1}).Plan(nil)
			Expect(err).NotTo(HaveOccurred())
			lab = &sharedLab{as: exp}
			Expect(plan.Run(ctx, lab, func(format string, args ...any) { fmt.Fprintf(GinkgoWriter, format+"\n", args...) })).To(Succeed())
		}, NodeTimeout(hangTimeout))

		It("has healthy nodes stay Ready with the other flag", func() {
			Expect(plan.Arms[0].Soaked).To(BeTrue(), plan.Arms[0].Skip)
		})
		It("makes a run that passes", func() {
			Expect(plan.Arms[0].Runs).To(HaveLen(1), plan.Arms[0].Skip)
			Expect(plan.Arms[0].Runs[0].Outcome).To(Equal(judge.OutcomePass), "%v", plan.Arms[0].Runs[0].Reasons)
		})
		It("has the process itself say the other flag, and the window follow it", func() {
			run := plan.Arms[0].Runs[0]
			Expect(run.Flags[component][flag]).To(Equal(judge.Flag{Value: "8s", Origin: "flagz"}))
			i := slices.IndexFunc(run.Milestones, func(m judge.Result) bool { return m.Name == judge.ReadyUnknown })
			Expect(run.Milestones[i].Window.Why).To(ContainSubstring("grace G = 8s"))
			Expect(run.Milestones[i].Verdict).To(Equal(judge.Pass), run.Milestones[i].Explain())
		})
		It("takes the flag back", func(ctx SpecContext) {
			flags, err := lab.cluster.Flags(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(flags[component][flag].Value).To(Equal("12s"))
		})
	})
}

// A sharedLab works on the cluster that the experiments share, and leaves it as it was.
type sharedLab struct {
	as      *chaos.Experiment // whose cluster it is
	cluster *kept
}

func (l *sharedLab) Prepare(ctx context.Context, _, arm *chaos.Experiment) (err error) {
	if l.cluster, err = shared.get(ctx, l.as); err != nil {
		return err
	}
	return l.cluster.SetFlags(ctx, arm.Flags())
}

func (l *sharedLab) Run(ctx context.Context, exp *chaos.Experiment) (*chaos.Result, error) {
	return runOnce(ctx, exp, l.cluster)
}

func (l *sharedLab) Discard(ctx context.Context) error {
	if l.cluster == nil {
		return nil
	}
	return l.cluster.SetFlags(ctx, l.as.Flags())
}

// wanted is the outcome that an experiment is to come to.
func wanted(exp *chaos.Experiment) judge.Outcome { return cmp.Or(exp.Spec.Outcome, judge.OutcomePass) }

// noAnswer is the exit code of a run that says nothing about the cluster: the
// fault did not bite, something else happened too, or a gap covers the answer.
const noAnswer = 4

// runOnce runs an experiment and keeps its record.
func runOnce(ctx context.Context, exp *chaos.Experiment, c *kept) (*chaos.Result, error) {
	tell, table := progress(exp)
	defer AttachProgressReporter(table)()
	result, err := chaos.Run(ctx, exp, chaos.Options{Artifacts: artifacts(), Cluster: c.Cluster, Lock: c.lock, Progress: tell})
	if err != nil {
		return nil, err
	}
	if err := report.Folder(result.Folder, result.Trace, result.Run); err != nil {
		return nil, err
	}
	return result, report.Text(GinkgoWriter, result.Run)
}

func title(x judge.Expectation) string { return strings.TrimSpace(x.Milestone + " " + x.Subject) }

// expectPass finds the row of one expectation and says what it holds.
func expectPass(run *judge.Run, x judge.Expectation, never bool) {
	GinkgoHelper()
	found := 0
	for _, m := range run.Milestones {
		if m.Name == x.Milestone && m.Subject == x.Subject && (m.Expected && !never || m.Never && never) {
			found++
			Expect(m.Verdict).To(Equal(judge.Pass), m.Explain())
			AddReportEntry(m.Title(), m.Explain(), ReportEntryVisibilityNever)
		}
	}
	Expect(found).To(Equal(len(run.Target)), "a row for every target")
}

// progress tells of a live run in the suite's log, and gives what was reached so
// far to Ginkgo's progress reports of long specs.
func progress(exp *chaos.Experiment) (tell func(judge.Update), table func() string) {
	live := report.NewLive(GinkgoWriter, false)
	var mu sync.Mutex
	var reached []string
	tell = func(u judge.Update) {
		mu.Lock()
		defer mu.Unlock()
		live.Show(u)
		if u.Milestone != nil {
			reached = append(reached, report.Line(*u.Milestone))
		}
	}
	table = func() string {
		mu.Lock()
		defer mu.Unlock()
		return exp.Metadata.Name + " so far:\n" + strings.Join(reached, "\n")
	}
	return tell, table
}

// clusters are shared by the experiments that need the same.
type clusters struct{ bySpec map[string]*kept }

// A kept cluster is one that stays ours until the suite is over.
type kept struct {
	*cluster.Cluster
	lock *chaos.Lock
}

var shared = clusters{bySpec: map[string]*kept{}}

func (s clusters) get(ctx context.Context, exp *chaos.Experiment) (*kept, error) {
	key, err := json.Marshal(exp.Spec.Cluster)
	if err != nil {
		return nil, err
	}
	if c := s.bySpec[string(key)]; c != nil {
		return c, nil
	}
	c, lock, err := chaos.CreateCluster(ctx, exp, chaos.Options{Artifacts: artifacts(), Image: cluster.Choice{Override: os.Getenv("NODE_IMAGE")}, Log: GinkgoWriter})
	if err != nil {
		return nil, err
	}
	s.bySpec[string(key)] = &kept{c, lock}
	return s.bySpec[string(key)], nil
}

var _ = AfterSuite(func(ctx SpecContext) {
	for _, c := range shared.bySpec {
		Expect(c.Delete(ctx)).To(Succeed())
	}
}, NodeTimeout(cleanupTimeout))

// artifacts is the folder for records, the same as that of the flatline command.
func artifacts() string {
	if dir := os.Getenv("ARTIFACTS"); dir != "" {
		return dir
	}
	return filepath.Join("..", "_artifacts")
}
