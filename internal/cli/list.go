package cli

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/flatline-chaos/flatline/experiments"
	"github.com/flatline-chaos/flatline/pkg/chaos"
)

func (a *app) list() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the experiments",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			names, err := chaos.Names(experiments.FS)
			if err != nil {
				return err
			}
			tw := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
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
