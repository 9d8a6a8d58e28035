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

func (a *app) compare() *cobra.Command {
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
		RunE: func(_ *cobra.Command, args []string) error { return a.runComparison(o, args) },
	}
	c.Flags().StringVar(&o.col, "col", "", "compare the values of this flag")
	c.Flags().BoolVar(&o.knobs, "knobs", false, "what each flag does that alone was changed")
	c.Flags().BoolVar(&o.exitCode, "exit-code", false, "exit with 1 if anything differs significantly")
	c.Flags().StringVarP(&o.format, "output", "o", "text", "one of "+strings.Join(report.ComparisonFormats, ", "))
	c.Flags().StringVarP(&o.file, "file", "f", "", "where to write it, instead of to the standard output")
	complete(c, "output", report.ComparisonFormats...)
	return c
}

// A comparison is what the user asks for.
type comparison struct {
	col, format, file string
	knobs, exitCode   bool
}

// A finding is what a comparison found, for the exit code.
type finding struct {
	changed bool // something differs significantly
	blind   bool // there are too few runs to show that
}

// runComparison compares runs and writes what came of it.
func (a *app) runComparison(o comparison, args []string) error {
	if err := o.check(args); err != nil {
		return err
	}
	var page bytes.Buffer
	show := o.showTables
	if o.knobs {
		show = o.showKnobs
	}
	found, err := show(&page, args)
	if err != nil {
		return err
	}
	if o.file != "" {
		err = a.writeNamed(o.file, page.Bytes())
	} else {
		_, err = a.out.Write(page.Bytes())
	}
	switch {
	case err != nil || !o.exitCode:
		return err
	case found.changed:
		return &codeError{code: judge.OutcomeFail.ExitCode(), err: errors.New("there are significant differences")}
	case found.blind:
		return &codeError{code: judge.OutcomeInconclusive.ExitCode(), err: errors.New("too few runs to show any difference")}
	}
	return nil
}

// check refuses what does not go together.
func (o comparison) check(args []string) error {
	var text string
	switch {
	case !slices.Contains(report.ComparisonFormats, o.format):
		text = fmt.Sprintf("-o %s: want one of %s", o.format, strings.Join(report.ComparisonFormats, ", "))
	case o.col != "" && o.knobs:
		text = "--col and --knobs are two questions: ask one"
	case o.knobs && o.format == "html":
		text = "-o html draws arms: use --col with one of the flags"
	case o.col == "" && !o.knobs && len(args) != 2:
		text = fmt.Sprintf("two sets of runs are compared, %d are named: "+
			"put commas between the folders of one set, or say --col FLAG or --knobs", len(args))
	case slices.Contains(args, ""):
		text = fmt.Sprintf("set %d of runs has no name: make compare wants A=DIR and B=DIR", slices.Index(args, "")+1)
	default:
		return nil
	}
	return &chaos.InvalidError{Text: text}
}

// showKnobs writes what each flag does that alone was changed.
func (o comparison) showKnobs(out io.Writer, args []string) (finding, error) {
	runs, err := readFinished(args)
	if err != nil {
		return finding{}, err
	}
	knobs, err := compare.Attribute(runs)
	if err != nil {
		return finding{}, &chaos.InvalidError{Text: err.Error()}
	}
	changed := slices.ContainsFunc(knobs.Knobs, func(k compare.Knob) bool {
		return slices.ContainsFunc(k.Effects, func(e compare.Effect) bool { return e.Significant })
	})
	return finding{changed: changed}, report.Knobs(out, o.format, knobs)
}

// showTables writes the tables of two sets of runs, or of the values of a flag.
func (o comparison) showTables(out io.Writer, args []string) (finding, error) {
	tables, err := o.tables(args)
	if err != nil {
		return finding{}, err
	}
	found := finding{
		changed: slices.ContainsFunc(tables, (*compare.Table).Changed),
		blind:   slices.ContainsFunc(tables, func(t *compare.Table) bool { return t.Blind }),
	}
	return found, report.Comparison(out, o.format, tables)
}

// tables are those of two sets of runs, or of the values of a flag.
func (o comparison) tables(args []string) ([]*compare.Table, error) {
	if o.col != "" {
		runs, err := readFinished(args)
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
		runs, err := readFinished(strings.Split(arg, ","))
		if err != nil {
			return nil, err
		}
		arms = append(arms, compare.Arm{Name: string(rune('A' + i)), Runs: runs})
	}
	t := compare.New(args[0]+" and "+args[1], arms...)
	for _, arm := range t.Arms {
		if arm.Runs == 0 {
			return nil, &chaos.InvalidError{Text: arm.Name + ": no run in it came to an answer"}
		}
	}
	return []*compare.Table{t}, nil
}
