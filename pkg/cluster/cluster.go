// Package cluster makes the kind clusters that experiments run on, reaches into
// their nodes, and takes them away again.
//
// Everything it creates carries a label, and it only ever touches what carries one:
// other people's clusters, images and kubeconfigs are not its business.
package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	kind "sigs.k8s.io/kind/pkg/cluster"
	kindexec "sigs.k8s.io/kind/pkg/exec"
	kindlog "sigs.k8s.io/kind/pkg/log"
)

// Spec says what cluster an experiment needs.
type Spec struct {
	Name    string // kind cluster name, unique; containers are <Name>-control-plane, <Name>-worker, <Name>-worker2, ...
	RunID   string // goes on every container as a label
	Image   string // node image, present in the local engine; see ChooseImage
	Workers int    // nodes besides the one control plane node

	// Flags holds component, name, value. kube-apiserver, kube-controller-manager,
	// kube-scheduler and etcd have command line flags. kubelet has KubeletConfiguration
	// fields: a dotted path ("logging.verbosity") and a value in YAML, so that numbers,
	// truth values and lists keep their type.
	Flags map[string]map[string]string

	Kubeconfig string // private file that Create writes, mode 0600; it must not exist

	// Who made it, where, and what for: labels for anybody who lists clusters, "" for nothing.
	Owner string // a user on a machine
	Cache string // folder of theirs in which it has its lock and its kubeconfig
	For   string // what goes on using it, beyond one run
}

// Cluster is a running kind cluster made by this package.
type Cluster struct {
	Name    string // kind cluster name
	RunID   string // of the run that it was created for
	Version string // Kubernetes version of its nodes, "v1.37.2"
	Image   string // node image it was made from
	ImageID string // of that image's content; "" where it was not written down

	nodes      []*Node
	created    map[string]map[string]string // flags as in Spec
	flags      map[string]map[string]string // that it goes by now, see SetFlags
	kubeconfig string
	rest       *rest.Config
}

// ErrNotFound says that there is no cluster of flatline's with that name.
var ErrNotFound = errors.New("no cluster of ours has that name")

// Limits that end what hangs, far above what the slowest machine takes.
const (
	createTimeout  = 45 * time.Minute
	deleteTimeout  = 15 * time.Minute
	requestTimeout = time.Minute // one request to the API server
)

// Create creates the cluster and returns once every node is Ready. Progress gets a
// line per step.
//
// Create ends early if ctx does, or if a component of the cluster cannot start: the
// error then says so in the component's own words. After an error nothing is left
// of the cluster.
func Create(ctx context.Context, spec Spec, progress io.Writer) (_ *Cluster, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("creating cluster %s: %w", spec.Name, err)
		}
	}()
	if err := spec.validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, createTimeout, fmt.Errorf("not done after %s", createTimeout))
	defer cancel()
	host, err := hostFacts(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking at the host: %w", err)
	}
	config, err := kindConfig(spec, runImages+":"+spec.Name, host)
	if err != nil {
		return nil, err
	}
	flags, err := json.Marshal(spec.Flags)
	if err != nil {
		return nil, err
	}
	if there, err := find(ctx, spec.Name); err != nil {
		return nil, err
	} else if len(there) > 0 {
		return nil, errors.New("it exists already")
	}

	defer func() {
		if err == nil {
			return
		}
		if e := remove(context.WithoutCancel(ctx), spec.Name, spec.Kubeconfig); e != nil {
			err = errors.Join(err, e)
		}
	}()
	log := &logger{w: progress}
	log.print("Labelling the node image " + spec.Image)
	if err := makeRunImage(ctx, spec, string(flags)); err != nil {
		return nil, fmt.Errorf("making the image of the run: %w", err)
	}

	// From here on somebody looks into the nodes: what goes wrong in there is seen
	// by kubeadm only as silence.
	ctx, fail := context.WithCancelCause(ctx)
	watch := newBirth(spec)
	var watching sync.WaitGroup
	watching.Go(func() { watch.run(ctx, fail) })
	defer func() { fail(nil); watching.Wait() }()

	provider := kind.NewProvider(kind.ProviderWithDocker(), kind.ProviderWithLogger(log))
	err = interruptible(ctx, spec.Name, func() error {
		return provider.Create(spec.Name,
			kind.CreateWithV1Alpha4Config(config),
			kind.CreateWithKubeconfigPath(spec.Kubeconfig),
			kind.CreateWithRetain(true), // the nodes know why it failed
		)
	})
	if err != nil {
		return nil, watch.explain(ctx, err)
	}
	c, err := Open(ctx, spec.Name, spec.Kubeconfig)
	if err != nil {
		return nil, err
	}
	log.print("Waiting for all nodes to be Ready")
	if err := c.waitReady(ctx, spec.Workers+1); err != nil {
		return nil, watch.explain(ctx, err)
	}
	if err := c.checkKubelets(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// interruptible runs create, which takes no context: when ctx ends, the containers of the
// cluster are removed from under it until it has noticed.
func interruptible(ctx context.Context, name string, create func() error) error {
	done := make(chan error, 1)
	go func() { done <- create() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	for {
		// An error here comes again, and counts, when the rest is removed.
		removing, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
		_ = removeContainers(removing, name)
		cancel()
		select {
		case <-done:
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}

// waitReady waits until the API knows want nodes and all are Ready. kind's own wait
// looks at the control plane only, and cannot be interrupted.
func (c *Cluster) waitReady(ctx context.Context, want int) error {
	var missing string
	err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		missing = c.notReady(ctx, want)
		return missing == "", nil
	})
	if err != nil {
		return fmt.Errorf("waiting for all nodes to be Ready: %w; last seen: %s", context.Cause(ctx), missing)
	}
	return nil
}

// notReady says what is missing for want Ready nodes, "" if nothing is.
func (c *Cluster) notReady(ctx context.Context, want int) string {
	var list corev1.NodeList
	if body, err := c.get(ctx, "/api/v1/nodes", "application/json"); err != nil {
		return err.Error()
	} else if err := json.Unmarshal(body, &list); err != nil {
		return err.Error()
	}
	var missing []string
	if n := len(list.Items); n < want {
		missing = append(missing, fmt.Sprintf("%d of %d nodes have joined", n, want))
	}
	for _, node := range list.Items {
		i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
		if i < 0 {
			missing = append(missing, node.Name+" has no Ready condition")
		} else if ready := node.Status.Conditions[i]; ready.Status != corev1.ConditionTrue {
			missing = append(missing, fmt.Sprintf("%s Ready=%s (%s)", node.Name, ready.Status, ready.Message))
		}
	}
	return strings.Join(missing, ", ")
}

// get makes one GET request to the API server.
func (c *Cluster) get(ctx context.Context, path, accept string) ([]byte, error) {
	return c.request(ctx, http.MethodGet, path, accept)
}

// request makes one request without a body to the API server.
func (c *Cluster) request(ctx context.Context, method, path, accept string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client, err := rest.HTTPClientFor(c.rest)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, c.rest.Host+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = &statusError{method, path, response.StatusCode}
	}
	return body, err
}

// statusError is an answer of the API server that is not OK.
type statusError struct {
	method, path string
	code         int
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s %s: %d %s", e.method, e.path, e.code, http.StatusText(e.code))
}

// Open finds a cluster that Create made, maybe in another process. With an empty
// kubeconfig it does without the API: REST is nil then, and the control plane may be
// down. The error is ErrNotFound if there is no such cluster, or no such cluster of flatline's.
func Open(ctx context.Context, name, kubeconfig string) (*Cluster, error) {
	c, err := open(ctx, name, kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("opening cluster %s: %w", name, err)
	}
	return c, nil
}

func open(ctx context.Context, name, kubeconfig string) (*Cluster, error) {
	there, err := find(ctx, name)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Name: name, kubeconfig: kubeconfig}
	for _, container := range there {
		if container.role == "" { // not a node: what an interrupted Create has left
			continue
		}
		facts, err := docker(ctx, nil, "inspect", "--format", "{{.Id}}{{range .NetworkSettings.Networks}} {{.IPAddress}}{{end}}", container.name)
		if err != nil {
			return nil, err
		}
		id, ip, _ := strings.Cut(facts, " ")
		ip, _, _ = strings.Cut(ip, " ")
		c.nodes = append(c.nodes, &Node{Name: container.name, Role: container.role, IP: ip, ID: id})
		c.RunID, c.Version, c.Image, c.ImageID = container.label(labelRun), container.label(labelVersion), container.label(labelImage),
			container.label(labelImageID)
		if err := json.Unmarshal([]byte(container.label(labelFlags)), &c.created); err != nil {
			return nil, fmt.Errorf("reading label %s of %s: %w", labelFlags, container.name, err)
		}
	}
	if len(c.nodes) == 0 {
		return nil, ErrNotFound
	}
	c.flags = c.created
	slices.SortFunc(c.nodes, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), // "control-plane" < "worker"
			cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	if kubeconfig != "" {
		if c.rest, err = clientConfig(kubeconfig, name); err != nil {
			return nil, fmt.Errorf("reading kubeconfig %s: %w", kubeconfig, err)
		}
	}
	return c, nil
}

// Nodes returns the nodes, control plane first, in a stable order.
func (c *Cluster) Nodes() []*Node { return slices.Clone(c.nodes) }

// REST returns the client configuration of the cluster's administrator; nil if the
// cluster was opened without a kubeconfig. It is a copy, for the caller to change.
func (c *Cluster) REST() *rest.Config {
	if c.rest == nil {
		return nil
	}
	return rest.CopyConfig(c.rest)
}

// Kubeconfig is the private file with the administrator's access to the cluster.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Delete removes the cluster as the function Delete does, and its kubeconfig.
func (c *Cluster) Delete(ctx context.Context) error {
	if err := remove(ctx, c.Name, c.kubeconfig); err != nil {
		return fmt.Errorf("deleting cluster %s: %w", c.Name, err)
	}
	return nil
}

// Delete removes the containers, volumes and image of a cluster that flatline made. It is no
// error if they are gone. A file that was made immutable inside a node keeps its volume
// from being removed: undo such a fault first.
func Delete(ctx context.Context, name string) error {
	if err := remove(ctx, name, ""); err != nil {
		return fmt.Errorf("deleting cluster %s: %w", name, err)
	}
	return nil
}

func remove(ctx context.Context, name, kubeconfig string) error {
	if !names.MatchString(name) { // "" would be all of them
		return fmt.Errorf("%q is not a name that Create accepts", name)
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	if err := removeContainers(ctx, name); err != nil {
		return err // the image is in use
	}
	err := removeRunImage(ctx, name)
	if kubeconfig != "" {
		if e := os.Remove(kubeconfig); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// removeContainers removes every container of the cluster, paused or running, with its
// volumes, and returns when they are gone.
func removeContainers(ctx context.Context, name string) error {
	var last error
	for {
		there, err := find(ctx, name)
		if err != nil {
			return errors.Join(err, last)
		}
		if len(there) == 0 {
			return nil
		}
		args := []string{"rm", "--force", "--volumes"}
		for _, container := range there {
			args = append(args, container.name)
		}
		// "No such container" and "removal already in progress" are no reasons to
		// give up, and real ones are told when time is.
		_, last = docker(ctx, nil, args...)
		if last == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), last)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// Info is what the labels tell about a cluster, or about what is left of one.
type Info struct {
	Name              string
	RunID             string
	Owner, Cache, For string    // as in Spec
	Containers        []string  // names, sorted; none if only the image is left
	Made              time.Time // its newest part, by the engine's clock
	control           string    // container of the control plane, "" if there is none
}

// List returns the clusters of flatline's, and what is left of one, by name.
func List(ctx context.Context) ([]Info, error) {
	there, err := find(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	images, err := findRunImages(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	return infos(there, images), nil
}

func infos(there []container, images []runImage) []Info {
	byName := map[string]*Info{}
	part := func(cluster string, labels map[string]string, made time.Time) *Info {
		info := byName[cluster]
		if info == nil {
			info = &Info{Name: cluster}
			byName[cluster] = info
		}
		info.RunID, info.Owner, info.Cache, info.For = labels[labelRun], labels[labelOwner], labels[labelCache], labels[labelFor]
		if made.After(info.Made) {
			info.Made = made
		}
		return info
	}
	for _, i := range images {
		part(i.cluster, i.labels, i.made)
	}
	for _, c := range there {
		info := part(c.cluster, c.labels, c.made)
		info.Containers = append(info.Containers, c.name)
		if c.role == "control-plane" {
			info.control = c.name
		}
	}
	var list []Info
	for _, info := range byName {
		slices.Sort(info.Containers)
		list = append(list, *info)
	}
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// container is a container of flatline's, by its labels.
type container struct {
	name, role, cluster string // role is kind's, "" if kind did not make it
	labels              map[string]string
	made                time.Time
}

func (c container) label(name string) string { return c.labels[name] }

// labels are those of flatline's that containers are asked for.
var labels = []string{labelRun, labelVersion, labelFlags, labelImage, labelImageID, labelOwner, labelCache, labelFor}

// find returns the containers of one cluster of flatline's, or of all if name is "".
//
// A container has the labels of its image: anybody who starts one from the image of a run for
// a look has ours on it too. So those count only that kind says are nodes of that cluster, and
// the one that the image is made from.
func find(ctx context.Context, name string) ([]container, error) {
	filter := "label=" + labelCluster
	if name != "" {
		filter += "=" + name
	}
	columns := []string{"{{json .Names}}", "{{json .CreatedAt}}"}
	for _, label := range append([]string{labelCluster, "io.x-k8s.kind.role", "io.x-k8s.kind.cluster", labelWatch}, labels...) {
		columns = append(columns, fmt.Sprintf("{{json (.Label %q)}}", label))
	}
	out, err := docker(ctx, nil, "ps", "--all", "--filter", filter, "--format", "["+strings.Join(columns, ",")+"]")
	if err != nil {
		return nil, err
	}
	var there []container
	for line := range strings.Lines(out) {
		var f []string
		if err := json.Unmarshal([]byte(line), &f); err != nil || len(f) != len(columns) {
			return nil, fmt.Errorf("docker ps: unexpected line %q", line)
		}
		c := container{name: f[0], cluster: f[2], role: f[3], labels: map[string]string{}}
		made, own, watched := f[1], f[4], f[5]
		ours := c.role != "" && own == c.cluster || c.role == "" && (c.name == c.cluster+seed || watched != "" && c.name == guardOf(watched))
		if !ours || !names.MatchString(c.cluster) || !containerNames.MatchString(c.name) {
			continue
		}
		for i, label := range labels {
			c.labels[label] = f[6+i]
		}
		if c.made, err = time.Parse("2006-01-02 15:04:05 -0700 MST", made); err != nil {
			return nil, fmt.Errorf("docker ps: container %s was made at %q: %w", c.name, made, err)
		}
		there = append(there, c)
	}
	return there, nil
}

// logger takes kind's status lines and writes them plain, one a step.
type logger struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *logger) print(message string) {
	line := plain(message)
	if line == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(l.w, line) // progress is not worth failing for
}

// plain turns what kind shows on a terminal into a line for a log: no pictures, and
// of each step the beginning only, unless it failed.
func plain(message string) string {
	if strings.HasPrefix(strings.TrimSpace(message), "✓") {
		return ""
	}
	failed := strings.HasPrefix(strings.TrimSpace(message), "✗")
	message = strings.Map(func(r rune) rune {
		if r > '~' && r != '≤' {
			return -1
		}
		return r
	}, message)
	message = strings.TrimSuffix(strings.Join(strings.Fields(message), " "), " ...")
	if failed {
		return "Failed: " + message
	}
	return message
}

func (l *logger) Warn(message string)            { l.print(message) }
func (l *logger) Warnf(format string, a ...any)  { l.print(fmt.Sprintf(format, a...)) }
func (l *logger) Error(message string)           { l.print(message) }
func (l *logger) Errorf(format string, a ...any) { l.print(fmt.Sprintf(format, a...)) }
func (l *logger) Info(message string)            { l.print(message) }
func (l *logger) Infof(format string, a ...any)  { l.print(fmt.Sprintf(format, a...)) }
func (l *logger) Enabled() bool                  { return true }

func (l *logger) V(level kindlog.Level) kindlog.InfoLogger {
	if level > 0 {
		return kindlog.NoopInfoLogger{}
	}
	return l
}

// withOutput adds what a failed command of kind's wrote: kind keeps it beside the error.
func withOutput(err error) error {
	failed := kindexec.RunErrorForError(err)
	if failed == nil || len(failed.Output) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s", err, lastWords(string(failed.Output)))
}
