package cli

import (
	"github.com/spf13/cobra"

	"github.com/flatline-chaos/flatline/experiments"
)

func (a *app) schema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of an experiment's file, for editors",
		Long: `Print the JSON schema of an experiment's file, for editors: they then complete and
explain fields, milestones, faults and flags, and mark mistakes while you type.

An editor with yaml-language-server, such as VS Code with the extension "YAML", takes
the schema from the first line of a file:

  # yaml-language-server: $schema=flatline.schema.json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write(experiments.Schema)
			return err
		},
	}
}
