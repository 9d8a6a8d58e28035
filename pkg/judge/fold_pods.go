package judge

import (
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// A pass is one of the node controller's in which it marked the pods of a node that it
// had given up: its updates and the conflicts that they met. What met one is marked in
// the next pass.
type pass struct {
	from, to           time.Duration
	updates, conflicts int
}

type podState struct {
	node, canary    string
	ready, deleting bool
	gone            bool
	unseen          bool          // since the last gap
	lost            time.Duration // when it was last seen to become unready
}

func (f *Fold) pod(s podSeen, at time.Duration) {
	const source = timeline.SourceWatch
	p := f.pods[s.id]
	if p == nil {
		p = &podState{}
		f.pods[s.id] = p
	}
	wasReady, wasDeleting := p.ready, p.deleting
	p.node, p.canary, p.unseen = s.node, s.canary, false
	if ns := f.cfg.CanaryNamespace; ns != "" && s.ns != ns {
		p.canary = "" // of another run on the same cluster
	}
	p.ready, p.deleting, p.gone = s.ready, s.deleting, s.verb == timeline.TypeDeleted
	if p.deleting && !wasDeleting && p.canary != "" && s.verb == timeline.TypeModified && f.reached(NoExecuteTainted, p.node) {
		f.mark(Key{PodEvicted, p.node, p.canary}, source, at, s.name)
	}
	if wasReady && !p.ready {
		f.podUnready(s.id, source, at)
	}
	for _, t := range f.cfg.Target {
		if p.ready && !p.deleting && p.canary != "" && p.node != t {
			if ev, ok := f.got[Key{PodEvicted, t, p.canary}]; ok && at > ev.At {
				f.mark(Key{ReplacementReady, t, p.canary}, source, at, s.name+" on "+p.node)
			}
		}
		f.podsBack(t, at)
		if p.node == t {
			f.allUnready(t)
		}
	}
}

// podList forgets, after a gap, the pods that the new list does not have: they
// were deleted while nobody looked.
func (f *Fold) podList(w watchState) {
	for _, p := range f.pods {
		if w.sees {
			p.gone = p.gone || p.unseen
		} else {
			p.unseen = true
		}
	}
}

// marked notes that the node controller marked a pod of a node it has given
// up, or that it tried and met a conflict.
func (f *Fold) marked(m podMarked, at time.Duration) {
	if p := f.pods[m.pod]; p != nil && f.nodes[p.node] != nil {
		f.nodes[p.node].marking(at, f.tim.P, m.code == "409")
	}
	if m.accepted {
		f.podUnready(m.pod, timeline.SourceAudit, at)
	}
}

// marking adds an update to the pass in which it was made: the next begins a period
// after the last one ended.
func (n *nodeState) marking(at, period time.Duration, conflict bool) {
	if k := len(n.passes); k == 0 || at-n.passes[k-1].to > period*9/10 {
		n.passes = append(n.passes, pass{from: at})
	}
	p := &n.passes[len(n.passes)-1]
	p.to = at
	p.updates++
	if conflict {
		p.conflicts++
	}
}

// podUnready notes that a pod of a node that is no longer Ready was marked so.
func (f *Fold) podUnready(id, source string, at time.Duration) {
	p := f.pods[id]
	if p == nil || f.nodes[p.node] == nil {
		return
	}
	if source == timeline.SourceWatch {
		p.lost = at
	}
	n := f.nodes[p.node]
	if key := source + " " + id; n.unready[key] == 0 {
		n.unready[key] = at
	}
	f.allUnready(p.node)
}

// allUnready marks PodsUnready, by each source, when every pod that was ready when
// the node became Unknown has been marked, at the time of the last one.
func (f *Fold) allUnready(node string) {
	unknown, ok := f.Get(Key{Name: ReadyUnknown, Node: node})
	if !ok {
		return
	}
	for _, source := range []string{timeline.SourceAudit, timeline.SourceWatch} {
		var last time.Duration
		complete := true
		for id, p := range f.pods {
			wasReady := p.ready || p.lost >= unknown.At
			if p.node != node || !wasReady {
				continue
			}
			at, marked := f.nodes[node].unready[source+" "+id]
			complete = complete && (marked && at >= unknown.At || p.gone)
			last = max(last, at)
		}
		if complete && last > 0 {
			f.mark(Key{PodsUnready, node, ""}, source, last, "")
		}
	}
}

// podsBack marks PodsBack when, after the node is Ready again, every canary
// workload has a ready pod, no evicted pod is left and every pod of the node is
// ready.
func (f *Fold) podsBack(node string, at time.Duration) {
	if !f.reached(ReadyTrue, node) {
		return
	}
	have := map[string]bool{}
	for _, p := range f.pods {
		if p.gone {
			continue
		}
		if (p.canary != "" && p.deleting) || (p.node == node && !p.ready) {
			return
		}
		if p.canary != "" && p.ready {
			have[p.canary] = true
		}
	}
	for _, c := range f.cfg.Canaries {
		if !have[c] {
			return
		}
	}
	f.mark(Key{PodsBack, node, ""}, timeline.SourceWatch, at, "")
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
