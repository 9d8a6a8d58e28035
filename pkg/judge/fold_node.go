package judge

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// A zone is the state in which the node controller sees all nodes together: kind's
// nodes have no zone labels, so there is one.
type zone struct {
	state string // "" is Normal
	since time.Duration
}

type spend struct {
	node string
	at   time.Duration
}

// reportedStatus notes a status report, the other heartbeat beside the Lease,
// until the node is given up or repaired.
func (f *Fold) reportedStatus(node string, at time.Duration, user string) {
	if n := f.nodes[node]; n != nil && user == nodeUser+node && !f.reached(ReadyUnknown, node) && !f.reached(RepairDone, node) {
		n.reported = at
	}
}

// stalled marks LeaseStalled at the last accepted renewal, by each source.
func (f *Fold) stalled(node string, n *nodeState) {
	if n.silent || !f.began {
		return
	}
	n.silent = true
	k := Key{LeaseStalled, node, ""}
	for _, source := range []string{timeline.SourceAudit, timeline.SourceWatch} {
		if last, ok := n.renewed[source]; ok {
			f.mark(k, source, last, "")
		}
	}
	if m, ok := f.got[k]; ok { // noticed by another event than the renewal
		m.took = n.renewalIn
	}
}

// gap is the longest time between two renewals of a kubelet that is well: the renew
// interval, a new connection after a rotation (1.5 s), or a start (5 s).
func (f *Fold) gap(node string, at time.Duration) time.Duration {
	if f.reached(KubeletStarted, node) {
		return f.interval(at) + max(5*time.Second, row(f.near(at), starting))
	}
	return f.interval(at) + max(1500*time.Millisecond, row(f.near(at), acting))
}

// renewed notes an accepted renewal. A watch may deliver long after it was made what was
// renewed before the refusal.
func (f *Fold) renewed(node, source string, at, made time.Duration, cred string) {
	n := f.nodes[node]
	if n == nil {
		return
	}
	if stall, ok := f.got[Key{LeaseStalled, node, ""}]; ok && made > stall.At+f.tim.I() {
		note := ""
		if cred != "" {
			note = "with certificate " + cred
		}
		f.mark(Key{LeaseResumed, node, ""}, source, at, note)
		n.silent = false
	}
	if last := n.renewed[source]; n.target && source == timeline.SourceAudit && last > 0 && f.began && !f.reached(LeaseStalled, node) && at-last > f.gap(node, at) {
		f.mark(Key{RenewalLate, node, ""}, source, at, fmt.Sprintf("%.2f s after the one before", (at-last).Seconds()))
	}
	n.renewed[source] = max(n.renewed[source], at)
	if source == timeline.SourceAudit {
		n.renewalIn = f.took
	}
	if source == timeline.SourceWatch {
		n.renewals++
	}
}

func (f *Fold) readiness(node, source string, at time.Duration, status string) {
	n := f.nodes[node]
	if n == nil || n.ready[source] == status {
		return
	}
	was := n.ready[source]
	n.ready[source] = status
	f.zoneAt(at)
	switch status {
	case "Unknown":
		if was != "" || source == timeline.SourceAudit {
			if !f.reached(ReadyUnknown, node) {
				n.toMark, n.passes = f.podsOn(node), nil
			}
			f.mark(Key{ReadyUnknown, node, ""}, source, at, "")
			f.allUnready(node)
		}
	case "False":
		if was != "" || source == timeline.SourceAudit { // the audit log has changes only
			f.mark(Key{ReadyFalse, node, ""}, source, at, "")
		}
	case "True":
		if f.reached(ReadyUnknown, node) || f.fault.effect == EffectNotReady && f.reached(ReadyFalse, node) {
			f.mark(Key{ReadyTrue, node, ""}, source, at, "")
			f.podsBack(node, at) // a kubelet that went on tells of its pods first
		}
	}
}

// whyLate tells a taint that was dropped before anybody tried from one that was
// tried and failed: both come when the next token does. A node that waited for
// another's token is late for that reason.
func (f *Fold) whyLate(node string, at time.Duration) string {
	unknown, ok := f.Get(Key{Name: ReadyUnknown, Node: node})
	if _, _, waited := f.tokenSpent(node); !ok || waited || at-unknown.At < time.Second {
		return ""
	}
	if reads := f.nodes[node].attempts - 1; reads > 0 {
		return fmt.Sprintf("the node controller had tried before: it read the node %d times in between", reads)
	}
	return "nobody tried before: the request had been dropped (stale lister)"
}

// zoneAt follows the state of the zone. With fewer Ready nodes than the threshold
// allows, and more than two that are not, the rate of NoExecute taints drops: to
// none at all where the cluster is small (nodelifecycle ComputeZoneState,
// ReducedQPSFunc); with none Ready, taints are taken back.
func (f *Fold) zoneAt(at time.Duration) {
	down := 0
	for _, n := range f.nodes {
		if s := cmp.Or(n.ready[timeline.SourceAudit], n.ready[timeline.SourceWatch]); s == "Unknown" || s == "False" {
			down++
		}
	}
	state := ""
	switch {
	case down > 0 && down == len(f.nodes):
		state = "FullDisruption"
	case down > 2 && float64(down)/float64(len(f.nodes)) >= f.tim.Unhealthy:
		state = "PartialDisruption"
	}
	if state != f.zone.state {
		f.zone = zone{state, at}
	}
	if state != "" && f.worst.state == "" {
		f.worst = f.zone
	}
}

// Suppressed says why a milestone cannot come: the zone was disrupted before its
// window was over. Empty if it can.
func (f *Fold) Suppressed(k Key) string {
	switch k.Name {
	case NoExecuteTainted:
		unknown, ok := f.Get(Key{Name: ReadyUnknown, Node: k.Node})
		if !ok || f.worst.state == "" || f.tim.Large {
			return ""
		}
		if end := unknown.At + time.Duration(f.noExecute(k).Max()*float64(time.Second)); f.worst.since < end {
			return fmt.Sprintf("none: the zone is in %s since %.2f s, eviction rate 0", f.worst.state, (f.worst.since - f.zero).Seconds())
		}
	case PodEvicted, ReplacementReady:
		if _, tainted := f.Get(Key{Name: NoExecuteTainted, Node: k.Node}); !tainted {
			return f.Suppressed(Key{Name: NoExecuteTainted, Node: k.Node})
		}
	}
	return ""
}

func (f *Fold) tainted(node, source string, at time.Duration, taints string) {
	n := f.nodes[node]
	if n == nil {
		return
	}
	had, has := n.taints[source], taints
	n.taints[source] = taints
	for _, name := range []string{NoScheduleTainted, NoExecuteTainted} {
		effect := ":" + strings.TrimSuffix(name, "Tainted")
		// not-ready is the kubelet's word, for a moment after a start, say.
		is, was := strings.Contains(has, unreachable+effect), strings.Contains(had, unreachable+effect)
		first, seen := f.got[Key{name, node, ""}]
		if seen {
			_, seen = first.Seen[source]
		}
		if !is || was {
			continue
		}
		note := ""
		if name == NoExecuteTainted && source == timeline.SourceAudit {
			f.spends = append(f.spends, spend{node, at})
			note = f.whyLate(node, at)
		}
		if seen && name == NoExecuteTainted && !f.reached(RepairDone, node) {
			f.mark(Key{name, node, Again}, source, at, "")
		} else {
			f.mark(Key{name, node, ""}, source, at, note)
		}
	}
	for _, effect := range []string{"NoSchedule", "NoExecute"} {
		if is, was := strings.Contains(has, notReady+":"+effect), strings.Contains(had, notReady+":"+effect); is && !was {
			if effect == "NoExecute" && source == timeline.SourceAudit {
				f.spends = append(f.spends, spend{node, at})
			}
			f.mark(Key{NotReadyTainted, node, effect}, source, at, "")
		}
	}
	// By a source that had shown them: another may be late.
	lost := func(taint string) bool { return strings.Contains(had, taint) && !strings.Contains(has, taint) }
	if (lost(unreachable) || lost(notReady)) && (f.reached(NoScheduleTainted, node) || f.reached(NotReadyTainted, node)) && !strings.Contains(has, unreachable) && !strings.Contains(has, notReady) {
		f.mark(Key{TaintsGone, node, ""}, source, at, "")
	}
}

// passTime marks what happens by the mere passing of time.
func (f *Fold) passTime() {
	if !f.began {
		return
	}
	for _, node := range f.cfg.Nodes { // in an order of its own: certificates may end in the same second
		name, n := node.Name, f.nodes[node.Name]
		if !n.inUse.notAfter.IsZero() {
			// The last instant at which it is valid (crypto/x509: now.After(NotAfter) is refused).
			if e := f.expiry(n); e > f.zero && f.now > e {
				f.mark(Key{CertificateExpired, name, ""}, timeline.SourceNode, e, "")
			}
		}
		last := max(n.renewed[timeline.SourceAudit], n.renewed[timeline.SourceWatch])
		if last > 0 && f.now-last > f.tim.G {
			f.stalled(name, n)
		}
	}
}
