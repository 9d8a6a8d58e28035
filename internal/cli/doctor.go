package cli

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) doctor() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say what of this machine and its engine is fit for runs, and what runs have left",
		Long: `Say what of this machine and its engine is fit for runs, and what runs have left: a
line each, ok, or !! and what to do. It changes nothing.

Exit codes: 0 all is well; 3 it is not.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ok, err := examine(a.out, gather(c.Context(), true), false)
			if err == nil && !ok {
				return &codeError{code: exitSetupFailed}
			}
			return err
		},
	}
}

// What a cluster needs; hack/docker/lib.sh refuses below the same.
const (
	gib           = 1 << 30
	needMemory    = 4 * gib
	needDisk      = 5_000_000_000
	needInstances = 512
	needWatches   = 524288
)

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
			return false, fmt.Sprintf("%s: sysctl -w fs.inotify.max_user_instances=%d fs.inotify.max_user_watches=%d, or make setup",
				says, needInstances, needWatches)
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
