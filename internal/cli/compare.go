package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flatline-chaos/flatline/internal/compare"
	"github.com/flatline-chaos/flatline/internal/report"
	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// errChanged says that --exit-code found a difference.
var errChanged = errors.New("there are significant differences")

func compareCommand(stdout io.Writer) *cobra.Command {
	var o comparison
	c := &cobra.Command{
		Use:   "compare A B | compare --col FLAG RUN... | compare --knobs RUN...",
		Short: "Compare the timings of recorded runs: two sets, the values of a flag, or one flag at a time",
		Long: `Compare the timings of recorded runs, by today's rules.

Two sets of runs, A and B; each may be several folders with commas between them, those
of shards say. Or, with --col, the values of one flag (component.name; or experiment,
profile, kubernetes) among all the runs: those that are the same but for it come into
one table. Or, with --knobs, every flag that alone differs from a set of runs which all
others are compared with: what it does to each step, and what the model says.

Every milestone counts from its own cause, so that one shift does not count ten times.
Medians come with 95 % intervals, differences with p (Mann-Whitney, corrected for the
number of milestones after Holm), and beside the measured shift stands the one that the
windows predict. What was not reached is no number and ranks last.

With --exit-code the exit code is 1 if anything differs significantly, and 4 if there are
too few runs for that: a gate against a folder of runs that is kept.`,
		Args: someRuns,
		RunE: func(_ *cobra.Command, args []string) error { return o.run(stdout, args) },
	}
	c.Flags().StringVar(&o.col, "col", "", "compare the values of this flag")
	c.Flags().BoolVar(&o.knobs, "knobs", false, "what each flag does that alone was changed")
	c.Flags().BoolVar(&o.exitCode, "exit-code", false, "exit with 1 if anything differs significantly")
	c.Flags().StringVarP(&o.format, "output", "o", "text", "one of "+strings.Join(report.ComparisonFormats, ", "))
	c.Flags().StringVarP(&o.file, "file", "f", "", "where to write it, instead of to the standard output")
	// The only error is that the flag does not exist.
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(report.ComparisonFormats, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// A comparison is what the user asks for.
type comparison struct {
	col, format, file string
	knobs, exitCode   bool
}

func (o comparison) run(stdout io.Writer, args []string) error {
	switch {
	case !slices.Contains(report.ComparisonFormats, o.format):
		return &chaos.InvalidError{Text: fmt.Sprintf("-o %s: want one of %s", o.format, strings.Join(report.ComparisonFormats, ", "))}
	case o.col != "" && o.knobs:
		return &chaos.InvalidError{Text: "--col and --knobs are two questions: ask one"}
	case o.knobs && o.format == "html":
		return &chaos.InvalidError{Text: "-o html draws arms: use --col with one of the flags"}
	case o.col == "" && !o.knobs && len(args) != 2:
		return &chaos.InvalidError{Text: fmt.Sprintf("two sets of runs are compared, %d are named: put commas between the folders of one set, or say --col FLAG or --knobs", len(args))}
	}
	if i := slices.Index(args, ""); i >= 0 {
		return &chaos.InvalidError{Text: fmt.Sprintf("set %d of runs has no name: make compare wants A=DIR and B=DIR", i+1)}
	}
	var page bytes.Buffer
	changed, blind := false, false
	if o.knobs {
		runs, err := runsBelow(args)
		if err != nil {
			return err
		}
		k, err := compare.Attribute(runs)
		if err != nil {
			return &chaos.InvalidError{Text: err.Error()}
		}
		for _, knob := range k.Knobs {
			changed = changed || slices.ContainsFunc(knob.Effects, func(e compare.Effect) bool { return e.Significant })
		}
		if err := report.Knobs(&page, o.format, k); err != nil {
			return err
		}
	} else {
		tables, err := o.tables(args)
		if err != nil {
			return err
		}
		changed = slices.ContainsFunc(tables, (*compare.Table).Changed)
		blind = slices.ContainsFunc(tables, func(t *compare.Table) bool { return t.Blind })
		if err := report.Comparison(&page, o.format, tables); err != nil {
			return err
		}
	}
	if o.file == "" {
		if _, err := stdout.Write(page.Bytes()); err != nil {
			return err
		}
	} else if err := writeNamed(stdout, o.file, page.Bytes()); err != nil {
		return err
	}
	switch {
	case o.exitCode && blind && !changed:
		return &codeError{code: judge.OutcomeInconclusive.ExitCode(), err: errors.New("too few runs to show any difference")}
	case o.exitCode && changed:
		return &codeError{code: judge.OutcomeFail.ExitCode(), err: errChanged}
	}
	return nil
}

// tables are those of two sets of runs, or of the values of a flag.
func (o comparison) tables(args []string) ([]*compare.Table, error) {
	if o.col != "" {
		runs, err := runsBelow(args)
		if err != nil {
			return nil, err
		}
		tables, err := compare.By(o.col, runs)
		if err != nil {
			return nil, &chaos.InvalidError{Text: err.Error()}
		}
		return tables, nil
	}
	var arms []compare.Arm
	for i, arg := range args {
		runs, err := runsBelow(strings.Split(arg, ","))
		if err != nil {
			return nil, err
		}
		arms = append(arms, compare.Arm{Name: string(rune('A' + i)), Runs: runs})
	}
	t := compare.New(args[0]+" and "+args[1], arms...)
	for _, a := range t.Arms {
		if a.Runs == 0 {
			return nil, &chaos.InvalidError{Text: a.Name + ": no run in it came to an answer"}
		}
	}
	return []*compare.Table{t}, nil
}

func runsBelow(names []string) ([]*judge.Run, error) {
	recs, err := readRecords(names)
	if err != nil {
		return nil, err
	}
	// Of a run whose runner was killed nothing can be said.
	return slices.DeleteFunc(runsOf(recs), func(r *judge.Run) bool { return !r.Finished() }), nil
}
