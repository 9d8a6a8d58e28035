package judge

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

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

// clockLimit is by how much a clock may be off the one by which its stamps are read. What
// windows leave for the machine begins at one second (see reaction): a fifth of it is for the clocks.
const clockLimit = 200 * time.Millisecond

// apart lists the clocks by which nothing can be judged. A clock that is ahead is none of them, if
// it was the whole time, all nodes agree, and it is known by how much: stamps are corrected by it.
func (j *judgement) apart() []string {
	var why []string
	if within := math.Abs(j.cfg.ClockError); within > clockLimit.Seconds() {
		why = append(why, fmt.Sprintf("the nodes' clock is known to %.3f s only; beyond %g s nothing is judged", within, clockLimit.Seconds()))
	}
	for e, a := range j.acts {
		offset, within, ok := compared(a)
		if off := (offset - j.clock.offset).Abs(); ok && off+within > clockLimit {
			why = append(why, fmt.Sprintf("%s: its clock was off by %.3f s, give or take %.3f s, when compared %s the run; "+
				"beyond %g s nothing is judged", e.Object, off.Seconds(), within.Seconds(), a.detail["when"], clockLimit.Seconds()))
		}
	}
	return why
}

// compared is what a comparison of clocks found: by how much one is ahead of the observer's, and
// the most by which that may be wrong.
func compared(a act) (offset, within time.Duration, ok bool) {
	if a.typ != timeline.TypeClock {
		return 0, 0, false
	}
	offset, err := timeline.ParseSeconds(a.detail["offset"])
	if err != nil {
		return 0, 0, false
	}
	within, err = timeline.ParseSeconds(a.detail["error"])
	return offset, within.Abs(), err == nil
}

// uncompared lists the clocks of which nobody knows how they stood before or after the run. A
// record of a runner that did not compare them says nothing of it.
func (j *judgement) uncompared() []string {
	var why, objects []string
	read := map[string]bool{} // object and when
	for e, a := range j.acts {
		if a.typ != timeline.TypeClock {
			continue
		}
		objects = append(objects, e.Object)
		_, _, read[e.Object+" "+a.detail["when"]] = compared(a)
	}
	if len(objects) == 0 {
		return nil
	}
	objects = append(objects, "kube-apiserver")
	for _, n := range j.cfg.Nodes {
		objects = append(objects, "node "+n.Name)
	}
	slices.Sort(objects)
	objects = slices.Compact(objects)
	for _, object := range objects {
		for _, when := range []string{timeline.Before, timeline.After} {
			if !read[object+" "+when] {
				why = append(why, fmt.Sprintf("%s: its clock was not compared %s the run", object, when))
			}
		}
	}
	return why
}

// unjudge takes back all verdicts where clocks are apart.
func (j *judgement) unjudge() {
	if len(j.apart()) == 0 {
		return
	}
	for i, r := range j.run.Milestones {
		if r.Verdict != "" {
			j.run.Milestones[i].Verdict, j.run.Milestones[i].Note = Inconclusive, join(r.Note, "the clocks were apart")
		}
	}
}
