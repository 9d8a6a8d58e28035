package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/flatline-chaos/flatline/internal/safely"
	"github.com/flatline-chaos/flatline/pkg/cluster"
)

func (a *app) nodeImage() *cobra.Command {
	return &cobra.Command{
		Use:   "node-image",
		Short: "Print the node image that a run would use; of a binary in its clone, build it if there is none",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx := c.Context()
			choice := a.imageChoice(ctx)
			image, err := cluster.ChooseImage(ctx, choice)
			if errors.Is(err, cluster.ErrNoImage) && choice.Built != "" {
				if err := a.buildImage(ctx); err != nil {
					return err
				}
				image, err = cluster.ChooseImage(ctx, choice)
			}
			if err != nil {
				return err
			}
			fmt.Fprintln(a.out, image.Ref)
			return nil
		},
	}
}

// buildImage runs the recipe. A signal is handed on to it, and ends both; a second one does not
// wait for that.
func (a *app) buildImage(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	build := exec.CommandContext(ctx, recipe())
	build.Stdin, build.Stdout, build.Stderr = os.Stdin, a.err, a.err // it may have to ask
	build.Cancel = func() error { stop(); return build.Process.Signal(syscall.SIGTERM) }
	build.WaitDelay = time.Minute
	err := build.Run()
	if ctx.Err() != nil {
		return &codeError{code: exitInterrupted, err: errors.New("interrupted")}
	}
	if err != nil {
		return fmt.Errorf("building the node image: %w", err)
	}
	return nil
}

// recipe is the build of the node image: that of the clone in which the binary lies, as
// bin/flatline or beside go.mod, "" if it lies in none. What lies in the working folder is
// somebody's and is never run. "go run" and "go test" put the binary elsewhere: say NODE_IMAGE.
func recipe() string {
	binary, err := os.Executable()
	if err == nil {
		binary, err = filepath.EvalSymlinks(binary)
	}
	if err != nil {
		return ""
	}
	root := filepath.Dir(binary)
	if filepath.Base(root) == "bin" {
		root = filepath.Dir(root)
	}
	mod, err := safely.Read(filepath.Join(root, "go.mod"), 1<<20)
	build := filepath.Join(root, "hack", "nodeimage", "build")
	if err != nil || !strings.HasPrefix(string(mod), "module "+module+"\n") {
		return ""
	}
	if _, err := os.Stat(build); err != nil {
		return ""
	}
	return build
}

// module is that of this program.
const module = "github.com/flatline-chaos/flatline"

// imageChoice says how to find the node image: what the user asks for, then the
// image that the recipe of this clone makes, then kind's own.
func (a *app) imageChoice(ctx context.Context) cluster.Choice {
	c := cluster.Choice{Override: a.env("NODE_IMAGE")}
	if build := recipe(); build != "" {
		if out, err := exec.CommandContext(ctx, build, "--tag").Output(); err == nil {
			c.Built = strings.TrimSpace(string(out))
		}
	}
	return c
}
