package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flatline-chaos/flatline/internal/record"
	"github.com/flatline-chaos/flatline/internal/report"
	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

func (a *app) judge() *cobra.Command {
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
				return report.Summary(a.out, runs)
			}
			for _, run := range runs {
				if err := report.Print(a.out, format, run); err != nil {
					return err
				}
			}
			return a.tellChanges(format, args[0], runs[0])
		},
	}
	outputFlag(c, &format)
	return c
}

// tellChanges compares a run with the verdict that lies in its folder.
func (a *app) tellChanges(format, dir string, now *judge.Run) error {
	if format != "text" && format != "wide" {
		return nil // an answer for a program
	}
	was, err := record.Verdict(dir)
	if err != nil {
		return &chaos.InvalidError{Text: err.Error()}
	}
	if was == nil {
		return nil // a timeline by itself
	}
	changes := judge.Changes(was, now)
	if len(changes) == 0 {
		_, err := fmt.Fprintln(a.out, "\nnothing changed since it was judged last")
		return err
	}
	return report.Changes(a.out, changes)
}
