package judge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// A Verdict is the judgement of one expectation.
type Verdict string

// Verdicts. Inconclusive means that no source covered the bound.
const (
	Pass         Verdict = "pass"
	Fail         Verdict = "fail"
	Inconclusive Verdict = "inconclusive"
)

// An Outcome is the judgement of a run, the first of these that applies.
type Outcome string

// Outcomes, in the order in which they are decided.
const (
	OutcomeDirty        Outcome = "dirty"        // undo or repair incomplete
	OutcomeSetupFailed  Outcome = "setup-failed" // no cluster, no facts
	OutcomeNotInjected  Outcome = "not-injected" // the fault was never seen biting
	OutcomeContaminated Outcome = "contaminated" // something else happened too
	OutcomeFail         Outcome = "fail"         // an expectation was missed
	OutcomeInconclusive Outcome = "inconclusive" // none was missed, but no source covers a bound
	OutcomePass         Outcome = "pass"
)

// AsWanted says whether a run came to what its experiment is to show. That a fault has
// no effect is not shown by one that never was in place.
func (r *Run) AsWanted() bool {
	return r.Outcome == cmp.Or(r.Wanted, OutcomePass) && (r.Outcome != OutcomeNotInjected || r.InjectedAt != nil)
}

// Answered says whether a run came to an answer: a missed expectation is one.
func (r *Run) Answered() bool { return r.AsWanted() || r.Outcome == OutcomeFail }

// Finished says whether the run came to its end; else its runner was killed, or is at
// work yet.
func (r *Run) Finished() bool { return r.Cost.WallSeconds > 0 }

// ExitCode is the code with which a runner ends.
func (o Outcome) ExitCode() int {
	switch o {
	case OutcomePass:
		return 0
	case OutcomeFail:
		return 1
	case OutcomeSetupFailed:
		return 3
	case OutcomeDirty:
		return 5
	}
	return 4
}

// APIVersion is the version of Run as it is written to run.json.
const APIVersion = "flatline.dev/v1alpha1"

// A Run is the judged record of one run: run.json. It holds nothing that cannot
// be derived from the timeline. Seconds are seconds; times in milestones count
// from the injection.
type Run struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	RunID      string  `json:"runID"`
	Experiment string  `json:"experiment"`
	Profile    string  `json:"profile"`
	Outcome    Outcome `json:"outcome"`
	// Wanted is the outcome that the experiment is to come to; empty means pass.
	Wanted            Outcome                    `json:"wanted,omitempty"`
	Reasons           []string                   `json:"reasons,omitempty"`
	KubernetesVersion string                     `json:"kubernetesVersion"`
	NodeImage         string                     `json:"nodeImage"`
	NodeImageID       string                     `json:"nodeImageID,omitempty"` // of its content
	Engine            *Engine                    `json:"engine,omitempty"`
	Cluster           string                     `json:"cluster"`
	Flags             map[string]map[string]Flag `json:"flags"`
	Target            []string                   `json:"target"`
	ControlNodes      []string                   `json:"controlNodes"`
	ControlChanges    []string                   `json:"controlChanges"`
	InjectedAt        *time.Time                 `json:"injectedAt,omitempty"`
	Bitten            *Sight                     `json:"bitten,omitempty"` // null where nobody saw that
	Milestones        []Result                   `json:"milestones"`
	Heartbeats        []Heartbeat                `json:"heartbeats"`
	Pace              *Pace                      `json:"pace,omitempty"` // null where nothing was measured
	Kubelets          []Kubelet                  `json:"kubelets"`       // of the targets
	Differences       []Difference               `json:"differences"`
	Warnings          []string                   `json:"warnings"`
	Gaps              []Gap                      `json:"gaps"`
	Cost              Cost                       `json:"cost"`
}

// A Sight is the first time that the fault was seen biting, and in whose words.
type Sight struct {
	Seconds float64 `json:"seconds"`
	Seen    string  `json:"seen"`
}

// A Result is one milestone with its window and verdict. Seconds is null for a
// milestone that was expected and not reached: that is censored, not a number.
type Result struct {
	Name     string             `json:"name"`
	Node     string             `json:"node"`
	Subject  string             `json:"subject,omitempty"`
	Seconds  *float64           `json:"seconds"`
	After    *After             `json:"after,omitempty"`
	Window   *Window            `json:"window,omitempty"`
	Limit    *Limit             `json:"limit,omitempty"`
	Source   string             `json:"source,omitempty"`
	Seen     map[string]float64 `json:"seen,omitempty"`
	Expected bool               `json:"expected,omitempty"`
	Never    bool               `json:"never,omitempty"`
	Verdict  Verdict            `json:"verdict,omitempty"`
	Note     string             `json:"note,omitempty"`
	// Evidence is the fact that shows it, as it stands in the timeline.
	Evidence *timeline.Event `json:"evidence,omitempty"`
}

// After says from which milestone a window counts, and how long it took from
// there.
type After struct {
	Name    string  `json:"name"`
	Subject string  `json:"subject,omitempty"` // where it is not that of the milestone itself
	Seconds float64 `json:"seconds"`
}

// Title is the name of the milestone with its subject.
func (a After) Title() string { return strings.TrimSpace(a.Name + " " + a.Subject) }

// after counts from a milestone to another one.
func after(from Key, of Key) *After {
	a := &After{Name: from.Name, Subject: from.Subject}
	if a.Subject == of.Subject {
		a.Subject = ""
	}
	return a
}

// A Limit is a user's own bound beside the derived window.
type Limit struct {
	Min float64 `json:"min,omitempty"`
	Max float64 `json:"max,omitempty"`
	Why string  `json:"why,omitempty"`
}

// A Heartbeat sums up the accepted Lease renewals of one node while its kubelet
// was not meddled with: up to the injection on a target, to the end of the
// observation on every other node. Gap is between two renewals, in seconds; Bytes is the size of
// the renewed object in the form of the audit log (JSON).
type Heartbeat struct {
	Node        string         `json:"node"`
	Renewals    int            `json:"renewals"`
	GapMin      float64        `json:"gapMin"`
	GapMedian   float64        `json:"gapMedian"`
	GapMax      float64        `json:"gapMax"`
	Verbs       map[string]int `json:"verbs"`
	BytesMedian int            `json:"bytesMedian"`
	// Status sums up the kubelet's status reports in the same time, the other
	// heartbeat.
	Status Reports `json:"status"`
}

// Reports sums up accepted requests of one kind.
type Reports struct {
	Count       int            `json:"count"`
	GapMedian   float64        `json:"gapMedian"`
	Verbs       map[string]int `json:"verbs"`
	BytesMedian int            `json:"bytesMedian"`
}

// A Difference says how much later the watch saw a milestone than the audit log.
type Difference struct {
	Milestone string  `json:"milestone"`
	Node      string  `json:"node"`
	Subject   string  `json:"subject,omitempty"`
	Seconds   float64 `json:"seconds"`
}

// A Gap is a time in which a source may have missed changes, in seconds since the
// start of the timeline. To is null while it was never closed.
type Gap struct {
	Source string   `json:"source"`
	From   float64  `json:"from"`
	To     *float64 `json:"to"`
	Why    string   `json:"why"`
}

// Cost is what the run took. The phases sum to the wall time; overhead is wall -
// create - delete - (injection to the last expected recovery): the tool's own.
type Cost struct {
	WallSeconds        float64            `json:"wallSeconds"`
	OverheadSeconds    float64            `json:"overheadSeconds"`
	Phases             map[string]float64 `json:"phases"`
	ObserveSeconds     float64            `json:"observeSeconds"`
	APIRequests        int                `json:"apiRequests"`
	ObserverCPUSeconds float64            `json:"observerCPUSeconds"`
}

// Judge derives a Run from a timeline, and the Trace of what happened in it. It fails if the
// header cannot be read, or says of the cluster or the fault what the rules do not know.
func Judge(t *timeline.Timeline) (*Run, *Trace, error) {
	j, err := open(t)
	if err != nil {
		return nil, nil, err
	}
	return j.judge(t.Torn)
}

// open reads the header of a timeline and puts its events in order of time.
func open(t *timeline.Timeline) (*judgement, error) {
	j := &judgement{start: t.Header.Start}
	if err := json.Unmarshal(t.Header.Config, &j.cfg); err != nil {
		return nil, fmt.Errorf("judging run %s: header field config: %w", t.Header.RunID, err)
	}
	if err := json.Unmarshal(t.Header.Experiment, &j.plan); err != nil {
		return nil, fmt.Errorf("judging run %s: header field experiment: %w", t.Header.RunID, err)
	}
	if err := bounded(&j.cfg, &j.plan); err != nil {
		return nil, fmt.Errorf("judging run %s: header field %w", t.Header.RunID, err)
	}
	j.clock = newClock(&j.cfg, j.start)
	for _, e := range t.Events {
		j.clock.note(e)
	}
	j.arrived = readAll(slices.SortedStableFunc(slices.Values(t.Events), func(a, b timeline.Event) int { return cmp.Compare(a.At, b.At) }))
	j.events = byCause(j.arrived, j.clock)
	j.run = &Run{APIVersion: APIVersion, Kind: "Run", RunID: t.Header.RunID, Experiment: j.plan.Metadata.Name, Profile: j.plan.Profile, Wanted: j.plan.Spec.Outcome,
		KubernetesVersion: j.cfg.KubernetesVersion, NodeImage: j.cfg.NodeImage, NodeImageID: j.cfg.NodeImageID, Engine: j.cfg.Engine, Cluster: j.cfg.Cluster, Flags: j.cfg.Flags,
		Target: j.cfg.Target, ControlNodes: j.cfg.ControlNodes, Warnings: append([]string{}, j.cfg.Warnings...),
		ControlChanges: []string{}, Milestones: []Result{}, Heartbeats: []Heartbeat{}, Kubelets: []Kubelet{}, Differences: []Difference{}, Gaps: []Gap{}}
	return j, nil
}

// mostListed is how many entries a list of a header may have: the work grows with one list times
// another, and the longest of a real run has thirty.
const mostListed = 200

// bounded refuses headers that no run of flatline's has written: the record may be anybody's.
func bounded(c *Config, p *Plan) error {
	for _, l := range []struct {
		field string
		n     int
	}{
		{"config.nodes", len(c.Nodes)}, {"config.target", len(c.Target)}, {"config.controlNodes", len(c.ControlNodes)}, {"config.canaries", len(c.Canaries)},
		{"config.warnings", len(c.Warnings)}, {"config.flags", len(c.Flags)}, {"experiment.spec.expect", len(p.Spec.Expect)}, {"experiment.spec.never", len(p.Spec.Never)},
	} {
		if l.n > mostListed {
			return fmt.Errorf("%s: %d entries, at most %d are read", l.field, l.n, mostListed)
		}
	}
	if name := p.Metadata.Name; name != "" && !timeline.IsName(name) { // it becomes a folder's
		return fmt.Errorf("experiment.metadata.name: %.60q; want %s", name, timeline.NameRule)
	}
	return nil
}

func (j *judgement) judge(torn bool) (*Run, *Trace, error) {
	j.cost()
	if why, ok := j.find(timeline.TypeSetupFailed); ok {
		j.run.Outcome, j.run.Reasons = OutcomeSetupFailed, []string{why.detail["why"]}
		if left := j.failedSteps(); len(left) > 0 {
			j.run.Outcome, j.run.Reasons = OutcomeDirty, append(left, j.run.Reasons...)
		}
		run := *j.run // which lists no gaps: nothing was measured. The trace has them.
		j.gaps()
		return &run, j.trace(), nil
	}
	fold, err := j.follow(j.events)
	if err != nil {
		return nil, nil, err
	}
	j.fold = fold
	live, err := j.follow(j.arrived)
	if err != nil {
		return nil, nil, err
	}
	j.run.Warnings = append(j.run.Warnings, disagreements(live, fold)...)
	j.run.Warnings = append(j.run.Warnings, fold.tim.Warnings()...)
	for _, d := range j.clock.drifts {
		j.run.Warnings = append(j.run.Warnings, fmt.Sprintf("the observer's wall clock had moved by %.3f s at %.1f s; stamps after that are corrected by it", d.by.Seconds(), d.at.Seconds()))
	}
	j.run.ControlChanges = j.controlChanges()
	j.gaps()
	j.milestones()
	j.heartbeats()
	j.run.Pace = j.pace()
	trace := j.trace()
	j.kubelets(trace)
	j.bitten()
	j.overhead()
	j.torn = torn
	if torn {
		j.run.Warnings = append(j.run.Warnings, tornLine)
	}
	j.outcome()
	return j.run, trace, nil
}

// follow feeds a fold. Whose a request is may be known only later than what became of it.
func (j *judgement) follow(events []fact) (*Fold, error) {
	fold, err := NewFold(&j.cfg, j.plan.Spec.Fault, j.start)
	if err != nil {
		return nil, fmt.Errorf("judging run %s: %w", j.run.RunID, err)
	}
	for _, e := range events {
		fold.own(e.says)
	}
	for _, e := range events {
		fold.add(e)
	}
	return fold, nil
}

// A judgement is a Run in the making.
type judgement struct {
	cfg   Config
	plan  Plan
	start time.Time
	clock *clock
	// arrived are the events in the order in which they were seen, events the same in that
	// in which they came about.
	arrived, events []fact
	fold            *Fold
	run             *Run
	torn            bool // the last line is cut short
}

// acts are what the run did and saw, in order of time.
func (j *judgement) acts(yield func(fact, act) bool) {
	for _, e := range j.events {
		if a, ok := e.says.(act); ok && !yield(e, a) {
			return
		}
	}
}

func (j *judgement) find(typ string) (act, bool) {
	for _, a := range j.acts {
		if a.typ == typ {
			return a, true
		}
	}
	return act{}, false
}

func (j *judgement) milestones() {
	zero, began := j.fold.Zero()
	if began {
		at := j.start.Add(zero)
		j.run.InjectedAt = &at
	}
	expected := map[Key]bool{}
	var results []Result
	for _, target := range j.cfg.Target {
		for _, x := range j.plan.Spec.Expect {
			if !j.cfg.Concerns(x, target) {
				continue
			}
			r, k := j.expect(x, target)
			expected[k] = true
			results = append(results, r)
		}
		for _, x := range j.plan.Spec.Never {
			r, k := j.never(x, target)
			expected[k] = true
			results = append(results, r)
		}
	}
	for _, m := range j.fold.Milestones() {
		if !expected[m.Key] {
			results = append(results, j.result(m))
		}
	}
	slices.SortStableFunc(results, func(a, b Result) int { return cmp.Compare(sortKey(a), sortKey(b)) })
	j.run.Milestones = results
	for _, m := range j.fold.Milestones() {
		audit, a := m.Seen[timeline.SourceAudit]
		watch, w := m.Seen[timeline.SourceWatch]
		if a && w {
			j.run.Differences = append(j.run.Differences, Difference{m.Name, m.Node, m.Subject, ms(watch - audit)})
		}
	}
}

// result is a milestone that was reached, with the fact that shows it.
func (j *judgement) result(m *Milestone) Result {
	r := j.fold.Result(m)
	r.Evidence = j.evidence(m)
	return r
}

// evidence finds the event that shows a milestone: of its source and at its time.
// The end of a certificate is no event; what was read from its file is.
func (j *judgement) evidence(m *Milestone) *timeline.Event {
	var found, read *timeline.Event
	for i := range j.events {
		e := &j.events[i].Event
		at := j.clock.when(*e)
		own := strings.HasSuffix(e.Object, " "+m.Node)
		if at == m.At && e.Source == m.Source && (found == nil || own) {
			found = e
		}
		if at <= m.At && own && (e.Type == timeline.TypeCertificate || e.Type == timeline.TypeInstalled) {
			read = e
		}
	}
	if found == nil && m.Name == CertificateExpired {
		return read
	}
	return found
}

// sortKey puts what was reached in order of time and the rest behind it, in the
// order of the chain.
func sortKey(r Result) float64 {
	if r.Seconds != nil {
		return *r.Seconds
	}
	return 1e9 + float64(slices.Index(Names(), r.Name))
}

// expect judges one expectation on one target.
func (j *judgement) expect(x Expectation, target string) (Result, Key) {
	k := Key{x.Milestone, target, x.Subject}
	m, ok := j.fold.Get(k)
	if !ok {
		return j.missing(x, k), k
	}
	r := j.result(m)
	r.Expected, r.Limit = true, limit(x)
	if r.Window == nil { // FaultInjected: all windows count from it
		r.Verdict = Pass
		return r, m.Key
	}
	from, ok := j.fold.Get(r.Window.after)
	switch {
	case !ok:
		r.Verdict, r.Note = j.unreached(r.Window.after.Name), join(r.Note, "it came, but "+r.Window.after.Name+" from which it counts was not seen")
		return r, m.Key
	case m.Late || from.Late:
		r.Verdict, r.Note = Inconclusive, join(r.Note, "seen only in a list after a gap")
		return r, m.Key
	case r.Window.Class == Derived:
		_, in := r.Window.find(r.After.Seconds) // the value that is shown
		switch {
		case in && r.Window.byMachine(r.After.Seconds):
			r.Verdict, r.Note = Pass, join(r.Note, r.Window.slow)
		case in:
			r.Verdict = Pass
		case r.Window.Machine != nil && r.Window.Machine.TooSlow:
			r.Verdict, r.Note = Inconclusive, join(r.Note, r.Window.Machine.String())
		default:
			r.Verdict = Fail
		}
	case m.At >= from.At:
		r.Verdict = Pass
	default:
		r.Verdict, r.Note = Fail, join(r.Note, "it came before "+from.Name)
	}
	if d := m.At - from.At; x.Max > 0 && d > time.Duration(x.Max) || d < time.Duration(x.Min) && x.Min > 0 {
		r.Verdict, r.Note = Fail, join(r.Note, "outside the limit of the experiment: "+r.Limit.String())
	}
	return r, m.Key
}

// missing judges an expectation whose milestone was never seen: it is missed only
// if somebody looked for as long as its window was open.
func (j *judgement) missing(x Expectation, k Key) Result {
	w := j.fold.WindowOf(k).rounded()
	r := Result{Name: k.Name, Node: k.Node, Subject: k.Subject, Window: &w, Limit: limit(x), Expected: true}
	if why := j.fold.Suppressed(k); why != "" {
		r.Verdict, r.Note = Pass, why
		return r
	}
	from, ok := j.fold.Get(w.after)
	if !ok {
		r.After = after(w.after, k)
		r.Verdict, r.Note = j.unreached(k.Name), "not reached, and neither was "+w.after.Name
		if w.after.Name != k.Name && j.missing(Expectation{}, w.after).Verdict == Inconclusive {
			r.Verdict = Inconclusive
		}
		return r
	}
	r.After = after(from.Key, k)
	bound := from.At + time.Duration(max(w.Max(), time.Duration(x.Max).Seconds())*float64(time.Second))
	end, _ := j.observedUntil()
	if len(w.Intervals) == 0 && x.Max == 0 { // without a bound it may come as long as somebody looks
		bound = max(bound, end)
	}
	switch {
	case from.Late:
		r.Verdict, r.Note = Inconclusive, "not seen, and nobody knows when "+from.Name+" was"
	case end < bound:
		r.Verdict, r.Note = Inconclusive, fmt.Sprintf("not reached by the end of the observation, %.1f s before its bound", (bound-end).Seconds())
	case !j.covered(k.Name, from.At, bound):
		r.Verdict, r.Note = Inconclusive, "not seen, but no source was without a gap while its window was open"
	case w.Machine != nil && w.Machine.TooSlow:
		r.Verdict, r.Note = Inconclusive, "not reached; "+w.Machine.String()
	default:
		r.Verdict, r.Note = Fail, "not reached"
	}
	return r
}

// unreached is the verdict on a milestone that was not seen: a fail only if a
// source of it was there all the time until the observation was over.
func (j *judgement) unreached(name string) Verdict {
	if end, over := j.observedUntil(); over && j.covered(name, 0, end) {
		return Fail
	}
	return Inconclusive
}

func (j *judgement) never(x Expectation, target string) (Result, Key) {
	k := Key{x.Milestone, target, x.Subject}
	m, ok := j.fold.Get(k)
	undone, wasUndone := j.fold.Get(Key{Name: FaultUndone, Node: target})
	if ok && (!wasUndone || m.At < undone.At) {
		r := j.result(m)
		r.Never, r.Verdict, r.Note = true, Fail, join(r.Note, "it must not occur")
		return r, m.Key
	}
	r := Result{Name: k.Name, Node: k.Node, Subject: k.Subject, Never: true, Verdict: Pass}
	zero, _ := j.fold.Zero()
	end, _ := j.observedUntil()
	if wasUndone {
		end = undone.At
	}
	if !j.covered(k.Name, zero, end) {
		r.Verdict, r.Note = Inconclusive, "not seen, but no source was without a gap"
	}
	if ok { // it came after the undo: leave its own row to it
		k = Key{}
	}
	return r, k
}

// covered says whether at least one source of a milestone had no gap from a to b.
func (j *judgement) covered(name string, a, b time.Duration) bool {
	row := j.fold.rows[name]
	if len(row.Sources) == 0 && row.Name != "" {
		return true
	}
	for _, source := range row.Sources {
		clear := true
		for _, g := range j.run.Gaps {
			if g.Source != source && !strings.HasPrefix(g.Source, source+" ") {
				continue
			}
			if g.From < b.Seconds() && (g.To == nil || *g.To > a.Seconds()) {
				clear = false
			}
		}
		if clear {
			return true
		}
	}
	return false
}

// observedUntil is when the sources were stopped, and whether they were at all.
func (j *judgement) observedUntil() (time.Duration, bool) {
	for e, a := range j.acts {
		if a.typ == timeline.TypePhase && e.Object == "collect" {
			return e.At, true
		}
	}
	if j.fold == nil {
		return 0, false
	}
	return j.fold.Now(), false
}

// gaps pairs each Gap event with the next event that shows the source at work.
func (j *judgement) gaps() {
	open := map[string]int{}
	for _, e := range j.events {
		if e.Type == timeline.TypeGap {
			if _, is := open[e.Object]; is {
				continue
			}
			from := e.At
			if d, err := timeline.ParseSeconds(e.Detail["from"]); err == nil && e.Detail["from"] != "" {
				from = d
			} else if d, err := timeline.ParseSeconds(e.Detail["since"]); err == nil && e.Detail["since"] != "" {
				from = max(0, e.At-d)
			}
			open[e.Object] = len(j.run.Gaps)
			j.run.Gaps = append(j.run.Gaps, Gap{Source: e.Object, From: ms(from), Why: e.Detail["why"]})
			continue
		}
		source := e.Object
		if e.Source == timeline.SourceNode && e.Type != timeline.TypeWatching {
			source = "kubelet " + e.Object[strings.Index(e.Object, " ")+1:]
		}
		if i, is := open[source]; is && (e.Source == timeline.SourceNode || e.Type == timeline.TypeWatching) {
			to := ms(e.At)
			j.run.Gaps[i].To = &to
			delete(open, source)
		}
	}
}

func (j *judgement) heartbeats() {
	leases, reports := map[string]*series{}, map[string]*series{}
	until := map[string]time.Duration{}
	zero, _ := j.fold.Zero()
	_, faulted := j.find(timeline.TypeInjected)
	for _, n := range j.cfg.Nodes {
		leases[n.Name], reports[n.Name] = &series{verbs: map[string]int{}}, &series{verbs: map[string]int{}}
		until[n.Name], _ = j.observedUntil()
		if faulted && slices.Contains(j.cfg.Target, n.Name) {
			until[n.Name] = zero
		}
	}
	for _, e := range j.events {
		at := j.clock.when(e.Event)
		switch w := e.says.(type) {
		case renewal:
			if l := leases[w.node]; l != nil && w.code == "200" && at <= until[w.node] {
				l.add(w.request, at)
			}
		case report:
			if s := reports[w.node]; s != nil && w.code == "200" && at <= until[w.node] && w.user == nodeUser+w.node && w.verb != "get" {
				s.add(w.request, at)
			}
		}
	}
	for _, n := range j.cfg.Nodes {
		l, s := leases[n.Name], reports[n.Name]
		h := Heartbeat{Node: n.Name, Renewals: l.count(), Verbs: l.verbs, BytesMedian: middle(l.bytes),
			Status: Reports{Count: s.count(), GapMedian: round(middle(s.gaps)), Verbs: s.verbs, BytesMedian: middle(s.bytes)}}
		if len(l.gaps) > 0 {
			h.GapMin, h.GapMedian, h.GapMax = round(slices.Min(l.gaps)), round(middle(l.gaps)), round(slices.Max(l.gaps))
		}
		j.run.Heartbeats = append(j.run.Heartbeats, h)
	}
}

// A series is accepted requests of one kind.
type series struct {
	last  time.Duration
	gaps  []float64
	bytes []int
	verbs map[string]int
}

func (s *series) add(r *request, at time.Duration) {
	if s.last > 0 {
		s.gaps = append(s.gaps, (at - s.last).Seconds())
	}
	s.last = at
	s.verbs[r.verb]++
	if r.bytes > 0 {
		s.bytes = append(s.bytes, r.bytes)
	}
}

func (s *series) count() int {
	n := 0
	for _, v := range s.verbs {
		n += v
	}
	return n
}

// middle is the upper median, zero of nothing.
func middle[T cmp.Ordered](values []T) T {
	if len(values) == 0 {
		var none T
		return none
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func (j *judgement) cost() {
	c := Cost{Phases: map[string]float64{}}
	var phase string
	var since time.Duration
	for e, a := range j.acts {
		switch a.typ {
		case timeline.TypePhase:
			if phase != "" {
				c.Phases[phase] = round(c.Phases[phase] + (e.At - since).Seconds())
			}
			phase, since = e.Object, e.At
			if phase == "end" {
				c.WallSeconds = ms(e.At)
				phase = ""
			}
		case timeline.TypeCost:
			c.APIRequests, _ = strconv.Atoi(a.detail["apiRequests"])
			c.ObserveSeconds, _ = strconv.ParseFloat(a.detail["observeSeconds"], 64)
			c.ObserverCPUSeconds, _ = strconv.ParseFloat(a.detail["cpuSeconds"], 64)
		}
	}
	j.run.Cost = c
}

// overhead needs the milestones: the time from the injection to the last expected
// one is the experiment's, all else but create and delete is the tool's.
func (j *judgement) overhead() {
	c := &j.run.Cost
	var last float64
	for _, r := range j.run.Milestones {
		if r.Expected && r.Seconds != nil {
			last = max(last, *r.Seconds)
		}
	}
	if _, measured := j.find(timeline.TypeMeasuring); measured {
		last = c.Phases["hold"]
	}
	if c.WallSeconds > 0 {
		c.OverheadSeconds = round(c.WallSeconds - c.Phases["create"] - c.Phases["delete"] - last)
	}
}

func (j *judgement) outcome() {
	r := j.run
	for _, o := range []struct {
		outcome Outcome
		reasons func() []string
	}{
		{OutcomeDirty, j.dirt},
		{OutcomeNotInjected, j.notInjected},
		{OutcomeContaminated, j.contamination},
		{OutcomeFail, func() []string { return j.verdicts(Fail) }},
		{OutcomeInconclusive, func() []string { return append(j.verdicts(Inconclusive), j.notLooked()...) }},
	} {
		if reasons := o.reasons(); len(reasons) > 0 {
			r.Outcome, r.Reasons = o.outcome, j.foremost(reasons)
			return
		}
	}
	r.Outcome = OutcomePass
}

const tornLine = "the timeline's last line is cut short: the runner died while writing"

// foremost puts first what explains the others: a runner that was not heard of.
func (j *judgement) foremost(reasons []string) []string {
	var first []string
	if j.torn {
		first = append(first, tornLine)
	}
	first = append(first, j.helpedThemselves()...)
	return append(first, slices.DeleteFunc(reasons, func(s string) bool { return slices.Contains(first, s) })...)
}

// helpedThemselves lists whose dead-man timers have fired.
func (j *judgement) helpedThemselves() []string {
	var why []string
	for e, a := range j.acts {
		if a.typ == timeline.TypeDeadMan {
			why = append(why, e.Object+": the dead-man timer fired while the runner lived")
		}
	}
	return why
}

// dirt lists what the undo and the repair left behind.
func (j *judgement) dirt() []string {
	why := j.failedSteps()
	before := map[string]act{}
	for e, a := range j.acts {
		switch {
		case a.typ == timeline.TypeSnapshot && a.detail["when"] == "before":
			before[e.Object] = a
		case a.typ == timeline.TypeSnapshot:
			was := before[e.Object].detail
			for _, key := range sortedKeys(a.detail, was) {
				if key != "when" && a.detail[key] != was[key] {
					why = append(why, fmt.Sprintf("%s: %s was %q and is %q", e.Object, key, was[key], a.detail[key]))
				}
			}
		}
	}
	if _, injected := j.find(timeline.TypeInjected); injected {
		for _, t := range j.cfg.Target {
			for _, name := range []string{FaultUndone, RepairDone} {
				if !j.fold.reached(name, t) {
					why = append(why, fmt.Sprintf("node %s: %s was not reached", t, name))
				}
			}
		}
	}
	return why
}

// failedSteps lists what was to take something back and did not.
func (j *judgement) failedSteps() []string {
	var why []string
	for e, a := range j.acts {
		if a.typ == timeline.TypeStepFailed || a.typ == timeline.TypeNotHealed {
			why = append(why, strings.TrimPrefix(e.Object+": "+a.detail["why"], ": "))
		}
	}
	return why
}

// notLooked lists what nobody could look at, so that "unchanged" cannot be said.
func (j *judgement) notLooked() []string {
	var why []string
	for e, a := range j.acts {
		if a.typ == timeline.TypeLookFailed {
			why = append(why, "nobody could look at the "+e.Object+": "+a.detail["why"])
		}
	}
	return append(why, j.unwitnessed()...)
}

// blindfold is how long the witness may be unable to look before it is open
// whether the fault was there: it looks every five seconds, so this is six looks.
const blindfold = 30 * time.Second

// unwitnessed says when nobody saw the fault in place although it was to last.
func (j *judgement) unwitnessed() []string {
	var why []string
	var since time.Duration
	var failed string
	look := func(at time.Duration) {
		if failed != "" && at-since > blindfold {
			why = append(why, fmt.Sprintf("nobody could look at the fault for %.0f s: %s", (at-since).Seconds(), failed))
		}
		since, failed = at, ""
	}
	for e, a := range j.acts {
		switch {
		case a.typ == timeline.TypeInjected:
			since = e.At
		case a.typ == timeline.TypeWitness, a.typ == timeline.TypePhase && e.Object == "undo":
			look(e.At)
		case a.typ == timeline.TypeWitnessFailed && failed == "":
			failed = a.detail["why"]
		}
	}
	return why
}

// bitten finds the first look that saw the fault biting.
func (j *judgement) bitten() {
	zero, _ := j.fold.Zero()
	for e, a := range j.acts {
		if a.typ == timeline.TypeWitness && a.detail["biting"] == "true" {
			j.run.Bitten = &Sight{ms(j.clock.when(e.Event) - zero), klogHead.ReplaceAllString(a.detail["seen"], "")}
			return
		}
	}
}

func (j *judgement) notInjected() []string {
	if !j.fold.fault.breaks() {
		return nil
	}
	if _, ok := j.find(timeline.TypeInjected); !ok {
		why := "the run ended before the fault was in place"
		if a, ok := j.find(timeline.TypeInjectFailed); ok {
			why = "the injection failed: " + a.detail["why"]
		}
		return []string{why}
	}
	if j.run.Bitten != nil {
		return nil
	}
	if _, cut := j.find(timeline.TypeInterrupted); cut && j.plan.Spec.Outcome == OutcomeNotInjected {
		return nil // who was not let look on has not shown that there is nothing to see
	}
	last := "nobody looked"
	for _, a := range j.acts {
		if a.typ == timeline.TypeWitness {
			last = a.detail["seen"]
		}
	}
	return []string{"the fault was never seen biting; last seen: " + last}
}

// contamination lists what happened beside the fault.
func (j *judgement) contamination() []string {
	why := j.helpedThemselves()
	inPlace := false
	controller := map[string]string{}
	for e, a := range j.acts {
		switch a.typ {
		case timeline.TypeWitness:
			if a.detail["inPlace"] == "true" {
				inPlace = true
			} else if inPlace {
				why = append(why, "the fault vanished before the undo: "+a.detail["seen"])
			}
		case timeline.TypeController:
			if was := controller[e.Object]; was != "" && was != a.detail["id"] && !(e.Object == "kube-controller-manager" && j.fold.fault.restartsController()) {
				why = append(why, fmt.Sprintf("%s changed identity from %s to %s", e.Object, was, a.detail["id"]))
			}
			controller[e.Object] = a.detail["id"]
		case timeline.TypeInterrupted:
			why = append(why, "the run was interrupted")
		case timeline.TypeInjectFailed: // of a later part: the first was there
			why = append(why, "the fault did not go its way: "+a.detail["why"])
		}
	}
	return append(why, j.run.ControlChanges...)
}

// controlChanges lists what must not happen on a control node and did.
func (j *judgement) controlChanges() []string {
	why := []string{}
	for _, m := range j.fold.Milestones() {
		if !slices.Contains(j.cfg.ControlNodes, m.Node) {
			continue
		}
		switch m.Name {
		case CSRCreated, CSRApproved, CSRIssued, CertificateRotated: // its own rotation
		default:
			why = append(why, fmt.Sprintf("control node %s changed: %s", m.Node, m.Name))
		}
	}
	return why
}

func (j *judgement) verdicts(v Verdict) []string {
	var why []string
	for _, r := range j.run.Milestones {
		if r.Verdict == v {
			why = append(why, strings.TrimSpace(r.Title()+": "+r.Explain()))
		}
	}
	return why
}

// Result describes a milestone that was reached, with its window and without a
// verdict.
func (f *Fold) Result(m *Milestone) Result {
	s := ms(m.At - f.zero)
	r := Result{Name: m.Name, Node: m.Node, Subject: m.Subject, Seconds: &s, Source: m.Source, Note: m.Note, Seen: map[string]float64{}}
	for source, at := range m.Seen {
		r.Seen[source] = ms(at - f.zero)
	}
	if m.Name == FaultInjected {
		return r
	}
	if n := f.nodes[m.Node]; m.Name == KubeletExited && n.exits > 0 {
		r.Note = join(r.Note, fmt.Sprintf("systemd started it again %d times, in vain", n.exits))
	}
	w := f.WindowOf(m.Key).rounded()
	r.Window = &w
	if from, ok := f.Get(w.after); ok { // else there is nothing to count from, and no number
		r.After = after(from.Key, m.Key)
		r.After.Seconds = ms(m.At - from.At)
		if i, ok := w.find(r.After.Seconds); ok {
			w.Branch = i.Branch
		}
	}
	return r
}

// Inside says whether a milestone that was reached lies in its derived window;
// judged is false for one without such a window.
func (r Result) Inside() (inside, judged bool) {
	if r.Window == nil || r.Window.Class != Derived || r.Seconds == nil || r.After == nil {
		return false, false
	}
	_, inside = r.Window.find(r.After.Seconds)
	return inside, true
}

// Title is the name of a milestone with its subject.
func (r Result) Title() string {
	if r.Subject != "" {
		return r.Name + " " + r.Subject
	}
	return r.Name
}

// Explain says in words where a milestone lies against its window.
func (r Result) Explain() string {
	var s string
	if r.Seconds != nil && r.After != nil {
		s = fmt.Sprintf("%.3f s after %s", r.After.Seconds, r.After.Title())
		if inside, judged := r.Inside(); judged && !inside && r.Verdict == Fail {
			s += ", outside " + r.Window.String()
		}
	}
	return join(s, r.Note)
}

// String writes the intervals: "[12, 14.1]", joined by "or".
func (w Window) String() string {
	var s []string
	for _, i := range w.Intervals {
		s = append(s, i.String())
	}
	return strings.Join(s, " or ")
}

// String writes one interval: "[12, 14.1]".
func (i Interval) String() string { return fmt.Sprintf("[%g, %g]", round2(i.Min), round2(i.Max)) }

// String says a limit and its reason: "at most 10 s, our own objective".
func (l Limit) String() string {
	s := fmt.Sprintf("at most %g s", l.Max)
	switch {
	case l.Max == 0:
		s = fmt.Sprintf("at least %g s", l.Min)
	case l.Min > 0:
		s = fmt.Sprintf("%g to %g s", l.Min, l.Max)
	}
	if l.Why != "" {
		s += ", " + l.Why
	}
	return s
}

func limit(x Expectation) *Limit {
	if x.Min == 0 && x.Max == 0 {
		return nil
	}
	return &Limit{Min: time.Duration(x.Min).Seconds(), Max: time.Duration(x.Max).Seconds(), Why: x.Why}
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

func sortedKeys(ms ...map[string]string) []string {
	var keys []string
	for _, m := range ms {
		for k := range m {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// ms is d in seconds, to the millisecond.
func ms(d time.Duration) float64 { return round(d.Seconds()) }

func round(s float64) float64  { return math.Round(s*1e3)/1e3 + 0 } // and not -0
func round2(s float64) float64 { return math.Round(s*1e2)/1e2 + 0 }
