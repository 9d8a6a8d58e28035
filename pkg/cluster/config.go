package cluster

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	"sigs.k8s.io/yaml"
)

// AuditLog is the file on the control plane node to which the API server writes one
// JSON event a line (audit.k8s.io/v1), before it answers the request. It is never
// rotated. The policy, /etc/flatline/audit-policy.yaml beside it, says what is in it.
const AuditLog = "/var/log/flatline/audit.log"

//go:embed audit-policy.yaml
var auditPolicy []byte

const auditPolicyFile = "/etc/flatline/audit-policy.yaml"

// auditFlags are the API server flags that belong to us.
func auditFlags() map[string]string {
	return map[string]string{
		"audit-policy-file": auditPolicyFile,
		"audit-log-path":    AuditLog,
		"audit-log-mode":    "blocking",
		"audit-log-maxsize": "1000000", // MB; the default of 100 would rotate
	}
}

// names says which clusters can be: the longest container name has to stay a host
// name of at most 63 characters.
var names = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,47}[a-z0-9])?$`)

// containerNames are those that the engine gives, and none that is an option of a command.
var containerNames = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// components are the keys of Spec.Flags; all but the kubelet's are the places of
// their flags in kubeadm's ClusterConfiguration.
var components = map[string][]string{
	"kube-apiserver":  {"apiServer", "extraArgs"},
	ControllerManager: {"controllerManager", "extraArgs"},
	"kube-scheduler":  {"scheduler", "extraArgs"},
	"etcd":            {"etcd", "local", "extraArgs"},
	"kubelet":         nil,
}

func (s Spec) validate() error {
	switch {
	case !names.MatchString(s.Name):
		return fmt.Errorf("name %q is not made of at most 49 of a-z, 0-9 and -", s.Name)
	case strings.ContainsFunc(s.RunID+s.Owner+s.Cache+s.For, unicode.IsControl):
		return fmt.Errorf("a label with a control character: run id %q, owner %q, cache %q, for %q", s.RunID, s.Owner, s.Cache, s.For)
	case s.Image == "":
		return errors.New("no node image")
	case s.Workers < 0:
		return fmt.Errorf("%d workers", s.Workers)
	case s.Kubeconfig == "":
		return errors.New("no path for the kubeconfig") // kind would take the user's own
	}
	if _, err := os.Lstat(s.Kubeconfig); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("kubeconfig %s is there already", s.Kubeconfig)
	}
	for component, flags := range s.Flags {
		if _, ok := components[component]; !ok {
			return fmt.Errorf("flags for %q: there are only %s", component,
				strings.Join(slices.Sorted(maps.Keys(components)), ", "))
		}
		for name := range auditFlags() {
			if _, ok := flags[name]; ok && component == "kube-apiserver" {
				return fmt.Errorf("kube-apiserver flag %s is not to be set: runs are judged by the audit log", name)
			}
		}
	}
	return nil
}

// kindConfig is the kind cluster for a spec on a host.
func kindConfig(s Spec, image string, h host) (*v1alpha4.Cluster, error) {
	kubelet, err := kubeletFields(s.Flags["kubelet"])
	if err != nil {
		return nil, err
	}
	if h.cgroupV1 {
		// kubelet >= 1.35 refuses to start on cgroup v1 unless told otherwise.
		if err := set(kubelet, []string{"failCgroupV1"}, false); err != nil {
			return nil, err
		}
	}

	cluster := map[string]any{}
	for component, at := range components {
		flags := maps.Clone(s.Flags[component])
		if component == "kube-apiserver" {
			if flags == nil {
				flags = map[string]string{}
			}
			maps.Copy(flags, auditFlags())
		}
		if at != nil && len(flags) > 0 {
			if err := set(cluster, at, flags); err != nil {
				return nil, err
			}
		}
	}
	volumes := []map[string]any{
		{"name": "flatline-policy", "hostPath": "/etc/flatline", "mountPath": "/etc/flatline", "readOnly": true, "pathType": "Directory"},
		{"name": "flatline-audit", "hostPath": "/var/log/flatline", "mountPath": "/var/log/flatline", "pathType": "DirectoryOrCreate"},
	}
	if err := set(cluster, []string{"apiServer", "extraVolumes"}, volumes); err != nil {
		return nil, err
	}

	c := &v1alpha4.Cluster{Name: s.Name, Nodes: []v1alpha4.Node{{Role: v1alpha4.ControlPlaneRole, Image: image}}}
	for range s.Workers {
		c.Nodes = append(c.Nodes, v1alpha4.Node{Role: v1alpha4.WorkerRole, Image: image})
	}
	for _, patch := range []struct {
		kind   string
		fields map[string]any
	}{{"ClusterConfiguration", cluster}, {"KubeletConfiguration", kubelet}} {
		if len(patch.fields) == 0 {
			continue
		}
		// A patch that names no apiVersion fits every kubeadm version: kind turns
		// extraArgs from this map into the list of v1beta4 where one is wanted
		// (kind pkg/internal/patch/kubeadm_merge.go, mergeExtraArgs).
		patch.fields["kind"] = patch.kind
		text, err := json.Marshal(patch.fields) // JSON is YAML
		if err != nil {
			return nil, err
		}
		c.KubeadmConfigPatches = append(c.KubeadmConfigPatches, string(text))
	}
	if h.keepOOMScore {
		c.ContainerdConfigPatches = []string{"[plugins.\"io.containerd.grpc.v1.cri\"]\n  restrict_oom_score_adj = true"}
	}
	return c, nil
}

// kubeletFields builds the KubeletConfiguration that dotted names and YAML values spell out.
func kubeletFields(flags map[string]string) (map[string]any, error) {
	fields := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		value, err := yamlValue(flags[name])
		if err == nil {
			err = set(fields, strings.Split(name, "."), value)
		}
		if err != nil {
			return nil, fmt.Errorf("kubelet field %s: %w", name, err)
		}
	}
	return fields, nil
}

func yamlValue(text string) (value any, err error) {
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return nil, err
	}
	if value == nil { // a null in a merge patch would delete
		return text, nil
	}
	return value, nil
}

// set puts value at path into a tree of maps.
func set(tree map[string]any, path []string, value any) error {
	for _, key := range path[:len(path)-1] {
		if _, ok := tree[key]; !ok {
			tree[key] = map[string]any{}
		}
		next, ok := tree[key].(map[string]any)
		if !ok {
			return fmt.Errorf("%s has a value, not fields", key)
		}
		tree = next
	}
	last := path[len(path)-1]
	if _, ok := tree[last].(map[string]any); ok {
		return fmt.Errorf("%s has fields, not a value", last)
	}
	tree[last] = value
	return nil
}

// host is what the machine under the container engine makes necessary.
type host struct {
	cgroupV1     bool
	keepOOMScore bool // oom_score_adj cannot be lowered: containers keep containerd's
}

// hostFacts asks the engine, and the kernel where it is the engine's too.
func hostFacts(ctx context.Context) (host, error) {
	version, err := docker(ctx, nil, "info", "--format", "{{.CgroupVersion}}")
	if err != nil {
		return host{}, err
	}
	h := host{cgroupV1: version == "1"}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil { // not Linux: the engine runs on another kernel
		return h, nil
	}
	endpoint, err := docker(ctx, nil, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
	if err != nil {
		return host{}, err
	}
	h.keepOOMScore = strings.HasPrefix(endpoint, "unix://") && !mayLowerOOMScore(string(status))
	return h, nil
}

// mayLowerOOMScore tells whether the bounding set in a /proc/<pid>/status has CAP_SYS_RESOURCE.
// Without it runc cannot start a container whose oom_score_adj is below its own.
func mayLowerOOMScore(status string) bool {
	const capSysResource = 24 // linux/capability.h
	for line := range strings.Lines(status) {
		if set, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
			return err != nil || bits>>capSysResource&1 == 1
		}
	}
	return true
}
