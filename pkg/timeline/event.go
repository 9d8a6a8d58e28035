// Package timeline is what a record says: events, in one file, on one clock, with every word
// that they may use. It knows neither who saw them nor what they mean, and needs the standard
// library alone.
package timeline

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strconv"
	"time"
)

// An Event is one fact: something was seen to change.
type Event struct {
	// At is the time since the start of the timeline at which the observer saw
	// it, by the observer's monotonic clock, to the microsecond.
	At time.Duration
	// Stamp is the server's or node's own time of the change, where it gave one
	// with sub-second resolution (audit stageTimestamp, Lease renewTime, the
	// date inside a node). Zero otherwise.
	Stamp time.Time
	// Source says who saw it: "audit", "watch", "node", "run", "recorder".
	Source string
	// Type says what happened: an audit verb, a watch event type, or one of the
	// Type constants of this package and of package chaos.
	Type string
	// Object names what it happened to, kind first: "leases worker".
	Object string
	// Detail holds what the source knows beyond that, in words of the source.
	Detail map[string]string
}

// Types of events that any source may emit.
const (
	// TypeGap says that a source may have missed changes. Detail "why" is the
	// reason, "from" the beginning in seconds since the start of the timeline,
	// where it is not that of the event, "since" how many seconds before the event
	// that was, where the source knows no more. The gap ends with the source's next
	// event of type Watching, or with its next event if it has none of those.
	TypeGap = "Gap"
	// TypeReady says that a source would not miss a change from here on.
	TypeReady = "Ready"
	// TypeClockDrift says that the observer's wall clock moved against its
	// monotonic clock. Detail "drift" is in seconds.
	TypeClockDrift = "ClockDrift"
)

// Equal says whether two events say the same; stamps may be of different zones.
func (e Event) Equal(o Event) bool {
	return e.At == o.At && e.Stamp.Equal(o.Stamp) && e.Source == o.Source && e.Type == o.Type && e.Object == o.Object && maps.Equal(e.Detail, o.Detail)
}

// eventJSON is the form of an Event on disk: one line, seconds as decimals.
type eventJSON struct {
	At     json.Number       `json:"at"`
	Stamp  *time.Time        `json:"stamp,omitempty"`
	Source string            `json:"source"`
	Type   string            `json:"type"`
	Object string            `json:"object,omitempty"`
	Detail map[string]string `json:"detail,omitempty"`
}

// MarshalJSON writes At as seconds with six decimals.
func (e Event) MarshalJSON() ([]byte, error) {
	j := eventJSON{At: json.Number(Seconds(e.At)), Source: e.Source, Type: e.Type, Object: e.Object, Detail: e.Detail}
	if !e.Stamp.IsZero() {
		stamp := e.Stamp.UTC()
		j.Stamp = &stamp
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *Event) UnmarshalJSON(data []byte) error {
	var j eventJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	at, err := ParseSeconds(j.At.String())
	if err != nil {
		return fmt.Errorf("reading field at: %w", err)
	}
	if j.Source == "" || j.Type == "" {
		return fmt.Errorf("an event needs the fields source and type")
	}
	*e = Event{At: at, Source: j.Source, Type: j.Type, Object: j.Object, Detail: j.Detail}
	if j.Stamp != nil {
		e.Stamp = *j.Stamp
	}
	return nil
}

// Seconds writes d as decimal seconds, rounded to the microsecond.
func Seconds(d time.Duration) string {
	return fmt.Sprintf("%.6f", d.Round(time.Microsecond).Seconds())
}

// ParseSeconds reads decimal seconds. It refuses what is not a finite number of
// seconds within a year.
func ParseSeconds(s string) (time.Duration, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of seconds", s)
	}
	const year = 366 * 24 * 3600
	if math.IsNaN(f) || f < -year || f > year {
		return 0, fmt.Errorf("%q is not a number of seconds within a year", s)
	}
	return time.Duration(math.Round(f*1e6)) * time.Microsecond, nil
}
