package judge

import (
	"fmt"
	"strings"
)

// Windows of the heartbeat: the Lease, and the refusals that end it.

// sinceInjection is of what the run, or somebody, does when it does it: it has no bound.
//
//	after FaultInjected
func (f *Fold) sinceInjection(k Key) Window { return ordered(k.of(FaultInjected)) }

// repairDone is the run's own act: it has no bound.
//
//	after FaultUndone
func (f *Fold) repairDone(k Key) Window { return ordered(k.of(FaultUndone)) }

// leaseStalled is the last renewal before the kubelet was stopped, or before its certificate
// ended: each request is verified anew.
//
//	CertificateExpired + [-I, 0.05]
//	KubeletStopped + [-I, 0.5], where the fault stops, freezes or pauses it, or starts it again with files that it cannot use
//
// Source: component-helpers apimachinery/lease/controller.go (I = 0.26 D + 0.5 s);
// apiserver pkg/authentication/request/x509/x509.go, v1.37.2.
func (f *Fold) leaseStalled(k Key) Window {
	const lastOne, stamped = 0.5, 0.05 // s: a renewal under way; the audit log's stamp of it
	i := f.interval(f.whenOf(k)).Seconds()
	if f.fault.silences() {
		return derived(k.of(KubeletStopped), fmt.Sprintf("the kubelet was stopped up to a renew interval I = %.2f s after its last renewal", i), Interval{Min: -i, Max: lastOne})
	}
	return derived(k.of(CertificateExpired), fmt.Sprintf("renew interval I <= 0.26 D + 0.5 = %.2f s before the end", i), Interval{Min: -i, Max: stamped})
}

// firstRefused401 is the first request of any kind after the certificate has ended.
//
//	CertificateExpired + [0, I]
//	KubeletStarted + [0, 5], where the kubelet starts with a certificate that is refused
//	as CSRCreated, where the request for the next certificate is the one that is refused
//
// Source: apiserver pkg/endpoints/filters/authentication.go, v1.37.2.
func (f *Fold) firstRefused401(k Key) Window {
	switch {
	case f.fault.effect == EffectRefused:
		return f.refusedAtStart(k)
	case f.refusedAsking(k):
		return f.naturalRotation(k)
	}
	i := f.interval(f.whenOf(k)).Seconds()
	return derived(k.of(CertificateExpired), fmt.Sprintf("the next request of any kind, at the latest the next renewal: I = %.2f s", i), Interval{Min: 0, Max: i})
}

// firstRefused403 is the first request without a certificate: after a 401 the kubelet closes its
// connections and presents none that has ended.
//
//	FirstRefused401 + [0, 0.5], where that was a Lease request: five tries without a pause
//	FirstRefused401 + [0, I], where it was another
//	CertificateExpired + [0, I + 0.5], where the 401 met the request for the next certificate
//	KubeletStarted + [0, 5], where the kubelet starts with another node's certificate
//	as CSRCreated, where the request for the next certificate is the one that is refused
//
// Source: pkg/kubelet/certificate/transport.go; component-helpers apimachinery/lease/controller.go
// maxUpdateRetries, v1.37.2.
func (f *Fold) firstRefused403(k Key) Window {
	const retries = 0.5 // s, for five of them
	i := f.interval(f.whenOf(k)).Seconds()
	switch {
	case f.fault.effect == EffectRefused:
		return f.refusedAtStart(k)
	case f.refusedAsking(k):
		return f.naturalRotation(k)
	case f.refusedAsking(k.of(FirstRefused401)):
		return derived(k.of(CertificateExpired), fmt.Sprintf("one more 401 at the next renewal, at the latest after I = %.2f s, then none is presented", i), Interval{Min: 0, Max: i + retries}).takes(acting, retries)
	}
	if m, ok := f.Get(k.of(FirstRefused401)); ok && !strings.Contains(m.Note, "leases ") {
		return derived(m.Key, "the 401 was no Lease request: the next renewal", Interval{Min: 0, Max: i})
	}
	return derived(k.of(FirstRefused401), "the 401 was a Lease request: five tries without a pause", Interval{Min: 0, Max: retries}).takes(acting, retries)
}

func (f *Fold) refusedAtStart(k Key) Window {
	return derived(k.of(KubeletStarted), "start of the kubelet, its first request", Interval{Min: 0, Max: kubeletStart}).takes(starting, kubeletStart)
}

// leaseResumed is the first renewal after the stall: at once where the kubelet starts or wakes
// up, and after its back-off where it went on trying. What is refused closes its connection.
//
//	RepairDone + [0, 6]
//	CSRIssued + [0, 7 + 1.5], where the node heals by itself
//	FaultReleased + [0, 2], where the kubelet was frozen or its node paused
//
// Source: pkg/kubelet/kubelet.go; component-helpers apimachinery/lease/controller.go
// maxBackoff, v1.37.2.
func (f *Fold) leaseResumed(k Key) Window {
	const backoff, connect = 7, 1.5 // s
	switch {
	case f.fault.heals() && f.fault.effect == EffectSilent:
		return derived(k.of(FaultReleased), "the renewal that was due goes out at once", Interval{Min: 0, Max: service}).takes(acting, service)
	case f.fault.heals():
		return derived(k.of(CSRIssued), "back-off of up to 7 s, then a new connection with the new certificate", Interval{Min: 0, Max: backoff + connect}).takes(acting, connect)
	}
	return derived(k.of(RepairDone), "start of the kubelet", Interval{Min: 0, Max: spareStart}).takes(starting, spareStart)
}
