package report

import (
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/flatline-chaos/flatline/pkg/judge"
)

// Overlay writes the page of several runs: every milestone a row, every run a line
// in it, with the injection at zero.
func Overlay(out io.Writer, runs []*judge.Run) error {
	runs = shown(runs)
	p := overlayPage{Runs: runs, Style: template.CSS(styleCSS), Patterns: patterns, Title: overlayTitle(runs)}
	p.Wide = template.HTML(overlay(runs, wideWidth, "wide"))
	p.Narrow = template.HTML(overlay(runs, narrowWidth, "narrow"))
	for _, g := range group(runs) {
		p.Spreads = append(p.Spreads, spreadRow{g.title, g.from, len(g.values), g.values[0], quantile(g.values, 0.5), g.values[len(g.values)-1], g.window})
	}
	return render(out, "overlay", p)
}

type overlayPage struct {
	Title        string
	Runs         []*judge.Run
	Style        template.CSS
	Patterns     template.HTML
	Wide, Narrow template.HTML
	Spreads      []spreadRow
}

type spreadRow struct {
	Title, From      string
	Runs             int
	Min, Median, Max float64
	Window           string
}

// overlayTitle names what the runs are of.
func overlayTitle(runs []*judge.Run) string {
	var names []string
	for _, r := range runs {
		names = append(names, r.Experiment+" "+r.Profile)
	}
	slices.Sort(names)
	return fmt.Sprintf("%d runs of %s", len(runs), strings.Join(slices.Compact(names), ", "))
}

// A thread is one milestone in one run.
type thread struct {
	point
	run int
}

// overlay draws the milestones of the runs' targets.
func overlay(runs []*judge.Run, width float64, id string) string {
	f := &frame{id: id, width: width, left: gutter, right: width - 14, narrow: width < 600, to: 1}
	if f.narrow {
		f.left, f.right = 6, width-6
	}
	rows := map[string][]thread{}
	var order []string
	for i, r := range runs {
		c := &composer{tr: &judge.Trace{}, run: r}
		for _, m := range r.Milestones {
			if m.Seconds == nil || !slices.Contains(r.Target, m.Node) {
				continue
			}
			k, _ := c.point(m)
			if rows[m.Title()] == nil {
				order = append(order, m.Title())
			}
			rows[m.Title()] = append(rows[m.Title()], thread{k, i})
			f.to = max(f.to, *m.Seconds)
		}
	}
	slices.SortStableFunc(order, func(a, b string) int { return byMedian(rows[a], rows[b]) })
	f.from = -0.03 * f.to
	f.to *= 1.04
	line := max(3, min(7, 48/float64(len(runs))))
	height := 26.0 + 22
	for range order {
		height += f.overlayHeight(line, len(runs))
	}
	f.add(`<svg class="run" viewBox="0 0 %s %s" role="img" aria-labelledby="%s-title %s-desc" xmlns="http://www.w3.org/2000/svg">`, n(f.width), n(height), id, id)
	f.add(`<title id="%s-title">%s</title>`, id, esc(overlayTitle(runs)))
	f.add(`<desc id="%s-desc">One row for each milestone, one line in it for each run: where it was measured, over the windows it had to fall in. The tables below have the same as text.</desc>`, id)
	f.axis(18, height)
	f.y = 26
	for _, title := range order {
		f.threads(title, rows[title], line, len(runs))
	}
	f.injection(height)
	f.b.WriteString("</svg>\n")
	return f.b.String()
}

// byMedian orders milestones by when most runs had them.
func byMedian(a, b []thread) int {
	mid := func(ts []thread) float64 {
		var s []float64
		for _, t := range ts {
			s = append(s, t.at)
		}
		slices.Sort(s)
		return quantile(s, 0.5)
	}
	if d := mid(a) - mid(b); d < 0 {
		return -1
	} else if d > 0 {
		return 1
	}
	return 0
}

func (f *frame) overlayHeight(line float64, runs int) float64 {
	h := 6 + max(20, line*float64(runs))
	if f.narrow {
		h += 13
	}
	return h
}

func (f *frame) threads(title string, ts []thread, line float64, runs int) {
	y := f.y + 3
	f.y += f.overlayHeight(line, runs)
	lo, hi := ts[0].at, ts[0].at
	for _, t := range ts {
		lo, hi = min(lo, t.at), max(hi, t.at)
	}
	label := fmt.Sprintf("%s %.1f to %.1f", title, lo, hi)
	if f.narrow {
		f.add(`<text class="label" x="4" y="%s">%s</text>`, n(y+10), esc(label))
		y += 13
	} else {
		f.add(`<text class="label" x="4" y="%s">%s</text>`, n(y+9), esc(title))
		f.add(`<text class="axis" x="4" y="%s">%.1f to %.1f s</text>`, n(y+20), lo, hi)
	}
	f.add(`<line class="base" x1="0" x2="%s" y1="%s" y2="%s"/>`, n(f.width), n(f.y), n(f.y))
	for _, t := range ts {
		top := y + line*float64(t.run)
		if t.windowed && t.Window.Class == judge.Derived {
			for _, i := range t.Window.Intervals {
				class := "window"
				if len(t.Window.Intervals) == 1 || i.Branch == t.Window.Branch {
					class += " hit"
				}
				f.add(`<rect class="%s" x="%s" y="%s" width="%s" height="%s"/>`, class, n(f.x(t.from+i.Min)), n(top), n(max(f.x(t.from+i.Max)-f.x(t.from+i.Min), 2)), n(line-0.6))
			}
		}
		class := "pass"
		switch t.Verdict {
		case judge.Fail:
			class = "fail"
		case "":
			class = "plain"
		}
		f.add(`<g class="mark %s"><title>run %d: %s</title><circle cx="%s" cy="%s" r="%s"/></g>`, class, t.run+1, esc(markText(t.point)), n(f.x(t.at)), n(top+line/2-0.3), n(max(1.7, line/2-0.4)))
	}
}
