package judge

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Windows of the certificate: from the request for the next one to its use, and to its end.

// What a step takes besides what its flags rule, in seconds. The machine's part of it is told
// beside the window: see takes.
const (
	reaction     = 1.0 // a controller acts on an event that a watch delivers: under 0.2 s were seen
	service      = 2.0 // a request is served, or a kubelet stores what it waited for
	kubeletStart = 5.0 // systemd starts a kubelet, up to its first request
	// spareStart is the same with a certificate that the repair has made: files are copied first.
	spareStart = 6.0
)

// lead is by how much a certificate may be older than a fault that has to wait
// until a kubelet has started with it, in seconds.
const lead = 15

// csrCreated is when a kubelet asks for its next certificate: after 70 to 90 % of the life of
// the present one; at once where it starts with one that is past that.
//
//	FaultInjected + [notBefore + 0.7 life, notBefore + 0.9 life + 2]
//	KubeletStarted + [0, 5], with a certificate past its rotation deadline
//	RepairDone + [0, 6], with the spare certificate of the repair
//
// Source: client-go util/certificate/certificate_manager.go nextRotationDeadline, v1.37.2.
func (f *Fold) csrCreated(k Key) Window {
	repaired := k.of(RepairDone)
	if done, ok := f.Get(repaired); ok {
		if m, asked := f.Get(k); !asked || m.At > done.At {
			return derived(repaired, "start of the kubelet; the spare certificate is past its rotation deadline", Interval{Min: 0, Max: spareStart}).takes(starting, spareStart)
		}
	}
	started := k.of(KubeletStarted)
	if f.fault.mints() && f.fault.Certificate.Rotate != "later" {
		return derived(started, "start of the kubelet; a certificate past its rotation deadline is rotated at once", Interval{Min: 0, Max: kubeletStart}).takes(starting, kubeletStart)
	}
	if n := f.nodes[k.Node]; f.fault.mints() && (n == nil || n.asked.notAfter.IsZero()) { // a forecast
		life := time.Duration(f.fault.Certificate.Mint).Seconds()
		if f.fault.Trigger == ByRotation {
			return derived(k.of(FaultInjected), "70 to 90 % of the life of the certificate that was made just before", Interval{Min: 0.7*life - lead, Max: 0.9*life + service})
		}
		return derived(started, "70 to 90 % of the life of the certificate that is made", Interval{Min: 0.7*life - 1, Max: 0.9*life + service})
	}
	return f.naturalRotation(k)
}

// backdated is by how much the signer puts NotBefore before the time of issue
// (controller/certificates/authority/policies.go).
const backdated = 5 * time.Minute

// Fresh is the age that a certificate may have when an experiment that waits for
// the node's own begins with its fault: early enough that the node has hardly
// ever asked for the next.
const Fresh = 15 * time.Second

// naturalRotation is when a kubelet asks for its next certificate by itself: see csrCreated.
func (f *Fold) naturalRotation(k Key) Window {
	injected := k.of(FaultInjected)
	n := f.nodes[k.Node]
	if n == nil || n.asked.notAfter.IsZero() {
		tau, err := f.cfg.seconds("kube-controller-manager", "cluster-signing-duration")
		if err != nil {
			return ordered(injected)
		}
		life := tau + backdated
		return derived(injected, fmt.Sprintf("70 to 90 %% of the life of a certificate that was issued up to %s before", Duration(Fresh)),
			Interval{Min: max(0, (life*7/10 - backdated - Fresh).Seconds()), Max: (life*9/10 - backdated).Seconds() + service})
	}
	from := f.sinceStart(n.asked.notBefore) - f.zero
	life := n.asked.notAfter.Sub(n.asked.notBefore)
	return derived(injected, fmt.Sprintf("70 to 90 %% of the certificate's life of %s", Duration(life)),
		Interval{Min: max(0, (from + life*7/10).Seconds()), Max: (from + life*9/10).Seconds() + service}).takes(acting, service)
}

// csrRepeated is when a kubelet whose request came to nothing makes the next.
//
//	the request before + [w, 1.1 w + 2], w = 2, 4, 8, 16 s and then 32 s
//
// Source: client-go util/certificate/certificate_manager.go wait.Backoff, v1.37.2.
func (f *Fold) csrRepeated(k Key) Window {
	before := k.of(CSRCreated)
	number, err := strconv.Atoi(k.Subject)
	if err != nil || number < 2 {
		return ordered(before)
	}
	if number > 2 {
		before = Key{CSRRepeated, k.Node, strconv.Itoa(number - 1)}
	}
	const longest, jitter = 32, 1.1
	wait := math.Min(math.Pow(2, float64(number-1)), longest)
	return derived(before, fmt.Sprintf("back-off of %.0f to %.1f s after the last one was answered", wait, wait*jitter), Interval{Min: wait, Max: wait*jitter + service}).takes(acting, service)
}

// csrApproved is when a request is approved: at once, unless that is the fault; then some time
// after it was taken back.
//
//	CSRCreated + [0, 2]
//	CSRCreated + [t, t + 1], t the first of 0.2 (2^k - 1) s after the release; FaultReleased + [0, 2] where the request is touched
//	ControllerLeads + [0, 6], where the controller manager was replaced
//
// Source: pkg/controller/certificates/certificate_controller.go, v1.37.2.
func (f *Fold) csrApproved(k Key) Window {
	n := f.nodes[k.Node]
	switch {
	case n != nil && !n.target, f.fault.Withholds != StepApproval, f.fault.Kubelet != "": // a kubelet that is stopped asks when all is repaired
		return derived(k.of(CSRCreated), "the approver acts on the event", Interval{Min: 0, Max: service}).takes(acting, service)
	case f.fault.restartsController():
		return derived(k.of(ControllerLeads), "the new leader lists what waits", Interval{Min: 0, Max: firstPass + reaction}).takes(acting, reaction)
	case f.fault.Release == nil:
		return ordered(k.of(FaultInjected))
	case f.fault.Controller == FateFrozen: // nobody has derived when
		return ordered(k.of(FaultReleased))
	}
	return f.served(k.of(CSRCreated), "approver")
}

// served is when a controller gets to a request that it could not serve before. It
// tries again 0.2, 0.6, 1.4, 3, 6.2 s and so on after it first could not
// (controller/certificates/certificate_controller.go: 0.2 s doubling), unless the
// request is written to: then at once. The right may take a second to be seen.
func (f *Fold) served(first Key, who string) Window {
	released, ok := f.Get(first.of(FaultReleased))
	from, asked := f.Get(first)
	switch {
	case f.fault.Release.Touch:
		return derived(first.of(FaultReleased), "the request is written to, which the "+who+" acts on", Interval{Min: 0, Max: service}).takes(acting, service)
	case !ok || !asked: // a forecast
		w := ordered(first.of(FaultReleased)).takes(acting, service)
		w.Why = "the " + who + "'s next attempt"
		return w
	}
	const firstRetry, seen = 0.2, 1 // s
	x := (released.At - from.At).Seconds()
	w := derived(from.Key, fmt.Sprintf("the %s's attempts are 0.2 (2^k - 1) s after the request; the first after the release at %.1f s", who, x))
	for k := 0; len(w.Intervals) == 0 || w.Intervals[len(w.Intervals)-1].Min < x+seen; k++ {
		if t := firstRetry * (math.Pow(2, float64(k)) - 1); t >= x {
			w.Intervals = append(w.Intervals, Interval{Min: t, Max: t + reaction})
		}
	}
	if len(w.Intervals) > 1 {
		w.Why += ", or the next if the right was not seen yet"
	}
	return w.takes(acting, reaction)
}

// csrDenied is somebody's own act: it has no bound.
//
//	after CSRCreated
func (f *Fold) csrDenied(k Key) Window { return ordered(k.of(CSRCreated)) }

// csrIssued is when the signer writes the certificate: on the approval, or on its next attempt
// after the fault was taken back.
//
//	CSRApproved + [0, 2]
//	CSRApproved + [t, t + 1], t the first of 0.2 (2^k - 1) s after the release; FaultReleased + [0, 2] where the request is touched
//
// Source: pkg/controller/certificates/certificate_controller.go and signer/signer.go, v1.37.2.
func (f *Fold) csrIssued(k Key) Window {
	if f.fault.Withholds == StepIssue && f.fault.Release != nil {
		return f.served(k.of(CSRApproved), "signer")
	}
	return derived(k.of(CSRApproved), "the signer acts on the event", Interval{Min: 0, Max: service}).takes(acting, service)
}

// certificateRotated is when the kubelet stores what it was issued.
//
//	CSRIssued + [0, 2], where the node heals by itself
//	RepairDone + [0, 30], where the repair begins a rotation of its own: approver, signer and store
//
// Source: client-go util/certificate/certificate_manager.go rotateCerts, v1.37.2.
func (f *Fold) certificateRotated(k Key) Window {
	const whole = 30 // s, from the start of the kubelet on
	switch {
	case f.fault.heals():
		return derived(k.of(CSRIssued), "the kubelet stores what it waited for", Interval{Min: 0, Max: service}).takes(acting, service)
	case f.reached(RepairDone, k.Node), !f.reached(CertificateRotated, k.Node):
		return derived(k.of(RepairDone), "the spare certificate rotates at once: approver, signer and store work again", Interval{Min: 0, Max: whole}).takes(starting+2*acting, whole)
	}
	return ordered(k.of(FaultInjected))
}

// certificateInUse is the first request with the new certificate. Every ten seconds it is seen
// whether it is another; then connections are closed.
//
//	CertificateRotated + [0, 10 + I + 1]
//
// Source: pkg/kubelet/certificate/transport.go updateTransport, v1.37.2.
func (f *Fold) certificateInUse(k Key) Window {
	const tick = 10 // s
	i := f.interval(f.whenOf(k)).Seconds()
	return derived(k.of(CertificateRotated), fmt.Sprintf("a ten-second tick closes the connections, then the next request: I = %.2f s", i), Interval{Min: 0, Max: tick + i + reaction}).takes(acting, reaction)
}

// certificateExpired is NotAfter: no window, and a forecast of it from what is known. It is a
// whole second.
//
//	after FaultInjected
func (f *Fold) certificateExpired(k Key) Window {
	w := ordered(k.of(FaultInjected))
	if f.reached(CertificateExpired, k.Node) {
		return w
	}
	if n := f.nodes[k.Node]; n != nil && !n.inUse.notAfter.IsZero() {
		left := (f.expiry(n) - f.zero).Seconds()
		w.Intervals = []Interval{{Min: left, Max: left}}
	} else if f.fault.mints() {
		life := time.Duration(f.fault.Certificate.Mint).Seconds()
		w.after, w.Intervals = k.of(KubeletStarted), []Interval{{Min: life - 1, Max: life + 1}}
		if f.fault.Trigger == ByRotation {
			w.after, w.Intervals = k.of(FaultInjected), []Interval{{Min: life - lead, Max: life + 1}}
		}
	} else if life, err := f.cfg.seconds("kube-controller-manager", "cluster-signing-duration"); err == nil {
		w.Intervals = []Interval{{Min: (life - Fresh).Seconds(), Max: life.Seconds()}}
	}
	return w
}

// refusedAsking says whether the first refusal of a kind met a request for a
// certificate: one that was made with what lies on the disk, while all others go by
// what is in memory.
func (f *Fold) refusedAsking(k Key) bool {
	m, ok := f.Get(k)
	return ok && strings.HasPrefix(m.Note, "create certificatesigningrequests")
}
