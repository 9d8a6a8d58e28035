package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubetesting "k8s.io/client-go/testing"

	"github.com/flatline-chaos/flatline/internal/kubefake"
	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

const (
	oldID, nextID = "0123456789abc", "fedcba9876543" // of containers
	clientSigner  = certv1.KubeAPIServerClientKubeletSignerName
)

// faultStubs are the stand-ins of a node whose API server, kubelet and controller
// manager are files below HOME. Time passes when somebody sleeps.
var faultStubs = map[string]string{
	"systemctl": `
case "$*" in
"stop kubelet") echo inactive > $HOME/kubelet;;
"start kubelet") echo active > $HOME/kubelet;;
esac`,
	"kubectl": `
shift 3
for last; do :; done
case "$*" in
"get clusterrole system:controller:certificate-controller -o json") cat $HOME/role;;
"get clusterrolebinding "*) cat $HOME/binding;;
"patch clusterrolebinding "*) text=$(jq -c --argjson p "$last" '. * $p' $HOME/binding) && echo "$text" > $HOME/binding;;
"replace -f -") text=$(cat); [ -n "$text" ] && echo "$text" > $HOME/role;;
"replace -f role-before") cat role-before > $HOME/role;;
"replace -f binding-before") cat binding-before > $HOME/binding;;
"get csr "*) for f in $HOME/requests/*; do
    [ -e $f ] && read -r node state < $f && [ $state = waits ] || continue
    case "$*" in *"\"system:node:$node\""*|*"{{range .items}}{{if not .status.certificate}}"*) printf '%s ' ${f##*/};; esac
  done;;
"delete csr --ignore-not-found "*) shift 3; for c; do rm -f $HOME/requests/$c; done;;
"annotate csr "*) shift 2; for c; do
    case "$c" in flatline.dev/touched=*|--overwrite) continue;; esac
    [ -e "$HOME/requests/$c" ] || return 1
    echo "$c" >> $HOME/touched
  done;;
*) return 1;;
esac`,
	"crictl": `[ ! -e $HOME/container ] || cat $HOME/container`,
	"pgrep":  `[ -e $HOME/process ] && echo 4711`,
	"ps":     `[ "$*" = "-o stat= -p 4711" ] && cat $HOME/process`,
	"kill": `
[ "$2" = 4711 ] || return 1
case $1 in
-STOP) echo Tsl > $HOME/process;;
-CONT) echo Ssl > $HOME/process;;
-KILL) echo fedcba9876543210fedc > $HOME/container;;
esac`,
	"sleep": `[ -e $HOME/etc/manifests/kube-controller-manager.yaml ] || rm -f $HOME/container $HOME/process`,
	"cp":    `command -p cp "$@"`,
	"mv":    `command -p mv "$@"`,
	"rm":    `command -p rm "$@"`,
}

const (
	wholeRole = `{"kind":"ClusterRole","metadata":{"name":"system:controller:certificate-controller","uid":"u","resourceVersion":"7","annotations":{"rbac.authorization.kubernetes.io/autoupdate":"true"}},"rules":[
{"verbs":["get","list"],"resources":["certificatesigningrequests"]},
{"verbs":["approve"],"resources":["signers"],"resourceNames":["kubernetes.io/kube-apiserver-client-kubelet"]},
{"verbs":["sign"],"resources":["signers"],"resourceNames":["kubernetes.io/kube-apiserver-client-kubelet"]},
{"verbs":["sign"],"resources":["signers"],"resourceNames":["kubernetes.io/kubelet-serving","kubernetes.io/kube-apiserver-client-kubelet"]}]}`
	wholeBinding = `{"kind":"ClusterRoleBinding","metadata":{"name":"b"},"subjects":[{"kind":"Group","name":"system:nodes"}]}`
)

// newFaultNode is a node that is well. A command that matches the pattern in the
// file "fail" fails; with "done" behind it, after it has done its work.
func newFaultNode(t *testing.T) *shellNode {
	n := newShellNode(t)
	for _, dir := range []string{"flatline/" + runID, "etc/manifests", "requests"} {
		n.must(os.MkdirAll(n.path(dir), 0o755))
	}
	for name, text := range map[string]string{
		"etc/manifests/kube-controller-manager.yaml": "kind: Pod\n", "role": wholeRole, "binding": wholeBinding, "kubelet": "active\n",
		"container": "0123456789abcdef0123\n", "process": "Ssl\n", "flatline/" + runID + "/spare.pem": "spare", "pki/kubelet-client-current.pem": "old",
	} {
		n.write(name, text)
	}
	for name, body := range faultStubs {
		n.stub(name, fmt.Sprintf(`local fails
{ read -r fails < $HOME/fail; } 2>/dev/null
[[ "%[1]s $*" != $fails ]] || return 1
work() { %[2]s
}
work "$@"
local code=$?
[[ "%[1]s $* done" != $fails ]] || return 1
return $code`, name, strings.TrimSpace(body)))
	}
	return n
}

// vital says how what faults change is, and whether the kubelet runs.
func (n *shellNode) vital() string {
	var role, binding rbacv1.ClusterRoleBinding // both have what differs
	n.must(json.Unmarshal([]byte(n.read("binding")), &binding))
	var rules struct{ Rules []rbacv1.PolicyRule }
	n.must(json.Unmarshal([]byte(n.read("role")), &rules))
	n.must(json.Unmarshal([]byte(n.read("role")), &role))
	manifest := "none"
	if n.exists("etc/manifests/kube-controller-manager.yaml") {
		manifest = n.read("etc/manifests/kube-controller-manager.yaml")
	}
	files, err := os.ReadDir(n.path("etc/manifests"))
	n.must(err)
	process := "none"
	if n.exists("process") {
		process = n.read("process")
	}
	return fmt.Sprintf("role %v %v\nbinding %v\nmanifest %q of %d\nprocess %q\nkubelet %q", rules.Rules, role.Annotations, binding.Subjects, manifest, len(files), process, n.read("kubelet"))
}

func (n *shellNode) asks(requests map[string]string) {
	for name, text := range requests {
		n.write("requests/"+name, text+"\n")
	}
}

func (n *shellNode) waiting() string {
	files, err := os.ReadDir(n.path("requests"))
	n.must(err)
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	return strings.Join(names, " ")
}

// answers is a fake node that answers each script by the first of some pairs of
// which it holds the one, with the other.
func answers(pairs ...string) *fakeNode {
	return &fakeNode{answer: func(ctx context.Context, script string) (string, error) {
		for i := 0; i < len(pairs); i += 2 {
			if strings.Contains(script, pairs[i]) {
				return pairs[i+1], nil
			}
		}
		return now(ctx, script)
	}}
}

func told(events []timeline.Event) []string {
	var s []string
	for _, e := range events {
		s = append(s, strings.Join(strings.Fields(fmt.Sprint(e.Source, " ", e.Type, " ", e.Object, " ", e.Stamp.Format("05.999999999"), " ", e.Detail["id"], " ", e.Detail["what"])), " "))
	}
	return s
}

// What each fault runs where, and what it says of it.
func TestInjectOfEachFault(t *testing.T) {
	none, own, minted := Certificate{}, Certificate{From: "rotation"}, Certificate{Mint: seconds(40)[0]}
	injected := func(what string) string { return "run Injected 40.000000001 " + what }
	restarted := []string{"run KubeletStarted node c1-worker2 42.5", "run KubeletStarted node c1-worker3 42.5"}
	started := []string{"run Installed certificate c1-worker2 42.5", restarted[0], "run Installed certificate c1-worker3 42.5", restarted[1]}
	installed := []string{"short.pem", "short.pem"}
	const frozen, killed = "kube-controller-manager is frozen", "kube-controller-manager is killed"
	for name, tc := range map[string]struct {
		fault           Fault
		certificate     Certificate
		begun           bool // the kubelets were stopped before
		control, worker []string
		events          []string
	}{
		"rotation of the node's own":   {&rotation{}, own, false, []string{"date +%s.%N"}, nil, []string{injected("nothing but a certificate that ends soon")}},
		"rotation":                     {&rotation{}, minted, false, []string{"date +%s.%N"}, installed, append([]string{injected("nothing but a certificate that ends soon")}, started...)},
		"kubelet-restart":              {&kubeletRestart{}, none, false, nil, []string{"MainPID", "systemctl stop kubelet; date +%s.%N; systemctl start kubelet", "MainPID", "systemctl stop kubelet; date +%s.%N; systemctl start kubelet"}, append([]string{"run Injected 42.5 the kubelet is restarted"}, restarted...)},
		"signer-off of the node's own": {&signerOff{}, own, false, []string{"replace -f -"}, nil, []string{injected("the controller manager may not sign kubelets' client certificates")}},
		"signer-off":                   {&signerOff{}, minted, false, []string{"replace -f -"}, installed, append([]string{injected("the controller manager may not sign kubelets' client certificates")}, started...)},
		"kcm-stopped":                  {&controllerStopped{}, minted, false, []string{`rm "$1"`, "seq 1200"}, installed, append([]string{injected("the manifest of kube-controller-manager is moved out"), "run Stopped kube-controller-manager 41.75 " + oldID}, started...)},
		"kcm-stopped, later":           {&controllerStopped{}, none, true, []string{`rm "$1"`, "seq 1200"}, nil, []string{"run Struck 40.000000001 the manifest of kube-controller-manager is moved out", "run Stopped kube-controller-manager 41.75 " + oldID}},
		"kcm-frozen":                   {&controllerFrozen{}, minted, false, []string{"kill -STOP"}, installed, append([]string{injected(frozen)}, started...)},
		"kcm-frozen, later":            {&controllerFrozen{}, none, true, []string{"kill -STOP"}, nil, []string{"run Struck 40.000000001 " + frozen}},
		"kcm-killed":                   {&controllerKilled{}, minted, false, []string{"kill -KILL"}, installed, append([]string{injected(killed), "run Stopped kube-controller-manager 40.000000001 " + oldID}, started...)},
		"kcm-killed, later":            {&controllerKilled{}, none, true, []string{"kill -KILL"}, nil, []string{"run Struck 40.000000001 " + killed, "run Stopped kube-controller-manager 40.000000001 " + oldID}},
		"csr-refused":                  {&csrDenied{refuse: true}, minted, false, []string{"patch clusterrolebinding"}, installed, append([]string{injected("only control nodes may have rotation requests approved, those of the target are denied")}, started...)},
	} {
		t.Run(name, func(t *testing.T) {
			control := answers(`echo "$at $id"`, "1000.000000001 "+oldID+"\n", "seq 1200", "1001.750000000\n")
			worker := answers("MainPID", "17\n", "date +%s.%N", "1002.500000000\n")
			target, events := fakeTarget(control, worker)
			target.Spec.Certificate, target.begun = tc.certificate, tc.begun
			target.ca = testAuthority(t, newKey(t))
			if err := tc.fault.Inject(t.Context(), target); err != nil {
				t.Fatal(err)
			}
			if got := told(*events); !slices.Equal(got, tc.events) {
				t.Errorf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.events, "\n"))
			}
			for where, scripts := range map[string][2][]string{"control plane": {control.scripts, tc.control}, "targets": {worker.scripts, tc.worker}} {
				if !slices.EqualFunc(scripts[0], scripts[1], strings.Contains) {
					t.Errorf("on the %s ran\n%s\nwant\n%s", where, strings.Join(scripts[0], "\n--\n"), strings.Join(scripts[1], "\n--\n"))
				}
			}
			for i, s := range slices.Concat(control.scripts, worker.scripts) {
				parses(t, fmt.Sprint("script ", i), s)
			}
			target.Spec.Certificate = Certificate{}
			if err := tc.fault.Inject(t.Context(), target); err != nil {
				t.Fatal(err)
			}
			if again := (*events)[len(tc.events)]; again.Type != timeline.TypeStruck {
				t.Errorf("the second time is told as %s", again.Type)
			}
		})
	}
}

// A fault with a moment of its own is preceded by kubelets that stop, each at its
// own time.
func TestAFaultThatComesLater(t *testing.T) {
	stops := 0
	worker := &fakeNode{answer: func(context.Context, string) (string, error) {
		stops++
		return fmt.Sprintf("%d.500000000\n", 1000+stops), nil
	}}
	for name, tc := range map[string]struct {
		at             *judge.Moment
		inject, strike []string
	}{
		"later": {&judge.Moment{After: judge.NoExecuteTainted}, []string{"run Injected 41.5 the kubelet is stopped", "run KubeletStopped node c1-worker2 41.5", "run KubeletStopped node c1-worker3 42.5"},
			[]string{"run Struck 40.000000001 kube-controller-manager is frozen"}},
		"at once": {nil, []string{"run Injected 40.000000001 kube-controller-manager is frozen", "run KubeletStopped node c1-worker2 41.5", "run KubeletStopped node c1-worker3 42.5"},
			[]string{"run Struck 40.000000001 kube-controller-manager is frozen"}},
	} {
		var events []timeline.Event
		stops = 0
		r := &run{exp: &Experiment{}, fault: &controllerFrozen{}, rec: observe.NewRecorder(func(e timeline.Event) { events = append(events, e) })}
		r.exp.Spec.Fault = FaultSpec{Type: "kcm-frozen", Kubelet: "stopped", At: tc.at}
		r.target, _ = fakeTarget(&fakeNode{answer: now}, worker)
		r.target.Spec, r.target.Emit = r.exp.Spec.Fault, r.rec.Emit
		r.cfg, r.fold = renewed(t, "c1-worker2", "c1-worker3")
		for step, do := range []func(context.Context) error{r.inject, r.strike} {
			events = nil
			if err := do(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got, want := told(events), [][]string{tc.inject, tc.strike}[step]; !slices.Equal(got, want) {
				t.Errorf("%s, step %d: told\n%s\nwant\n%s", name, step, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
	bad := errors.New("exit status 1")
	r := &run{exp: &Experiment{}, fault: &controllerFrozen{}, rec: observe.NewRecorder(nil)}
	r.exp.Spec.Fault = FaultSpec{Type: "kcm-frozen", Kubelet: "stopped", At: &judge.Moment{After: judge.NoExecuteTainted}}
	r.target, _ = fakeTarget(&fakeNode{answer: now}, &fakeNode{answer: func(context.Context, string) (string, error) { return "", bad }})
	if err := r.inject(t.Context()); !errors.Is(err, bad) || r.target.begun {
		t.Errorf("error %v, begun %v", err, r.target.begun)
	}
}

// renewed is a cluster in which the nodes renew their Leases after the injection.
func renewed(t *testing.T, names ...string) (judge.Config, *judge.Fold) {
	t.Helper()
	cfg := judge.Config{KubernetesVersion: "v1.37.2", Target: names, Flags: map[string]map[string]judge.Flag{}}
	for component, flags := range cluster.Planned("v1.37", nil) {
		cfg.Flags[component] = map[string]judge.Flag{}
		for name, f := range flags {
			cfg.Flags[component][name] = judge.Flag(f)
		}
	}
	for _, name := range names {
		cfg.Nodes = append(cfg.Nodes, judge.Node{Name: name})
	}
	fold, err := judge.NewFold(&cfg, judge.FaultPlan{}, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	fold.Add(timeline.Event{At: time.Second, Source: "run", Type: timeline.TypeInjected})
	for _, name := range names {
		fold.Add(timeline.Event{At: 2 * time.Second, Source: "watch", Type: "modified", Object: "leases " + name})
	}
	return cfg, fold
}

// A node that does not do as it is told is an error, and what was not done is not
// told.
func TestInjectOfEachFaultFails(t *testing.T) {
	bad := errors.New("exit status 1")
	for name, newFault := range map[string]func() Fault{
		"rotation": func() Fault { return &rotation{} }, "signer-off": func() Fault { return &signerOff{} }, "kcm-stopped": func() Fault { return &controllerStopped{} },
		"kcm-frozen": func() Fault { return &controllerFrozen{} }, "kcm-killed": func() Fault { return &controllerKilled{} }, "csr-refused": func() Fault { return &csrDenied{refuse: true} },
	} {
		for why, tc := range map[string]struct {
			control, worker func(context.Context, string) (string, error)
			injected        bool
		}{
			"the control plane refuses": {func(context.Context, string) (string, error) { return "", bad }, now, false},
			"the control plane is mute": {func(context.Context, string) (string, error) { return "", nil }, now, false},
			"the control plane babbles": {func(context.Context, string) (string, error) { return "ok\n", nil }, now, false},
			"the target refuses":        {now, func(context.Context, string) (string, error) { return "", bad }, true},
			"the target is mute":        {now, func(context.Context, string) (string, error) { return "", nil }, true},
		} {
			target, events := fakeTarget(&fakeNode{answer: tc.control}, &fakeNode{answer: tc.worker})
			target.ca, target.Spec.Certificate = testAuthority(t, newKey(t)), Certificate{Mint: seconds(40)[0]}
			err := newFault().Inject(t.Context(), target)
			if err == nil || strings.Contains(why, "refuses") && !errors.Is(err, bad) {
				t.Errorf("%s, %s: error %v", name, why, err)
			}
			var types strings.Builder
			for _, e := range *events {
				types.WriteString(e.Type + " ")
			}
			if is := strings.Contains(types.String(), timeline.TypeInjected); is != tc.injected || target.begun != tc.injected || strings.Contains(types.String(), timeline.TypeKubeletStarted) {
				t.Errorf("%s, %s: told %s", name, why, types.String())
			}
		}
	}
	for why, answer := range map[string]func(context.Context, string) (string, error){
		"refuses": func(context.Context, string) (string, error) { return "", bad }, "is mute": func(context.Context, string) (string, error) { return "", nil },
	} {
		target, events := fakeTarget(&fakeNode{}, &fakeNode{answer: answer})
		if err := (&kubeletRestart{}).Inject(t.Context(), target); err == nil || len(*events) > 0 {
			t.Errorf("kubelet-restart, the target %s: error %v, told %v", why, err, *events)
		}
	}
	// Killed or not, a container that nobody can name cannot be seen to be another.
	n := newFaultNode(t)
	n.must(os.Remove(n.path("container")))
	target, events := fakeTarget(n, n)
	target.Spec.Certificate = Certificate{}
	if err := (&controllerKilled{}).Inject(t.Context(), target); err == nil || len(*events) > 0 || strings.Contains(n.calls(), "kill ") {
		t.Errorf("no container: error %v, told %v", err, *events)
	}
}

func TestUndoOfEachFault(t *testing.T) {
	around := []string{"c1-worker2: stopping the kubelet", "c1-worker3: stopping the kubelet",
		"c1-control-plane: deleting the unanswered requests of c1-worker2", "c1-control-plane: deleting the unanswered requests of c1-worker3"}
	for name, last := range map[string]string{
		"rotation": "-", "kubelet-restart": "-", "kcm-killed": "",
		"csr-refused": "restoring the binding that approves rotation", "signer-off": "giving the right to sign back",
		"kcm-stopped": "moving the manifest of kube-controller-manager back", "kcm-frozen": "letting kube-controller-manager go on",
	} {
		want := slices.Clone(around)
		switch last {
		case "-": // there is nothing to take back
			want = nil
		case "":
		default:
			want = append(want, "c1-control-plane: "+last)
		}
		target, events := fakeTarget(&fakeNode{}, &fakeNode{})
		var got []string
		for _, s := range kinds()[name].make().Undo(target) {
			got = append(got, s.On+": "+s.Desc)
			if !strings.HasPrefix(s.Script, inStage(runID, "")) {
				t.Errorf("%s: %s: would do something after the clean-up", name, s.Desc)
			}
			parses(t, name+": "+s.Desc, s.Script)
		}
		if !slices.Equal(got, want) || len(*events) > 0 {
			t.Errorf("%s: steps\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// Wherever an injection fails, undo and repair put the node right, as often as they
// are run.
func TestUndoAfterAnInjectionThatFailed(t *testing.T) {
	for name, fails := range map[string][]string{
		"rotation":        {"", "systemctl start kubelet", "systemctl start kubelet done"},
		"kubelet-restart": {"", "systemctl show *", "systemctl start kubelet"},
		"csr-refused":     {"", "kubectl * get clusterrolebinding *", "kubectl * patch *", "kubectl * patch * done", "systemctl start kubelet"},
		"signer-off":      {"", "kubectl * get clusterrole *", "mv role-before.new *", "kubectl * replace -f -", "kubectl * replace -f - done", "systemctl start kubelet"},
		"kcm-stopped":     {"", "crictl *", "cp *", "mv manifest.new *", "mv manifest.new * done", "rm *.yaml", "rm *.yaml done", "systemctl start kubelet"},
		"kcm-frozen":      {"", "pgrep *", "kill -STOP *", "kill -STOP * done", "systemctl start kubelet"},
		"kcm-killed":      {"", "crictl *", "pgrep *", "kill -KILL *", "kill -KILL * done", "systemctl start kubelet"},
	} {
		for _, fail := range fails {
			t.Run(name+" "+fail, func(t *testing.T) {
				t.Parallel()
				n := newFaultNode(t)
				n.write("fail", fail)
				n.asks(map[string]string{"csr-2": "c1-worker2 waits", "csr-3": "c1-worker3 served", "csr-9": "c1-worker waits"})
				before := n.vital()
				target, _ := fakeTarget(n, n)
				target.ca, target.Spec.Certificate = testAuthority(t, newKey(t)), Certificate{Mint: seconds(40)[0]}
				fault := kinds()[name].make()
				if err := fault.Inject(t.Context(), target); (err != nil) != (fail != "") {
					t.Errorf("error %v", err)
				}
				n.write("fail", "")
				undo := fault.Undo(target)
				for range 2 {
					for _, s := range undo {
						n.run(s.Script)
					}
					if !n.exists("process") { // the kubelet sees its manifest again
						n.write("process", "Ssl\n")
					}
					if stopped := strings.Replace(before, "active", "inactive", 1); len(undo) > 0 && n.vital() != stopped {
						t.Errorf("undone:\n%s", differ(stopped, n.vital()))
					}
					for _, s := range repairSteps(target) {
						n.run(s.Script)
					}
					if n.vital() != before {
						t.Errorf("repaired:\n%s", differ(before, n.vital()))
					}
					if left, want := n.waiting(), "csr-3 csr-9"; len(undo) > 0 && left != want {
						t.Errorf("requests %s are left, want %s", left, want)
					}
				}
				if n.exists("touched") {
					t.Error("an undo touches no requests")
				}
			})
		}
	}
}

// An undo that could not be done says so, and does it the next time.
func TestUndoThatFails(t *testing.T) {
	for name, fail := range map[string]string{"signer-off": "kubectl * replace -f role-before", "kcm-stopped": "mv */.flatline *", "kcm-frozen": "kill -CONT *", "csr-refused": "kubectl * replace -f binding-before"} {
		n := newFaultNode(t)
		target, _ := fakeTarget(n, n)
		target.Spec.Certificate = Certificate{}
		before := n.vital()
		fault := kinds()[name].make()
		if err := fault.Inject(t.Context(), target); err != nil {
			t.Fatal(err)
		}
		undo := fault.Undo(target)
		last := undo[len(undo)-1]
		n.write("fail", fail)
		if _, err := (Node{"n", n}).script(t.Context(), nil, last.Script); err == nil {
			t.Errorf("%s: no error", name)
		}
		n.write("fail", "")
		n.run(last.Script)
		if !n.exists("process") {
			n.write("process", "Ssl\n")
		}
		if n.vital() != before {
			t.Errorf("%s:\n%s", name, differ(before, n.vital()))
		}
	}
	// A process that cannot be looked for may be frozen; one that is not there is not.
	n := newFaultNode(t)
	target, _ := fakeTarget(n, n)
	undo := (&controllerFrozen{}).Undo(target)
	last := undo[len(undo)-1]
	n.must(os.Remove(n.path("process")))
	n.run(last.Script)
	n.stub("pgrep", "return 3")
	if _, err := (Node{"n", n}).script(t.Context(), nil, last.Script); err == nil {
		t.Error("pgrep could not look, and no error")
	}
}

// The kubelet must never see a part of the manifest, nor must a half of it be taken
// for the whole.
func TestTheManifestIsMovedWhole(t *testing.T) {
	n := newFaultNode(t)
	target, _ := fakeTarget(n, n)
	target.Spec.Certificate = Certificate{}
	f := &controllerStopped{}
	before := n.vital()
	// The disk is full: a part is written.
	n.stub("cp", `echo half > "${@: -1}"; return 1`)
	if err := f.Inject(t.Context(), target); err == nil {
		t.Error("no error")
	}
	undo := f.Undo(target)
	n.run(undo[len(undo)-1].Script)
	if n.vital() != before {
		t.Errorf("the disk was full:\n%s", differ(before, n.vital()))
	}
	// And on the way back.
	n.stub("cp", `command -p cp "$@"`)
	if err := f.Inject(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	n.stub("cp", `echo half > "${@: -1}"; return 1`)
	if _, err := (Node{"n", n}).script(t.Context(), nil, undo[len(undo)-1].Script); err == nil {
		t.Error("no error")
	}
	if n.exists("etc/manifests/kube-controller-manager.yaml") {
		t.Error("the kubelet sees a half of the manifest")
	}
	n.stub("cp", `command -p cp "$@"`)
	n.run(undo[len(undo)-1].Script)
	n.write("process", "Ssl\n")
	if n.vital() != before {
		t.Errorf("moved back:\n%s", differ(before, n.vital()))
	}
}

// Only the one signer's name is taken from the rules, and a rule that would be left
// with no name, which means all.
func TestTakingTheRightToSign(t *testing.T) {
	n := newFaultNode(t)
	target, _ := fakeTarget(n, n)
	target.Spec.Certificate = Certificate{}
	if err := (&signerOff{}).Inject(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	var got rbacv1.ClusterRole
	n.must(json.Unmarshal([]byte(n.read("role")), &got))
	want := []rbacv1.PolicyRule{
		{Verbs: []string{"get", "list"}, Resources: []string{"certificatesigningrequests"}},
		{Verbs: []string{"approve"}, Resources: []string{"signers"}, ResourceNames: []string{clientSigner}},
		{Verbs: []string{"sign"}, Resources: []string{"signers"}, ResourceNames: []string{"kubernetes.io/kubelet-serving"}},
	}
	if !reflect.DeepEqual(got.Rules, want) {
		t.Errorf("rules %+v\nwant %+v", got.Rules, want)
	}
	if got.Annotations["rbac.authorization.kubernetes.io/autoupdate"] != "false" || got.ResourceVersion != "" || got.UID != "" {
		t.Errorf("metadata %+v", got.ObjectMeta)
	}
	// Where the run's folder is gone nothing can be kept, and nothing may be taken.
	n.write("role", wholeRole)
	n.must(os.RemoveAll(n.path("flatline/" + runID)))
	if err := (&signerOff{}).Inject(t.Context(), target); err == nil || n.read("role") != wholeRole {
		t.Errorf("without a folder: error %v, role %s", err, n.read("role"))
	}
}

// A release takes back the fault and nothing else: the target is left to itself, and
// its requests are written to only if the experiment says so.
func TestReleaseOfEachFault(t *testing.T) {
	for name, back := range map[string]string{"csr-denied": "kubectl * replace -f binding-before", "signer-off": "kubectl * replace -f role-before", "kcm-stopped": "mv */.flatline *", "kcm-frozen": "kill -CONT *"} {
		for touch, want := range map[bool]string{false: "", true: "csr-2\ncsr-4\n"} {
			t.Run(fmt.Sprint(name, ", touch ", touch), func(t *testing.T) {
				n := newFaultNode(t)
				before := n.vital()
				target, events := fakeTarget(n, n)
				target.Spec.Certificate, target.Spec.Release = Certificate{}, &judge.Release{Touch: touch}
				fault := kinds()[name].make()
				release := fault.(Releaser).Release
				if _, err := release(t.Context(), target); err == nil && name != "kcm-frozen" {
					t.Error("released before it was there, and no error")
				}
				if err := fault.Inject(t.Context(), target); err != nil {
					t.Fatal(err)
				}
				n.asks(map[string]string{"csr-2": "c1-worker2 waits", "csr-3": "c1-worker3 served", "csr-4": "c1-worker3 waits"})
				n.write("fail", back)
				if _, err := release(t.Context(), target); err == nil || !strings.HasPrefix(err.Error(), "taking the fault back: ") {
					t.Errorf("error %v", err)
				}
				for _, cannot := range []string{"kubectl * get csr *", "kubectl * annotate *"} {
					if !touch {
						break
					}
					n.write("fail", cannot)
					if _, err := release(t.Context(), target); err == nil {
						t.Errorf("%s fails, and no error", cannot)
					}
					if err := fault.Inject(t.Context(), target); err != nil {
						t.Fatal(err)
					}
				}
				n.write("fail", "")
				_ = os.Remove(n.path("touched"))
				n.calls()
				at, err := release(t.Context(), target)
				if injected := (*events)[0].Stamp; err != nil || at.Before(injected) {
					t.Errorf("released at %v, injected at %v, error %v", at, injected, err)
				}
				if calls := n.calls(); strings.Contains(calls, "systemctl") || strings.Contains(calls, "delete") {
					t.Errorf("called\n%s", calls)
				}
				if !n.exists("process") {
					n.write("process", "Ssl\n")
				}
				if n.vital() != before {
					t.Errorf("released:\n%s", differ(before, n.vital()))
				}
				touched := ""
				if n.exists("touched") {
					touched = n.read("touched")
				}
				if touched != want || n.waiting() != "csr-2 csr-3 csr-4" {
					t.Errorf("touched %q, want %q; there are %s", touched, want, n.waiting())
				}
				// The undo comes as ever.
				for _, s := range fault.Undo(target) {
					n.run(s.Script)
				}
				if stopped := strings.Replace(before, "active", "inactive", 1); n.vital() != stopped {
					t.Errorf("undone:\n%s", differ(stopped, n.vital()))
				}
			})
		}
	}
	// Nobody waits: there is nothing to write to.
	n := newFaultNode(t)
	target, _ := fakeTarget(n, n)
	target.Spec.Release = &judge.Release{Touch: true}
	if _, err := (&controllerFrozen{}).Release(t.Context(), target); err != nil || strings.Contains(n.calls(), "annotate") {
		t.Errorf("error %v", err)
	}
	for name, k := range kinds() {
		if k.make == nil {
			continue
		}
		if _, can := k.make().(Releaser); k.CanRelease && !can {
			t.Errorf("%s is said to be one that can be taken back", name)
		}
	}
}

func request(name, node string, made time.Time, conditions ...certv1.RequestConditionType) *certv1.CertificateSigningRequest {
	c := &certv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(made.Truncate(time.Second))},
		Spec: certv1.CertificateSigningRequestSpec{Username: "system:node:" + node, SignerName: clientSigner}}
	for _, typ := range conditions {
		c.Status.Conditions = append(c.Status.Conditions, certv1.CertificateSigningRequestCondition{Type: typ})
	}
	return c
}

func issued(c *certv1.CertificateSigningRequest) *certv1.CertificateSigningRequest {
	c.Status.Certificate = []byte("x")
	return c
}

func signerRoleWith(names ...string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: signerRole}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"approve"}, Resources: []string{"signers"}, ResourceNames: []string{clientSigner}}, {Verbs: []string{"sign"}, Resources: []string{"signers"}, ResourceNames: names}}}
}

// What is told by requests: each target must have one that is as the fault has it.
func TestWitnessOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		injected := time.Now()
		time.Sleep(20 * time.Second)
		early, old, young := injected.Add(-time.Second), injected.Add(10*time.Second), injected.Add(19*time.Second)
		const worker2, worker3 = "c1-worker2", "c1-worker3"
		rotating, signer := &rotation{injectedAt: injected}, &signerOff{injectedAt: injected}
		refusing := &csrDenied{refuse: true, injectedAt: injected}
		off, on := signerRoleWith("kubernetes.io/kubelet-serving"), signerRoleWith("kubernetes.io/kubelet-serving", clientSigner)
		restricted, whole := binding(rotationRole, oneNode), binding(rotationRole, allNodes)
		denied, approved := certv1.CertificateDenied, certv1.CertificateApproved
		for name, tc := range map[string]struct {
			fault           Fault
			objects         []runtime.Object
			inPlace, biting bool
			seen            string
		}{
			"rotation, not yet":            {&rotation{}, []runtime.Object{request("a", worker2, old)}, false, false, ""},
			"rotation, nobody asks":        {rotating, nil, true, false, "c1-worker2: no request since the injection; c1-worker3: no request since the injection"},
			"rotation, one asks":           {rotating, []runtime.Object{request("a", worker2, young)}, true, false, "c1-worker2: a is Pending; c1-worker3: no request"},
			"rotation, all ask":            {rotating, []runtime.Object{request("a", worker2, young), issued(request("b", worker3, young, approved))}, true, true, "c1-worker2: a is Pending; c1-worker3: b is Issued"},
			"rotation, one asked before":   {rotating, []runtime.Object{request("a", worker2, young), request("b", worker3, early)}, true, false, ""},
			"signer, before":               {&signerOff{}, []runtime.Object{on}, false, false, "nobody has injected it"},
			"signer, off before":           {&signerOff{}, []runtime.Object{off}, true, false, "nobody has injected it"},
			"signer, approved for long":    {signer, []runtime.Object{off, request("a", worker2, old, approved), request("b", worker3, old, approved)}, true, true, "c1-worker2: a is Approved; c1-worker3: b is Approved"},
			"signer, approved just now":    {signer, []runtime.Object{off, request("a", worker2, young, approved), request("b", worker3, old, approved)}, true, false, ""},
			"signer, issued":               {signer, []runtime.Object{off, issued(request("a", worker2, old, approved)), request("b", worker3, old, approved)}, true, false, "c1-worker2: a is Issued"},
			"signer, not approved":         {signer, []runtime.Object{off, request("a", worker2, old), request("b", worker3, old, approved)}, true, false, "c1-worker2: a is Pending"},
			"signer, of before":            {signer, []runtime.Object{off, request("a", worker2, early, approved), request("b", worker3, old, approved)}, true, false, "c1-worker2: no request"},
			"signer, back":                 {signer, []runtime.Object{on, request("a", worker2, old, approved), request("b", worker3, old, approved)}, false, false, ""},
			"refused, all":                 {refusing, []runtime.Object{restricted, request("a", worker2, young, denied), request("b", worker3, young, denied)}, true, true, "c1-worker2: a is Denied"},
			"refused, one waits":           {refusing, []runtime.Object{restricted, request("a", worker2, young, denied), request("b", worker3, old)}, true, false, "c1-worker2: a is Denied; c1-worker3: b is Pending"},
			"refused, the next one waits":  {refusing, []runtime.Object{restricted, request("a", worker2, old, denied), request("b", worker3, old, denied), request("c", worker3, young)}, true, true, ""},
			"refused, one approved":        {refusing, []runtime.Object{restricted, request("a", worker2, young, denied), request("b", worker3, young, approved)}, true, false, ""},
			"refused, the binding is back": {refusing, []runtime.Object{whole, request("a", worker2, young, denied), request("b", worker3, young, denied)}, false, false, ""},
		} {
			target, events := fakeTarget(&fakeNode{}, &fakeNode{}, tc.objects...)
			ev, err := tc.fault.Witness(t.Context(), target)
			if err != nil || ev.InPlace != tc.inPlace || ev.Biting != tc.biting || !strings.HasPrefix(ev.Seen, tc.seen) || len(*events) > 0 {
				t.Errorf("%s: %+v, error %v; want in place %v, biting %v, seen %s", name, ev, err, tc.inPlace, tc.biting, tc.seen)
			}
		}
		// To be unable to look is not to see nothing.
		for _, tc := range []struct {
			fault    Fault
			resource string
		}{{rotating, "certificatesigningrequests"}, {signer, "certificatesigningrequests"}, {signer, "clusterroles"}, {&signerOff{}, "clusterroles"}, {refusing, "certificatesigningrequests"}, {refusing, "clusterrolebindings"}} {
			target, _ := fakeTarget(&fakeNode{}, &fakeNode{})
			client, api := kubefake.New(off, restricted)
			target.Client = client
			gone := errors.New("connection refused")
			api.PrependReactor("*", tc.resource, func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, gone })
			if _, err := tc.fault.Witness(t.Context(), target); !errors.Is(err, gone) {
				t.Errorf("%T, %s: error %v", tc.fault, tc.resource, err)
			}
		}
		target, _ := fakeTarget(&fakeNode{}, &fakeNode{})
		if _, err := (&signerOff{}).Witness(t.Context(), target); !apierrors.IsNotFound(err) {
			t.Errorf("without the role: error %v", err)
		}
	})
}

// What is told by processes and containers.
func TestWitnessOfProcesses(t *testing.T) {
	restarted := &kubeletRestart{before: map[string]string{"c1-worker2": "17", "c1-worker3": "17"}}
	for name, tc := range map[string]struct {
		fault           Fault
		out             string
		inPlace, biting bool
		seen            string
	}{
		"no restart yet":           {&kubeletRestart{}, "17\n", false, false, ""},
		"the same process":         {restarted, "17\n", true, false, "c1-worker2: process 17, was 17; c1-worker3: process 17, was 17"},
		"another process":          {restarted, "18\n", true, true, "c1-worker2: process 18, was 17; c1-worker3: process 18, was 17"},
		"no process":               {restarted, "0\n", true, false, "c1-worker2: process 0, was 17; c1-worker3: process 0, was 17"},
		"a manifest that is there": {&controllerStopped{}, "there\n" + oldID + "\n", false, false, "the manifest is there, container " + oldID + " runs"},
		"it has not started yet":   {&controllerStopped{}, "there\n", false, false, "the manifest is there, no container runs"},
		"a manifest that is out":   {&controllerStopped{}, "out\n", true, true, "the manifest is out, no container runs"},
		"it has not ended yet":     {&controllerStopped{}, "out\n" + oldID + "\n", true, false, "the manifest is out, container " + oldID + " runs"},
		"a frozen process":         {&controllerFrozen{}, "Tsl\n", true, true, "its process is in state Tsl"},
		"one that runs":            {&controllerFrozen{}, "Rsl\n", false, false, "its process is in state Rsl"},
		"one that waits":           {&controllerFrozen{}, "Ssl\n", false, false, "its process is in state Ssl"},
		"nobody killed it":         {&controllerKilled{}, oldID + "\n", false, false, ""},
		"the same container":       {&controllerKilled{id: oldID}, oldID + "\n", true, false, "container " + oldID + ", was " + oldID},
		"another container":        {&controllerKilled{id: oldID}, nextID + "\n", true, true, "container " + nextID + ", was " + oldID},
		"no container":             {&controllerKilled{id: oldID}, "\n", true, true, "container none, was " + oldID},
	} {
		answer := func(context.Context, string) (string, error) { return tc.out, nil }
		target, events := fakeTarget(&fakeNode{answer: answer}, &fakeNode{answer: answer})
		ev, err := tc.fault.Witness(t.Context(), target)
		if want := (Evidence{tc.inPlace, tc.biting, tc.seen}); err != nil || ev != want || len(*events) > 0 {
			t.Errorf("%s: %+v, error %v; want %+v", name, ev, err, want)
		}
	}
	gone := errors.New("no such container")
	silent := &fakeNode{answer: func(context.Context, string) (string, error) { return "", gone }}
	for _, f := range []Fault{restarted, &controllerStopped{}, &controllerFrozen{}, &controllerKilled{id: oldID}} {
		target, _ := fakeTarget(silent, silent)
		if _, err := f.Witness(t.Context(), target); !errors.Is(err, gone) {
			t.Errorf("%T: error %v", f, err)
		}
	}
	// One of two kubelets is the one of before.
	twice := 0
	one := &fakeNode{answer: func(context.Context, string) (string, error) { twice++; return fmt.Sprint(16 + twice), nil }}
	target, _ := fakeTarget(one, one)
	if ev, err := restarted.Witness(t.Context(), target); err != nil || ev.Biting {
		t.Errorf("one restarted of two: %+v, error %v", ev, err)
	}
}

// The witness as the shell runs it, before, under and after the fault. A command that
// fails must not look like a container that is gone.
func TestWitnessByTheShell(t *testing.T) {
	for name, tools := range map[string][]string{"kcm-stopped": {"crictl *"}, "kcm-frozen": {"pgrep *", "ps *"}, "kcm-killed": {"crictl *"}} {
		n := newFaultNode(t)
		target, _ := fakeTarget(n, n)
		target.Spec.Certificate = Certificate{}
		fault := kinds()[name].make()
		look := func(when string, want bool) {
			t.Helper()
			if ev, err := fault.Witness(t.Context(), target); err != nil || ev.InPlace != want || ev.Biting != want {
				t.Errorf("%s, %s: %+v, error %v", name, when, ev, err)
			}
		}
		look("before", false)
		if err := fault.Inject(t.Context(), target); err != nil {
			t.Fatal(err)
		}
		look("injected", true)
		for _, fail := range tools {
			n.write("fail", fail)
			if ev, err := fault.Witness(t.Context(), target); err == nil {
				t.Errorf("%s: %s fails, and yet it saw %+v", name, fail, ev)
			}
			n.write("fail", "")
		}
		if name == "kcm-killed" { // it is not taken back
			continue
		}
		for _, s := range fault.Undo(target) {
			n.run(s.Script)
		}
		look("undone", false)
	}
}

// A container is gone when crictl says so, and not when it says nothing.
func TestTheEndOfAContainerIsNotAFailureToLook(t *testing.T) {
	n := newFaultNode(t)
	target, events := fakeTarget(n, n)
	target.Spec.Certificate = Certificate{}
	n.stub("crictl", `echo x >> $HOME/looks
case $(wc -l < $HOME/looks) in 2) return 1;; 4) ;; *) echo 0123456789abcdef0123;; esac`)
	if err := (&controllerStopped{}).Inject(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	if looks := strings.Count(n.read("looks"), "x"); looks != 4 { // one before, one that failed, one that saw it and one that did not
		t.Errorf("%d looks", looks)
	}
	if got := told((*events)[1:]); len(got) != 1 || !strings.HasSuffix(got[0], " "+oldID) {
		t.Errorf("told %q", got)
	}
	// One that does not end at all.
	n = newFaultNode(t)
	target, events = fakeTarget(n, n)
	n.stub("crictl", "echo 0123456789abcdef0123")
	n.stub("seq", "echo 1 2 3")
	if err := (&controllerStopped{}).Inject(t.Context(), target); err == nil || !strings.Contains(err.Error(), "the container does not end") || len(*events) != 1 {
		t.Errorf("error %v, told %v", err, *events)
	}
}

func TestAttend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := time.Now()
		serving := request("serving", "c1-worker2", made)
		serving.Spec.SignerName = certv1.KubeletServingSignerName
		target, _ := fakeTarget(&fakeNode{}, &fakeNode{})
		client, api := kubefake.New(request("mine", "c1-worker2", made), request("other", "c1-worker3", made), request("control", "c1-worker", made),
			request("approved", "c1-worker2", made, certv1.CertificateApproved), request("denied", "c1-worker2", made, certv1.CertificateDenied), serving)
		var mu sync.Mutex
		var events []timeline.Event
		target.Emit = func(e timeline.Event) { mu.Lock(); defer mu.Unlock(); events = append(events, e) }
		toldOf := func() []timeline.Event { mu.Lock(); defer mu.Unlock(); return slices.Clone(events) }
		target.Client = client
		csrs := client.CSRs()
		// The fake takes no notice of what the signer must be.
		var away atomic.Bool
		api.PrependReactor("list", "certificatesigningrequests", func(a kubetesting.Action) (bool, runtime.Object, error) {
			if got := a.(kubetesting.ListAction).GetListRestrictions().Fields.String(); got != "spec.signerName="+clientSigner {
				t.Errorf("listed %s", got)
			}
			if away.Load() {
				return true, nil, errors.New("connection refused")
			}
			_, all, err := kubetesting.ObjectReaction(api.Tracker())(a)
			if list, ok := all.(*certv1.CertificateSigningRequestList); ok {
				list.Items = slices.DeleteFunc(list.Items, func(c certv1.CertificateSigningRequest) bool { return c.Spec.SignerName != clientSigner })
			}
			return true, all, err
		})
		// Somebody else writes to the next request before the first denial.
		var tries atomic.Int32
		api.PrependReactor("update", "certificatesigningrequests", func(a kubetesting.Action) (bool, runtime.Object, error) {
			conflict := a.(kubetesting.UpdateAction).GetObject().(*certv1.CertificateSigningRequest).Name == "next" && tries.Add(1) == 1
			return conflict, nil, apierrors.NewConflict(schema.GroupResource{Resource: "certificatesigningrequests"}, "next", errors.New("changed"))
		})
		updates := func() (names []string) {
			for _, a := range api.Actions() {
				if u, ok := a.(kubetesting.UpdateAction); ok {
					names = append(names, u.GetSubresource()+" "+u.GetObject().(*certv1.CertificateSigningRequest).Name)
				}
			}
			slices.Sort(names)
			return names
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { (&csrDenied{refuse: true}).Attend(ctx, target); close(ended) }()
		time.Sleep(time.Second)
		synctest.Wait()
		if got, want := updates(), []string{"approval mine", "approval other"}; !slices.Equal(got, want) {
			t.Errorf("decided %q, want %q", got, want)
		}
		for name, want := range map[string]string{"mine": "Denied", "other": "Denied", "control": "Pending", "approved": "Approved", "denied": "Denied", "serving": "Pending"} {
			c, err := csrs.Get(ctx, name, metav1.GetOptions{})
			if err != nil || observe.CSRState(c) != want || len(c.Status.Conditions) > 1 {
				t.Errorf("%s is %s, want %s: %v", name, observe.CSRState(c), want, err)
			}
		}
		// The kubelet asks again. What meets a conflict is denied at the next look, and
		// nobody is told.
		if _, err := csrs.Create(ctx, request("next", "c1-worker2", made), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if c, err := csrs.Get(ctx, "next", metav1.GetOptions{}); err != nil || observe.CSRState(c) != "Denied" || tries.Load() != 2 || len(toldOf()) > 0 {
			t.Errorf("the next is %s after %d tries, %v; told %v", observe.CSRState(c), tries.Load(), err, toldOf())
		}
		// An API server that does not answer is told of, and no end.
		away.Store(true)
		time.Sleep(time.Second)
		synctest.Wait()
		if e := toldOf(); len(e) == 0 || e[0].Type != timeline.TypeWitnessFailed || !strings.Contains(e[0].Detail["why"], "connection refused") {
			t.Errorf("told %v", e)
		}
		cancel()
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("it goes on after its context has ended")
		}
		before := len(api.Actions())
		time.Sleep(time.Minute)
		if n := len(api.Actions()); n != before {
			t.Errorf("%d more requests after the end", n-before)
		}
	})
	// Who does not refuse has nothing to attend to.
	target, _ := fakeTarget(&fakeNode{}, &fakeNode{})
	client, api := kubefake.New()
	target.Client = client
	(&csrDenied{}).Attend(t.Context(), target)
	if n := len(api.Actions()); n > 0 {
		t.Errorf("%d requests", n)
	}
}
