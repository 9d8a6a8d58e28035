package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/flatline-chaos/flatline/internal/record"
	"github.com/flatline-chaos/flatline/internal/report"
	"github.com/flatline-chaos/flatline/pkg/chaos"
)

func (a *app) report() *cobra.Command {
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
			var page bytes.Buffer
			if err := draw(&page, recs, format); err != nil {
				return err
			}
			return a.writePage(page.Bytes(), file, format, recs)
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "where to write it")
	c.Flags().StringVarP(&format, "output", "o", "html", "html, or svg: the drawing of one run alone")
	complete(c, "output", "html", "svg")
	return c
}

// draw draws one run whole, or several over one another.
func draw(out io.Writer, recs []*record.Record, format string) error {
	if len(recs) > 1 {
		if format == "svg" {
			return &chaos.InvalidError{Text: "-o svg draws one run, not several"}
		}
		return report.Overlay(out, runsOf(recs))
	}
	if format == "svg" {
		return report.SVG(out, recs[0].Trace, recs[0].Run)
	}
	return report.HTML(out, recs[0].Trace, recs[0].Run)
}

// writePage writes a page to where it belongs and says where that is.
func (a *app) writePage(page []byte, name, format string, recs []*record.Record) error {
	switch {
	case name == "-":
		_, err := a.out.Write(page)
		return err
	case name != "":
		return a.writeNamed(name, page)
	case len(recs) == 1 && filepath.Base(recs[0].File) == "timeline.jsonl":
		name = filepath.Join(filepath.Dir(recs[0].File), "report."+format)
	default:
		if err := os.MkdirAll(a.artifacts(), 0o755); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
		name = filepath.Join(a.artifacts(), "report."+format)
	}
	return a.writeFile(name, page)
}
