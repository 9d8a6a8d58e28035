package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/flatline-chaos/flatline/pkg/cluster"
)

// A Lock says that a process is at work on a cluster. It ends with the process,
// however that ends.
type Lock struct{ f *os.File }

// ErrBusy says that another process is at work on the cluster.
var ErrBusy = errors.New("another flatline is at work on it")

// lockCluster takes the lock of a cluster, or says ErrBusy.
func lockCluster(name string) (*Lock, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("locking cluster %s: %w", name, err)
	}
	dir = filepath.Join(dir, "flatline", "locks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("locking cluster %s: %w", name, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking cluster %s: %w", name, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking cluster %s: %w", name, ErrBusy)
		}
		return nil, fmt.Errorf("locking cluster %s: %w", name, err)
	}
	return &Lock{f}, nil
}

// Release gives the lock back; nil has nothing to give. Its file stays: to remove it
// would let two processes hold two locks of one name.
func (l *Lock) Release() {
	if l != nil {
		l.f.Close()
	}
}

// Idle lists our clusters on which no process is at work: kept on purpose, or
// left behind by a runner that was killed.
func Idle(ctx context.Context) ([]cluster.Info, error) {
	infos, err := cluster.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking for clusters of ours: %w", err)
	}
	return slices.DeleteFunc(infos, func(i cluster.Info) bool {
		l, err := lockCluster(i.Name)
		l.Release()
		return errors.Is(err, ErrBusy)
	}), nil
}

// Delete deletes a cluster of ours, unless a process is at work on it.
func Delete(ctx context.Context, name string) error {
	l, err := lockCluster(name)
	if err != nil {
		return err
	}
	defer l.Release()
	return cluster.Delete(ctx, name)
}
