package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/flatline-chaos/flatline/internal/claims"
)

// Claims writes what runs say of the statements of the reference document, as a
// table in Markdown.
func Claims(out io.Writer, answers []claims.Answer) error {
	var b strings.Builder
	b.WriteString("| claim | said | verdict | measured | runs |\n|---|---|---|---|--:|\n")
	open := 0
	for _, a := range answers {
		if a.Verdict == claims.Open {
			open++
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %d |\n", cell(a.ID), cell(a.Said), cell(a.Verdict), cell(a.Measured), len(a.Runs))
	}
	fmt.Fprintf(&b, "\n%d of %d are answered.\n", len(answers)-open, len(answers))
	_, err := io.WriteString(out, guard(b.String()))
	return err
}
