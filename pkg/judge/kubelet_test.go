package judge

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// kubeletSeen is a look at the kubelet of w1.
func kubeletSeen(at float64, pid, restarts, state string, kv ...string) timeline.Event {
	return seen("node", at, timeline.TypeProcess, "kubelet w1", append([]string{"pid=" + pid, "restarts=" + restarts, "state=" + state}, kv...)...)
}

// onDisk is a certificate of w1 that ends so many seconds after the injection.
func onDisk(at float64, cred, file string, left float64) timeline.Event {
	return with(certificate(at, "w1", file, start.Add(sec(faultAt+left))), "cred="+cred, "notBefore="+start.Add(-time.Hour).Format(time.RFC3339))
}

// ended is a kubelet that has ended by itself.
func ended(at float64, restarts, why string) timeline.Event {
	return kubeletSeen(at, "0", restarts, "activating", "exit=1", "why="+why)
}

const (
	short    = "/var/lib/kubelet/pki/flatline-short.pem"
	datedOne = "/var/lib/kubelet/pki/kubelet-client-2026-01-02-03-04-05.pem"
	datedTwo = "/var/lib/kubelet/pki/kubelet-client-2026-01-02-04-04-05.pem"
)

func TestStatesOfAKubelet(t *testing.T) {
	running := kubeletSeen(90, "7", "0", "active")
	own := onDisk(1, "own", datedOne, 1000)
	for name, tc := range map[string]struct {
		events []timeline.Event
		want   string
	}{
		"it runs":                              {[]timeline.Event{running, own}, "running -10..100+"},
		"its certificate ends":                 {[]timeline.Event{running, onDisk(1, "own", datedOne, 40)}, "running -10..40, expired 40..100+"},
		"it rotates before the end":            {[]timeline.Event{running, onDisk(1, "own", datedOne, 40), onDisk(130, "new", datedTwo, 1000)}, "running -10..100+"},
		"it rotates after the end":             {[]timeline.Event{running, onDisk(1, "own", datedOne, 40), onDisk(150, "new", datedTwo, 1000)}, "running -10..40, expired 40..50, running 50..100+"},
		"another file is not what it uses":     {[]timeline.Event{running, onDisk(1, "own", datedOne, 40), onDisk(120, "other", "/var/lib/kubelet/pki/flatline-other.pem", 1000)}, "running -10..40, expired 40..100+"},
		"a file that is cut is not either":     {[]timeline.Event{running, onDisk(1, "own", datedOne, 40), seen("node", 120, timeline.TypeCertificate, "certificate w1", "file="+datedOne, "unreadable=no PEM block")}, "running -10..40, expired 40..100+"},
		"it starts with another":               {[]timeline.Event{running, own, onDisk(110, "short", short, 40), kubeletSeen(110.5, "8", "0", "active")}, "running -10..40, expired 40..100+"},
		"it starts with none":                  {[]timeline.Event{running, own, seen("node", 110, timeline.TypeCertificate, "certificate w1", "file="+short, "unreadable=no PEM block"), kubeletSeen(110.5, "8", "0", "active")}, "running -10..100+"},
		"it starts with none that is over":     {[]timeline.Event{running, onDisk(1, "own", datedOne, 40), kubeletSeen(150, "0", "0", "inactive"), kubeletSeen(151, "8", "0", "active"), onDisk(151.2, "new", datedTwo, 1000)}, "running -10..40, expired 40..50, stopped 50..51, running 51..100+"},
		"it is frozen and goes on":             {[]timeline.Event{running, own, kubeletSeen(110, "7", "0", "frozen"), kubeletSeen(150, "7", "0", "active")}, "running -10..10, frozen 10..50, running 50..100+"},
		"it is stopped":                        {[]timeline.Event{running, own, kubeletSeen(110, "0", "0", "inactive")}, "running -10..10, stopped 10..100+"},
		"it ends once":                         {[]timeline.Event{running, own, ended(110, "0", ""), kubeletSeen(111, "8", "1", "active")}, "running -10..10, exited 10..11, running 11..100+"},
		"it ends once and is seen again late":  {[]timeline.Event{running, own, kubeletSeen(111, "8", "1", "active")}, "running -10..11, exited 11..11, running 11..100+"},
		"it ends again and again":              {[]timeline.Event{running, own, ended(110, "0", "a"), ended(111.3, "1", "b"), kubeletSeen(112, "9", "2", "active"), ended(112.2, "2", "c")}, "running -10..10, crash-looping 10..100+"},
		"it is seen when it is about to start": {[]timeline.Event{running, own, kubeletSeen(110, "0", "0", "activating"), kubeletSeen(110.1, "8", "0", "active")}, "running -10..10, stopped 10..10.1, running 10.1..100+"},
		"and after an end":                     {[]timeline.Event{running, own, ended(110, "0", ""), kubeletSeen(111, "0", "1", "activating"), kubeletSeen(111.1, "8", "1", "active")}, "running -10..10, exited 10..11.1, running 11.1..100+"},
		"it ends rarely":                       {[]timeline.Event{running, own, ended(110, "0", ""), kubeletSeen(111, "8", "1", "active"), ended(140, "1", "")}, "running -10..10, exited 10..11, running 11..40, exited 40..100+"},
		"a loop comes to an end":               {[]timeline.Event{running, own, ended(110, "0", ""), ended(111, "1", ""), kubeletSeen(112, "8", "2", "active")}, "running -10..10, crash-looping 10..12, running 12..100+"},
	} {
		t.Run(name, func(t *testing.T) {
			same(t, "kubelet", told(traced(t, tc.events...).node(t, "w1").Kubelet.Spans), tc.want)
		})
	}
	spans := traced(t, running, own, ended(110, "0", "first"), ended(111, "1", "last")).node(t, "w1").Kubelet.Spans
	if note := spans[len(spans)-1].Note; note != "last" {
		t.Errorf("note %q", note)
	}
	spans = traced(t, running, own, kubeletSeen(110, "0", "0", "activating", "exit=signal-9")).node(t, "w1").Kubelet.Spans
	if note := spans[len(spans)-1].Note; note != "ended by signal 9" {
		t.Errorf("note %q", note)
	}
}

// A kubelet that somebody has stopped and is starting again has not ended by itself,
// whenever one looks.
func TestAStartIsNoExit(t *testing.T) {
	for name, tc := range map[string]struct {
		events []timeline.Event
		exited bool
	}{
		"about to start":        {[]timeline.Event{kubeletSeen(10, "0", "0", "activating")}, false},
		"stopped":               {[]timeline.Event{kubeletSeen(10, "0", "0", "inactive", "exit=0")}, false},
		"being stopped":         {[]timeline.Event{kubeletSeen(10, "0", "0", "deactivating")}, false},
		"ended":                 {[]timeline.Event{ended(10, "0", "")}, true},
		"ended for good":        {[]timeline.Event{kubeletSeen(10, "0", "0", "failed", "exit=1")}, true},
		"about to start, again": {[]timeline.Event{kubeletSeen(10, "0", "1", "activating")}, true},
		"there again":           {[]timeline.Event{kubeletSeen(10, "8", "1", "active")}, true},
	} {
		f := foldOf(t, testConfig("v1.37.2"), `{"type":"none"}`, append([]timeline.Event{kubeletSeen(1, "7", "0", "active"), injected(5)}, tc.events...)...)
		if f.reached(KubeletExited, "w1") != tc.exited {
			t.Errorf("%s: exited %v", name, !tc.exited)
		}
	}
}

// What kubelets of 1.37.2 have written when they ended.
func TestLastWords(t *testing.T) {
	const (
		head    = `E1129 19:19:55.212243    1433 `
		noFile  = head + `run.go:72] "command failed" err="failed to run Kubelet: unable to load bootstrap kubeconfig: stat /etc/kubernetes/bootstrap-kubelet.conf: no such file or directory"`
		denied  = head + `bootstrap.go:242] "Unhandled Error" err="unable to read existing bootstrap client config from /etc/kubernetes/kubelet.conf: invalid configuration: [unable to read client-cert /p/kubelet-client-current.pem for default-auth due to open /p/kubelet-client-current.pem: permission denied, unable to read client-key /p/kubelet-client-current.pem for`
		cut     = head + `bootstrap.go:257] "Unhandled Error" err="unable to load TLS certificates from existing bootstrap client config read from /etc/kubernetes/kubelet.conf: data does not contain any valid RSA or ECDSA certificates" logger="UnhandledError"`
		inotify = head + `kubelet.go:1701] "Failed to start cAdvisor" err="inotify_init: too many open files"`
		healthy = head + `transport.go:123] "No valid client certificate is found and the server is responsive, exiting." lastCertificateAvailabilityTime="x"`
	)
	for name, tc := range map[string]struct{ said, want string }{
		"nothing":                           {"", ""},
		"the file that would be next":       {noFile, "failed to run Kubelet: unable to load bootstrap kubeconfig: stat /etc/kubernetes/bootstrap-kubelet.conf: no such file or directory"},
		"what it could not read":            {denied + "\n" + noFile, "unable to read client-cert /p/kubelet-client-current.pem: permission denied"},
		"what it could not make sense of":   {noFile + "\n" + cut + "\n" + noFile, "unable to load TLS certificates from existing bootstrap client config read from /etc/kubernetes/kubelet.conf: data does not contain any valid RSA or ECDSA certificates"},
		"a limit of the host is no such":    {noFile + "x\n" + inotify, "inotify_init: too many open files"},
		"a line without an error":           {healthy, `"No valid client certificate is found and the server is responsive, exiting." lastCertificateAvailabilityTime="x"`},
		"a line of somebody else, and long": {strings.Repeat("é", 200), strings.Repeat("é", 120) + "…"},
	} {
		if got := lastWords(tc.said); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tc.want)
		}
	}
}

// When a kubelet whose certificate has ended ends too (windows of 1.37.2).
func TestExitOfAKubelet(t *testing.T) {
	const (
		unasked, unstored = `{"type":"rotation-off","certificate":{"mint":"60s","rotate":"later"}}`, `{"type":"cert-readonly","trigger":"rotation","certificate":{"mint":"40s"}}`
		pending           = `{"type":"csr-denied","certificate":{"mint":"40s"}}`
	)
	runs, own := kubeletSeen(1, "7", "0", "active"), onDisk(0.5, "own", datedOne, -40)
	rotated := onDisk(10, "new", datedTwo, -35)
	post := func(at float64, code string) timeline.Event {
		return audit(at, "create", "certificatesigningrequests", "code="+code, "ip=10.0.0.2", "agent=kubelet", "user=system:node:w1", "signer=kubernetes.io/kube-apiserver-client-kubelet")
	}
	restart := kubeletSeen(20, "8", "0", "active")
	for name, tc := range map[string]struct {
		fault  string
		events []timeline.Event
		want   string // "" is never
	}{
		"it cannot even ask":                  {unasked, nil, ""},
		"it has rotated before":               {unasked, []timeline.Event{rotated}, "[290, 302]"},
		"it has, in another process":          {unasked, []timeline.Event{rotated, restart}, ""},
		"its request was answered with 401":   {unasked, []timeline.Event{post(30, "401")}, "[290, 302]"},
		"with 403, as another node":           {unasked, []timeline.Event{post(30, "403")}, "[290, 302]"},
		"with 500":                            {unasked, []timeline.Event{post(30, "500")}, ""},
		"in another process":                  {unasked, []timeline.Event{post(15, "401"), restart}, ""},
		"what the repair started is not it":   {unasked, []timeline.Event{rotated, seen("run", 300, timeline.TypeUndone, ""), kubeletSeen(301, "9", "0", "active")}, "[290, 302]"},
		"and does not make it responsive":     {unasked, []timeline.Event{seen("run", 300, timeline.TypeUndone, ""), kubeletSeen(301, "9", "0", "active"), onDisk(302, "newer", datedTwo, 1000)}, ""},
		"it asks after the end and is told":   {unstored, nil, "[290, 302]"},
		"it waits for an answer":              {pending, nil, "[902, 914]"},
		"it waited and had rotated":           {pending, []timeline.Event{rotated}, "[290, 302]"},
		"its request cannot be sent":          {`{"type":"cert-truncated","trigger":"rotation","certificate":{"from":"rotation"}}`, []timeline.Event{rotated}, ""},
		"it cannot start":                     {`{"type":"cert-unreadable","trigger":"restart"}`, nil, "[0, 5]"},
		"a request of another program is not": {unasked, []timeline.Event{with(post(30, "401"), "agent=kubectl")}, ""},
	} {
		f := foldOf(t, testConfig("v1.37.2"), tc.fault, append([]timeline.Event{runs, own, injected(5)}, tc.events...)...)
		if got := f.kubeletExited(Key{Name: KubeletExited, Node: "w1"}).String(); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A running kubelet uses what it has loaded, whatever lies on the disk.
func TestTheEndOfACertificateIsThatOfTheOneInUse(t *testing.T) {
	looked, own := kubeletSeen(1, "7", "0", "active"), onDisk(0.5, "own", datedOne, -60) // ends at 40
	for name, tc := range map[string]struct {
		events []timeline.Event
		at     float64
	}{
		"its own":                    {nil, 40},
		"another file":               {[]timeline.Event{onDisk(10, "foreign", "/var/lib/kubelet/pki/flatline-other.pem", 0)}, 40},
		"no file":                    {[]timeline.Event{seen("node", 10, timeline.TypeCertificate, "certificate w1", "file="+datedOne, "unreadable=no PEM block")}, 40},
		"another, and a start":       {[]timeline.Event{onDisk(10, "foreign", "/var/lib/kubelet/pki/flatline-other.pem", -30), kubeletSeen(11, "8", "0", "active")}, 70},
		"seen late, made before":     {[]timeline.Event{kubeletSeen(11, "8", "0", "active"), onDisk(10.9, "short", short, -30)}, 70},
		"seen late, made after":      {[]timeline.Event{kubeletSeen(11, "8", "0", "active"), onDisk(11.5, "short", short, -30)}, 40},
		"none, and a start":          {[]timeline.Event{seen("node", 10, timeline.TypeCertificate, "certificate w1", "file="+datedOne, "unreadable=no PEM block"), kubeletSeen(11, "8", "0", "active")}, -1},
		"rotated to":                 {[]timeline.Event{onDisk(10, "new", datedTwo, -30)}, 70},
		"put back":                   {[]timeline.Event{onDisk(10, "foreign", "/var/lib/kubelet/pki/flatline-other.pem", 0), onDisk(20, "own", datedOne, -60)}, 40},
		"frozen is no other start":   {[]timeline.Event{onDisk(10, "foreign", "/var/lib/kubelet/pki/flatline-other.pem", 0), kubeletSeen(11, "7", "0", "frozen"), kubeletSeen(12, "7", "0", "active")}, 40},
		"stopped is no start at all": {[]timeline.Event{onDisk(10, "foreign", "/var/lib/kubelet/pki/flatline-other.pem", 0), kubeletSeen(11, "0", "0", "inactive")}, 40},
	} {
		t.Run(name, func(t *testing.T) {
			f := foldOf(t, testConfig("v1.37.2"), `{"type":"none"}`, append(append([]timeline.Event{looked, own, injected(5)}, tc.events...), did(100, timeline.TypeWitness))...)
			f.at(t, CertificateExpired, "w1", "", tc.at, "node")
			if rotated := name == "rotated to"; f.reached(CertificateRotated, "w1") != rotated {
				t.Errorf("rotated: %v", !rotated)
			}
		})
	}
}

// A look may have fallen between the names of two files: the old name and the new
// certificate.
func TestALookIntoTheMiddleOfARotation(t *testing.T) {
	for name, file := range map[string]string{"the old name": "/var/lib/kubelet/pki/flatline-spare.pem", "no link at that moment": timeline.CurrentCertificate} {
		f := foldOf(t, testConfig("v1.37.2"), `{"type":"none"}`, kubeletSeen(1, "7", "0", "active"), onDisk(0.5, "own", datedOne, 1000), injected(5),
			kubeletSeen(20.2, "8", "0", "active"), onDisk(20, "new", file, 2000), onDisk(20.3, "new", datedTwo, 2000))
		f.at(t, CertificateRotated, "w1", "", 20.3, "node")
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

// A certificate that a kubelet was issued and has not stored is nobody's.
func TestOrphans(t *testing.T) {
	csr := func(at float64, typ, name, state, cred string) timeline.Event {
		return seen("watch", at, typ, "certificatesigningrequests "+name, "user=system:node:w1", "state="+state, "cred="+cred)
	}
	r := judged(t, small(t, testConfig("v1.37.2"), `{"spec":{"fault":{"type":"cert-readonly","trigger":"rotation"}}}`,
		kubeletSeen(1, "7", "0", "active"), onDisk(0.5, "own", datedOne, -60), csr(2, "listed", "before", "Issued", "own"), csr(3, "added", "earlier", "Issued", "x"), injected(5),
		csr(10, "added", "a", "Pending", ""), csr(10.2, "modified", "a", "Issued", "aa"), csr(12, "added", "b", "Pending", ""), csr(12.1, "modified", "b", "Issued", "bb"),
		csr(13, "added", "c", "Pending", ""), onDisk(14, "bb", datedTwo, 1000), csr(15, "deleted", "a", "Issued", "aa"),
		seen("watch", 16, "added", "certificatesigningrequests other", "user=system:node:w2", "state=Issued", "cred=w2"),
		did(20, timeline.TypeUndone), csr(21, "added", "d", "Issued", "dd"), phase(30, "collect")))
	if want := (Requests{Made: 3, Issued: 2, Stored: 1}); len(r.Kubelets) != 1 || r.Kubelets[0].Requests != want {
		t.Errorf("kubelets %+v, want %+v", r.Kubelets, want)
	}
}

// The picture does not take what was issued for what was stored.
func TestOrphansInATrace(t *testing.T) {
	csr := func(at float64, typ, name, state, cred string) timeline.Event {
		return seen("watch", at, typ, "certificatesigningrequests "+name, "user=system:node:w1", "state="+state, "cred="+cred)
	}
	tr := traced(t, kubeletSeen(90, "7", "0", "active"), onDisk(1, "own", datedOne, 1000),
		csr(110, "added", "a", "Pending", ""), csr(111, "modified", "a", "Issued", "aa"), csr(120, "added", "b", "Pending", ""), csr(121, "modified", "b", "Issued", "bb"), onDisk(122, "bb", datedTwo, 1000),
		csr(130, "added", "c", "Pending", ""), csr(131, "modified", "c", "Issued", "")) // a record of before certificates were told
	same(t, "requests", toldLanes(tr.node(t, "w1").Requests), "a: Pending 10..11, orphan 11..100+; b: Pending 20..21, Issued 21..100+; c: Pending 30..31, Issued 31..100+")
}

// A node that gives no sign of life was not watched since the last one.
func TestAGapOfASilentNode(t *testing.T) {
	r := judged(t, small(t, testConfig("v1.37.2"), `{}`, kubeletSeen(1, "7", "0", "active"), injected(5),
		seen("node", 40, timeline.TypeGap, "kubelet w1", "why=silent", "since=15.000000"), seen("node", 70, "Watching", "kubelet w1"),
		seen("node", 10, timeline.TypeGap, "kubelet w2", "why=silent", "since=15.000000"), phase(100, "collect")))
	to := 70.0
	want := []Gap{{Source: "kubelet w2", From: 0, Why: "silent"}, {Source: "kubelet w1", From: 25, To: &to, Why: "silent"}}
	if text := fmt.Sprint(asText(t, r.Gaps)); text != asText(t, want) {
		t.Errorf("gaps %s, want %s", text, asText(t, want))
	}
}

func asText(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Where the windows of faults of kubelets and their files count from.
func TestWindowsOfKubeletFaults(t *testing.T) {
	const (
		crash    = `{"type":"cert-unreadable","trigger":"restart"}`
		refuses  = `{"type":"cert-foreign-ca","trigger":"restart"}`
		unasked  = `{"type":"cert-unreadable","trigger":"rotation","certificate":{"mint":"60s","rotate":"later"}}`
		unstored = `{"type":"cert-readonly","trigger":"restart","certificate":{"mint":"40s"}}`
		frozen   = `{"type":"kubelet-frozen","release":{"after":"NoExecuteTainted"}}`
		stopped  = `{"type":"kubelet-frozen"}`
		notReady = `{"type":"containerd-frozen","release":{"after":"ReadyFalse"}}`
	)
	for name, tc := range map[string]struct {
		fault      string
		key        Key
		from, want string
	}{
		"it fell silent when it was stopped":      {crash, Key{LeaseStalled, "w1", ""}, KubeletStopped, "[-10.9, 0.5]"},
		"so when it is refused":                   {refuses, Key{LeaseStalled, "w1", ""}, KubeletStopped, "[-10.9, 0.5]"},
		"so when it is frozen":                    {frozen, Key{LeaseStalled, "w1", ""}, KubeletStopped, "[-10.9, 0.5]"},
		"else when its certificate ends":          {unasked, Key{LeaseStalled, "w1", ""}, CertificateExpired, "[-10.9, 0.05]"},
		"and not before":                          {unstored, Key{LeaseStalled, "w1", ""}, CertificateExpired, "[-10.9, 0.05]"},
		"it is refused from its start on":         {refuses, Key{FirstRefused401, "w1", ""}, KubeletStarted, "[0, 5]"},
		"whatever the code":                       {refuses, Key{FirstRefused403, "w1", ""}, KubeletStarted, "[0, 5]"},
		"else from the end on":                    {unasked, Key{FirstRefused401, "w1", ""}, CertificateExpired, "[0, 10.9]"},
		"it wants the next one, foretold":         {unasked, Key{CSRCreated, "w1", ""}, FaultInjected, "[27, 56]"},
		"its end, foretold":                       {unasked, Key{CertificateExpired, "w1", ""}, FaultInjected, "[45, 61]"},
		"one that is issued at once":              {unstored, Key{CSRApproved, "w1", ""}, CSRCreated, "[0, 2]"},
		"it renews when it goes on":               {frozen, Key{LeaseResumed, "w1", ""}, FaultReleased, "[0, 2]"},
		"and says that it is well":                {frozen, Key{ReadyTrue, "w1", ""}, FaultReleased, "[0, 22]"},
		"else when it is started":                 {stopped, Key{LeaseResumed, "w1", ""}, RepairDone, "[0, 6]"},
		"its words after the time-out":            {notReady, Key{ReadyFalse, "w1", ""}, FaultInjected, "[120, 131.4]"},
		"the taint of its words":                  {notReady, Key{NotReadyTainted, "w1", "NoSchedule"}, ReadyFalse, "[0, 1]"},
		"that evicts comes with the next pass":    {notReady, Key{NotReadyTainted, "w1", "NoExecute"}, ReadyFalse, "[0, 6.05]"},
		"it says that it is well again":           {notReady, Key{ReadyTrue, "w1", ""}, FaultReleased, "[0, 22]"},
		"words that nothing here calls for":       {stopped, Key{ReadyFalse, "w1", ""}, FaultInjected, ""},
		"a certificate that the repair has given": {crash, Key{CertificateRotated, "w1", ""}, RepairDone, "[0, 30]"},
	} {
		w := foldOf(t, testConfig("v1.37.2"), tc.fault, injected(5)).windowOf(tc.key).rounded()
		if w.after.Name != tc.from || w.String() != tc.want {
			t.Errorf("%s: %s after %s, want %s after %s", name, w, w.after.Name, tc.want, tc.from)
		}
	}
	for timeout, want := range map[string]string{"2m": "[120, 131.4]", "10s": "[25, 51.4]", "40s": "[40, 51.4]"} {
		cfg := testConfig("v1.37.2")
		cfg.Flags["kubelet"]["runtimeRequestTimeout"] = Flag{timeout, "configz"}
		if w := foldOf(t, cfg, notReady, injected(5)).windowOf(Key{ReadyFalse, "w1", ""}).rounded(); w.String() != want {
			t.Errorf("a time-out of %s: %s, want %s", timeout, w, want)
		}
	}
	// What waits for a kubelet's next sync waits for nodeStatusUpdateFrequency and 4 %.
	const touched = `{"type":"csr-denied","certificate":{"mint":"40s"},"release":{"after":"CSRCreated","touch":true}}`
	for _, tc := range []struct{ frequency, fault, milestone, want string }{
		{"10s", touched, ReadyTrue, "[0, 11.9]"}, {"20s", touched, ReadyTrue, "[0, 22.3]"}, {"1m", touched, ReadyTrue, "[0, 63.9]"},
		{"20s", notReady, ReadyFalse, "[120, 141.8]"}, {"20s", notReady, ReadyTrue, "[0, 42.8]"}, {"4s", notReady, ReadyTrue, "[0, 9.52]"},
	} {
		cfg := testConfig("v1.37.2")
		cfg.Flags["kubelet"]["nodeStatusUpdateFrequency"] = Flag{tc.frequency, "configz"}
		if w := foldOf(t, cfg, tc.fault, injected(5)).windowOf(Key{tc.milestone, "w1", ""}).rounded(); w.String() != tc.want {
			t.Errorf("%s with syncs every %s: %s, want %s", tc.milestone, tc.frequency, w, tc.want)
		}
	}
}

// A kubelet asks with what lies on its disk, and does all else with what it has in
// memory.
func TestARefusedRequestForACertificate(t *testing.T) {
	post := func(at float64, code string) timeline.Event {
		return audit(at, "create", "certificatesigningrequests", "code="+code, "ip=10.0.0.2", "agent=kubelet")
	}
	before := []timeline.Event{kubeletSeen(1, "7", "0", "active"), onDisk(0.5, "own", datedOne, -50), injected(5)} // an hour and 50 s long, it ends at 50
	for name, tc := range map[string]struct {
		events []timeline.Event
		name   string
		from   string
	}{
		"401, by a CA that nobody knows":      {[]timeline.Event{post(20, "401"), refused(51, "401", "leases w1"), refused(51.1, "403", "leases w1")}, FirstRefused401, FaultInjected},
		"and 403 when its own has ended":      {[]timeline.Event{post(20, "401"), refused(51, "401", "leases w1"), refused(51.1, "403", "leases w1")}, FirstRefused403, CertificateExpired},
		"403, as another node":                {[]timeline.Event{post(20, "403"), refused(51, "401", "leases w1")}, FirstRefused403, FaultInjected},
		"and 401 when its own has ended":      {[]timeline.Event{post(20, "403"), refused(51, "401", "leases w1")}, FirstRefused401, CertificateExpired},
		"403 as ever where no request is one": {[]timeline.Event{refused(51, "401", "leases w1"), refused(51.1, "403", "leases w1")}, FirstRefused403, FirstRefused401},
	} {
		f := foldOf(t, testConfig("v1.37.2"), `{"type":"cert-unreadable","trigger":"rotation"}`, append(append(before[:3:3], tc.events...), did(60, timeline.TypeWitness))...)
		m, ok := f.Get(Key{tc.name, "w1", ""})
		if !ok {
			t.Fatalf("%s: not reached", name)
		}
		if r := f.Result(m); r.After == nil || r.After.Name != tc.from || r.Window.Class != Derived {
			t.Errorf("%s: %s counts from %+v, window %s", name, tc.name, r.After, r.Window)
		} else if _, judged := r.Inside(); !judged {
			t.Errorf("%s: not judged", name)
		}
	}
}

// False is the kubelet's word and Unknown the controller's; so are their taints.
func TestNotReadyIsAWordOfTheKubelet(t *testing.T) {
	events := []timeline.Event{nodeShown(1, "w1", "True", "none"), injected(5), nodeShown(20, "w1", "False", "none"), taint(21, "w1", notReady+":NoSchedule"), taint(22, "w1", both(notReady)),
		nodeShown(30, "w1", "True", both(notReady)), taint(31, "w1", "none")}
	f := foldOf(t, testConfig("v1.37.2"), `{"type":"containerd-frozen"}`, events...)
	f.at(t, ReadyFalse, "w1", "", 20, "watch")
	f.at(t, NotReadyTainted, "w1", "NoSchedule", 21, "audit")
	f.at(t, NotReadyTainted, "w1", "NoExecute", 22, "audit")
	f.at(t, ReadyTrue, "w1", "", 30, "watch")
	f.at(t, TaintsGone, "w1", "", 31, "audit")
	for _, name := range []string{ReadyUnknown, NoScheduleTainted, NoExecuteTainted} {
		f.at(t, name, "w1", "", -1, "")
	}
	if len(f.spends) != 1 || f.spends[0].node != "w1" {
		t.Errorf("tokens spent: %+v", f.spends)
	}
}

// Pods may be back before the node says that it is.
func TestPodsThatAreBackBeforeTheirNode(t *testing.T) {
	cfg := testConfig("v1.37.2")
	cfg.Canaries = []string{"0s"}
	canary := func(at float64, name, node, ready string) timeline.Event {
		return podShown(at, "modified", name, node, ready, "canary=0s")
	}
	f := foldOf(t, cfg, `{"type":"kubelet-frozen"}`, nodeShown(1, "w1", "True", "none"), canary(2, "a", "w1", "True"), injected(5), nodeShown(20, "w1", "Unknown", "none"), canary(20.1, "a", "w1", "False"))
	f.Add(canary(25, "a", "w1", "True"))
	f.at(t, PodsBack, "w1", "", -1, "")
	f.Add(nodeShown(30, "w1", "True", "none"))
	f.at(t, PodsBack, "w1", "", 30, "watch")
}

func TestWantedOutcome(t *testing.T) {
	for name, tc := range map[string]struct {
		wanted, outcome Outcome
		want            bool
	}{
		"a pass":                     {"", OutcomePass, true},
		"a fail":                     {"", OutcomeFail, false},
		"nothing, and nothing is to": {OutcomeNotInjected, OutcomeNotInjected, true},
		"nothing, and something is":  {"", OutcomeNotInjected, false},
		"something, and nothing is":  {OutcomeNotInjected, OutcomePass, false},
	} {
		if got := (&Run{Wanted: tc.wanted, Outcome: tc.outcome, InjectedAt: &start}).AsWanted(); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	r := judged(t, small(t, testConfig("v1.37.2"), `{"spec":{"outcome":"not-injected","fault":{"type":"kubelet-killed"}}}`, injected(5), phase(30, "collect")))
	if r.Wanted != OutcomeNotInjected {
		t.Errorf("wanted %q", r.Wanted)
	}
}

// That a fault has no effect is not shown where it never was in place, or where somebody
// ended the run before its time.
func TestNotInjectedIsNotShownByLess(t *testing.T) {
	const plan = `{"spec":{"outcome":"not-injected","fault":{"type":"kubelet-killed"}}}`
	looked := seen("run", 10, timeline.TypeWitness, "", "inPlace=true", "biting=false", "seen=nothing")
	for name, tc := range map[string]struct {
		events []timeline.Event
		want   bool
	}{
		"looked at to the end": {[]timeline.Event{injected(5), looked}, true},
		"never in place":       {[]timeline.Event{seen("run", 5, timeline.TypeInjectFailed, "", "why=exit 1")}, false},
		"interrupted":          {[]timeline.Event{injected(5), looked, seen("run", 11, timeline.TypeInterrupted, "")}, false},
	} {
		events := append(tc.events, seen("run", 20, timeline.TypeUndone, "node w1"), seen("run", 21, timeline.TypeRepaired, "node w1"), phase(30, "collect"))
		if r := judged(t, small(t, testConfig("v1.37.2"), plan, events...)); r.AsWanted() != tc.want {
			t.Errorf("%s: %s %q is as wanted: %v", name, r.Outcome, r.Reasons, !tc.want)
		}
	}
}

// A certificate that the run has put there counts, although it was gone before
// anybody looked.
func TestACertificateThatNobodySaw(t *testing.T) {
	installed := with(onDisk(10, "short", short, -60), "serial=1")
	installed.Source, installed.Type = "run", timeline.TypeInstalled
	events := []timeline.Event{kubeletSeen(1, "7", "0", "active"), onDisk(0.5, "own", datedOne, 1000), installed, kubeletSeen(10.1, "8", "0", "active"),
		seen("node", 11, timeline.TypeCertificate, "certificate w1", "file="+short, "unreadable=no PEM block"), injected(12)}
	f := foldOf(t, testConfig("v1.37.2"), `{"type":"cert-unreadable","trigger":"rotation","certificate":{"mint":"30s","rotate":"later"}}`, append(events, did(60, timeline.TypeWitness))...)
	f.at(t, CertificateExpired, "w1", "", 40, "node")
	if end := f.nodes["w1"].asked.notAfter; !end.Equal(start.Add(sec(40))) {
		t.Errorf("the next request counts from a certificate that ends %v", end)
	}
	tr := newTrace(t, small(t, traceConfig(), `{}`, append(events, phase(100, "collect"))...))
	same(t, "kubelet", told(tr.node(t, "w1").Kubelet.Spans), "running -11..28, expired 28..88+")
	if n := len(tr.node(t, "w1").Certificates); n != 2 {
		t.Errorf("%d certificates", n)
	}
}
