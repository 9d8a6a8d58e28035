package judge

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// Users of the API server that make milestones.
const (
	// nodeController is also the user of the taint eviction controller
	// (cmd/kube-controller-manager/app/core.go: NewClient("node-controller")).
	nodeController = "system:serviceaccount:kube-system:node-controller"
	nodeUser       = "system:node:"
	unreachable    = "node.kubernetes.io/unreachable"
	notReady       = "node.kubernetes.io/not-ready"
)

// A Key names one milestone of one node.
type Key struct{ Name, Node, Subject string }

// A Milestone is a point of the chain that was reached.
type Milestone struct {
	Key
	// At is the time since the start of the timeline: the audit log's where it
	// saw it, else that of the source that saw it first.
	At time.Duration
	// Source is where At comes from; Seen holds the time by every source.
	Source string
	Seen   map[string]time.Duration
	// Late says that it was seen in a list after a gap only: At is when, at the
	// latest.
	Late bool
	// took is how long the write took that the audit log stamps: it may have been known
	// to others for as long.
	took time.Duration
	// Note is what a reader may want to know of this one: the refused request,
	// say.
	Note string
}

// A Fold turns events into milestones, one event at a time. Live lines and the
// final verdict use the same fold; the final one is fed in order of time.
type Fold struct {
	cfg   *Config
	tim   Timing
	start time.Time
	clock *clock

	fault fault
	rows  map[string]Row
	zero  time.Duration // FaultInjected, or the beginning of the measured part where there is no fault
	began bool
	now   time.Duration

	nodes  map[string]*nodeState
	byIP   map[string]string
	pods   map[string]*podState // "namespace/name"
	csrs   map[string]bool      // CSRs that the watch has shown
	owners map[string]string    // CSR name to node
	leader string               // of the election of kube-controller-manager

	got    map[Key]*Milestone
	early  map[sighting]time.Duration // what was seen before the measured part began
	order  []Key
	news   []Key
	spends []spend // NoExecute taints set by the node controller
	zone   zone
	worst  zone            // the first that was not Normal
	blind  map[string]bool // watches that have a gap open, by resource
	trips  []trip
	took   time.Duration // of the event at hand, where it is a write of the audit log's
	inList bool          // the event at hand is no edge: it may have come about in a gap
}

type nodeState struct {
	target  bool
	renewed map[string]time.Duration // last accepted renewal by source
	silent  bool                     // stalled: refused, or no renewal for a grace period
	ready   map[string]string        // by source
	taints  map[string]string
	disk    clientCert      // what the kubelet would load
	inUse   clientCert      // what it has loaded, or rotated to
	had     map[string]bool // certificates that it has stored itself, by fingerprint
	looked  bool            // somebody has looked at the disk
	// asked is the certificate that was in use when the fault came: it sets the
	// time of the next request.
	asked    clientCert
	restarts int           // of the kubelet by systemd
	running  bool          // the kubelet
	pid      string        // of the kubelet, "0" while there is none
	started  time.Duration // when that process began, or was first seen
	answered bool          // this process takes the server for responsive: see exit
	// responsive is what answered was at the undo.
	responsive bool
	exits      int           // how often systemd has started the kubelet again since the fault
	reported   time.Duration // last status report that was accepted
	passes     []pass        // of the node controller that marked its pods
	attempts   int           // of the node controller to taint it with NoExecute
	rotated    time.Duration
	renewalIn  time.Duration            // what the last accepted renewal took
	renewals   int                      // seen by the watch
	requests   map[string]int           // for a client certificate since the fault, by source
	rotateTo   string                   // fingerprint of the certificate that it rotated to last
	used       map[string]time.Duration // first request since the fault, by fingerprint
	unready    map[string]time.Duration
	toMark     int // pods on the node when it became Unknown
}

// NewFold makes a fold over a timeline that began at start.
func NewFold(cfg *Config, plan FaultPlan, start time.Time) (*Fold, error) {
	tim, err := cfg.Timing()
	if err != nil {
		return nil, err
	}
	fault, err := newFault(plan)
	if err != nil {
		return nil, err
	}
	f := &Fold{cfg: cfg, tim: tim, fault: fault, rows: map[string]Row{}, start: start, clock: newClock(cfg, start), blind: map[string]bool{}, nodes: map[string]*nodeState{}, byIP: map[string]string{}, pods: map[string]*podState{},
		csrs: map[string]bool{}, owners: map[string]string{}, got: map[Key]*Milestone{}, early: map[sighting]time.Duration{}}
	for _, r := range Chain() {
		f.rows[r.Name] = r
	}
	for _, n := range cfg.Nodes {
		f.nodes[n.Name] = &nodeState{target: slices.Contains(cfg.Target, n.Name), renewed: map[string]time.Duration{},
			ready: map[string]string{}, taints: map[string]string{}, unready: map[string]time.Duration{}, requests: map[string]int{}, had: map[string]bool{}, used: map[string]time.Duration{}}
		if n.IP != "" {
			f.byIP[n.IP] = n.Name
		}
	}
	return f, nil
}

// When is the time of an event since the start of the timeline: the server's
// stamp where there is one, else the moment it was observed. The stamp of a watch
// event is the kubelet's renewTime and not a time of observation.
func (f *Fold) When(e timeline.Event) time.Duration { return f.clock.when(e) }

// Get returns a milestone that was reached. An empty subject takes the earliest.
func (f *Fold) Get(k Key) (*Milestone, bool) {
	if m, ok := f.got[k]; ok || k.Subject != "" {
		return m, ok
	}
	var first *Milestone
	for _, key := range f.order {
		if m := f.got[key]; key.Name == k.Name && key.Node == k.Node && (first == nil || m.At < first.At) {
			first = m
		}
	}
	return first, first != nil
}

// Milestones returns all milestones reached, in order of time.
func (f *Fold) Milestones() []*Milestone {
	ms := make([]*Milestone, 0, len(f.order))
	for _, k := range f.order {
		ms = append(ms, f.got[k])
	}
	slices.SortStableFunc(ms, func(a, b *Milestone) int { return cmp.Compare(a.At, b.At) })
	return ms
}

// Zero is the time of the injection since the start of the timeline.
func (f *Fold) Zero() (time.Duration, bool) { return f.zero, f.began }

// Certificate is what is known of the client certificate that a kubelet uses: the
// end of its validity, and when it was rotated to.
func (f *Fold) Certificate(node string) (notAfter time.Time, rotatedAt time.Duration) {
	if n := f.nodes[node]; n != nil {
		return n.inUse.notAfter, n.rotated
	}
	return time.Time{}, 0
}

// Renewed is the time of a node's last accepted renewal, as far as it was seen.
func (f *Fold) Renewed(node string) time.Duration {
	if n := f.nodes[node]; n != nil {
		return max(n.renewed[timeline.SourceAudit], n.renewed[timeline.SourceWatch])
	}
	return 0
}

// Now is the latest time that any event has shown.
func (f *Fold) Now() time.Duration { return f.now }

// Add takes one more event and returns the milestones that it completed.
func (f *Fold) Add(e timeline.Event) []*Milestone { return f.add(read(e)) }

func (f *Fold) add(e fact) []*Milestone {
	f.news = f.news[:0]
	f.clock.note(e.Event)
	at := f.When(e.Event)
	f.now = max(f.now, at)
	f.measure(e, at)
	f.took = 0
	switch says := e.says.(type) {
	case act:
		f.addAct(says, at)
	case installed:
		if n := f.nodes[says.node]; n != nil {
			f.certificate(says.certificateSeen, at, n)
		}
	case processSeen:
		if n := f.nodes[says.node]; n != nil {
			f.process(says, at, n)
		}
	case certificateSeen:
		if n := f.nodes[says.node]; n != nil {
			f.certificate(says, at, n)
		}
	default:
		if r, ok := entryOf(says); ok {
			f.took = r.took
			f.requested(r, at)
			f.addAudit(says, at)
		} else {
			f.addWatch(e, at)
		}
	}
	f.passTime()
	var ms []*Milestone
	for _, k := range f.news {
		ms = append(ms, f.got[k])
	}
	return ms
}

// sameChange is how far two sources may be apart about one change.
const sameChange = 2 * time.Second

// mark records that a milestone was seen by a source. The first sighting of each
// source counts; the audit log's time is preferred.
func (f *Fold) mark(k Key, source string, at time.Duration, note string) {
	if !f.began {
		f.early[sighting{k, source}] = at
		return
	}
	m, ok := f.got[k]
	if source == timeline.SourceWatch && f.came(k, at) {
		return
	}
	if !ok {
		m = &Milestone{Key: k, At: at, Source: source, Seen: map[string]time.Duration{}, Note: note, Late: f.inList, took: f.took}
		f.got[k] = m
		f.order = append(f.order, k)
		f.news = append(f.news, k)
	}
	if _, ok := m.Seen[source]; ok {
		return
	}
	if source == timeline.SourceAudit && m.Source == timeline.SourceWatch && at > m.At+sameChange {
		return // it happened again; the audit log has missed the first time
	}
	m.Seen[source] = at
	if source == timeline.SourceAudit && m.Source == timeline.SourceWatch {
		m.At, m.Source, m.Note, m.Late, m.took = at, source, note, false, f.took
	}
}

// A sighting is a milestone as one source has seen it.
type sighting struct {
	Key
	source string
}

// came says whether the audit log had a change before the measured part began that a
// watch shows only now.
func (f *Fold) came(k Key, at time.Duration) bool {
	before, ok := f.early[sighting{k, timeline.SourceAudit}]
	_, seen := f.early[sighting{k, timeline.SourceWatch}]
	return ok && !seen && at-before <= sameChange
}

func (f *Fold) reached(name, node string) bool {
	_, ok := f.Get(Key{Name: name, Node: node})
	return ok
}

func (f *Fold) addAct(a act, at time.Duration) {
	switch a.typ {
	case timeline.TypeInjected, timeline.TypeMeasuring:
		f.zero, f.began = at, true
		for _, n := range f.nodes {
			n.asked = n.inUse
		}
		if a.typ == timeline.TypeInjected {
			f.markTargets(FaultInjected, timeline.SourceRun, at, a.detail["what"])
		}
	case timeline.TypeKubeletStarted:
		f.mark(Key{KubeletStarted, a.of, ""}, timeline.SourceRun, at, "")
	case timeline.TypeUndone:
		f.markTargets(FaultUndone, timeline.SourceRun, at, "")
		for _, n := range f.nodes {
			n.responsive = n.answered
		}
	case timeline.TypeStruck:
		f.markTargets(FaultStruck, timeline.SourceRun, at, a.detail["what"])
	case timeline.TypeKubeletStopped:
		f.mark(Key{KubeletStopped, a.of, ""}, timeline.SourceRun, at, a.detail["how"])
	case timeline.TypeReleased:
		f.markTargets(FaultReleased, timeline.SourceRun, at, "")
	case timeline.TypeStopped:
		f.markTargets(ControllerStopped, timeline.SourceRun, at, a.detail["id"])
	case timeline.TypeRepaired:
		f.mark(Key{RepairDone, a.of, ""}, timeline.SourceRun, at, "")
	}
}

// markTargets marks what concerns all targets alike.
func (f *Fold) markTargets(name, source string, at time.Duration, note string) {
	for _, t := range f.cfg.Target {
		f.mark(Key{name, t, ""}, source, at, note)
	}
}

// requested notes what any request of a kubelet says. The node is told by address and program,
// since a refused request has no user.
func (f *Fold) requested(r *request, at time.Duration) {
	node := f.byIP[r.ip]
	if node == "" || r.agent != "kubelet" {
		return
	}
	f.refusals(r, at, node)
	f.use(node, r.cred, at)
	if r.resource == "certificatesigningrequests" && r.verb == "create" && slices.Contains([]string{"401", "403", "404"}, r.code) {
		f.nodes[node].answered = true
	}
}

func (f *Fold) addAudit(says any, at time.Duration) {
	const source = timeline.SourceAudit
	switch a := says.(type) {
	case election:
		if a.holder == "" {
			return
		}
		if f.leader != "" && f.leader != a.holder {
			f.markTargets(ControllerLeads, source, at, a.holder)
		}
		f.leader = a.holder
	case renewal:
		f.renewed(a.node, source, at, at, a.cred)
	case report:
		f.reportedStatus(a.node, at, a.user)
		if a.ready != "" {
			f.readiness(a.node, source, at, a.ready)
		}
	case nodeRead: // every taint begins with this
		if n := f.nodes[a.node]; n != nil && f.reached(NoScheduleTainted, a.node) && !f.reached(NoExecuteTainted, a.node) {
			n.attempts++
		}
	case nodeTaints:
		if a.verb == "patch" && a.user == nodeController {
			f.tainted(a.node, source, at, a.taints)
		}
	case csrMade:
		f.asked(a.node, source, at, "")
	case csrAwaited:
		f.own(says)
	case csrDecided:
		if node := f.owners[a.csr]; node != "" {
			f.decided(node, a, at)
		}
	case podMarked:
		f.marked(a, at)
	case podDeleted:
		if p := f.pods[a.pod]; p != nil && p.canary != "" {
			f.mark(Key{PodEvicted, p.node, p.canary}, source, at, a.name)
		}
	}
}

func (f *Fold) addWatch(e fact, at time.Duration) {
	resource, _, _ := strings.Cut(e.Object, " ")
	f.inList = e.Type == timeline.TypeListed || f.blind[resource]
	defer func() { f.inList = false }()
	const source = timeline.SourceWatch
	switch w := e.says.(type) {
	case watchState:
		f.blind[w.resource] = !w.sees
		if w.resource == "pods" {
			f.podList(w)
		}
	case leaseSeen:
		if w.verb == timeline.TypeModified {
			made := at
			if sent, err := time.Parse(time.RFC3339Nano, w.renew); err == nil {
				made = min(at, f.clock.wall(sent, e.At))
			}
			f.renewed(w.name, source, at, made, "")
		}
	case nodeSeen:
		if w.verb != timeline.TypeDeleted && w.ready != "" {
			f.readiness(w.name, source, at, w.ready)
			f.tainted(w.name, source, at, w.taints)
		}
	case podSeen:
		f.pod(w, at)
	case csrSeen:
		f.own(w)
		if w.node != "" && !w.serving {
			f.csr(w, at)
		}
	}
}
