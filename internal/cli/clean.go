package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flatline-chaos/flatline/pkg/chaos"
)

func (a *app) clean() *cobra.Command {
	var opts cleanOptions
	c := &cobra.Command{
		Use:   "clean [CLUSTER]",
		Short: "Delete a cluster that flatline made, or all of this user on which nobody is at work",
		Long: `Delete a cluster that flatline made, with its kubeconfig, or all that this user made on
this machine. One on which somebody is at work, from whatever machine, is left alone;
so is one that may be being made.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, names []string) error {
			list, err := chaos.Clusters(c.Context())
			if err != nil {
				return err
			}
			if len(names) == 1 {
				list = slices.DeleteFunc(list, func(k chaos.Kept) bool { return k.Name != names[0] })
				if len(list) == 0 {
					return &chaos.InvalidError{Text: fmt.Sprintf("there is no cluster %q of flatline's; %s lists them",
						names[0], chaos.Command("clean", "--all", "--dry-run"))}
				}
			}
			opts.named = len(names) == 1
			return a.deleteClusters(c.Context(), list, opts)
		},
	}
	c.Flags().BoolVar(&opts.dryRun, "dry-run", false, "list them only")
	c.Flags().BoolVar(&opts.all, "all", false, "those of other users and machines too")
	return a.interruptible(c)
}

// cleanOptions say which clusters to delete.
type cleanOptions struct {
	named  bool // this one was asked for by name
	all    bool // those of other users and machines too
	dryRun bool
}

// deleteClusters deletes clusters. One that was asked for by name must be deleted. Of several,
// a cluster stays if it is at work or somebody else's, and the reason is printed.
func (a *app) deleteClusters(ctx context.Context, list []chaos.Kept, opts cleanOptions) error {
	var errs []error
	for _, k := range list {
		switch {
		case k.Busy != "" && opts.named:
			return &chaos.InvalidError{Text: fmt.Sprintf("cluster %s stays: %s", k.Name, k.Busy)}
		case k.Busy != "" && (k.Own || opts.all):
			fmt.Fprintf(a.err, "stays: cluster %s: %s\n", k.Name, k.Busy)
		case !k.Own && !opts.named && !opts.all:
			fmt.Fprintf(a.err, "stays: cluster %s: not made by this user on this machine; --all takes it too\n", k.Name)
		default:
			fmt.Fprintf(a.err, "cluster %s of run %s: %s\n", k.Name, k.RunID, strings.Join(k.Containers, " "))
			if !opts.dryRun {
				errs = append(errs, k.Delete(ctx))
			}
		}
	}
	return errors.Join(errs...)
}
