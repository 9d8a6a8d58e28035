package judge

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Classes of windows.
const (
	Derived = "derived" // from flags and version; judged
	Ordered = "ordered" // presence and order are judged, the time is not
	Budget  = "budget"  // reported; fails only where the user set a limit
)

// An Interval is one branch of a window, in seconds after the milestone from
// which the window counts.
type Interval struct {
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Branch string  `json:"branch,omitempty"`
}

// A Window is where a milestone must lie: some steps have more than one branch.
type Window struct {
	Class     string     `json:"class"`
	Intervals []Interval `json:"intervals,omitempty"`
	// Branch is the one that was hit, Why the term that ruled.
	Branch string `json:"branch,omitempty"`
	Why    string `json:"why,omitempty"`
	// Machine is there where the window is wider for its sake.
	Machine *Machine `json:"machine,omitempty"`
	trips   int
	room    float64
	slow    string     // what the machine needed, in words
	quick   []Interval // what the intervals would be had it been quick, where they are not that
	// after is the milestone from which the window counts.
	after Key
}

// Max is the latest bound, 0 for a window without intervals.
func (w Window) Max() float64 {
	var m float64
	for _, i := range w.Intervals {
		m = max(m, i.Max)
	}
	return m
}

// rounded rounds the bounds to the millisecond, the precision of all that is
// printed: a value judged must be the value shown.
func (w Window) rounded() Window {
	for i := range w.Intervals {
		w.Intervals[i].Min, w.Intervals[i].Max = round(w.Intervals[i].Min), round(w.Intervals[i].Max)
	}
	return w
}

// byMachine says whether a value lies in a window for the machine's sake alone.
func (w Window) byMachine(s float64) bool {
	_, in := Window{Intervals: w.quick}.find(s)
	return w.quick != nil && !in
}

// find returns the interval that holds s.
func (w Window) find(s float64) (Interval, bool) {
	for _, i := range w.Intervals {
		if s >= i.Min && s <= i.Max {
			return i, true
		}
	}
	return Interval{}, false
}

// ahead is by how much what follows from a write may come before it, in seconds: the
// audit log stamps a write when its response is complete, and anybody who watches may
// know of it before. 7 ms were seen.
const ahead = 0.05

// writes are milestones that others learn of through a watch.
var writes = []string{CSRCreated, CSRApproved, CSRIssued, LeaseStalled, ReadyUnknown, ReadyFalse, ReadyTrue, NoExecuteTainted, NotReadyTainted}

// WindowOf derives the window of a milestone from the flags in force and from
// what has happened so far.
func (f *Fold) WindowOf(k Key) Window {
	w := f.windowOf(k)
	if w.Class == Derived && slices.Contains(writes, w.after.Name) && k.Name != CSRRepeated && k.Name != KubeletExited { // those two go by the kubelet's own clock
		early := ahead
		if from, ok := f.Get(w.after); ok {
			early = max(early, from.took.Seconds())
		}
		for i := range w.Intervals {
			w.Intervals[i].Min -= early
		}
	}
	return f.widen(k, w)
}

// How many requests and process starts lie in a window, one after the other, at the most.
const (
	// acting is a controller or kubelet that acts on what it was told: it is told by a
	// watch, reads, writes, meets a conflict, reads and writes again.
	acting = 5
	// starting is a kubelet or controller that starts: processes first, then the
	// requests before the one that is waited for.
	starting = 20
)

// windowOf holds the equations. They are those of Kubernetes 1.37.2; file names are
// of that version.
func (f *Fold) windowOf(k Key) Window {
	t := f.tim
	when := f.now
	if m, ok := f.Get(k); ok {
		when = m.At
	}
	i, pass := f.interval(when).Seconds(), t.Pass().Seconds()
	g := t.G.Seconds()
	after := func(name string) Key { return Key{Name: name, Node: k.Node} }
	derived := func(from string, why string, in ...Interval) Window {
		return Window{Class: Derived, Intervals: in, Why: why, after: after(from)}
	}
	switch k.Name {
	case KubeletStarted, KubeletStopped, FaultStruck:
		return Window{Class: Ordered, after: after(FaultInjected)}
	case CSRCreated:
		if repaired, ok := f.Get(after(RepairDone)); ok {
			if m, asked := f.Get(k); !asked || m.At > repaired.At {
				return derived(RepairDone, "start of the kubelet; the spare certificate is past its rotation deadline", Interval{Min: 0, Max: 6}).takes(starting, 6)
			}
		}
		if f.fault.Certificate.Mint > 0 && f.fault.Certificate.Rotate != "later" {
			return derived(KubeletStarted, "start of the kubelet; a certificate past its rotation deadline is rotated at once", Interval{Min: 0, Max: 5}).takes(starting, 5)
		}
		if n := f.nodes[k.Node]; f.fault.Certificate.Mint > 0 && (n == nil || n.asked.notAfter.IsZero()) { // a forecast
			life := time.Duration(f.fault.Certificate.Mint).Seconds()
			if f.fault.Trigger == "rotation" {
				return derived(FaultInjected, "70 to 90 % of the life of the certificate that was made just before", Interval{Min: 0.7*life - lead, Max: 0.9*life + 2})
			}
			return derived(KubeletStarted, "70 to 90 % of the life of the certificate that is made", Interval{Min: 0.7*life - 1, Max: 0.9*life + 2})
		}
		return f.naturalRotation(k.Node)
	case CSRRepeated:
		return f.nextRequest(k)
	case CSRApproved:
		return f.approval(k.Node)
	case CSRIssued:
		if f.fault.Type == "signer-off" && f.fault.Release != nil {
			return f.served(k.Node, CSRApproved, "signer")
		}
		return derived(CSRApproved, "the signer acts on the event", Interval{Min: 0, Max: 2}).takes(acting, 2)
	case CSRDenied: // somebody's own act
		return Window{Class: Ordered, after: after(CSRCreated)}
	case CertificateInUse: // kubelet/certificate/transport.go: every ten seconds it is seen whether the certificate is another; then connections are closed
		return derived(CertificateRotated, fmt.Sprintf("a ten-second tick closes the connections, then the next request: I = %.2f s", i), Interval{Min: 0, Max: 10 + i + 1}).takes(acting, 1)
	case RenewalLate, ControllerStopped, FaultReleased:
		return Window{Class: Ordered, after: after(FaultInjected)}
	case ControllerLeads:
		return f.election(k.Node)
	case CertificateExpired:
		w := Window{Class: Ordered, after: after(FaultInjected)}
		if n := f.nodes[k.Node]; n != nil && !n.inUse.notAfter.IsZero() && !f.reached(CertificateExpired, k.Node) {
			left := (f.expiry(n) - f.zero).Seconds()
			w.Intervals = []Interval{{Min: left, Max: left}}
		} else if f.fault.Certificate.Mint > 0 && !f.reached(CertificateExpired, k.Node) { // a forecast; NotAfter is a whole second
			life := time.Duration(f.fault.Certificate.Mint).Seconds()
			w.after, w.Intervals = after(KubeletStarted), []Interval{{Min: life - 1, Max: life + 1}}
			if f.fault.Trigger == "rotation" {
				w.after, w.Intervals = after(FaultInjected), []Interval{{Min: life - lead, Max: life + 1}}
			}
		} else if life, err := f.cfg.seconds("kube-controller-manager", "cluster-signing-duration"); err == nil && !f.reached(CertificateExpired, k.Node) {
			w.Intervals = []Interval{{Min: (life - Fresh).Seconds(), Max: life.Seconds()}}
		}
		return w
	case LeaseStalled:
		if f.fault.stopsAtOnce() {
			return derived(KubeletStopped, fmt.Sprintf("the kubelet was stopped up to a renew interval I = %.2f s after its last renewal", i), Interval{Min: -i, Max: 0.5})
		}
		// Each request is verified anew: apiserver authentication/request/x509
		return derived(CertificateExpired, fmt.Sprintf("renew interval I <= 0.26 D + 0.5 = %.2f s before the end", i), Interval{Min: -i, Max: 0.05})
	case FirstRefused401:
		if f.fault.Effect == EffectRefused {
			return derived(KubeletStarted, "start of the kubelet, its first request", Interval{Min: 0, Max: 5}).takes(starting, 5)
		}
		if f.refusedAsking(k) {
			return f.naturalRotation(k.Node)
		}
		return derived(CertificateExpired, fmt.Sprintf("the next request of any kind, at the latest the next renewal: I = %.2f s", i), Interval{Min: 0, Max: i})
	case FirstRefused403: // kubelet/certificate/transport.go: no certificate is presented any more
		if f.fault.Effect == EffectRefused {
			return derived(KubeletStarted, "start of the kubelet, its first request", Interval{Min: 0, Max: 5}).takes(starting, 5)
		}
		switch {
		case f.refusedAsking(k):
			return f.naturalRotation(k.Node)
		case f.refusedAsking(after(FirstRefused401)):
			return derived(CertificateExpired, fmt.Sprintf("one more 401 at the next renewal, at the latest after I = %.2f s, then none is presented", i), Interval{Min: 0, Max: i + 0.5}).takes(acting, 0.5)
		}
		if m, ok := f.Get(Key{Name: FirstRefused401, Node: k.Node}); ok && !strings.Contains(m.Note, "leases ") {
			return derived(FirstRefused401, "the 401 was no Lease request: the next renewal", Interval{Min: 0, Max: i})
		}
		return derived(FirstRefused401, "the 401 was a Lease request: five tries without a pause", Interval{Min: 0, Max: 0.5}).takes(acting, 0.5)
	case ReadyUnknown: // controller/nodelifecycle: now > probeTimestamp + grace, in passes
		if w, ok := f.afterController(k.Node); ok {
			return w
		}
		most := t.Whole().Seconds() + pass + 1
		w := derived(LeaseStalled, fmt.Sprintf("grace G = %s, then the next pass P' = %.2f s", Duration(t.G), pass), Interval{Min: g, Max: most, Branch: "next pass"}).takes(acting, 1)
		if stall, ok := f.Get(w.after); ok && f.nodes[k.Node].reported >= stall.At-t.P {
			// A report is a heartbeat too. It makes the controller forget the Lease it has
			// seen, and take the old one for news in the pass after.
			later := max(0, (f.nodes[k.Node].reported - stall.At).Seconds())
			w.Intervals = append(w.Intervals, Interval{Min: most, Max: most + later + pass, Branch: "one pass later: a status report was the last heartbeat"})
		}
		return w
	case PodsUnready:
		return f.podsUnready(k.Node)
	case NoScheduleTainted:
		return derived(ReadyUnknown, "on the node's event, one conflict retry included", Interval{Min: 0, Max: 1}).takes(acting, 1)
	case NoExecuteTainted:
		if k.Subject == Again { // its first pass takes away what it does not know to be due, and sets it again
			return derived(ControllerLeads, "first pass of the new leader, up to 5 s after it leads", Interval{Min: 0, Max: 6.5}).takes(acting, 1.5)
		}
		return f.beforeDisruption(f.noExecute(k.Node))
	case PodEvicted: // controller/tainteviction: the toleration counts from the handling of the taint
		s, err := time.ParseDuration(k.Subject)
		if err != nil {
			return Window{Class: Ordered, after: after(NoExecuteTainted)}
		}
		w := derived(NoExecuteTainted, "toleration "+k.Subject, Interval{Min: s.Seconds(), Max: s.Seconds() + 1}).takes(acting, 1)
		if f.restarted(k.Node, s) {
			w.after, w.Why = Key{NoExecuteTainted, k.Node, Again}, w.Why+", from the taint that the new leader has set: it knows of no other"
			w.Intervals[0].Max += 0.5
		}
		return w
	case ReplacementReady:
		return Window{Class: Budget, after: Key{PodEvicted, k.Node, k.Subject}}
	case KubeletExited:
		return f.exit(k.Node)
	case ReadyFalse:
		return f.saysNotReady(k.Node)
	case NotReadyTainted:
		w := derived(ReadyFalse, "on the node's event, one conflict retry included", Interval{Min: 0, Max: 1}).takes(acting, 1)
		if k.Subject == "NoExecute" { // the lister shows it already: queued in the next pass
			w.Intervals, w.Why = []Interval{{Min: 0, Max: pass + 1}}, fmt.Sprintf("the next pass, P' = %.2f s", pass)
		}
		return w
	case FaultUndone:
		return Window{Class: Ordered, after: after(FaultInjected)}
	case RepairDone:
		return Window{Class: Ordered, after: after(FaultUndone)}
	case CertificateRotated:
		if f.fault.heals() {
			return derived(CSRIssued, "the kubelet stores what it waited for", Interval{Min: 0, Max: 2}).takes(acting, 2)
		}
		if f.reached(RepairDone, k.Node) || !f.reached(CertificateRotated, k.Node) {
			return derived(RepairDone, "the spare certificate rotates at once: approver, signer and store work again", Interval{Min: 0, Max: 30}).takes(starting+2*acting, 30)
		}
		return Window{Class: Ordered, after: after(FaultInjected)}
	case LeaseResumed: // kubelet.go: the first renewal is immediate
		if f.fault.heals() && f.fault.Effect == EffectSilent {
			return derived(FaultReleased, "the renewal that was due goes out at once", Interval{Min: 0, Max: 2}).takes(acting, 2)
		}
		if f.fault.heals() { // lease/controller.go: the back-off ends at 7 s; what is refused closes its connection
			return derived(CSRIssued, "back-off of up to 7 s, then a new connection with the new certificate", Interval{Min: 0, Max: 8.5}).takes(acting, 1.5)
		}
		return derived(RepairDone, "start of the kubelet", Interval{Min: 0, Max: 6}).takes(starting, 6)
	case ReadyTrue: // kubelet.go: fastStatusUpdateOnce
		if f.fault.heals() && f.fault.Effect == EffectSilent {
			return derived(FaultReleased, "the first sync may still find the runtime down, the next comes "+t.syncs()+" later", Interval{Min: 0, Max: t.twoSyncs()}).takes(acting, 1)
		}
		if f.fault.heals() && f.fault.Effect == EffectNotReady {
			return f.ready(k.Node)
		}
		if f.fault.heals() { // kubelet_node_status.go: its watch of the node lives on
			return derived(CSRIssued, "the kubelet sees that it is Unknown and reports at the next sync, every "+t.syncs(), Interval{Min: 0, Max: t.Sync().Seconds() + 1.5}).takes(acting, 1.5)
		}
		return derived(RepairDone, "start of the kubelet, first status report", Interval{Min: 0, Max: 7}).takes(starting, 7)
	case TaintsGone:
		return derived(ReadyTrue, fmt.Sprintf("NoExecute goes in the next pass: P' + 1 = %.2f s", pass+1), Interval{Min: 0, Max: pass + 1}).takes(acting, 1)
	case PodsBack:
		return Window{Class: Budget, after: after(ReadyTrue)}
	}
	return Window{Class: Ordered, after: after(FaultInjected)}
}

// podsUnready is when the node controller has marked every pod of a node that it has
// given up: one update for each, 20 a second, in the pass that wrote Unknown; one that
// meets a conflict is made again in the next pass, which begins a period after this one
// has ended (nodelifecycle/node_lifecycle_controller.go nodesToRetry,
// controller/util/node MarkPodsNotReady). How long a pass took is measured, and believed
// as far as its updates may have taken as long as the slowest trip near it.
func (f *Fold) podsUnready(node string) Window {
	w := Window{Class: Derived, after: Key{Name: ReadyUnknown, Node: node}, Why: "one update for each pod, 20 a second"}
	n := f.nodes[node]
	if n == nil {
		w.Intervals = []Interval{{Min: 0, Max: again, Branch: "in the same pass"}}
		return w
	}
	most := again + float64(n.toMark)/20
	w.Intervals = []Interval{{Min: 0, Max: most, Branch: "in the same pass"}}
	var before float64 // what the passes took so far
	for i, p := range n.passes {
		if p.conflicts == 0 {
			break
		}
		from := p.from
		if unknown, ok := f.Get(w.after); ok && i == 0 {
			from = unknown.At
		}
		took := 0.0 // where nothing near it was measured, its length is not believed at all
		if near := f.near(p.from, p.to); len(near) > 0 {
			took = min((p.to - from).Seconds(), float64(p.updates+1)*near[0].Seconds())
		}
		before += took
		passes := float64(i + 1)
		in := Interval{Min: passes * f.tim.P.Seconds(), Max: passes*f.tim.Pass().Seconds() + most, Branch: "in the next pass: an update met a conflict"}
		if before+again > most {
			w.quick = append(slices.Clone(w.Intervals), in)
			in.Max += before + again - most
			w.slow = fmt.Sprintf("the machine: a pass of %d updates, %d of them in conflict, took %.2f s", p.updates, p.conflicts, took)
		}
		w.Intervals = append(w.Intervals, in)
	}
	return w.takes(n.toMark+1, most)
}

// again is what marking the pods may take besides its updates, in seconds.
const again = 0.5

// nextRequest is when a kubelet whose request came to nothing makes the next: after
// 2, 4, 8, 16 s and then 32 s, up to a tenth more (client-go
// util/certificate/certificate_manager.go: wait.Backoff).
func (f *Fold) nextRequest(k Key) Window {
	number, err := strconv.Atoi(k.Subject)
	if err != nil || number < 2 {
		return Window{Class: Ordered, after: Key{CSRCreated, k.Node, ""}}
	}
	w := Window{Class: Derived, after: Key{CSRCreated, k.Node, ""}}
	if number > 2 {
		w.after = Key{CSRRepeated, k.Node, strconv.Itoa(number - 1)}
	}
	wait := math.Min(math.Pow(2, float64(number-1)), 32)
	w.Intervals = []Interval{{Min: wait, Max: wait*1.1 + 2}}
	w.Why = fmt.Sprintf("back-off of %.0f to %.1f s after the last one was answered", wait, wait*1.1)
	return w.takes(acting, 2)
}

// refusedAsking says whether the first refusal of a kind met a request for a
// certificate: one that was made with what lies on the disk, while all others go by
// what is in memory.
func (f *Fold) refusedAsking(k Key) bool {
	m, ok := f.Get(k)
	return ok && strings.HasPrefix(m.Note, "create certificatesigningrequests")
}

// lead is by how much a certificate may be older than a fault that has to wait
// until a kubelet has started with it, in seconds.
const lead = 15

// approval is when a request is approved: at once, unless that is the fault; then
// some time after it was taken back.
func (f *Fold) approval(node string) Window {
	created := Key{CSRCreated, node, ""}
	n := f.nodes[node]
	switch {
	case n != nil && !n.target, f.fault.approves(), f.fault.Kubelet != "": // a kubelet that is stopped asks when all is repaired
		return Window{Class: Derived, after: created, Why: "the approver acts on the event", Intervals: []Interval{{Min: 0, Max: 2}}}.takes(acting, 2)
	case f.fault.restartsController():
		return Window{Class: Derived, after: Key{ControllerLeads, node, ""}, Why: "the new leader lists what waits", Intervals: []Interval{{Min: 0, Max: 6}}}.takes(acting, 1)
	case f.fault.Release == nil:
		return Window{Class: Ordered, after: Key{FaultInjected, node, ""}}
	case f.fault.Type == "kcm-frozen": // nobody has derived when
		return Window{Class: Ordered, after: Key{FaultReleased, node, ""}}
	}
	return f.served(node, CSRCreated, "approver")
}

// served is when a controller gets to a request that it could not serve before. It
// tries again 0.2, 0.6, 1.4, 3, 6.2 s and so on after it first could not
// (controller/certificates/certificate_controller.go: 0.2 s doubling), unless the
// request is written to: then at once. The right may take a second to be seen.
func (f *Fold) served(node, first, who string) Window {
	released, ok := f.Get(Key{Name: FaultReleased, Node: node})
	from, asked := f.Get(Key{Name: first, Node: node})
	if f.fault.Release.Touch || !ok || !asked {
		w := Window{Class: Derived, after: Key{FaultReleased, node, ""}, Why: "the request is written to, which the " + who + " acts on", Intervals: []Interval{{Min: 0, Max: 2}}}.takes(acting, 2)
		if !f.fault.Release.Touch { // a forecast
			w.Class, w.Intervals, w.Why = Ordered, nil, "the "+who+"'s next attempt"
		}
		return w
	}
	x := (released.At - from.At).Seconds()
	w := Window{Class: Derived, after: from.Key}
	for k := 0; ; k++ {
		t := 0.2 * (math.Pow(2, float64(k)) - 1)
		if t < x {
			continue
		}
		w.Intervals = append(w.Intervals, Interval{Min: t, Max: t + 1})
		if t >= x+1 {
			break
		}
	}
	w.Why = fmt.Sprintf("the %s's attempts are 0.2 (2^k - 1) s after the request; the first after the release at %.1f s", who, x)
	if len(w.Intervals) > 1 {
		w.Why += ", or the next if the right was not seen yet"
	}
	return w.takes(acting, 1)
}

// election is when a new kube-controller-manager leads: its process starts, waits
// for a whole Lease of the one before, counted from when it first saw it, with a try
// every 1 to 2.2 retry periods, and takes it (client-go tools/leaderelection). To
// start takes up to 2.5 s after a crash and up to 6 s with a manifest that was moved
// back; 3 s are for the requests and the first of the Leases that it writes.
func (f *Fold) election(node string) Window {
	lease, err1 := f.cfg.seconds("kube-controller-manager", "leader-elect-lease-duration")
	retry, err2 := f.cfg.seconds("kube-controller-manager", "leader-elect-retry-period")
	if err1 != nil || err2 != nil {
		return Window{Class: Ordered, after: Key{FaultInjected, node, ""}}
	}
	w := Window{Class: Derived, after: Key{ControllerStopped, node, ""}, Why: fmt.Sprintf("start of the process, then a whole Lease of the one before, %s, tried every %s to %s", Duration(lease), Duration(retry), Duration(retry*22/10))}
	start := 2.5
	if f.fault.Release != nil {
		w.after, start = Key{FaultReleased, node, ""}, 6
	}
	w.Intervals = []Interval{{Min: lease.Seconds(), Max: start + lease.Seconds() + 2.2*retry.Seconds() + 3}}
	return w.takes(starting, start+3)
}

// restarted says whether the controller manager ended before a toleration was over:
// its timers are gone then.
func (f *Fold) restarted(node string, toleration time.Duration) bool {
	tainted, ok := f.Get(Key{NoExecuteTainted, node, ""})
	ended, stopped := f.Get(Key{Name: ControllerStopped, Node: node})
	if f.fault.Type == "kcm-killed" && !ok { // a forecast
		return toleration > 0
	}
	return ok && stopped && ended.At > tainted.At && tainted.At+toleration > ended.At
}

// afterController is the window of Ready=Unknown where the controller manager was
// away when the grace was over: the next one gives every node a grace of its own,
// from its first pass on, up to 5 s after it has taken the lead
// (node_lifecycle_controller.go: probeTimestamp of a node it has not seen yet).
func (f *Fold) afterController(node string) (Window, bool) {
	g, whole, pass := f.tim.G.Seconds(), f.tim.Whole().Seconds(), f.tim.Pass().Seconds()
	if f.fault.afterMark() {
		return Window{}, false
	}
	leads, ok := f.Get(Key{Name: ControllerLeads, Node: node})
	if stall, stalled := f.Get(Key{Name: LeaseStalled, Node: node}); f.fault.restartsController() && (!ok || !stalled || leads.At > stall.At) {
		return Window{Class: Derived, after: Key{ControllerLeads, node, ""}, Intervals: []Interval{{Min: g + 0.2, Max: whole + pass + 6}},
			Why: fmt.Sprintf("first pass of the new leader, up to 5 s after it leads, then the grace G = %s and the next pass P' = %.2f s", Duration(f.tim.G), pass)}.takes(acting, 1), true
	}
	if f.fault.Type != "kcm-frozen" {
		return Window{}, false
	}
	w := Window{Class: Derived, after: Key{FaultReleased, node, ""}, Intervals: []Interval{{Min: 0, Max: 2*pass + 1}}, Why: "it has seen the last renewal before it was frozen: the grace is over when it goes on"}
	if f.fault.At == nil { // the node died inside of the freeze
		w.Intervals = []Interval{{Min: g, Max: whole + 3*pass + 1}}
		w.Why = fmt.Sprintf("it has not seen the last renewal before it was frozen: that is news when it goes on, and a fresh grace G = %s begins", Duration(f.tim.G))
	}
	return w.takes(acting, 1), true
}

// runtimeDown is how old the container runtime's last answer may be
// (kubelet.go maxWaitForContainerRuntime); the kubelet asks every 5 s.
const runtimeDown, runtimeAsked = 30, 5

// saysNotReady is when a kubelet whose container runtime does not answer says that
// it is not ready. It reports with each sync, and before that asks the runtime
// for its version: that takes until the request times out (kubelet/nodestatus
// VersionInfo), and the condition is made after it.
func (f *Fold) saysNotReady(node string) Window {
	w := Window{Class: Derived, after: Key{Name: FaultInjected, Node: node}}
	if f.fault.Effect != EffectNotReady {
		w.Class = Ordered
		return w
	}
	timeout, err := f.cfg.seconds("kubelet", "runtimeRequestTimeout")
	if err != nil {
		timeout = 2 * time.Minute
	}
	t, sync := timeout.Seconds(), f.tim.Sync().Seconds()
	down := float64(runtimeDown - runtimeAsked)
	w.Intervals = []Interval{{Min: max(t, down), Max: runtimeDown + t + sync + 1}}
	if t > runtimeDown { // the first report after it finds it down
		w.Intervals[0].Max = t + sync + 1
	}
	w.Why = fmt.Sprintf("the next report, after up to %.1f s, waits %s for the runtime's version", sync, Duration(timeout))
	return w.takes(acting, 1)
}

// ready is when a kubelet says so whose container runtime answers again: the
// request that hangs is answered at once, else the next report.
func (f *Fold) ready(node string) Window {
	return Window{Class: Derived, after: Key{Name: FaultReleased, Node: node}, Intervals: []Interval{{Min: 0, Max: f.tim.twoSyncs()}},
		Why: fmt.Sprintf("what hangs is answered, the runtime is asked within 5 s, the next report comes up to %.1f s later", f.tim.Sync().Seconds())}.takes(acting, 1)
}

// syncs says how far apart a kubelet's syncs of its status are: "10 to 10.4 s".
func (t Timing) syncs() string {
	return fmt.Sprintf("%.4g to %.4g s", t.F.Seconds(), t.Sync().Seconds())
}

// twoSyncs is how long it takes, in seconds, where the first sync may still find what was,
// and what the reports take.
func (t Timing) twoSyncs() float64 { return 2*t.Sync().Seconds() + 1.2 }

// backdated is by how much the signer puts NotBefore before the time of issue
// (controller/certificates/authority/policies.go).
const backdated = 5 * time.Minute

// Fresh is the age that a certificate may have when an experiment that waits for
// the node's own begins with its fault: early enough that the node has hardly
// ever asked for the next.
const Fresh = 15 * time.Second

// naturalRotation is when a kubelet asks for its next certificate: after 70 to
// 90 % of the life of the present one (client-go
// util/certificate/certificate_manager.go nextRotationDeadline).
func (f *Fold) naturalRotation(node string) Window {
	w := Window{Class: Derived, after: Key{Name: FaultInjected, Node: node}}
	n := f.nodes[node]
	if n == nil || n.asked.notAfter.IsZero() {
		tau, err := f.cfg.seconds("kube-controller-manager", "cluster-signing-duration")
		if err != nil {
			w.Class = Ordered
			return w
		}
		life := tau + backdated
		w.Why = fmt.Sprintf("70 to 90 %% of the life of a certificate that was issued up to %s before", Duration(Fresh))
		w.Intervals = []Interval{{Min: max(0, (life*7/10 - backdated - Fresh).Seconds()), Max: (life*9/10 - backdated).Seconds() + 2}}
		return w
	}
	from := n.asked.notBefore.Sub(f.start) - f.zero
	life := n.asked.notAfter.Sub(n.asked.notBefore)
	w.Why = fmt.Sprintf("70 to 90 %% of the certificate's life of %s", Duration(life))
	w.Intervals = []Interval{{Min: max(0, (from + life*7/10).Seconds()), Max: (from + life*9/10).Seconds() + 2}}
	return w.takes(acting, 2)
}

// noExecute is the window of the one step with two branches. From 1.34 on the
// node controller queues the taint in the pass that wrote Ready=Unknown; when its
// worker runs before the lister has seen that write, the request is dropped and
// the rate limiter's token is spent, so that the taint comes 1/q later
// (nodelifecycle/node_lifecycle_controller.go doNoExecuteTaintingPass,
// scheduler/rate_limited_queue.go Try). Before 1.34 the queue is fed a pass later.
func (f *Fold) noExecute(node string) Window {
	pass, per := f.tim.Pass().Seconds(), 1/f.tim.Q
	w := Window{Class: Derived, after: Key{Name: ReadyUnknown, Node: node}}
	if s, wait, ok := f.tokenSpent(node); ok {
		w.Intervals = []Interval{{Min: wait, Max: wait + 1.3, Branch: "earlier taint in the zone"}}
		if wait > per { // the other node came after this one's Unknown: this one may have been first
			w.Intervals = append([]Interval{{Min: 0, Max: 1, Branch: "A: at once"}}, w.Intervals...)
		}
		w.Why = fmt.Sprintf("node %s spent the zone's token: 1/q = %.0f s after it", s.node, per)
		return w.takes(acting, 1)
	}
	if !f.tim.Race {
		w.Intervals = []Interval{{Min: f.tim.P.Seconds(), Max: pass + 1, Branch: "next pass"}}
		w.Why = "before 1.34 the queue is fed in the pass after Ready=Unknown"
		return w.takes(acting, 1)
	}
	late := max(per, f.tim.P.Seconds())
	w.Intervals = []Interval{{Min: 0, Max: 1, Branch: "A: at once"}, {Min: late, Max: late + 1.3, Branch: "B: with the next token"}}
	w.Why = fmt.Sprintf("worker period 0.1 s, or 1/q = %.0f s when the token was spent in vain", per)
	return w.takes(acting, 1)
}

// Recovery says whether a milestone belongs to the way back: it is waited for
// after the undo, not before. Where the node heals by itself only what the run does
// comes after it.
func (p FaultPlan) Recovery(name string) bool {
	switch name {
	case FaultUndone, RepairDone:
		return true
	case CertificateRotated, LeaseResumed, ReadyTrue, TaintsGone, PodsBack:
		return !p.heals()
	}
	return false
}

// A Due is a milestone that is still to come.
type Due struct {
	Key
	// From and To are the bounds of its window since the start of the timeline;
	// Known is false while the milestone from which they count is still to come.
	From, To time.Duration
	Known    bool
}

// Due tells when an expected milestone must come. Done is true when it has.
func (f *Fold) Due(k Key) (due Due, done bool) {
	if _, ok := f.Get(k); ok {
		return Due{Key: k}, true
	}
	w := f.WindowOf(k)
	due = Due{Key: k}
	from, ok := f.Get(w.after)
	if !ok || len(w.Intervals) == 0 {
		return due, false
	}
	due.Known = true
	due.From = from.At + time.Duration(w.Intervals[0].Min*float64(time.Second))
	due.To = from.At + time.Duration(w.Max()*float64(time.Second))
	return due, false
}

// belated is how long after its window a milestone is still waited for: on a slow machine it
// comes late, and is heard of later still. Only what does not come at all costs that time.
const belated = 10 * time.Second

// Settled says whether a milestone has come or can no longer come: its window has
// passed, or that of the milestone from which it counts. One without a bound is
// waited for with the given patience.
func (f *Fold) Settled(k Key, patience time.Duration) bool {
	if _, ok := f.Get(k); ok || f.Suppressed(k) != "" {
		return true
	}
	w := f.WindowOf(k)
	from, ok := f.Get(w.after)
	if !ok {
		return w.after.Name != FaultInjected && f.Settled(w.after, patience)
	}
	switch {
	case k.Name == LeaseStalled: // it lies in the past: it is noticed at a refusal, or by silence
		patience = f.tim.G + belated
	case len(w.Intervals) > 0:
		patience = time.Duration(w.Max()*float64(time.Second)) + belated
	}
	return f.now > from.At+patience
}

// Unhealed says what a repaired target still lacks; empty means that it is as
// before: with a certificate it rotated to by itself and, where they were lost,
// its heartbeat, readiness and pods.
func (f *Fold) Unhealed() string {
	for _, t := range f.cfg.Target {
		repaired, ok := f.Get(Key{Name: RepairDone, Node: t})
		if !ok {
			return "node " + t + " was not repaired"
		}
		if f.nodes[t].rotated <= repaired.At {
			return "the kubelet of " + t + " has not rotated its certificate"
		}
		if n := f.nodes[t]; n.ready["watch"] != "True" || max(n.renewed["audit"], n.renewed["watch"]) <= repaired.At {
			return "node " + t + " is not Ready"
		}
		if !f.reached(ReadyUnknown, t) {
			continue
		}
		for _, name := range []string{LeaseResumed, ReadyTrue, TaintsGone, PodsBack} {
			if !f.reached(name, t) {
				return name + " was not reached on " + t
			}
		}
	}
	return ""
}

// beforeDisruption ends a window of NoExecute where the zone was disrupted: from
// then on the rate is 0 (a second for the pass that notices and what is under way).
func (f *Fold) beforeDisruption(w Window) Window {
	unknown, ok := f.Get(w.after)
	if !ok || f.worst.state == "" || f.tim.Large {
		return w
	}
	end := (f.worst.since - unknown.At).Seconds() + 1
	for i := range w.Intervals {
		w.Intervals[i].Max = min(w.Intervals[i].Max, end)
	}
	w.Intervals = slices.DeleteFunc(w.Intervals, func(i Interval) bool { return i.Max < i.Min })
	w.Why += fmt.Sprintf("; nothing after the zone is in %s", f.worst.state)
	return w
}

// tokenSpent finds the last NoExecute taint of another node that a node had to wait
// for, and how long after its own Unknown, in seconds, the next token came.
func (f *Fold) tokenSpent(node string) (last spend, wait float64, ok bool) {
	unknown, known := f.Get(Key{Name: ReadyUnknown, Node: node})
	if !known {
		return spend{}, 0, false
	}
	own, tainted := f.got[Key{NoExecuteTainted, node, ""}]
	per := 1 / f.tim.Q
	for _, s := range f.spends {
		w := (s.at - unknown.At).Seconds() + per
		if s.node == node || w <= 0 || tainted && s.at > own.At || s.at > unknown.At+time.Second {
			continue
		}
		last, wait, ok = s, w, true
	}
	// Further nodes wait for each other: one token every 1/q.
	for chained := ok; chained; {
		chained = false
		for _, s := range f.spends {
			if s.node != node && s.at > last.at && (!tainted || s.at < own.At) && (s.at-last.at).Seconds() < per+1.3 {
				last, wait, chained = s, (s.at-unknown.At).Seconds()+per, true
			}
		}
	}
	return last, wait, ok
}

// podsOn counts the pods of a node that the node controller has to mark.
func (f *Fold) podsOn(node string) int {
	n := 0
	for _, p := range f.pods {
		if p.node == node && !p.gone {
			n++
		}
	}
	return n
}

// A Forecast is an expected milestone before anything has happened.
type Forecast struct {
	Key
	Window Window
	After  string // the milestone from which the window counts
	Limit  *Limit // the user's own
	// From and To are bounds since the injection; Bounded is false for the way
	// back, which begins when the hold is over, and for what has no bound.
	From, To time.Duration
	Bounded  bool
}

// Foretell derives the windows of an experiment from flags alone.
func Foretell(cfg *Config, plan *Plan) ([]Forecast, error) {
	f, err := NewFold(cfg, plan.Spec.Fault, time.Time{})
	if err != nil {
		return nil, err
	}
	var all []Forecast
	for _, x := range plan.Spec.Expect {
		k := Key{x.Milestone, "", x.Subject}
		w := f.WindowOf(k).rounded()
		fc := Forecast{Key: k, Window: w, After: after(w.after, k).Title(), Limit: limit(x)}
		if !plan.Spec.Fault.Recovery(k.Name) {
			fc.From, fc.To, fc.Bounded = f.bounds(k)
		}
		all = append(all, fc)
	}
	return all, nil
}

// bounds adds up the windows from the injection to a milestone.
func (f *Fold) bounds(k Key) (from, to time.Duration, ok bool) {
	switch k.Name {
	case FaultInjected:
		return 0, 0, true
	case KubeletStarted: // stop, install, start
		return 0, 5 * time.Second, true
	case KubeletStopped:
		return 0, time.Second, f.fault.At == nil
	}
	w := f.WindowOf(k)
	if len(w.Intervals) == 0 {
		return 0, 0, false
	}
	from, to, ok = f.bounds(w.after)
	return from + time.Duration(w.Intervals[0].Min*float64(time.Second)), to + time.Duration(w.Max()*float64(time.Second)), ok
}
