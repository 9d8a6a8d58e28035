package judge

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// faultOf reads a fault as it stands in an experiment.
func faultOf(t *testing.T, text string) FaultPlan {
	t.Helper()
	var p FaultPlan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func foldOf(t *testing.T, cfg *Config, fault string, events ...timeline.Event) *Fold {
	t.Helper()
	f, err := NewFold(cfg, faultOf(t, fault), start)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		f.Add(e)
	}
	return f
}

func did(at float64, typ string) timeline.Event { return seen("run", at, typ, "") }

func stoppedOn(at float64, node string) timeline.Event {
	return seen("run", at, timeline.TypeKubeletStopped, "node "+node)
}

// leads is a renewal of the Lease of the controllers' election.
func leads(at float64, holder string) timeline.Event {
	return audit(at, "update", "leases kube-controller-manager", "code=200", "ns=kube-system", "holder="+holder)
}

func asks(at float64, node string, kv ...string) timeline.Event {
	return audit(at, "create", "certificatesigningrequests", append([]string{"code=201", "agent=kubelet", "user=system:node:" + node}, kv...)...)
}

func asksSeen(at float64, node, name string) timeline.Event {
	return seen("watch", at, "added", "certificatesigningrequests "+name, "user=system:node:"+node, "state=Pending")
}

// decides is what the audit log has of an approver, a denier or the signer.
func decides(at float64, sub, name, condition string, kv ...string) timeline.Event {
	return audit(at, "update", "certificatesigningrequests/"+sub+" "+name, append([]string{"code=200", "condition=" + condition}, kv...)...)
}

// awaits is how a kubelet waits for its own request; its response may be complete
// long after the answer.
func awaits(at float64, verb, node, name string) timeline.Event {
	return audit(at, verb, "certificatesigningrequests "+name, "code=200", "agent=kubelet", "user=system:node:"+node)
}

func rotatedTo(at float64, node, cred string) timeline.Event {
	e := certificate(at, node, "/pki/kubelet-client-2026-01-02-03-04-05.pem", start.Add(time.Hour))
	e.Detail["cred"] = cred
	return e
}

// Windows that depend on what the fault is. The flags are those of TestWindows.
func TestWindowsOfFaults(t *testing.T) {
	const (
		touched, late = `{"type":"csr-denied","certificate":{"mint":"40s"},"release":{"after":"ReadyUnknown","touch":true}}`, `{"type":"csr-denied","certificate":{"mint":"40s"},"release":{"after":"CSRCreated"}}`
		denied        = `{"type":"csr-denied","certificate":{"mint":"40s"}}`
		refuses       = `{"type":"csr-refused","certificate":{"mint":"45s"}}`
		signer        = `{"type":"signer-off","certificate":{"mint":"40s"},"release":{"after":"CSRApproved"}}`
		stopped       = `{"type":"kcm-stopped","certificate":{"mint":"40s"},"release":{"after":"CertificateExpired"}}`
		stoppedDead   = `{"type":"kcm-stopped","kubelet":"stopped","release":{"after":"LeaseStalled"}}`
		frozen        = `{"type":"kcm-frozen","kubelet":"stopped","at":{"after":"FaultInjected","plus":"3s"},"release":{"after":"FaultInjected"}}`
		frozenInside  = `{"type":"kcm-frozen","kubelet":"stopped","release":{"after":"FaultInjected"}}`
		killed        = `{"type":"kcm-killed","kubelet":"stopped","at":{"after":"NoExecuteTainted","plus":"3s"}}`
		rotates       = `{"type":"rotation","certificate":{"mint":"60s","rotate":"later"}}`
		restarts      = `{"type":"kubelet-restart"}`
	)
	key := func(name string) Key { return Key{name, "w1", ""} }
	number := func(n string) Key { return Key{CSRRepeated, "w1", n} }
	evicted := func(toleration string) Key { return Key{PodEvicted, "w1", toleration} }
	again := Key{NoExecuteTainted, "w1", Again}
	tainted := taint(80, "w1", both(unreachable))
	one := func(from, to float64) []Interval { return []Interval{{from, to, ""}} }
	silent := []timeline.Event{renews(10, "w1"), refused(20, "401", "leases w1")}
	nextPass := []Interval{{50, 56.05, "next pass"}}
	for name, tc := range map[string]struct {
		fault  string
		events []timeline.Event
		key    Key
		after  Key
		class  string
		want   []Interval
	}{
		// A kubelet waits 2, 4, 8, 16 and then 32 s, up to a tenth more.
		"the second request":                      {refuses, nil, number("2"), key(CSRCreated), Derived, one(2, 4.2)},
		"the third request":                       {refuses, nil, number("3"), number("2"), Derived, one(4, 6.4)},
		"the fourth request":                      {refuses, nil, number("4"), number("3"), Derived, one(8, 10.8)},
		"the fifth request":                       {refuses, nil, number("5"), number("4"), Derived, one(16, 19.6)},
		"the sixth request":                       {refuses, nil, number("6"), number("5"), Derived, one(32, 37.2)},
		"no wait is longer than the sixth":        {refuses, nil, number("9"), number("8"), Derived, one(32, 37.2)},
		"the first request repeats none":          {refuses, nil, number("1"), key(CSRCreated), Ordered, nil},
		"any request that repeats one":            {refuses, nil, number(""), key(CSRCreated), Ordered, nil},
		"a denial comes when somebody denies":     {refuses, nil, key(CSRDenied), key(CSRCreated), Ordered, nil},
		"nobody approves what is denied":          {refuses, nil, key(CSRApproved), key(FaultInjected), Ordered, nil},
		"nobody approves without the right":       {denied, nil, key(CSRApproved), key(FaultInjected), Ordered, nil},
		"a right that is left approves at once":   {rotates, nil, key(CSRApproved), key(CSRCreated), Derived, one(0, 2)},
		"approval does not need the signer":       {signer, nil, key(CSRApproved), key(CSRCreated), Derived, one(0, 2)},
		"a control node's is approved at once":    {denied, nil, Key{CSRApproved, "w2", ""}, Key{CSRCreated, "w2", ""}, Derived, one(0, 2)},
		"a stopped kubelet asks when all is well": {stoppedDead, nil, key(CSRApproved), key(CSRCreated), Derived, one(0, 2)},
		"and so does the next after a kill":       {`{"type":"kcm-killed","certificate":{"mint":"40s"}}`, nil, key(CSRApproved), key(ControllerLeads), Derived, one(0, 6)},
		"who is frozen approves when it goes on":  {`{"type":"kcm-frozen","certificate":{"mint":"40s"},"release":{"after":"CSRCreated"}}`, nil, key(CSRApproved), key(FaultReleased), Ordered, nil},
		"a new leader approves what waits":        {stopped, nil, key(CSRApproved), key(ControllerLeads), Derived, one(0, 6)},

		// Attempts are 0.2, 0.6, 1.4, 3, 6.2, 12.6, 25.4 s after the request.
		"8 s after the request":                    {late, []timeline.Event{asks(10, "w1"), did(18, timeline.TypeReleased)}, key(CSRApproved), key(CSRCreated), Derived, one(12.6, 13.6)},
		"20 s after the request":                   {late, []timeline.Event{asks(10, "w1"), did(30, timeline.TypeReleased)}, key(CSRApproved), key(CSRCreated), Derived, one(25.4, 26.4)},
		"just before an attempt":                   {late, []timeline.Event{asks(10, "w1"), did(22, timeline.TypeReleased)}, key(CSRApproved), key(CSRCreated), Derived, []Interval{{12.6, 13.6, ""}, {25.4, 26.4, ""}}},
		"just after an attempt":                    {late, []timeline.Event{asks(10, "w1"), did(22.7, timeline.TypeReleased)}, key(CSRApproved), key(CSRCreated), Derived, one(25.4, 26.4)},
		"more than a second before":                {late, []timeline.Event{asks(10, "w1"), did(21.5, timeline.TypeReleased)}, key(CSRApproved), key(CSRCreated), Derived, one(12.6, 13.6)},
		"early, when attempts are dense":           {late, []timeline.Event{asks(10, "w1"), did(10.5, timeline.TypeReleased)}, key(CSRApproved), key(CSRCreated), Derived, []Interval{{0.6, 1.6, ""}, {1.4, 2.4, ""}, {3, 4, ""}}},
		"before the request":                       {late, []timeline.Event{did(8, timeline.TypeReleased), asks(10, "w1")}, key(CSRApproved), key(CSRCreated), Derived, one(0, 1)},
		"a request that is touched is not waited":  {touched, []timeline.Event{asks(10, "w1"), did(18, timeline.TypeReleased)}, key(CSRApproved), key(FaultReleased), Derived, one(0, 2)},
		"a touch can be foretold":                  {touched, nil, key(CSRApproved), key(FaultReleased), Derived, one(0, 2)},
		"an attempt cannot":                        {late, []timeline.Event{asks(10, "w1")}, key(CSRApproved), key(FaultReleased), Ordered, nil},
		"the signer's attempts count from its own": {signer, []timeline.Event{asks(9, "w1"), asksSeen(9.9, "w1", "c"), decides(10, "approval", "c", "Approved"), did(18, timeline.TypeReleased)}, key(CSRIssued), key(CSRApproved), Derived, one(12.6, 13.6)},
		"the signer is foretold as the approver":   {signer, nil, key(CSRIssued), key(FaultReleased), Ordered, nil},
		"the signer is touched as the approver": {`{"type":"signer-off","certificate":{"mint":"40s"},"release":{"after":"ReadyUnknown","touch":true}}`, nil,
			key(CSRIssued), key(FaultReleased), Derived, one(0, 2)},
		"a signer that may not acts on nothing":    {`{"type":"signer-off","certificate":{"mint":"40s"}}`, nil, key(CSRIssued), key(CSRApproved), Derived, one(0, 2)},
		"a signer that was not off acts at once":   {late, nil, key(CSRIssued), key(CSRApproved), Derived, one(0, 2)},
		"the next certificate, after a restart":    {denied, nil, key(CSRCreated), key(KubeletStarted), Derived, one(0, 5)},
		"the next certificate, foretold":           {rotates, nil, key(CSRCreated), key(KubeletStarted), Derived, one(41, 56)},
		"the next certificate, of the one on disk": {rotates, []timeline.Event{dated(7, "/pki/flatline-short.pem", 7, 67)}, key(CSRCreated), key(FaultInjected), Derived, one(44, 58)},

		// A ten-second tick, then the next request: I = 10.9.
		"a certificate in use":                  {rotates, nil, key(CertificateInUse), key(CertificateRotated), Derived, one(0, 21.9)},
		"rotation where nothing is broken":      {rotates, nil, key(CertificateRotated), key(CSRIssued), Derived, one(0, 2)},
		"rotation of a kubelet that restarts":   {restarts, nil, key(CertificateRotated), key(CSRIssued), Derived, one(0, 2)},
		"rotation after a release":              {touched, nil, key(CertificateRotated), key(CSRIssued), Derived, one(0, 2)},
		"rotation where a kubelet is stopped":   {stoppedDead, nil, key(CertificateRotated), key(RepairDone), Derived, one(0, 30)},
		"renewals after a release":              {touched, nil, key(LeaseResumed), key(CSRIssued), Derived, one(0, 8.5)},
		"renewals of a kubelet that is stopped": {frozen, nil, key(LeaseResumed), key(RepairDone), Derived, one(0, 6)},
		"Ready after a release":                 {touched, nil, key(ReadyTrue), key(CSRIssued), Derived, one(0, 11.9)},
		"Ready of a kubelet that is stopped":    {stoppedDead, nil, key(ReadyTrue), key(RepairDone), Derived, one(0, 7)},
		"taints go as ever":                     {touched, nil, key(TaintsGone), key(ReadyTrue), Derived, one(0, 6.05)},

		"a stopped kubelet's last renewal was before": {stoppedDead, nil, key(LeaseStalled), key(KubeletStopped), Derived, one(-10.9, 0.5)},
		"a kubelet that was left dies of expiry":      {touched, nil, key(LeaseStalled), key(CertificateExpired), Derived, one(-10.9, 0.05)},

		"a manifest that is back elects":         {stopped, nil, key(ControllerLeads), key(FaultReleased), Derived, one(15, 28.4)},
		"a process that was killed elects":       {killed, nil, key(ControllerLeads), key(ControllerStopped), Derived, one(15, 24.9)},
		"the new leader gives a grace":           {stoppedDead, nil, key(ReadyUnknown), key(ControllerLeads), Derived, one(50.2, 61.05)},
		"it gives one to who fell silent before": {stoppedDead, append(silent, leads(1, "a"), leads(40, "b")), key(ReadyUnknown), key(ControllerLeads), Derived, one(50.2, 61.05)},
		"and none to who falls silent under it":  {stoppedDead, append(silent, leads(6, "a"), leads(7, "b")), key(ReadyUnknown), key(LeaseStalled), Derived, nextPass},
		"a freezer has seen the last renewal":    {frozen, nil, key(ReadyUnknown), key(FaultReleased), Derived, one(0, 11.1)},
		"a freezer has news of the last renewal": {frozenInside, nil, key(ReadyUnknown), key(FaultReleased), Derived, one(50, 66.15)},
		"so does the next after one was killed":  {`{"type":"kcm-killed","kubelet":"stopped"}`, nil, key(ReadyUnknown), key(ControllerLeads), Derived, one(50.2, 61.05)},
		"one that goes later has marked it":      {`{"type":"kcm-stopped","kubelet":"stopped","at":{"after":"ReadyUnknown"},"release":{"after":"FaultStruck"}}`, nil, key(ReadyUnknown), key(LeaseStalled), Derived, nextPass},
		"one that is frozen later has marked it": {`{"type":"kcm-frozen","kubelet":"stopped","at":{"after":"PodEvicted"},"release":{"after":"FaultStruck"}}`, nil, key(ReadyUnknown), key(LeaseStalled), Derived, nextPass},
		"a controller that dies later marked it": {killed, nil, key(ReadyUnknown), key(LeaseStalled), Derived, nextPass},

		"the taint that is set anew":                         {killed, nil, again, key(ControllerLeads), Derived, one(0, 6.5)},
		"a toleration begins anew":                           {killed, []timeline.Event{tainted, did(83, timeline.TypeStopped)}, evicted("30s"), again, Derived, one(30, 31.5)},
		"a toleration that was over does not":                {killed, []timeline.Event{tainted, did(110, timeline.TypeStopped)}, evicted("30s"), key(NoExecuteTainted), Derived, one(30, 31)},
		"a toleration whose last instant it was":             {killed, []timeline.Event{tainted, did(109.9, timeline.TypeStopped)}, evicted("30s"), again, Derived, one(30, 31.5)},
		"who tolerates nothing is gone":                      {killed, []timeline.Event{tainted, did(83, timeline.TypeStopped)}, evicted("0s"), key(NoExecuteTainted), Derived, one(0, 1)},
		"a controller that died before the taint":            {killed, []timeline.Event{did(70, timeline.TypeStopped), tainted}, evicted("30s"), key(NoExecuteTainted), Derived, one(30, 31)},
		"nobody has died yet":                                {killed, []timeline.Event{tainted}, evicted("30s"), key(NoExecuteTainted), Derived, one(30, 31)},
		"a toleration, foretold":                             {killed, nil, evicted("30s"), again, Derived, one(30, 31.5)},
		"no toleration, foretold":                            {killed, nil, evicted("0s"), key(NoExecuteTainted), Derived, one(0, 1)},
		"a toleration where nobody is killed":                {stoppedDead, nil, evicted("30s"), key(NoExecuteTainted), Derived, one(30, 31)},
		"a manifest that goes between taint and its end":     {stoppedDead, []timeline.Event{tainted, did(83, timeline.TypeStopped)}, evicted("30s"), again, Derived, one(30, 31.5)},
		"the fault comes after the injection":                {killed, nil, key(FaultStruck), key(FaultInjected), Ordered, nil},
		"a release comes after it too":                       {late, nil, key(FaultReleased), key(FaultInjected), Ordered, nil},
		"so does the end of the controller":                  {stopped, nil, key(ControllerStopped), key(FaultInjected), Ordered, nil},
		"so does that of the kubelet":                        {killed, nil, key(KubeletStopped), key(FaultInjected), Ordered, nil},
		"a renewal is late at no time of its own":            {rotates, nil, key(RenewalLate), key(FaultInjected), Ordered, nil},
		"an exit five minutes after its own certificate":     {`{"type":"csr-refused","certificate":{"from":"rotation"}}`, nil, key(KubeletExited), key(CertificateExpired), Derived, one(290, 302)},
		"an exit a quarter of an hour after a start":         {refuses, nil, key(KubeletExited), key(CSRCreated), Derived, one(902, 914)},
		"a certificate of the experiment ends when it says":  {rotates, nil, key(CertificateExpired), key(KubeletStarted), Ordered, one(59, 61)},
		"a replacement is of the eviction of its toleration": {killed, nil, Key{ReplacementReady, "w1", "30s"}, evicted("30s"), Budget, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := foldOf(t, testConfig("v1.37.2"), tc.fault, append([]timeline.Event{injected(5)}, tc.events...)...)
			w := f.windowOf(tc.key).rounded()
			if w.Class != tc.class || w.after != tc.after || !slices.Equal(w.Intervals, tc.want) {
				t.Errorf("%s window %v after %v, want %s %v after %v", w.Class, w.Intervals, w.after, tc.class, tc.want, tc.after)
			}
			if w.Class == Derived && w.Why == "" {
				t.Error("a derived window does not say from what")
			}
		})
	}
}

// dated is a certificate whose whole life is known.
func dated(at float64, file string, from, to float64) timeline.Event {
	e := certificate(at, "w1", file, start.Add(sec(to)))
	e.Detail["notBefore"] = start.Add(sec(from)).Format(time.RFC3339)
	return e
}

// What the run does to the way back decides what it is measured from.
func TestWhatAFaultIs(t *testing.T) {
	for fault, want := range map[string]struct{ heals, approves, restarts bool }{
		`{}`:                                 {false, true, false},
		`{"type":"none"}`:                    {false, true, false},
		`{"type":"rotation"}`:                {true, true, false},
		`{"type":"kubelet-restart"}`:         {true, true, false},
		`{"type":"csr-denied"}`:              {false, false, false},
		`{"type":"csr-denied","release":{}}`: {true, false, false},
		`{"type":"csr-refused"}`:             {false, false, false},
		`{"type":"signer-off"}`:              {false, true, false},
		`{"type":"signer-off","release":{"after":"ReadyUnknown","touch":true}}`:         {true, true, false},
		`{"type":"kcm-stopped","release":{"after":"CertificateExpired"}}`:               {true, false, true},
		`{"type":"kcm-stopped","kubelet":"stopped","release":{"after":"LeaseStalled"}}`: {false, false, true},
		`{"type":"kcm-frozen","kubelet":"stopped","release":{"after":"FaultInjected"}}`: {false, false, false},
		`{"type":"kcm-killed","kubelet":"stopped","at":{"after":"NoExecuteTainted"}}`:   {false, false, true},
	} {
		fold := foldOf(t, testConfig("v1.37.2"), fault)
		f := fold.fault
		if approves := f.Withholds != StepApproval; f.heals() != want.heals || approves != want.approves || f.restartsController() != want.restarts {
			t.Errorf("%s: heals %v, approves %v, restarts the controller %v; want %+v", fault, f.heals(), approves, f.restartsController(), want)
		}
		for _, name := range Names() {
			way := slices.Contains([]string{CertificateRotated, LeaseResumed, ReadyTrue, TaintsGone, PodsBack}, name)
			if recovery := name == FaultUndone || name == RepairDone || way && !want.heals; fold.Recovery(name) != recovery {
				t.Errorf("%s: recovery of %s is %v", fault, name, !recovery)
			}
		}
	}
}

// What only the repair brought back was not healed by the node.
func TestAWayBackThatTheRepairBegan(t *testing.T) {
	const released = `{"type":"csr-denied","certificate":{"mint":"40s"},"release":{"after":"CSRCreated","plus":"605s","touch":true}}`
	back := func(at float64) []timeline.Event {
		return []timeline.Event{rotatedTo(at, "w1", "new"), renews(at, "w1"), status(at, "w1", "True")}
	}
	repaired := seen("run", 660, timeline.TypeRepaired, "node w1")
	for name, tc := range map[string]struct {
		events []timeline.Event
		inside bool
	}{
		"by itself":     {append(back(612), repaired), true},
		"by the repair": {append([]timeline.Event{repaired}, back(661)...), false},
	} {
		f := foldOf(t, testConfig("v1.37.2"), released, append([]timeline.Event{certificate(1, "w1", "/a.pem", start.Add(45*time.Second)), injected(5), nodeShown(6, "w1", "True", "none"), renews(10, "w1"),
			refused(45, "401", "leases w1"), status(100, "w1", "Unknown"), asksSeen(600, "w1", "c"), did(611, timeline.TypeReleased), decides(611.5, "status", "c", "Approved")}, tc.events...)...)
		for _, way := range []string{CertificateRotated, LeaseResumed, ReadyTrue} {
			m, ok := f.Get(Key{way, "w1", ""})
			if !ok {
				t.Fatalf("%s: %s was not reached", name, way)
			}
			if inside, judged := f.Result(m).Inside(); !judged || inside != tc.inside {
				t.Errorf("%s: %s inside its window: %v, judged %v", name, way, inside, judged)
			}
		}
	}
}

func TestRequestsAreNumbered(t *testing.T) {
	before := []timeline.Event{asks(3, "w1"), injected(5)}
	f := foldOf(t, testConfig("v1.37.2"), `{"type":"csr-refused"}`, append(before, asks(10, "w1"), asksSeen(10.1, "w1", "a"), asks(12.5, "w1"), asksSeen(12.6, "w1", "b"), asks(17, "w1"), asksSeen(17.1, "w1", "c"))...)
	f.at(t, CSRCreated, "w1", "", 10, "audit")
	if m := f.at(t, CSRRepeated, "w1", "2", 12.5, "audit"); m.Seen["watch"] != sec(12.6) {
		t.Errorf("seen %v", m.Seen)
	}
	f.at(t, CSRRepeated, "w1", "3", 17, "audit")
	f.at(t, CSRRepeated, "w1", "1", -1, "")
	f.at(t, CSRRepeated, "w1", "4", -1, "")
	// What follows the undo is the repair's.
	f.Add(did(20, timeline.TypeUndone))
	f.Add(asks(21, "w1"))
	f.Add(asksSeen(21.1, "w1", "d"))
	f.at(t, CSRRepeated, "w1", "4", -1, "")

	for name, tc := range map[string]struct {
		events []timeline.Event
		number string
		at     float64
		source string
	}{
		// Each source counts what it has seen; the audit log's count is not mixed up
		// with the watch's.
		"the audit log missed the first": {[]timeline.Event{asksSeen(10.1, "w1", "a"), asks(12.5, "w1"), asksSeen(12.6, "w1", "b"), asks(17, "w1"), asksSeen(17.1, "w1", "c")}, "2", 12.6, "watch"},
		"nobody else saw the third":      {[]timeline.Event{asksSeen(10.1, "w1", "a"), asks(12.5, "w1"), asksSeen(12.6, "w1", "b"), asks(17, "w1"), asksSeen(17.1, "w1", "c")}, "3", 17.1, "watch"},
		"the watch saw one only":         {[]timeline.Event{asks(10, "w1"), asksSeen(10.1, "w1", "a"), asks(12.5, "w1")}, "2", 12.5, "audit"},
		"one that is changed is one":     {[]timeline.Event{asksSeen(10.1, "w1", "a"), seen("watch", 11, "modified", "certificatesigningrequests a", "user=system:node:w1", "state=Denied"), asksSeen(12, "w1", "a")}, "2", -1, ""},
		"one in a list is of before":     {[]timeline.Event{seen("watch", 10, "listed", "certificatesigningrequests a", "user=system:node:w1", "state=Pending"), asksSeen(12, "w1", "b")}, "2", -1, ""},
		"a refused request is none":      {[]timeline.Event{asks(10, "w1"), asks(12.5, "w1", "code=403")}, "2", -1, ""},
		"a serving certificate is none":  {[]timeline.Event{asks(10, "w1"), asks(12.5, "w1", "signer=kubernetes.io/kubelet-serving")}, "2", -1, ""},
		"another node's is none":         {[]timeline.Event{asks(10, "w1"), asks(12.5, "w2")}, "2", -1, ""},
	} {
		foldOf(t, testConfig("v1.37.2"), `{"type":"csr-refused"}`, append([]timeline.Event{injected(5)}, tc.events...)...).at(t, CSRRepeated, "w1", tc.number, tc.at, tc.source)
		if t.Failed() {
			t.Fatalf("%s", name)
		}
	}

	// A control node may rotate, and rotate again.
	f = foldOf(t, testConfig("v1.37.2"), `{"type":"csr-refused"}`, injected(5), asks(10, "w2"), asksSeen(10.1, "w2", "a"), asks(12.5, "w2"), asksSeen(12.6, "w2", "b"))
	f.at(t, CSRCreated, "w2", "", 10, "audit")
	f.at(t, CSRRepeated, "w2", "", -1, "")
}

func TestACertificateIsInUseFromItsFirstRequestOn(t *testing.T) {
	uses := func(at float64, ip, cred string, kv ...string) timeline.Event {
		return audit(at, "get", "nodes w1", append([]string{"code=200", "agent=kubelet", "ip=" + ip, "cred=" + cred}, kv...)...)
	}
	const w1, w2 = "10.0.0.2", "10.0.0.3"
	for name, tc := range map[string]struct {
		node   string
		events []timeline.Event
		at     float64
	}{
		"the first request counts":          {"w1", []timeline.Event{rotatedTo(20, "w1", "new"), uses(25, w1, "new"), uses(26, w1, "new")}, 25},
		"its line may be read first":        {"w1", []timeline.Event{uses(20.5, w1, "new"), rotatedTo(20.3, "w1", "new")}, 20.5},
		"the old one is not meant":          {"w1", []timeline.Event{rotatedTo(20, "w1", "new"), uses(25, w1, "old")}, -1},
		"another program is not meant":      {"w1", []timeline.Event{rotatedTo(20, "w1", "new"), uses(25, w1, "new", "agent=kubectl")}, -1},
		"another node is not meant":         {"w1", []timeline.Event{rotatedTo(20, "w1", "new"), uses(25, w2, "new")}, -1},
		"a request without one":             {"w1", []timeline.Event{rotatedTo(20, "w1", ""), uses(25, w1, "")}, -1},
		"the last one it rotated to":        {"w1", []timeline.Event{rotatedTo(20, "w1", "new"), rotatedTo(21, "w1", "newer"), uses(25, w1, "new"), uses(26, w1, "newer")}, 26},
		"the first that was used, for good": {"w1", []timeline.Event{rotatedTo(20, "w1", "new"), uses(25, w1, "new"), rotatedTo(30, "w1", "newer"), uses(36, w1, "newer")}, 25},
		"a control node rotates unnoticed":  {"w2", []timeline.Event{rotatedTo(20, "w2", "new"), uses(25, w2, "new")}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			before := []timeline.Event{certificate(1, "w1", "/a.pem", start.Add(time.Hour)), certificate(1, "w2", "/a.pem", start.Add(time.Hour)), uses(2, w1, "old"), injected(5)}
			f := foldOf(t, testConfig("v1.37.2"), `{"type":"rotation"}`, append(before, tc.events...)...)
			if m := f.at(t, CertificateInUse, tc.node, "", tc.at, "audit"); tc.at >= 0 && !strings.HasPrefix(m.Note, "certificate new") {
				t.Errorf("note %q", m.Note)
			}
		})
	}
}

// A file may be found a second after it was stored, and the line of a request may be read later
// still: the kubelet stored the certificate before it used it.
func TestACertificateIsStoredBeforeItIsUsed(t *testing.T) {
	uses := func(at float64, ip, cred string) timeline.Event {
		return audit(at, "get", "nodes w1", "code=200", "agent=kubelet", "ip="+ip, "cred="+cred)
	}
	const w1, w2 = "10.0.0.2", "10.0.0.3"
	for name, tc := range map[string]struct {
		events []timeline.Event
		at     float64
		source string
	}{
		"found in time":                {[]timeline.Event{rotatedTo(20, "w1", "new"), uses(20.7, w1, "new")}, 20, "node"},
		"found after its use":          {[]timeline.Event{uses(20, w1, "new"), rotatedTo(20.7, "w1", "new"), uses(21, w1, "new")}, 20, "audit"},
		"its use is read later":        {[]timeline.Event{rotatedTo(20.7, "w1", "new"), uses(20, w1, "new")}, 20, "audit"},
		"the use of another one":       {[]timeline.Event{uses(20, w1, "old"), rotatedTo(20.7, "w1", "new")}, 20.7, "node"},
		"the use by another node":      {[]timeline.Event{uses(20, w2, "new"), rotatedTo(20.7, "w1", "new")}, 20.7, "node"},
		"the second, found after use":  {[]timeline.Event{rotatedTo(20, "w1", "new"), uses(30, w1, "newer"), rotatedTo(30.7, "w1", "newer")}, 20, "node"},
		"both are found after the use": {[]timeline.Event{rotatedTo(20.7, "w1", "new"), uses(20, w1, "new"), uses(30, w1, "newer"), rotatedTo(30.7, "w1", "newer")}, 20, "audit"},
	} {
		t.Run(name, func(t *testing.T) {
			before := []timeline.Event{certificate(1, "w1", "/a.pem", start.Add(time.Hour)), uses(2, w1, "old"), injected(5)}
			f := foldOf(t, testConfig("v1.37.2"), `{"type":"rotation"}`, append(before, tc.events...)...)
			m := f.at(t, CertificateRotated, "w1", "", tc.at, tc.source)
			if use, ok := f.Get(Key{CertificateInUse, "w1", ""}); ok && use.At < m.At {
				t.Errorf("it was in use at %v and stored at %v", use.At, m.At)
			}
		})
	}
}

// I is 10.9 s; a new connection takes 1.5 s more, a start 5 s.
func TestALateRenewal(t *testing.T) {
	started := seen("run", 6, timeline.TypeKubeletStarted, "node w1")
	for name, tc := range map[string]struct {
		node   string
		events []timeline.Event
		at     float64
	}{
		"in time":                        {"w1", []timeline.Event{renews(10, "w1"), renews(22.4, "w1")}, -1},
		"late":                           {"w1", []timeline.Event{renews(10, "w1"), renews(22.401, "w1")}, 22.401},
		"in time after a start":          {"w1", []timeline.Event{started, renews(10, "w1"), renews(25.9, "w1")}, -1},
		"late after a start":             {"w1", []timeline.Event{started, renews(10, "w1"), renews(25.901, "w1")}, 25.901},
		"another node's start":           {"w1", []timeline.Event{seen("run", 6, timeline.TypeKubeletStarted, "node w2"), renews(10, "w1"), renews(22.401, "w1")}, 22.401},
		"over the injection":             {"w1", []timeline.Event{renews(15, "w1")}, -1},
		"late over the injection":        {"w1", []timeline.Event{renews(15.5, "w1")}, 15.5},
		"the first late one":             {"w1", []timeline.Event{renews(10, "w1"), renews(23, "w1"), renews(40, "w1")}, 23},
		"a watch may be late by itself":  {"w1", []timeline.Event{renewalSeen(10, "w1"), renewalSeen(30, "w1")}, -1},
		"a refused one is a stall":       {"w1", []timeline.Event{renews(10, "w1"), refused(20, "401", "leases w1"), renews(40, "w1")}, -1},
		"a silence is a stall":           {"w1", []timeline.Event{renews(10, "w1"), seen("run", 60.5, timeline.TypeWitness, ""), renews(61, "w1")}, -1},
		"a control node's is not judged": {"w2", []timeline.Event{renews(10, "w2"), renews(40, "w2")}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			f := foldOf(t, testConfig("v1.37.2"), `{"type":"rotation"}`, append([]timeline.Event{renews(3, "w1"), injected(5)}, tc.events...)...)
			if m := f.at(t, RenewalLate, tc.node, "", tc.at, "audit"); tc.at >= 0 && !strings.HasSuffix(m.Note, " s after the one before") {
				t.Errorf("note %q", m.Note)
			}
		})
	}
}

func TestAnotherControllerLeads(t *testing.T) {
	for name, tc := range map[string]struct {
		events []timeline.Event
		at     float64
		holder string
	}{
		"the one that led before":            {[]timeline.Event{leads(3, "a"), injected(5), leads(6, "a"), leads(9, "a")}, -1, ""},
		"another":                            {[]timeline.Event{leads(3, "a"), injected(5), leads(6, "a"), leads(30, "b"), leads(32, "b")}, 30, "b"},
		"the first that was seen":            {[]timeline.Event{injected(5), leads(30, "b")}, -1, ""},
		"a change of before":                 {[]timeline.Event{leads(1, "a"), leads(3, "b"), injected(5), leads(6, "b")}, -1, ""},
		"the first change":                   {[]timeline.Event{leads(3, "a"), injected(5), leads(30, "b"), leads(60, "c")}, 30, "b"},
		"who is refused does not lead":       {[]timeline.Event{leads(3, "a"), injected(5), audit(30, "update", "leases kube-controller-manager", "code=409", "holder=b")}, -1, ""},
		"who gives it back does not":         {[]timeline.Event{leads(3, "a"), injected(5), leads(30, "")}, -1, ""},
		"the scheduler's election is not it": {[]timeline.Event{leads(3, "a"), injected(5), audit(30, "update", "leases kube-scheduler", "code=200", "ns=kube-system", "holder=b")}, -1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := foldOf(t, testConfig("v1.37.2"), `{"type":"kcm-killed"}`, tc.events...)
			if m := f.at(t, ControllerLeads, "w1", "", tc.at, "audit"); m.Note != tc.holder {
				t.Errorf("holder %q, want %q", m.Note, tc.holder)
			}
			f.at(t, ControllerLeads, "w2", "", -1, "") // it is told with the targets
		})
	}
}

func TestWhatTheRunDidIsToldWithTheTargets(t *testing.T) {
	cfg := testConfig("v1.37.2")
	cfg.Target, cfg.ControlNodes = []string{"w1", "w2"}, []string{"cp"}
	events := []timeline.Event{stoppedOn(6, "w1"), stoppedOn(6.5, "w2"), seen("run", 7, timeline.TypeStruck, "", "what=the controller is frozen"),
		seen("run", 8, timeline.TypeStopped, "kube-controller-manager", "id=0123456789abc"), did(9, timeline.TypeReleased)}
	f := foldOf(t, cfg, `{"type":"kcm-frozen"}`, append([]timeline.Event{injected(5)}, events...)...)
	for _, node := range []string{"w1", "w2"} {
		for name, want := range map[string]struct {
			at   float64
			note string
		}{FaultInjected: {5, "it"}, FaultStruck: {7, "the controller is frozen"}, ControllerStopped: {8, "0123456789abc"}, FaultReleased: {9, ""}} {
			if m := f.at(t, name, node, "", want.at, "run"); m.Note != want.note {
				t.Errorf("%s of %s: note %q, want %q", name, node, m.Note, want.note)
			}
			f.at(t, name, "cp", "", -1, "")
		}
	}
	f.at(t, KubeletStopped, "w1", "", 6, "run")
	f.at(t, KubeletStopped, "w2", "", 6.5, "run")
	// What was done again is told once: the first time.
	f.Add(did(20, timeline.TypeReleased))
	f.at(t, FaultReleased, "w1", "", 9, "run")

	f = foldOf(t, cfg, `{"type":"kcm-frozen"}`, events...)
	if ms := f.Milestones(); len(ms) > 0 {
		t.Errorf("before the injection: %v", ms[0].Key)
	}
}

// A new leader takes away taints that it knows nothing of, and sets them again.
func TestTaintedAgain(t *testing.T) {
	set, off := both(unreachable), unreachable+":NoSchedule"
	for name, tc := range map[string]struct {
		events []timeline.Event
		at     float64
		source string
	}{
		"seen by both":                     {[]timeline.Event{taint(80, "w1", set), nodeShown(80.1, "w1", "Unknown", set), taint(100, "w1", off), nodeShown(100.1, "w1", "Unknown", off), taint(100.3, "w1", set), nodeShown(100.4, "w1", "Unknown", set)}, 100.3, "audit"},
		"seen by the watch alone":          {[]timeline.Event{nodeShown(80.1, "w1", "Unknown", set), nodeShown(100.1, "w1", "Unknown", off), nodeShown(100.4, "w1", "Unknown", set)}, 100.4, "watch"},
		"the audit log missed the first":   {[]timeline.Event{nodeShown(80.1, "w1", "Unknown", set), taint(100, "w1", off), nodeShown(100.1, "w1", "Unknown", off), taint(100.3, "w1", set), nodeShown(100.4, "w1", "Unknown", set)}, 100.4, "watch"},
		"the watch is late with the first": {[]timeline.Event{taint(80, "w1", set), nodeShown(81, "w1", "Unknown", set)}, -1, ""},
		"it was never taken away":          {[]timeline.Event{taint(80, "w1", set), taint(100, "w1", set)}, -1, ""},
		"taken away and not set":           {[]timeline.Event{taint(80, "w1", set), taint(100, "w1", off)}, -1, ""},
		"the third time is the second":     {[]timeline.Event{taint(80, "w1", set), taint(100, "w1", off), taint(100.3, "w1", set), taint(120, "w1", off), taint(120.3, "w1", set)}, 100.3, "audit"},
		"after the repair it is another":   {[]timeline.Event{taint(80, "w1", set), seen("run", 90, timeline.TypeRepaired, "node w1"), taint(100, "w1", off), taint(100.3, "w1", set)}, -1, ""},
		"another node's":                   {[]timeline.Event{taint(80, "w1", set), taint(81, "w2", set), taint(100, "w2", off), taint(100.3, "w2", set)}, -1, ""},
		"NoSchedule alone":                 {[]timeline.Event{taint(80, "w1", off), taint(100, "w1", "none"), taint(100.3, "w1", off)}, -1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := foldOf(t, testConfig("v1.37.2"), `{"type":"kcm-killed"}`, append([]timeline.Event{injected(5), nodeShown(6, "w1", "True", "none")}, tc.events...)...)
			f.at(t, NoExecuteTainted, "w1", Again, tc.at, tc.source)
			f.at(t, NoScheduleTainted, "w1", Again, -1, "")
			if m, ok := f.Get(Key{NoExecuteTainted, "w1", ""}); ok && m.At > sec(90) { // without a subject: the first
				t.Errorf("it was first tainted at %v", m.At)
			}
		})
	}
}

// A taint that is set again costs the zone a token as the first did.
func TestATaintThatIsSetAgainSpendsAToken(t *testing.T) {
	set := both(unreachable)
	f := foldOf(t, testConfig("v1.37.2"), `{"type":"kcm-killed"}`, injected(5), taint(80, "w1", set), taint(100, "w1", unreachable+":NoSchedule"), taint(100.5, "w1", set), status(102, "w2", "Unknown"))
	want := []Interval{{8.5, 9.8, "earlier taint in the zone"}}
	if w := f.windowOf(Key{NoExecuteTainted, "w2", ""}).rounded(); !slices.Equal(w.Intervals, want) {
		t.Errorf("window %v, want %v", w.Intervals, want)
	}
}

// timelineOf is a record of some events.
func timelineOf(t *testing.T, fault string, events ...timeline.Event) *timeline.Timeline {
	t.Helper()
	cfg, err := json.Marshal(testConfig("v1.37.2"))
	if err != nil {
		t.Fatal(err)
	}
	return &timeline.Timeline{Header: timeline.Header{Start: start, Config: cfg, Experiment: json.RawMessage(`{"metadata":{"name":"x"},"spec":{"fault":` + fault + `}}`)}, Events: events}
}

// The audit log names a request when it is decided, and its node only when that
// node waits for it: in a watch that may end long after.
func TestDecisionsFromTheAuditLog(t *testing.T) {
	created, approved, issued := asks(10, "w1"), decides(10.1, "approval", "csr-1", "Approved"), decides(10.2, "status", "csr-1", "Approved")
	denied := decides(10.1, "approval", "csr-1", "Denied")
	for name, tc := range map[string]struct {
		events                   []timeline.Event
		approved, denied, issued float64
	}{
		"owned by a list before":            {[]timeline.Event{created, awaits(10.05, "list", "w1", "csr-1"), approved, issued}, 10.1, -1, 10.2},
		"owned by a watch that ends later":  {[]timeline.Event{created, approved, issued, awaits(600, "watch", "w1", "csr-1")}, 10.1, -1, 10.2},
		"denied, owned later":               {[]timeline.Event{created, denied, awaits(10.3, "watch", "w1", "csr-1")}, -1, 10.1, -1},
		"owned by nobody":                   {[]timeline.Event{created, approved, issued}, -1, -1, -1},
		"owned by another node":             {[]timeline.Event{created, approved, issued, awaits(10.3, "watch", "w2", "csr-1")}, -1, -1, -1},
		"another request":                   {[]timeline.Event{created, approved, issued, awaits(10.3, "watch", "w1", "csr-2")}, -1, -1, -1},
		"somebody looks with the kubelet's": {[]timeline.Event{created, approved, issued, audit(10.3, "get", "certificatesigningrequests csr-1", "code=200", "agent=kubectl", "user=system:node:w1")}, -1, -1, -1},
		"an administrator looks":            {[]timeline.Event{created, approved, issued, audit(10.3, "watch", "certificatesigningrequests csr-1", "code=200", "agent=kubelet", "user=kubernetes-admin")}, -1, -1, -1},
		"a decision that met a conflict":    {[]timeline.Event{created, decides(10.1, "approval", "csr-1", "Approved", "code=409"), decides(10.2, "status", "csr-1", "Approved", "code=409"), awaits(10.3, "watch", "w1", "csr-1")}, -1, -1, -1},
		"a signer that failed":              {[]timeline.Event{created, approved, decides(10.2, "status", "csr-1", "Failed"), awaits(10.3, "watch", "w1", "csr-1")}, 10.1, -1, -1},
		"a status of nothing":               {[]timeline.Event{created, decides(10.2, "status", "csr-1", ""), awaits(10.3, "watch", "w1", "csr-1")}, -1, -1, -1},
		"before the fault":                  {[]timeline.Event{asks(3, "w1"), decides(3.1, "approval", "csr-1", "Approved"), awaits(10.3, "watch", "w1", "csr-1")}, -1, -1, -1},
		"owned by the watch of ours":        {[]timeline.Event{created, approved, issued, asksSeen(10.01, "w1", "csr-1")}, 10.1, -1, 10.2},
		// A kubelet waits for a serving certificate in the same way.
		"a serving certificate": {[]timeline.Event{created, approved, issued, awaits(10.05, "list", "w1", "csr-1"), awaits(600, "watch", "w1", "csr-1"),
			seen("watch", 10.06, "added", "certificatesigningrequests csr-1", "user=system:node:w1", "state=Pending", "signer=kubernetes.io/kubelet-serving")}, -1, -1, -1},
	} {
		t.Run(name, func(t *testing.T) {
			tl := timelineOf(t, `{"type":"csr-refused"}`, append([]timeline.Event{injected(5), nodeShown(6, "w1", "True", "none")}, tc.events...)...)
			got := map[string]float64{CSRApproved: -1, CSRDenied: -1, CSRIssued: -1}
			for _, m := range judged(t, tl).Milestones {
				if _, asked := got[m.Name]; asked && m.Node == "w1" {
					got[m.Name] = *m.Seconds + 5
					if m.Source != "audit" || m.Note != "csr-1" {
						t.Errorf("%s by %s: %q", m.Name, m.Source, m.Note)
					}
				}
			}
			for milestone, want := range map[string]float64{CSRApproved: tc.approved, CSRDenied: tc.denied, CSRIssued: tc.issued} {
				if round(got[milestone]) != want {
					t.Errorf("%s at %v, want %v", milestone, got[milestone], want)
				}
			}
		})
	}
	// While the run is on nobody knows what will be learned later.
	f := foldOf(t, testConfig("v1.37.2"), `{"type":"csr-refused"}`, injected(5), created, awaits(10.05, "list", "w1", "csr-1"), denied)
	f.at(t, CSRDenied, "w1", "", 10.1, "audit")
	f = foldOf(t, testConfig("v1.37.2"), `{"type":"csr-refused"}`, injected(5), created, denied, awaits(10.3, "watch", "w1", "csr-1"))
	f.at(t, CSRDenied, "w1", "", -1, "")
}

// The audit log may have missed a change and seen the next one.
func TestALaterSightingIsAnotherChange(t *testing.T) {
	for _, tc := range []struct {
		watch, audit float64
		want         float64
		source       string
	}{
		{70.5, 70, 70, "audit"},
		{70, 70.5, 70.5, "audit"},
		{70, 72, 72, "audit"},
		{70, 72.001, 70, "watch"},
		{70, 90, 70, "watch"},
		{75, 70, 70, "audit"}, // a watch may be late by as much as it likes
	} {
		t.Run(strconv.FormatFloat(tc.audit, 'f', -1, 64), func(t *testing.T) {
			seen, told := nodeShown(tc.watch, "w1", "Unknown", "none"), status(tc.audit, "w1", "Unknown")
			order := []timeline.Event{seen, told}
			if tc.audit < tc.watch {
				order = []timeline.Event{told, seen}
			}
			f := foldOf(t, testConfig("v1.37.2"), `{"type":"csr-denied"}`, append([]timeline.Event{injected(5), nodeShown(6, "w1", "True", "none")}, order...)...)
			m := f.at(t, ReadyUnknown, "w1", "", tc.want, tc.source)
			if _, both := m.Seen["audit"]; both != (tc.source == "audit") {
				t.Errorf("seen %v", m.Seen)
			}
		})
	}
}
