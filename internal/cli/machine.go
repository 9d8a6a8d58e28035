package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/cluster"
)

// facts are what the rows of the doctor say something about. Of numbers -1 is what
// cannot be seen from here.
type facts struct {
	engine      cluster.Engine
	engineErr   error
	host        bool // the engine runs on this very kernel
	diskFree    int64
	memoryFree  int64
	instances   int64 // inotify
	watches     int64
	freezer     bool
	netem       bool
	clusters    []chaos.Kept
	clustersErr error
	strays      []string
	straysErr   error
	units       []string
	images      []cluster.NodeImage
	imagesErr   error
	network     bool
}

// gather looks at everything, or only at what matters for a run.
func gather(ctx context.Context, all bool) *facts {
	f := &facts{diskFree: -1, instances: -1, watches: -1}
	if f.engine, f.engineErr = cluster.AskEngine(ctx); f.engineErr != nil {
		return f
	}
	f.memoryFree = f.engine.Memory
	if f.host = sameKernel(f.engine); f.host {
		f.diskFree = diskFree(f.engine.Root)
		if free, ok := memoryFree(); ok {
			f.memoryFree = free
		}
	}
	if !all {
		return f
	}
	if f.host {
		f.instances = number("/proc/sys/fs/inotify/max_user_instances")
		f.watches = number("/proc/sys/fs/inotify/max_user_watches")
		f.freezer = f.engine.Cgroup == "2" || freezerOn()
		f.netem = netemThere(f.engine.Kernel)
	}
	f.clusters, f.clustersErr = chaos.Clusters(ctx)
	f.strays, f.straysErr = cluster.Strays(ctx)
	f.images, f.imagesErr = cluster.NodeImages(ctx)
	f.network, _ = cluster.HasNetwork(ctx)
	f.units = units(ctx)
	return f
}

// sameKernel tells whether the engine runs on this kernel: its release and its host's
// name are those of here, and it is reached by a socket.
func sameKernel(e cluster.Engine) bool {
	host, _ := os.Hostname()
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	return err == nil && !e.Remote() && e.Name == host && e.Kernel == strings.TrimSpace(string(release))
}

func diskFree(dir string) int64 {
	var at syscall.Statfs_t
	for ; ; dir = filepath.Dir(dir) { // who may not look into the folder can look at the one above
		err := syscall.Statfs(dir, &at)
		if err == nil {
			return int64(at.Bavail) * int64(at.Bsize)
		}
		if !errors.Is(err, os.ErrPermission) || dir == filepath.Dir(dir) {
			return -1
		}
	}
}

func memoryFree() (int64, bool) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemAvailable:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			return kb << 10, err == nil
		}
	}
	return 0, false
}

// number reads one number from a file, -1 if there is none.
func number(file string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// freezerOn tells whether cgroup v1 has its freezer.
func freezerOn() bool {
	text, err := os.ReadFile("/proc/cgroups")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 4 && f[0] == "freezer" {
			return f[3] == "1"
		}
	}
	return false
}

// netemThere tells whether the kernel has netem, or a module of it.
func netemThere(kernel string) bool {
	if _, err := os.Stat("/sys/module/sch_netem"); err == nil {
		return true
	}
	for _, list := range []string{"modules.dep", "modules.builtin"} {
		text, _ := os.ReadFile(filepath.Join("/lib/modules", kernel, list))
		if strings.Contains(string(text), "/sch_netem.ko") {
			return true
		}
	}
	return false
}

// units are those of flatline's on this machine, where systemd is.
func units(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", "list-units", "--all", "--plain", "--no-legend", "flatline-*").Output()
	if err != nil {
		return nil
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 0 {
			names = append(names, f[0])
		}
	}
	return slices.Sorted(slices.Values(names))
}
