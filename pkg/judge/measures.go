package judge

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

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
