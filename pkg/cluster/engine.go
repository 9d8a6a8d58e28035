package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Engine is what a container engine tells about itself.
type Engine struct {
	Endpoint string // where it was reached, such as unix:///var/run/docker.sock
	Kind     string // of the endpoint: "unix", "npipe", "ssh", "tcp"
	ID       string
	Name     string // of its machine
	Version  string
	Kernel   string // of its machine
	OS       string
	Runtime  string // the default one
	Driver   string // of storage
	Root     string // folder of its data, on its machine
	Memory   int64  // bytes its machine has
	Cgroup   string // version: "1", "2"
	Security []string
	Time     time.Time // what its clock said
	Offset   time.Duration
	Error    time.Duration // bound of Offset: how its clock stands to ours
}

// Remote tells whether the engine is reached over a network: whatever is made there may be
// on a machine that nobody meant.
func (e Engine) Remote() bool { return e.Kind != "unix" && e.Kind != "npipe" }

// AskEngine asks the engine that docker would use, by DOCKER_HOST or its context.
func AskEngine(ctx context.Context) (Engine, error) {
	endpoint, err := docker(ctx, nil, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
	if err != nil {
		return Engine{}, fmt.Errorf("asking where the container engine is: %w", err)
	}
	e, err := askEngine(ctx)
	if err != nil {
		return Engine{}, fmt.Errorf("asking the container engine at %s: %w", endpoint, err)
	}
	e.Endpoint = endpoint
	e.Kind, _, _ = strings.Cut(endpoint, "://")
	return e, nil
}

func askEngine(ctx context.Context) (Engine, error) {
	asked := time.Now()
	text, err := docker(ctx, nil, "info", "--format", "{{json .}}")
	if err != nil {
		return Engine{}, err
	}
	took := time.Since(asked)
	var said struct {
		ID, Name, ServerVersion, KernelVersion, OperatingSystem, DefaultRuntime, Driver, DockerRootDir, CgroupVersion string
		MemTotal                                                                                                      int64
		SecurityOptions, ServerErrors                                                                                 []string
		SystemTime                                                                                                    time.Time
	}
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		return Engine{}, fmt.Errorf("reading what it says: %w", err)
	}
	if said.ServerVersion == "" {
		return Engine{}, fmt.Errorf("it does not answer: %s", strings.Join(said.ServerErrors, "; "))
	}
	return Engine{
		ID: said.ID, Name: said.Name, Version: said.ServerVersion, Kernel: said.KernelVersion, OS: said.OperatingSystem,
		Runtime: said.DefaultRuntime, Driver: said.Driver, Root: said.DockerRootDir, Memory: said.MemTotal, Cgroup: said.CgroupVersion,
		Security: said.SecurityOptions, Time: said.SystemTime, Offset: said.SystemTime.Sub(asked.Add(took / 2)), Error: took / 2,
	}, nil
}

// NodeImage is a node image that a recipe of flatline's made.
type NodeImage struct{ Ref, ID string }

// NodeImages returns the node images that recipes of flatline's made, by name.
func NodeImages(ctx context.Context) ([]NodeImage, error) {
	out, err := docker(ctx, nil, "image", "ls", "--no-trunc", "--filter", "label="+labelRecipe, "--format", "[{{json .Tag}},{{json .ID}}]",
		"flatline/node")
	if err != nil {
		return nil, fmt.Errorf("listing node images: %w", err)
	}
	var images []NodeImage
	for line := range strings.Lines(out) {
		var f []string
		if err := json.Unmarshal([]byte(line), &f); err != nil || len(f) != 2 {
			return nil, fmt.Errorf("docker image ls: unexpected line %q", line)
		}
		images = append(images, NodeImage{"flatline/node:" + f[0], f[1]})
	}
	slices.SortFunc(images, func(a, b NodeImage) int { return strings.Compare(a.Ref, b.Ref) })
	return images, nil
}

// Strays returns the containers that carry a label of flatline's and are no part of a cluster:
// the watch over a node that is paused, and what somebody started from the image of a run.
func Strays(ctx context.Context) ([]string, error) {
	var strays []string
	for _, label := range []string{labelCluster, labelWatch} {
		out, err := docker(ctx, nil, "ps", "--all", "--filter", "label="+label, "--format", "{{json .Names}}")
		if err != nil {
			return nil, fmt.Errorf("listing containers: %w", err)
		}
		for line := range strings.Lines(out) {
			var name string
			if err := json.Unmarshal([]byte(line), &name); err != nil {
				return nil, fmt.Errorf("docker ps: unexpected line %q", line)
			}
			strays = append(strays, name)
		}
	}
	there, err := find(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	for _, c := range there {
		strays = slices.DeleteFunc(strays, func(name string) bool { return name == c.name })
	}
	slices.Sort(strays)
	return slices.Compact(strays), nil
}

// HasNetwork tells whether there is the network that kind makes for all clusters; it stays
// when they are deleted, since nobody can know who else uses it.
func HasNetwork(ctx context.Context) (bool, error) {
	out, err := docker(ctx, nil, "network", "ls", "--filter", "name=^kind$", "--format", "{{.Name}}")
	return strings.TrimSpace(out) == "kind", err
}
