package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/cluster"
)

// What a cluster needs; hack/docker/lib.sh refuses below the same.
const (
	gib           = 1 << 30
	needMemory    = 4 * gib
	needDisk      = 5_000_000_000
	needInstances = 512
	needWatches   = 524288
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

// A row of the doctor. With run it is looked at before a run as well.
type row struct {
	name string
	run  bool
	look func(f *facts) (ok bool, says string)
}

var rows = []row{
	{"engine", true, func(f *facts) (bool, string) {
		e := f.engine
		return true, fmt.Sprintf("Docker %s at %s on %s, %s", e.Version, e.Endpoint, e.Name, e.OS)
	}},
	{"runtime", false, func(f *facts) (bool, string) {
		for _, option := range f.engine.Security {
			if strings.Contains(option, "rootless") || strings.Contains(option, "userns") {
				return false, option + ": the nodes need privileged containers; use an engine that runs as root without user namespaces"
			}
		}
		return true, f.engine.Runtime + ", not tried here; make setup starts a privileged container"
	}},
	{"inotify", false, func(f *facts) (bool, string) {
		says := fmt.Sprintf("%d instances, %d watches", f.instances, f.watches)
		switch {
		case f.instances < 0 || f.watches < 0:
			return true, "the limits of the engine's machine are not seen from here"
		case f.instances < needInstances || f.watches < needWatches:
			return false, fmt.Sprintf("%s: sysctl -w fs.inotify.max_user_instances=%d fs.inotify.max_user_watches=%d, or make setup", says, needInstances, needWatches)
		}
		return true, says
	}},
	{"disk", true, func(f *facts) (bool, string) {
		says := fmt.Sprintf("%d GB free in %s", f.diskFree/1e9, f.engine.Root)
		switch {
		case f.diskFree < 0:
			return true, f.engine.Root + " is not seen from here"
		case f.diskFree < needDisk:
			return false, fmt.Sprintf("%s, a cluster needs %d: docker system prune, or move the engine's data", says, int64(needDisk/1e9))
		}
		return true, says
	}},
	{"memory", true, func(f *facts) (bool, string) {
		says := fmt.Sprintf("%.1f GiB available", float64(f.memoryFree)/gib)
		if f.memoryFree < needMemory {
			return false, fmt.Sprintf("%s, a cluster needs %d: stop something, or use a larger machine", says, needMemory/gib)
		}
		return true, says
	}},
	{"clock", false, func(f *facts) (bool, string) {
		says := fmt.Sprintf("the engine's is %+.2f s from this one, give or take %.2f s", f.engine.Offset.Seconds(), f.engine.Error.Seconds())
		if math.Abs(f.engine.Offset.Seconds()) > 60+f.engine.Error.Seconds() {
			return false, says + ": set both by NTP"
		}
		return true, says
	}},
	{"kernel", false, func(f *facts) (bool, string) {
		says := fmt.Sprintf("%s, cgroup v%s", f.engine.Kernel, f.engine.Cgroup)
		switch {
		case !f.host:
			return true, says + "; what else it has is not seen from here"
		case !f.freezer:
			return false, says + ", no freezer: node-paused and containerd-frozen cannot work"
		case !f.netem:
			return true, says + ", freezer; no netem, which nothing here needs"
		}
		return true, says + ", freezer, netem"
	}},
	{"clusters", false, func(f *facts) (bool, string) {
		if f.clustersErr != nil {
			return false, f.clustersErr.Error()
		}
		var idle, work, others []string
		for _, k := range f.clusters {
			switch {
			case k.Busy != "":
				work = append(work, k.Name+" ("+k.Busy+")")
			case k.Own:
				idle = append(idle, k.Name)
			default:
				others = append(others, k.Name)
			}
		}
		says := some("at work", work) + "; " + some("of others", others)
		if len(idle) > 0 {
			return false, some("left or kept", idle) + ": flatline heal if their runs ended badly, then flatline clean; " + says
		}
		return true, "none left; " + says
	}},
	{"containers", false, func(f *facts) (bool, string) {
		switch {
		case f.straysErr != nil:
			return false, f.straysErr.Error()
		case len(f.strays) > 0:
			return false, some("of no cluster", f.strays) + ": flatline heal if a run is theirs, else docker rm"
		}
		return true, "none beside those of clusters"
	}},
	{"units", false, func(f *facts) (bool, string) {
		if len(f.units) > 0 {
			return false, some("on this machine", f.units) + ": left by an earlier version, systemctl stop ends them"
		}
		return true, "none of ours on this machine"
	}},
	{"images", false, func(f *facts) (bool, string) {
		var names []string
		for _, i := range f.images {
			names = append(names, fmt.Sprintf("%s %.19s", i.Ref, i.ID))
		}
		switch {
		case f.imagesErr != nil:
			return false, f.imagesErr.Error()
		case len(names) == 0:
			return true, "no node image was built here; flatline node-image says what a run would take"
		}
		return true, strings.Join(names, ", ")
	}},
	{"network", false, func(f *facts) (bool, string) {
		if f.network {
			return true, "kind is there, shared by all kind clusters; it stays: docker network rm kind"
		}
		return true, "kind is not there yet"
	}},
}

// some names some things, or says that there are none.
func some(what string, names []string) string {
	if len(names) == 0 {
		return "none " + what
	}
	return what + ": " + strings.Join(names, ", ")
}

// examine says of each row what there is to say, and whether all is well. Before a run
// only the rows count that matter for it, and only what is wrong is said.
func examine(out io.Writer, f *facts, run bool) (ok bool, err error) {
	ok = true
	if f.engineErr != nil {
		_, err = fmt.Fprintf(out, "!! %-10s  %s\n", "engine", printable(f.engineErr.Error()+": start it, or make setup"))
		return false, err
	}
	for _, r := range rows {
		if run && !r.run {
			continue
		}
		fine, says := r.look(f)
		ok = ok && fine
		mark := "ok"
		if !fine {
			mark = "!!"
		}
		if fine && run {
			continue
		}
		if _, err := fmt.Fprintf(out, "%s %-10s  %s\n", mark, r.name, printable(says)); err != nil {
			return ok, err
		}
	}
	return ok, nil
}

// printable makes a line of what an engine or a label says.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

func doctorCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say what of this machine and its engine is fit for runs, and what runs have left",
		Long: `Say what of this machine and its engine is fit for runs, and what runs have left: a
line each, ok, or !! and what to do. It changes nothing.

Exit codes: 0 all is well; 3 it is not.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ok, err := examine(stdout, gather(c.Context(), true), false)
			if err == nil && !ok {
				return &codeError{code: exitSetupFailed}
			}
			return err
		},
	}
}

// remoteFlag adds --remote-engine.
func remoteFlag(c *cobra.Command, remote *bool) {
	c.Flags().BoolVar(remote, "remote-engine", os.Getenv("FLATLINE_REMOTE_ENGINE") == "1", "make clusters at an engine that is not reached by a local socket; $FLATLINE_REMOTE_ENGINE=1")
}

// beforeRun looks at what matters for a run, and asks for leave where the engine is
// elsewhere.
func beforeRun(ctx context.Context, remote bool, stdin io.Reader, stderr io.Writer) error {
	f := gather(ctx, false)
	if f.engineErr != nil {
		return f.engineErr
	}
	if err := consent(f.engine, remote, stdin, stderr); err != nil {
		return err
	}
	_, err := examine(stderr, f, true)
	return err
}

// consent names an engine that is elsewhere and asks, where there is somebody to ask.
func consent(e cluster.Engine, given bool, stdin io.Reader, stderr io.Writer) error {
	if !e.Remote() {
		return nil
	}
	fmt.Fprintf(stderr, "remote engine: %s, on %s\n", printable(e.Endpoint), printable(e.Name))
	if given {
		return nil
	}
	if in, ok := stdin.(*os.File); ok && isTerminal(in) && isTerminal(stderr) {
		fmt.Fprint(stderr, "Make a cluster of privileged containers there? [y/N] ")
		answer, err := bufio.NewReader(stdin).ReadString('\n')
		if err == nil && strings.HasPrefix(strings.ToLower(strings.TrimSpace(answer)), "y") {
			return nil
		}
	}
	return &chaos.InvalidError{Text: fmt.Sprintf("the container engine is at %s, not on a local socket: --remote-engine or FLATLINE_REMOTE_ENGINE=1 says that it is meant", printable(e.Endpoint))}
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
