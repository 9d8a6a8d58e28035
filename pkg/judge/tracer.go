package judge

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// trace makes the Trace of a judgement whose gaps are known.
func (j *judgement) trace() *Trace {
	tr := &tracer{judgement: j, processes: map[string]processSeen{}, loaded: map[string][]loaded{}, trace: &Trace{Phases: Lane{Name: "phases"}, Fault: Lane{Name: "fault"}, Leader: Lane{Name: "kube-controller-manager"}, Server: Lane{Name: "kube-apiserver"}},
		nodes: map[string]*NodeTrace{}, byIP: map[string]string{}, homes: map[string]string{}, pods: map[string]*podTracer{}, used: map[string]*Certificate{}, requests: map[string]*Lane{}, owners: map[string]string{}, creds: map[string]string{},
		renews: map[string]bool{}, blind: map[string]bool{}, taints: map[string]*Lane{}, tainted: map[string]map[string]bool{}, lanes: map[string]int{}, looked: map[string]int{}}
	return tr.follow()
}

// A tracer makes a Trace of the events of a judgement.
type tracer struct {
	*judgement
	trace    *Trace
	zero     time.Duration
	nodes    map[string]*NodeTrace
	byIP     map[string]string
	homes    map[string]string // canary to the node on which it lived when the fault came
	pods     map[string]*podTracer
	order    []string                // of the pods
	used     map[string]*Certificate // what each credential did, by its fingerprint
	requests map[string]*Lane
	owners   map[string]string          // of the requests
	creds    map[string]string          // of the certificates that they were issued
	renews   map[string]bool            // renewals that were seen already, by node and renewTime
	blind    map[string]bool            // watches with an open gap
	edges    []edge                     // what the audit log says about nodes
	taints   map[string]*Lane           // all taints of a node together
	tainted  map[string]map[string]bool // those that a node has
	lanes    map[string]int             // where the lane of "node taint" lies among those of its node
	looked   map[string]int             // where the lane of a container lies
	silence  float64

	processes map[string]processSeen
	loaded    map[string][]loaded // certificates that kubelets use, by node
}

type podTracer struct {
	canary, on string
	lane       Lane
	unseen     bool // since the last gap
}

// An edge is what a write in the audit log made of a node; "" was left as it was.
type edge struct {
	at            float64
	node          string
	ready, taints string
}

func (t *tracer) follow() *Trace {
	for e, a := range t.acts {
		if a.typ == timeline.TypeInjected || a.typ == timeline.TypeMeasuring {
			t.zero = t.clock.when(e.Event)
		}
	}
	tr := t.trace
	for _, n := range t.cfg.Nodes {
		t.taints[n.Name] = &Lane{}
		t.nodes[n.Name] = &NodeTrace{Name: n.Name, Role: n.Role, Target: slices.Contains(t.cfg.Target, n.Name), Ready: Lane{Name: "Ready"}, Kubelet: Lane{Name: "kubelet"}}
		if n.IP != "" {
			t.byIP[n.IP] = n.Name
		}
	}
	if tim, err := t.cfg.Timing(); err == nil {
		t.silence = tim.I().Seconds()
	}
	end, over := t.observedUntil()
	if !over {
		for _, e := range t.events {
			end = max(end, e.At)
		}
	}
	tr.To = t.seconds(end)
	tr.From = tr.To
	t.collectEdges()
	for _, e := range t.events {
		at := t.seconds(t.clock.when(e.Event))
		if at > tr.To && e.Source != timeline.SourceRun {
			continue
		}
		switch e.Source {
		case timeline.SourceWatch:
			tr.From = min(tr.From, t.seconds(e.At))
		case timeline.SourceAudit:
			tr.From = min(tr.From, at)
		}
		t.add(e, at)
	}
	t.finish()
	return tr
}

// seconds is a time since the injection.
func (t *tracer) seconds(at time.Duration) float64 { return ms(at - t.zero) }

func (t *tracer) add(e fact, at float64) {
	switch says := e.says.(type) {
	case act:
		t.addAct(says, e.Object, at)
	case installed:
		t.certificate(says.certificateSeen, at)
	case certificateSeen:
		t.certificate(says, at)
	case processSeen:
		if n := t.nodes[says.node]; n != nil && e.Type == timeline.TypeProcess {
			t.process(says, at, n)
		}
	default:
		if r, ok := entryOf(says); ok {
			t.addAudit(says, r, at)
		} else {
			t.addWatch(e, at)
		}
	}
}

func (t *tracer) did(at float64, what string) { t.trace.Deeds = append(t.trace.Deeds, Deed{at, what}) }

func (t *tracer) addAct(a act, object string, at float64) {
	tr, node := t.trace, a.of
	switch a.typ {
	case timeline.TypePhase:
		state := object
		if state == "end" {
			state = ""
		}
		tr.Phases.enter(at, state, "")
	case timeline.TypeInjected:
		tr.Fault.enter(at, "fault", a.detail["what"])
		t.did(at, "injected: "+a.detail["what"])
	case timeline.TypeStruck:
		t.did(at, "then: "+a.detail["what"])
	case timeline.TypeReleased:
		tr.Fault.enter(at, "released", "")
		t.did(at, "the fault was taken back, the node left to itself")
	case timeline.TypeKubeletStopped:
		t.did(at, "the kubelet of "+node+" was stopped")
	case timeline.TypeStopped:
		t.did(at, "container "+a.detail["id"]+" of "+object+" had ended")
	case timeline.TypeUndone:
		tr.Fault.enter(at, "", "")
	case timeline.TypeKubeletStarted:
		t.did(at, "the kubelet of "+node+" was started again")
	case timeline.TypeStep:
		what := a.detail["kind"] + ": " + a.detail["what"] + " on " + node
		if why := a.detail["why"]; why != "" {
			what += ", which failed: " + why
		}
		t.did(at, what)
	case timeline.TypeStepFailed, timeline.TypeNotHealed, timeline.TypeInjectFailed, timeline.TypeDeadMan, timeline.TypeInterrupted:
		what := strings.TrimSpace(a.typ + " " + object)
		if why := a.detail["why"]; why != "" {
			what += ": " + why
		}
		t.did(at, what)
	case timeline.TypeWitness:
		tr.Witnesses = append(tr.Witnesses, Witness{at, a.detail["inPlace"] == "true", a.detail["biting"] == "true", a.detail["seen"]})
	case timeline.TypeController:
		i, known := t.looked[object]
		if !known {
			i = len(tr.Containers)
			tr.Containers, t.looked[object] = append(tr.Containers, Lane{Name: object}), i
		}
		tr.Containers[i].enter(min(at, tr.To), a.detail["id"], "") // the last look comes when all else has been seen
	}
}

func (t *tracer) addAudit(says any, r *request, at float64) {
	tr := t.trace
	if n := len(tr.Server.Spans); n > 0 && at-tr.Server.Spans[n-1].To <= t.silence {
		tr.Server.Spans[n-1].To = max(at, tr.Server.Spans[n-1].To)
	} else {
		tr.Server.Spans = append(tr.Server.Spans, Span{From: at, To: at, State: "answers"})
	}
	if n := t.nodes[t.byIP[r.ip]]; n != nil && r.agent == "kubelet" {
		if r.code == "401" || r.code == "403" {
			n.Refused = append(n.Refused, Deed{at, r.code + " for " + r.what()})
		}
		t.use(r.cred, at)
	}
	switch a := says.(type) {
	case renewal:
		t.renewed(a.node, a.renew, at)
	case election:
		if a.written() {
			t.led(at, a.holder)
		}
	case report, nodeTaints:
		if w, ok := writeOf(says, at); ok && t.blind["nodes"] {
			t.node(w.node, at, w.ready, w.taints)
		}
	}
	if r.agent == "kubectl" && r.verb != "get" && r.verb != "list" && r.verb != "watch" {
		t.did(at, r.what()+", answered with "+r.code)
	}
}

// what is a request in words: "patch nodes worker".
func (r *request) what() string {
	return strings.TrimSuffix(r.verb+" "+r.resource+" "+r.name, " ")
}

// use notes a request that a client certificate authenticated.
func (t *tracer) use(cred string, at float64) {
	if cred == "" {
		return
	}
	c := t.used[cred]
	if c == nil {
		c = &Certificate{Used: Span{From: at, State: "used"}}
		t.used[cred] = c
	}
	c.Used.To = at
	c.Requests++
}

// renewed notes a renewal once, anybody who sees it first.
func (t *tracer) renewed(node, renewTime string, at float64) {
	n := t.nodes[node]
	if key := node + " " + renewTime; n == nil || renewTime != "" && t.renews[key] {
		return
	} else {
		t.renews[key] = true
	}
	n.Renewals = append(n.Renewals, at)
}

// led notes a renewal of the controller managers' election. A Lease that is not
// renewed ends after its duration.
func (t *tracer) led(at float64, holder string) {
	tr := t.trace
	if n := len(tr.Terms); n > 0 {
		if life, err := t.cfg.seconds("kube-controller-manager", "leader-elect-lease-duration"); err == nil && at-tr.Terms[n-1] > life.Seconds() {
			tr.Leader.enter(tr.Terms[n-1]+life.Seconds(), "", "")
		}
	}
	tr.Terms = append(tr.Terms, at)
	tr.Leader.enter(at, holder, "")
}

func (t *tracer) addWatch(e fact, at float64) {
	switch w := e.says.(type) {
	case watchState:
		t.blind[w.resource] = !w.sees
		if w.resource == "pods" {
			t.podList(w, at)
		}
	case leaseSeen:
		if w.verb == timeline.TypeModified {
			t.renewed(w.name, w.renew, at)
		}
	case nodeSeen:
		if w.verb != timeline.TypeDeleted {
			t.watched(w.name, at, w.ready, w.taints)
		}
	case podSeen:
		if w.canary != "" && (t.cfg.CanaryNamespace == "" || w.ns == t.cfg.CanaryNamespace) {
			t.pod(w, at)
		}
	case csrSeen:
		if !w.serving && w.node != "" {
			t.request(w, at)
		}
	}
}

func (t *tracer) collectEdges() {
	for _, e := range t.events {
		if w, ok := writeOf(e.says, t.seconds(t.clock.when(e.Event))); ok && w.at <= t.trace.To {
			t.edges = append(t.edges, w)
		}
	}
}

// writeOf reads what an entry of the audit log made of a node. An update of the
// status may hold taints too, as its writer last saw them; they are not written.
func writeOf(says any, at float64) (edge, bool) {
	switch w := says.(type) {
	case report:
		return edge{at, w.node, w.ready, ""}, w.ready != ""
	case nodeTaints:
		return edge{at, w.node, "", w.taints}, true
	}
	return edge{}, false
}

// near is how far a watch may be behind, or before, the audit log's stamp of the
// same change, in seconds.
const near = 2

// watched takes in a node as the watch shows it, at the time that the audit log
// has for the same change.
func (t *tracer) watched(node string, at float64, ready, taints string) {
	n := t.nodes[node]
	if n == nil {
		return
	}
	t.node(node, t.written(&n.Ready, at, ready, func(e edge) bool { return e.node == node && e.ready == ready }), ready, "")
	t.node(node, t.written(t.taints[node], at, taints, func(e edge) bool { return e.node == node && e.taints == taints }), "", taints)
}

// written is when a lane came to a state that a watch shows at a time: by the audit
// log, where it has the same change. States are delivered in their order, so it is
// the first such entry since the present state began: what comes after it may have
// written the same once more.
func (t *tracer) written(l *Lane, at float64, state string, same func(edge) bool) float64 {
	if l.state() == "" || l.state() == state { // the first look, or no change
		return at
	}
	from := max(at-near, l.Spans[len(l.Spans)-1].From)
	i, _ := slices.BinarySearchFunc(t.edges, from, func(e edge, at float64) int { return cmp.Compare(e.at, at) })
	for ; i < len(t.edges) && t.edges[i].at <= at+near; i++ {
		if same(t.edges[i]) {
			return t.edges[i].at
		}
	}
	return at
}

func (t *tracer) node(name string, at float64, ready, taints string) {
	n := t.nodes[name]
	if n == nil {
		return
	}
	if ready != "" {
		n.Ready.enter(at, ready, "")
	}
	if taints == "" {
		return
	}
	t.taints[name].enter(at, taints, "")
	now := map[string]bool{}
	for taint := range strings.SplitSeq(taints, ",") {
		if taint == "none" {
			continue
		}
		now[taint] = true
		key := name + " " + taint
		i, known := t.lanes[key]
		if !known {
			i = len(n.Taints)
			n.Taints, t.lanes[key] = append(n.Taints, Lane{Name: taint}), i
		}
		n.Taints[i].enter(at, "tainted", "")
	}
	for taint := range t.tainted[name] {
		if !now[taint] {
			n.Taints[t.lanes[name+" "+taint]].enter(at, "", "")
		}
	}
	t.tainted[name] = now
}

func (t *tracer) pod(s podSeen, at float64) {
	p := t.pods[s.id]
	if p == nil {
		p = &podTracer{canary: s.canary, lane: Lane{Name: s.name}}
		t.pods[s.id] = p
		t.order = append(t.order, s.id)
	}
	p.on, p.unseen = cmp.Or(s.node, p.on), false
	state := "pending"
	switch {
	case s.verb == timeline.TypeDeleted:
		state = ""
	case s.deleting:
		state = "terminating"
	case s.ready:
		state = "running"
	case p.lane.state() == "running" || p.lane.state() == "unready":
		state = "unready"
	}
	if state == "running" && (at <= 0 || t.homes[p.canary] == "") {
		t.homes[p.canary] = p.on
	}
	p.lane.enter(at, state, "")
}

// podList ends, after a gap, the pods that the new list does not have.
func (t *tracer) podList(w watchState, at float64) {
	for _, p := range t.pods {
		switch {
		case !w.sees:
			p.unseen = true
		case p.unseen:
			p.lane.enter(at, "", "")
		}
	}
}

func (t *tracer) request(c csrSeen, at float64) {
	l := t.requests[c.name]
	if l == nil {
		l = &Lane{Name: c.name}
		t.requests[c.name] = l
		t.owners[c.name] = c.node
	}
	if c.verb == timeline.TypeListed && c.state == "Issued" && l.state() == "" {
		return // history of the cluster
	}
	if c.cred != "" {
		t.creds[c.name] = c.cred
	}
	state := c.state
	if c.verb == timeline.TypeDeleted {
		state = ""
	}
	l.enter(at, state, "")
}

// orphan names a request by what became of it where its node has never stored the
// certificate: nobody has the key any more.
func (t *tracer) orphan(name, cred string) {
	n, l := t.nodes[t.owners[name]], t.requests[name]
	if n == nil || l == nil || slices.ContainsFunc(n.Certificates, func(c Certificate) bool { return c.OnDisk.Note == cred }) {
		return
	}
	for i := range l.Spans {
		if l.Spans[i].State == "Issued" {
			l.Spans[i].State = StateOrphan
		}
	}
}

// certificate enters what lies on the disk of a node.
func (t *tracer) certificate(s certificateSeen, at float64) {
	n := t.nodes[s.node]
	if n == nil {
		return
	}
	if k := len(n.Certificates); k > 0 && n.Certificates[k-1].OnDisk.Open {
		last := &n.Certificates[k-1]
		if last.File == s.file && last.OnDisk.Note == s.cred { // read once more, after a gap
			return
		}
		last.OnDisk.To, last.OnDisk.Open = at, false
	}
	if s.notBefore.IsZero() || s.notAfter.IsZero() { // unreadable, or not there
		return
	}
	c := Certificate{Serial: s.serial, File: s.file, OnDisk: Span{From: at, To: at, State: "on disk", Note: s.cred, Open: true}}
	life := s.notAfter.Sub(s.notBefore).Seconds()
	c.NotBefore, c.NotAfter = t.onClock(s.notBefore), t.onClock(s.notAfter)
	c.RotateFrom, c.RotateTo = round(c.NotBefore+0.7*life), round(c.NotBefore+0.9*life)
	n.Certificates = append(n.Certificates, c)
	if l := t.loaded[n.Name]; len(l) == 0 || len(l) == 1 && l[0].none || datedFile.MatchString(s.file) {
		t.load(n, at)
	}
}

// process enters the state of a kubelet's process; a start that was seen only by
// systemd's count is an end of the one before, too.
func (t *tracer) process(s processSeen, at float64, n *NodeTrace) {
	p := t.processes[n.Name]
	again := s.restarts > p.restarts
	state, note := cmp.Or(s.gone(again), StateRunning), ""
	switch {
	case s.state == StateFrozen:
		state = StateFrozen
	case state == StateExited && strings.HasPrefix(s.exit, "signal"):
		note = exitCode(s.exit)
	case state == StateExited:
		note = lastWords(s.why)
	}
	if state == StateRunning && again && n.Kubelet.state() == StateRunning && s.pid != p.pid {
		n.Kubelet.enter(at, StateExited, lastWords(s.why))
	}
	if s.runs() && s.pid != p.pid {
		t.load(n, at)
	}
	told := state == StateExited && n.Kubelet.state() == StateExited
	switch {
	case told && s.exit == "" && s.restarts <= p.restarts+1: // about to start again
	case told && again: // it had started in between
		n.Kubelet.enter(at, StateRunning, "")
		fallthrough
	default:
		n.Kubelet.enter(at, state, note)
	}
	t.processes[n.Name] = s
}

// load notes that a kubelet uses from now on what lies on its disk. It cannot start
// with a certificate that is over (kubelet/certificate/bootstrap): then the one that
// it found was gone before anybody looked.
func (t *tracer) load(n *NodeTrace, at float64) {
	c := loaded{from: at, none: true}
	if k := len(n.Certificates); k > 0 && n.Certificates[k-1].OnDisk.Open && n.Certificates[k-1].NotAfter > at {
		c.none, c.notAfter = false, n.Certificates[k-1].NotAfter
	}
	t.loaded[n.Name] = append(t.loaded[n.Name], c)
}

// onClock is a time of the nodes' clock in seconds since the injection.
func (t *tracer) onClock(at time.Time) float64 {
	return t.seconds(at.Sub(t.start) - t.clock.offset)
}

// finish ends all lanes and hands them to their nodes.
func (t *tracer) finish() {
	tr := t.trace
	for name, cred := range t.creds {
		t.orphan(name, cred)
	}
	for _, name := range slices.Sorted(maps.Keys(t.requests)) {
		if n := t.nodes[t.owners[name]]; n != nil && len(t.requests[name].Spans) > 0 {
			n.Requests = append(n.Requests, *t.requests[name])
		}
	}
	for _, id := range t.order {
		p := t.pods[id]
		home := cmp.Or(t.homes[p.canary], p.on)
		if p.canary == "daemonset" { // one on each node
			home = p.on
		}
		if n := t.nodes[home]; n != nil {
			n.Pods = append(n.Pods, PodTrace{p.canary, p.on, p.lane})
		}
	}
	for _, g := range t.run.Gaps {
		zero := t.zero.Seconds()
		s := Span{From: round(g.From - zero), State: g.Source, Note: g.Why, Open: g.To == nil}
		s.To = max(tr.To, s.From)
		if g.To != nil {
			s.To = round(*g.To - zero)
		}
		tr.Gaps = append(tr.Gaps, s)
	}
	if n := len(tr.Terms); n > 0 {
		if life, err := t.cfg.seconds("kube-controller-manager", "leader-elect-lease-duration"); err == nil && tr.To-tr.Terms[n-1] > life.Seconds() {
			tr.Leader.enter(tr.Terms[n-1]+life.Seconds(), "", "")
		}
	}
	lanes := []*Lane{&tr.Phases, &tr.Fault, &tr.Leader}
	for i := range tr.Containers {
		lanes = append(lanes, &tr.Containers[i])
	}
	for _, node := range t.cfg.Nodes {
		n := t.nodes[node.Name]
		slices.Sort(n.Renewals)
		slices.SortStableFunc(n.Requests, func(a, b Lane) int { return cmp.Compare(a.Spans[0].From, b.Spans[0].From) })
		slices.SortStableFunc(n.Pods, func(a, b PodTrace) int {
			return cmp.Compare(slices.Index(t.cfg.Canaries, a.Canary), slices.Index(t.cfg.Canaries, b.Canary))
		})
		n.Kubelet.close(tr.To)
		if k := n.Kubelet.Spans; len(k) > 0 && tr.From < tr.To {
			k[0].From = max(k[0].From, tr.From) // the first look is stamped by its node
		}
		n.Kubelet = kubeletStates(n.Kubelet, t.loaded[n.Name])
		lanes = append(lanes, &n.Ready, &n.Kubelet)
		for i := range n.Taints {
			lanes = append(lanes, &n.Taints[i])
		}
		for i := range n.Requests {
			lanes = append(lanes, &n.Requests[i])
		}
		for i := range n.Pods {
			lanes = append(lanes, &n.Pods[i].Lane)
		}
		for i := range n.Certificates {
			c := &n.Certificates[i]
			if c.OnDisk.Open {
				c.OnDisk.To = tr.To
			}
			if u := t.used[c.OnDisk.Note]; u != nil {
				c.Used, c.Requests = u.Used, u.Requests
			}
		}
	}
	for _, l := range lanes {
		l.close(tr.To)
	}
	for _, n := range t.cfg.Nodes { // now that nothing changes any more
		tr.Nodes = append(tr.Nodes, *t.nodes[n.Name])
	}
	slices.SortStableFunc(tr.Nodes, func(a, b NodeTrace) int { // the targets first
		if a.Target == b.Target {
			return 0
		}
		if a.Target {
			return -1
		}
		return 1
	})
	slices.SortStableFunc(tr.Deeds, func(a, b Deed) int { return cmp.Compare(a.At, b.At) })
}
