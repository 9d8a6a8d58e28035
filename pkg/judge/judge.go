package judge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

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
	j.unjudge()
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
