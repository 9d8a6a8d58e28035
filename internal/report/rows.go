package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/flatline-chaos/flatline/internal/claims"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// rowsOf lists the rows of a picture: what the run did, the targets, the control
// nodes, the control plane and the observer.
func rowsOf(tr *judge.Trace, r *judge.Run) []row {
	c := &composer{tr: tr, run: r}
	c.experiment()
	for _, node := range tr.Nodes {
		c.node(node)
	}
	c.rest()
	if c.left > 0 {
		c.rows = append(c.rows, row{label: fmt.Sprintf("%d more are not drawn", c.left), head: true})
	}
	return c.rows
}

// mostRows and mostStates are how much of a run a page shows: ten times what one has that is real.
const (
	mostRows   = 400
	mostStates = 5000
)

type composer struct {
	tr   *judge.Trace
	run  *judge.Run
	rows []row
	left int // that have no room
}

func (c *composer) put(w row) {
	if len(c.rows) >= mostRows {
		c.left++
		return
	}
	c.rows = append(c.rows, w)
}

func (c *composer) experiment() {
	var ms []point
	for _, m := range c.run.Milestones {
		if rowOf(m) != "fault" {
			continue
		}
		if k, ok := c.point(m); ok {
			ms = append(ms, k)
		}
	}
	var seen []float64
	for _, w := range c.tr.Witnesses {
		if w.Biting {
			seen = append(seen, w.At)
		}
	}
	bands := bandsOf(c.tr.Fault.Spans)
	if len(seen) == 0 {
		for i := range bands {
			bands[i].State, bands[i].look = "never seen biting", "pending"
		}
	}
	for _, s := range c.tr.Phases.Spans {
		if s.State == "undo" || s.State == "repair" {
			bands = append(bands, band{Span: s})
		}
	}
	c.put(row{label: "fault (strokes: seen biting)", bands: [][]band{bands}, ticks: seen, marks: ms})
}

// rowOf tells in which row of a node a milestone lies: a canary has a row of its own.
func rowOf(m judge.Result) string {
	row := judge.RowOf(m.Name)
	if row.Subject == judge.TolerationOf {
		return "pod " + m.Subject
	}
	return cmp.Or(row.Lane, "pods")
}

// point makes a point of a milestone: at its time, or where it was due at the latest
// if it was expected and did not come.
func (c *composer) point(m judge.Result) (point, bool) {
	k := point{Result: m}
	from, ok := c.counted(m)
	k.from, k.windowed = from, ok && m.Window != nil
	if c.run.Profile == defaultProfile && k.windowed {
		k.claims = claims.On(m)
	}
	switch {
	case m.Seconds != nil:
		k.at = *m.Seconds
	case !m.Expected || !k.windowed || m.Verdict == judge.Pass:
		return k, false // nothing was due
	default:
		k.at = min(from+m.Window.Max(), c.tr.To)
	}
	return k, true
}

const defaultProfile = "default"

// counted is the time from which the window of a milestone counts.
func (c *composer) counted(m judge.Result) (float64, bool) {
	if m.After == nil {
		return 0, false
	}
	if m.Seconds != nil {
		return *m.Seconds - m.After.Seconds, true
	}
	for _, other := range c.run.Milestones {
		if other.Name == m.After.Name && other.Node == m.Node && other.Seconds != nil && (other.Subject == m.After.Subject || other.Subject == m.Subject) {
			return *other.Seconds, true
		}
	}
	return 0, false
}

// marksOf are the marks of one row of a node.
func (c *composer) marksOf(node, row string) []point {
	var ms []point
	for _, m := range c.run.Milestones {
		if m.Node != node || rowOf(m) != row {
			continue
		}
		if k, ok := c.point(m); ok {
			ms = append(ms, k)
		}
	}
	return ms
}

func (c *composer) node(t judge.NodeTrace) {
	what := "control node"
	if t.Target {
		what = "target"
	}
	c.put(row{label: short(t.Name, c.run.Cluster) + ", " + what, head: true})
	lease := row{label: "Lease renewals", ticks: t.Renewals, fails: t.Refused, marks: c.marksOf(t.Name, "lease"), dim: !t.Target}
	lease.bands = [][]band{bandsOf(c.stall(t))}
	c.put(lease)
	c.put(row{label: "Ready", bands: [][]band{bandsOf(t.Ready.Spans)}, marks: c.marksOf(t.Name, "ready"), dim: !t.Target})
	c.taints(t)
	// Of a control node the rest is drawn only where something happened.
	if ms := c.marksOf(t.Name, "certificate"); t.Target || len(ms) > 0 {
		c.put(row{label: "certificates on disk", certs: t.Certificates, marks: ms, dim: !t.Target})
	}
	var requests [][]band
	for _, l := range t.Requests {
		requests = append(requests, bandsOf(l.Spans))
	}
	if ms := c.marksOf(t.Name, "requests"); len(t.Requests) > 0 || len(ms) > 0 {
		c.put(row{label: "signing requests", bands: pack(requests), marks: ms, dim: !t.Target})
	}
	if ms := c.marksOf(t.Name, "kubelet"); t.Target || len(t.Kubelet.Spans) > 1 || len(ms) > 0 {
		c.put(row{label: "kubelet process", bands: [][]band{bandsOf(t.Kubelet.Spans)}, marks: ms, dim: !t.Target})
	}
	if ms := c.marksOf(t.Name, "pods"); len(ms) > 0 {
		c.put(row{label: "pods of the node", marks: ms, dim: !t.Target})
	}
	c.pods(t)
}

// stall is the time without an accepted renewal.
func (c *composer) stall(t judge.NodeTrace) []judge.Span {
	var from, to *float64
	for _, m := range c.run.Milestones {
		if m.Node == t.Name && m.Seconds != nil {
			switch m.Name {
			case judge.LeaseStalled:
				from = m.Seconds
			case judge.LeaseResumed:
				to = m.Seconds
			}
		}
	}
	if from == nil {
		return nil
	}
	s := judge.Span{From: *from, To: c.tr.To, State: "stalled", Open: true}
	if to != nil {
		s.To, s.Open = *to, false
	}
	return []judge.Span{s}
}

func (c *composer) taints(t judge.NodeTrace) {
	ms := c.marksOf(t.Name, "taints")
	var lanes []judge.Lane
	for _, l := range t.Taints {
		if !strings.HasPrefix(l.Name, "node-role.kubernetes.io/") {
			lanes = append(lanes, l)
		}
	}
	for i, l := range lanes {
		key, effect, _ := strings.Cut(strings.TrimPrefix(l.Name, "node.kubernetes.io/"), ":")
		w := row{label: key + ":" + effect, dim: !t.Target}
		var bands []band
		for _, s := range l.Spans {
			s.State = key
			bands = append(bands, band{s, effect})
		}
		w.bands = [][]band{bands}
		for _, m := range ms {
			gone := m.Name == judge.TaintsGone && i == len(lanes)-1
			here := key == "unreachable" && m.Name == effect+"Tainted" || key == "not-ready" && m.Name == judge.NotReadyTainted && m.Subject == effect
			if gone || here {
				w.marks = append(w.marks, m)
			}
		}
		ms = slices.DeleteFunc(ms, func(m point) bool {
			return slices.ContainsFunc(w.marks, func(k point) bool { return k.Name == m.Name && k.Subject == m.Subject })
		})
		c.put(w)
	}
	if len(ms) > 0 { // a taint that was expected and did not come
		c.put(row{label: "taints", marks: ms, dim: !t.Target})
	}
}

// pods draws the canaries that lived on a node, with their replacements.
func (c *composer) pods(t judge.NodeTrace) {
	var order []string
	lanes := map[string][][]band{}
	for _, p := range t.Pods {
		if lanes[p.Canary] == nil {
			order = append(order, p.Canary)
		}
		var bands []band
		for _, s := range p.Spans {
			look := s.State
			if p.On != t.Name && s.State == "running" {
				s.State = "replacement on " + short(p.On, c.run.Cluster)
			}
			bands = append(bands, band{s, look})
		}
		lanes[p.Canary] = append(lanes[p.Canary], bands)
	}
	for _, m := range c.run.Milestones { // what was expected of a canary that was never seen
		if row := rowOf(m); m.Node == t.Name && m.Subject != "" && strings.HasPrefix(row, "pod ") && !slices.Contains(order, m.Subject) {
			order = append(order, m.Subject)
		}
	}
	for _, canary := range order {
		label := "pod tolerating " + canary
		if canary == "daemonset" {
			label = "pod of the DaemonSet"
		}
		ms := c.marksOf(t.Name, "pod "+canary)
		if !t.Target && len(ms) == 0 {
			continue
		}
		c.put(row{label: label, bands: pack(lanes[canary]), marks: ms, dim: !t.Target})
	}
}

// rest draws the control plane and the observer.
func (c *composer) rest() {
	c.put(row{label: "control plane and observer", head: true})
	leader := row{label: "kube-controller-manager", ticks: c.tr.Terms, dim: true}
	for _, node := range c.run.Target {
		leader.marks = append(leader.marks, c.marksOf(node, "controller")...)
	}
	var terms []band
	for _, s := range c.tr.Leader.Spans {
		s.State = "led by " + short(s.State, c.run.Cluster)
		terms = append(terms, band{s, "good"})
	}
	leader.bands = [][]band{terms}
	if len(c.tr.Leader.Spans) == 0 {
		leader.empty = "its election was not recorded"
		for _, l := range c.tr.Containers {
			if l.Name == "kube-controller-manager" && len(l.Spans) == 1 {
				leader.empty += ", container " + l.Spans[0].State + " at each look"
			}
		}
	}
	c.put(leader)
	c.put(row{label: "kube-apiserver", bands: [][]band{bandsOf(c.tr.Server.Spans)}, dim: true})
	gaps := row{label: "gaps of the observer", dim: true}
	for _, g := range c.tr.Gaps {
		gaps.bands = append(gaps.bands, []band{{g, "gap"}})
	}
	if len(c.tr.Gaps) == 0 {
		gaps.empty = "none"
	}
	c.put(gaps)
}

// mostBands is how many things of one kind are drawn above each other.
const mostBands = 6

// pack lays lanes into as few bands as they need without overlap. What is beyond
// mostBands goes into the last one, where it overlaps.
func pack(lanes [][]band) [][]band {
	var packed [][]band
	for _, l := range lanes {
		if len(l) == 0 {
			continue
		}
		i := slices.IndexFunc(packed, func(b []band) bool { return b[len(b)-1].To <= l[0].From })
		switch {
		case i < 0 && len(packed) < mostBands:
			packed = append(packed, l)
			continue
		case i < 0:
			i = mostBands - 1
		}
		packed[i] = append(packed[i], l...)
	}
	return packed
}

// Sentence says in one sentence what came of a run.
func Sentence(r *judge.Run) string {
	reason := ""
	if len(r.Reasons) > 0 {
		reason, _, _ = strings.Cut(r.Reasons[0], "\n")
		if more := len(r.Reasons) - 1; more > 0 {
			reason += fmt.Sprintf(" (and %d more)", more)
		}
	}
	if r.Wanted != "" && r.AsWanted() {
		return fmt.Sprintf("As it is to be, this has no effect: %s.", reason)
	}
	switch r.Outcome {
	case judge.OutcomePass:
		return fmt.Sprintf("Everything happened as it must: %s.", story(r))
	case judge.OutcomeFail:
		return fmt.Sprintf("Something did not happen as it must: %s.", reason)
	case judge.OutcomeNotInjected:
		return fmt.Sprintf("This run says nothing about the cluster: %s.", reason)
	case judge.OutcomeContaminated:
		return fmt.Sprintf("This run says nothing about the cluster, for something else happened too: %s.", reason)
	case judge.OutcomeInconclusive:
		return fmt.Sprintf("Nobody can say whether everything happened as it must: %s.", reason)
	case judge.OutcomeSetupFailed:
		return fmt.Sprintf("Nothing was measured, the set-up failed: %s.", reason)
	case judge.OutcomeDirty:
		return fmt.Sprintf("The cluster was NOT put right, flatline heal does that: %s.", reason)
	}
	return string(r.Outcome)
}

// story tells the chain of the first target as far as it went.
func story(r *judge.Run) string {
	at := map[string]float64{}
	for _, m := range r.Milestones {
		if _, ok := at[m.Name]; !ok && m.Seconds != nil && len(r.Target) > 0 && m.Node == r.Target[0] {
			at[m.Name] = *m.Seconds
		}
	}
	type moment struct {
		at   float64
		text string
	}
	var moments []moment
	for name, text := range map[string]string{
		judge.CertificateExpired: "the certificate ran out",
		judge.LeaseStalled:       "the Lease was renewed for the last time",
		judge.ReadyUnknown:       "Ready became Unknown",
		judge.ReadyFalse:         "Ready became False",
		judge.PodEvicted:         "the first pod was evicted",
		judge.LeaseResumed:       "the Lease was renewed again",
		judge.ReadyTrue:          "the node was Ready again",
	} {
		if s, ok := at[name]; ok {
			moments = append(moments, moment{s, fmt.Sprintf("at %.1f s %s", s, text)})
		}
	}
	slices.SortFunc(moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	var parts []string
	for _, m := range moments {
		parts = append(parts, m.text)
	}
	if len(parts) == 0 {
		judged := 0
		for _, m := range r.Milestones {
			if m.Verdict == judge.Pass {
				judged++
			}
		}
		return fmt.Sprintf("%d expectations met", judged)
	}
	return fmt.Sprintf("on %s, %s", short(r.Target[0], r.Cluster), strings.Join(parts, ", "))
}
