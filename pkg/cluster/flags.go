package cluster

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// Flag is the value that a component goes by, and who says so.
type Flag struct {
	Value  string // as the origin writes it: "3m" in a spec is "3m0s" in flagz
	Origin string // "flagz" or "configz": the process; "spec"; "table v1.37": the default of that version
}

// Planned returns what the components of a Kubernetes version ("v1.37.2") will go by
// if a cluster is made with these flags (as in Spec.Flags): component, name, value. It has
// the flags that decide when a node is given up, and all that are set.
func Planned(kubernetes string, set map[string]map[string]string) map[string]map[string]Flag {
	minor := uint(newest)
	if v, err := version.ParseGeneric(kubernetes); err == nil {
		minor = min(max(v.Minor(), oldest), newest)
	}
	origin := fmt.Sprintf("table v1.%d", minor)
	plan := map[string]map[string]Flag{}
	for component, flags := range defaultFlags(minor) {
		plan[component] = map[string]Flag{}
		for name, value := range flags {
			plan[component][name] = Flag{value, origin}
		}
	}
	if f, ok := set["kubelet"]["nodeStatusUpdateFrequency"]; ok {
		// Anybody who sets the one moves the other (pkg/kubelet/apis/config/v1beta1/defaults.go,
		// SetDefaults_KubeletConfiguration).
		plan["kubelet"]["nodeStatusReportFrequency"] = Flag{f, origin}
	}
	for component, flags := range set {
		if plan[component] == nil {
			plan[component] = map[string]Flag{}
		}
		for name, value := range flags {
			plan[component][name] = Flag{value, "spec"}
		}
	}
	return plan
}

// The Kubernetes minor versions that defaultFlags knows.
const oldest, newest = 31, 37

// Versions lists the Kubernetes versions that Planned tells apart, such as "v1.37".
func Versions() []string {
	var all []string
	for minor := oldest; minor <= newest; minor++ {
		all = append(all, fmt.Sprintf("v1.%d", minor))
	}
	return all
}

// defaultFlags is the table of Kubernetes v1.37.2's defaults:
//
//	cmd/kube-controller-manager/app/options/nodelifecyclecontroller.go
//	pkg/controller/nodelifecycle/config/v1alpha1/defaults.go
//	pkg/controller/certificates/signer/config/v1alpha1/defaults.go
//	component-base/config/v1alpha1/defaults.go (leader election)
//	plugin/pkg/admission/defaulttolerationseconds/admission.go
//	pkg/kubelet/apis/config/v1beta1/defaults.go
//	cmd/kubeadm/app/componentconfigs/kubelet.go (rotateCertificates)
//
// and of what was different since v1.31.
func defaultFlags(minor uint) map[string]map[string]string {
	grace := "50s"
	if minor < 32 {
		grace = "40s" // kubernetes/kubernetes#126287
	}
	return map[string]map[string]string{
		"kube-apiserver": {
			"default-not-ready-toleration-seconds":   "300",
			"default-unreachable-toleration-seconds": "300",
		},
		ControllerManager: {
			"cluster-signing-duration":     "8760h0m0s",
			"large-cluster-size-threshold": "50",
			"leader-elect":                 "true",
			"leader-elect-lease-duration":  "15s",
			"leader-elect-renew-deadline":  "10s",
			"leader-elect-retry-period":    "2s",
			"node-eviction-rate":           "0.1",
			"node-monitor-grace-period":    grace,
			"node-monitor-period":          "5s",
			"node-startup-grace-period":    "1m0s",
			"secondary-node-eviction-rate": "0.01",
			"unhealthy-zone-threshold":     "0.55",
		},
		"kubelet": {
			"fileCheckFrequency":        "20s",
			"nodeLeaseDurationSeconds":  "40",
			"nodeStatusReportFrequency": "5m0s",
			"nodeStatusUpdateFrequency": "10s",
			"rotateCertificates":        "true",
		},
	}
}

// controllerFields are the places of kube-controller-manager's flags in its configz
// (kube-controller-manager/config/v1alpha1/types.go), for versions without flagz.
var controllerFields = map[string][]string{
	"cluster-signing-duration":     {"CSRSigningController", "ClusterSigningDuration"},
	"large-cluster-size-threshold": {"NodeLifecycleController", "LargeClusterSizeThreshold"},
	"leader-elect":                 {"Generic", "LeaderElection", "leaderElect"},
	"leader-elect-lease-duration":  {"Generic", "LeaderElection", "leaseDuration"},
	"leader-elect-renew-deadline":  {"Generic", "LeaderElection", "renewDeadline"},
	"leader-elect-retry-period":    {"Generic", "LeaderElection", "retryPeriod"},
	"node-eviction-rate":           {"NodeLifecycleController", "NodeEvictionRate"},
	"node-monitor-grace-period":    {"NodeLifecycleController", "NodeMonitorGracePeriod"},
	"node-monitor-period":          {"NodeLifecycleController", "NodeMonitorPeriod"},
	"node-startup-grace-period":    {"NodeLifecycleController", "NodeStartupGracePeriod"},
	"secondary-node-eviction-rate": {"NodeLifecycleController", "SecondaryNodeEvictionRate"},
	"unhealthy-zone-threshold":     {"NodeLifecycleController", "UnhealthyZoneThreshold"},
}

// flagzAccept asks for the flags as an object; the text form is not meant to be parsed.
const flagzAccept = "application/json;as=Flagz;v=v1beta1;g=config.k8s.io," +
	"application/json;as=Flagz;v=v1alpha1;g=config.k8s.io"

// Flags returns what the running components go by: the names of Planned, each with
// the value the process itself tells, where it does. It asks kube-controller-manager
// (flagz, since v1.36, and configz) inside the control plane node, kube-apiserver (flagz)
// and every kubelet (configz) through the API.
//
// "kubelet" is what the control plane's kubelet says; where the kubelet of another node
// differs, its fields are under "kubelet/<node>".
//
// The map is complete even if there is an error: what could not be asked has the value of
// the spec or of the table, and says so.
func (c *Cluster) Flags(ctx context.Context) (map[string]map[string]Flag, error) {
	flags := Planned(c.Version, c.flags)
	var errs []error

	controller, err := c.controllerPages(ctx)
	if err == nil {
		err = readController(flags[ControllerManager], controller)
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("asking kube-controller-manager for its flags: %w", err))
	}

	page, err := c.get(ctx, "/flagz", flagzAccept)
	if err == nil {
		err = readFlagz(flags["kube-apiserver"], page)
	}
	// No flagz yet is 404, one that only knows text is 406.
	status := &statusError{}
	if err != nil && !(errors.As(err, &status) && (status.code == http.StatusNotFound || status.code == http.StatusNotAcceptable)) {
		errs = append(errs, fmt.Errorf("asking kube-apiserver for its flags: %w", err))
	}

	planned := flags["kubelet"]
	for i, node := range c.nodes {
		page, err := c.kubeletPage(ctx, node)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		fields := readKubelet(planned, page)
		if i == 0 {
			flags["kubelet"] = fields
			continue
		}
		maps.DeleteFunc(fields, func(name string, f Flag) bool { return f.Value == flags["kubelet"][name].Value })
		if len(fields) > 0 {
			flags["kubelet/"+node.Name] = fields
		}
	}
	return flags, errors.Join(errs...)
}

//go:embed controller.sh
var controllerScript string

// controllerPages returns the configz and, if there is one, the flagz of kube-controller-manager:
// JSON values one after the other. It only listens inside the node, and only answers to
// system:masters; the key is not taken out of the node.
func (c *Cluster) controllerPages(ctx context.Context) (string, error) {
	return c.nodes[0].output(ctx, "bash", "-c", controllerScript, "bash", flagzAccept)
}

// kubeletPage returns the KubeletConfiguration that a kubelet runs with.
func (c *Cluster) kubeletPage(ctx context.Context, n *Node) (map[string]any, error) {
	var page struct{ KubeletConfig map[string]any }
	body, err := c.get(ctx, "/api/v1/nodes/"+n.Name+"/proxy/configz", "application/json")
	if err == nil {
		err = decode(bytes.NewReader(body), &page)
	}
	if err == nil && page.KubeletConfig == nil {
		err = errors.New("no kubeletconfig in configz")
	}
	if err != nil {
		return nil, fmt.Errorf("asking the kubelet of %s for its configuration: %w", n.Name, err)
	}
	return page.KubeletConfig, nil
}

// checkKubelets makes sure that the kubelets know the fields they were given: kubeadm
// drops one that it does not know with a warning that nobody sees. A kubelet that cannot
// be asked is for Flags to tell of.
func (c *Cluster) checkKubelets(ctx context.Context) error {
	if len(c.flags["kubelet"]) == 0 {
		return nil
	}
	for _, node := range c.nodes {
		page, err := c.kubeletPage(ctx, node)
		if err != nil {
			continue
		}
		if unknown := unknownFields(c.flags["kubelet"], page); len(unknown) > 0 {
			return starting("kubelet", "it does not know the configuration field "+strings.Join(unknown, ", "))
		}
	}
	return nil
}

// unknownFields returns the names that are set but not in the configuration. A field that
// is set to nothing may be left out of it.
func unknownFields(set map[string]string, page map[string]any) []string {
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(set)) {
		_, ok := lookup(page, strings.Split(name, "."))
		if !ok && !slices.Contains([]string{"", "0", "0s", "false", "null", "{}", "[]", `""`}, set[name]) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// readController overwrites the planned flags of kube-controller-manager with what its pages say.
func readController(flags map[string]Flag, pages string) error {
	decoder := json.NewDecoder(strings.NewReader(pages))
	decoder.UseNumber()
	for n := 0; ; n++ {
		var page map[string]any
		if err := decoder.Decode(&page); errors.Is(err, io.EOF) && n > 0 {
			return nil
		} else if err != nil {
			return err
		}
		if values, ok := lookup(page, []string{"flags"}); ok {
			overwrite(flags, "flagz", func(name string) (any, bool) { return lookup(values, []string{name}) })
			continue
		}
		overwrite(flags, "configz", func(name string) (any, bool) {
			field, ok := controllerFields[name]
			if !ok {
				return nil, false
			}
			return lookup(page, append([]string{"kubecontrollermanager.config.k8s.io"}, field...))
		})
	}
}

// readFlagz overwrites planned flags with what a flagz page says.
func readFlagz(flags map[string]Flag, page []byte) error {
	var values struct{ Flags map[string]any }
	if err := decode(bytes.NewReader(page), &values); err != nil {
		return err
	}
	overwrite(flags, "flagz", func(name string) (any, bool) { return lookup(values.Flags, []string{name}) })
	return nil
}

// readKubelet returns the planned fields with the values of a KubeletConfiguration.
func readKubelet(planned map[string]Flag, page map[string]any) map[string]Flag {
	fields := maps.Clone(planned)
	overwrite(fields, "configz", func(name string) (any, bool) { return lookup(page, strings.Split(name, ".")) })
	return fields
}

// overwrite sets every flag that has a value to it.
func overwrite(flags map[string]Flag, origin string, value func(name string) (any, bool)) {
	for name := range flags {
		if v, ok := value(name); ok {
			flags[name] = Flag{text(v), origin}
		}
	}
}

// lookup follows path into a tree of maps.
func lookup(tree any, path []string) (any, bool) {
	for _, key := range path {
		fields, ok := tree.(map[string]any)
		if !ok {
			return nil, false
		}
		if tree, ok = fields[key]; !ok {
			return nil, false
		}
	}
	return tree, true
}

// text writes a JSON value the way a flag is written.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return v.String()
	}
	b, _ := json.Marshal(v) // it came from JSON
	return string(b)
}

func decode(r io.Reader, into any) error {
	decoder := json.NewDecoder(r)
	decoder.UseNumber()
	return decoder.Decode(into)
}
