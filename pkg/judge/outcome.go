package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// An Outcome is the judgement of a run, the first of these that applies.
type Outcome string

// Outcomes, in the order in which they are decided. Where clocks were apart a run is inconclusive
// before anything but the undo is looked at.
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

func (j *judgement) outcome() {
	r := j.run
	for _, o := range []struct {
		outcome Outcome
		reasons func() []string
	}{
		{OutcomeDirty, j.dirt},
		{OutcomeInconclusive, j.apart}, // all that follows compares times
		{OutcomeNotInjected, j.notInjected},
		{OutcomeContaminated, j.contamination},
		{OutcomeFail, func() []string { return j.verdicts(Fail) }},
		{OutcomeInconclusive, func() []string { return slices.Concat(j.verdicts(Inconclusive), j.notLooked(), j.uncompared()) }},
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
