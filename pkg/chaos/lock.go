package chaos

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/flatline-chaos/flatline/pkg/cluster"
)

// A Lock says that a process is at work on a cluster: to others of this user by a file
// that is locked, to everybody else by a sign in the cluster. It ends with the process,
// however that ends.
type Lock struct {
	f    *os.File
	sign *cluster.Holding
}

// ErrBusy says that another process is at work on the cluster.
var ErrBusy = errors.New("another flatline is at work on it")

// lockCluster takes the lock of a cluster, which may still have to be made, or says
// ErrBusy.
func lockCluster(name string) (*Lock, error) {
	l, err := lockFile(name)
	if err != nil {
		return nil, fmt.Errorf("locking cluster %s: %w", name, err)
	}
	host, _ := os.Hostname()
	// Its requests to the engine have limits of their own.
	l.sign, err = cluster.Hold(context.Background(), name, fmt.Sprintf("process %d of user %d on %s", os.Getpid(), os.Getuid(), host))
	if err != nil {
		l.Release()
		if busy := (*cluster.BusyError)(nil); errors.As(err, &busy) {
			err = fmt.Errorf("%w: %s", ErrBusy, busy.Why)
		}
		return nil, fmt.Errorf("locking cluster %s: %w", name, err)
	}
	return l, nil
}

// lockFile takes the part of the lock that this user's processes see. Anybody who looks
// whether it is free has it for an instant: so it is tried again.
func lockFile(name string) (*Lock, error) {
	dir, err := cacheFolder()
	if err != nil {
		return nil, err
	}
	path := lockPath(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return &Lock{f: f}, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || try == 3 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, ErrBusy
	}
	return nil, err
}

// locked tells whether somebody holds the file of a cluster's lock. There has to be one.
func locked(dir, name string) (bool, error) {
	f, err := os.OpenFile(lockPath(dir, name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// Release gives the lock back; nil has nothing to give. Its file stays: to remove it
// would let two processes hold two locks of one name.
func (l *Lock) Release() {
	if l != nil {
		l.sign.Release()
		l.f.Close()
	}
}

// cacheFolder is where this user's locks and kubeconfigs are.
func cacheFolder() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the user's cache folder: %w", err)
	}
	return filepath.Join(dir, "flatline"), nil
}

func lockPath(cache, name string) string { return filepath.Join(cache, "locks", name) }

// kubeconfigPath is the private file with the administrator's access to a cluster. It is no
// part of a run's record, which people upload.
func kubeconfigPath(cache, name string) string { return filepath.Join(cache, "kubeconfigs", name) }

// owner names this user on this machine. Two containers are two machines.
func owner() string {
	id, _ := os.ReadFile("/etc/machine-id")
	host, _ := os.Hostname()
	return fmt.Sprintf("%d@%x", os.Getuid(), sha256.Sum256([]byte(string(id)+"\n"+host)))[:24]
}

// A Kept is a cluster that flatline made, or what is left of one.
type Kept struct {
	cluster.Info
	Own  bool   // this user made it on this machine
	Busy string // who is, or may be, at work on it; "" if nobody is
}

// Clusters lists our clusters at the engine, no matter who made them. What cannot be looked at
// counts as at work.
func Clusters(ctx context.Context) ([]Kept, error) {
	infos, err := cluster.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking for clusters of ours: %w", err)
	}
	var list []Kept
	for _, i := range infos {
		k := Kept{Info: i, Own: i.Owner == owner()}
		if k.Busy, err = k.busy(ctx); err != nil {
			k.Busy = err.Error()
		}
		list = append(list, k)
	}
	return list, nil
}

// busy says why somebody is, or may be, at work on it. The lock's file is where the
// cluster says that its maker has it; the sign at the engine is for anybody who came later.
func (k Kept) busy(ctx context.Context) (string, error) {
	free := false // the maker is known to be gone
	if cache, ok := k.cache(); ok {
		held, err := locked(cache, k.Name)
		switch {
		case held:
			return ErrBusy.Error(), nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
		free = err == nil
	}
	w, err := cluster.AtWork(ctx, k.Info)
	if err != nil || w.Young && free {
		return "", err
	}
	return w.Why, nil
}

// cache is the folder of the cluster's maker, if that is us.
func (k Kept) cache() (string, bool) {
	return k.Cache, k.Own && filepath.IsAbs(k.Cache) && filepath.Base(k.Cache) == "flatline"
}

// Delete deletes a cluster that flatline made and its kubeconfig, unless somebody is at work on it.
func (k Kept) Delete(ctx context.Context) error {
	if k.Busy != "" {
		return fmt.Errorf("deleting cluster %s: %w: %s", k.Name, ErrBusy, k.Busy)
	}
	l, err := lockCluster(k.Name)
	if err != nil {
		return err
	}
	defer l.Release()
	if err := cluster.Delete(ctx, k.Name); err != nil {
		return err
	}
	here, err := cacheFolder()
	if err != nil {
		return fmt.Errorf("removing the kubeconfig of cluster %s: %w", k.Name, err)
	}
	for _, dir := range []string{here, k.Cache} {
		if _, own := k.cache(); dir != here && !own {
			continue
		}
		if err := os.Remove(kubeconfigPath(dir, k.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the kubeconfig of cluster %s: %w", k.Name, err)
		}
	}
	return nil
}
