package cli

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/flatline-chaos/flatline/internal/golden"
	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/cluster"
)

// healthy are the facts of a machine that is fit.
func healthy() *facts {
	return &facts{
		engine: cluster.Engine{Endpoint: "unix:///var/run/docker.sock", Kind: "unix", Name: "here", Version: "20.10.24",
			OS: "Debian 12", Kernel: "6.1.0",
			Runtime: "runc", Root: "/var/lib/docker", Cgroup: "2", Memory: 16 * gib, Offset: 20 * time.Millisecond, Error: 10 * time.Millisecond},
		host: true, diskFree: 50e9, memoryFree: 8 * gib, instances: 512, watches: 524288, freezer: true, netem: true,
		images: []cluster.NodeImage{{Ref: "flatline/node:v1.37.2-d215028d1d", ID: "sha256:0123456789abcdef0123"}}, network: true,
	}
}

// Every row as it says that all is well, and that it is not.
func TestDoctor(t *testing.T) {
	var all strings.Builder
	for _, c := range []struct {
		title string
		spoil func(*facts)
		well  bool
	}{
		{"fit", func(*facts) {}, true},
		{"in a virtual machine", func(f *facts) {
			f.host, f.diskFree, f.instances, f.watches, f.images, f.network = false, -1, -1, -1, nil, false
		}, true},
		{"no netem; clusters at work and of others", func(f *facts) {
			f.netem = false
			f.clusters = []chaos.Kept{{Info: cluster.Info{Name: "flatline-1"}, Own: true, Busy: "somebody is at work on it"},
				{Info: cluster.Info{Name: "flatline-2\x1b"}}}
		}, true},
		{"nothing is right", func(f *facts) {
			f.engine.Security, f.engine.Offset = []string{"name=rootless"}, 2*time.Minute
			f.diskFree, f.memoryFree, f.instances, f.freezer = 1e9, gib, 128, false
			f.clusters = []chaos.Kept{{Info: cluster.Info{Name: "flatline-3"}, Own: true}}
			f.strays, f.units = []string{"flatline-watch-x"}, []string{"flatline-y.service"}
			f.imagesErr = errors.New("listing node images: no")
		}, false},
		{"engine away", func(f *facts) { f.engineErr = errors.New("asking the container engine: Cannot connect") }, false},
	} {
		f := healthy()
		c.spoil(f)
		for _, run := range []bool{false, true} {
			all.WriteString("== " + c.title + map[bool]string{true: ", before a run"}[run] + "\n")
			ok, err := examine(&all, f, run)
			if err != nil || ok != c.well {
				t.Errorf("%s: all is well: %t, %v", c.title, ok, err)
			}
		}
	}
	golden.Lines(t, "testdata/doctor.golden", all.String())
}

// An engine that is elsewhere is named, and nothing is made there unasked.
func TestConsent(t *testing.T) {
	far := cluster.Engine{Endpoint: "ssh://root@far", Kind: "ssh", Name: "far"}
	for _, c := range []struct {
		engine       cluster.Engine
		given        bool
		says, refuse string
	}{
		{healthy().engine, false, "", ""},
		{far, true, "remote engine: ssh://root@far, on far\n", ""},
		{far, false, "remote engine: ssh://root@far, on far\n", "--remote-engine"},
	} {
		var out strings.Builder
		err := newApp(io.Discard, &out).consent(c.engine, c.given, strings.NewReader("y\n"))
		if out.String() != c.says || (err != nil) != (c.refuse != "") || err != nil && !strings.Contains(err.Error(), c.refuse) {
			t.Errorf("%+v: %q, %v", c, out.String(), err)
		}
	}
}

// clean takes what is ours and idle, and says of the rest why it stays.
func TestCleanChooses(t *testing.T) {
	of := func(name string, own bool, busy string) chaos.Kept {
		return chaos.Kept{Info: cluster.Info{Name: name, RunID: "r", Containers: []string{name + "-worker"}}, Own: own, Busy: busy}
	}
	list := []chaos.Kept{of("own", true, ""), of("work", true, "at work"), of("other", false, "")}
	for _, c := range []struct {
		list       []chaos.Kept
		named, all bool
		want, err  string
	}{
		{list, false, false, "cluster own of run r: own-worker\nstays: cluster work: at work\n" +
			"stays: cluster other: not made by this user on this machine; --all takes it too\n", ""},
		{list, false, true, "cluster own of run r: own-worker\nstays: cluster work: at work\ncluster other of run r: other-worker\n", ""},
		{list[2:], true, false, "cluster other of run r: other-worker\n", ""},
		{list[1:2], true, true, "", "cluster work stays: at work"},
	} {
		var out strings.Builder
		err := newApp(io.Discard, &out).deleteClusters(t.Context(), c.list, cleanOptions{c.named, c.all, true})
		if out.String() != c.want || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%q %v, want %q %q", out.String(), err, c.want, c.err)
		}
	}
}
