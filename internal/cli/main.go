// Package cli has the verbs of flatline, a file for each. It parses, calls and prints; it
// decides nothing.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/flatline-chaos/flatline/pkg/chaos"
)

// An app is one call of flatline: everything outside of it that its verbs reach.
type app struct {
	out, err io.Writer // the answer; progress and errors
	env      func(name string) string
	signals  *interruption
}

func newApp(stdout, stderr io.Writer) *app {
	return &app{out: stdout, err: stderr, env: os.Getenv, signals: &interruption{hurry: make(chan struct{})}}
}

// Main runs one command and returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	a := newApp(stdout, stderr)
	root := a.command()
	root.SetArgs(args)
	return a.exitCode(root.ExecuteContext(context.Background()))
}

// command is flatline with all its verbs.
func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:           "flatline",
		Short:         "Break a kubelet's client certificate on a real kind cluster and measure what happens to the node",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          usage(cobra.NoArgs),
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &chaos.InvalidError{Text: fmt.Sprintf("%v; see %s --help", err, c.CommandPath())}
	})
	for _, group := range []struct {
		id, title string
		verbs     []*cobra.Command
	}{
		{"run", "Run experiments:", []*cobra.Command{a.run(), a.tune(), a.plan(), a.list(), a.schema(), a.nodeImage()}},
		{"read", "Read recorded runs:", []*cobra.Command{a.judge(), a.report(), a.compare(), a.claims()}},
		{"repair", "Check and repair:", []*cobra.Command{a.doctor(), a.heal(), a.clean()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, verb := range group.verbs {
			verb.GroupID, verb.Args = group.id, usage(verb.Args)
			root.AddCommand(verb)
		}
	}
	return root
}
