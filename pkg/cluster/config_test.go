package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"
)

func TestKindConfig(t *testing.T) {
	spec := Spec{Name: "x", Workers: 2, Flags: map[string]map[string]string{
		"kube-apiserver":          {"v": "4"},
		"kube-controller-manager": {"cluster-signing-duration": "3m"},
		"etcd":                    {"heartbeat-interval": "200"},
		"kubelet": {
			"nodeLeaseDurationSeconds":           "8",
			"logging.verbosity":                  "4",
			"serverTLSBootstrap":                 "true",
			"crashLoopBackOff":                   "{maxContainerRestartPeriod: 1s}",
			"crashLoopBackOff.maxContainerThing": "2",
			"imageMaximumGCAge":                  "",
			"enforceNodeAllocatable":             "[pods]",
			"evictionHard":                       `{nodefs.available: "0%"}`,
		},
	}}
	c, err := kindConfig(spec, "img", host{cgroupV1: true, keepOOMScore: true})
	if err != nil {
		t.Fatal(err)
	}
	var roles []string
	for _, n := range c.Nodes {
		roles = append(roles, string(n.Role)+" "+n.Image)
	}
	if want := []string{"control-plane img", "worker img", "worker img"}; !slices.Equal(roles, want) {
		t.Errorf("nodes %q, want %q", roles, want)
	}
	want := []string{
		`{"apiServer":{"extraArgs":{"audit-log-maxsize":"1000000","audit-log-mode":"blocking","audit-log-path":"/var/log/flatline/audit.log","audit-policy-file":"/etc/flatline/audit-policy.yaml","v":"4"},` +
			`"extraVolumes":[{"hostPath":"/etc/flatline","mountPath":"/etc/flatline","name":"flatline-policy","pathType":"Directory","readOnly":true},` +
			`{"hostPath":"/var/log/flatline","mountPath":"/var/log/flatline","name":"flatline-audit","pathType":"DirectoryOrCreate"}]},` +
			`"controllerManager":{"extraArgs":{"cluster-signing-duration":"3m"}},` +
			`"etcd":{"local":{"extraArgs":{"heartbeat-interval":"200"}}},` +
			`"kind":"ClusterConfiguration"}`,
		`{"crashLoopBackOff":{"maxContainerRestartPeriod":"1s","maxContainerThing":2},` +
			`"enforceNodeAllocatable":["pods"],"evictionHard":{"nodefs.available":"0%"},"failCgroupV1":false,"imageMaximumGCAge":"",` +
			`"kind":"KubeletConfiguration","logging":{"verbosity":4},"nodeLeaseDurationSeconds":8,"serverTLSBootstrap":true}`,
	}
	if !slices.Equal(c.KubeadmConfigPatches, want) {
		t.Errorf("patches\n%s\nwant\n%s", strings.Join(c.KubeadmConfigPatches, "\n"), strings.Join(want, "\n"))
	}
	if len(c.ContainerdConfigPatches) != 1 {
		t.Errorf("containerd patches %q", c.ContainerdConfigPatches)
	}

	// Nothing asked for, nothing needed: only the audit log.
	c, err = kindConfig(Spec{Name: "x"}, "img", host{})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.KubeadmConfigPatches) != 1 || len(c.ContainerdConfigPatches) != 0 || len(c.Nodes) != 1 {
		t.Errorf("%+v", c)
	}
}

func TestKubeletFieldConflict(t *testing.T) {
	for _, flags := range []map[string]string{
		{"logging": "1", "logging.verbosity": "4"},
		{"a.b": "1", "a.b.c": "4"},
		{"a": "{"},
	} {
		if _, err := kubeletFields(flags); err == nil || !strings.HasPrefix(err.Error(), "kubelet field a") && !strings.HasPrefix(err.Error(), "kubelet field logging") {
			t.Errorf("%v: error %v", flags, err)
		}
	}
}

func TestSpecValidate(t *testing.T) {
	there := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fine := Spec{Name: "flatline-7f3a", Image: "i", Kubeconfig: there + "-not"}
	for name, test := range map[string]struct {
		change func(*Spec)
		want   string
	}{
		"fine":            {func(*Spec) {}, ""},
		"name":            {func(s *Spec) { s.Name = "Flat_line" }, `name "Flat_line" is not made of`},
		"long name":       {func(s *Spec) { s.Name = strings.Repeat("a", 50) }, "at most 49"},
		"longest name":    {func(s *Spec) { s.Name = strings.Repeat("a", 49) }, ""},
		"no name":         {func(s *Spec) { s.Name = "" }, `name ""`},
		"run id":          {func(s *Spec) { s.RunID = "a\tb" }, "run id"},
		"image":           {func(s *Spec) { s.Image = "" }, "no node image"},
		"workers":         {func(s *Spec) { s.Workers = -1 }, "-1 workers"},
		"no kubeconfig":   {func(s *Spec) { s.Kubeconfig = "" }, "no path for the kubeconfig"},
		"kubeconfig":      {func(s *Spec) { s.Kubeconfig = there }, "is there already"},
		"component":       {func(s *Spec) { s.Flags = map[string]map[string]string{"kube-proxy": {}} }, `flags for "kube-proxy": there are only etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet`},
		"audit flag":      {func(s *Spec) { s.Flags = map[string]map[string]string{"kube-apiserver": {"audit-log-path": "-"}} }, "audit-log-path is not to be set"},
		"audit elsewhere": {func(s *Spec) { s.Flags = map[string]map[string]string{"etcd": {"audit-log-path": "-"}} }, ""},
	} {
		s := fine
		test.change(&s)
		err := s.validate()
		if (test.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
	}
}

func TestMayLowerOOMScore(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tx\nCapBnd:\t000001ffffffffff\nCapAmb:\t0\n": true,
		"Name:\tx\nCapBnd:\t000001fffeffffff\nCapAmb:\t0\n": false,
		"Name:\tx\n":         true,
		"CapBnd:\tstrange\n": true,
	} {
		if got := mayLowerOOMScore(status); got != want {
			t.Errorf("%q: %t, want %t", status, got, want)
		}
	}
}

// The API server refuses to start with a policy that it does not understand.
func TestAuditPolicy(t *testing.T) {
	var policy auditv1.Policy
	if err := yaml.UnmarshalStrict(auditPolicy, &policy); err != nil {
		t.Fatal(err)
	}
	if len(policy.Rules) < 2 {
		t.Fatal("rules are missing")
	}
	last, before := policy.Rules[len(policy.Rules)-1], policy.Rules[len(policy.Rules)-2]
	if last.Level != auditv1.LevelMetadata || len(last.Users)+len(last.UserGroups)+len(last.Verbs)+len(last.Resources)+len(last.NonResourceURLs) > 0 {
		t.Errorf("the last rule does not record everything: %+v", last)
	}
	if before.Level != auditv1.LevelNone || !slices.Equal(before.UserGroups, []string{"system:authenticated"}) {
		t.Errorf("the rule before it drops more than authenticated users: %+v", before)
	}
	for _, rule := range policy.Rules {
		if rule.Level == auditv1.LevelNone && len(rule.UserGroups) == 0 {
			t.Errorf("this rule would drop a refused certificate: %+v", rule)
		}
		if rule.Level != auditv1.LevelNone {
			for _, r := range rule.Resources {
				if slices.Contains(r.Resources, "secrets") || slices.Contains(r.Resources, "*") || len(r.Resources) == 0 {
					t.Errorf("this rule records more than it names: %+v", rule)
				}
			}
		}
	}
}
