package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/flatline-chaos/flatline/internal/compare"
	"github.com/flatline-chaos/flatline/internal/record"
	"github.com/flatline-chaos/flatline/internal/report"
	"github.com/flatline-chaos/flatline/internal/sweep"
	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// A tuning is what the user asks of tune.
type tuning struct {
	sweep.Sweep
	profile, artifacts, shard string
	set                       []string
	dryRun, remote            bool
}

func (a *app) tune() *cobra.Command {
	t := &tuning{}
	c := &cobra.Command{
		Use:   "tune NAME --set FLAG=VALUE,VALUE...",
		Short: "Run one experiment under several settings of flags, on as few clusters as can be",
		Long: `Run one experiment under several settings of flags, on as few clusters as can be, and
compare the timings.

FLAG is component.name, such as kube-controller-manager.node-monitor-grace-period or
kubelet.nodeLeaseDurationSeconds. A VALUE with commas stands in double quotes. With
several --set every combination is an arm; with --each one flag at a time is set, beside
an arm with the experiment as it stands.

The runs of the arms are interleaved. Flags of kube-controller-manager, kube-apiserver
and the kubelets are changed in place between them. Before the first run of an arm
healthy nodes have to stay Ready for a while; an arm in which they flap is skipped.

The records lie in the folder "tune" below --artifacts, those of a shard in one of its own
below that. What is there already is
not run again: the same command goes on where it was stopped, however that was. The
commands that read records take several folders, so that shards need no merging.

Exit codes: 0 all runs are there and pass; 1 in some an expectation was missed; 2
invalid input; 3 the set-up failed; 4 runs are missing, since an arm was skipped or came
to no answer; 130 interrupted, after everything was undone.`,
		Args: oneExperiment,
		RunE: func(c *cobra.Command, args []string) error {
			if err := t.read(args[0], a.env); err != nil {
				return err
			}
			if !t.dryRun {
				if err := a.beforeRun(c.Context(), t.remote, c.InOrStdin()); err != nil {
					return err
				}
			}
			return a.runSweep(c.Context(), t)
		},
	}
	a.tuneFlags(c, t)
	return a.interruptible(c)
}

func (a *app) tuneFlags(c *cobra.Command, t *tuning) {
	profileFlag(c, &t.profile)
	c.Flags().StringArrayVar(&t.set, "set", nil, "a flag and its values: component.flag=value,value; may be repeated")
	c.Flags().BoolVar(&t.Each, "each", false, "one flag at a time, not every combination")
	c.Flags().IntVar(&t.Count, "count", 6, "runs of each arm; fewer than 6 can hardly show a difference")
	c.Flags().BoolVar(&t.dryRun, "dry-run", false,
		"print the plan only, and run no other program; runs on record count whatever their node image, unless $NODE_IMAGE names one")
	c.Flags().BoolVar(&t.AllowFlapping, "allow-flapping", false, "run arms in which healthy nodes flap")
	a.remoteFlag(c, &t.remote)
	c.Flags().StringVar(&t.shard, "shard", "",
		"make a share of the runs, 1/3 say; taken from CI_NODE_INDEX, CIRCLE_NODE_INDEX or BUILDKITE_PARALLEL_JOB where those are set")
	a.artifactsFlag(c, &t.artifacts)
}

// read makes a sweep of what was typed, and refuses what cannot be one before anything else
// is looked at.
func (t *tuning) read(name string, env func(string) string) error {
	var err error
	if t.Experiment, err = load(name, t.profile); err != nil {
		return err
	}
	if len(t.set) == 0 {
		return &chaos.InvalidError{Text: "say what to set, such as --set kube-controller-manager.node-monitor-grace-period=8s,12s"}
	}
	for _, text := range t.set {
		axis, err := chaos.ParseSettings(text)
		if err != nil {
			return err
		}
		t.Axes = append(t.Axes, axis)
	}
	if t.shard == "" {
		t.shard = shardOf(env)
	}
	if t.shard != "" {
		if t.Shard, err = sweep.ParseShard(t.shard); err != nil {
			return err
		}
	}
	_, err = t.Plan(nil)
	return err
}

// root is the folder of the sweep. Two shards in one folder would take each other's runs for
// their own.
func (t *tuning) root() string {
	root := filepath.Join(t.artifacts, "tune")
	if t.Shard.Of > 0 {
		root = filepath.Join(root, fmt.Sprintf("shard-%d-of-%d", t.Shard.Index, t.Shard.Of))
	}
	return root
}

// shardOf is the share that a CI system gives to this job: GitLab counts from one, the
// others from zero.
func shardOf(getenv func(string) string) string {
	for _, v := range []struct {
		index, total string
		first        int
	}{
		{"CI_NODE_INDEX", "CI_NODE_TOTAL", 1},
		{"CIRCLE_NODE_INDEX", "CIRCLE_NODE_TOTAL", 0},
		{"BUILDKITE_PARALLEL_JOB", "BUILDKITE_PARALLEL_JOB_COUNT", 0},
	} {
		if i, err := strconv.Atoi(getenv(v.index)); err == nil && getenv(v.total) != "" {
			return fmt.Sprintf("%d/%s", i+1-v.first, getenv(v.total))
		}
	}
	return ""
}

// runSweep plans a sweep, makes the runs that are missing, and compares.
func (a *app) runSweep(ctx context.Context, t *tuning) error {
	choice := cluster.Choice{}
	if t.dryRun { // which runs nothing, the engine's client included
		t.Image = a.env("NODE_IMAGE")
	} else {
		choice = a.imageChoice(ctx)
		image, err := cluster.ChooseImage(ctx, choice)
		if err != nil {
			return err
		}
		t.Image, t.ImageID = image.Ref, image.ID
	}
	recs, err := onRecord(t.root())
	if err != nil {
		return err
	}
	plan, err := t.Plan(recs)
	if err != nil {
		return err
	}
	if t.dryRun {
		return plan.Text(a.out)
	}
	if err := plan.Text(a.err); err != nil {
		return err
	}
	if err := a.runPlan(ctx, plan, t.root(), choice); err != nil {
		return err
	}
	return a.tuned(plan, t.root())
}

// runPlan makes the runs that are missing.
func (a *app) runPlan(ctx context.Context, plan *sweep.Plan, root string, choice cluster.Choice) error {
	say := func(format string, args ...any) { fmt.Fprintf(a.err, "== "+format+"\n", args...) }
	tell, stop := a.relay(func(u judge.Update) {
		if u.Text != "" {
			fmt.Fprintf(a.err, "  %5.1fs  %s\n", u.Elapsed.Seconds(), u.Text)
		}
	})
	defer stop()
	opts := chaos.Options{Artifacts: root, Image: choice, Log: a.err, Hurry: a.signals.hurry, Progress: tell}
	lab, err := sweep.NewKindLab(ctx, opts, say)
	if err != nil {
		return err
	}
	defer lab.Close()
	err = plan.Run(ctx, reportingLab{lab}, say)
	if errors.Is(err, sweep.ErrLeft) { // which counts more than that somebody interrupted it
		return &codeError{code: exitSetupFailed, err: err}
	}
	return err
}

// A reportingLab writes every rendering of a run beside its record.
type reportingLab struct {
	*sweep.KindLab
}

func (l reportingLab) Run(ctx context.Context, exp *chaos.Experiment) (*chaos.Result, error) {
	result, err := l.KindLab.Run(ctx, exp)
	if result != nil {
		err = errors.Join(err, report.Folder(result.Folder, result.Trace, result.Run))
	}
	return result, err
}

// onRecord reads the runs below a folder that may not be there yet.
func onRecord(root string) ([]*record.Record, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil, nil
	}
	recs, err := readRecords([]string{root})
	var none *record.NoneError
	if errors.As(err, &none) {
		return nil, nil
	}
	return recs, err
}

// tuned says what came of a sweep.
func (a *app) tuned(plan *sweep.Plan, root string) error {
	missing, missed := 0, 0
	var arms []compare.Arm
	for _, arm := range plan.Arms {
		missing += max(0, arm.Want-len(arm.Runs))
		if len(arm.Runs) > 0 {
			arms = append(arms, compare.Arm{Name: arm.Name(), Runs: arm.Runs})
		}
		for _, r := range arm.Runs {
			if r.Outcome == judge.OutcomeFail {
				missed++
			}
		}
	}
	each := plan.Sweep.Each && len(plan.Arms[0].Runs) > 0 // else there is nothing to hold the others against
	if err := a.conclude(each, arms, root); err != nil {
		return err
	}
	switch {
	case missing > 0:
		return &codeError{code: judge.OutcomeInconclusive.ExitCode(), err: fmt.Errorf("%d runs are missing", missing)}
	case missed > 0:
		return &codeError{code: judge.OutcomeFail.ExitCode(), err: fmt.Errorf("in %d runs an expectation was missed", missed)}
	}
	return nil
}

// conclude prints how the arms compare, draws that into a file of the folder, and says where
// it is.
func (a *app) conclude(each bool, arms []compare.Arm, root string) error {
	if len(arms) < 2 {
		_, err := fmt.Fprintln(a.out, root)
		return err
	}
	table := compare.New("", arms...)
	if err := printArms(a.out, each, arms, table); err != nil {
		return err
	}
	var page bytes.Buffer
	if err := report.Comparison(&page, "html", []*compare.Table{table}); err != nil {
		return err
	}
	return a.writeFile(filepath.Join(root, "report.html"), page.Bytes())
}

// printArms writes all arms side by side, or each flag by itself.
func printArms(out io.Writer, each bool, arms []compare.Arm, table *compare.Table) error {
	if each {
		return report.Knobs(out, "text", compare.Against(arms[0], arms[1:]))
	}
	return report.Comparison(out, "text", []*compare.Table{table})
}
