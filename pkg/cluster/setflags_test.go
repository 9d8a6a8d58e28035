package cluster

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const manifest = `# kubeadm wrote this
apiVersion: v1
kind: Pod
metadata:
  creationTimestamp: null
  labels:
    component: kube-controller-manager
  name: kube-controller-manager
  namespace: kube-system
spec:
  containers:
  - command:
    - kube-controller-manager
    - --bind-address=127.0.0.1
    - --leader-elect
    - --node-monitor-period=1s
    image: registry/kube-controller-manager:v1.37.2
    name: kube-controller-manager
    resources:
      requests:
        cpu: 200m
  hostNetwork: true
status: {}
`

func TestWithFlags(t *testing.T) {
	for _, c := range []struct {
		name, cause string
		flags       map[string]string
		command     []string
	}{
		{"as it was", "", nil, []string{"--bind-address=127.0.0.1", "--leader-elect", "--node-monitor-period=1s"}},
		{"one more", "", map[string]string{"node-monitor-grace-period": "8s"}, []string{"--bind-address=127.0.0.1", "--leader-elect", "--node-monitor-period=1s", "--node-monitor-grace-period=8s"}},
		{"other values", "", map[string]string{"leader-elect": "false", "node-monitor-period": "3s"}, []string{"--bind-address=127.0.0.1", "--leader-elect=false", "--node-monitor-period=3s"}},
		{"restarted alone", "abc", nil, []string{"--bind-address=127.0.0.1", "--leader-elect", "--node-monitor-period=1s"}},
	} {
		text, command, err := withFlags([]byte(manifest), c.flags, c.cause)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if want := append([]string{"kube-controller-manager"}, c.command...); !slices.Equal(command, want) {
			t.Errorf("%s: the command is %q, want %q", c.name, command, want)
		}
		if same := string(text) == manifest; same != (c.name == "as it was") {
			t.Errorf("%s: the same bytes: %v", c.name, same)
		}
		if strings.Contains(string(text), "flatline.dev/restarted-with: abc") != (c.cause != "") {
			t.Errorf("%s: annotations in\n%s", c.name, text)
		}
		if !strings.Contains(string(text), "cpu: 200m") || !strings.Contains(string(text), "hostNetwork: true") {
			t.Errorf("%s: something is lost in\n%s", c.name, text)
		}
	}
	for name, broken := range map[string]string{
		"no YAML":      "{",
		"lost fields":  strings.Replace(manifest, "hostNetwork", "hostNetworc", 1),
		"no container": "apiVersion: v1\nkind: Pod\n",
	} {
		if _, _, err := withFlags([]byte(broken), nil, ""); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestWithFields(t *testing.T) {
	const config = "# kubeadm wrote this\nkind: KubeletConfiguration\nnodeLeaseDurationSeconds: 8\nlogging:\n  verbosity: 2\n"
	if text, err := withFields([]byte(config), nil); err != nil || string(text) != config {
		t.Errorf("without fields it is %q, %v", text, err)
	}
	text, err := withFields([]byte(config), map[string]string{"nodeLeaseDurationSeconds": "16", "nodeStatusUpdateFrequency": "4s", "logging.flushFrequency": "1s"})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	logging, _ := got["logging"].(map[string]any)
	if got["nodeLeaseDurationSeconds"] != float64(16) || got["nodeStatusUpdateFrequency"] != "4s" || logging["verbosity"] != float64(2) || logging["flushFrequency"] != "1s" || got["kind"] != "KubeletConfiguration" {
		t.Errorf("it is %v", got)
	}
	if _, err := withFields([]byte(config), map[string]string{"kind.of": "x"}); err == nil || !strings.Contains(err.Error(), "field kind.of") {
		t.Errorf("error %v", err)
	}
}

func TestInPlace(t *testing.T) {
	created := map[string]map[string]string{"kube-controller-manager": {"v": "4"}, "etcd": {"heartbeat-interval": "100"}}
	with := func(more map[string]map[string]string) map[string]map[string]string {
		flags := map[string]map[string]string{"kube-controller-manager": {"v": "4"}, "etcd": {"heartbeat-interval": "100"}}
		maps.Copy(flags, more)
		return flags
	}
	for name, c := range map[string]struct {
		flags map[string]map[string]string
		err   string
	}{
		"the same":           {with(nil), ""},
		"other values":       {with(map[string]map[string]string{"kube-controller-manager": {"v": "2", "node-monitor-period": "1s"}}), ""},
		"other components":   {with(map[string]map[string]string{"kubelet": {"nodeLeaseDurationSeconds": "4"}, "kube-apiserver": {"v": "2"}}), ""},
		"taken away":         {with(map[string]map[string]string{"kube-controller-manager": {}}), "flag v of kube-controller-manager is set since the cluster was created"},
		"etcd":               {with(map[string]map[string]string{"etcd": {"heartbeat-interval": "200"}}), "flags of etcd are not changed in a running cluster"},
		"the scheduler":      {with(map[string]map[string]string{"kube-scheduler": {"v": "2"}}), "flags of kube-scheduler are not changed in a running cluster"},
		"etcd is taken away": {map[string]map[string]string{"kube-controller-manager": {"v": "4"}}, "flag heartbeat-interval of etcd is set since"},
	} {
		if err := InPlace(created, c.flags); (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s: %v, want %s", name, err, c.err)
		}
	}
}
