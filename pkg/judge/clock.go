package judge

import (
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
