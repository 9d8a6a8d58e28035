package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"
)

const (
	apiServer = "kube-apiserver"
	// ControllerManager is the name of that component.
	ControllerManager = "kube-controller-manager"

	// Manifests is the folder of a node's static pods, KubeletConfig the file of its kubelet.
	Manifests     = "/etc/kubernetes/manifests/"
	KubeletConfig = "/var/lib/kubelet/config.yaml"

	setFlagsTimeout = 20 * time.Minute // ends what hangs
)

// InPlace says whether a cluster that was created with some flags can be made to go by
// others with SetFlags; the error says why not. What it was created with can be set to
// something else, but not be taken away: what kubeadm would have written then is not
// known any more. etcd and the scheduler are left alone.
func InPlace(created, flags map[string]map[string]string) error {
	for _, component := range slices.Sorted(maps.Keys(created)) {
		for _, name := range slices.Sorted(maps.Keys(created[component])) {
			if _, ok := flags[component][name]; !ok {
				return fmt.Errorf("flag %s of %s is set since the cluster was created and cannot be taken away", name, component)
			}
		}
	}
	for _, component := range slices.Sorted(maps.Keys(flags)) {
		if !slices.Contains([]string{apiServer, ControllerManager, "kubelet"}, component) && !maps.Equal(created[component], flags[component]) {
			return fmt.Errorf("flags of %s are not changed in a running cluster", component)
		}
	}
	return nil
}

// SetFlags has the components of a running cluster go by these flags (all of them, as in
// Spec.Flags). It changes static manifests and kubelet configurations, always
// starting from those that the cluster was created with; what does not change is not
// restarted. It returns when every process was seen with the flags it is to have and
// the clocks that a restart sets back have passed:
//
//   - kube-controller-manager leads and has begun to monitor every node. A new process
//     would wait for the Lease of the old one to run out (leader-elect-lease-duration); that
//     is deleted once the old one is gone, as one that ends in order would give it up.
//   - An API server that restarts cuts all watches, and anybody who lists again backs off for up
//     to a minute (client-go tools/cache/reflector.go): kubelets and
//     kube-controller-manager are restarted with it.
//
// After an error the cluster is between two sets of flags, and only good to be deleted. The
// error is a *StartError if a component does not start with its flags.
func (c *Cluster) SetFlags(ctx context.Context, flags map[string]map[string]string) error {
	if err := c.setFlags(ctx, flags); err != nil {
		return fmt.Errorf("setting flags of cluster %s: %w", c.Name, err)
	}
	return nil
}

func (c *Cluster) setFlags(ctx context.Context, flags map[string]map[string]string) error {
	if c.rest == nil {
		return errors.New("it was opened without a kubeconfig")
	}
	if err := InPlace(c.created, flags); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, setFlagsTimeout, fmt.Errorf("not done after %s", setFlagsTimeout))
	defer cancel()
	s := &setter{Cluster: c, flags: flags, birth: birthOf(c.nodes)}
	if err := s.birth.forget(ctx, c.nodes[0]); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{s.apiServer, s.controllerManager, s.kubelets} { // kubelets last, see settled
		if err := step(ctx); err != nil {
			return err
		}
	}
	c.flags = flags
	return nil
}

// A setter is a change of flags under way.
type setter struct {
	*Cluster
	flags map[string]map[string]string
	birth *birth
	cut   string // names the API server's flags where they are not those of the creation
	fresh bool   // the API server was restarted

	looking sync.Mutex
}

func (s *setter) apiServer(ctx context.Context) error {
	set := s.over(apiServer)
	if len(set) > 0 {
		text, err := json.Marshal(set)
		if err != nil {
			return err
		}
		s.cut = fmt.Sprintf("%x", sha256.Sum256(text))[:12]
	}
	var err error
	if s.fresh, err = s.staticPod(ctx, apiServer, set, ""); err != nil || !s.fresh {
		return err
	}
	return s.until(ctx, "the API server to be ready", func(ctx context.Context) error {
		_, err := s.get(ctx, "/readyz", "*/*")
		return err
	})
}

func (s *setter) controllerManager(ctx context.Context) error {
	before, err := s.monitored(ctx)
	if err != nil {
		return err
	}
	changed, err := s.staticPod(ctx, ControllerManager, s.over(ControllerManager), s.cut)
	if err != nil || !changed {
		return err
	}
	const lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/" + ControllerManager
	status := &statusError{}
	if _, err := s.request(ctx, http.MethodDelete, lease, "application/json"); err != nil &&
		!(errors.As(err, &status) && status.code == http.StatusNotFound) {
		return fmt.Errorf("giving up the Lease of the %s that ended: %w", ControllerManager, err)
	}
	return s.until(ctx, ControllerManager+" to monitor every node", func(ctx context.Context) error {
		now, err := s.monitored(ctx)
		if err != nil {
			return err
		}
		for _, n := range s.nodes {
			news := maps.Clone(now[n.Name])
			maps.DeleteFunc(news, func(event string, _ bool) bool { return before[n.Name][event] }) // old ones may end meanwhile
			if len(news) == 0 {
				return fmt.Errorf("it has not registered %s", n.Name)
			}
		}
		var l coordinationv1.Lease
		page, err := s.get(ctx, lease, "application/json")
		if err == nil {
			err = json.Unmarshal(page, &l)
		}
		if err == nil && (l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "") {
			err = errors.New("nobody holds its Lease")
		}
		return err
	})
}

// monitored returns the events, by node and UID, with which a node lifecycle controller
// says that it has seen the node in a pass for the first time
// (nodelifecycle/node_lifecycle_controller.go monitorNodeHealth: RegisteredNode).
func (s *setter) monitored(ctx context.Context) (map[string]map[string]bool, error) {
	var list corev1.EventList
	page, err := s.get(ctx, "/api/v1/namespaces/default/events?fieldSelector=reason%3DRegisteredNode", "application/json")
	if err == nil {
		err = json.Unmarshal(page, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("asking which nodes are monitored: %w", err)
	}
	seen := map[string]map[string]bool{}
	for _, e := range list.Items {
		if seen[e.InvolvedObject.Name] == nil {
			seen[e.InvolvedObject.Name] = map[string]bool{}
		}
		seen[e.InvolvedObject.Name][fmt.Sprintf("%s/%d", e.UID, e.Count)] = true
	}
	return seen, nil
}

// over returns the flags of a component that are not those of the cluster's creation.
func (s *setter) over(component string) map[string]string {
	over := maps.Clone(s.flags[component])
	maps.DeleteFunc(over, func(name, value string) bool {
		was, ok := s.created[component][name]
		return ok && was == value
	})
	return over
}

// staticPod has a component of the control plane run with flags over those of its
// manifest, and waits until it does. cause, if not "", is one more reason to restart it.
func (s *setter) staticPod(ctx context.Context, component string, flags map[string]string, cause string) (changed bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("setting flags of %s: %w", component, err)
		}
	}()
	control, path := s.nodes[0], Manifests+component+".yaml"
	made, err := control.made(ctx, path)
	if err != nil {
		return false, err
	}
	text, command, err := withFlags(made, flags, cause)
	if err != nil {
		return false, err
	}
	now, err := control.output(ctx, "cat", path)
	if err != nil || now == string(text) {
		return false, err
	}
	if err := s.until(ctx, "the kubelet to have settled", s.settled); err != nil {
		return false, err
	}
	if err := s.end(ctx, component, path, Manifests+"."+component); err != nil {
		return false, err
	}
	if err := control.replace(ctx, path, Manifests+"."+component, text); err != nil {
		return false, err
	}
	return true, s.until(ctx, "its process to have them", func(ctx context.Context) error {
		var out bytes.Buffer
		// All processes of that name: the old one may not have ended yet.
		const script = `for p in $(pgrep -f "^$1 "); do cat /proc/$p/cmdline 2>/dev/null; echo; done`
		if err := control.Exec(ctx, nil, &out, "bash", "-c", script, "bash", component); err != nil {
			return err
		}
		want := strings.Join(command, "\x00") + "\x00\n"
		if out.String() != want {
			return fmt.Errorf("%d processes run, and not one with %s alone", strings.Count(out.String(), "\n"), strings.Join(command[1:], " "))
		}
		return nil
	})
}

// end moves a manifest out of the kubelet's sight, and waits until the pod is gone and the
// kubelet has done with it: its housekeeping, every two seconds, removes the pod's folder,
// and forgets the pod then or the next time. If the kubelet met the new pod before that, it
// would look again only 10 to 15 s later whether that may start (pod_workers.go
// backOffPeriod).
func (s *setter) end(ctx context.Context, component, path, out string) error {
	control := s.nodes[0]
	const move = `set -eu
crictl pods --namespace kube-system --label "component=$1" --output json | jq -r '.items[].labels["io.kubernetes.pod.uid"]'
mv "$2" "$3"`
	uids, err := control.output(ctx, "sh", "-c", move, "sh", component, path, out)
	if err != nil {
		return err
	}
	const housekeeping = 2500 * time.Millisecond // and what it takes
	var gone time.Time
	return s.until(ctx, "the old pod to end", func(ctx context.Context) error {
		const left = `cd /var/lib/kubelet/pods && ls -d "$@" 2>/dev/null; true`
		dirs, err := control.output(ctx, append([]string{"sh", "-c", left, "sh"}, strings.Fields(uids)...)...)
		switch {
		case err != nil:
			return err
		case strings.TrimSpace(dirs) != "":
			return errors.New("its folder is there")
		case gone.IsZero():
			gone = time.Now()
		}
		if time.Since(gone) < housekeeping {
			return errors.New("its folder is gone since a moment only")
		}
		return nil
	})
}

// settled says whether the control plane's kubelet has been up for a while. One that has
// just started and meets another manifest waits two minutes for the volumes of the pod
// (pod_workers.go "unmounted volumes", seen within the first second; not after 15 s).
func (s *setter) settled(ctx context.Context) error {
	const script = `read -r now _ </proc/uptime
since=$(systemctl show kubelet --property ActiveEnterTimestampMonotonic --value)
awk -v now="$now" -v since="$since" 'BEGIN { up = now - since / 1e6; if (up < 15) printf "it has been up for %.0f s", up }'`
	why, err := s.nodes[0].output(ctx, "bash", "-c", script)
	if err == nil && why != "" {
		err = errors.New(why)
	}
	return err
}

// withFlags returns a static pod's manifest with flags set over its own, and the command
// that its container runs. Without flags and cause it is the manifest as it was.
func withFlags(manifest []byte, flags map[string]string, cause string) (text []byte, command []string, err error) {
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(manifest, &pod); err != nil {
		return nil, nil, fmt.Errorf("reading the manifest: %w", err)
	}
	if len(pod.Spec.Containers) != 1 || len(pod.Spec.Containers[0].Command) == 0 {
		return nil, nil, errors.New("the manifest has not one container with a command")
	}
	container := &pod.Spec.Containers[0]
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		arg := "--" + name + "=" + flags[name]
		i := slices.IndexFunc(container.Command, func(a string) bool { return strings.HasPrefix(a, "--"+name+"=") || a == "--"+name })
		if i < 0 {
			container.Command = append(container.Command, arg)
		} else {
			container.Command[i] = arg
		}
	}
	command = append(slices.Clone(container.Command), container.Args...)
	if len(flags) == 0 && cause == "" {
		return manifest, command, nil
	}
	if cause != "" {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations["flatline.dev/restarted-with"] = cause
	}
	text, err = yaml.Marshal(&pod)
	return text, command, err
}

// kubelets has every kubelet run with its fields over those of its configuration, and
// waits until it tells so itself.
func (s *setter) kubelets(ctx context.Context) error {
	fields := s.over("kubelet")
	errs := make([]error, len(s.nodes))
	var all sync.WaitGroup
	for i, n := range s.nodes {
		all.Go(func() {
			if err := s.kubelet(ctx, n, fields); err != nil {
				errs[i] = fmt.Errorf("setting fields of the kubelet of %s: %w", n.Name, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (s *setter) kubelet(ctx context.Context, n *Node, fields map[string]string) error {
	made, err := n.made(ctx, KubeletConfig)
	if err != nil {
		return err
	}
	text, err := withFields(made, fields)
	if err != nil {
		return err
	}
	now, err := n.output(ctx, "cat", KubeletConfig)
	if err != nil || now == string(text) && !s.fresh {
		return err
	}
	if err := n.replace(ctx, KubeletConfig, KubeletConfig, text); err != nil {
		return err
	}
	before, err := s.restartKubelet(ctx, n)
	if err != nil {
		return err
	}
	// systemctl returns when the old process is gone: anybody who answers now is the new one.
	return s.until(ctx, "it to tell them", func(ctx context.Context) error {
		if out, err := n.output(ctx, "systemctl", "show", "kubelet", "--property", "NRestarts", "--value"); err == nil &&
			strings.TrimSpace(out) != "0" {
			log, err := n.output(ctx, "journalctl", "--unit", "kubelet", "--no-pager", "--output", "cat", "--lines", "400")
			if err != nil {
				return err
			}
			return hopelessError{starting("kubelet", lastWords(log))}
		}
		page, err := s.kubeletPage(ctx, n)
		if err != nil {
			return err
		}
		if unknown := unknownFields(fields, page); len(unknown) > 0 {
			return hopelessError{starting("kubelet", "it does not know the configuration field "+strings.Join(unknown, ", "))}
		}
		return s.ready(ctx, n, before)
	})
}

// restartKubelet starts a kubelet again, in a later second than that in which the old one
// reported last: that is all that a heartbeat tells, and the next may be minutes away.
func (s *setter) restartKubelet(ctx context.Context, n *Node) (lastHeartbeat int64, err error) {
	if _, err := n.output(ctx, "systemctl", "stop", "kubelet"); err != nil {
		return 0, err
	}
	err = s.until(ctx, "the node's last heartbeat", func(ctx context.Context) error {
		_, ready, err := s.condition(ctx, n)
		lastHeartbeat = ready.LastHeartbeatTime.Unix()
		return err
	})
	if err != nil {
		return 0, err
	}
	const start = `while [ "$(date +%s)" -le "$1" ]; do sleep 0.1; done
systemctl start kubelet`
	_, err = n.output(ctx, "sh", "-c", start, "sh", strconv.FormatInt(lastHeartbeat, 10))
	return lastHeartbeat, err
}

// condition reads a node and its Ready condition.
func (s *setter) condition(ctx context.Context, n *Node) (*corev1.Node, corev1.NodeCondition, error) {
	var node corev1.Node
	page, err := s.get(ctx, "/api/v1/nodes/"+n.Name, "application/json")
	if err == nil {
		err = json.Unmarshal(page, &node)
	}
	if err != nil {
		return nil, corev1.NodeCondition{}, err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return &node, c, nil
		}
	}
	return nil, corev1.NodeCondition{}, errors.New("the node has no Ready condition")
}

// ready says what keeps a node from being Ready by the word of its new kubelet, which may
// say for a moment that it is not, and from being rid of the taints that follow.
func (s *setter) ready(ctx context.Context, n *Node, since int64) error {
	node, ready, err := s.condition(ctx, n)
	switch {
	case err != nil:
		return err
	case ready.LastHeartbeatTime.Unix() <= since:
		return errors.New("the kubelet has not reported")
	case ready.Status != corev1.ConditionTrue:
		return errors.New("the node is not Ready: " + ready.Message)
	}
	for _, t := range node.Spec.Taints {
		if t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable {
			return fmt.Errorf("the node has the taint %s", t.ToString())
		}
	}
	return nil
}

// withFields returns a KubeletConfiguration with fields set over its own; without any it
// is the one that it was.
func withFields(config []byte, fields map[string]string) ([]byte, error) {
	if len(fields) == 0 {
		return config, nil
	}
	var tree map[string]any
	if err := yaml.Unmarshal(config, &tree); err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value, err := yamlValue(fields[name])
		if err == nil {
			err = set(tree, strings.Split(name, "."), value)
		}
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", name, err)
		}
	}
	return yaml.Marshal(tree)
}

//go:embed made.sh
var madeScript string

// made returns a file of the node as it was when the cluster was created, and keeps a
// copy the first time.
func (n *Node) made(ctx context.Context, path string) ([]byte, error) {
	out, err := n.output(ctx, "sh", "-c", madeScript, "sh", path)
	return []byte(out), err
}

//go:embed replace.sh
var replaceScript string

// replace puts a file in the place of another one, with its mode and owner, all at once.
// The kubelet passes over manifests whose names begin with a dot
// (kubelet/config/file_linux.go).
func (n *Node) replace(ctx context.Context, path, other string, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, execTimeout)
	defer cancel()
	return n.Exec(ctx, bytes.NewReader(text), nil, "sh", "-c", replaceScript, "sh", path, other)
}

// A hopelessError is one that will be the same the next time.
type hopelessError struct{ error }

// until waits for something; the error says what, and what was wrong last. It ends early
// where a component of the control plane cannot start, in the component's own words.
func (s *setter) until(ctx context.Context, what string, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		if hopeless := (hopelessError{}); errors.As(last, &hopeless) {
			return false, hopeless.error
		}
		if last == nil {
			return true, nil
		}
		return false, s.look(ctx)
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("waiting for %s: %w; last seen: %w", what, context.Cause(ctx), last)
	}
	return err
}

// look looks at the static pods, for several that wait.
func (s *setter) look(ctx context.Context) error {
	s.looking.Lock()
	defer s.looking.Unlock()
	return s.birth.pods(ctx, s.nodes[0])
}
