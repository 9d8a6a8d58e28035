package report

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"github.com/flatline-chaos/flatline/internal/claims"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// Sizes of the drawing, in units of which one is a CSS pixel at full width.
const (
	wideWidth   = 1080
	narrowWidth = 340
	gutter      = 176 // for the labels of the wide drawing
	bandHeight  = 12
	markHeight  = 13
	stripHeight = 8
	letter      = 5.7 // width of a letter of 10 units, on average
)

// A frame is the picture of one run: rows over one time axis, with the injection
// at zero.
type frame struct {
	b           strings.Builder
	id          string // prefix of ids inside
	width       float64
	left, right float64 // of the plot
	from, to    float64 // in seconds
	narrow      bool
	y           float64
}

// A row is one line of the picture.
type row struct {
	label string
	head  bool // begins a group
	dim   bool // of a control node
	bands [][]band
	certs []judge.Certificate
	ticks []float64
	fails []judge.Deed
	marks []point
	empty string // said where there is nothing to draw
}

// A band is a state that lasted, and how it looks.
type band struct {
	judge.Span
	look string // of looks; "" is that of its state
}

// bandsOf draws states as what they are.
func bandsOf(spans []judge.Span) []band {
	var bands []band
	for _, s := range spans {
		bands = append(bands, band{Span: s})
	}
	return bands
}

// A point is a milestone in its row.
type point struct {
	judge.Result
	at       float64
	from     float64 // where its window counts from
	windowed bool
	claims   []claims.Claim
}

// picture draws a run in one width. Its text, ids and order depend on the run
// only.
func picture(tr *judge.Trace, r *judge.Run, width float64, id string) string {
	f := &frame{id: id, width: width, left: gutter, right: width - 14, narrow: width < 600}
	if f.narrow {
		f.left, f.right = 6, width-6
	}
	f.to = tr.To
	for _, m := range r.Milestones {
		if m.Seconds != nil {
			f.to = max(f.to, *m.Seconds)
		}
	}
	f.from = max(min(tr.From, 0), min(-2, -0.09*f.to))
	f.to = max(f.to+0.02*(f.to-f.from), f.from+1)
	rows := rowsOf(tr, r)
	height := 26.0
	for _, w := range rows {
		height += f.height(w)
	}
	height += 22
	f.open(height, r)
	f.shades(tr, height)
	f.axis(18, height)
	f.y = 26
	for _, w := range rows {
		f.row(w)
	}
	f.injection(height)
	f.b.WriteString("</svg>\n")
	return f.b.String()
}

// x is where a time lies, inside the plot.
func (f *frame) x(t float64) float64 {
	return f.left + (min(max(t, f.from), f.to)-f.from)/(f.to-f.from)*(f.right-f.left)
}

func (f *frame) inside(t float64) bool { return t >= f.from && t <= f.to }

func (f *frame) add(format string, args ...any) { fmt.Fprintf(&f.b, format+"\n", args...) }

// esc makes a text of XML 1.0, which knows no control characters.
func esc(s string) string { return html.EscapeString(plain(s)) }

// n writes a coordinate: two decimals are finer than any screen.
func n(v float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", v), "0"), ".")
}

// signed writes seconds since the injection.
func signed(s float64) string { return fmt.Sprintf("%+.2f s", s) }

// patterns are what fills are made of, so that no state is told by its colour
// alone. A page has them once, outside of what may be hidden.
const patterns = `<defs>
<pattern id="slash" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="unknown-a" width="6" height="6"/><rect class="unknown-b" width="2.4" height="6"/></pattern>
<pattern id="cross" width="6" height="6" patternUnits="userSpaceOnUse"><rect class="bad-a" width="6" height="6"/><path class="bad-b" d="M0 0L6 6M6 0L0 6"/></pattern>
<pattern id="dots" width="5" height="5" patternUnits="userSpaceOnUse"><rect class="wait-a" width="5" height="5"/><circle class="wait-b" cx="2.5" cy="2.5" r="1"/></pattern>
</defs>
`

func (f *frame) open(height float64, r *judge.Run) {
	f.add(`<svg class="run" viewBox="0 0 %s %s" role="img" aria-labelledby="%s-title %s-desc" xmlns="http://www.w3.org/2000/svg">`, n(f.width), n(height), f.id, f.id)
	f.add(`<title id="%s-title">%s, profile %s: %s</title>`, f.id, esc(r.Experiment), esc(r.Profile), esc(string(r.Outcome)))
	f.add(`<desc id="%s-desc">%s The table below has the same as text.</desc>`, f.id, esc(Sentence(r)))
}

// shades lays the fault, its undo and the repair behind everything.
func (f *frame) shades(tr *judge.Trace, height float64) {
	shade := func(class, name string, s judge.Span) {
		x0, x1 := f.x(s.From), f.x(s.To)
		f.add(`<rect class="shade %s" x="%s" y="20" width="%s" height="%s"><title>%s: %s to %s</title></rect>`, class, n(x0), n(max(x1-x0, 1)), n(height-20), name, signed(s.From), signed(s.To))
	}
	for _, s := range tr.Fault.Spans {
		if s.State == "fault" {
			shade("fault", "fault", s)
		}
	}
	for _, s := range tr.Phases.Spans {
		if s.State == "undo" || s.State == "repair" {
			shade(s.State, s.State, s)
		}
	}
}

// step is a round number of seconds that divides a span into about parts.
func step(span float64, parts int) float64 {
	raw := span / float64(parts)
	p := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if m*p >= raw {
			return m * p
		}
	}
	return 10 * p
}

func (f *frame) axis(top, height float64) {
	parts := 11
	if f.narrow {
		parts = 5
	}
	by := step(f.to-f.from, parts)
	for k := math.Ceil(f.from / by); k*by <= f.to; k++ {
		t := k*by + 0 // and not -0
		x := f.x(t)
		f.add(`<line class="grid" x1="%s" x2="%s" y1="%s" y2="%s" data-t="%s"/>`, n(x), n(x), n(top+2), n(height-18), n(t))
		for _, y := range []float64{top - 4, height - 6} {
			f.add(`<text class="axis" x="%s" y="%s" text-anchor="middle">%s</text>`, n(min(max(x, f.left+8), f.right-8)), n(y), esc(fmt.Sprintf("%g s", t)))
		}
	}
}

func (f *frame) injection(height float64) {
	if !f.inside(0) {
		return
	}
	f.add(`<line class="zero" x1="%s" x2="%s" y1="20" y2="%s"/>`, n(f.x(0)), n(f.x(0)), n(height-18))
}

func (f *frame) height(w row) float64 {
	h := 4.0
	if f.narrow || w.head {
		h += 13
	}
	if w.head {
		return h + 3
	}
	if len(w.marks) > 0 {
		h += markHeight
	}
	h += float64(max(1, len(w.bands), len(w.certs))) * (bandHeight + 2)
	if w.strips() {
		h += stripHeight
	}
	return h
}

func (w row) strips() bool {
	return slices.ContainsFunc(w.marks, func(m point) bool {
		return m.windowed && len(m.Window.Intervals) > 0 || m.Limit != nil || len(m.claims) > 0
	})
}

func (f *frame) row(w row) {
	top, h := f.y, f.height(w)
	f.y += h
	if w.head {
		f.add(`<line class="rule" x1="0" x2="%s" y1="%s" y2="%s"/>`, n(f.width), n(top+3), n(top+3))
		f.add(`<text class="head" x="4" y="%s">%s</text>`, n(top+15), esc(w.label))
		return
	}
	y := top + 2
	class := "label"
	if w.dim {
		class += " dim"
	}
	if f.narrow {
		f.add(`<text class="%s" x="4" y="%s">%s</text>`, class, n(y+10), esc(w.label))
		y += 13
	}
	if len(w.marks) > 0 {
		y += markHeight
	}
	if !f.narrow {
		f.add(`<text class="%s" x="14" y="%s">%s</text>`, class, n(y+bandHeight-2), esc(w.label))
	}
	if w.empty == "" {
		f.add(`<line class="base" x1="%s" x2="%s" y1="%s" y2="%s"/>`, n(f.left), n(f.right), n(y+bandHeight/2), n(y+bandHeight/2))
	}
	bottom := y
	for _, spans := range w.bands {
		for _, s := range spans {
			f.band(s, bottom)
		}
		bottom += bandHeight + 2
	}
	for _, c := range w.certs {
		f.certificate(c, bottom)
		bottom += bandHeight + 2
	}
	bottom = max(bottom, y+bandHeight+2)
	if len(w.bands) > 0 && len(w.bands[0]) > 0 && len(w.fails) == 0 { // below the text of the band
		f.ticks("tick", w.ticks, y+bandHeight-3, 5)
	} else {
		f.ticks("tick", w.ticks, y+1, bandHeight-2)
	}
	f.refused(w.fails, y)
	if w.empty != "" {
		f.add(`<text class="note" x="%s" y="%s">%s</text>`, n(f.left+2), n(y+bandHeight-2), esc(w.empty))
	}
	for _, m := range w.marks {
		f.strip(m, bottom)
	}
	f.marks(w.marks, y, bottom)
}

// looks tells how a state is drawn: a fill, and a pattern where it is not good.
var looks = map[string]string{
	"True": "good", "running": "good", "answers": "good", "Issued": "good", "good": "good",
	"Unknown": "slash", "unready": "slash", "Approved": "slash", "orphan": "slash", "terminating": "cross",
	"False": "cross", "exited": "cross", "expired": "cross", "crash-looping": "cross", "frozen": "dots", "Denied": "cross", "Failed": "cross", "gap": "cross", "stalled": "cross", "fault": "cross",
	"pending": "dots", "Pending": "dots", "released": "dots", "stopped": "dots", "undo": "dots", "repair": "dots", "NoSchedule": "slash", "NoExecute": "cross",
}

func fill(state string) string {
	look := cmp.Or(looks[state], "slash")
	if look == "good" {
		return `class="good"`
	}
	return fmt.Sprintf(`class="edge" fill="url(#%s)"`, look)
}

func (f *frame) band(s band, y float64) {
	if s.To < f.from || s.From > f.to {
		return
	}
	x0, x1 := f.x(s.From), f.x(s.To)
	until := signed(s.To)
	if s.Open {
		until = "the end"
	}
	note := ""
	if s.Note != "" {
		note = ": " + s.Note
	}
	f.add(`<rect %s x="%s" y="%s" width="%s" height="%d"><title>%s: %s to %s%s</title></rect>`, fill(cmp.Or(s.look, s.State)), n(x0), n(y), n(max(x1-x0, 1.2)), bandHeight, esc(s.State), signed(s.From), until, esc(note))
	f.inscribe(s.State, x0, x1, y)
}

// inscribe writes a text into a band that has room for it.
func (f *frame) inscribe(text string, x0, x1, y float64) {
	if room := x1 - x0 - 6; float64(len(text))*letter <= room {
		f.add(`<text class="in" x="%s" y="%s">%s</text>`, n(x0+3), n(y+bandHeight-2.5), esc(text))
	}
}

// certificate draws the validity, the rotation window in it, the part in which
// it was used and the time that it lay there expired.
func (f *frame) certificate(c judge.Certificate, y float64) {
	x0, x1 := f.x(max(c.NotBefore, c.OnDisk.From)), f.x(c.NotAfter)
	if c.NotAfter > f.from {
		f.add(`<rect class="valid" x="%s" y="%s" width="%s" height="%d"><title>certificate %s: valid %s to %s, on disk %s to %s, %d requests</title></rect>`,
			n(x0), n(y), n(max(x1-x0, 1)), bandHeight, esc(c.Serial), signed(c.NotBefore), signed(c.NotAfter), signed(c.OnDisk.From), signed(c.OnDisk.To), c.Requests)
	}
	if r0, r1 := max(c.RotateFrom, c.OnDisk.From), min(c.RotateTo, c.NotAfter); r1 > r0 && f.x(r1) > f.x(r0) {
		f.add(`<rect class="rotate" fill="url(#dots)" x="%s" y="%s" width="%s" height="%d"><title>rotation window, 70 to 90 %% of its life: %s to %s</title></rect>`,
			n(f.x(r0)), n(y), n(f.x(r1)-f.x(r0)), bandHeight, signed(c.RotateFrom), signed(c.RotateTo))
	}
	if c.OnDisk.To > c.NotAfter && c.NotAfter < f.to {
		f.band(band{Span: judge.Span{From: max(c.NotAfter, c.OnDisk.From), To: c.OnDisk.To, State: "expired"}}, y)
	}
	f.inscribe("serial "+shortSerial(c.Serial), x0, x1, y-1)
	if c.Requests > 0 {
		f.add(`<rect class="used" x="%s" y="%s" width="%s" height="3"><title>%d requests with this certificate, %s to %s</title></rect>`,
			n(f.x(c.Used.From)), n(y+bandHeight-3), n(max(f.x(c.Used.To)-f.x(c.Used.From), 1)), c.Requests, signed(c.Used.From), signed(c.Used.To))
	}
}

func shortSerial(s string) string { return s[:min(8, len(s))] }

// ticks draws times as strokes, one for each half unit at most.
func (f *frame) ticks(class string, times []float64, y, height float64) {
	var d strings.Builder
	last := math.Inf(-1)
	for _, t := range times {
		if x := math.Round(f.x(t)*2) / 2; f.inside(t) && x > last {
			fmt.Fprintf(&d, "M%s %sv%s", n(x), n(y), n(height))
			last = x
		}
	}
	if d.Len() > 0 {
		f.add(`<path class="%s" d="%s"/>`, class, d.String())
	}
}

// refused draws refused requests as small crosses.
func (f *frame) refused(deeds []judge.Deed, y float64) {
	var d strings.Builder
	last := math.Inf(-1)
	for _, r := range deeds {
		if x := math.Round(f.x(r.At)); f.inside(r.At) && x >= last+3 {
			fmt.Fprintf(&d, "M%s %sl5 5m0 -5l-5 5", n(x-2.5), n(y+3.5))
			last = x
		}
	}
	if d.Len() > 0 {
		f.add(`<path class="refused" d="%s"><title>%d requests refused with 401 or 403</title></path>`, d.String(), len(deeds))
	}
}

// strip draws the window of a mark with every branch, the user's limit and what
// the reference document says.
func (f *frame) strip(m point, y float64) {
	if m.windowed {
		for _, i := range m.Window.Intervals {
			class := "window"
			if len(m.Window.Intervals) == 1 || i.Branch == m.Window.Branch {
				class += " hit"
			}
			x0, x1 := f.x(m.from+i.Min), f.x(m.from+i.Max)
			f.add(`<rect class="%s" x="%s" y="%s" width="%s" height="5"><title>%s expected %s to %s: %s%s</title></rect>`,
				class, n(x0), n(y), n(max(x1-x0, 3)), esc(m.Title()), signed(m.from+i.Min), signed(m.from+i.Max), esc(m.Window.Why), esc(prefixed("; branch ", i.Branch)))
		}
		if l := m.Limit; l != nil {
			x0, x1 := f.x(m.from+l.Min), f.right
			if l.Max > 0 {
				x1 = f.x(m.from + l.Max)
			}
			f.add(`<path class="limit" d="M%s %sv4M%s %sH%sv-2v4"><title>limit of the experiment for %s: %s</title></path>`, n(x0), n(y), n(x0), n(y+2), n(x1), esc(m.Title()), esc(l.String()))
		}
		for _, c := range m.claims {
			x := f.x(m.from + c.Seconds)
			f.add(`<path class="claim" d="M%s %sl3 3l-3 3l-3 -3z"><title>%s: %s</title></path>`, n(x), n(y-1), esc(c.ID), esc(c.Said))
		}
	}
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// marks draws the milestones of a row, with their names where there is room.
func (f *frame) marks(ms []point, y, bottom float64) {
	var taken [][2]float64
	for _, m := range ms {
		taken = append(taken, [2]float64{f.x(m.at) - 4, f.x(m.at) + 4})
	}
	for i, m := range ms {
		x := f.x(m.at)
		class, shape := "mark", ""
		switch {
		case m.Seconds == nil:
			class, shape = "mark censored", fmt.Sprintf("M%s %sh7v7h-7z", n(x-3.5), n(y-9))
		case m.Verdict == judge.Fail:
			class, shape = "mark fail", fmt.Sprintf("M%s %sl7 7m0 -7l-7 7", n(x-3.5), n(y-9))
		case m.Verdict == judge.Inconclusive:
			class, shape = "mark open", fmt.Sprintf("M%s %sl4 4l-4 4l-4 -4z", n(x), n(y-10))
		default:
			class, shape = "mark pass", fmt.Sprintf("M%s %sh8l-4 7z", n(x-4), n(y-9))
			if m.Verdict == "" {
				class = "mark plain"
			}
		}
		seconds := ""
		if m.Seconds != nil {
			seconds = fmt.Sprintf(` data-seconds="%g"`, *m.Seconds)
		}
		f.add(`<g class="%s" data-milestone="%s" data-node="%s"%s><title>%s</title>`, class, esc(m.Title()), esc(m.Node), seconds, esc(markText(m)))
		f.add(`<line class="stem" x1="%s" x2="%s" y1="%s" y2="%s"/><path d="%s"/></g>`, n(x), n(x), n(y-4), n(bottom+2), shape)
		text := m.Title()
		if m.Seconds != nil {
			text += fmt.Sprintf(" %.1f", *m.Seconds)
		} else {
			text += " not reached"
		}
		f.label(text, x, y, i+1 < len(ms) && f.x(ms[i+1].at)-x < 30, &taken)
	}
}

// label writes the name of a mark on one of its sides, where nothing else is; on
// its left first where the next mark is near.
func (f *frame) label(text string, x, y float64, crowded bool, taken *[][2]float64) {
	w := float64(len(text)) * letter
	right, left := [2]float64{x + 5, x + 5 + w}, [2]float64{x - 5 - w, x - 5}
	sides := [][2]float64{right, left}
	if crowded {
		sides = [][2]float64{left, right}
	}
	for _, side := range sides {
		if side[0] < f.left || side[1] > f.right+10 || slices.ContainsFunc(*taken, func(t [2]float64) bool { return side[0] < t[1] && side[1] > t[0] }) {
			continue
		}
		at, anchor := side[0]+1, ""
		if side == left {
			at, anchor = side[1]-1, ` text-anchor="end"`
		}
		f.add(`<text class="name" x="%s" y="%s"%s>%s</text>`, n(at), n(y-2.5), anchor, esc(text))
		*taken = append(*taken, side)
		return
	}
}

func markText(m point) string {
	s := m.Title()
	if m.Seconds != nil {
		s += " " + signed(*m.Seconds)
	}
	if e := m.Explain(); e != "" {
		s += ": " + e
	}
	if m.Verdict != "" {
		s += " (" + string(m.Verdict) + ")"
	}
	return s
}
