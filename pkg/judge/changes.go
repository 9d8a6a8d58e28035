package judge

import "fmt"

// Changes says in what two judgements of one run differ: the outcome, verdicts,
// windows, and milestones that one of them has and the other has not.
func Changes(was, now *Run) []string {
	var changes []string
	if was.Outcome != now.Outcome {
		changes = append(changes, fmt.Sprintf("outcome: %s, was %s", now.Outcome, was.Outcome))
	}
	type key struct {
		Key
		never bool
	}
	before := map[key]Result{}
	for _, m := range was.Milestones {
		before[key{Key{m.Name, m.Node, m.Subject}, m.Never}] = m
	}
	for _, m := range now.Milestones {
		k := key{Key{m.Name, m.Node, m.Subject}, m.Never}
		old, ok := before[k]
		delete(before, k)
		title := m.Title() + " on " + m.Node
		switch {
		case !ok:
			changes = append(changes, title+": is new")
			continue
		case old.Verdict != m.Verdict:
			changes = append(changes, fmt.Sprintf("%s: %s, was %s", title, orNone(m.Verdict), orNone(old.Verdict)))
		}
		if a, b := windowText(old), windowText(m); a != b {
			changes = append(changes, fmt.Sprintf("%s: window %s, was %s", title, b, a))
		}
		if a, b := secondsText(old), secondsText(m); a != b {
			changes = append(changes, fmt.Sprintf("%s: at %s, was at %s", title, b, a))
		}
	}
	for _, m := range was.Milestones {
		if _, gone := before[key{Key{m.Name, m.Node, m.Subject}, m.Never}]; gone {
			changes = append(changes, m.Title()+" on "+m.Node+": is gone")
		}
	}
	return changes
}

func orNone(v Verdict) string {
	if v == "" {
		return "no verdict"
	}
	return string(v)
}

func windowText(r Result) string {
	if r.Window == nil {
		return "none"
	}
	if len(r.Window.Intervals) == 0 {
		return r.Window.Class
	}
	return r.Window.String()
}

func secondsText(r Result) string {
	if r.Seconds == nil {
		return "no time"
	}
	return fmt.Sprintf("%.3f s", *r.Seconds)
}
