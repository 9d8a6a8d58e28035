package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// An interruption is what signals have asked for so far.
type interruption struct {
	hurry  chan struct{}          // closed by the second signal
	folder atomic.Pointer[string] // of the run under way
}

// interruptible lets a verb that changes clusters end in its own time. The first signal ends
// the verb's context. The second asks for haste. The third ends the process and prints the
// command that goes on from there. A verb without this is ended by the first signal, as any
// program.
func (a *app) interruptible(c *cobra.Command) *cobra.Command {
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, stop := a.catch(c.Context())
		defer stop()
		c.SetContext(ctx)
		err := run(c, args)
		if err != nil && ctx.Err() != nil && !hasCode(err) {
			return &codeError{code: exitInterrupted, err: errors.New("interrupted")}
		}
		return err
	}
	return c
}

// catch makes a context that signals end, until stop. It may be called once.
func (a *app) catch(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A reader that went away must not end a run with its fault in place. What is ignored
	// would be ignored by children too; what is caught is not.
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	go func() {
		n := 0
		for range signals {
			n++
			a.signalled(n, cancel)
		}
	}()
	return ctx, func() { signal.Stop(signals); signal.Stop(pipes); close(signals); cancel() }
}

// signalled does what the n-th signal asks for.
func (a *app) signalled(n int, cancel func()) {
	folder := a.signals.folder.Load()
	switch {
	case n == 1:
		cancel()
		if folder != nil {
			tell(a.err, "\ninterrupted: undoing, repairing, collecting, deleting; once more skips the collecting\n")
		}
	case n == 2:
		close(a.signals.hurry)
		tell(a.err, "\nin a hurry: undoing, repairing and deleting only; once more leaves everything as it is\n")
	case folder != nil:
		tell(a.err, fmt.Sprintf("\nleft as it is; this puts it right:\n  %s\n", chaos.Command("heal", *folder)))
		os.Exit(judge.OutcomeDirty.ExitCode())
	default:
		tell(a.err, "\nleft as it is\n")
		os.Exit(exitInterrupted)
	}
}

// tell answers whoever sends signals, and waits for that at most a second: the terminal may
// be stopped.
func tell(stderr io.Writer, text string) {
	told := make(chan struct{})
	go func() {
		defer close(told)
		_, _ = io.WriteString(stderr, text)
	}()
	select {
	case <-told:
	case <-time.After(time.Second):
	}
}

// relay has another goroutine show the news of runs, since a stopped terminal must not stop
// the undo. It drops news that nobody reads. stop returns when all is shown; nothing may be
// told after it.
func (a *app) relay(show func(judge.Update)) (tell func(judge.Update), stop func()) {
	news := make(chan judge.Update, 4096)
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		for u := range news {
			show(u)
		}
	}()
	tell = func(u judge.Update) {
		a.signals.folder.Store(&u.Folder)
		select {
		case news <- u:
		default:
		}
	}
	return tell, func() { close(news); <-shown }
}
