package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flatline-chaos/flatline/internal/report"
	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

func (a *app) heal() *cobra.Command {
	var how treatment
	var artifacts, name string
	c := &cobra.Command{
		Use:   "heal [FOLDER]",
		Short: "Put right what runs left behind, from their journals; may be repeated",
		Long: `Put right what a run left behind, from the journal in its folder alone. Without
FOLDER: every run of this user whose journal was not closed and whose cluster may still
be there. With --cluster: from the copies of journals that lie in the cluster itself,
for when the folders are lost.

Exit codes: 0 everything is as it was before the runs, or the cluster is gone; 2 invalid
input; 5 something is not as it was, or nobody could look; 130 interrupted.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, folders []string) error {
			how.say = func(s string) { fmt.Fprintln(a.err, report.Lines(s)) }
			if how.check && how.dryRun || name != "" && len(folders) > 0 {
				return &chaos.InvalidError{Text: "say one of --check and --dry-run, and one of FOLDER and --cluster"}
			}
			if name != "" {
				return notHealed(how.cluster(c.Context(), name))
			}
			return notHealed(how.folders(c.Context(), artifacts, folders))
		},
	}
	c.Flags().BoolVar(&how.check, "check", false, "say only what is not as it was")
	c.Flags().BoolVar(&how.dryRun, "dry-run", false, "say only what would be done")
	c.Flags().StringVar(&name, "cluster", "", "heal this cluster from the journals in it")
	a.artifactsFlag(c, &artifacts)
	return a.interruptible(c)
}

// notHealed gives every error but invalid input the code of a cluster that was not put right.
func notHealed(err error) error {
	var invalid *chaos.InvalidError
	if err == nil || errors.As(err, &invalid) {
		return err
	}
	return &codeError{code: judge.OutcomeDirty.ExitCode(), err: err}
}

// A treatment is what heal does with each patient.
type treatment struct {
	check, dryRun bool
	say           func(string)
}

func (t treatment) folders(ctx context.Context, artifacts string, folders []string) error {
	if len(folders) == 0 {
		var err error
		if folders, err = chaos.Unhealed(ctx, artifacts, t.say); err != nil {
			return err
		}
		if len(folders) == 0 {
			t.say("nothing to heal below " + artifacts)
		}
	}
	var errs []error
	for _, dir := range folders {
		if _, err := os.Stat(filepath.Join(dir, "journal.jsonl")); err != nil {
			return &chaos.InvalidError{Text: fmt.Sprintf("%s: there is no journal.jsonl: name the folder of a run", dir)}
		}
		p, err := chaos.Examine(ctx, dir)
		switch {
		case errors.Is(err, chaos.ErrGone):
			t.say(dir + ": the cluster is gone, there is nothing to heal")
		case err != nil:
			errs = append(errs, err)
		default:
			errs = append(errs, t.treat(ctx, p))
		}
	}
	return errors.Join(errs...)
}

func (t treatment) cluster(ctx context.Context, name string) error {
	patients, err := chaos.ExamineCluster(ctx, name)
	if err != nil {
		return err
	}
	if len(patients) == 0 {
		t.say("cluster " + name + ": no run has left a journal in it, there is nothing to heal")
	}
	var errs []error
	for _, p := range patients {
		errs = append(errs, t.treat(ctx, p))
	}
	return errors.Join(errs...)
}

func (t treatment) treat(ctx context.Context, p *chaos.Patient) error {
	switch {
	case t.dryRun:
		for _, s := range p.Steps() {
			t.say(s.Desc + " on " + s.On)
		}
		return nil
	case t.check:
		if diffs := p.Differences(ctx); len(diffs) > 0 {
			return fmt.Errorf("%s: not as it was before the run:\n  %s", p.Name, strings.Join(diffs, "\n  "))
		}
	default:
		if err := p.Heal(ctx, t.say); err != nil {
			return err
		}
	}
	t.say(p.Name + ": as it was before the run")
	return nil
}
