package judge

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func sec(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Microsecond)
}

func detail(kv []string) map[string]string {
	d := map[string]string{}
	for _, s := range kv {
		k, v, _ := strings.Cut(s, "=")
		d[k] = v
	}
	return d
}

// audit is an entry stamped at a time and read a little later.
func audit(at float64, typ, object string, kv ...string) timeline.Event {
	return timeline.Event{At: sec(at + 0.2), Stamp: start.Add(sec(at)), Source: "audit", Type: typ, Object: object, Detail: detail(kv)}
}

func seen(source string, at float64, typ, object string, kv ...string) timeline.Event {
	return timeline.Event{At: sec(at), Source: source, Type: typ, Object: object, Detail: detail(kv)}
}

func injected(at float64) timeline.Event {
	return seen("run", at, timeline.TypeInjected, "", "what=it")
}

func renews(at float64, node string) timeline.Event {
	return audit(at, "update", "leases "+node, "code=200", "ns=kube-node-lease", "agent=kubelet", "user=system:node:"+node, "cred=abcd")
}

func renewalSeen(at float64, node string) timeline.Event {
	e := seen("watch", at, "modified", "leases "+node)
	e.Stamp = start.Add(sec(at - 5)) // the kubelet's renewTime: not the time of observation
	return e
}

func refused(at float64, code, object string, kv ...string) timeline.Event {
	return audit(at, "update", object, append([]string{"code=" + code, "ip=10.0.0.2", "agent=kubelet", "ns=kube-node-lease"}, kv...)...)
}

func status(at float64, node, ready string) timeline.Event {
	return audit(at, "update", "nodes/status "+node, "code=200", "ready="+ready, "user="+nodeController)
}

func nodeShown(at float64, node, ready, taints string) timeline.Event {
	return seen("watch", at, "modified", "nodes "+node, "ready="+ready, "taints="+taints)
}

func taint(at float64, node, taints string) timeline.Event {
	return audit(at, "patch", "nodes "+node, "code=200", "taints="+taints, "user="+nodeController)
}

func podShown(at float64, typ, name, node, ready string, kv ...string) timeline.Event {
	return seen("watch", at, typ, "pods "+name, append([]string{"ns=n", "node=" + node, "ready=" + ready}, kv...)...)
}

func podMarkedIs(at float64, name string) timeline.Event {
	return audit(at, "update", "pods/status "+name, "code=200", "ns=n", "user="+nodeController)
}

func certificate(at float64, node, file string, notAfter time.Time) timeline.Event {
	return seen("node", at, timeline.TypeCertificate, "certificate "+node, "file="+file, "cred="+file, "notAfter="+notAfter.Format(time.RFC3339))
}

func both(key string) string { return key + ":NoSchedule," + key + ":NoExecute" }

// minted is a fault that comes with a certificate of its own.
func minted(life time.Duration) FaultPlan {
	p := FaultPlan{Type: "csr-denied"}
	p.Certificate.Mint = Duration(life)
	return p
}

func newFold(t *testing.T, cfg *Config) *Fold {
	t.Helper()
	f, err := NewFold(cfg, minted(40*time.Second), start)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func folded(t *testing.T, events ...timeline.Event) *Fold {
	t.Helper()
	f := newFold(t, testConfig("v1.37.2"))
	for _, e := range events {
		f.Add(e)
	}
	return f
}

// at asserts when a milestone was reached and by whom; a negative time means that
// it must not have been.
func (f *Fold) at(t *testing.T, name, node, subject string, want float64, source string) *Milestone {
	t.Helper()
	m, ok := f.Get(Key{name, node, subject})
	switch {
	case want < 0 && ok:
		t.Errorf("%s %s of %s was reached at %v", name, subject, node, m.At)
	case want >= 0 && !ok:
		t.Errorf("%s %s of %s was not reached", name, subject, node)
	case ok && want >= 0 && (m.At != sec(want) || m.Source != source):
		t.Errorf("%s %s of %s at %v by %s, want %v by %s", name, subject, node, m.At, m.Source, sec(want), source)
	}
	if m == nil {
		return &Milestone{}
	}
	return m
}

func TestLeaseStallsAtTheLastAcceptedRenewal(t *testing.T) {
	f := folded(t, injected(5), renews(10, "w1"), renewalSeen(10.01, "w1"), renews(20, "w1"), renewalSeen(20.01, "w1"), refused(30, "401", "leases w1"))
	m := f.at(t, LeaseStalled, "w1", "", 20, "audit")
	if want := map[string]time.Duration{"audit": sec(20), "watch": sec(20.01)}; !maps.Equal(m.Seen, want) {
		t.Errorf("seen %v, want %v", m.Seen, want)
	}
	f.at(t, LeaseStalled, "w2", "", -1, "")

	folded(t, injected(5), renewalSeen(20.01, "w1"), refused(30, "403", "leases w1")).at(t, LeaseStalled, "w1", "", 20.01, "watch")
	folded(t, injected(5), renews(20, "w1"), refused(30, "401", "events x")).at(t, LeaseStalled, "w1", "", -1, "")
	folded(t, injected(5), renews(20, "w1"), refused(30, "409", "leases w1")).at(t, LeaseStalled, "w1", "", -1, "")
	// A renewal that was refused is none.
	folded(t, injected(5), renews(20, "w1"), audit(25, "update", "leases w1", "code=422", "ns=kube-node-lease"), refused(30, "401", "leases w1")).at(t, LeaseStalled, "w1", "", 20, "audit")
	// Leases elsewhere are of leaders, and reading is not renewing.
	folded(t, injected(5), renews(20, "w1"), audit(25, "update", "leases w1", "code=200", "ns=kube-system"), audit(26, "get", "leases w1", "code=200", "ns=kube-node-lease"),
		refused(30, "401", "leases w1")).at(t, LeaseStalled, "w1", "", 20, "audit")
}

func TestLeaseStallsBySilenceAfterTheGrace(t *testing.T) {
	f := folded(t, injected(5), renews(10, "w1"), renews(40, "w2"), seen("run", 60, timeline.TypeWitness, ""))
	f.at(t, LeaseStalled, "w1", "", -1, "") // exactly G: not yet
	news := f.Add(seen("run", 60.000001, timeline.TypeWitness, ""))
	f.at(t, LeaseStalled, "w1", "", 10, "audit")
	f.at(t, LeaseStalled, "w2", "", -1, "")
	if len(news) != 1 || news[0].Name != LeaseStalled {
		t.Errorf("the event completed %v", news)
	}
	// One source that still sees renewals is enough.
	folded(t, injected(5), renews(10, "w1"), renewalSeen(55, "w1"), seen("run", 61, timeline.TypeWitness, "")).at(t, LeaseStalled, "w1", "", -1, "")
	// Nobody who never renewed falls silent.
	folded(t, injected(5), seen("run", 200, timeline.TypeWitness, "")).at(t, LeaseStalled, "w1", "", -1, "")
}

func TestLeaseResumes(t *testing.T) {
	stalled := []timeline.Event{injected(5), renews(20, "w1"), renewalSeen(20.01, "w1"), refused(30, "401", "leases w1")}
	f := folded(t, append(stalled, renews(100, "w1"))...)
	if m := f.at(t, LeaseResumed, "w1", "", 100, "audit"); m.Note != "with certificate abcd" {
		t.Errorf("note %q", m.Note)
	}
	// What a watch delivers late is from before the refusal: I is 10.9 s.
	f = folded(t, append(stalled, renewalSeen(30.9, "w1"))...)
	f.at(t, LeaseResumed, "w1", "", -1, "")
	f.Add(renewalSeen(31, "w1"))
	f.at(t, LeaseResumed, "w1", "", 31, "watch")
	folded(t, injected(5), renews(10, "w1"), renews(20, "w1"), renews(30, "w1")).at(t, LeaseResumed, "w1", "", -1, "")
}

func TestRefusedRequestsAreOfTheNodeTheyComeFrom(t *testing.T) {
	for name, tc := range map[string]struct {
		event timeline.Event
		node  string // empty: of nobody
	}{
		"a kubelet without a user":     {refused(30, "401", "leases w1"), "w1"},
		"as anonymous":                 {refused(30, "401", "leases w1", "user=system:anonymous"), "w1"},
		"with another node's user":     {refused(30, "401", "leases w2", "user=system:node:w2"), "w1"},
		"another program of the node":  {refused(30, "401", "leases w1", "agent=kubectl"), ""},
		"an address of no node":        {refused(30, "401", "leases w1", "ip=10.9.9.9", "user=system:node:w1"), ""},
		"no address":                   {refused(30, "401", "leases w1", "ip="), ""},
		"a kubelet on the other node":  {refused(30, "401", "leases w1", "ip=10.0.0.3"), "w2"},
		"a conflict is no refusal":     {refused(30, "409", "leases w1"), ""},
		"a success is no refusal":      {refused(30, "200", "nodes w1"), ""},
		"any URI will do":              {refused(30, "401", "/api"), "w1"},
		"before the fault it is noise": {refused(2, "401", "leases w1"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			events := []timeline.Event{injected(5), tc.event}
			slices.SortStableFunc(events, func(a, b timeline.Event) int { return int(a.At - b.At) })
			f := folded(t, events...)
			for _, n := range []string{"cp", "w1", "w2"} {
				want := -1.0
				if n == tc.node {
					want = 30
				}
				f.at(t, FirstRefused401, n, "", want, "audit")
			}
		})
	}
	f := folded(t, injected(5), refused(30, "401", "nodes/status w1"), refused(31, "401", "leases w1"), refused(32, "403", "leases w1", "user=system:anonymous"), refused(33, "403", "events x"))
	if m := f.at(t, FirstRefused401, "w1", "", 30, "audit"); m.Note != "update nodes/status w1" {
		t.Errorf("note %q", m.Note)
	}
	if m := f.at(t, FirstRefused403, "w1", "", 32, "audit"); m.Note != "update leases w1 as system:anonymous" {
		t.Errorf("note %q", m.Note)
	}
}

func TestTheAuditLogsTimeIsPreferred(t *testing.T) {
	watch, audit := nodeShown(70.5, "w1", "Unknown", "none"), status(70, "w1", "Unknown")
	for name, order := range map[string][]timeline.Event{"watch first": {watch, audit}, "audit first": {audit, watch}} {
		t.Run(name, func(t *testing.T) {
			f := folded(t, append([]timeline.Event{injected(5), nodeShown(6, "w1", "True", "none")}, order...)...)
			m := f.at(t, ReadyUnknown, "w1", "", 70, "audit")
			if want := map[string]time.Duration{"audit": sec(70), "watch": sec(70.5)}; !maps.Equal(m.Seen, want) {
				t.Errorf("seen %v, want %v", m.Seen, want)
			}
			// Only the first sighting of each source counts.
			for _, e := range []timeline.Event{status(80, "w1", "True"), status(90, "w1", "Unknown"), nodeShown(80, "w1", "True", "none"), nodeShown(91, "w1", "Unknown", "none")} {
				f.Add(e)
			}
			if m := f.at(t, ReadyUnknown, "w1", "", 70, "audit"); m.Seen["watch"] != sec(70.5) {
				t.Errorf("seen by the watch at %v", m.Seen["watch"])
			}
			f.at(t, ReadyTrue, "w1", "", 80, "audit")
		})
	}
}

func TestNothingIsReachedBeforeTheFault(t *testing.T) {
	f := folded(t, renews(1, "w1"), nodeShown(1, "w1", "True", "none"), status(2, "w1", "Unknown"), taint(3, "w1", both(unreachable)), refused(4, "401", "leases w1"), seen("run", 100, timeline.TypeUndone, ""))
	if ms := f.Milestones(); len(ms) != 0 {
		t.Errorf("reached: %+v", ms[0])
	}
	if _, began := f.Zero(); began {
		t.Error("it began without a fault")
	}
}

func TestReadyNeedsAnEdge(t *testing.T) {
	// The first look of a watch is a state and no change of it.
	f := folded(t, injected(5), seen("watch", 6, "listed", "nodes w1", "ready=Unknown", "taints=none"), seen("watch", 6, "listed", "nodes w2", "ready=False", "taints=none"))
	f.at(t, ReadyUnknown, "w1", "", -1, "")
	f.at(t, ReadyFalse, "w2", "", -1, "")
	f = folded(t, injected(5), nodeShown(6, "w1", "True", "none"), nodeShown(7, "w1", "False", "none"), nodeShown(8, "w1", "True", "none"))
	f.at(t, ReadyFalse, "w1", "", 7, "watch")
	f.at(t, ReadyTrue, "w1", "", -1, "") // a blip of the kubelet is no return from Unknown
	f.at(t, ReadyUnknown, "w1", "", -1, "")
	// Ready all the time is no return; a refused update changes nothing; neither does a deletion.
	f = folded(t, injected(5), nodeShown(6, "w1", "True", "none"), audit(7, "update", "nodes/status w1", "code=409", "ready=Unknown"), seen("watch", 8, "deleted", "nodes w1", "ready=Unknown", "taints=none"), nodeShown(9, "w1", "True", "none"))
	f.at(t, ReadyUnknown, "w1", "", -1, "")
	f.at(t, ReadyTrue, "w1", "", -1, "")
}

func TestTaints(t *testing.T) {
	f := folded(t, injected(5), nodeShown(6, "w1", "True", "none"), taint(70, "w1", unreachable+":NoSchedule"), taint(80, "w1", both(unreachable)),
		taint(90, "w1", both(unreachable)), taint(100, "w1", unreachable+":NoExecute"))
	f.at(t, NoScheduleTainted, "w1", "", 70, "audit")
	f.at(t, NoExecuteTainted, "w1", "", 80, "audit")
	f.at(t, TaintsGone, "w1", "", -1, "")
	f.Add(taint(110, "w1", notReady+":NoSchedule,other:NoSchedule"))
	f.at(t, TaintsGone, "w1", "", -1, "")
	f.Add(taint(120, "w1", "other:NoSchedule"))
	f.at(t, TaintsGone, "w1", "", 120, "audit")

	folded(t, injected(5), taint(70, "w1", both(notReady))).at(t, NoExecuteTainted, "w1", "", -1, "")
	// Somebody else's taint, another user's patch, a refused one, taints that were never there.
	f = folded(t, injected(5), taint(70, "w1", both("other")), audit(71, "patch", "nodes w1", "code=200", "taints="+both(unreachable), "user=kubernetes-admin"),
		audit(72, "patch", "nodes w1", "code=409", "taints="+both(unreachable), "user="+nodeController), taint(73, "w1", "none"))
	for _, name := range []string{NoScheduleTainted, NoExecuteTainted, TaintsGone} {
		f.at(t, name, "w1", "", -1, "")
	}
}

func TestPodsUnreadyIsTheLastPodOfTheNode(t *testing.T) {
	before := []timeline.Event{injected(5), nodeShown(6, "w1", "True", "none"), podShown(6, "listed", "a", "w1", "True"), podShown(6, "listed", "b", "w1", "True"),
		podShown(6, "listed", "sick", "w1", "False"), podShown(6, "listed", "elsewhere", "w2", "True"), status(70, "w1", "Unknown"), nodeShown(70.01, "w1", "Unknown", "none")}
	f := folded(t, append(before, podMarkedIs(70.1, "a"), podShown(70.11, "modified", "a", "w1", "False"))...)
	f.at(t, PodsUnready, "w1", "", -1, "")
	f.Add(podMarkedIs(70.3, "b"))
	f.at(t, PodsUnready, "w1", "", 70.3, "audit") // the watch still has b ready
	f.Add(podShown(70.31, "modified", "b", "w1", "False"))
	m := f.at(t, PodsUnready, "w1", "", 70.3, "audit")
	if m.Seen["watch"] != sec(70.31) {
		t.Errorf("seen %v", m.Seen)
	}
	if w := f.windowOf(Key{Name: PodsUnready, Node: "w1"}); w.Max() != 0.5+3.0/20 {
		t.Errorf("the window of 3 pods ends at %v", w.Max())
	}
	for _, name := range []string{"a", "b", "sick"} {
		f.Add(podShown(80, "deleted", name, "w1", "False"))
	}
	if w := f.windowOf(Key{Name: PodsUnready, Node: "w1"}); w.Max() != 0.5+3.0/20 {
		t.Errorf("after the pods have gone their window ends at %v: they were there to be marked", w.Max())
	}

	folded(t, append(before, podMarkedIs(70.1, "a"), podShown(70.2, "modified", "a", "w1", "False"), podShown(70.25, "deleted", "b", "w1", "True"))...).at(t, PodsUnready, "w1", "", 70.1, "audit")
	folded(t, injected(5), podShown(6, "listed", "a", "w1", "True"), podShown(70, "modified", "a", "w1", "False")).at(t, PodsUnready, "w1", "", -1, "")
}

func TestEvictionAndReplacement(t *testing.T) {
	before := []timeline.Event{injected(5), podShown(6, "listed", "a", "w1", "True", "canary=0s"), podShown(6, "listed", "b", "w1", "True", "canary=300s"),
		podShown(6, "listed", "plain", "w1", "True"), taint(80, "w1", both(unreachable))}
	deleted := func(at float64, name, code, user string) timeline.Event {
		return audit(at, "delete", "pods "+name, "code="+code, "ns=n", "user="+user)
	}
	f := folded(t, append(before, deleted(80.1, "a", "200", nodeController), podShown(80.11, "modified", "a", "w1", "False", "canary=0s", "deleting=true"),
		deleted(80.2, "plain", "200", nodeController), deleted(81, "b", "404", nodeController), deleted(82, "b", "200", "kubernetes-admin"))...)
	m := f.at(t, PodEvicted, "w1", "0s", 80.1, "audit")
	if m.Note != "a" || m.Seen["watch"] != sec(80.11) {
		t.Errorf("got %+v", m)
	}
	f.at(t, PodEvicted, "w1", "300s", -1, "")
	f.at(t, PodEvicted, "w1", "", 80.1, "audit")
	f.Add(podShown(81, "added", "a2", "w2", "False", "canary=0s"))
	f.Add(podShown(82, "modified", "b2", "w2", "True", "canary=300s")) // of a canary that was not evicted
	f.at(t, ReplacementReady, "w1", "0s", -1, "")
	f.at(t, ReplacementReady, "w1", "300s", -1, "")
	f.Add(podShown(83, "modified", "a2", "w2", "True", "canary=0s"))
	if m := f.at(t, ReplacementReady, "w1", "0s", 83, "watch"); m.Note != "a2 on w2" {
		t.Errorf("note %q", m.Note)
	}
	f.Add(deleted(380, "b", "200", nodeController))
	f.at(t, PodEvicted, "w1", "300s", 380, "audit")
	f.at(t, PodEvicted, "w1", "", 80.1, "audit") // without a subject: the earliest

	// A deletion before the taint is no eviction.
	folded(t, injected(5), podShown(6, "listed", "a", "w1", "True", "canary=0s"), podShown(7, "modified", "a", "w1", "True", "canary=0s", "deleting=true")).at(t, PodEvicted, "w1", "0s", -1, "")
}

func TestPodsBack(t *testing.T) {
	before := []timeline.Event{injected(5), nodeShown(6, "w1", "True", "none"), podShown(6, "listed", "a", "w1", "True", "canary=0s"), podShown(6, "listed", "b", "w2", "True", "canary=300s"),
		podShown(6, "listed", "plain", "w1", "True"), nodeShown(70, "w1", "Unknown", "none"), podShown(71, "modified", "plain", "w1", "False"),
		podShown(72, "modified", "a", "w1", "False", "canary=0s", "deleting=true"), podShown(73, "added", "a2", "w2", "True", "canary=0s"), nodeShown(100, "w1", "True", "none")}
	f := folded(t, before...)
	f.at(t, PodsBack, "w1", "", -1, "")
	f.Add(podShown(101, "modified", "plain", "w1", "True"))
	f.at(t, PodsBack, "w1", "", -1, "") // the evicted one is still there
	f.Add(podShown(102, "deleted", "a", "w1", "False", "canary=0s", "deleting=true"))
	f.at(t, PodsBack, "w1", "", 102, "watch")

	// A canary that nobody replaced is missing.
	f = folded(t, slices.DeleteFunc(slices.Clone(before), func(e timeline.Event) bool { return e.Object == "pods a2" })...)
	f.Add(podShown(101, "modified", "plain", "w1", "True"))
	f.Add(podShown(102, "deleted", "a", "w1", "False", "canary=0s", "deleting=true"))
	f.at(t, PodsBack, "w1", "", -1, "")
}

func TestCertificateExpiresAfterItsLastValidInstant(t *testing.T) {
	f := folded(t, certificate(1, "w1", "/a.pem", start.Add(40*time.Second)), injected(5), seen("run", 40, timeline.TypeWitness, ""))
	f.at(t, CertificateExpired, "w1", "", -1, "") // NotAfter itself is valid
	if w := f.windowOf(Key{Name: CertificateExpired, Node: "w1"}); len(w.Intervals) != 1 || w.Intervals[0] != (Interval{Min: 35, Max: 35}) {
		t.Errorf("before the end its window is %+v, want 35 s after the fault", w)
	}
	f.Add(seen("run", 40.000001, timeline.TypeWitness, ""))
	f.at(t, CertificateExpired, "w1", "", 40, "node")

	f = folded(t, certificate(1, "w1", "/a.pem", start.Add(4*time.Second)), injected(5), seen("run", 50, timeline.TypeWitness, ""))
	f.at(t, CertificateExpired, "w1", "", -1, "") // it was over before the fault

	cfg := testConfig("v1.37.2")
	cfg.ClockOffset = 2 // the node's clock is ahead, so its certificate ends early for us
	f = newFold(t, cfg)
	for _, e := range []timeline.Event{certificate(1, "w1", "/a.pem", start.Add(40*time.Second)), injected(5), seen("run", 50, timeline.TypeWitness, "")} {
		f.Add(e)
	}
	f.at(t, CertificateExpired, "w1", "", 38, "node")
}

func TestCertificateRotatedIsAFileTheKubeletDated(t *testing.T) {
	const dated, again = "/var/lib/kubelet/pki/kubelet-client-2026-01-02-03-04-05.pem", "/var/lib/kubelet/pki/kubelet-client-2026-01-02-04-04-05.pem"
	end := start.Add(time.Hour)
	folded(t, injected(0.5), certificate(1, "w1", dated, end)).at(t, CertificateRotated, "w1", "", -1, "") // the first look
	f := folded(t, injected(0.5), certificate(1, "w1", dated, end), certificate(10, "w1", "/var/lib/kubelet/pki/flatline-short.pem", end), certificate(11, "w1", "/pki/kubelet-client-current.pem", end))
	f.at(t, CertificateRotated, "w1", "", -1, "")
	f.Add(certificate(20, "w1", again, end.Add(time.Hour)))
	f.at(t, CertificateRotated, "w1", "", 20, "node")
	if notAfter, at := f.Certificate("w1"); !notAfter.Equal(end.Add(time.Hour)) || at != sec(20) {
		t.Errorf("the certificate ends %v and came at %v", notAfter, at)
	}
	if notAfter, at := f.Certificate("nobody"); !notAfter.IsZero() || at != 0 {
		t.Error("an unknown node has a certificate")
	}
}

func TestCSRs(t *testing.T) {
	csr := func(at float64, typ, name, state string) timeline.Event {
		return seen("watch", at, typ, "certificatesigningrequests "+name, "user=system:node:w1", "state="+state)
	}
	f := folded(t, csr(1, "listed", "old", "Pending"), injected(5), csr(6, "modified", "old", "Denied"), csr(7, "added", "new", "Pending"),
		audit(6.9, "create", "certificatesigningrequests", "code=201", "user=system:node:w1"), csr(8, "modified", "new", "Issued"))
	f.at(t, CSRDenied, "w1", "", 6, "watch")
	f.at(t, CSRCreated, "w1", "", 6.9, "audit")
	f.at(t, CSRApproved, "w1", "", 8, "watch") // issued in one step with the approval
	f.at(t, CSRIssued, "w1", "", 8, "watch")
	f = folded(t, injected(5), csr(6, "listed", "x", "Issued"), csr(7, "deleted", "x", "Issued"), audit(8, "create", "certificatesigningrequests", "code=401", "user="),
		audit(9, "create", "certificatesigningrequests", "code=201", "user=system:bootstrap:x"))
	for _, name := range []string{CSRCreated, CSRApproved, CSRIssued} {
		f.at(t, name, "w1", "", -1, "")
	}
}

func TestRunEventsUseTheNodesTime(t *testing.T) {
	cfg := testConfig("v1.37.2")
	cfg.ClockOffset = -1.5
	f := newFold(t, cfg)
	inject := injected(9)
	inject.Stamp = start.Add(sec(5))
	f.Add(inject)
	f.at(t, FaultInjected, "w1", "", 6.5, "run")
	if zero, began := f.Zero(); !began || zero != sec(6.5) {
		t.Errorf("zero at %v, %v", zero, began)
	}
	f.Add(seen("run", 10, timeline.TypeKubeletStarted, "node w1"))
	f.Add(seen("run", 11, timeline.TypeUndone, ""))
	f.Add(seen("run", 12, timeline.TypeRepaired, "node w1"))
	f.at(t, KubeletStarted, "w1", "", 10, "run")
	f.at(t, FaultUndone, "w1", "", 11, "run")
	f.at(t, RepairDone, "w1", "", 12, "run")
	f.at(t, RepairDone, "w2", "", -1, "")
	if f.Now() != sec(12) {
		t.Errorf("now is %v", f.Now())
	}
	var names []string
	for _, m := range f.Milestones() {
		names = append(names, m.Name)
	}
	if want := []string{FaultInjected, KubeletStarted, FaultUndone, RepairDone}; !slices.Equal(names, want) {
		t.Errorf("milestones %v, want %v", names, want)
	}
}

func TestMeasuringHasNoFault(t *testing.T) {
	f := folded(t, seen("run", 5, timeline.TypeMeasuring, ""), nodeShown(6, "w1", "True", "none"), nodeShown(7, "w1", "Unknown", "none"))
	f.at(t, FaultInjected, "w1", "", -1, "")
	f.at(t, ReadyUnknown, "w1", "", 7, "watch")
}

func TestUnsteady(t *testing.T) {
	steady := func() []timeline.Event {
		var es []timeline.Event
		for _, n := range []string{"cp", "w1", "w2"} {
			es = append(es, nodeShown(1, n, "True", "none"), renewalSeen(2, n), renewalSeen(3, n), certificate(3, n, "/a.pem", start.Add(time.Hour)))
		}
		return append(es, podShown(3, "added", "a", "w1", "True", "canary=0s"), podShown(3, "added", "b", "w1", "True", "canary=300s"), podShown(3, "added", "b2", "w2", "True", "canary=300s"))
	}
	for name, tc := range map[string]struct {
		add  []timeline.Event
		drop func(timeline.Event) bool
		want string
	}{
		"steady":              {nil, nil, ""},
		"not Ready":           {[]timeline.Event{nodeShown(4, "w2", "False", "none")}, nil, "node w2 is not Ready"},
		"unreachable":         {[]timeline.Event{nodeShown(4, "cp", "True", unreachable+":NoSchedule")}, nil, "node cp is tainted: " + unreachable + ":NoSchedule"},
		"not-ready":           {[]timeline.Event{nodeShown(4, "cp", "True", notReady+":NoExecute")}, nil, "node cp is tainted: " + notReady + ":NoExecute"},
		"a control plane's":   {[]timeline.Event{nodeShown(4, "cp", "True", "node-role.kubernetes.io/control-plane:NoSchedule")}, nil, ""},
		"one renewal":         {nil, func(e timeline.Event) bool { return e.Object == "leases w1" && e.At == sec(3) }, "the Lease of node w1 was renewed 1 times so far"},
		"certificate unread":  {nil, func(e timeline.Event) bool { return e.Object == "certificate w2" }, "the client certificate of node w2 was not read yet"},
		"never seen":          {nil, func(e timeline.Event) bool { return e.Object == "nodes w2" }, "node w2 is not Ready"},
		"canary elsewhere":    {[]timeline.Event{podShown(4, "modified", "a", "w2", "True", "canary=0s")}, nil, "canary 0s is ready on w2 and not on w1"},
		"canary not there":    {nil, func(e timeline.Event) bool { return e.Object == "pods a" }, "canary 0s is ready on nowhere and not on w1"},
		"canary not ready":    {[]timeline.Event{podShown(4, "modified", "a", "w1", "False", "canary=0s")}, nil, "canary 0s is ready on nowhere and not on w1"},
		"canary on its way":   {[]timeline.Event{podShown(4, "modified", "a", "w1", "True", "canary=0s", "deleting=true")}, nil, "canary 0s is ready on nowhere and not on w1"},
		"other one elsewhere": {[]timeline.Event{podShown(4, "modified", "b", "w1", "False", "canary=300s")}, nil, "canary 300s is ready on w2 and not on w1"},
	} {
		t.Run(name, func(t *testing.T) {
			es := steady()
			if tc.drop != nil {
				es = slices.DeleteFunc(es, tc.drop)
			}
			if got := folded(t, append(es, tc.add...)...).Unsteady(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestUnhealed(t *testing.T) {
	const dated = "/pki/kubelet-client-2026-01-02-03-04-05.pem"
	repaired := seen("run", 100, timeline.TypeRepaired, "node w1")
	base := []timeline.Event{certificate(1, "w1", "/a.pem", start.Add(time.Hour)), injected(5), nodeShown(6, "w1", "True", "none"), renews(10, "w1")}
	lost := append(slices.Clone(base), refused(30, "401", "leases w1"), nodeShown(70, "w1", "Unknown", both(unreachable)))
	rotated, renewed, back := certificate(101, "w1", dated, start.Add(2*time.Hour)), renews(102, "w1"), nodeShown(103, "w1", "True", both(unreachable))
	canaries := []timeline.Event{podShown(104, "added", "a", "w2", "True", "canary=0s"), podShown(104, "added", "b", "w1", "True", "canary=300s")}
	for _, tc := range []struct {
		events []timeline.Event
		more   []timeline.Event
		want   string
	}{
		{base, nil, "node w1 was not repaired"},
		{base, []timeline.Event{repaired}, "the kubelet of w1 has not rotated its certificate"},
		{base, []timeline.Event{certificate(99, "w1", dated, start.Add(time.Hour)), repaired}, "the kubelet of w1 has not rotated its certificate"},
		{base, []timeline.Event{repaired, rotated}, "node w1 is not Ready"}, // no renewal yet
		{base, []timeline.Event{repaired, rotated, renewed}, ""},            // nothing was lost: nothing has to come back
		{lost, []timeline.Event{repaired, rotated, renewed}, "node w1 is not Ready"},
		{lost, []timeline.Event{repaired, rotated, renewed, back}, "TaintsGone was not reached on w1"},
		{lost, []timeline.Event{repaired, rotated, renewed, back, nodeShown(104, "w1", "True", "none")}, "PodsBack was not reached on w1"},
		{lost, append([]timeline.Event{repaired, rotated, renewed, back, nodeShown(104, "w1", "True", "none")}, canaries...), ""},
	} {
		if got := folded(t, append(slices.Clone(tc.events), tc.more...)...).Unhealed(); got != tc.want {
			t.Errorf("after %d more events: got %q, want %q", len(tc.more), got, tc.want)
		}
	}
}

func TestDueAndSettled(t *testing.T) {
	key := func(name, subject string) Key { return Key{name, "w1", subject} }
	f := folded(t, certificate(1, "w1", "/a.pem", start.Add(40*time.Second)), injected(5), renews(35, "w1"), refused(41, "401", "leases w1"))
	if due, done := f.Due(key(ReadyUnknown, "")); done || !due.Known || due.From != sec(35+50-0.05) || due.To != sec(35+50+5.05+1) {
		t.Errorf("ReadyUnknown is due %+v, %v", due, done)
	}
	if due, done := f.Due(key(NoExecuteTainted, "")); done || due.Known {
		t.Errorf("NoExecuteTainted is due %+v, %v: nobody can know yet", due, done)
	}
	if due, done := f.Due(key(ReplacementReady, "0s")); done || due.Known {
		t.Errorf("ReplacementReady is due %+v, %v: it has no bound", due, done)
	}
	if _, done := f.Due(key(LeaseStalled, "")); !done {
		t.Error("LeaseStalled is said to come yet")
	}
	settled := func(want bool, k Key) {
		t.Helper()
		if got := f.Settled(k, 40*time.Second); got != want {
			t.Errorf("at %v %s is settled: %v", f.Now(), k.Name, got)
		}
	}
	tick := func(at float64) { f.Add(seen("run", at, timeline.TypeWitness, "")) }
	settled(true, key(LeaseStalled, ""))
	settled(false, key(ReadyUnknown, ""))
	settled(false, key(PodEvicted, "300s"))
	settled(false, key(CSRDenied, "")) // no bound: patience from the fault on
	settled(false, key("NoSuchThing", ""))
	tick(45)
	settled(false, key(CSRDenied, ""))
	tick(45.1)
	settled(true, key(CSRDenied, ""))
	tick(101)
	settled(false, key(ReadyUnknown, ""))
	tick(101.1) // 35 + 50 + P' + 1, and ten seconds more
	settled(true, key(ReadyUnknown, ""))
	settled(true, key(PodEvicted, "300s")) // what counts from it cannot come either
	if folded(t).Settled(key(FaultInjected, ""), 0) || folded(t).Settled(key(ReadyUnknown, ""), 0) {
		t.Error("settled before there was a fault")
	}
}

func TestMilestonesOfOneInstantHaveOneOrder(t *testing.T) {
	// Nodes that joined in the same second have certificates that end in the same second.
	for range 20 {
		f := folded(t, certificate(1, "w2", "/a.pem", start.Add(40*time.Second)), certificate(1, "w1", "/a.pem", start.Add(40*time.Second)),
			certificate(1, "cp", "/a.pem", start.Add(40*time.Second)), injected(5), renews(6, "w2"), renews(6, "w1"), renews(6, "cp"), seen("run", 90, timeline.TypeWitness, ""))
		var got []string
		for _, m := range f.Milestones()[1:] {
			got = append(got, m.Name+" "+m.Node)
		}
		want := []string{"LeaseStalled cp", "LeaseStalled w1", "LeaseStalled w2", "CertificateExpired cp", "CertificateExpired w1", "CertificateExpired w2"}
		if !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		f.Add(podShown(91, "added", "a", "w1", "True", "canary=5s"))
		f.Add(podShown(91, "added", "b", "w1", "True", "canary=0s"))
		f.Add(audit(92, "delete", "pods b", "code=200", "ns=n", "user="+nodeController))
		f.Add(audit(92, "delete", "pods a", "code=200", "ns=n", "user="+nodeController))
		if m, _ := f.Get(Key{Name: PodEvicted, Node: "w1"}); m.Subject != "0s" {
			t.Fatalf("of two at one instant the one seen first is meant, got %s", m.Subject)
		}
	}
}

// A taint that comes with the next token was dropped or had failed: the node
// controller reads the node anew before each attempt.
func TestWhyATaintIsLate(t *testing.T) {
	get := func(at float64) timeline.Event {
		return audit(at, "get", "nodes w1", "code=200", "user="+nodeController)
	}
	unknown, noSchedule, noExecute := status(100, "w1", "Unknown"), taint(100.1, "w1", unreachable+":NoSchedule"), func(at float64) timeline.Event { return taint(at, "w1", both(unreachable)) }
	for want, events := range map[string][]timeline.Event{
		"": {get(100.05), noSchedule, get(100.15), noExecute(100.2)},
		"nobody tried before: the request had been dropped (stale lister)":          {get(100.05), noSchedule, get(110.05), noExecute(110.1)},
		"the node controller had tried before: it read the node 1 times in between": {get(100.05), noSchedule, get(100.15), get(110.05), noExecute(110.1)},
	} {
		f := folded(t, append([]timeline.Event{injected(5), unknown}, events...)...)
		m, ok := f.Get(Key{Name: NoExecuteTainted, Node: "w1"})
		if !ok || m.Note != want {
			t.Errorf("got %+v, want note %q", m, want)
		}
	}
}

// A stall lies in the past when it is noticed: it is waited for until the silence
// has lasted a grace period, and so is what counts from it.
func TestAStallIsWaitedForUntilItCanBeNoticed(t *testing.T) {
	f := folded(t, certificate(1, "w1", "/a.pem", start.Add(40*time.Second)), injected(5), renews(35, "w1"))
	for _, tick := range []struct {
		at   float64
		want bool
	}{{45, false}, {90.9, false}} { // 35 + G is 85: then it is noticed
		f.Add(seen("run", tick.at, timeline.TypeWitness, ""))
		if got := f.Settled(Key{Name: ReadyUnknown, Node: "w1"}, time.Second); got != tick.want {
			t.Errorf("at %v: ReadyUnknown is settled: %v", tick.at, got)
		}
	}
	f.at(t, LeaseStalled, "w1", "", 35, "audit")
	f = folded(t, certificate(1, "w1", "/a.pem", start.Add(40*time.Second)), injected(5))
	for at, want := range map[float64]bool{60: false, 100.5: true} { // nobody has seen a Lease at all
		f.now = sec(at)
		f.passTime()
		if got := f.Settled(Key{Name: LeaseStalled, Node: "w1"}, time.Second); got != want {
			t.Errorf("at %v: LeaseStalled is settled: %v", at, got)
		}
	}
}

// The eviction controller patches the same pods as the same user: only an update
// is a mark, and a conflict opens the branch of the next pass.
func TestPodsUnreadyByTheRightRequest(t *testing.T) {
	patch := func(at float64, name string) timeline.Event {
		return audit(at, "patch", "pods/status "+name, "code=200", "ns=n", "user="+nodeController)
	}
	conflict := audit(100.2, "update", "pods/status b", "code=409", "ns=n", "user="+nodeController)
	f := folded(t, podShown(1, "listed", "a", "w1", "True"), podShown(1, "listed", "b", "w1", "True"), injected(5), status(100, "w1", "Unknown"),
		podMarkedIs(100.1, "a"), conflict, patch(100.3, "b"))
	f.at(t, PodsUnready, "w1", "", -1, "")
	f.Add(podMarkedIs(105.2, "b"))
	m := f.at(t, PodsUnready, "w1", "", 105.2, "audit")
	if r := f.Result(m); r.Window.Branch != "in the next pass: an update met a conflict" {
		t.Errorf("branch %q of %v", r.Window.Branch, r.Window)
	}
}
