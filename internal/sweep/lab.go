package sweep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/cluster"
)

// A KindLab is a Lab with kind clusters. Close it.
type KindLab struct {
	opts    chaos.Options
	say     func(format string, args ...any)
	lock    *os.File
	cluster *cluster.Cluster
	base    *chaos.Experiment
}

// NewKindLab makes a lab whose records lie below opts.Artifacts. It deletes the
// cluster that a lab of this user in the same place has left when it was killed, and refuses to work
// beside one that is at work: the error is chaos.ErrBusy.
func NewKindLab(ctx context.Context, opts chaos.Options, say func(format string, args ...any)) (*KindLab, error) {
	if err := os.MkdirAll(opts.Artifacts, 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of the sweep: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(opts.Artifacts, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking the folder of the sweep: %w", err)
	}
	l := &KindLab{opts: opts, say: say, lock: lock}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = chaos.ErrBusy
		}
		return nil, errors.Join(fmt.Errorf("locking the folder of the sweep %s: %w", opts.Artifacts, err), l.Close())
	}
	if err := l.deleteLeft(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Close gives the folder back.
func (l *KindLab) Close() error { return l.lock.Close() }

// deleteLeft deletes the clusters that say that they were made for this folder.
func (l *KindLab) deleteLeft(ctx context.Context) error {
	left, err := chaos.LeftFor(ctx, l.opts.Artifacts)
	if err != nil {
		return err
	}
	for _, k := range left {
		l.say("cluster %s was left by a sweep that was killed: deleting it", k.Name)
		if err := k.Delete(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Prepare implements Lab.
func (l *KindLab) Prepare(ctx context.Context, base, arm *chaos.Experiment) error {
	if l.cluster != nil && l.base != base {
		if err := l.Discard(ctx); err != nil {
			return err
		}
	}
	if l.cluster == nil {
		l.say("making a cluster")
		var err error
		if l.cluster, l.opts.Lock, err = chaos.CreateCluster(ctx, base, l.opts); err != nil {
			return fmt.Errorf("%w: %w", ErrNoCluster, err)
		}
		l.base = base
	}
	began := time.Now()
	if err := l.cluster.SetFlags(ctx, arm.Flags()); err != nil {
		return err
	}
	if took := time.Since(began); took > time.Second {
		l.say("flags changed in place, %.0f s", took.Seconds())
	}
	return nil
}

// Run implements Lab.
func (l *KindLab) Run(ctx context.Context, exp *chaos.Experiment) (*chaos.Result, error) {
	opts := l.opts
	opts.Cluster = l.cluster
	return chaos.Run(ctx, exp, opts)
}

// Discard implements Lab.
func (l *KindLab) Discard(ctx context.Context) error {
	if l.cluster == nil {
		return nil
	}
	if err := l.cluster.Delete(ctx); err != nil {
		return err
	}
	l.opts.Lock.Release()
	l.cluster, l.opts.Lock = nil, nil
	return nil
}
