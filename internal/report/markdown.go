package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/flatline-chaos/flatline/pkg/judge"
)

// Markdown writes a run for a pull request or a step summary. It is a few kB long
// whatever the run.
func Markdown(out io.Writer, r *judge.Run) error {
	var b strings.Builder
	sign := tick
	if !r.AsWanted() {
		sign = cross
	}
	fmt.Fprintf(&b, "### %s %s, profile %s: %s\n\n", sign, cell(r.Experiment), cell(r.Profile), cell(outcome(r)))
	if len(r.Target) > 0 { // else there was no cluster
		fmt.Fprintf(&b, "Kubernetes %s, target %s, ", cell(r.KubernetesVersion), cell(strings.Join(r.Target, ", ")))
	}
	fmt.Fprintf(&b, "run %s, %.0f s\n\n", inCode(r.RunID), r.Cost.WallSeconds)
	for _, why := range r.Reasons {
		fmt.Fprintf(&b, "- %s\n", item(why))
	}
	if len(r.Reasons) > 0 {
		b.WriteString("\n")
	}
	if len(r.Milestones) > 0 {
		b.WriteString("| milestone | node | s after injection | counted from | s | window | | note |\n|---|---|--:|---|--:|---|---|---|\n")
	}
	for _, m := range r.Milestones {
		row := cells(m, r.Cluster)
		for _, c := range row {
			fmt.Fprintf(&b, "| %s ", cell(c))
		}
		b.WriteString("|\n")
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "\n> warning: %s\n", cell(w))
	}
	_, err := io.WriteString(out, guard(b.String()))
	return err
}

// Annotations writes a line of the GitHub Actions workflow commands for every
// missed expectation, or for the reason why there is no answer.
func Annotations(out io.Writer, r *judge.Run) error {
	if r.AsWanted() {
		return nil
	}
	title := property(fmt.Sprintf("flatline %s (%s): %s", r.Experiment, r.Profile, r.Outcome))
	for _, why := range r.Reasons {
		if _, err := fmt.Fprintf(out, "::error title=%s::%s\n", title, data(why)); err != nil {
			return err
		}
	}
	return nil
}
