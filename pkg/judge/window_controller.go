package judge

import (
	"fmt"
	"time"
)

// Windows of kube-controller-manager and of a kubelet that ends by itself.

// firstPass is how long after it has taken the lead a node controller makes its first pass at
// the latest, in seconds: its informers are filled first.
const firstPass = 5

// controllerLeads is when a new kube-controller-manager leads: its process starts, waits for a
// whole Lease of the one before, counted from when it first saw it, with a try every 1 to 2.2
// retry periods, and takes it. To start takes up to 2.5 s after a crash and up to 6 s with a
// manifest that was moved back; 3 s are for the requests and the first of the Leases that it
// writes.
//
//	ControllerStopped + [L, 2.5 + L + 2.2 R + 3], L = leader-elect-lease-duration, R = leader-elect-retry-period
//	FaultReleased + [L, 6 + L + 2.2 R + 3], where its manifest was taken away
//
// Source: client-go tools/leaderelection/leaderelection.go, v1.37.2.
func (f *Fold) controllerLeads(k Key) Window {
	const jittered, requests, crashed, moved = 2.2, 3, 2.5, 6
	lease, err1 := f.cfg.seconds("kube-controller-manager", "leader-elect-lease-duration")
	retry, err2 := f.cfg.seconds("kube-controller-manager", "leader-elect-retry-period")
	if err1 != nil || err2 != nil {
		return ordered(k.of(FaultInjected))
	}
	from, begins := k.of(ControllerStopped), crashed
	if f.fault.Release != nil {
		from, begins = k.of(FaultReleased), moved
	}
	return derived(from, fmt.Sprintf("start of the process, then a whole Lease of the one before, %s, tried every %s to %s", Duration(lease), Duration(retry), Duration(retry*22/10)),
		Interval{Min: lease.Seconds(), Max: begins + lease.Seconds() + jittered*retry.Seconds() + requests}).takes(starting, begins+requests)
}

// afterController is the window of Ready=Unknown where the controller manager was
// away when the grace was over: the next one gives every node a grace of its own,
// from its first pass on, up to 5 s after it has taken the lead
// (node_lifecycle_controller.go: probeTimestamp of a node it has not seen yet).
func (f *Fold) afterController(k Key) (Window, bool) {
	g, whole, pass := f.tim.G.Seconds(), f.tim.Whole().Seconds(), f.tim.Pass().Seconds()
	if f.fault.afterMark() {
		return Window{}, false
	}
	leads, ok := f.Get(k.of(ControllerLeads))
	if stall, stalled := f.Get(k.of(LeaseStalled)); f.fault.restartsController() && (!ok || !stalled || leads.At > stall.At) {
		const leaderSeen = 0.2 // s, from the Lease to the first pass at the earliest
		return derived(k.of(ControllerLeads), fmt.Sprintf("first pass of the new leader, up to 5 s after it leads, then the grace G = %s and the next pass P' = %.2f s", Duration(f.tim.G), pass),
			Interval{Min: g + leaderSeen, Max: whole + pass + firstPass + reaction}).takes(acting, reaction), true
	}
	if f.fault.Controller != FateFrozen {
		return Window{}, false
	}
	if f.fault.At == nil { // the node died inside of the freeze
		return derived(k.of(FaultReleased), fmt.Sprintf("it has not seen the last renewal before it was frozen: that is news when it goes on, and a fresh grace G = %s begins", Duration(f.tim.G)),
			Interval{Min: g, Max: whole + 3*pass + reaction}).takes(acting, reaction), true
	}
	return derived(k.of(FaultReleased), "it has seen the last renewal before it was frozen: the grace is over when it goes on",
		Interval{Min: 0, Max: 2*pass + reaction}).takes(acting, reaction), true
}

// How a kubelet ends without a certificate, in seconds: it looks every ten, ends when it has had
// none for five minutes, and gives up a request after 15.
const (
	exitTick      = 10
	exitAfter     = 5 * 60
	requestWaits  = 15 * 60
	secondRequest = 2 // its back-off before the next one
)

// kubeletExited is when a kubelet whose certificate has ended ends too: it has had no
// certificate for five minutes and takes the server for responsive. It does so after a rotation
// in the same process, or a request that was answered with 401, 403 or 404. A request that waits
// says nothing, for 15 minutes; one that fails otherwise says that the server is not
// responsive; one that cannot even be made says nothing ever.
//
//	CertificateExpired + [290, 302]: five minutes, seen at a ten-second tick
//	CSRCreated + [902, 914], where its process was started since: the request waits 15 minutes, then the next one is refused
//	KubeletStarted + [0, 5], where it cannot read its certificate when it starts
//	never, where no request of its process is answered
//
// Source: client-go util/certificate/certificate_manager.go ServerHealthy;
// pkg/kubelet/certificate/transport.go, v1.37.2.
func (f *Fold) kubeletExited(k Key) Window {
	never := func(why string) Window {
		w := ordered(k.of(CertificateExpired))
		w.Why = why
		return w
	}
	n := f.nodes[k.Node]
	answers := n != nil && n.answered
	if n != nil && f.reached(FaultUndone, k.Node) {
		answers = n.responsive
	}
	switch effect := f.fault.effect; {
	case effect == EffectCrashLoop:
		return derived(k.of(KubeletStarted), "it reads its files when it starts", Interval{Min: 0, Max: kubeletStart}).takes(starting, kubeletStart)
	case effect == EffectUnsent:
		return never("never: its request failed before it was sent, so it does not take the server for responsive")
	case answers, effect == EffectUnstored, effect == "" && !f.fault.mints():
		return derived(k.of(CertificateExpired), "five minutes without a certificate while the server answers, seen at a ten-second tick", Interval{Min: exitAfter - exitTick, Max: exitAfter + service}).takes(acting, service)
	case effect != "":
		return never("never: no request of this process was answered, so it does not take the server for responsive")
	}
	const least = requestWaits + secondRequest
	return derived(k.of(CSRCreated), "15 minutes for the request, then the next one is refused", Interval{Min: least, Max: least + exitTick + service}).takes(acting, service)
}

// whenOf is when a milestone was reached, or now.
func (f *Fold) whenOf(k Key) time.Duration {
	if m, ok := f.Get(k); ok {
		return m.At
	}
	return f.now
}
