package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	coordv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// state is that of the one process of a file node, "none" where there is none.
func (n *shellNode) state() string {
	if !n.exists("proc/4711/stat") {
		return "none"
	}
	return strings.Fields(n.read("proc/4711/stat"))[2]
}

// What becomes of a process that is taken away, what the witness sees of it, and that
// it comes back, as often as it is taken back.
func TestProcessesThatAreTakenAway(t *testing.T) {
	for name, tc := range map[string]struct {
		takes         string // the command
		state, undone string
		told          []string
		released      string
	}{
		"kubelet-stopped":   {"systemctl stop kubelet", "none", "none", []string{"Injected the kubelet is stopped", "KubeletStopped stopped"}, ""},
		"kubelet-frozen":    {"kill -STOP 4711", "T", "none", []string{"Injected the kubelet is frozen", "KubeletStopped frozen"}, "S"},
		"kubelet-killed":    {"kill -KILL 4711", "S", "none", []string{"Injected the kubelet is killed", "KubeletStopped killed"}, ""},
		"containerd-frozen": {"kill -STOP 4711", "T", "S", []string{"Injected containerd is frozen"}, "S"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newFileNode(t)
			n.stub("crictl", `grep -q ' S ' $HOME/proc/4711/stat`)
			n.stub("timeout", `[ $1 != -k ] || shift 2
shift
"$@"`)
			target, events, fault := breaking(n, nil, name, "")
			look := func(when string, want bool) {
				t.Helper()
				if ev, err := fault.Witness(t.Context(), target); err != nil || ev.InPlace != want {
					t.Errorf("%s: %+v, error %v", when, ev, err)
				}
			}
			look("before", false)
			if err := fault.Inject(t.Context(), target); err != nil {
				t.Fatal(err)
			}
			if got := n.state(); got != tc.state || n.exists("killed") != (name == "kubelet-killed") {
				t.Errorf("its state is %s, want %s; killed %v", got, tc.state, n.exists("killed"))
			}
			look("injected", true)
			var got []string
			for _, e := range *events {
				got = append(got, strings.TrimSpace(e.Type+" "+e.Detail["what"]+e.Detail["how"]))
				if !e.Stamp.Equal((*events)[0].Stamp) || e.Stamp.IsZero() || (e.Object == "node c1-worker2") != (e.Type == timeline.TypeKubeletStopped) {
					t.Errorf("told %+v", e)
				}
			}
			if !slices.Equal(got, tc.told) {
				t.Errorf("told %q, want %q", got, tc.told)
			}
			if k := kinds()[name]; k.CanRelease != (tc.released != "") {
				t.Errorf("release %v", k.CanRelease)
			} else if k.CanRelease {
				at, err := fault.(Releaser).Release(t.Context(), target)
				if err != nil || at.Before((*events)[0].Stamp) || n.state() != tc.released || n.read("pid") != "4711\n" {
					t.Errorf("released at %s it is in state %s, error %v", at, n.state(), err)
				}
				look("released", false)
				n.must(fault.Inject(t.Context(), target))
			}
			for range 2 {
				for _, s := range fault.Undo(target) {
					if !strings.HasPrefix(s.Script, inStage(runID, "")) || s.On != "c1-worker2" {
						t.Errorf("%s, on %s: would do something after the clean-up", s.Desc, s.On)
					}
					n.run(s.Script)
				}
				if got := n.state(); got != tc.undone {
					t.Errorf("undone it is in state %s, want %s", got, tc.undone)
				}
			}
			look("undone", name == "kubelet-stopped" || name == "kubelet-killed") // stopped it stays until the repair
			// A process that is not there cannot be taken away, and one that cannot be must
			// not be told of.
			n.run("systemctl stop kubelet")
			*events = nil
			if err := fault.Inject(t.Context(), target); (err == nil) != (name == "kubelet-stopped") || (err == nil) != (len(*events) > 0) {
				t.Errorf("no process: error %v, told %q", err, told(*events))
			}
			n.run("systemctl start kubelet")
			n.fails(tc.takes)
			*events = nil
			if err := fault.Inject(t.Context(), target); err == nil || len(*events) > 0 {
				t.Errorf("%s fails: error %v, told %q", tc.takes, err, told(*events))
			}
			// To be unable to look is not to see nothing.
			unit, _, _ := strings.Cut(name, "-")
			n.fails("systemctl show " + unit + " -p MainPID --value")
			if ev, err := fault.Witness(t.Context(), target); err == nil && name != "kubelet-killed" {
				t.Errorf("nobody can say which process it is, and yet it saw %+v", ev)
			}
		})
	}
}

// renewedAt is the Lease of a node.
func renewedAt(node string, at time.Time) *coordv1.Lease {
	l := renewedLater(node)
	*l.Spec.RenewTime = metav1.NewMicroTime(at)
	return l
}

// A kubelet is silent when it has not renewed its Lease for longer than one that lives
// may take, and one that is just started again: 10.9 s and 5 s with a lease of 40 s.
func TestWitnessOfSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		now := time.Now()
		const long = 15900 * time.Millisecond
		down := func(how string) *kubeletDown { return &kubeletDown{how: how, since: now.Add(-time.Minute)} }
		for name, tc := range map[string]struct {
			fault           *kubeletDown
			state           string
			one, other      time.Duration // since the renewal
			offset          time.Duration
			inPlace, biting bool
			seen            string
		}{
			"nobody has stopped it":    {&kubeletDown{how: "stopped"}, "none", time.Hour, time.Hour, 0, true, false, ""},
			"it runs":                  {&kubeletDown{how: "stopped"}, "S", time.Hour, time.Hour, 0, false, false, ""},
			"nobody has frozen it":     {&kubeletDown{how: "frozen"}, "T", time.Hour, time.Hour, 0, true, false, ""},
			"nobody has killed it":     {&kubeletDown{how: "killed"}, "none", time.Hour, time.Hour, 0, false, false, ""},
			"stopped":                  {down("stopped"), "none", long + 1000, long + 1000, 0, true, true, "c1-worker2: no kubelet runs; c1-worker3: no kubelet runs; c1-worker2: the Lease was renewed 15.9 s ago; c1-worker3: the Lease"},
			"it has only just renewed": {down("stopped"), "none", long, long + 1000, 0, true, false, ""},
			"the other has":            {down("stopped"), "none", long + 1000, long, 0, true, false, ""},
			"the nodes' clock is fast": {down("stopped"), "none", long + 1000, long + 1000, -time.Millisecond, true, false, ""},
			"the nodes' clock is slow": {down("stopped"), "none", long, long, time.Millisecond, true, true, ""},
			"stopped, and it runs":     {down("stopped"), "S", time.Hour, time.Hour, 0, false, false, ""},
			"stopped, and is frozen":   {down("stopped"), "T", time.Hour, time.Hour, 0, false, false, ""},
			"frozen":                   {down("frozen"), "T", time.Hour, time.Hour, 0, true, true, "c1-worker2: the kubelet is frozen; "},
			"frozen, and it runs":      {down("frozen"), "R", time.Hour, time.Hour, 0, false, false, ""},
			"frozen, and it is gone":   {down("frozen"), "none", time.Hour, time.Hour, 0, false, false, ""},
			"killed, and back":         {down("killed"), "S", time.Second, time.Second, 0, true, false, "c1-worker2: the Lease was renewed 1.0 s ago"},
			"killed, and not back":     {down("killed"), "none", long + 1000, long + 1000, 0, true, true, ""},
		} {
			worker := &fakeNode{answer: func(context.Context, string) (string, error) { return tc.state + "\n", nil }}
			target, events := fakeTarget(&fakeNode{}, worker, renewedAt("c1-worker2", now.Add(-tc.one)), renewedAt("c1-worker3", now.Add(-tc.other)))
			target.Timing, target.Offset = judge.Timing{D: 40 * time.Second}, tc.offset
			ev, err := tc.fault.Witness(t.Context(), target)
			if err != nil || ev.InPlace != tc.inPlace || ev.Biting != tc.biting || !strings.HasPrefix(ev.Seen, tc.seen) || len(*events) > 0 {
				t.Errorf("%s: %+v, error %v; want in place %v, biting %v, seen %s", name, ev, err, tc.inPlace, tc.biting, tc.seen)
			}
		}
		gone := errors.New("no such container")
		never := renewedLater("c1-worker2")
		never.Spec.RenewTime = nil
		for name, tc := range map[string]struct {
			objects []runtime.Object
			err     error
		}{"the node": {[]runtime.Object{renewedLater("c1-worker2"), renewedLater("c1-worker3")}, gone}, "the Lease": {nil, nil}, "a renewal": {[]runtime.Object{never, renewedLater("c1-worker3")}, nil}} {
			worker := &fakeNode{answer: func(context.Context, string) (string, error) { return "none\n", tc.err }}
			target, _ := fakeTarget(&fakeNode{}, worker, tc.objects...)
			if ev, err := down("stopped").Witness(t.Context(), target); err == nil || tc.err != nil && !errors.Is(err, gone) {
				t.Errorf("%s cannot be looked at, and yet it saw %+v", name, ev)
			}
		}
	})
}

// containerd is frozen when it is stopped and answers nobody.
func TestWitnessOfContainerd(t *testing.T) {
	frozen := &containerdFrozen{since: time.Unix(1, 0)}
	for name, tc := range map[string]struct {
		fault           *containerdFrozen
		one, other      string
		inPlace, biting bool
	}{
		"before":                     {&containerdFrozen{}, "S answers", "S answers", false, false},
		"frozen before":              {&containerdFrozen{}, "T does not answer", "T does not answer", true, false},
		"frozen":                     {frozen, "T does not answer", "T does not answer", true, true},
		"frozen, and yet it answers": {frozen, "T answers", "T does not answer", true, false},
		"one goes on":                {frozen, "T does not answer", "S answers", false, false},
		"it runs and does not":       {frozen, "S does not answer", "S does not answer", false, false},
	} {
		target, _ := fakeTarget(&fakeNode{}, nil)
		target.Nodes = []Node{{"c1-worker2", answers("crictl", tc.one+"\n")}, {"c1-worker3", answers("crictl", tc.other+"\n")}}
		want := Evidence{tc.inPlace, tc.biting, "c1-worker2: containerd in state " + tc.one + "; c1-worker3: containerd in state " + tc.other}
		if ev, err := tc.fault.Witness(t.Context(), target); err != nil || ev != want {
			t.Errorf("%s: %+v, error %v; want %+v", name, ev, err, want)
		}
	}
}

// A pausedNode is one that an engine can pause; what is asked of it while it is paused fails.
type pausedNode struct {
	fakeNode
	paused      bool
	gone, stuck bool
	down        error // why the engine cannot be asked
	unpaused    int
}

func (n *pausedNode) Paused(context.Context) (bool, error) {
	if n.gone {
		return false, fmt.Errorf("node: %w", cluster.ErrNotFound)
	}
	return n.paused, n.down
}

func (n *pausedNode) Pause(context.Context) error {
	if n.down != nil || n.paused {
		return cmp.Or(n.down, errors.New("it is paused already"))
	}
	n.paused = true
	return nil
}

func (n *pausedNode) Unpause(context.Context) error {
	if n.stuck || !n.paused {
		return errors.New("it cannot be let go on")
	}
	n.unpaused++
	n.paused = false
	return nil
}

// A node that is paused is let go on by the engine, once; one that is gone or goes on
// needs nothing, and an engine that cannot be asked is neither.
func TestNodePaused(t *testing.T) {
	one, other := &pausedNode{}, &pausedNode{}
	states := func(a, b bool) { one.paused, other.paused = a, b }
	are := func(when string, a, b bool) {
		t.Helper()
		if one.paused != a || other.paused != b {
			t.Errorf("%s: paused %v and %v", when, one.paused, other.paused)
		}
	}
	about := func(renewed, renewedToo *coordv1.Lease) (*Target, *[]timeline.Event) {
		target, events := fakeTarget(&fakeNode{}, &fakeNode{}, renewed, renewedToo)
		target.Nodes = []Node{{"c1-worker2", one}, {"c1-worker3", other}}
		target.Offset, target.Timing = time.Hour, judge.Timing{D: 40 * time.Second}
		return target, events
	}
	long := time.Now().Add(-time.Hour)
	target, events := about(renewedAt("c1-worker2", long), renewedAt("c1-worker3", long))
	f := &nodePaused{}
	look := func(when string, inPlace, biting bool) {
		t.Helper()
		if ev, err := f.Witness(t.Context(), target); err != nil || ev.InPlace != inPlace || ev.Biting != biting {
			t.Errorf("%s: %+v, error %v", when, ev, err)
		}
	}
	look("before", false, false)
	states(true, true)
	look("paused before", true, false)
	states(false, false)
	before := time.Now()
	if err := f.Inject(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	are("injected", true, true)
	look("injected", true, true)
	var got []string
	for _, e := range *events {
		got = append(got, strings.Join(strings.Fields(fmt.Sprint(e.Type, " ", e.Object, " ", e.Detail["what"], e.Detail["how"])), " "))
		if e.Stamp.Before(before.Add(time.Hour)) { // by the nodes' clock
			t.Errorf("told at %s", e.Stamp)
		}
	}
	if want := []string{"Injected the node is paused", "KubeletStopped node c1-worker2 paused with its node", "KubeletStopped node c1-worker3 paused with its node"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	states(true, false)
	look("one goes on", false, false)
	states(true, true)
	fresh, _ := about(renewedAt("c1-worker2", long), renewedLater("c1-worker3"))
	if ev, err := f.Witness(t.Context(), fresh); err != nil || !ev.InPlace || ev.Biting {
		t.Errorf("paused, and one renews: %+v, error %v", ev, err)
	}
	if at, err := f.Release(t.Context(), target); err != nil || at.Before(before.Add(time.Hour)) {
		t.Errorf("released at %s, error %v", at, err)
	}
	are("released", false, false)

	undo := f.Undo(target)
	want := []Step{{Desc: "unpausing the node", On: "c1-worker2", Do: "unpause"}, {Desc: "unpausing the node", On: "c1-worker3", Do: "unpause"}}
	if !slices.Equal(undo, want) {
		t.Errorf("steps %+v, want %+v", undo, want)
	}
	take := func(i int) (string, error) { return undo[i].take(t.Context(), target.Nodes[i]) }
	states(true, true)
	for again := range 2 {
		for i := range undo {
			out, err := take(i)
			if _, perr := observe.ParseEpoch(out); err != nil || (perr == nil) != (again == 0) {
				t.Errorf("undone %d times: %q, error %v", again+1, out, err)
			}
		}
		are("undone", false, false)
	}
	if one.unpaused != 2 || other.unpaused != 2 { // the release, and the undo
		t.Errorf("let go on %d and %d times", one.unpaused, other.unpaused)
	}
	one.gone, other.paused, other.stuck = true, true, true
	if out, err := take(0); out != "" || err != nil {
		t.Errorf("a container that is gone: %q, error %v", out, err)
	}
	if _, err := take(1); err == nil {
		t.Error("it cannot be let go on, and no error")
	}
	if _, err := f.Release(t.Context(), target); err == nil {
		t.Error("it cannot be released, and no error")
	}
	if !paused(t.Context(), target.Nodes[1]) || paused(t.Context(), target.Nodes[0]) {
		t.Error("which node is paused is not known")
	}
	one.gone, other.stuck = false, false
	one.down, other.down = errors.New("the engine is away"), errors.New("the engine is away")
	*events = nil
	_, undoErr := take(1)
	_, lookErr := f.Witness(t.Context(), target)
	for what, err := range map[string]error{"undo": undoErr, "inject": (&nodePaused{}).Inject(t.Context(), target), "witness": lookErr} {
		if err == nil {
			t.Errorf("%s: the engine cannot be asked, and no error", what)
		}
	}
	if len(*events) > 0 || paused(t.Context(), target.Nodes[1]) {
		t.Errorf("the engine cannot be asked: told %q, paused", told(*events))
	}
	// Of a node that no engine knows nothing can be done from outside.
	for name, do := range verbs {
		if _, err := do(t.Context(), Node{"x", &fakeNode{}}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A kubelet's configuration has one setting of rotation, and all else stays.
func TestRotationIsSwitchedOff(t *testing.T) {
	for before, want := range map[string]string{
		"a: 1\nrotateCertificates: true\nb: 2\n": "a: 1\n\nb: 2\nrotateCertificates: false\n",
		"a: 1\n":                                 "a: 1\nrotateCertificates: false\n",
		"rotateCertificates: true\n":             "\nrotateCertificates: false\n",
		"x:\n  rotateCertificates: true\nrotateCertificates: false\n": "x:\n  rotateCertificates: true\n\nrotateCertificates: false\n",
		"a: 1": "a: 1\nrotateCertificates: false\n",
	} {
		n := newFileNode(t)
		n.write("config.yaml", before)
		target, events, fault := breaking(n, nil, "rotation-off", "")
		for range 2 { // what is kept is the first
			if err := fault.Inject(t.Context(), target); err != nil {
				t.Fatal(err)
			}
			if got := n.read("config.yaml"); got != want {
				t.Errorf("%q became %q, want %q", before, got, want)
			}
		}
		if info, err := os.Stat(n.path("config.yaml")); err != nil || info.Mode() != 0o660 {
			t.Errorf("mode %v, error %v", info.Mode(), err)
		}
		if e := *events; len(e) != 4 || e[0].Type != timeline.TypeInjected || e[0].Detail["what"] != "the kubelet runs with rotateCertificates false" || e[1].Type != timeline.TypeKubeletStarted || e[1].Object != "node c1-worker2" || e[1].Stamp.Before(e[0].Stamp) {
			t.Errorf("told %q", told(e))
		}
		n.run(fault.Undo(target)[0].Script)
		if got := n.read("config.yaml"); got != before {
			t.Errorf("%q came back as %q", before, got)
		}
	}
}

// A minted certificate goes in by stdin alone, while the kubelet is stopped.
func TestRotationIsSwitchedOffWithAMintedCertificate(t *testing.T) {
	worker := answers("echo $at $started", "1001.500000000 1002.500000000\n")
	target, events := fakeTarget(&fakeNode{}, worker)
	target.ca, target.Spec.Certificate = testAuthority(t, newKey(t)), Certificate{Mint: seconds(40)[0]}
	if err := (&rotationOff{}).Inject(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	if got, want := told(*events), []string{"run Injected 41.5 the kubelet runs with rotateCertificates false", "run Installed certificate c1-worker2 42.5", "run KubeletStarted node c1-worker2 42.5", "run Installed certificate c1-worker3 42.5", "run KubeletStarted node c1-worker3 42.5"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	for i, script := range worker.scripts {
		parses(t, "script", script)
		if !strings.HasPrefix(script, inStage(runID, "set -e\n")) || !strings.Contains(worker.stdin[i], "PRIVATE KEY") || strings.Contains(script, "PRIVATE KEY") ||
			!strings.Contains(script, "(umask 077; cat > short.pem)\n") || strings.Index(script, "cat >") < strings.Index(script, "systemctl stop kubelet") {
			t.Errorf("script %s", script)
		}
	}
	for _, answer := range []string{"", "1001.500000000\n", "x y\n"} {
		target, events := fakeTarget(&fakeNode{}, answers("echo $at", answer))
		if err := (&rotationOff{}).Inject(t.Context(), target); err == nil || len(*events) > 0 {
			t.Errorf("answer %q: error %v, told %q", answer, err, told(*events))
		}
	}
}

// Rotation is off when the kubelet itself says so, and it bites when one that rotates
// would have asked by now and this one has not.
func TestWitnessOfRotationOff(t *testing.T) {
	ca := testAuthority(t, newKey(t))
	now := time.Now()
	certificate := func(from, to time.Duration) string {
		text, err := ca.kubeletPEM("c1-worker2", now.Add(from), now.Add(to))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const off, on = `{"kubeletconfig":{"rotateCertificates":false}}`, `{"kubeletconfig":{"rotateCertificates":true}}`
	early, late := certificate(-time.Hour, time.Hour), certificate(-10*time.Hour, time.Hour)
	since := map[string]time.Time{"c1-worker2": now.Add(-time.Hour), "c1-worker3": now.Add(-time.Minute)}
	asked := func(node string, at time.Duration) certv1.CertificateSigningRequest {
		return *request("csr-x", node, now.Add(at))
	}
	for name, tc := range map[string]struct {
		since           map[string]time.Time
		file, pem, page string
		csrs            []certv1.CertificateSigningRequest
		inPlace, biting bool
		err             string
	}{
		"before":                         {nil, "on", late, "", nil, false, false, ""},
		"off before":                     {nil, "off", late, "", nil, true, false, ""},
		"past its deadline":              {since, "off", late, off, nil, true, true, ""},
		"before its deadline":            {since, "off", early, off, nil, true, false, ""},
		"no certificate":                 {since, "off", "", off, nil, true, false, ""},
		"the kubelet rotates":            {since, "off", late, on, nil, true, false, ""},
		"by default it does not":         {since, "off", late, `{"kubeletconfig":{}}`, nil, true, true, ""},
		"it is only just started":        {map[string]time.Time{"c1-worker2": now.Add(time.Hour), "c1-worker3": now.Add(time.Hour)}, "off", late, off, nil, true, false, ""},
		"the nodes' clock is slow":       {since, "off", late, off, nil, true, false, ""},
		"the file is back":               {since, "on", late, off, nil, false, true, ""},
		"all have asked":                 {since, "off", late, off, []certv1.CertificateSigningRequest{asked("c1-worker2", -time.Second), asked("c1-worker3", -time.Second)}, true, false, ""},
		"asked before the injection":     {since, "off", late, off, []certv1.CertificateSigningRequest{asked("c1-worker2", -2*time.Hour), asked("c1-worker3", -2*time.Hour)}, true, true, ""},
		"a node that was left alone did": {since, "off", late, off, []certv1.CertificateSigningRequest{asked("c1-worker", -time.Second)}, true, true, ""},
		"the kubelet cannot be asked":    {since, "off", late, "", nil, false, false, "asking the kubelet of c1-worker2 for its configuration: "},
		"the kubelet babbles":            {since, "off", late, "{", nil, false, false, "asking the kubelet of c1-worker2 for its configuration: "},
	} {
		looks := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch r.URL.Path {
			case "/api/v1/nodes/c1-worker2/proxy/configz", "/api/v1/nodes/c1-worker3/proxy/configz":
				if looks++; tc.page == "" {
					http.Error(w, "bad gateway", http.StatusBadGateway)
				}
				fmt.Fprint(w, tc.page)
			case "/apis/certificates.k8s.io/v1/certificatesigningrequests":
				list := certv1.CertificateSigningRequestList{TypeMeta: metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequestList"}, Items: tc.csrs}
				_ = json.NewEncoder(w).Encode(list)
			default:
				t.Errorf("%s: asked for %s", name, r.URL.Path)
			}
		}))
		client, err := cluster.NewClient(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		target, events := fakeTarget(&fakeNode{}, answers("rotateCertificates", tc.file+"\n"+tc.pem))
		target.Client = client
		if name == "the nodes' clock is slow" {
			target.Offset = -time.Hour
		}
		f := &rotationOff{since: tc.since, off: map[string]bool{}}
		for again := range 2 {
			ev, err := f.Witness(t.Context(), target)
			if tc.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.err) {
					t.Errorf("%s: %+v, error %v", name, ev, err)
				}
				continue
			}
			if err != nil || ev.InPlace != tc.inPlace || ev.Biting != tc.biting || len(*events) > 0 {
				t.Errorf("%s, look %d: %+v, error %v; want in place %v, biting %v", name, again+1, ev, err, tc.inPlace, tc.biting)
			}
		}
		if want := map[bool]int{true: 2}[tc.page == off || tc.page == `{"kubeletconfig":{}}`]; want > 0 && looks != want { // it cannot change while it runs
			t.Errorf("%s: configz was read %d times", name, looks)
		}
		server.Close()
	}
	// As the shell reads the file.
	n := newFileNode(t)
	target, _, fault := breaking(n, nil, "rotation-off", "")
	n.write("pki/kubelet-client-2026-01-02-03-04-05.pem", late)
	for _, want := range []bool{false, true} {
		ev, err := (&rotationOff{}).Witness(t.Context(), target)
		if err != nil || ev.InPlace != want || !strings.HasSuffix(ev.Seen, "past its deadline true") {
			t.Errorf("%+v, want in place %v, error %v", ev, want, err)
		}
		n.must(fault.Inject(t.Context(), target))
	}
}

// A node that was paused wakes up with an old sign of life, and so does its runner: a
// timer looks twice before it fires.
func TestDeadManLooksTwice(t *testing.T) {
	const at = "flatline/" + runID + "/"
	for name, tc := range map[string]struct {
		sleep string // what happens before the second look
		fires bool
	}{
		"the runner is heard of": {"echo 1000000 > $HOME/" + at + "alive", false},
		"the runner is gone":     {"", true},
		"all is cleaned up":      {"rm -r $HOME/" + at, false},
	} {
		n := armed(t, Step{On: "n", Script: "touch $HOME/ran"})
		n.stub("sleep", `[ "$*" = 15 ] && touch $HOME/looked && { `+tc.sleep+`
:; }`)
		look := func() error { return deadMan(n) }
		n.calls()
		n.must(look())
		if n.exists("looked") {
			t.Errorf("%s: a second look at a runner that is well", name)
		}
		n.silentFor(deadManAfter)
		_ = look()
		if !n.exists("looked") || n.exists("ran") != tc.fires || n.exists(at+"fired") != tc.fires {
			t.Errorf("%s: looked twice %v, fired %v, took its step %v", name, n.exists("looked"), n.exists(at+"fired"), n.exists("ran"))
		}
		if !tc.fires {
			continue
		}
		// What has fired does not wait again, and lets alone who heals.
		for _, heals := range []bool{false, true} {
			for _, file := range []string{"looked", "ran", at + "done-0"} {
				_ = os.Remove(n.path(file))
			}
			n.silentFor(map[bool]time.Duration{false: time.Hour}[heals])
			n.must(look())
			if n.exists("looked") || n.exists("ran") == heals {
				t.Errorf("healed %v: looked twice %v, took its step %v", heals, n.exists("looked"), n.exists("ran"))
			}
		}
	}
}

// What a type of fault does to the chain and how it is made stand in two tables.
func TestEveryTypeOfFaultIsMadeAndJudged(t *testing.T) {
	made := append(slices.Sorted(maps.Keys(makers())), "none")
	slices.Sort(made)
	if judged := judge.Faults(); !slices.Equal(made, judged) {
		t.Errorf("types that are made: %v, types that are judged: %v", made, judged)
	}
}
