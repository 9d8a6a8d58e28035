// Package claims holds the statements of the reference document against judged runs. It
// measures nothing itself and is pure: what it says follows from the runs alone. It knows
// experiments by their names, which the judge does not.
package claims

import (
	"fmt"
	"path"
	"slices"

	"github.com/flatline-chaos/flatline/pkg/judge"
)

// A Claim is a moment that the reference document gives for a step of the chain, under
// Kubernetes' own timers.
type Claim struct {
	ID      string
	Seconds float64 // after the milestone from which the step's window counts
	Said    string  // the document's words
}

// On returns the claims about the time of a milestone. They are about defaults: a run with
// other timers can neither confirm nor refute them.
func On(r judge.Result) []Claim {
	var found []Claim
	for _, s := range statements {
		if at := s.at; at.milestone != "" && at.milestone == r.Name && (at.subject == "" || at.subject == r.Subject) {
			found = append(found, Claim{s.id, at.seconds, s.said})
		}
	}
	return found
}

// Verdicts on a statement.
const (
	Confirmed = "confirmed"
	Refuted   = "refuted"
	Depends   = "depends"
	Open      = "open" // no run on record answers it
)

// An Answer is what runs say of one statement of the reference document.
type Answer struct {
	ID, Said string
	Verdict  string   // Confirmed, Refuted, Depends or Open
	Measured string   // the numbers behind it, with their units
	Runs     []string // ids of the runs that answer it, in the order in which they were given
}

// Answers holds every statement of the document against runs, in the document's order.
// Only runs that passed answer. A statement about defaults is answered only by runs under
// Kubernetes' own timers.
func Answers(runs []*judge.Run) []Answer {
	var answers []Answer
	for _, s := range statements {
		a := Answer{ID: s.id, Said: s.said, Verdict: Open}
		fit := s.fit(runs)
		if verdict, measured := s.ask(fit); verdict != "" {
			a.Verdict, a.Measured = verdict, measured
			for _, r := range fit {
				a.Runs = append(a.Runs, r.RunID)
			}
		}
		answers = append(answers, a)
	}
	return answers
}

// A statement is one sentence of the document and how runs answer it: by numbers (answer),
// or by the mere fact that these experiments pass (shows, and what to say of them). One with
// neither is open.
type statement struct {
	id, said string
	at       moment   // where the sentence gives a time of a milestone
	defaults bool     // the sentence is about defaults
	by       []string // experiments, or patterns of path.Match; empty takes all

	answer   func(runs []*judge.Run) (verdict, measured string) // "" if these runs do not say
	shows    string                                             // the verdict of runs that pass
	measured func(runs []*judge.Run) string                     // "" if these runs do not say
	text     string                                             // instead of measured: behind the number of runs
}

// A moment is a time that the document gives for a milestone.
type moment struct {
	milestone, subject string  // an empty subject takes any
	seconds            float64 // after the milestone from which its window counts
}

// fit returns the runs that can answer a statement.
func (s statement) fit(runs []*judge.Run) []*judge.Run {
	var fit []*judge.Run
	for _, r := range runs {
		if r.Outcome == judge.OutcomePass && (ownTimers(r) || !s.defaults) && s.isBy(r.Experiment) {
			fit = append(fit, r)
		}
	}
	return fit
}

// isBy says whether runs of an experiment answer a statement.
func (s statement) isBy(experiment string) bool {
	return len(s.by) == 0 || slices.ContainsFunc(s.by, func(pattern string) bool {
		ok, err := path.Match(pattern, experiment)
		return ok && err == nil
	})
}

// ask returns what runs that fit say. An empty verdict means that they do not answer.
func (s statement) ask(runs []*judge.Run) (verdict, measured string) {
	switch {
	case len(runs) == 0:
		return "", ""
	case s.answer != nil:
		return s.answer(runs)
	case s.text != "":
		return s.shows, fmt.Sprintf("%d runs: %s", len(runs), s.text)
	case s.measured != nil:
		if measured = s.measured(runs); measured != "" {
			return s.shows, measured
		}
	}
	return "", ""
}
