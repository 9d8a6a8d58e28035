package cluster

import (
	"reflect"
	"strings"
	"testing"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

func TestCheckFlag(t *testing.T) {
	for _, c := range []struct{ component, name, value, err string }{
		{"kube-controller-manager", "node-monitor-grace-period", "8s", ""},
		{"kube-controller-manager", "node-monitor-grace-period", "8", `"8" is not a duration such as 40s`},
		{"kube-controller-manager", "node-eviction-rate", "0.5", ""},
		{"kube-controller-manager", "node-eviction-rate", "often", `"often" is not a number`},
		{"kube-controller-manager", "leader-elect", "yes", `"yes" is not true or false`},
		{"kube-controller-manager", "v", "4", ""},
		{"kube-apiserver", "default-unreachable-toleration-seconds", "30s", `"30s" is not a whole number`},
		{"kube-apiserver", "feature-gates", "A=true", ""},
		{"etcd", "heartbeat-interval", "x", `"x" is not a whole number`},
		{"kubelet", "nodeLeaseDurationSeconds", "8", ""},
		{"kubelet", "nodeLeaseDurationSeconds", "8s", `"8s" is not a whole number`},
		{"kubelet", "nodeStatusUpdateFrequency", "4s", ""},
		{"kubelet", "nodeStatusUpdateFrequency", "soon", `"soon" does not fit: time: invalid duration "soon"`},
		{"kubelet", "logging.verbosity", "3", ""},
		{"kubelet", "logging.nonsense", "3", `"3" does not fit: unknown field "logging.nonsense"`},
		{"kubelet", "rotateCertificates", "false", ""},
		{"kubelet", "rotateCertificates", "1", `"1" is not true or false`},
		{"kubelet", "logging", "3", `"3" is not fields`},
	} {
		if !Known(c.component, c.name) {
			t.Errorf("%s %s is not known", c.component, c.name)
		}
		err := CheckFlag(c.component, c.name, c.value)
		if (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s %s=%s: %v, want %s", c.component, c.name, c.value, err, c.err)
		}
	}
	for component, name := range map[string]string{"kubelet": "nodeLeaseDuration", "kube-controller-manager": "nodeMonitorPeriod", "kube-proxy": "v"} {
		if Known(component, name) {
			t.Errorf("%s %s is known", component, name)
		}
	}
	if !strings.HasPrefix(knownFlags, "# Flags of "+KnownVersion+",") {
		t.Errorf("the list is not of %s: %.40s", KnownVersion, knownFlags)
	}
}

// What was removed, or belongs to the command line, is not known and names its heir, which is.
func TestHeirs(t *testing.T) {
	for flag := range removedFlags {
		component, name, _ := strings.Cut(flag, " ")
		if Known(component, name) || Heir(component, name) == "" {
			t.Errorf("%s: known, or without an heir", flag)
		}
	}
	for name, path := range kubeletFlags {
		field, below, _ := strings.Cut(path, ".")
		typ := fieldType(reflect.TypeFor[kubeletv1beta1.KubeletConfiguration](), field)
		for below != "" && typ != nil {
			field, below, _ = strings.Cut(below, ".")
			typ = fieldType(typ, field)
		}
		if typ == nil || Known("kubelet", name) {
			t.Errorf("the field of --%s is no field: %s", name, path)
		}
	}
	for name, want := range map[string]string{
		"node-status-update-frequency": "nodeStatusUpdateFrequency", "cluster-dns": "clusterDNS", "tls-cert-file": "tlsCertFile", "kube-api-qps": "kubeAPIQPS",
		"event-qps": "eventRecordQPS", "v": "logging.verbosity", "rotate-certificates": "rotateCertificates",
	} {
		if got := Heir("kubelet", name); !strings.Contains(got, " field "+want+" ") {
			t.Errorf("--%s: %q", name, got)
		}
	}
	if heir := Heir("kubelet", "nonsense") + Heir("kubelet", "nodeLeaseDurationSeconds") + Heir("kubelet", "no-such") + Heir("etcd", "x"); heir != "" {
		t.Errorf("heirs of nothing: %s", heir)
	}
}

func TestTakesList(t *testing.T) {
	for flag, want := range map[string]bool{
		"kube-apiserver feature-gates": true, "kube-apiserver enable-admission-plugins": true, "kube-controller-manager controllers": true, "kubelet enforceNodeAllocatable": true,
		"kubelet evictionHard": true, "kubelet authentication.anonymous.enabled": false, "kubelet nodeStatusUpdateFrequency": false, "kube-controller-manager v": false, "kubelet a.b": false,
	} {
		component, name, _ := strings.Cut(flag, " ")
		if TakesList(component, name) != want {
			t.Errorf("%s: want %v", flag, want)
		}
	}
}

// The flags of the table of defaults are flags that there are.
func TestDefaultFlagsAreKnown(t *testing.T) {
	for component, flags := range defaultFlags(newest) {
		for name, value := range flags {
			if err := CheckFlag(component, name, value); err != nil || !Known(component, name) {
				t.Errorf("%s %s=%s: %v", component, name, value, err)
			}
		}
	}
}
