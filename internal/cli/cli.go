// Package cli has the verbs of flatline. It parses, calls and prints; it decides
// nothing.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/flatline-chaos/flatline/experiments"
	"github.com/flatline-chaos/flatline/internal/report"
	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
)

// Exit codes beside those of outcomes (judge.Outcome.ExitCode).
const (
	exitInvalid     = 2
	exitSetupFailed = 3
	exitInterrupted = 130
)

// A codeError carries an exit code.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

// Main runs one command and returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := command(stdout, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var code *codeError
	var invalid *chaos.InvalidError
	switch {
	case errors.As(err, &code):
		if code.err != nil {
			fmt.Fprintf(stderr, "flatline: %v\n", code.err)
		}
		return code.code
	case errors.As(err, &invalid):
		fmt.Fprintf(stderr, "flatline: %v\n", err)
		return exitInvalid
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "flatline: interrupted")
		return exitInterrupted
	}
	fmt.Fprintf(stderr, "flatline: %v\n", err)
	return exitSetupFailed
}

func command(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "flatline",
		Short:         "Break a kubelet's client certificate on a real kind cluster and measure what happens to the node",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &chaos.InvalidError{Text: fmt.Sprintf("%v; see %s --help", err, c.CommandPath())}
	})
	root.AddCommand(runCommand(stdout, stderr), listCommand(stdout), reportCommand(stdout), healCommand(stderr), cleanCommand(stderr), nodeImageCommand(stdout, stderr))
	for _, c := range root.Commands() {
		c.Args = usage(c.Args)
	}
	root.Args = usage(root.Args)
	return root
}

// usage makes wrong arguments an input error.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return &chaos.InvalidError{Text: fmt.Sprintf("%v; see %s --help", err, c.CommandPath())}
		}
		return nil
	}
}

func runCommand(stdout, stderr io.Writer) *cobra.Command {
	var profile, artifacts string
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
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] != "" {
				return nil
			}
			names, err := chaos.Names(experiments.FS)
			if err != nil {
				return err
			}
			return fmt.Errorf("say which experiment: one of %s", strings.Join(names, ", "))
		},
		RunE: func(c *cobra.Command, args []string) error {
			exp, err := load(args[0], profile)
			if err != nil {
				return err
			}
			return runExperiment(c.Context(), exp, artifacts, stdout, stderr)
		},
	}
	c.Flags().StringVar(&profile, "profile", chaos.DefaultProfile, "timers to run with: default are Kubernetes' own, fast are short")
	c.Flags().StringVar(&artifacts, "artifacts", defaultArtifacts(), "folder for the records of runs; $ARTIFACTS")
	return c
}

// load finds an experiment by its name, or in a file.
func load(name, profile string) (*chaos.Experiment, error) {
	if !strings.HasSuffix(name, ".yaml") {
		return chaos.Load(experiments.FS, name, profile)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, &chaos.InvalidError{Text: err.Error()}
	}
	return chaos.Parse(name, data, profile)
}

func defaultArtifacts() string {
	if dir := os.Getenv("ARTIFACTS"); dir != "" {
		return dir
	}
	return "_artifacts"
}

func runExperiment(ctx context.Context, exp *chaos.Experiment, artifacts string, stdout, stderr io.Writer) error {
	live := report.NewLive(stderr, isTerminal(stderr))
	var mu sync.Mutex
	run, err := chaos.Run(ctx, exp, chaos.Options{
		Artifacts: artifacts, Image: imageChoice(ctx), Log: stderr,
		Progress: func(u chaos.Update) { mu.Lock(); defer mu.Unlock(); live.Show(report.News(u)) },
	})
	if run == nil {
		return err
	}
	if werr := report.Text(stdout, run); werr != nil {
		return werr
	}
	dir := chaos.Folder(artifacts, run)
	if run.Outcome == judge.OutcomeDirty {
		fmt.Fprintf(stderr, "\nthe cluster could not be put right; this repairs it, and can be repeated:\n  flatline heal %s\n", dir)
	}
	fmt.Fprintf(stdout, "%s\n", dir)
	if err != nil { // interrupted
		if run.Outcome == judge.OutcomeDirty {
			return &codeError{code: run.Outcome.ExitCode()}
		}
		return &codeError{code: exitInterrupted}
	}
	if code := run.Outcome.ExitCode(); code != 0 {
		return &codeError{code: code}
	}
	return nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// recipe is the build of the node image, where flatline runs inside its clone.
const recipe = "hack/nodeimage/build"

// imageChoice says how to find the node image: what the user asks for, then the
// image that the recipe of this clone makes, then kind's own.
func imageChoice(ctx context.Context) cluster.Choice {
	c := cluster.Choice{Override: os.Getenv("NODE_IMAGE")}
	if _, err := os.Stat(recipe); err == nil {
		if out, err := exec.CommandContext(ctx, recipe, "--tag").Output(); err == nil {
			c.Built = strings.TrimSpace(string(out))
		}
	}
	return c
}

func nodeImageCommand(stdout, stderr io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "node-image",
		Short: "Print the node image that a run would use; inside a clone, build it if there is none",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx := c.Context()
			choice := imageChoice(ctx)
			image, err := cluster.ChooseImage(ctx, choice)
			if errors.Is(err, cluster.ErrNoImage) && choice.Built != "" {
				build := exec.CommandContext(ctx, recipe)
				build.Stdout, build.Stderr = stderr, stderr
				build.Cancel = func() error { return build.Process.Signal(os.Interrupt) }
				build.WaitDelay = time.Minute
				if err := build.Run(); err != nil {
					return fmt.Errorf("building the node image: %w", err)
				}
				image, err = cluster.ChooseImage(ctx, choice)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(stderr, "%s\n", image.Origin)
			fmt.Fprintln(stdout, image.Ref)
			return nil
		},
	}
}

func listCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the experiments",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			names, err := chaos.Names(experiments.FS)
			if err != nil {
				return err
			}
			for _, name := range names {
				e, err := chaos.Load(experiments.FS, name, "")
				if err != nil {
					return err
				}
				fmt.Fprintf(stdout, "%-16s %s\n", name, e.Spec.Description)
			}
			return nil
		},
	}
}

func reportCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "report TIMELINE...",
		Short: "Judge recorded timelines by today's rules: one is shown whole, several in a table",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var runs []*judge.Run
			for _, name := range args {
				t, err := observe.ReadTimelineFile(name)
				if err != nil {
					return &chaos.InvalidError{Text: err.Error()}
				}
				run, err := judge.Judge(t)
				if err != nil {
					return &chaos.InvalidError{Text: fmt.Sprintf("%s: %v", name, err)}
				}
				runs = append(runs, run)
			}
			if len(runs) == 1 {
				return report.Text(stdout, runs[0])
			}
			return report.Summary(stdout, runs)
		},
	}
}

func healCommand(stderr io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "heal FOLDER",
		Short: "Put right what a run left behind, from the journal in its folder; may be repeated",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := os.Stat(filepath.Join(args[0], "journal.jsonl")); errors.Is(err, fs.ErrNotExist) {
				return &chaos.InvalidError{Text: fmt.Sprintf("%s: there is no journal.jsonl: name the folder of a run", args[0])}
			}
			if err := chaos.Heal(c.Context(), args[0], func(s string) { fmt.Fprintln(stderr, s) }); err != nil {
				return &codeError{code: judge.OutcomeDirty.ExitCode(), err: err}
			}
			return nil
		},
	}
}

func cleanCommand(stderr io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "clean",
		Short: "Delete every cluster that flatline made",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			infos, err := cluster.List(c.Context())
			if err != nil {
				return err
			}
			for _, i := range infos {
				fmt.Fprintf(stderr, "deleting cluster %s\n", i.Name)
				if err := cluster.Delete(c.Context(), i.Name); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
