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
	fmt.Fprintf(&b, "### %s %s, profile %s: %s\n\n", sign, r.Experiment, r.Profile, outcome(r))
	if len(r.Target) > 0 { // else there was no cluster
		fmt.Fprintf(&b, "Kubernetes %s, target %s, ", r.KubernetesVersion, strings.Join(r.Target, ", "))
	}
	fmt.Fprintf(&b, "run `%s`, %.0f s\n\n", r.RunID, r.Cost.WallSeconds)
	for _, why := range r.Reasons {
		fmt.Fprintf(&b, "- %s\n", cell(why))
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
	_, err := io.WriteString(out, b.String())
	return err
}

// cell keeps a text inside its cell.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s)
}

// Annotations writes a line of the GitHub Actions workflow commands for every
// missed expectation, or for the reason why there is no answer.
func Annotations(out io.Writer, r *judge.Run) error {
	if r.AsWanted() {
		return nil
	}
	escape := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	for _, why := range r.Reasons {
		if _, err := fmt.Fprintf(out, "::error title=flatline %s (%s): %s::%s\n", r.Experiment, r.Profile, r.Outcome, escape.Replace(why)); err != nil {
			return err
		}
	}
	return nil
}
