package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLastWords(t *testing.T) {
	usage := strings.Repeat("      --some-flag string   What it is for: panic or Error: (default \"x\")\n", 400)
	for name, test := range map[string]struct{ log, want string }{
		"unknown flag, after the usage": {
			"Usage:\n  kube-controller-manager [flags]\n\n" + usage + "\nError: unknown flag: --pod-eviction-timeout\n",
			"unknown flag: --pod-eviction-timeout",
		},
		"bad value": {
			usage + `Error: invalid argument "5" for "--node-monitor-period" flag: time: missing unit in duration "5"`,
			`invalid argument "5" for "--node-monitor-period" flag: time: missing unit in duration "5"`,
		},
		"validation": {
			"I1129 13:00:01.000001       1 options.go:220] external host was not specified\n" +
				"W1129 13:00:01.100001       1 registry.go:1] calling componentGlobalsRegistry.AddMetrics more than once\n" +
				`E1129 13:00:01.200001       1 run.go:72] "command failed" err="[--etcd-servers must be specified, --x \"y\" is wrong]"`,
			`[--etcd-servers must be specified, --x "y" is wrong]`,
		},
		"kubelet": {
			"kubelet.service: Scheduled restart job, restart counter is at 3.\n" +
				`E1129 13:00:01.200001    4711 run.go:72] "command failed" err="failed to validate kubelet configuration, error: invalid configuration: nodeLeaseDurationSeconds must be greater than 0, path: &TypeMeta{Kind:,APIVersion:,}"` + "\n" +
				"kubelet.service: Main process exited, code=exited, status=1/FAILURE\n" +
				"kubelet.service: Failed with result 'exit-code'.\n",
			"failed to validate kubelet configuration, error: invalid configuration: nodeLeaseDurationSeconds must be greater than 0, path: &TypeMeta{Kind:,APIVersion:,}",
		},
		"etcd flag": {
			"flag provided but not defined: -heartbeat\nUsage:\n\n  etcd [flags]\n" + usage,
			"flag provided but not defined: -heartbeat",
		},
		"etcd": {
			`{"level":"info","ts":"2026-11-29T13:00:01Z","caller":"etcdmain/etcd.go:64","msg":"Running: ","args":["etcd"]}` + "\n" +
				`{"level":"warn","ts":"2026-11-29T13:00:01Z","caller":"etcdmain/etcd.go:65","msg":"failed to verify flags","error":"--election-timeout[1ms] should be at least as 5 times as --heartbeat-interval[100ms]"}`,
			"failed to verify flags: --election-timeout[1ms] should be at least as 5 times as --heartbeat-interval[100ms]",
		},
		"etcd fatal": {
			`{"level":"fatal","msg":"discovery failed","error":"listen tcp: address in use","stacktrace":"main.main"}` + "\nmore",
			"discovery failed: listen tcp: address in use",
		},
		"panic": {
			"I1129 13:00:01.000001       1 a.go:1] fine\npanic: runtime error: index out of range\n\ngoroutine 1 [running]:\nmain.main()\n",
			"runtime error: index out of range",
		},
		"the last error of many": {
			"E1129 13:00:01.000001       1 a.go:1] \"first\"\nE1129 13:00:02.000001       1 leaderelection.go:1] error retrieving resource lock: connection refused\nI1129 13:00:03.000001       1 b.go:2] shutting down\n",
			"error retrieving resource lock: connection refused",
		},
		"no error at all": {"one\ntwo\n", "two"},
		"nothing":         {"", "it exited without a word"},
		"long":            {"Error: " + strings.Repeat("x ", 500), strings.Repeat("x ", 200) + "..."},
	} {
		if got := lastWords(test.log); got != test.want {
			t.Errorf("%s:\n%q, want\n%q", name, got, test.want)
		}
	}
}

func TestHopeless(t *testing.T) {
	for _, test := range []struct {
		words string
		after int // exits; 0 is never
	}{
		{"unknown flag: --pod-eviction-timeout", 1},
		{`invalid argument "5" for "--v" flag: x`, 1},
		{"flag provided but not defined: -heartbeat", 1},
		{`invalid value "x" for flag -heartbeat-interval: parse error`, 1},
		{"failed to verify flags: --election-timeout is too short", 1},
		{"failed to load kubelet config file, path: /var/lib/kubelet/config.yaml, error: x", 1},
		{"failed to validate kubelet configuration, error: invalid configuration: x", 1},
		{"failed to validate kubelet flags: x", 1},
		{"failed to parse kubelet flag: unknown flag: --x", 1},
		{"unrecognized feature gate: X", 1},
		{"listen tcp 0.0.0.0:6443: bind: address already in use", 2},
		{"it exited without a word", 2},
		{"failed to wait for apiserver being healthy: timed out waiting for the condition", 0},
		{`Get "https://172.18.0.2:6443/api": dial tcp 172.18.0.2:6443: connect: connection refused`, 0},
		{"leaderelection lost", 0},
		{"context deadline exceeded", 0},
		{"etcdserver: request timed out, possibly due to previous leader failure", 0},
		{`PostStartHook "start-service-ip-repair-controllers" failed: unable to perform initial IP and Port allocation check`, 0},
		{"rpc error: code = Unavailable desc = etcdserver: leader changed", 0},
		{`invalid argument "x" for "--request-timeout" flag: time: invalid duration "x"`, 1}, // names a time, and is wrong all the same
	} {
		var got int
		for exits := 5; exits > 0; exits-- {
			if hopeless(exits, test.words) {
				got = exits
			}
		}
		if got != test.after {
			t.Errorf("%q: after %d exits, want %d", test.words, got, test.after)
		}
	}
}

func TestCrashed(t *testing.T) {
	for _, test := range []struct {
		code, reason string
		want         bool
	}{
		{"1", "Error", true}, {"255", "Error", true}, {"0", "Completed", false},
		{"137", "Error", false}, {"143", "Error", false}, {"137", "OOMKilled", true},
	} {
		if got := crashed(test.code, test.reason); got != test.want {
			t.Errorf("%s %s: %t", test.code, test.reason, got)
		}
	}
}

func TestExited(t *testing.T) {
	ps, err := os.ReadFile("testdata/crictl-ps.json")
	if err != nil {
		t.Fatal(err)
	}
	want := []exitedContainer{{"c8b1f20600993495e48b7234321b6c7833fcc0cb8f87afb70f792dbe96faf7a0", "kube-controller-manager"}}
	if got := exited(string(ps)); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, bad := range []string{"", "FATA[0000] connect", "{}"} {
		if got := exited(bad); got != nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

// What the nodes tell, look by look, through a docker client that plays them.
func TestBirthLook(t *testing.T) {
	const stub = `
shift # exec
[ "$1" = --privileged ] && shift
node=$1; shift
case "$*" in
"systemctl show kubelet"*) cat $stub/$node.restarts || exit 1;;
"journalctl"*) cat $stub/$node.journal;;
"crictl ps"*) cat $stub/ps || exit 1;;
"sh -c"*) shift 3; cat $stub/container.$2;;
esac
`
	const refused = "E1129 13:00:01.200001       1 run.go:72] \"command failed\" err=\"dial tcp: connect: connection refused\"\n"
	pod := func(ids ...string) string {
		var list []string
		for _, id := range ids {
			list = append(list, `{"id":"`+id+`","state":"CONTAINER_EXITED","labels":{"io.kubernetes.container.name":"kube-controller-manager","io.kubernetes.pod.namespace":"kube-system"}}`)
		}
		return `{"containers":[` + strings.Join(list, ",") + `]}`
	}
	type look map[string]string // files to write first
	for name, test := range map[string]struct {
		looks []look
		want  string // error of the last look
	}{
		"nothing there yet": {looks: []look{{}}},
		"an unknown flag ends it at once": {
			looks: []look{{"ps": pod("1"), "container.1": "1 Error\nusage\nError: unknown flag: --x\n"}},
			want:  "starting kube-controller-manager: unknown flag: --x",
		},
		"the API server is not up yet": {
			looks: []look{
				{"ps": pod("1"), "container.1": "1 Error\n" + refused},
				{"ps": pod("1", "2"), "container.2": "1 Error\n" + refused},
				{"ps": pod("2", "3"), "container.3": "1 Error\n" + refused},
			},
		},
		"one exit is seen once": {
			looks: []look{{"ps": pod("1"), "container.1": "1 Error\nodd\n"}, {}, {}},
		},
		"two exits": {
			looks: []look{{"ps": pod("1"), "container.1": "1 Error\nodd\n"}, {"ps": pod("1", "2"), "container.2": "2 Error\nodd again\n"}},
			want:  "starting kube-controller-manager: odd again",
		},
		"stopped, not crashed": {
			looks: []look{{"ps": pod("1", "2"), "container.1": "137 Error\nunknown flag\n", "container.2": "0 Completed\nunknown flag\n"}},
		},
		"a kubelet that cannot start": {
			looks: []look{
				{"c-worker.restarts": "0\n"},
				{"c-worker.restarts": "1\n", "c-worker.journal": "E1129 13:00:01.2       1 run.go:72] \"command failed\" err=\"failed to load kubelet config file, path: x\"\n"},
			},
			want: "starting kubelet: failed to load kubelet config file, path: x",
		},
		"a kubelet that restarts and restarts": {
			looks: []look{
				{"c-control-plane.restarts": "1\n", "c-control-plane.journal": "odd\n"},
				{"c-control-plane.restarts": "0\n"},
				{"c-control-plane.restarts": "1\n"},
			},
			want: "starting kubelet: odd",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := stubDocker(t, stub)
			b := newBirth(Spec{Name: "c", Workers: 1})
			for i, look := range test.looks {
				for file, content := range look {
					if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				err := b.look(t.Context())
				var got string
				if err != nil {
					got = err.Error()
				}
				var want string
				if i == len(test.looks)-1 {
					want = test.want
				}
				if got != want {
					t.Fatalf("look %d: %q, want %q", i, got, want)
				}
			}
		})
	}
}

func TestBirthExplain(t *testing.T) {
	stubDocker(t, "exit 1")
	b := newBirth(Spec{Name: "c"})
	b.words["kube-apiserver"] = "context deadline exceeded"
	err := b.explain(t.Context(), errors.New("failed to init node with kubeadm"))
	if want := "failed to init node with kubeadm\nstarting kube-apiserver: context deadline exceeded"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(starting("etcd", "no"))
	if err := b.explain(ctx, errors.New("exit status 137")); err.Error() != "starting etcd: no" {
		t.Errorf("%q", err)
	}
}
