package judge

import (
	"fmt"
	"slices"
	"time"
)

// Windows of the node's conditions and taints: what the node lifecycle controller writes, and
// what the kubelet reports.

// readyUnknown is when the node controller gives a node up: in the first pass after the grace.
// A status report is a heartbeat too: it makes the controller forget the Lease that it has
// seen, and take the old one for news in the pass after.
//
//	LeaseStalled + [G, ceil(G/P) P + P' + 1]; one pass later where a status report was the last heartbeat
//	ControllerLeads + [G + 0.2, ceil(G/P) P + P' + 6], where the controller manager was replaced before the stall
//	FaultReleased + [0, 2 P' + 1], where it was frozen after it had seen the last renewal
//	FaultReleased + [G, ceil(G/P) P + 3 P' + 1], where it was frozen before that
//
// Source: pkg/controller/nodelifecycle/node_lifecycle_controller.go monitorNodeHealth and
// tryUpdateNodeHealth, v1.37.2.
func (f *Fold) readyUnknown(k Key) Window {
	if w, ok := f.afterController(k); ok {
		return w
	}
	t, pass := f.tim, f.tim.Pass().Seconds()
	most := t.Whole().Seconds() + pass + reaction
	w := derived(k.of(LeaseStalled), fmt.Sprintf("grace G = %s, then the next pass P' = %.2f s", Duration(t.G), pass), Interval{Min: t.G.Seconds(), Max: most, Branch: "next pass"}).takes(acting, reaction)
	if stall, ok := f.Get(w.after); ok && f.nodes[k.Node].reported >= stall.At-t.P {
		later := max(0, (f.nodes[k.Node].reported - stall.At).Seconds())
		w.Intervals = append(w.Intervals, Interval{Min: most, Max: most + later + pass, Branch: "one pass later: a status report was the last heartbeat"})
	}
	return w
}

// runtimeDown is how old the container runtime's last answer may be
// (kubelet.go maxWaitForContainerRuntime); the kubelet asks every 5 s.
const runtimeDown, runtimeAsked = 30, 5

// readyFalse is when a kubelet whose container runtime does not answer says that it is not
// ready. It reports with each sync, and before that asks the runtime for its version: that
// takes until the request times out, and the condition is made after it.
//
//	FaultInjected + [max(T, 25), 30 + T + 1.04 F + 1], T = runtimeRequestTimeout; [T, T + 1.04 F + 1] where T is over 30 s
//
// Source: pkg/kubelet/kubelet.go maxWaitForContainerRuntime; pkg/kubelet/nodestatus/setters.go
// VersionInfo, v1.37.2.
func (f *Fold) readyFalse(k Key) Window {
	if f.fault.effect != EffectNotReady {
		return ordered(k.of(FaultInjected))
	}
	timeout, err := f.cfg.seconds("kubelet", "runtimeRequestTimeout")
	if err != nil {
		timeout = 2 * time.Minute // Kubernetes' default, where the field was not read
	}
	t, sync := timeout.Seconds(), f.tim.Sync().Seconds()
	in := Interval{Min: max(t, runtimeDown-runtimeAsked), Max: runtimeDown + t + sync + reaction}
	if t > runtimeDown { // the first report after it finds it down
		in.Max = t + sync + reaction
	}
	return derived(k.of(FaultInjected), fmt.Sprintf("the next report, after up to %.1f s, waits %s for the runtime's version", sync, Duration(timeout)), in).takes(acting, reaction)
}

// readyTrue is when a kubelet that was given up, or was not ready, reports Ready.
//
//	RepairDone + [0, 7]: it starts, and reports at once
//	CSRIssued + [0, 1.04 F + 1.5], where the node heals by itself: its watch of the node lives on, and it reports at the next sync
//	FaultReleased + [0, 2 (1.04 F) + 1.2], where kubelet, node or runtime was frozen: the first sync may still find the runtime down
//
// Source: pkg/kubelet/kubelet.go fastStatusUpdateOnce; kubelet_node_status.go syncNodeStatus,
// v1.37.2.
func (f *Fold) readyTrue(k Key) Window {
	const report, firstReport = 1.5, 7 // s
	t := f.tim
	switch {
	case f.fault.heals() && f.fault.effect == EffectSilent:
		return derived(k.of(FaultReleased), "the first sync may still find the runtime down, the next comes "+t.syncs()+" later", Interval{Min: 0, Max: t.twoSyncs()}).takes(acting, reaction)
	case f.fault.heals() && f.fault.effect == EffectNotReady: // the request that hangs is answered at once, else the next report
		return derived(k.of(FaultReleased), fmt.Sprintf("what hangs is answered, the runtime is asked within 5 s, the next report comes up to %.1f s later", t.Sync().Seconds()), Interval{Min: 0, Max: t.twoSyncs()}).takes(acting, reaction)
	case f.fault.heals():
		return derived(k.of(CSRIssued), "the kubelet sees that it is Unknown and reports at the next sync, every "+t.syncs(), Interval{Min: 0, Max: t.Sync().Seconds() + report}).takes(acting, report)
	}
	return derived(k.of(RepairDone), "start of the kubelet, first status report", Interval{Min: 0, Max: firstReport}).takes(starting, firstReport)
}

// syncs says how far apart a kubelet's syncs of its status are: "10 to 10.4 s".
func (t Timing) syncs() string {
	return fmt.Sprintf("%.4g to %.4g s", t.F.Seconds(), t.Sync().Seconds())
}

// twoSyncs is how long it takes, in seconds, where the first sync may still find what was,
// and what the reports take.
func (t Timing) twoSyncs() float64 { return 2*t.Sync().Seconds() + 1.2 }

// noScheduleTainted is when a worker of the node controller taints the node, on the event of
// its condition.
//
//	ReadyUnknown + [0, 1]
//
// Source: pkg/controller/nodelifecycle/node_lifecycle_controller.go doNoScheduleTaintingPass,
// v1.37.2.
func (f *Fold) noScheduleTainted(k Key) Window {
	return derived(k.of(ReadyUnknown), "on the node's event, one conflict retry included", Interval{Min: 0, Max: reaction}).takes(acting, reaction)
}

// noExecuteTainted is the one step with two branches. From 1.34 on the node controller queues
// the taint in the pass that wrote Ready=Unknown; when its worker runs before the lister has
// seen that write, the request is dropped and the rate limiter's token is spent, so that the
// taint comes 1/q later. Before 1.34 the queue is fed a pass later.
//
//	ReadyUnknown + [0, 1] or [1/q, 1/q + 1.3], from 1.34 on
//	ReadyUnknown + [P, P' + 1], before 1.34
//	ReadyUnknown + [1/q - x, 1/q - x + 1.3], where another node of the zone was tainted x before
//	ControllerLeads + [0, 6.5], set anew by a new leader, which first takes away what it does not know to be due
//
// Source: pkg/controller/nodelifecycle/node_lifecycle_controller.go doNoExecuteTaintingPass;
// scheduler/rate_limited_queue.go Try, v1.37.2; pull request 120816.
func (f *Fold) noExecuteTainted(k Key) Window {
	if k.Subject == Again {
		const conflicts = 1.5 // s
		return derived(k.of(ControllerLeads), "first pass of the new leader, up to 5 s after it leads", Interval{Min: 0, Max: firstPass + conflicts}).takes(acting, conflicts)
	}
	return f.beforeDisruption(f.noExecute(k))
}

// tokenSlack is what a taint takes besides waiting for its token, in seconds: the worker runs
// every 0.1 s.
const tokenSlack = 1.3

// noExecute is the window while the zone is not disrupted: see noExecuteTainted.
func (f *Fold) noExecute(k Key) Window {
	pass, per := f.tim.Pass().Seconds(), 1/f.tim.Q
	unknown := k.of(ReadyUnknown)
	atOnce := Interval{Min: 0, Max: reaction, Branch: "A: at once"}
	if s, wait, ok := f.tokenSpent(k.Node); ok {
		in := []Interval{{Min: wait, Max: wait + tokenSlack, Branch: "earlier taint in the zone"}}
		if wait > per { // the other node came after this one's Unknown: this one may have been first
			in = append([]Interval{atOnce}, in...)
		}
		return derived(unknown, fmt.Sprintf("node %s spent the zone's token: 1/q = %.0f s after it", s.node, per), in...).takes(acting, reaction)
	}
	if !f.tim.Race {
		return derived(unknown, "before 1.34 the queue is fed in the pass after Ready=Unknown", Interval{Min: f.tim.P.Seconds(), Max: pass + reaction, Branch: "next pass"}).takes(acting, reaction)
	}
	late := max(per, f.tim.P.Seconds())
	return derived(unknown, fmt.Sprintf("worker period 0.1 s, or 1/q = %.0f s when the token was spent in vain", per),
		atOnce, Interval{Min: late, Max: late + tokenSlack, Branch: "B: with the next token"}).takes(acting, reaction)
}

// beforeDisruption ends a window of NoExecute where the zone was disrupted: from
// then on the rate is 0 (a second for the pass that notices and what is under way).
func (f *Fold) beforeDisruption(w Window) Window {
	unknown, ok := f.Get(w.after)
	if !ok || f.worst.state == "" || f.tim.Large {
		return w
	}
	end := (f.worst.since - unknown.At).Seconds() + reaction
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
			if s.node != node && s.at > last.at && (!tainted || s.at < own.At) && (s.at-last.at).Seconds() < per+tokenSlack {
				last, wait, chained = s, (s.at-unknown.At).Seconds()+per, true
			}
		}
	}
	return last, wait, ok
}

// notReadyTainted is the taint of a node that says itself that it is not ready.
//
//	ReadyFalse + [0, 1] for NoSchedule
//	ReadyFalse + [0, P' + 1] for NoExecute: the lister shows it already, and the next pass queues it
//
// Source: pkg/controller/nodelifecycle/node_lifecycle_controller.go processTaintBaseEviction,
// v1.37.2.
func (f *Fold) notReadyTainted(k Key) Window {
	if pass := f.tim.Pass().Seconds(); k.Subject == "NoExecute" {
		return derived(k.of(ReadyFalse), fmt.Sprintf("the next pass, P' = %.2f s", pass), Interval{Min: 0, Max: pass + reaction}).takes(acting, reaction)
	}
	return derived(k.of(ReadyFalse), "on the node's event, one conflict retry included", Interval{Min: 0, Max: reaction}).takes(acting, reaction)
}

// taintsGone is when the last taint of a lost node goes: NoExecute, in the next pass.
//
//	ReadyTrue + [0, P' + 1]
//
// Source: pkg/controller/nodelifecycle/node_lifecycle_controller.go markNodeAsReachable,
// v1.37.2.
func (f *Fold) taintsGone(k Key) Window {
	pass := f.tim.Pass().Seconds()
	return derived(k.of(ReadyTrue), fmt.Sprintf("NoExecute goes in the next pass: P' + 1 = %.2f s", pass+reaction), Interval{Min: 0, Max: pass + reaction}).takes(acting, reaction)
}
