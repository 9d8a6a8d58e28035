package judge

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// In the timelines made here the fault comes at 100 s and the observation ends at
// 200 s: what a Trace says at 10 was an event at 110.
const faultAt, overAt = 100.0, 200.0

// traceConfig has canaries in namespace n, as podSeen makes them, and an election.
func traceConfig() *Config {
	cfg := testConfig("v1.37.2")
	cfg.CanaryNamespace, cfg.Canaries = "n", []string{"0s", "300s", "daemonset"}
	cfg.Flags["kube-controller-manager"]["leader-elect-lease-duration"] = Flag{"15s", "flagz"}
	return cfg
}

func newTrace(t *testing.T, tl *timeline.Timeline) *Trace {
	t.Helper()
	_, tr, err := Judge(tl)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// traced puts the fault and the end of the observation around some events.
func traced(t *testing.T, events ...timeline.Event) *Trace {
	t.Helper()
	return newTrace(t, small(t, traceConfig(), `{}`, append(events, injected(faultAt), phase(overAt, "collect"))...))
}

func (tr *Trace) node(t *testing.T, name string) NodeTrace {
	t.Helper()
	i := slices.IndexFunc(tr.Nodes, func(n NodeTrace) bool { return n.Name == name })
	if i < 0 {
		t.Fatalf("the trace has no node %s", name)
	}
	return tr.Nodes[i]
}

func phase(at float64, name string) timeline.Event { return seen("run", at, timeline.TypePhase, name) }

func watchGap(at float64, kind string) timeline.Event {
	return seen("watch", at, timeline.TypeGap, kind, "why=too old")
}

func watching(at float64, kind string) timeline.Event { return seen("watch", at, "Watching", kind) }

func listed(e timeline.Event) timeline.Event { e.Type = "listed"; return e }

func with(e timeline.Event, kv ...string) timeline.Event {
	maps.Copy(e.Detail, detail(kv))
	return e
}

// told writes spans as "True -10..0, Unknown 0..100+"; the plus is an open end.
func told(spans []Span) string {
	var s []string
	for _, x := range spans {
		text := fmt.Sprintf("%s %g..%g", x.State, x.From, x.To)
		if x.Open {
			text += "+"
		}
		s = append(s, text)
	}
	return strings.Join(s, ", ")
}

func toldLanes(lanes []Lane) string {
	var s []string
	for _, l := range lanes {
		s = append(s, l.Name+": "+told(l.Spans))
	}
	return strings.Join(s, "; ")
}

func toldDeeds(deeds []Deed) string {
	var s []string
	for _, d := range deeds {
		s = append(s, fmt.Sprintf("%g %s", d.At, d.What))
	}
	return strings.Join(s, "; ")
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

func TestReadyIsToldAtTheAuditLogsTime(t *testing.T) {
	before := listed(nodeShown(90, "w1", "True", "none"))
	for name, tc := range map[string]struct {
		events []timeline.Event
		want   string
	}{
		"a watch behind the log and one before it": {[]timeline.Event{status(110, "w1", "Unknown"), nodeShown(110.3, "w1", "Unknown", "none"), nodeShown(149.99, "w1", "True", "none"), status(150, "w1", "True")},
			"True -10..10, Unknown 10..50, True 50..100+"},
		"old states delivered late": {[]timeline.Event{status(100, "w1", "Unknown"), status(100.5, "w1", "True"), nodeShown(101, "w1", "Unknown", "none"), nodeShown(101.5, "w1", "True", "none")},
			"True -10..0, Unknown 0..0.5, True 0.5..100+"},
		"old states delivered late, twice over": {[]timeline.Event{status(100, "w1", "Unknown"), status(100.5, "w1", "True"), status(101, "w1", "Unknown"), status(101.5, "w1", "True"),
			nodeShown(101.6, "w1", "Unknown", "none"), nodeShown(101.7, "w1", "True", "none"), nodeShown(101.8, "w1", "Unknown", "none"), nodeShown(101.9, "w1", "True", "none")},
			"True -10..0, Unknown 0..0.5, True 0.5..1, Unknown 1..1.5, True 1.5..100+"},
		// A kubelet that starts reports twice within milliseconds.
		"the same state written again": {[]timeline.Event{status(110, "w1", "Unknown"), nodeShown(110.01, "w1", "Unknown", "none"), status(150, "w1", "True"), nodeShown(150.001, "w1", "True", "none"), status(151, "w1", "True"), nodeShown(151.001, "w1", "True", "none")},
			"True -10..10, Unknown 10..50, True 50..100+"},
		"the same state written before the present one": {[]timeline.Event{status(109, "w1", "True"), status(110, "w1", "Unknown"), nodeShown(110.01, "w1", "Unknown", "none"), nodeShown(110.5, "w1", "True", "none")},
			"True -10..10, Unknown 10..10.5, True 10.5..100+"},
		"nothing in the log": {[]timeline.Event{nodeShown(110.3, "w1", "Unknown", "none"), nodeShown(150, "w1", "False", "none")}, "True -10..10.3, Unknown 10.3..50, False 50..100+"},
		"what says nothing of it in the log": {[]timeline.Event{status(110, "w2", "Unknown"), audit(110.1, "update", "nodes/status w1", "code=409", "ready=Unknown"), audit(110.2, "patch", "nodes w1", "code=200", "ready=Unknown"), nodeShown(110.3, "w1", "Unknown", "none")},
			"True -10..10.3, Unknown 10.3..100+"},
		"too far apart to be the same change":  {[]timeline.Event{status(110, "w1", "Unknown"), nodeShown(112.1, "w1", "Unknown", "none")}, "True -10..12.1, Unknown 12.1..100+"},
		"the first look is no change":          {[]timeline.Event{status(91, "w1", "True")}, "True -10..100+"},
		"back before the log's stamp":          {[]timeline.Event{nodeShown(110, "w1", "Unknown", "none"), nodeShown(110.2, "w1", "True", "none"), status(110.5, "w1", "Unknown")}, "True -10..10.5, Unknown 10.5..10.5, True 10.5..100+"},
		"stamped after the end":                {[]timeline.Event{nodeShown(199.9, "w1", "Unknown", "none"), status(200.1, "w1", "Unknown")}, "True -10..99.9, Unknown 99.9..100+"},
		"a node that is deleted tells nothing": {[]timeline.Event{seen("watch", 110, "deleted", "nodes w1", "ready=Unknown", "taints=none"), nodeShown(120, "w9", "Unknown", "none")}, "True -10..100+"},
		"the log alone while the watch is blind": {[]timeline.Event{watchGap(105, "nodes"), status(110, "w1", "Unknown"), status(111, "w1", "Unknown"), status(150, "w1", "True"), listed(nodeShown(159, "w1", "True", "none")), watching(160, "nodes")},
			"True -10..10, Unknown 10..50, True 50..100+"},
		"a refused write while it is blind":       {[]timeline.Event{watchGap(105, "nodes"), audit(110, "update", "nodes/status w1", "code=409", "ready=Unknown")}, "True -10..100+"},
		"another watch is blind":                  {[]timeline.Event{watchGap(105, "pods"), status(110, "w1", "Unknown")}, "True -10..100+"},
		"the watch leads again":                   {[]timeline.Event{watchGap(105, "nodes"), watching(106, "nodes"), status(110, "w1", "Unknown")}, "True -10..100+"},
		"the log leads, then the watch":           {[]timeline.Event{watchGap(105, "nodes"), status(110, "w1", "Unknown"), watching(110.5, "nodes"), nodeShown(110.6, "w1", "Unknown", "none"), status(150, "w1", "True"), nodeShown(150.4, "w1", "True", "none")}, "True -10..10, Unknown 10..50, True 50..100+"},
		"what nobody wrote is found in the list":  {[]timeline.Event{watchGap(105, "nodes"), listed(nodeShown(110, "w1", "Unknown", "none")), watching(110, "nodes")}, "True -10..10, Unknown 10..100+"},
		"what comes when the observation is over": {[]timeline.Event{nodeShown(200.1, "w1", "Unknown", "none")}, "True -10..100+"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := traced(t, append([]timeline.Event{before}, tc.events...)...)
			same(t, "Ready of w1", told(tr.node(t, "w1").Ready.Spans), tc.want)
		})
	}
}

func TestTaintsComeAndGoByLane(t *testing.T) {
	const noSchedule, noExecute = unreachable + ":NoSchedule", unreachable + ":NoExecute"
	before := nodeShown(90, "w1", "True", "none")
	look := func(at float64, taints string) timeline.Event { return nodeShown(at, "w1", "True", taints) }
	for name, tc := range map[string]struct {
		events []timeline.Event
		want   string
	}{
		"none": {nil, ""},
		"one after the other, by the log's time": {[]timeline.Event{taint(110, "w1", noSchedule), look(110.2, noSchedule), taint(110.4, "w1", both(unreachable)), look(110.6, both(unreachable)),
			taint(150, "w1", noExecute), look(150.1, noExecute), taint(151, "w1", "none"), look(151.1, "none")},
			noSchedule + ": tainted 10..50; " + noExecute + ": tainted 10.4..51"},
		"old states delivered late": {[]timeline.Event{taint(100, "w1", noSchedule), taint(100.5, "w1", "none"), look(101, noSchedule), look(101.5, "none")}, noSchedule + ": tainted 0..0.5"},
		"twice":                     {[]timeline.Event{look(110, noSchedule), look(120, "none"), look(130, noSchedule)}, noSchedule + ": tainted 10..20, tainted 30..100+"},
		// The write that takes a taint is not used up by a look that shows no change.
		"a change soon after a look": {[]timeline.Event{look(110, noSchedule), look(112, noSchedule), taint(113, "w1", "none"), look(113.4, "none")}, noSchedule + ": tainted 10..13"},
		"the log alone while the watch is blind": {[]timeline.Event{watchGap(105, "nodes"), taint(110, "w1", noSchedule), taint(150, "w1", "none")},
			noSchedule + ": tainted 10..50"},
		// An update of the status carries the whole node, as its writer last saw it.
		"in the body of another request": {[]timeline.Event{watchGap(105, "nodes"), taint(110, "w1", noSchedule), with(status(111, "w1", "Unknown"), "taints=none"), with(status(112, "w2", "Unknown"), "taints=old:NoSchedule")},
			noSchedule + ": tainted 10..100+"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := traced(t, append([]timeline.Event{before}, tc.events...)...)
			same(t, "taints of w1", toldLanes(tr.node(t, "w1").Taints), tc.want)
			same(t, "taints of w2", toldLanes(tr.node(t, "w2").Taints), "")
		})
	}
}

func TestEachRenewalIsListedOnce(t *testing.T) {
	byAudit := func(at float64, node, renew string, kv ...string) timeline.Event {
		return with(renews(at, node), append([]string{"renew=" + renew}, kv...)...)
	}
	byWatch := func(at float64, node, renew string) timeline.Event {
		return with(renewalSeen(at, node), "renew="+renew)
	}
	tr := traced(t,
		byAudit(110, "w1", "a"), byWatch(110.01, "w1", "a"), // the log first
		byWatch(119.99, "w1", "b"), byAudit(120, "w1", "b"), // the watch first
		byWatch(130, "w1", "c"), // the watch only
		byAudit(140, "w1", "d"), // the log only
		byAudit(140, "w2", "d"), // of another node
		listed(byWatch(150, "w1", "old")),
		byAudit(151, "w1", "e", "code=401"), byAudit(152, "w1", "f", "ns=kube-system"), byAudit(153, "w9", "g"),
		audit(154, "get", "leases w1", "code=200", "ns=kube-node-lease"),
		renews(160, "w1"), renews(170, "w1")) // a log without bodies: each is one
	for node, want := range map[string][]float64{"w1": {10, 19.99, 30, 40, 60, 70}, "w2": {40}, "cp": nil} {
		if got := tr.node(t, node).Renewals; !slices.Equal(got, want) {
			t.Errorf("renewals of %s at %v, want %v", node, got, want)
		}
	}
}

func TestRefusedRequestsAreAttributedByAddressAndProgram(t *testing.T) {
	tr := traced(t, refused(110, "401", "leases w1"), refused(111, "403", "nodes/status w1", "user=system:anonymous"), refused(112, "401", "leases w1", "ip=10.0.0.3"),
		refused(113, "401", "pods x", "agent=kubectl"), refused(114, "401", "leases w1", "ip=10.9.9.9"), refused(115, "401", "leases w1", "ip="), refused(116, "409", "leases w1"), refused(117, "200", "leases w1"))
	same(t, "refused to w1", toldDeeds(tr.node(t, "w1").Refused), "10 401 for update leases w1; 11 403 for update nodes/status w1")
	same(t, "refused to w2", toldDeeds(tr.node(t, "w2").Refused), "12 401 for update leases w1")
	same(t, "refused to cp", toldDeeds(tr.node(t, "cp").Refused), "")
}

// stored is a certificate file that was seen, a little after it was made; it is
// valid from and to seconds.
func stored(at float64, file, cred string, from, to float64) timeline.Event {
	when := func(s float64) string { return start.Add(sec(s)).Format(time.RFC3339) }
	e := seen("node", at+0.7, timeline.TypeCertificate, "certificate w1", "file="+file, "cred="+cred, "serial="+cred, "notBefore="+when(from), "notAfter="+when(to))
	e.Stamp = start.Add(sec(at))
	return e
}

func TestCertificates(t *testing.T) {
	by := func(at float64, cred string, kv ...string) timeline.Event {
		return audit(at, "get", "nodes w1", append([]string{"code=200", "ip=10.0.0.2", "agent=kubelet", "cred=" + cred}, kv...)...)
	}
	events := []timeline.Event{
		stored(90, "/a.pem", "aa", 50, 150), by(95, "aa"), by(105, "aa"), by(112, "aa"),
		by(113, "aa", "agent=kubectl"), by(114, "aa", "ip=10.9.9.9"), // the same certificate in other hands
		stored(110, "/b.pem", "bb", 110, 310),
		seen("node", 120, timeline.TypeCertificate, "certificate w1", "file=/c.pem", "unreadable=no PEM block"),
		stored(130, "/d.pem", "dd", 120, 140), by(131, "dd"),
		seen("node", 140, timeline.TypeCertificate, "certificate w9", "file=/x.pem"),
	}
	tell := func(tr *Trace) string {
		var s []string
		for _, c := range tr.node(t, "w1").Certificates {
			s = append(s, fmt.Sprintf("%s %s: valid %g..%g, asks %g..%g, %s, %s, %d requests", c.Serial, c.File, c.NotBefore, c.NotAfter, c.RotateFrom, c.RotateTo, told([]Span{c.OnDisk}), told([]Span{c.Used}), c.Requests))
		}
		return strings.Join(s, "\n")
	}
	same(t, "certificates of w1", tell(traced(t, events...)), strings.Join([]string{
		"aa /a.pem: valid -50..50, asks 20..40, on disk -10..10, used -5..12, 3 requests",
		"bb /b.pem: valid 10..210, asks 150..190, on disk 10..20,  0..0, 0 requests",
		"dd /d.pem: valid 20..40, asks 34..38, on disk 30..100+, used 31..31, 1 requests"}, "\n"))

	// A source that begins anew after a gap tells what is there: it is no new one.
	again := stored(90, "/a.pem", "aa", 50, 150)
	again.At = sec(105) // and yet with the stamp of the file
	same(t, "read again", tell(traced(t, stored(90, "/a.pem", "aa", 50, 150), seen("node", 100, timeline.TypeGap, "kubelet w1"), again)),
		"aa /a.pem: valid -50..50, asks 20..40, on disk -10..100+,  0..0, 0 requests")

	// What the nodes stamp is by their clock.
	cfg := traceConfig()
	cfg.ClockOffset = 5
	same(t, "by another clock", tell(newTrace(t, small(t, cfg, `{}`, injected(faultAt), stored(90, "/a.pem", "aa", 50, 150), phase(overAt, "collect")))),
		"aa /a.pem: valid -55..45, asks 15..35, on disk -15..100+,  0..0, 0 requests")
}

func TestSigningRequests(t *testing.T) {
	csr := func(at float64, typ, name, state string, kv ...string) timeline.Event {
		return seen("watch", at, typ, "certificatesigningrequests "+name, append([]string{"user=system:node:w1", "state=" + state}, kv...)...)
	}
	tr := traced(t,
		csr(90, "listed", "old", "Issued"), csr(120, "deleted", "old", "Issued"), // history
		csr(90, "listed", "waits", "Pending"), csr(95, "modified", "waits", "Denied"),
		csr(110, "added", "a", "Pending"), csr(111, "modified", "a", "Approved"), csr(112, "modified", "a", "Issued"), csr(113, "modified", "a", "Issued"), csr(150, "deleted", "a", "Issued"),
		csr(105, "added", "b", "Pending"), csr(130, "listed", "b", "Issued"), // after a gap
		csr(107, "added", "w2s", "Pending", "user=system:node:w2"),
		csr(108, "added", "serving", "Pending", "signer=kubernetes.io/kubelet-serving"), csr(109, "added", "joining", "Pending", "user=system:bootstrap:x"), csr(109, "added", "strange", "Pending", "user=system:node:w9"))
	same(t, "requests of w1", toldLanes(tr.node(t, "w1").Requests),
		"waits: Pending -10..-5, Denied -5..100+; b: Pending 5..30, Issued 30..100+; a: Pending 10..11, Approved 11..12, Issued 12..50")
	same(t, "requests of w2", toldLanes(tr.node(t, "w2").Requests), "w2s: Pending 7..100+")
	same(t, "requests of cp", toldLanes(tr.node(t, "cp").Requests), "")
}

func TestKubeletRunsStopsAndExits(t *testing.T) {
	process := func(at float64, node, pid, state string) timeline.Event {
		e := seen("node", at, timeline.TypeProcess, "kubelet "+node, "pid="+pid, "state="+state)
		if state == "activating" || state == "failed" {
			e.Detail["exit"] = "1"
		}
		return e
	}
	tr := traced(t, process(90, "w1", "7", "active"), process(110, "w1", "0", "deactivating"), process(111, "w1", "0", "inactive"), process(120, "w1", "8", "active"), process(121, "w1", "9", "active"),
		process(130, "w1", "0", "activating"), process(131, "w1", "0", "activating"), process(140, "w1", "10", "active"), process(150, "w1", "0", "failed"),
		process(95, "w2", "5", "active"), process(95, "w9", "5", "active"))
	same(t, "kubelet of w1", told(tr.node(t, "w1").Kubelet.Spans), "running -10..10, stopped 10..20, running 20..30, exited 30..40, running 40..50, exited 50..100+")
	same(t, "kubelet of w2", told(tr.node(t, "w2").Kubelet.Spans), "running -5..100+")
	same(t, "kubelet of cp", told(tr.node(t, "cp").Kubelet.Spans), "")
}

func TestCanariesAreListedWithTheirHome(t *testing.T) {
	for name, tc := range map[string]struct {
		events []timeline.Event
		want   string // of w1, then of w2
	}{
		"one that lives and is replaced": {[]timeline.Event{podShown(90, "added", "a", "", "False", "canary=0s"), podShown(91, "modified", "a", "w1", "False", "canary=0s"), podShown(92, "modified", "a", "w1", "True", "canary=0s"),
			podShown(110, "modified", "a", "w1", "False", "canary=0s"), podShown(120, "modified", "a", "w1", "False", "canary=0s", "deleting=true"),
			podShown(120.5, "added", "b", "", "False", "canary=0s"), podShown(121, "modified", "b", "w2", "False", "canary=0s"), podShown(123, "modified", "b", "w2", "True", "canary=0s"),
			podShown(130, "deleted", "a", "w1", "False", "canary=0s", "deleting=true")},
			"0s a on w1: pending -10..-8, running -8..10, unready 10..20, terminating 20..30; 0s b on w2: pending 20.5..23, running 23..100+ | "},
		"one that has moved before the fault": {[]timeline.Event{podShown(80, "added", "a", "w2", "True", "canary=0s"), podShown(85, "deleted", "a", "w2", "True", "canary=0s"), podShown(90, "added", "b", "w1", "True", "canary=0s"), podShown(120, "added", "c", "w2", "True", "canary=0s")},
			"0s a on w2: running -20..-15; 0s b on w1: running -10..100+; 0s c on w2: running 20..100+ | "},
		"a pod of a DaemonSet is at home where it is": {[]timeline.Event{podShown(90, "listed", "a", "w1", "True", "canary=daemonset"), podShown(90, "listed", "b", "w2", "True", "canary=daemonset")},
			"daemonset a on w1: running -10..100+ | daemonset b on w2: running -10..100+"},
		"in the order of the canaries": {[]timeline.Event{podShown(90, "listed", "c", "w1", "True", "canary=daemonset"), podShown(91, "listed", "b", "w1", "True", "canary=300s"), podShown(92, "listed", "a", "w1", "True", "canary=0s")},
			"0s a on w1: running -8..100+; 300s b on w1: running -9..100+; daemonset c on w1: running -10..100+ | "},
		"of another run, or of none":  {[]timeline.Event{podShown(90, "listed", "a", "w1", "True", "canary=0s", "ns=other"), podShown(90, "listed", "b", "w1", "True")}, " | "},
		"one that never found a node": {[]timeline.Event{podShown(90, "listed", "a", "", "False", "canary=0s")}, " | "},
		"one that never came up":      {[]timeline.Event{podShown(90, "listed", "a", "w2", "False", "canary=0s")}, " | 0s a on w2: pending -10..100+"},
		"one name in two namespaces":  {[]timeline.Event{podShown(90, "listed", "a", "w1", "True", "canary=0s"), podShown(95, "deleted", "a", "w1", "True", "canary=0s", "ns=other")}, "0s a on w1: running -10..100+ | "},
		"one that was deleted while none looked": {[]timeline.Event{podShown(90, "listed", "a", "w1", "True", "canary=0s"), podShown(90, "listed", "b", "w1", "True", "canary=300s"), watchGap(110, "pods"), podShown(115, "listed", "b", "w1", "True", "canary=300s"), watching(115, "pods")},
			"0s a on w1: running -10..15; 300s b on w1: running -10..100+ | "},
		"a gap of another watch": {[]timeline.Event{podShown(90, "listed", "a", "w1", "True", "canary=0s"), watchGap(110, "nodes"), watching(115, "nodes"), watching(116, "pods")}, "0s a on w1: running -10..100+ | "},
	} {
		t.Run(name, func(t *testing.T) {
			tr := traced(t, tc.events...)
			var nodes []string
			for _, node := range []string{"w1", "w2"} {
				var s []string
				for _, p := range tr.node(t, node).Pods {
					s = append(s, p.Canary+" "+p.Name+" on "+p.On+": "+told(p.Spans))
				}
				nodes = append(nodes, strings.Join(s, "; "))
			}
			same(t, "canaries", strings.Join(nodes, " | "), tc.want)
		})
	}
}

func TestLeader(t *testing.T) {
	term := func(at float64, holder string, kv ...string) timeline.Event {
		return audit(at, "update", "leases kube-controller-manager", append([]string{"code=200", "ns=kube-system", "holder=" + holder}, kv...)...)
	}
	for name, tc := range map[string]struct {
		events []timeline.Event
		want   string
		terms  []float64
	}{
		"one to the end":             {[]timeline.Event{term(170, "a"), term(180, "a"), term(190, "a")}, "a 70..100+", []float64{70, 80, 90}},
		"another":                    {[]timeline.Event{term(170, "a"), term(180, "b"), term(190, "b")}, "a 70..80, b 80..100+", []float64{70, 80, 90}},
		"given back":                 {[]timeline.Event{term(170, "a"), term(175, ""), term(190, "b")}, "a 70..75, b 90..100+", []float64{70, 75, 90}},
		"exactly for its duration":   {[]timeline.Event{term(170, "a"), term(185, "a")}, "a 70..100+", []float64{70, 85}},
		"silent for too long":        {[]timeline.Event{term(150, "a"), term(170, "a"), term(190, "a")}, "a 50..65, a 70..85, a 90..100+", []float64{50, 70, 90}},
		"silent, and then another":   {[]timeline.Event{term(150, "a"), term(190, "b")}, "a 50..65, b 90..100+", []float64{50, 90}},
		"silent at the end":          {[]timeline.Event{term(150, "a"), term(160, "a")}, "a 50..75", []float64{50, 60}},
		"refused, read, and another": {[]timeline.Event{term(190, "a"), term(191, "b", "code=409"), audit(192, "get", "leases kube-controller-manager", "code=200", "ns=kube-system"), audit(193, "update", "leases kube-scheduler", "code=200", "holder=c")}, "a 90..100+", []float64{90}},
		"nobody":                     {nil, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			tr := traced(t, tc.events...)
			same(t, "leader", told(tr.Leader.Spans), tc.want)
			if !slices.Equal(tr.Terms, tc.terms) {
				t.Errorf("terms %v, want %v", tr.Terms, tc.terms)
			}
		})
	}
}

func TestServerIsSplitBySilence(t *testing.T) {
	say := func(at float64) timeline.Event { return audit(at, "get", "pods x", "code=200") }
	tr := traced(t, say(110), say(120.9), say(131.801), say(131.9), say(150)) // I is 10.9 s
	same(t, "server", told(tr.Server.Spans), "answers 10..20.9, answers 31.801..31.9, answers 50..50")
	same(t, "a silent server", told(traced(t).Server.Spans), "")
}

func TestTraceGaps(t *testing.T) {
	tr := traced(t, watchGap(110, "leases"), watchGap(111, "leases"), watching(120, "leases"), watchGap(150, "nodes"),
		seen("recorder", 190, timeline.TypeGap, "audit", "from=130", "why=cut"), seen("recorder", 201, timeline.TypeGap, "late", "why=over"))
	same(t, "gaps", told(tr.Gaps), "leases 10..20, nodes 50..100+, audit 30..100+, late 101..101+")
	if len(tr.Gaps) != 4 || tr.Gaps[0].Note != "too old" || tr.Gaps[2].Note != "cut" {
		t.Errorf("gaps %+v", tr.Gaps)
	}
}

func TestPhasesFaultAndLooks(t *testing.T) {
	look := func(at float64, object, id string) timeline.Event {
		return seen("run", at, timeline.TypeController, object, "id="+id)
	}
	tr := traced(t, phase(0, "setup"), phase(1, "create"), phase(80, "setup"), phase(99, "hold"), seen("run", 150, timeline.TypeUndone, ""), phase(205, "delete"), phase(210, "end"),
		seen("watch", 85, "listed", "pods x"),
		look(99, "etcd", "e1"), look(99, "kube-apiserver", "s1"), look(201, "etcd", "e1"), look(201, "kube-apiserver", "s2"),
		seen("run", 105, timeline.TypeWitness, "", "inPlace=true", "biting=false", "seen=nothing yet"), seen("run", 115, timeline.TypeWitness, "", "inPlace=false", "biting=true", "seen=x is Pending"))
	if tr.From != -15 || tr.To != 100 {
		t.Errorf("observed from %v to %v, want -15 to 100", tr.From, tr.To)
	}
	same(t, "phases", told(tr.Phases.Spans), "setup -100..-99, create -99..-20, setup -20..-1, hold -1..100, collect 100..105, delete 105..110")
	same(t, "fault", told(tr.Fault.Spans), "fault 0..50")
	if tr.Fault.Spans[0].Note != "it" {
		t.Errorf("the fault is %q", tr.Fault.Spans[0].Note)
	}
	// The last look is taken after the end of the observation: it still tells of a change.
	same(t, "containers", toldLanes(tr.Containers), "etcd: e1 -1..100+; kube-apiserver: s1 -1..100, s2 100..100+")
	if want := []Witness{{5, true, false, "nothing yet"}, {15, false, true, "x is Pending"}}; !slices.Equal(tr.Witnesses, want) {
		t.Errorf("witnesses %+v, want %+v", tr.Witnesses, want)
	}
	same(t, "a fault that was not undone", told(traced(t).Fault.Spans), "fault 0..100+")
}

func TestDeeds(t *testing.T) {
	run := func(at float64, typ, object string, kv ...string) timeline.Event {
		return seen("run", at, typ, object, kv...)
	}
	kubectl := func(at float64, verb, code string) timeline.Event {
		return audit(at, verb, "clusterrolebindings x", "agent=kubectl", "code="+code)
	}
	for name, tc := range map[string]struct {
		event timeline.Event
		want  string
	}{
		"a kubelet started":      {run(110, timeline.TypeKubeletStarted, "node w1"), "10 the kubelet of w1 was started again"},
		"a step":                 {run(110, timeline.TypeStep, "node w1", "kind=undo", "what=put it back"), "10 undo: put it back on w1"},
		"a step that failed":     {run(110, timeline.TypeStep, "node w1", "kind=repair", "what=put it back", "why=exit 1"), "10 repair: put it back on w1, which failed: exit 1"},
		"a failure":              {run(110, timeline.TypeStepFailed, "undo", "why=exit 1"), "10 StepFailed undo: exit 1"},
		"a failure of nothing":   {run(110, timeline.TypeNotHealed, "", "why=not Ready:"), "10 NotHealed: not Ready:"},
		"without a reason":       {run(110, timeline.TypeDeadMan, "node w1"), "10 DeadManFired node w1"},
		"with neither":           {run(110, timeline.TypeInterrupted, ""), "10 Interrupted"},
		"a failed injection":     {run(110, timeline.TypeInjectFailed, "", "why=exit 1"), "10 InjectFailed: exit 1"},
		"kubectl writes":         {kubectl(110, "patch", "200"), "10 patch clusterrolebindings x, answered with 200"},
		"kubectl is refused":     {kubectl(110, "delete", "403"), "10 delete clusterrolebindings x, answered with 403"},
		"kubectl gets":           {kubectl(110, "get", "200"), ""},
		"kubectl lists":          {kubectl(110, "list", "200"), ""},
		"kubectl watches":        {kubectl(110, "watch", "200"), ""},
		"another program writes": {audit(110, "patch", "clusterrolebindings x", "agent=kubelet", "code=200"), ""},
		"a look":                 {run(110, timeline.TypeWitness, "", "biting=true"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			want := "0 injected: it"
			if tc.want != "" {
				want += "; " + tc.want
			}
			same(t, "deeds", toldDeeds(traced(t, tc.event).Deeds), want)
		})
	}
}

func TestWithoutAnInjectionTimeCountsFromTheStart(t *testing.T) {
	events := []timeline.Event{phase(1, "setup"), nodeShown(90, "w1", "True", "none"), nodeShown(130, "w1", "Unknown", "none"), phase(overAt, "collect")}
	tr := newTrace(t, small(t, traceConfig(), `{}`, events...))
	same(t, "Ready", told(tr.node(t, "w1").Ready.Spans), "True 90..130, Unknown 130..200+")
	if tr.From != 90 || tr.To != 200 || len(tr.Fault.Spans) != 0 {
		t.Errorf("from %v to %v, fault %v", tr.From, tr.To, tr.Fault.Spans)
	}
	// Where nothing was to be injected, from the measured part.
	tr = newTrace(t, small(t, traceConfig(), `{}`, append(events, seen("run", 120, timeline.TypeMeasuring, ""))...))
	same(t, "Ready", told(tr.node(t, "w1").Ready.Spans), "True -30..10, Unknown 10..80+")
	if tr.From != -30 || tr.To != 80 || len(tr.Fault.Spans) != 0 {
		t.Errorf("from %v to %v, fault %v", tr.From, tr.To, tr.Fault.Spans)
	}
	// A run that was cut off is seen to its last event.
	tr = newTrace(t, small(t, traceConfig(), `{}`, events[:3]...))
	same(t, "Ready", told(tr.node(t, "w1").Ready.Spans), "True 90..130, Unknown 130..130+")
	same(t, "phases", told(tr.Phases.Spans), "setup 1..130+")
}

func TestATraceOfARunWithoutACluster(t *testing.T) {
	tl := small(t, &Config{}, `{}`, phase(0, "setup"), phase(1, "create"), seen("run", 2, timeline.TypeSetupFailed, "", "why=no Docker"), phase(3, "delete"), phase(4, "end"),
		// Of a cluster whose nodes were not read yet.
		nodeShown(2, "w1", "Unknown", both(unreachable)), status(2, "w1", "Unknown"), renews(2, "w1"), refused(2, "401", "leases w1"), stored(2, "/a.pem", "aa", 0, 9), podShown(2, "added", "a", "w1", "True", "canary=0s"),
		audit(2, "update", "leases kube-controller-manager", "code=200", "holder=a"), watchGap(2, "nodes"), status(2.1, "w1", "True"))
	tr := newTrace(t, tl)
	same(t, "phases", told(tr.Phases.Spans), "setup 0..1, create 1..3, delete 3..4")
	if len(tr.Nodes) != 0 || tr.To != 4 {
		t.Errorf("nodes %v, to %v", tr.Nodes, tr.To)
	}
	if tr = newTrace(t, small(t, traceConfig(), `{}`)); tr.From != 0 || tr.To != 0 {
		t.Errorf("from %v to %v", tr.From, tr.To)
	}
	tl.Header.Config = nil
	if _, _, err := Judge(tl); err == nil || !strings.Contains(err.Error(), "header field config") {
		t.Errorf("got error %v, want one that names the config", err)
	}
}

func TestTargetsComeFirst(t *testing.T) {
	var got []string
	for _, n := range traced(t).Nodes {
		got = append(got, fmt.Sprintf("%s %s %v", n.Name, n.Role, n.Target))
	}
	if want := []string{"w1 worker true", "cp control-plane false", "w2 worker false"}; !slices.Equal(got, want) {
		t.Errorf("nodes %q, want %q", got, want)
	}
}

// inOrder checks that the spans of a thing are in order and within the observation.
func inOrder(t *testing.T, tr *Trace, what string, spans []Span) {
	t.Helper()
	for i, s := range spans {
		switch {
		case s.From < tr.From || s.To > tr.To:
			t.Errorf("%s: %s lies outside of the observation, %v to %v", what, told(spans[i:i+1]), tr.From, tr.To)
		case s.From > s.To:
			t.Errorf("%s: %s ends before it begins", what, told(spans[i:i+1]))
		case i > 0 && s.From < spans[i-1].To:
			t.Errorf("%s: %s overlap", what, told(spans[i-1:i+1]))
		case s.Open && i < len(spans)-1:
			t.Errorf("%s: %s is open, and another follows", what, told(spans[i:i+1]))
		case s.Open && s.To != tr.To:
			t.Errorf("%s: %s is open and ends before the observation, at %v", what, told(spans[i:i+1]), tr.To)
		}
	}
}

// What is drawn of a recorded run is what was judged of it.
func TestTracesOfRecordedRuns(t *testing.T) {
	files, err := filepath.Glob("../../docs/evidence/*/*.jsonl.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded runs: %v", err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			tl, err := timeline.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			tr, r := newTrace(t, tl), judged(t, tl)
			if !reflect.DeepEqual(tr, newTrace(t, tl)) { // maps have another order each time
				t.Error("traced twice, two Traces")
			}
			for _, l := range append(slices.Clone(tr.Containers), tr.Fault, tr.Leader, tr.Server) {
				inOrder(t, tr, l.Name, l.Spans)
			}
			for _, n := range tr.Nodes {
				inOrder(t, tr, n.Name+" Ready", n.Ready.Spans)
				inOrder(t, tr, n.Name+" kubelet", n.Kubelet.Spans)
				for _, l := range append(slices.Clone(n.Taints), n.Requests...) {
					inOrder(t, tr, n.Name+" "+l.Name, l.Spans)
				}
				for _, p := range n.Pods {
					inOrder(t, tr, n.Name+" "+p.Name, p.Spans)
				}
				if !slices.IsSorted(n.Renewals) || len(slices.Compact(slices.Clone(n.Renewals))) != len(n.Renewals) || len(n.Renewals) == 0 {
					t.Errorf("%s: renewals at %v", n.Name, n.Renewals)
				}
				for i, c := range n.Certificates {
					if i > 0 && (c.OnDisk.From < n.Certificates[i-1].OnDisk.To || c.OnDisk.From > n.Certificates[i-1].OnDisk.To && !strings.HasPrefix(r.Experiment, "cert-")) {
						t.Errorf("%s: between certificates %s and %s the disk is empty, or has both", n.Name, n.Certificates[i-1].Serial, c.Serial)
					}
				}
				if !n.Target {
					same(t, "Ready of "+n.Name, states(n.Ready), "True")
					continue
				}
				seen := map[string]bool{}
				for _, m := range r.Milestones {
					seen[m.Name] = seen[m.Name] || m.Node == n.Name && m.Seconds != nil
				}
				want := "True"
				switch {
				case seen[ReadyUnknown]:
					want = "True, Unknown, True"
				case seen[ReadyFalse]:
					want = "True, False, True"
				}
				same(t, "Ready of "+n.Name, states(n.Ready), want)
				for what, has := range map[string][2]bool{
					"refused requests": {seen[FirstRefused401] || seen[FirstRefused403], len(n.Refused) > 0}, "signing requests": {seen[CSRCreated], len(n.Requests) > 0},
					"a second certificate": {seen[CertificateRotated], len(n.Certificates) > 1},
				} {
					if has[0] != has[1] {
						t.Errorf("%s: %s were judged: %v, traced: %v", n.Name, what, has[0], has[1])
					}
				}
			}
			drawnAsJudged(t, tr, r)
		})
	}
}

func states(l Lane) string {
	var s []string
	for _, x := range l.Spans {
		s = append(s, x.State)
	}
	return strings.Join(s, ", ")
}

// drawnAsJudged compares the milestones of a node's state with the bands: within
// 50 ms, which is more than a watch is behind where the log has no entry.
func drawnAsJudged(t *testing.T, tr *Trace, r *Run) {
	t.Helper()
	compared := 0
	for _, m := range r.Milestones {
		var state string
		var lanes []Lane
		n := tr.node(t, m.Node)
		switch m.Name {
		case ReadyUnknown, ReadyTrue:
			state, lanes = strings.TrimPrefix(m.Name, "Ready"), []Lane{n.Ready}
		case NoScheduleTainted, NoExecuteTainted:
			name := unreachable + ":" + strings.TrimSuffix(m.Name, "Tainted")
			state, lanes = "tainted", slices.DeleteFunc(slices.Clone(n.Taints), func(l Lane) bool { return l.Name != name })
		default:
			continue
		}
		if m.Seconds == nil { // not reached
			continue
		}
		compared++
		if !slices.ContainsFunc(lanes, func(l Lane) bool {
			return slices.ContainsFunc(l.Spans, func(s Span) bool { return s.State == state && math.Abs(s.From-*m.Seconds) <= 0.05 })
		}) {
			t.Errorf("%s of %s was at %v, drawn is %s", m.Name, m.Node, *m.Seconds, toldLanes(lanes))
		}
	}
	unknown := slices.ContainsFunc(r.Milestones, func(m Result) bool { return m.Name == ReadyUnknown && m.Seconds != nil })
	if unknown && compared < 3*len(r.Target) { // a disrupted zone has no NoExecute
		t.Errorf("only %d milestones had a band to compare with", compared)
	}
}
