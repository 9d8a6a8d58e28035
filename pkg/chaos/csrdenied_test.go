package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"

	"github.com/flatline-chaos/flatline/internal/kubefake"
	"github.com/flatline-chaos/flatline/pkg/observe"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

func binding(role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: rotationBinding},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: subjects}
}

var (
	allNodes = rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:nodes"}
	oneNode  = rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "system:node:c1-worker"}
)

// fakeTarget has one control plane, a worker to leave alone and two to break.
func fakeTarget(control, worker2 observe.Node, objects ...runtime.Object) (*Target, *[]timeline.Event) {
	var events []timeline.Event
	client, _ := kubefake.New(objects...)
	return &Target{
		RunID: runID, Client: client,
		Spec:         FaultSpec{Type: "csr-denied", Certificate: Certificate{From: "rotation"}},
		ControlPlane: Node{"c1-control-plane", control},
		Nodes:        []Node{{"c1-worker2", worker2}, {"c1-worker3", worker2}},
		ControlNodes: []Node{{"c1-control-plane", control}, {"c1-worker", &fakeNode{}}},
		Emit:         func(e timeline.Event) { events = append(events, e) },
	}, &events
}

// What is asked of the witness before anything is changed.
func TestWitnessBeforeTheInjection(t *testing.T) {
	for _, tc := range []struct {
		name    string
		objects []runtime.Object
		inPlace bool
		err     string
	}{
		{"as kubeadm made it", []runtime.Object{binding(rotationRole, allNodes)}, false, ""},
		{"with others", []runtime.Object{binding(rotationRole, oneNode, allNodes)}, false, ""},
		{"none", nil, false, "reading the binding that approves rotation: "},
		{"another role", []runtime.Object{binding("view", allNodes)}, false, "is for the role view and not for " + rotationRole},
		{"not the group", []runtime.Object{binding(rotationRole, oneNode)}, true, ""},
		{"a user of the group's name", []runtime.Object{binding(rotationRole, rbacv1.Subject{Kind: "User", Name: "system:nodes"})}, true, ""},
		{"nobody", []runtime.Object{binding(rotationRole)}, true, ""},
	} {
		control, worker := &fakeNode{}, &fakeNode{}
		target, events := fakeTarget(control, worker)
		client, api := kubefake.New(tc.objects...)
		target.Client = client
		ev, err := (&csrDenied{}).Witness(t.Context(), target)
		if tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) || tc.err == "" && (err != nil || ev.InPlace != tc.inPlace) {
			t.Errorf("%s: %+v, error %v; want in place %v, error %q", tc.name, ev, err, tc.inPlace, tc.err)
		}
		if len(control.scripts)+len(worker.scripts)+len(*events) > 0 {
			t.Errorf("%s: something was done", tc.name)
		}
		for _, a := range api.Actions() {
			if a.GetVerb() != "get" && a.GetVerb() != "list" {
				t.Errorf("%s: %s %s", tc.name, a.GetVerb(), a.GetResource().Resource)
			}
		}
	}
}

// Order matters: see the comment of Undo.
func TestUndoOrder(t *testing.T) {
	target, _ := fakeTarget(&fakeNode{}, &fakeNode{}, binding(rotationRole, allNodes))
	undo := (&csrDenied{}).Undo(target)
	var got []string
	for _, s := range undo {
		got = append(got, s.On+": "+s.Desc)
		if !strings.HasPrefix(s.Script, inStage(runID, "")) {
			t.Errorf("%s: would do something after the clean-up", s.Desc)
		}
	}
	if want := []string{
		"c1-worker2: stopping the kubelet",
		"c1-worker3: stopping the kubelet",
		"c1-control-plane: deleting the unanswered requests of c1-worker2",
		"c1-control-plane: deleting the unanswered requests of c1-worker3",
		"c1-control-plane: restoring the binding that approves rotation",
	}; !slices.Equal(got, want) {
		t.Errorf("steps\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The steps as the shell runs them: restricted, then put back, then once more.
func TestUndoSteps(t *testing.T) {
	n := newShellNode(t)
	standIn(t, n.root, "date", standingClock)
	n.must(os.MkdirAll(n.path("flatline/"+runID), 0o755))
	n.stub("kubectl", `case "$*" in
*"get clusterrolebinding"*) echo '{"kind":"ClusterRoleBinding","metadata":{"name":"b","uid":"u","resourceVersion":"7"},"subjects":[{"kind":"Group","name":"system:nodes"}]}';;
*"get csr"*) echo -n "csr-a csr-b ";;
*"replace -f"*|*"create -f"*) cat "${@: -1}" >> `+n.root+`/calls;;
esac`)
	target, _ := fakeTarget(n, n)
	f := &csrDenied{}
	at, err := f.restrict(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if !at.Equal(time.Unix(nodeClock, 1)) {
		t.Errorf("restricted at %s", at)
	}
	if calls, want := n.calls(), `--type=merge -p {"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"system:node:c1-control-plane"},`+
		`{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"system:node:c1-worker"}]}`; !strings.Contains(calls, want) || strings.Contains(calls, "worker2") {
		t.Errorf("called\n%s\nwant %s", calls, want)
	}
	undo := f.Undo(target)
	for range 2 {
		var calls []string
		for _, s := range undo {
			n.run(s.Script)
			calls = append(calls, n.calls())
		}
		if !strings.HasSuffix(calls[0], "systemctl stop kubelet\n") {
			t.Errorf("called %q", calls[0])
		}
		if !strings.Contains(calls[2], `(eq .spec.username "system:node:c1-worker2")`) || !strings.HasSuffix(calls[2], " delete csr --ignore-not-found csr-a csr-b\n") {
			t.Errorf("called %q", calls[2])
		}
		if !strings.Contains(calls[4], "replace -f") || !strings.Contains(calls[4], `"name": "system:nodes"`) || strings.Contains(calls[4], "resourceVersion") || strings.Contains(calls[4], "create -f") {
			t.Errorf("called %q", calls[4])
		}
	}
	// The binding is gone: it is made anew.
	n.stub("kubectl", `case "$*" in *"replace -f"*) return 1;; *"create -f"*) cat "${@: -1}" >> `+n.root+`/calls;; esac`)
	n.run(undo[4].Script)
	if calls := n.calls(); !strings.Contains(calls, "create -f") || !strings.Contains(calls, `"name": "system:nodes"`) {
		t.Errorf("called %q", calls)
	}
	// No requests: nothing to delete.
	n.stub("kubectl", "")
	n.run(undo[2].Script)
	if calls := n.calls(); strings.Contains(calls, "delete") {
		t.Errorf("called %q", calls)
	}
	// Nothing was restricted yet: nothing to restore.
	n.must(os.Remove(n.path("flatline/" + runID + "/binding-before")))
	n.run(undo[4].Script)
	if calls := n.calls(); calls != "" {
		t.Errorf("called %q", calls)
	}
	// An API server that does not answer must not look like one without requests.
	n.stub("kubectl", "return 1")
	if _, err := (Node{"n", n}).script(t.Context(), nil, undo[2].Script); err == nil {
		t.Error("unreachable, and no error")
	}
}

// What cannot be restored must not be taken away.
func TestRestrictNeedsBackup(t *testing.T) {
	n := newShellNode(t)
	n.must(os.MkdirAll(n.path("flatline/"+runID), 0o755))
	n.stub("kubectl", `case "$*" in *"get clusterrolebinding"*) return 1;; esac`)
	target, _ := fakeTarget(n, n)
	if _, err := (&csrDenied{}).restrict(t.Context(), target); err == nil {
		t.Error("no error")
	}
	if calls := n.calls(); strings.Contains(calls, "patch") {
		t.Errorf("patched without a backup: %s", calls)
	}
	if n.exists("flatline/" + runID + "/binding-before") {
		t.Error("an empty backup")
	}
	// Where the run's folder is gone the fault must not be put in place either.
	n.must(os.RemoveAll(n.path("flatline/" + runID)))
	n.stub("kubectl", "")
	if _, err := (&csrDenied{}).restrict(t.Context(), target); err == nil {
		t.Error("no error")
	}
	if calls := n.calls(); strings.Contains(calls, "patch") {
		t.Errorf("patched without a folder: %s", calls)
	}
}

func TestWitness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour + 700*time.Millisecond)
		injected := time.Now()
		time.Sleep(10 * time.Second)
		csr := func(name, node string, age time.Duration, conditions ...certv1.RequestConditionType) *certv1.CertificateSigningRequest {
			// As the API server does, to the second.
			made := time.Now().Add(-age).Truncate(time.Second)
			c := &certv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(made)},
				Spec: certv1.CertificateSigningRequestSpec{Username: "system:node:" + node, SignerName: certv1.KubeAPIServerClientKubeletSignerName}}
			for _, typ := range conditions {
				c.Status.Conditions = append(c.Status.Conditions, certv1.CertificateSigningRequestCondition{Type: typ})
			}
			return c
		}
		issued := func(c *certv1.CertificateSigningRequest) *certv1.CertificateSigningRequest {
			c.Status.Certificate = []byte("x")
			return c
		}
		restricted, whole := binding(rotationRole, oneNode), binding(rotationRole, allNodes)
		const old, young = 8 * time.Second, time.Second
		third := csr("csr-3", "c1-worker3", old) // the second target always waits
		for _, tc := range []struct {
			name            string
			binding         *rbacv1.ClusterRoleBinding
			csrs            []*certv1.CertificateSigningRequest
			inPlace, biting bool
			seen            string
		}{
			{"no request", restricted, nil, true, false, "c1-worker2: no request since the injection; c1-worker3: csr-3 is Pending"},
			{"pending, old", restricted, []*certv1.CertificateSigningRequest{csr("a", "c1-worker2", old)}, true, true, "c1-worker2: a is Pending; c1-worker3: csr-3 is Pending"},
			{"pending, young", restricted, []*certv1.CertificateSigningRequest{csr("a", "c1-worker2", young)}, true, false, "c1-worker2: a is Pending"},
			{"in the second of the injection", restricted, []*certv1.CertificateSigningRequest{csr("a", "c1-worker2", 10*time.Second)}, true, true, "c1-worker2: a is Pending"},
			{"from before the injection", restricted, []*certv1.CertificateSigningRequest{csr("a", "c1-worker2", 11*time.Second)}, true, false, "c1-worker2: no request"},
			{"approved", restricted, []*certv1.CertificateSigningRequest{csr("a", "c1-worker2", old, certv1.CertificateApproved)}, true, false, "c1-worker2: a is Approved"},
			{"issued", restricted, []*certv1.CertificateSigningRequest{issued(csr("a", "c1-worker2", old, certv1.CertificateApproved))}, true, false, "c1-worker2: a is Issued"},
			{"denied", restricted, []*certv1.CertificateSigningRequest{csr("a", "c1-worker2", old, certv1.CertificateDenied)}, true, false, "c1-worker2: a is Denied"},
			{"of another node", restricted, []*certv1.CertificateSigningRequest{csr("a", "c1-worker", old)}, true, false, "c1-worker2: no request"},
			// Names are random; the one that was issued in the second of the injection may come last.
			{"two, pending first", restricted, []*certv1.CertificateSigningRequest{csr("a", "c1-worker2", old), issued(csr("b", "c1-worker2", 10*time.Second))}, true, true, "c1-worker2: a is Pending"},
			{"two, pending last", restricted, []*certv1.CertificateSigningRequest{issued(csr("a", "c1-worker2", 10*time.Second)), csr("b", "c1-worker2", old)}, true, true, "c1-worker2: b is Pending"},
			{"binding restored", whole, []*certv1.CertificateSigningRequest{csr("a", "c1-worker2", old)}, false, false, "c1-worker2: a is Pending"},
		} {
			objects := []runtime.Object{tc.binding, third}
			for _, c := range tc.csrs {
				objects = append(objects, c)
			}
			target, _ := fakeTarget(&fakeNode{}, &fakeNode{})
			client, api := kubefake.New(objects...)
			target.Client = client
			ev, err := (&csrDenied{injectedAt: injected}).Witness(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			if ev.InPlace != tc.inPlace || ev.Biting != tc.biting || !strings.HasPrefix(ev.Seen, tc.seen) {
				t.Errorf("%s: %+v; want in place %v, biting %v, seen %s", tc.name, ev, tc.inPlace, tc.biting, tc.seen)
			}
			for _, a := range api.Actions() {
				if l, ok := a.(kubetesting.ListAction); ok && l.GetListRestrictions().Fields.String() != "spec.signerName=kubernetes.io/kube-apiserver-client-kubelet" {
					t.Errorf("%s: listed %s", tc.name, l.GetListRestrictions().Fields)
				}
			}
		}
	})
}

// To be unable to look is not to see nothing.
func TestWitnessCannotLook(t *testing.T) {
	for _, resource := range []string{"clusterrolebindings", "certificatesigningrequests"} {
		target, _ := fakeTarget(&fakeNode{}, &fakeNode{})
		client, api := kubefake.New(binding(rotationRole, oneNode))
		target.Client = client
		refused := errors.New("connection refused")
		api.PrependReactor("*", resource, func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
		if _, err := (&csrDenied{}).Witness(t.Context(), target); !errors.Is(err, refused) {
			t.Errorf("%s: error %v", resource, err)
		}
	}
}

// now answers as a node whose clock stands at 1000.000000001.
func now(_ context.Context, script string) (string, error) {
	if !strings.Contains(script, "date +%s.%N") {
		return "", nil
	}
	return "1000.000000001\n", nil
}

func TestInject(t *testing.T) {
	worker := &fakeNode{answer: func(context.Context, string) (string, error) { return "1002.500000000\n", nil }}
	control := &fakeNode{answer: now}
	target, events := fakeTarget(control, worker, binding(rotationRole, allNodes))
	target.ca = testAuthority(t, newKey(t))
	target.Spec.Certificate = Certificate{Mint: seconds(40)[0]}
	f := &csrDenied{}
	if err := f.Inject(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range *events {
		got = append(got, fmt.Sprintf("%s %s %s %s", e.Source, e.Type, e.Object, e.Stamp.Format("05.999999999")))
	}
	if want := []string{"run " + timeline.TypeInjected + "  40.000000001", "run " + timeline.TypeInstalled + " certificate c1-worker2 42.5", "run " + timeline.TypeKubeletStarted + " node c1-worker2 42.5",
		"run " + timeline.TypeInstalled + " certificate c1-worker3 42.5", "run " + timeline.TypeKubeletStarted + " node c1-worker3 42.5"}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	if !f.injectedAt.Equal(time.Unix(1000, 1)) {
		t.Errorf("injected at %s", f.injectedAt)
	}
	if len(worker.scripts) != 2 || len(control.scripts) != 1 {
		t.Errorf("%d scripts on targets, %d on the control plane", len(worker.scripts), len(control.scripts))
	}
	for i, script := range worker.scripts {
		if !strings.Contains(worker.stdin[i], "BEGIN EC PRIVATE KEY") || strings.Contains(script, "PRIVATE KEY") {
			t.Error("the key must go in by stdin, and only there")
		}
		if !strings.HasPrefix(script, inStage(runID, "(umask 077; cat > short.pem)\n")) || strings.Count(script, "cat > ") != 1 {
			t.Errorf("others may read the staged key: %s", script)
		}
	}

	// With the node's own certificate the kubelet is left alone.
	worker.scripts = nil
	target.Spec.Certificate = Certificate{From: "rotation"}
	if err := (&csrDenied{}).Inject(t.Context(), target); err != nil || len(worker.scripts) > 0 {
		t.Errorf("ran %q, error %v", worker.scripts, err)
	}
}

func TestInjectFails(t *testing.T) {
	bad := errors.New("exit status 1")
	for _, tc := range []struct {
		name            string
		control, worker func(context.Context, string) (string, error)
		events          int
	}{
		{"the binding cannot be restricted", func(context.Context, string) (string, error) { return "", bad }, now, 0},
		{"no time comes back", func(context.Context, string) (string, error) { return "", nil }, now, 0},
		{"the kubelet cannot be restarted", now, func(context.Context, string) (string, error) { return "", bad }, 1},
		{"no time comes back from the target", now, func(context.Context, string) (string, error) { return "x", nil }, 1},
	} {
		target, events := fakeTarget(&fakeNode{answer: tc.control}, &fakeNode{answer: tc.worker}, binding(rotationRole, allNodes))
		target.ca = testAuthority(t, newKey(t))
		target.Spec.Certificate = Certificate{Mint: seconds(40)[0]}
		if err := (&csrDenied{}).Inject(t.Context(), target); err == nil || len(*events) != tc.events {
			t.Errorf("%s: error %v, events %v", tc.name, err, *events)
		}
	}
}

// fakeRun is a run that is ready to inject csr-denied with a minted certificate.
func fakeRun(t *testing.T, control, target *fakeNode) *run {
	t.Helper()
	answer := control.answer
	ca := testAuthority(t, newKey(t))
	control.answer = func(ctx context.Context, script string) (string, error) {
		if strings.HasPrefix(script, "cat ") {
			return block("CERTIFICATE", ca.cert.Raw) + pkcs8(t, ca.key), nil
		}
		if answer == nil {
			return "", nil
		}
		return answer(ctx, script)
	}
	exp := parse(t, strings.Replace(smallExperiment, "from: rotation", "mint: 40s", 1), "")
	r := &run{exp: exp, id: runID, fault: &csrDenied{}, rec: observe.NewRecorder(nil), stopAlive: func() {}}
	r.target, _ = fakeTarget(control, target, binding(rotationRole, allNodes))
	r.target.Spec = exp.Spec.Fault
	r.target.Emit = r.rec.Emit
	r.nodes = map[string]Node{}
	for _, n := range slices.Concat(r.target.Nodes, r.target.ControlNodes) {
		r.nodes[n.Name] = n
	}
	var err error
	if r.journal, err = CreateJournal(filepath.Join(t.TempDir(), "journal.jsonl"), "c1", runID, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.stageSpares(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func prepareAndInject(t *testing.T, r *run) {
	t.Helper()
	if err := r.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer r.stopAlive()
	if err := r.inject(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Whenever the runner dies, what is on disk takes back all that was changed so
// far, and the nodes know it too.
func TestCrashPoints(t *testing.T) {
	var file string
	var control, target *fakeNode
	kinds := func() map[string]int {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		records, err := ReadJournal(f)
		if err != nil {
			t.Fatal(err)
		}
		n := map[string]int{}
		for _, r := range records {
			n[r.Kind]++
		}
		return n
	}
	var mu sync.Mutex // nodes are armed at once
	var points []string
	look := func(where string) func(context.Context, string) (string, error) {
		return func(ctx context.Context, script string) (string, error) {
			if file == "" { // staging
				return now(ctx, script)
			}
			mu.Lock()
			defer mu.Unlock()
			k := kinds()
			switch {
			case strings.Contains(script, "systemctl enable"):
				points = append(points, "arm "+where)
			case strings.Contains(script, "patch clusterrolebinding"):
				points = append(points, "break "+where)
			case strings.Contains(script, "systemctl stop kubelet"):
				points = append(points, "install "+where)
			}
			if k["clean"] != 3 || k["undo"] != 5 || k["repair"] != 4 {
				t.Errorf("after %q: on disk are %v", points, k)
			}
			return now(ctx, script)
		}
	}
	control, target = &fakeNode{answer: look("control plane")}, &fakeNode{answer: look("target")}
	r := fakeRun(t, control, target)
	file = r.journal.f.Name()
	// Staging makes folders, and its records come first.
	if k := kinds(); k["clean"] != 3 || k["undo"] != 0 {
		t.Errorf("after staging: %v", k)
	}
	prepareAndInject(t, r)
	slices.Sort(points[:3]) // which node is armed first does not matter
	if want := []string{"arm control plane", "arm target", "arm target", "break control plane", "install target", "install target"}; !slices.Equal(points, want) {
		t.Errorf("points %q, want %q", points, want)
	}
	// Each node's timer holds that node's steps, undo before repair.
	for _, script := range target.scripts {
		if !strings.Contains(script, "systemctl enable") {
			continue
		}
		stop, install, start := strings.Index(script, "systemctl stop kubelet"), strings.Index(script, "spare.pem"), strings.Index(script, "systemctl start kubelet")
		if stop < 0 || install < stop || start < install || strings.Contains(script, "clusterrolebinding") {
			t.Errorf("timer of a target:\n%s", script)
		}
	}
}

// A fault whose preparation fails leaves nothing to undo.
func TestPrepareRefused(t *testing.T) {
	control, target := &fakeNode{answer: now}, &fakeNode{answer: now}
	r := fakeRun(t, control, target)
	before := len(control.scripts) + len(target.scripts)
	r.target.Client, _ = kubefake.New(&corev1.Namespace{})
	if err := r.prepare(t.Context()); err == nil {
		t.Fatal("no error")
	}
	if after := len(control.scripts) + len(target.scripts); after != before || len(r.journal.Steps("undo")) > 0 {
		t.Errorf("%d scripts ran, undo steps %v", after-before, r.journal.Steps("undo"))
	}
}
