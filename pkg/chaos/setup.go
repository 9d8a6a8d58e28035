package chaos

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// setUp makes the cluster, reads what is in force there, and writes the header.
func (r *run) setUp(ctx context.Context) error {
	r.sweep(ctx)
	c := r.opts.Cluster
	name := ClusterName(r.id)
	if c != nil {
		name = c.Name
	}
	var err error
	if r.opts.Lock == nil {
		if r.lock, err = lockCluster(name); err != nil {
			return err
		}
	}
	if c == nil {
		r.phase("create")
		if c, err = createCluster(ctx, r.exp, r.opts, r.id, "", r.say); err != nil {
			return err
		}
		r.phase("setup")
	}
	r.cluster = c
	rc := c.REST()
	rc.Wrap(r.api.wrap)
	rc.QPS = -1 // the API server has its own limits; ours would only delay facts
	client, err := cluster.NewClient(rc)
	if err != nil {
		return err
	}
	r.target = &Target{RunID: r.id, Spec: r.exp.Spec.Fault, Client: client, Emit: r.rec.Emit}
	engine, err := cluster.AskEngine(ctx)
	if err != nil {
		return err
	}
	r.cfg = judge.Config{KubernetesVersion: c.Version, NodeImage: c.Image, NodeImageID: c.ImageID, Cluster: c.Name,
		Engine:   &judge.Engine{Kind: engine.Kind, Name: engine.Name, ID: engine.ID, Version: engine.Version, Kernel: engine.Kernel},
		Canaries: r.exp.Spec.Canaries.labels(), CanaryNamespace: canaryNamespace(r.id)}
	if err := r.pickNodes(); err != nil {
		return err
	}
	if err := r.startClocks(ctx, rc); err != nil {
		return err
	}
	if err := r.readConfig(ctx); err != nil {
		return err
	}
	if err := r.exp.possible(&r.cfg); err != nil {
		return err
	}
	containers := map[string]string{}
	for _, n := range c.Nodes() {
		containers[n.Name] = n.ID
	}
	if r.journal, err = CreateJournal(filepath.Join(r.dir, "journal.jsonl"), c.Name, r.id, containers); err != nil {
		return err
	}
	return r.open()
}

// sweep tells of this user's clusters that nobody uses.
func (r *run) sweep(ctx context.Context) {
	list, err := Clusters(ctx)
	if err != nil {
		r.say("%v", err)
	}
	for _, k := range list {
		if k.Own && k.Busy == "" && (r.opts.Cluster == nil || k.Name != r.opts.Cluster.Name) {
			r.say("cluster %s of run %s is there and nobody is at work on it: kept, or left behind; this removes it:\n  %s", k.Name, k.RunID,
				Command("clean", k.Name))
		}
	}
}

// CreateCluster makes a cluster that fits an experiment, to be given with its Lock to
// several runs as Options.Cluster and Options.Lock: nobody takes it for left behind while
// the Lock is held. It says that it was made for the folder Options.Artifacts, see
// LeftFor; deleting it is up to the caller.
func CreateCluster(ctx context.Context, exp *Experiment, opts Options) (*cluster.Cluster, *Lock, error) {
	id, err := newID(time.Now())
	if err != nil {
		return nil, nil, err
	}
	folder, err := filepath.Abs(opts.Artifacts)
	if err != nil {
		return nil, nil, fmt.Errorf("naming the cluster's folder: %w", err)
	}
	lock, err := lockCluster(ClusterName(id))
	if err != nil {
		return nil, nil, err
	}
	c, err := createCluster(ctx, exp, opts, id, folder, func(string, ...any) {})
	if err != nil {
		lock.Release()
		return nil, nil, err
	}
	return c, lock, nil
}

// LeftFor lists this user's clusters that CreateCluster made for a folder.
func LeftFor(ctx context.Context, artifacts string) ([]Kept, error) {
	folder, err := filepath.Abs(artifacts)
	if err != nil {
		return nil, fmt.Errorf("naming the folder of clusters: %w", err)
	}
	list, err := Clusters(ctx)
	return slices.DeleteFunc(list, func(k Kept) bool { return !k.Own || k.For != folder }), err
}

// OpenCluster finds a cluster that was kept, for Options.Cluster. Its kubeconfig is made
// from what its control plane says, in the user's cache folder.
func OpenCluster(ctx context.Context, name string) (*cluster.Cluster, error) {
	if _, err := cluster.Open(ctx, name, ""); errors.Is(err, cluster.ErrNotFound) {
		return nil, invalid("there is no cluster %q of flatline's; %s lists them", name, Command("clean", "--all", "--dry-run"))
	} else if err != nil {
		return nil, err
	}
	cache, err := cacheFolder()
	if err != nil {
		return nil, err
	}
	path := kubeconfigPath(cache, name)
	if err := cluster.WriteKubeconfig(ctx, name, path); err != nil {
		return nil, err
	}
	return cluster.Open(ctx, name, path)
}

func createCluster(
	ctx context.Context, exp *Experiment, opts Options, id, folder string, say func(string, ...any),
) (*cluster.Cluster, error) {
	image, err := cluster.ChooseImage(ctx, opts.Image)
	if err != nil {
		return nil, err
	}
	say("node image %s (%s)", image.Ref, image.Origin)
	cache, err := cacheFolder()
	if err != nil {
		return nil, err
	}
	path := kubeconfigPath(cache, ClusterName(id))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("making room for the kubeconfig: %w", err)
	}
	log := opts.Log
	if log == nil {
		log = io.Discard
	}
	return cluster.Create(ctx, cluster.Spec{
		Name: ClusterName(id), RunID: id, Image: image.Ref, Workers: exp.Spec.Cluster.Workers,
		Flags: exp.Spec.Cluster.flags(), Kubeconfig: path, Owner: owner(), Cache: cache, For: folder,
	}, log)
}

// ClusterName is the name of the cluster that is made for a run, or by CreateCluster: the
// random part of an id.
func ClusterName(id string) string { return "flatline-" + id[strings.LastIndexByte(id, '-')+1:] }

// newID names a run or a cluster: the time, and eight random digits.
func newID(now time.Time) (string, error) {
	var random [4]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", fmt.Errorf("naming the run: %w", err)
	}
	return now.UTC().Format("20060102t150405z-") + hex.EncodeToString(random[:]), nil
}

// pickNodes takes the last workers as targets: the other nodes stay control nodes.
func (r *run) pickNodes() error {
	nodes := r.cluster.Nodes()
	if workers := len(nodes) - 1; workers != r.exp.Spec.Cluster.Workers {
		return fmt.Errorf("cluster %s does not fit: it has %d workers, the experiment wants %d", r.cluster.Name, workers,
			r.exp.Spec.Cluster.Workers)
	}
	for i, n := range nodes { // the control plane comes first
		node := Node{Name: n.Name, Node: n}
		if r.wrap != nil {
			node = r.wrap(node)
		}
		r.nodes[n.Name] = node
		r.cfg.Nodes = append(r.cfg.Nodes, judge.Node{Name: n.Name, Role: n.Role, IP: n.IP})
		if i == 0 {
			r.target.ControlPlane = node
		}
		if i > 0 && i >= len(nodes)-r.exp.Spec.Target.Count {
			r.target.Nodes = append(r.target.Nodes, node)
			r.cfg.Target = append(r.cfg.Target, n.Name)
		} else {
			r.target.ControlNodes = append(r.target.ControlNodes, node)
			r.cfg.ControlNodes = append(r.cfg.ControlNodes, n.Name)
		}
	}
	return nil
}

// readConfig reads effective flags, and warns where one is not what the experiment asked for.
func (r *run) readConfig(ctx context.Context) error {
	flags, err := r.cluster.Flags(ctx)
	if err != nil {
		return err
	}
	r.cfg.Flags = map[string]map[string]judge.Flag{}
	for component, m := range flags {
		r.cfg.Flags[component] = map[string]judge.Flag{}
		for name, f := range m {
			r.cfg.Flags[component][name] = judge.Flag(f)
		}
	}
	for component, m := range cluster.Planned(r.cluster.Version, r.exp.Spec.Cluster.flags()) {
		for name, want := range m {
			f, known := r.cfg.Flags[component][name]
			if !known || judge.SameValue(f.Value, want.Value) {
				continue
			}
			why := fmt.Sprintf("flag %s of %s is %s (%s), the experiment goes by %s (%s)", name, component, f.Value, f.Origin, want.Value,
				want.Origin)
			if r.opts.Cluster != nil {
				return fmt.Errorf("cluster %s does not fit: %s", r.cluster.Name, why)
			}
			r.cfg.Warnings = append(r.cfg.Warnings, why)
		}
	}
	for component, m := range r.cfg.Flags { // kubelets that go by something else than the first
		for name, f := range m {
			if !strings.HasPrefix(component, "kubelet/") {
				continue
			}
			why := fmt.Sprintf("field %s of %s is %s, and %s in the other kubelets", name, component, f.Value, r.cfg.Flag("kubelet", name))
			if r.opts.Cluster != nil {
				return fmt.Errorf("cluster %s does not fit: %s", r.cluster.Name, why)
			}
			r.cfg.Warnings = append(r.cfg.Warnings, why)
		}
	}
	slices.Sort(r.cfg.Warnings)
	tim, err := r.cfg.Timing()
	if err != nil {
		return err
	}
	r.target.Timing = tim
	for _, w := range append(tim.Warnings(), r.cfg.Warnings...) {
		r.say("warning: %s", w)
	}
	return nil
}

// open writes line 1 of the timeline.
func (r *run) open() error {
	exp, err := json.Marshal(r.exp)
	if err != nil {
		return fmt.Errorf("writing the experiment: %w", err)
	}
	cfg, err := json.Marshal(r.cfg)
	if err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	r.opened = true
	return r.rec.Open(filepath.Join(r.dir, "timeline.jsonl"), timeline.Header{RunID: r.id, Experiment: exp, Config: cfg})
}
