package judge

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
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

// A clientCert is what counts of a kubelet's client certificate; the zero value is
// none, or one that cannot be read.
type clientCert struct {
	cred, file          string // fingerprint, and where the link leads
	notBefore, notAfter time.Time
}

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

// A clock turns the wall-clock stamps of servers and nodes into times since the
// start of the timeline.
type clock struct {
	start  time.Time
	offset time.Duration // of the nodes' clock against the observer's
	drifts []drift       // of the observer's wall clock since the start
}

type drift struct{ at, by time.Duration }

func newClock(cfg *Config, start time.Time) *clock {
	return &clock{start: start, offset: time.Duration(cfg.ClockOffset * float64(time.Second))}
}

// note takes in that the wall clock was set.
func (c *clock) note(e timeline.Event) {
	if e.Type == timeline.TypeClockDrift {
		if by, err := timeline.ParseSeconds(e.Detail["drift"]); err == nil {
			c.drifts = append(c.drifts, drift{e.At, by})
		}
	}
}

func (c *clock) when(e timeline.Event) time.Duration {
	if e.Stamp.IsZero() || e.Source == timeline.SourceWatch {
		return e.At
	}
	return c.wall(e.Stamp, e.At)
}

// wall turns a time of the nodes' clock into one since the start of the timeline; seen
// is when the observer learned of it.
func (c *clock) wall(stamp time.Time, seen time.Duration) time.Duration {
	at := stamp.Sub(c.start) - c.offset
	for i := len(c.drifts) - 1; i >= 0; i-- {
		if d := c.drifts[i]; seen >= d.at {
			return at - d.by
		}
	}
	return at
}

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

// asked notes a request for a client certificate: the first, and each one after it
// with its number.
func (f *Fold) asked(node, source string, at time.Duration, note string) {
	n := f.nodes[node]
	if n == nil {
		return
	}
	created := Key{CSRCreated, node, ""}
	if !f.began || source == timeline.SourceWatch && f.came(created, at) {
		f.mark(created, source, at, note)
		return
	}
	n.requests[source]++
	if n.requests[source] == 1 {
		f.mark(created, source, at, note)
	} else if n.target && !f.reached(FaultUndone, node) {
		f.mark(Key{CSRRepeated, node, strconv.Itoa(n.requests[source])}, source, at, note)
	}
}

// use notes the first request with each certificate.
func (f *Fold) use(node, cred string, at time.Duration) {
	n := f.nodes[node]
	if _, known := n.used[cred]; known || cred == "" || !f.began {
		return
	}
	n.used[cred] = at
	f.inUse(node, n)
}

// inUse marks that the certificate that a kubelet rotated to has authenticated a
// request.
func (f *Fold) inUse(node string, n *nodeState) {
	if at, ok := n.used[n.rotateTo]; ok && n.rotateTo != "" && n.target && f.reached(CertificateRotated, node) {
		f.mark(Key{CertificateInUse, node, ""}, timeline.SourceAudit, at, "certificate "+n.rotateTo)
	}
}

// own notes whose a request is: a node asks for itself, and nobody else waits for
// it. What was decided may stand in the audit log before that.
func (f *Fold) own(says any) {
	var name, node string
	switch c := says.(type) {
	case csrAwaited:
		name, node = c.csr, c.node
	case csrSeen:
		name, node = c.name, c.node
		if node != "" && c.serving { // only a watch shows that, and the kubelet waits for these too
			f.owners[name] = ""
			return
		}
	}
	if _, known := f.owners[name]; !known && node != "" {
		f.owners[name] = node
	}
}

// decided notes what became of a request.
func (f *Fold) decided(node string, d csrDecided, at time.Duration) {
	switch {
	case d.condition == "Denied":
		f.mark(Key{CSRDenied, node, ""}, timeline.SourceAudit, at, d.csr)
	case d.condition != "Approved":
	case d.issued:
		f.mark(Key{CSRIssued, node, ""}, timeline.SourceAudit, at, d.csr)
	default:
		f.mark(Key{CSRApproved, node, ""}, timeline.SourceAudit, at, d.csr)
	}
}

// reportedStatus notes a status report, the other heartbeat beside the Lease,
// until the node is given up or repaired.
func (f *Fold) reportedStatus(node string, at time.Duration, user string) {
	if n := f.nodes[node]; n != nil && user == nodeUser+node && !f.reached(ReadyUnknown, node) && !f.reached(RepairDone, node) {
		n.reported = at
	}
}

// refusals notices a node's first 401 and 403, on any URI: the kubelet's clients
// share one transport, so whichever request comes first is refused.
func (f *Fold) refusals(r *request, at time.Duration, node string) {
	name, refused := map[string]string{"401": FirstRefused401, "403": FirstRefused403}[r.code]
	if !refused {
		return
	}
	note := r.what()
	if r.user != "" {
		note += " as " + r.user
	}
	f.mark(Key{name, node, ""}, timeline.SourceAudit, at, note)
	if r.resource == "leases" && r.name != "" {
		f.stalled(node, f.nodes[node])
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

func (f *Fold) csr(c csrSeen, at time.Duration) {
	const source = timeline.SourceWatch
	if !f.csrs[c.name] && c.verb == timeline.TypeAdded {
		f.asked(c.node, source, at, c.name)
	}
	f.csrs[c.name] = true
	if c.verb != timeline.TypeModified {
		return
	}
	switch c.state {
	case "Approved":
		f.mark(Key{CSRApproved, c.node, ""}, source, at, c.name)
	case "Denied":
		f.mark(Key{CSRDenied, c.node, ""}, source, at, c.name)
	case "Issued":
		f.mark(Key{CSRApproved, c.node, ""}, source, at, c.name)
		f.mark(Key{CSRIssued, c.node, ""}, source, at, c.name)
	}
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

// datedFile is the name under which a kubelet stores what it rotated to.
var datedFile = regexp.MustCompile(`/kubelet-client-\d{4}-\d{2}-\d{2}-\d{2}-\d{2}-\d{2}\.pem$`)

// certificate follows what lies on the disk. A running kubelet looks at that only
// when it starts; what it rotates to it has before it is there. A certificate that
// it has had before, put back say, is no rotation.
func (f *Fold) certificate(c certificateSeen, at time.Duration, n *nodeState) {
	first := !n.looked || n.inUse.cred == "" && !f.began
	n.looked = true
	n.disk = clientCert{cred: c.cred, file: c.file, notBefore: c.notBefore, notAfter: c.notAfter}
	switch {
	case first:
		f.load(n)
	case datedFile.MatchString(c.file) && n.disk.cred != "" && !n.had[n.disk.cred]:
		f.load(n)
		n.rotated, n.rotateTo, n.answered = at, n.disk.cred, true
		f.mark(Key{CertificateRotated, c.node, ""}, timeline.SourceNode, at, "")
		f.inUse(c.node, n)
	case n.pid == "" || at <= n.started+readAfter: // it lay there when the process began
		f.load(n)
	}
	own := strings.HasSuffix(c.file, "/flatline-short.pem")
	if f.began && own && n.disk.cred != "" { // the experiment's own: it sets the time of the next request
		n.asked = n.disk
	}
}

// readAfter is sooner after its start than a kubelet reads its certificate.
const readAfter = 10 * time.Millisecond

// load notes that a kubelet uses what lies on the disk.
func (f *Fold) load(n *nodeState) {
	n.inUse = n.disk
	if n.disk.cred != "" && datedFile.MatchString(n.disk.file) { // no other name is proof: a look may fall into the middle of a rotation
		n.had[n.disk.cred] = true
	}
}

// process tells a kubelet that ended by itself, which systemd counts as a
// restart, from one that was stopped.
func (f *Fold) process(p processSeen, at time.Duration, n *nodeState) {
	if !p.counted {
		return
	}
	again := p.restarts > n.restarts
	if p.gone(again) == StateExited && n.running || again {
		note := "started again before it was seen gone"
		if p.exit != "" {
			note = exitCode(p.exit)
		}
		if why := lastWords(p.why); why != "" {
			note = join(note, why)
		}
		f.mark(Key{KubeletExited, p.node, ""}, timeline.SourceNode, at, note)
	}
	if f.began {
		n.exits += max(0, p.restarts-n.restarts)
	}
	if p.pid != n.pid {
		if n.pid = p.pid; p.runs() {
			n.started, n.answered = at, false
			f.load(n)
		}
	}
	n.restarts, n.running = p.restarts, p.runs()
}

// runs says whether there is a process.
func (p processSeen) runs() bool { return p.pid != "0" }

// gone tells why there is no kubelet: it was stopped, or it ended by itself, and
// systemd knows how, or has counted one more restart. One that is about to start for
// no such reason was stopped. Nothing is said of a process that is there.
func (p processSeen) gone(again bool) string {
	switch {
	case p.runs():
		return ""
	case p.state == "inactive", p.state == "deactivating", p.exit == "" && !again:
		return StateStopped
	}
	return StateExited
}

// exitCode says how a kubelet ended.
func exitCode(code string) string {
	if signal, ok := strings.CutPrefix(code, "signal-"); ok {
		return "ended by signal " + signal
	}
	return "exit code " + code
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

// expiry is the end of a node's certificate since the start of the timeline.
func (f *Fold) expiry(n *nodeState) time.Duration {
	return n.inUse.notAfter.Sub(f.start) - time.Duration(f.cfg.ClockOffset*float64(time.Second))
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
