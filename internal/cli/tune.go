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

func tuneCommand(stdout, stderr io.Writer) *cobra.Command {
	var profile, artifacts, shard string
	var set []string
	var dryRun, remote bool
	s := &sweep.Sweep{}
	c := &cobra.Command{
		Use:   "tune NAME --set FLAG=VALUE,VALUE...",
		Short: "Run one experiment under several settings of flags, on as few clusters as can be",
		Long: `Run one experiment under several settings of flags, on as few clusters as can be, and
compare the timings.

FLAG is component.name, such as kube-controller-manager.node-monitor-grace-period or
kubelet.nodeLeaseDurationSeconds. With several --set every combination is an arm; with
--each one flag at a time is set, beside an arm with the experiment as it stands.

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
			var err error
			if s.Experiment, err = load(args[0], profile); err != nil {
				return err
			}
			if len(set) == 0 {
				return &chaos.InvalidError{Text: "say what to set, such as --set kube-controller-manager.node-monitor-grace-period=8s,12s"}
			}
			for _, text := range set {
				axis, err := chaos.ParseSettings(text)
				if err != nil {
					return err
				}
				s.Axes = append(s.Axes, axis)
			}
			if shard == "" {
				shard = shardOf(os.Getenv)
			}
			if shard != "" {
				if s.Shard, err = sweep.ParseShard(shard); err != nil {
					return err
				}
			}
			root := filepath.Join(artifacts, "tune")
			if s.Shard.Of > 0 { // two shares in one folder would take each other's runs for their own
				root = filepath.Join(root, fmt.Sprintf("shard-%d-of-%d", s.Shard.Index, s.Shard.Of))
			}
			if _, err := s.Plan(nil); err != nil { // what was typed comes first
				return err
			}
			if !dryRun {
				if err := beforeRun(c.Context(), remote, c.InOrStdin(), stderr); err != nil {
					return err
				}
			}
			return tune(c.Context(), s, root, dryRun, stdout, stderr)
		},
	}
	profileFlag(c, &profile)
	c.Flags().StringArrayVar(&set, "set", nil, "a flag and its values: component.flag=value,value; may be repeated")
	c.Flags().BoolVar(&s.Each, "each", false, "one flag at a time, not every combination")
	c.Flags().IntVar(&s.Count, "count", 6, "runs of each arm; fewer than 6 can hardly show a difference")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "print the plan only, and run no other program; runs on record count whatever their node image, unless $NODE_IMAGE names one")
	c.Flags().BoolVar(&s.AllowFlapping, "allow-flapping", false, "run arms in which healthy nodes flap")
	remoteFlag(c, &remote)
	c.Flags().StringVar(&shard, "shard", "", "make a share of the runs, 1/3 say; taken from CI_NODE_INDEX, CIRCLE_NODE_INDEX or BUILDKITE_PARALLEL_JOB where those are set")
	c.Flags().StringVar(&artifacts, "artifacts", defaultArtifacts(), "folder for the records of runs; $ARTIFACTS")
	return c
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

// tune plans a sweep, makes the runs that are missing, and compares.
func tune(ctx context.Context, s *sweep.Sweep, root string, dryRun bool, stdout, stderr io.Writer) error {
	choice := cluster.Choice{}
	if dryRun { // which runs nothing, the engine's client included
		s.Image = os.Getenv("NODE_IMAGE")
	} else {
		choice = imageChoice(ctx)
		image, err := cluster.ChooseImage(ctx, choice)
		if err != nil {
			return err
		}
		s.Image, s.ImageID = image.Ref, image.ID
	}
	recs, err := onRecord(root)
	if err != nil {
		return err
	}
	plan, err := s.Plan(recs)
	if err != nil {
		return err
	}
	if dryRun {
		return plan.Text(stdout)
	}
	if err := plan.Text(stderr); err != nil {
		return err
	}
	if err := runPlan(ctx, plan, root, choice, stderr); err != nil {
		return err
	}
	return tuned(plan, root, stdout)
}

// runPlan makes the runs that are missing.
func runPlan(ctx context.Context, plan *sweep.Plan, root string, choice cluster.Choice, stderr io.Writer) error {
	say := func(format string, args ...any) { fmt.Fprintf(stderr, "== "+format+"\n", args...) }
	in, _ := ctx.Value(interruptionKey{}).(*interruption)
	tell, stop := relay(in, func(u chaos.Update) {
		if u.Text != "" {
			fmt.Fprintf(stderr, "  %5.1fs  %s\n", u.Elapsed.Seconds(), u.Text)
		}
	})
	defer stop()
	lab, err := sweep.NewKindLab(ctx, chaos.Options{Artifacts: root, Image: choice, Log: stderr, Hurry: in.hurry, Progress: tell}, say)
	if err != nil {
		return err
	}
	defer lab.Close()
	err = plan.Run(ctx, reportingLab{lab, root}, say)
	if errors.Is(err, sweep.ErrLeft) { // which counts more than that somebody interrupted it
		return &codeError{code: exitSetupFailed, err: err}
	}
	return err
}

// A reportingLab writes every rendering of a run beside its record.
type reportingLab struct {
	*sweep.KindLab
	root string
}

func (l reportingLab) Run(ctx context.Context, exp *chaos.Experiment) (*judge.Run, error) {
	run, err := l.KindLab.Run(ctx, exp)
	if run != nil {
		err = errors.Join(err, report.Folder(chaos.Folder(l.root, run)))
	}
	return run, err
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

// conclude prints what the arms are against each other, draws it into a file, and says
// where that is.
func conclude(stdout io.Writer, each bool, arms []compare.Arm, file string) error {
	if len(arms) < 2 {
		_, err := fmt.Fprintln(stdout, filepath.Dir(file))
		return err
	}
	table := compare.New("", arms...)
	if each {
		if err := report.Knobs(stdout, "text", compare.Against(arms[0], arms[1:])); err != nil {
			return err
		}
	} else if err := report.Comparison(stdout, "text", []*compare.Table{table}); err != nil {
		return err
	}
	var page bytes.Buffer
	if err := report.Comparison(&page, "html", []*compare.Table{table}); err != nil {
		return err
	}
	return writeFile(stdout, file, page.Bytes())
}

// tuned says what came of a sweep.
func tuned(plan *sweep.Plan, root string, stdout io.Writer) error {
	missing, missed := 0, 0
	var arms []compare.Arm
	for _, a := range plan.Arms {
		missing += max(0, a.Want-len(a.Runs))
		if len(a.Runs) > 0 {
			arms = append(arms, compare.Arm{Name: a.Name(), Runs: a.Runs})
		}
		for _, r := range a.Runs {
			if r.Outcome == judge.OutcomeFail {
				missed++
			}
		}
	}
	each := plan.Sweep.Each && len(plan.Arms[0].Runs) > 0 // else there is nothing to hold the others against
	if err := conclude(stdout, each, arms, filepath.Join(root, "report.html")); err != nil {
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
