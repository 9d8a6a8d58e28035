package cluster

import (
	"archive/tar"
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Whether a cluster is at work is known where the cluster is: a file in the container of
// its control plane, touched for as long as somebody holds it. Anybody who can reach the engine
// can read it, in a container that is stopped as well.
const (
	signFile  = "/etc/flatline/at-work"
	signEvery = 10 * time.Second
	signGood  = time.Minute      // a sign that is younger means at work
	birthTime = 30 * time.Minute // in which a cluster without a sign may be one that is being made
)

// holdScript lives in the node for as long as its standard input; a minute without a line
// ends it as well, since a network may not tell that its other end is gone.
//
//go:embed hold.sh
var holdScript string

// A BusyError says that somebody is at work on a cluster, or may be.
type BusyError struct{ Cluster, Why string }

func (e *BusyError) Error() string { return e.Cluster + ": " + e.Why }

// A Holding keeps the sign of life on a cluster.
type Holding struct {
	stop func()
	all  sync.WaitGroup
}

// Release takes the sign away; nil has none.
func (h *Holding) Release() {
	if h != nil {
		h.stop()
		h.all.Wait()
	}
}

// Hold keeps the sign of life on a cluster until it is released, in the words of who. If
// somebody else does, the error is a *BusyError. A cluster that is still to be made has
// the sign as soon as its control plane runs.
func Hold(ctx context.Context, name, who string) (*Holding, error) {
	there, err := find(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("holding cluster %s: %w", name, err)
	}
	if len(there) > 0 {
		if w, err := AtWork(ctx, infos(there, nil)[0]); err != nil {
			return nil, fmt.Errorf("holding cluster %s: %w", name, err)
		} else if w.Why != "" && !w.Young {
			return nil, &BusyError{name, w.Why}
		}
	}
	living, stop := context.WithCancel(context.WithoutCancel(ctx))
	h := &Holding{stop: stop}
	first := make(chan string, 1)
	h.all.Go(func() {
		node := &Node{Name: name + "-control-plane"}
		for living.Err() == nil {
			node.hold(living, who, first)
			select {
			case <-living.Done():
			case <-time.After(signEvery):
			}
		}
	})
	if len(there) == 0 {
		return h, nil
	}
	select { // what cannot be held, since it does not run, is not anybody's
	case said := <-first:
		if busy, ok := strings.CutPrefix(said, "busy"); ok {
			h.Release()
			return nil, &BusyError{name, workWords(busy)}
		}
		return h, nil
	case <-ctx.Done():
		h.Release()
		return nil, context.Cause(ctx)
	}
}

// hold keeps the sign until ctx ends, or the node does. It tells first, if nobody has yet,
// what the node says.
func (n *Node) hold(ctx context.Context, who string, first chan<- string) {
	pr, pw := io.Pipe()
	go func() {
		line, _ := bufio.NewReader(pr).ReadString('\n')
		select {
		case first <- strings.TrimSpace(line):
		default:
		}
		_, _ = io.Copy(io.Discard, pr)
	}()
	// Not under ctx: its end is told to the shell, which takes the sign away.
	bounded, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(execTimeout, cancel) })()
	err := n.Exec(bounded, beat{ctx}, pw, "bash", "-c", holdScript, "bash", signFile, who)
	pw.CloseWithError(errors.Join(err, io.EOF))
}

// beat is a reader that has a line every ten seconds until its context ends.
type beat struct{ ctx context.Context }

func (b beat) Read(p []byte) (int, error) {
	select {
	case <-b.ctx.Done():
		return 0, io.EOF
	case <-time.After(signEvery):
		return copy(p, "\n"), nil
	}
}

// Work is what is known of who is at work on a cluster.
type Work struct {
	Why   string // "" if nobody is
	Young bool   // there is no sign, but the cluster is so young that it may be being made
}

// AtWork says who is, or may be, at work on a cluster. Ages are by the engine's own clock.
func AtWork(ctx context.Context, i Info) (w Work, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("looking whether somebody is at work on cluster %s: %w", i.Name, err)
		}
	}()
	engine, err := askEngine(ctx)
	if err != nil {
		return w, err
	}
	touched, who, err := sign(ctx, i.control)
	switch {
	case err != nil:
		return w, err
	case touched.IsZero() && engine.Time.Sub(i.Made) < birthTime:
		return Work{fmt.Sprintf("it was begun %.0f s ago and may be being made", engine.Time.Sub(i.Made).Seconds()), true}, nil
	case !touched.IsZero() && engine.Time.Sub(touched) < signGood:
		return Work{fmt.Sprintf("%s, seen %.0f s ago", workWords(who), engine.Time.Sub(touched).Seconds()), false}, nil
	}
	return w, nil
}

func workWords(who string) string {
	who = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, strings.TrimSpace(who))
	if who == "" {
		return "somebody is at work on it"
	}
	return "somebody is at work on it: " + who
}

// sign reads when a control plane was touched last, and by whom; the time is zero if
// there is no such container, or it never was.
func sign(ctx context.Context, control string) (touched time.Time, who string, err error) {
	if control == "" {
		return time.Time{}, "", nil
	}
	packed, err := docker(ctx, nil, "cp", control+":"+signFile, "-")
	switch {
	case err != nil && noSuchFile(err):
		return time.Time{}, "", nil
	case err != nil:
		return time.Time{}, "", err
	}
	r := tar.NewReader(strings.NewReader(packed))
	h, err := r.Next()
	if err != nil {
		return time.Time{}, "", fmt.Errorf("reading %s of %s: %w", signFile, control, err)
	}
	if h.Typeflag != tar.TypeReg {
		return time.Time{}, "", fmt.Errorf("%s of %s is no file", signFile, control)
	}
	words, err := io.ReadAll(io.LimitReader(r, 200))
	return h.ModTime, string(words), err
}

// noSuchFile tells whether the engine says that a container does not have a file, or that
// there is no such container any more.
func noSuchFile(err error) bool {
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "could not find the file") || strings.Contains(text, "no such container") ||
		strings.Contains(text, "no such file or directory")
}
