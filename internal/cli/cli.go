// Package cli has the verbs of flatline. It parses, calls and prints; it decides
// nothing.
package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/flatline-chaos/flatline/experiments"
	"github.com/flatline-chaos/flatline/internal/claims"
	"github.com/flatline-chaos/flatline/internal/record"
	"github.com/flatline-chaos/flatline/internal/report"
	"github.com/flatline-chaos/flatline/internal/safely"
	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
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
	root := command(stdout, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return 0
	}
	exit := exitSetupFailed
	var code *codeError
	var invalid *chaos.InvalidError
	switch {
	case errors.As(err, &code):
		exit, err = code.code, code.err
	case errors.As(err, &invalid):
		exit = exitInvalid
	}
	if err != nil {
		fmt.Fprintln(stderr, report.Lines("flatline: "+err.Error())) // which may quote a record
	}
	return exit
}

// An interruption is what signals have asked for so far.
type interruption struct {
	hurry  chan struct{}          // closed by the second signal
	folder atomic.Pointer[string] // of the run under way
}

type interruptionKey struct{}

// interruptible has a verb that changes clusters end in its own time: the first signal ends its
// context. The second asks for haste; the third ends the process and says how to go on from there.
// All other verbs are ended by the first signal, as any program.
func interruptible(c *cobra.Command, stderr io.Writer) *cobra.Command {
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, stop := catch(c.Context(), stderr)
		defer stop()
		c.SetContext(ctx)
		err := run(c, args)
		var code *codeError
		var invalid *chaos.InvalidError
		if err != nil && ctx.Err() != nil && !errors.As(err, &code) && !errors.As(err, &invalid) {
			return &codeError{code: exitInterrupted, err: errors.New("interrupted")}
		}
		return err
	}
	return c
}

// catch makes a context that signals end, until stop.
func catch(ctx context.Context, stderr io.Writer) (_ context.Context, stop func()) {
	in := &interruption{hurry: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, interruptionKey{}, in))
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A reader that went away must not end a run with its fault in place. What is ignored
	// would be ignored by children too; what is caught is not.
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	go func() {
		for n := 1; ; n++ {
			if _, ok := <-signals; !ok {
				return
			}
			folder := in.folder.Load()
			switch {
			case n == 1:
				cancel()
				if folder != nil {
					tell(stderr, "\ninterrupted: undoing, repairing, collecting, deleting; once more skips the collecting\n")
				}
			case n == 2:
				close(in.hurry)
				tell(stderr, "\nin a hurry: undoing, repairing and deleting only; once more leaves everything as it is\n")
			case folder != nil:
				tell(stderr, fmt.Sprintf("\nleft as it is; this puts it right:\n  %s\n", chaos.Command("heal", *folder)))
				os.Exit(judge.OutcomeDirty.ExitCode())
			default:
				tell(stderr, "\nleft as it is\n")
				os.Exit(exitInterrupted)
			}
		}
	}()
	return ctx, func() { signal.Stop(signals); signal.Stop(pipes); close(signals); cancel() }
}

// tell says something to anybody who sends signals, who is not waited for longer than a second: the
// terminal may be stopped.
func tell(stderr io.Writer, text string) {
	told := make(chan struct{})
	go func() {
		defer close(told)
		_, _ = io.WriteString(stderr, text)
	}()
	select {
	case <-told:
	case <-time.After(time.Second):
	}
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
	for _, c := range []*cobra.Command{runCommand(stdout, stderr), tuneCommand(stdout, stderr), healCommand(stderr), cleanCommand(stderr)} {
		root.AddCommand(interruptible(c, stderr))
	}
	root.AddCommand(planCommand(stdout), listCommand(stdout), judgeCommand(stdout), reportCommand(stdout), compareCommand(stdout), claimsCommand(stdout), doctorCommand(stdout), nodeImageCommand(stdout, stderr))
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
	var profile, format, reuse string
	var set []string
	var remote bool
	opts := chaos.Options{}
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
			if err := checkFormat(format); err != nil {
				return err
			}
			exp, err := loadWith(args[0], profile, set)
			if err != nil {
				return err
			}
			if !slices.Contains(keepValues, opts.Keep) {
				return &chaos.InvalidError{Text: fmt.Sprintf("--keep %s: want one of %s", opts.Keep, strings.Join(keepValues, ", "))}
			}
			if err := beforeRun(c.Context(), remote, c.InOrStdin(), stderr); err != nil {
				return err
			}
			if reuse != "" {
				if opts.Cluster, err = chaos.OpenCluster(c.Context(), reuse); err != nil {
					return err
				}
			}
			return runExperiment(c.Context(), exp, opts, format, stdout, stderr)
		},
	}
	profileFlag(c, &profile)
	setFlag(c, &set)
	c.Flags().StringVar(&opts.Artifacts, "artifacts", defaultArtifacts(), "folder for the records of runs; $ARTIFACTS")
	c.Flags().StringVar(&opts.Keep, "keep", chaos.KeepNever, "keep the cluster: "+strings.Join(keepValues, ", ")+"; one that could not be put right is always kept")
	c.Flags().BoolVar(&opts.Pause, "hold", false, "stop before the undo, to look around")
	c.Flags().StringVar(&reuse, "cluster", "", "run on this kept cluster, and keep it")
	remoteFlag(c, &remote)
	outputFlag(c, &format)
	return c
}

// keepValues are the values of --keep.
var keepValues = []string{chaos.KeepNever, chaos.KeepOnFailure, chaos.KeepAlways}

func planCommand(stdout io.Writer) *cobra.Command {
	var profile, kubernetes string
	var set []string
	c := &cobra.Command{
		Use:   "plan NAME",
		Short: "Say what an experiment would do and expect; touches nothing and needs no Docker",
		Args:  oneExperiment,
		RunE: func(_ *cobra.Command, args []string) error {
			exp, err := loadWith(args[0], profile, set)
			if err != nil {
				return err
			}
			p, err := chaos.PlanFor(exp, kubernetes)
			if err != nil {
				return &chaos.InvalidError{Text: err.Error()}
			}
			var never []string
			for _, x := range exp.Spec.Never {
				never = append(never, strings.TrimSpace(x.Milestone+" "+x.Subject))
			}
			least, most := p.OnOwnCluster()
			return (&report.Plan{
				Never: never,
				Name:  exp.Metadata.Name, Profile: exp.Profile, Description: exp.Spec.Description, Fault: faultText(exp.Spec.Fault),
				Config: &p.Config, Undo: steps(p.Undo), Repair: steps(p.Repair), Forecasts: p.Forecasts, Outcome: exp.Spec.Outcome, Least: least, Most: most,
			}).Text(stdout)
		},
	}
	profileFlag(c, &profile)
	setFlag(c, &set)
	c.Flags().StringVar(&kubernetes, "kubernetes", "v1.37", "Kubernetes version whose defaults to take")
	return c
}

func faultText(f chaos.FaultSpec) string {
	text := f.Type
	if f.Trigger != "" {
		text += ", made to bite by a " + f.Trigger
	}
	switch c := f.Certificate; {
	case c == nil:
		return text
	case c.Mint > 0 && c.Rotate == "later":
		return fmt.Sprintf("%s, with a certificate that is valid for %s and to be rotated after 70 to 90 %% of that", text, c.Mint)
	case c.Mint > 0:
		return fmt.Sprintf("%s, with a certificate that is valid for %s and past its rotation deadline", text, c.Mint)
	default:
		return text + ", right after the target was issued a certificate"
	}
}

func steps(list []chaos.Step) []string {
	var out []string
	for _, s := range list {
		out = append(out, s.Desc+" on "+s.On)
	}
	return out
}

// oneExperiment wants the name of an experiment.
func oneExperiment(_ *cobra.Command, args []string) error {
	if len(args) == 1 && args[0] != "" {
		return nil
	}
	return errors.New("say which experiment, such as csr-denied; flatline list names them all")
}

// profileFlag adds --profile, and completion of it and of experiments' names.
func profileFlag(c *cobra.Command, profile *string) {
	c.Flags().StringVar(profile, "profile", chaos.DefaultProfile, "timers to run with: default are Kubernetes' own, fast are short")
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		names, _ := chaos.Names(experiments.FS)
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	// The only error is that the flag does not exist.
	_ = c.RegisterFlagCompletionFunc("profile", cobra.FixedCompletions([]string{chaos.DefaultProfile, "fast"}, cobra.ShellCompDirectiveNoFileComp))
}

// load finds an experiment by its name, or in a file.
func load(name, profile string) (*chaos.Experiment, error) {
	if !strings.HasSuffix(name, ".yaml") {
		return chaos.Load(experiments.FS, name, profile)
	}
	f, err := os.Open(name) // it was named: it may be a pipe
	if err != nil {
		return nil, &chaos.InvalidError{Text: err.Error()}
	}
	defer f.Close()
	data, err := safely.ReadAll(f, name, chaos.MaxFile)
	if err != nil {
		return nil, &chaos.InvalidError{Text: err.Error()}
	}
	return chaos.Parse(name, data, profile)
}

// setFlag adds --set.
func setFlag(c *cobra.Command, set *[]string) {
	c.Flags().StringArrayVar(set, "set", nil, "a flag of a component: component.flag=value; may be repeated")
}

// loadWith finds an experiment and sets flags of its cluster.
func loadWith(name, profile string, set []string) (*chaos.Experiment, error) {
	exp, err := load(name, profile)
	if err != nil {
		return nil, err
	}
	var settings []chaos.Setting
	for _, text := range set {
		values, err := chaos.ParseSettings(text)
		if err != nil {
			return nil, err
		}
		if len(values) > 1 {
			return nil, &chaos.InvalidError{Text: fmt.Sprintf("--set %s: one value belongs here; flatline tune tries several", text)}
		}
		settings = append(settings, values[0])
	}
	return exp.With(settings), nil
}

func defaultArtifacts() string {
	if dir := os.Getenv("ARTIFACTS"); dir != "" {
		return dir
	}
	return "_artifacts"
}

func runExperiment(ctx context.Context, exp *chaos.Experiment, opts chaos.Options, format string, stdout, stderr io.Writer) error {
	live := report.NewLive(stderr, isTerminal(stderr))
	in, _ := ctx.Value(interruptionKey{}).(*interruption)
	tell, stop := relay(in, func(u chaos.Update) {
		live.Show(report.News{Elapsed: u.Elapsed, Phase: u.Phase, Text: u.Text, Milestone: u.Milestone, Next: u.Next})
	})
	opts.Image, opts.Log = imageChoice(ctx), stderr
	opts.Hurry, opts.Progress = in.hurry, tell
	run, err := chaos.Run(ctx, exp, opts)
	stop()
	if run == nil {
		return err
	}
	dir := chaos.Folder(opts.Artifacts, run)
	if run.Outcome == judge.OutcomeDirty { // before anything else can fail
		fmt.Fprintf(stderr, "\nnot everything could be put right; this repairs it, and can be repeated:\n  %s\n", chaos.Command("heal", dir))
	}
	unsaid := errors.Join(report.Print(stdout, format, run), tellCI(run, stderr), report.Folder(dir))
	if format == "text" || format == "wide" {
		fmt.Fprintln(stdout, dir)
	} else {
		fmt.Fprintln(stderr, dir)
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

// relay has news of runs shown by another goroutine: a terminal that was stopped must
// not stop the undo. stop returns when all is shown; nothing may be told after it.
func relay(in *interruption, show func(chaos.Update)) (tell func(chaos.Update), stop func()) {
	news := make(chan chaos.Update, 4096)
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		for u := range news {
			show(u)
		}
	}()
	tell = func(u chaos.Update) {
		in.folder.Store(&u.Folder)
		select {
		case news <- u:
		default:
		}
	}
	return tell, func() { close(news); <-shown }
}

// tellCI writes the step summary and the annotations of GitHub Actions, where
// those are asked for.
func tellCI(run *judge.Run, stderr io.Writer) error {
	if os.Getenv("GITHUB_ACTIONS") == "true" {
		if err := report.Annotations(stderr, run); err != nil {
			return err
		}
	}
	name := os.Getenv("GITHUB_STEP_SUMMARY")
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

// recipe is the build of the node image: that of the clone in which the binary lies, as
// bin/flatline or beside go.mod, "" if it lies in none. What lies in the working folder is
// somebody's and is never run. "go run" and "go test" put the binary elsewhere: say NODE_IMAGE.
func recipe() string {
	binary, err := os.Executable()
	if err == nil {
		binary, err = filepath.EvalSymlinks(binary)
	}
	if err != nil {
		return ""
	}
	root := filepath.Dir(binary)
	if filepath.Base(root) == "bin" {
		root = filepath.Dir(root)
	}
	mod, err := safely.Read(filepath.Join(root, "go.mod"), 1<<20)
	build := filepath.Join(root, "hack", "nodeimage", "build")
	if err != nil || !strings.HasPrefix(string(mod), "module "+module+"\n") {
		return ""
	}
	if _, err := os.Stat(build); err != nil {
		return ""
	}
	return build
}

// module is that of this program.
const module = "github.com/flatline-chaos/flatline"

// imageChoice says how to find the node image: what the user asks for, then the
// image that the recipe of this clone makes, then kind's own.
func imageChoice(ctx context.Context) cluster.Choice {
	c := cluster.Choice{Override: os.Getenv("NODE_IMAGE")}
	if build := recipe(); build != "" {
		if out, err := exec.CommandContext(ctx, build, "--tag").Output(); err == nil {
			c.Built = strings.TrimSpace(string(out))
		}
	}
	return c
}

func nodeImageCommand(stdout, stderr io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "node-image",
		Short: "Print the node image that a run would use; of a binary in its clone, build it if there is none",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx := c.Context()
			choice := imageChoice(ctx)
			image, err := cluster.ChooseImage(ctx, choice)
			if errors.Is(err, cluster.ErrNoImage) && choice.Built != "" {
				if err := buildImage(ctx, stderr); err != nil {
					return err
				}
				image, err = cluster.ChooseImage(ctx, choice)
			}
			if err != nil {
				return err
			}
			fmt.Fprintln(stdout, image.Ref)
			return nil
		},
	}
}

// buildImage runs the recipe. A signal is handed on to it, and ends both; a second one does not
// wait for that.
func buildImage(ctx context.Context, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	build := exec.CommandContext(ctx, recipe())
	build.Stdin, build.Stdout, build.Stderr = os.Stdin, stderr, stderr // it may have to ask
	build.Cancel = func() error { stop(); return build.Process.Signal(syscall.SIGTERM) }
	build.WaitDelay = time.Minute
	err := build.Run()
	if ctx.Err() != nil {
		return &codeError{code: exitInterrupted, err: errors.New("interrupted")}
	}
	if err != nil {
		return fmt.Errorf("building the node image: %w", err)
	}
	return nil
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
			tw := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
			for _, name := range names {
				e, err := chaos.Load(experiments.FS, name, "")
				if err != nil {
					return err
				}
				fmt.Fprintf(tw, "%s\t%s\n", name, e.Spec.Description)
			}
			return tw.Flush()
		},
	}
}

// someRuns wants the names of recorded runs.
func someRuns(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("say which run: its folder, such as _artifacts/csr-denied/latest, or a recorded timeline")
	}
	return nil
}

func judgeCommand(stdout io.Writer) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "judge RUN...",
		Short: "Judge recorded runs by today's rules: one is shown whole, with what changed; several in a table",
		Long: `Judge recorded runs by today's rules.

RUN is the folder of a run, a recorded timeline (.jsonl or .jsonl.gz), or a folder
that holds several of either. One run is shown whole, with what changed since it
was judged last. Several are summed up in a table, or written one after the other
with -o.`,
		Args: someRuns,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			recs, err := readRecords(args)
			if err != nil {
				return err
			}
			runs := runsOf(recs)
			if len(runs) > 1 && (format == "text" || format == "wide") {
				return report.Summary(stdout, runs)
			}
			for _, run := range runs {
				if err := report.Print(stdout, format, run); err != nil {
					return err
				}
			}
			return tellChanges(stdout, format, args[0], runs[0])
		},
	}
	outputFlag(c, &format)
	return c
}

// readRecords reads the runs that names stand for.
func readRecords(names []string) ([]*record.Record, error) {
	recs, err := record.Read(names)
	if err != nil {
		return nil, &codeError{code: exitInvalid, err: err}
	}
	return recs, nil
}

// runsOf are the runs of records.
func runsOf(recs []*record.Record) []*judge.Run {
	var runs []*judge.Run
	for _, rec := range recs {
		runs = append(runs, rec.Run)
	}
	return runs
}

func claimsCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "claims RUN...",
		Short: "Hold the statements of the reference document against recorded runs",
		Long: `Hold the statements of the reference document against recorded runs that passed.
Statements about defaults are answered by runs of the default profile alone.`,
		Args: someRuns,
		RunE: func(_ *cobra.Command, args []string) error {
			recs, err := readRecords(args)
			if err != nil {
				return err
			}
			return report.Claims(stdout, claims.Answers(runsOf(recs)))
		},
	}
}

func reportCommand(stdout io.Writer) *cobra.Command {
	var file, format string
	c := &cobra.Command{
		Use:   "report RUN...",
		Short: "Draw recorded runs: one as a page of its own, several over one another",
		Long: `Draw recorded runs by today's rules. The page needs neither network nor scripts.

RUN is the folder of a run, a recorded timeline (.jsonl or .jsonl.gz), or a folder
that holds several of either. One run is drawn whole; several of one experiment are
laid over one another, with the injection at zero.

The page is written to FILE, "-" is the standard output. Unless told it is
report.html in the folder of a single run, else report.html in the folder for the
records of runs.`,
		Args: someRuns,
		RunE: func(_ *cobra.Command, args []string) error {
			if format != "html" && format != "svg" {
				return &chaos.InvalidError{Text: fmt.Sprintf("-o %s: want html or svg", format)}
			}
			recs, err := readRecords(args)
			if err != nil {
				return err
			}
			if format == "svg" && len(recs) > 1 {
				return &chaos.InvalidError{Text: "-o svg draws one run, not several"}
			}
			var page bytes.Buffer
			if len(recs) > 1 {
				err = report.Overlay(&page, runsOf(recs))
			} else {
				err = draw(&page, recs[0], format)
			}
			if err != nil {
				return err
			}
			return writePage(stdout, page.Bytes(), file, format, recs)
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "where to write it")
	c.Flags().StringVarP(&format, "output", "o", "html", "html, or svg: the drawing of one run alone")
	// The only error is that the flag does not exist.
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"html", "svg"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// draw draws one run.
func draw(out io.Writer, rec *record.Record, format string) error {
	trace, err := rec.Trace()
	if err != nil {
		return err
	}
	if format == "svg" {
		return report.SVG(out, trace, rec.Run)
	}
	return report.HTML(out, trace, rec.Run)
}

// writePage writes a page to where it belongs and says where that is.
func writePage(stdout io.Writer, page []byte, name, format string, recs []*record.Record) error {
	switch {
	case name == "-":
		_, err := stdout.Write(page)
		return err
	case name != "":
		return writeNamed(stdout, name, page)
	case len(recs) == 1 && filepath.Base(recs[0].File) == "timeline.jsonl":
		name = filepath.Join(filepath.Dir(recs[0].File), "report."+format)
	default:
		if err := os.MkdirAll(defaultArtifacts(), 0o755); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
		name = filepath.Join(defaultArtifacts(), "report."+format)
	}
	return writeFile(stdout, name, page)
}

// writeNamed writes a report where the user wants it: to a pipe or a device, such as
// /dev/stdout, it goes as it is.
func writeNamed(stdout io.Writer, name string, page []byte) error {
	if info, err := os.Stat(name); err != nil || info.Mode().IsRegular() || info.IsDir() {
		return writeFile(stdout, name, page)
	}
	return os.WriteFile(name, page, 0o644)
}

// writeFile writes a report and says where.
func writeFile(stdout io.Writer, name string, page []byte) error {
	if err := safely.Replace(name, page); err != nil {
		return err
	}
	_, err := fmt.Fprintln(stdout, report.Lines(name))
	return err
}

// tellChanges compares a run with the verdict that lies in its folder.
func tellChanges(stdout io.Writer, format, dir string, now *judge.Run) error {
	if format != "text" && format != "wide" {
		return nil // an answer for a program
	}
	name := filepath.Join(dir, "run.json")
	data, err := safely.Read(name, maxRun)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil // a timeline by itself
	}
	if err != nil {
		return &chaos.InvalidError{Text: err.Error()}
	}
	var was judge.Run
	if err := json.Unmarshal(data, &was); err != nil {
		return &chaos.InvalidError{Text: fmt.Sprintf("%s: %v", name, err)}
	}
	changes := judge.Changes(&was, now)
	if len(changes) == 0 {
		_, err = fmt.Fprintln(stdout, "\nnothing changed since it was judged last")
		return err
	}
	return report.Changes(stdout, changes)
}

// maxRun is how many bytes run.json may have.
const maxRun = 16 << 20

// outputFlag adds -o.
func outputFlag(c *cobra.Command, format *string) {
	c.Flags().StringVarP(format, "output", "o", "text", "one of "+strings.Join(report.Formats, ", "))
	// The only error is that the flag does not exist.
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(report.Formats, cobra.ShellCompDirectiveNoFileComp))
}

func checkFormat(format string) error {
	if slices.Contains(report.Formats, format) {
		return nil
	}
	return &chaos.InvalidError{Text: fmt.Sprintf("-o %s: want one of %s", format, strings.Join(report.Formats, ", "))}
}

func healCommand(stderr io.Writer) *cobra.Command {
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
			how.say = func(s string) { fmt.Fprintln(stderr, report.Lines(s)) }
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
	c.Flags().StringVar(&artifacts, "artifacts", defaultArtifacts(), "folder for the records of runs; $ARTIFACTS")
	return c
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

func cleanCommand(stderr io.Writer) *cobra.Command {
	var dryRun, all bool
	c := &cobra.Command{
		Use:   "clean [CLUSTER]",
		Short: "Delete a cluster that flatline made, or all of this user on which nobody is at work",
		Long: `Delete a cluster that flatline made, with its kubeconfig, or all that this user made on
this machine. One on which somebody is at work, from whatever machine, is left alone;
so is one that may be being made.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, names []string) error {
			list, err := chaos.Clusters(c.Context())
			if err != nil {
				return err
			}
			if len(names) == 1 {
				list = slices.DeleteFunc(list, func(k chaos.Kept) bool { return k.Name != names[0] })
				if len(list) == 0 {
					return &chaos.InvalidError{Text: fmt.Sprintf("there is no cluster %q of flatline's; %s lists them", names[0], chaos.Command("clean", "--all", "--dry-run"))}
				}
			}
			return clean(c.Context(), list, len(names) == 1, all, dryRun, stderr)
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "list them only")
	c.Flags().BoolVar(&all, "all", false, "those of other users and machines too")
	return c
}

// clean deletes clusters. One that was asked for by name has to be deleted; of several
// those stay that are at work or somebody else's, and it is said why.
func clean(ctx context.Context, list []chaos.Kept, named, all, dryRun bool, stderr io.Writer) error {
	var errs []error
	for _, k := range list {
		what := fmt.Sprintf("cluster %s of run %s: %s", k.Name, k.RunID, strings.Join(k.Containers, " "))
		switch {
		case k.Busy != "" && named:
			return &chaos.InvalidError{Text: fmt.Sprintf("cluster %s stays: %s", k.Name, k.Busy)}
		case k.Busy != "" && (k.Own || all):
			fmt.Fprintf(stderr, "stays: cluster %s: %s\n", k.Name, k.Busy)
		case !k.Own && !named && !all:
			fmt.Fprintf(stderr, "stays: cluster %s: not made by this user on this machine; --all takes it too\n", k.Name)
		default:
			fmt.Fprintln(stderr, what)
			if !dryRun {
				errs = append(errs, k.Delete(ctx))
			}
		}
	}
	return errors.Join(errs...)
}
