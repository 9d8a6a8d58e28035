package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/cluster"
)

// remoteFlag adds --remote-engine.
func (a *app) remoteFlag(c *cobra.Command, remote *bool) {
	c.Flags().BoolVar(remote, "remote-engine", a.env("FLATLINE_REMOTE_ENGINE") == "1",
		"make clusters at an engine that is not reached by a local socket; $FLATLINE_REMOTE_ENGINE=1")
}

// beforeRun looks at what matters for a run, and asks for leave where the engine is
// elsewhere.
func (a *app) beforeRun(ctx context.Context, remote bool, stdin io.Reader) error {
	f := gather(ctx, false)
	if f.engineErr != nil {
		return f.engineErr
	}
	if err := a.consent(f.engine, remote, stdin); err != nil {
		return err
	}
	_, err := examine(a.err, f, true)
	return err
}

// consent names an engine that is elsewhere and asks, where there is somebody to ask.
func (a *app) consent(e cluster.Engine, given bool, stdin io.Reader) error {
	if !e.Remote() {
		return nil
	}
	fmt.Fprintf(a.err, "remote engine: %s, on %s\n", printable(e.Endpoint), printable(e.Name))
	if given {
		return nil
	}
	if in, ok := stdin.(*os.File); ok && isTerminal(in) && isTerminal(a.err) {
		fmt.Fprint(a.err, "Make a cluster of privileged containers there? [y/N] ")
		answer, err := bufio.NewReader(stdin).ReadString('\n')
		if err == nil && strings.HasPrefix(strings.ToLower(strings.TrimSpace(answer)), "y") {
			return nil
		}
	}
	return &chaos.InvalidError{Text: fmt.Sprintf("the container engine is at %s, not on a local socket: "+
		"--remote-engine or FLATLINE_REMOTE_ENGINE=1 says that it is meant", printable(e.Endpoint))}
}
