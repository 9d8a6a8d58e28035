package judge

import (
	"fmt"
	"slices"
	"time"
)

// Windows of the pods of a lost node.

// again is what marking the pods may take besides its updates, in seconds.
const again = 0.5

// marksPerSecond is how many pods the node controller marks in a second.
const marksPerSecond = 20

// podsUnready is when the node controller has marked every pod of a node that it has given up:
// one update for each, 20 a second, in the pass that wrote Unknown; one that meets a conflict is
// made again in the next pass, which begins a period after this one has ended. How long a pass
// took is measured, and believed as far as its updates may have taken as long as the slowest
// trip near it.
//
//	ReadyUnknown + [0, 0.5 + n/20], n pods; [m P, m P' + 0.5 + n/20] where m passes met a conflict
//
// Source: pkg/controller/nodelifecycle/node_lifecycle_controller.go nodesToRetry;
// pkg/controller/util/node/controller_utils.go MarkPodsNotReady, v1.37.2.
func (f *Fold) podsUnready(k Key) Window {
	n := f.nodes[k.Node]
	if n == nil {
		return derived(k.of(ReadyUnknown), "one update for each pod, 20 a second", Interval{Min: 0, Max: again, Branch: "in the same pass"})
	}
	most := again + float64(n.toMark)/marksPerSecond
	w := derived(k.of(ReadyUnknown), "one update for each pod, 20 a second", Interval{Min: 0, Max: most, Branch: "in the same pass"})
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

// podEvicted is when a pod's toleration is over. It counts from the handling of the taint; a new
// leader knows of no taint but the one that it has set itself.
//
//	NoExecuteTainted + [t, t + 1], t = tolerationSeconds
//	NoExecuteTainted again + [t, t + 1.5], where the controller manager was replaced before t was over
//
// Source: pkg/controller/tainteviction/taint_eviction.go, v1.37.2.
func (f *Fold) podEvicted(k Key) Window {
	const handled = 0.5 // s, by a leader that is busy with all nodes
	t, err := time.ParseDuration(k.Subject)
	if err != nil {
		return ordered(k.of(NoExecuteTainted))
	}
	w := derived(k.of(NoExecuteTainted), "toleration "+k.Subject, Interval{Min: t.Seconds(), Max: t.Seconds() + reaction}).takes(acting, reaction)
	if f.restarted(k.Node, t) {
		w.after, w.Why = Key{NoExecuteTainted, k.Node, Again}, w.Why+", from the taint that the new leader has set: it knows of no other"
		w.Intervals[0].Max += handled
	}
	return w
}

// restarted says whether the controller manager ended before a toleration was over:
// its timers are gone then.
func (f *Fold) restarted(node string, toleration time.Duration) bool {
	tainted, ok := f.Get(Key{NoExecuteTainted, node, ""})
	ended, stopped := f.Get(Key{Name: ControllerStopped, Node: node})
	if f.fault.Controller == FateCrashed && !ok { // a forecast
		return toleration > 0
	}
	return ok && stopped && ended.At > tainted.At && tainted.At+toleration > ended.At
}

// replacementReady is up to scheduler, kubelet and image: it is reported, and fails by a limit of
// the experiment only.
//
//	after PodEvicted of the same toleration
func (f *Fold) replacementReady(k Key) Window {
	return Window{Class: Budget, after: Key{PodEvicted, k.Node, k.Subject}}
}

// podsBackAgain is up to kubelet and workload: it is reported, and fails by a limit of the
// experiment only.
//
//	after ReadyTrue
func (f *Fold) podsBackAgain(k Key) Window { return Window{Class: Budget, after: k.of(ReadyTrue)} }
