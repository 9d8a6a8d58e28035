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
	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

const (
	// createTimeout bounds the creation of one cluster, runTimeout one experiment.
	createTimeout = 10 * time.Minute
	runTimeout    = 15 * time.Minute
	// cleanupTimeout is how long an interrupted run may take to put things right.
	cleanupTimeout = 5 * time.Minute
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
		var run *judge.Run
		BeforeAll(func(ctx SpecContext) {
			c, err := shared.get(ctx, exp)
			Expect(err).NotTo(HaveOccurred(), "creating the cluster")
			run, err = runOnce(ctx, exp, c)
			Expect(err).NotTo(HaveOccurred(), "running the experiment")
			if run.Outcome.ExitCode() == noAnswer && !run.AsWanted() { // never a fail, never a dirty
				AddReportEntry("repeated once", fmt.Sprintf("%s: %v", run.Outcome, run.Reasons))
				run, err = runOnce(ctx, exp, c)
				Expect(err).NotTo(HaveOccurred(), "running the experiment again")
			}
			Expect(run.Outcome).To(BeElementOf(wanted(exp), judge.OutcomeFail), "%s: %v", run.Outcome, run.Reasons)
		}, NodeTimeout(createTimeout+2*runTimeout))

		for _, x := range exp.Spec.Expect {
			It("reaches "+title(x), func() { expectPass(run, x, false) })
		}
		for _, x := range exp.Spec.Never {
			It("does not reach "+title(x)+" before the undo", func() { expectPass(run, x, true) })
		}
		It("comes to "+string(wanted(exp))+" as a whole", func() {
			Expect(run.Outcome).To(Equal(wanted(exp)), "%v", run.Reasons)
		})
	})
}

// wanted is the outcome that an experiment is to come to.
func wanted(exp *chaos.Experiment) judge.Outcome { return cmp.Or(exp.Spec.Outcome, judge.OutcomePass) }

// noAnswer is the exit code of a run that says nothing about the cluster: the
// fault did not bite, something else happened too, or a gap covers the answer.
const noAnswer = 4

// runOnce runs an experiment and keeps its record.
func runOnce(ctx context.Context, exp *chaos.Experiment, c *cluster.Cluster) (*judge.Run, error) {
	tell, table := progress(exp)
	defer AttachProgressReporter(table)()
	run, err := chaos.Run(ctx, exp, chaos.Options{Artifacts: artifacts(), Cluster: c, Progress: tell})
	if err != nil {
		return nil, err
	}
	if err := report.Folder(chaos.Folder(artifacts(), run)); err != nil {
		return nil, err
	}
	return run, report.Text(GinkgoWriter, run)
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
func progress(exp *chaos.Experiment) (tell func(chaos.Update), table func() string) {
	live := report.NewLive(GinkgoWriter, false)
	var mu sync.Mutex
	var reached []string
	tell = func(u chaos.Update) {
		mu.Lock()
		defer mu.Unlock()
		live.Show(report.News{Elapsed: u.Elapsed, Phase: u.Phase, Text: u.Text, Milestone: u.Milestone, Next: u.Next})
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
type clusters struct{ bySpec map[string]*cluster.Cluster }

var shared = clusters{bySpec: map[string]*cluster.Cluster{}}

func (s clusters) get(ctx context.Context, exp *chaos.Experiment) (*cluster.Cluster, error) {
	key, err := json.Marshal(exp.Spec.Cluster)
	if err != nil {
		return nil, err
	}
	if c := s.bySpec[string(key)]; c != nil {
		return c, nil
	}
	c, err := chaos.CreateCluster(ctx, exp, chaos.Options{Artifacts: artifacts(), Image: cluster.Choice{Override: os.Getenv("NODE_IMAGE")}, Log: GinkgoWriter})
	if err != nil {
		return nil, err
	}
	s.bySpec[string(key)] = c
	return c, nil
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
