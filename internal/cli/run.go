package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/flatline-chaos/flatline/internal/report"
	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// A runRequest is what the user asks of run.
type runRequest struct {
	profile, format string
	set             []string
	reuse           string // a kept cluster
	remote          bool
	opts            chaos.Options
}

func (a *app) run() *cobra.Command {
	var req runRequest
	c := &cobra.Command{
		Use:   "run NAME",
		Short: "Run one experiment on a cluster of its own and judge it",
		Long: `Run one experiment on a cluster of its own and judge it.

NAME is one of "flatline list", or a file that ends in .yaml.

Exit codes: 0 pass; 1 an expectation was missed; 2 invalid input; 3 the set-up
failed; 4 the fault did not bite, something else happened too, or nothing can be
said; 5 the cluster could not be put right (the command that repairs is printed);
130 interrupted, after everything was undone.

NODE_IMAGE in the environment chooses the node image.`,
		Args: oneExperiment,
		RunE: func(c *cobra.Command, args []string) error {
			return a.runNamed(c.Context(), args[0], req, c.InOrStdin())
		},
	}
	profileFlag(c, &req.profile)
	setFlag(c, &req.set)
	a.artifactsFlag(c, &req.opts.Artifacts)
	c.Flags().StringVar(&req.opts.Keep, "keep", chaos.KeepNever,
		"keep the cluster: "+strings.Join(keepValues, ", ")+"; one that could not be put right is always kept")
	c.Flags().BoolVar(&req.opts.Pause, "hold", false, "stop before the undo, to look around")
	c.Flags().StringVar(&req.reuse, "cluster", "", "run on this kept cluster, and keep it")
	a.remoteFlag(c, &req.remote)
	outputFlag(c, &req.format)
	return a.interruptible(c)
}

// keepValues are the values of --keep.
var keepValues = []string{chaos.KeepNever, chaos.KeepOnFailure, chaos.KeepAlways}

// runNamed checks what was asked for and runs it.
func (a *app) runNamed(ctx context.Context, name string, req runRequest, stdin io.Reader) error {
	if err := checkFormat(req.format); err != nil {
		return err
	}
	exp, err := loadWith(name, req.profile, req.set)
	if err != nil {
		return err
	}
	if !slices.Contains(keepValues, req.opts.Keep) {
		return &chaos.InvalidError{Text: fmt.Sprintf("--keep %s: want one of %s", req.opts.Keep, strings.Join(keepValues, ", "))}
	}
	if err := a.beforeRun(ctx, req.remote, stdin); err != nil {
		return err
	}
	if req.reuse != "" {
		if req.opts.Cluster, err = chaos.OpenCluster(ctx, req.reuse); err != nil {
			return err
		}
	}
	return a.runExperiment(ctx, exp, req.opts, req.format)
}

// runExperiment runs an experiment, prints what came of it and renders it into its folder.
func (a *app) runExperiment(ctx context.Context, exp *chaos.Experiment, opts chaos.Options, format string) error {
	live := report.NewLive(a.err, isTerminal(a.err))
	tell, stop := a.relay(live.Show)
	opts.Image, opts.Log = a.imageChoice(ctx), a.err
	opts.Hurry, opts.Progress = a.signals.hurry, tell
	result, err := chaos.Run(ctx, exp, opts)
	stop()
	if result == nil {
		return err
	}
	run, dir := result.Run, result.Folder
	if run.Outcome == judge.OutcomeDirty { // before anything else can fail
		fmt.Fprintf(a.err, "\nnot everything could be put right; this repairs it, and can be repeated:\n  %s\n", chaos.Command("heal", dir))
	}
	unsaid := errors.Join(report.Print(a.out, format, run), a.tellCI(run), report.Folder(dir, result.Trace, run))
	if format == "text" || format == "wide" {
		fmt.Fprintln(a.out, dir)
	} else {
		fmt.Fprintln(a.err, dir)
	}
	return ending(ctx, run, err, unsaid)
}

// ending is how a run ends the program: with the code of its outcome, unless it was cut
// short, or its record or what it was to print could not be written. A cluster that was not
// put right comes before all of that.
func ending(ctx context.Context, run *judge.Run, err, unsaid error) error {
	code := run.Outcome.ExitCode()
	switch {
	case code == judge.OutcomeDirty.ExitCode():
	case err != nil && ctx.Err() != nil:
		return &codeError{code: exitInterrupted, err: unsaid}
	case err != nil || unsaid != nil:
		code = exitSetupFailed
	}
	if code == 0 {
		return nil
	}
	if ctx.Err() != nil {
		err = nil // everybody knows
	}
	return &codeError{code: code, err: errors.Join(err, unsaid)}
}

// tellCI writes the step summary and the annotations of GitHub Actions, if the environment
// asks for them.
func (a *app) tellCI(run *judge.Run) error {
	if a.env("GITHUB_ACTIONS") == "true" {
		if err := report.Annotations(a.err, run); err != nil {
			return err
		}
	}
	name := a.env("GITHUB_STEP_SUMMARY")
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("writing the step summary: %w", err)
	}
	return errors.Join(report.Markdown(f, run), f.Close())
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
