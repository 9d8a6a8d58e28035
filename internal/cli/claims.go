package cli

import (
	"github.com/spf13/cobra"

	"github.com/flatline-chaos/flatline/internal/claims"
	"github.com/flatline-chaos/flatline/internal/report"
)

func (a *app) claims() *cobra.Command {
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
			return report.Claims(a.out, claims.Answers(runsOf(recs)))
		},
	}
}
