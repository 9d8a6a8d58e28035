package report

import (
	"encoding/csv"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/flatline-chaos/flatline/internal/compare"
)

// ComparisonFormats are the values that Comparison and Knobs take.
var ComparisonFormats = []string{"text", "markdown", "json", "csv", "html"}

// Comparison writes tables of a comparison in one of the ComparisonFormats.
func Comparison(out io.Writer, format string, tables []*compare.Table) error {
	switch format {
	case "json":
		return writeJSON(out, tables)
	case "csv":
		return comparisonCSV(out, tables)
	case "html":
		return comparisonHTML(out, shown(tables))
	case "text":
		tables = shown(tables)
	}
	var b strings.Builder
	for i, t := range tables {
		if i > 0 {
			b.WriteString("\n")
		}
		if format == "markdown" {
			comparisonMarkdown(&b, t)
		} else {
			comparisonText(&b, t)
		}
	}
	_, err := io.WriteString(out, guard(b.String()))
	return err
}

// comparisonCells are the columns of a table in text: what, counted from, the first arm, and
// of every other arm its median, the shift, what the model says of it, and p.
func comparisonCells(t *compare.Table, r compare.Row, tested bool) []string {
	cells := []string{r.Milestone, r.From}
	for i, c := range r.Cells {
		cells = append(cells, centre(c, t.Arms[i].Runs))
		if i == 0 {
			continue
		}
		delta, p := shift(c.Delta), ""
		if tested {
			p = probability(c.P)
			if !c.Significant {
				delta = "~"
			}
		}
		cells = append(cells, delta, shift(c.ModelDelta), p)
	}
	return cells
}

func comparisonHead(t *compare.Table) []string {
	head := []string{"milestone", "counted from"}
	for i, a := range t.Arms {
		head = append(head, fmt.Sprintf("%s (%d runs)", a.Name, a.Runs))
		if i > 0 {
			head = append(head, "delta", "model", "p")
		}
	}
	return head
}

// capitals joins the heads of columns, in capitals but for the names of arms.
func capitals(head []string) string {
	upper := slices.Clone(head)
	for i, h := range upper {
		if !strings.HasSuffix(h, " runs)") {
			upper[i] = strings.ToUpper(h)
		}
	}
	return strings.Join(upper, "\t")
}

// centre writes a median with its interval, how many runs have no number, and of how many it
// is where those are not all of the arm.
func centre(c compare.Cell, runs int) string {
	if c.N() == 0 {
		return "-"
	}
	s := "not reached"
	if c.Median != nil {
		s = fmt.Sprintf("%.2f", *c.Median)
		if c.Lo != nil && c.Hi != nil {
			s += fmt.Sprintf(" [%.2f, %.2f]", *c.Lo, *c.Hi)
		}
	}
	if c.Median == nil {
		s += fmt.Sprintf(" in %d of %d", c.NotReached, c.N())
	} else if c.NotReached > 0 {
		s += fmt.Sprintf(", %d of %d not reached", c.NotReached, c.N())
	} else if c.N() != runs {
		s += fmt.Sprintf(", n=%d", c.N())
	}
	return s
}

func shift(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%+.2f", round2(*v))
}

func round2(v float64) float64 { return math.Round(v*100)/100 + 0 } // and not -0

func probability(p *float64) string {
	switch {
	case p == nil:
		return "-"
	case *p < 0.001:
		return "<0.001"
	}
	return fmt.Sprintf("%.3f", *p)
}

func comparisonText(b *strings.Builder, t *compare.Table) {
	fmt.Fprintf(b, "%s\n%s\n", comparisonTitle(t), strings.Join(t.Facts, ", "))
	for _, a := range t.Arms[1:] {
		fmt.Fprintf(b, "%s: %s\n", a.Name, differs(a))
	}
	b.WriteString("\n")
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, capitals(comparisonHead(t)))
	for _, r := range t.Rows {
		fmt.Fprintln(tw, strings.Join(comparisonCells(t, r, true), "\t"))
	}
	fmt.Fprintln(tw)
	for _, r := range t.Totals {
		fmt.Fprintln(tw, strings.Join(comparisonCells(t, r, false), "\t"))
	}
	_ = tw.Flush() // a strings.Builder does not fail
	fmt.Fprintf(b, "\n%s\n", method(t))
	for _, s := range shifts(t) {
		fmt.Fprintf(b, "%s\n", s)
	}
	for _, s := range t.Notes {
		fmt.Fprintf(b, "note: %s\n", s)
	}
}

func comparisonTitle(t *compare.Table) string {
	var names []string
	for _, a := range t.Arms {
		names = append(names, a.Name)
	}
	if t.Title == "" {
		return strings.Join(names, " and ")
	}
	return t.Title + ": " + strings.Join(names, ", ")
}

func differs(a compare.Column) string {
	if len(a.Differs) == 0 {
		return "the same flags as the first"
	}
	var s []string
	for _, c := range a.Differs {
		s = append(s, c.String())
	}
	return strings.Join(s, ", ")
}

// method says how the numbers were come by.
func method(t *compare.Table) string {
	return fmt.Sprintf("Seconds; medians with intervals of %.0f %%. delta and model: against the first; ~ is not significant at %g. p: Mann-Whitney, corrected for the %d milestones of an arm (Holm). Times since FaultInjected contain the others and are not tested.",
		100*compare.Confidence, compare.Alpha, t.Family)
}

// shifts says in words what differs, and what the model has to say to it.
func shifts(t *compare.Table) []string {
	var list []string
	for i, a := range t.Arms[1:] {
		for _, r := range t.Rows {
			c := r.Cells[i+1]
			if !c.Significant {
				continue
			}
			s := fmt.Sprintf("%s: %s after %s measured %s s", a.Name, r.Milestone, r.From, shift(c.Delta))
			if c.ModelDelta != nil {
				s += fmt.Sprintf(", model %s s", shift(c.ModelDelta))
			}
			list = append(list, s)
		}
	}
	if list == nil {
		list = append(list, "nothing differs significantly")
	}
	return list
}

func comparisonMarkdown(b *strings.Builder, t *compare.Table) {
	fmt.Fprintf(b, "### %s\n\n%s\n\n", cell(comparisonTitle(t)), item(strings.Join(t.Facts, ", ")))
	for _, a := range t.Arms[1:] {
		fmt.Fprintf(b, "- %s: %s\n", item(a.Name), cell(differs(a)))
	}
	head := comparisonHead(t)
	fmt.Fprintf(b, "\n| %s |\n|---|---|%s\n", joined(head), strings.Repeat("--:|", len(head)-2))
	for _, r := range t.Rows {
		fmt.Fprintf(b, "| %s |\n", joined(comparisonCells(t, r, true)))
	}
	for _, r := range t.Totals {
		fmt.Fprintf(b, "| %s |\n", joined(comparisonCells(t, r, false)))
	}
	fmt.Fprintf(b, "\n%s\n\n", method(t))
	for _, s := range shifts(t) {
		fmt.Fprintf(b, "- %s\n", item(s))
	}
	for _, s := range t.Notes {
		fmt.Fprintf(b, "\n> %s\n", item(s))
	}
}

// joined writes the cells of a row of a table in Markdown.
func joined(cells []string) string {
	var s []string
	for _, c := range cells {
		s = append(s, cell(c))
	}
	return strings.Join(s, " | ")
}

// comparisonCSV writes a line for each milestone and arm.
func comparisonCSV(out io.Writer, tables []*compare.Table) error {
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write([]string{"table", "milestone", "counted from", "arm", "runs", "not reached", "median", "lo", "hi", "model", "delta", "model delta", "p", "significant"})
	number := func(v *float64) string {
		if v == nil {
			return ""
		}
		return strconv.FormatFloat(math.Round(*v*1e6)/1e6, 'f', -1, 64)
	}
	for i, t := range tables {
		for _, r := range slices.Concat(t.Rows, t.Totals) {
			for k, c := range r.Cells {
				_ = w.Write([]string{strconv.Itoa(i + 1), field(r.Milestone), field(r.From), field(t.Arms[k].Name), strconv.Itoa(c.N()), strconv.Itoa(c.NotReached),
					number(c.Median), number(c.Lo), number(c.Hi), number(c.Model), number(c.Delta), number(c.ModelDelta), number(c.P), strconv.FormatBool(c.Significant)})
			}
		}
	}
	w.Flush() // a strings.Builder does not fail
	_, err := io.WriteString(out, guard(b.String()))
	return err
}

// Knobs writes what single flags do in one of the ComparisonFormats but html.
func Knobs(out io.Writer, format string, k *compare.Knobs) error {
	head := []string{"flag", "from", "to", "runs", "milestone", "counted from", "shift", "interval", "model", "by 1 of the flag", "model", "p"}
	var rows [][]string
	for _, knob := range k.Knobs {
		_, name, _ := strings.Cut(knob.Flag, ".")
		for _, e := range knob.Effects {
			interval, measured := "-", shift(e.Delta)
			if e.DeltaLo != nil && e.DeltaHi != nil {
				interval = fmt.Sprintf("%+.2f to %+.2f", round2(*e.DeltaLo), round2(*e.DeltaHi))
			}
			p := probability(e.P)
			if e.P != nil && !e.Significant {
				p += " ~"
			}
			rows = append(rows, []string{name, knob.From, knob.To, strconv.Itoa(knob.Runs), e.Milestone, e.From, measured, interval, shift(e.Model), shift(e.Slope), shift(e.ModelSlope), p})
		}
	}
	var b strings.Builder
	switch format {
	case "json":
		return writeJSON(out, k)
	case "csv":
		w := csv.NewWriter(&b)
		_ = w.Write(head)
		for _, r := range rows {
			for i := range r[:6] { // the rest are numbers of ours
				r[i] = field(r[i])
			}
			_ = w.Write(r)
		}
		w.Flush()
	case "markdown":
		fmt.Fprintf(&b, "### One flag at a time against: %s\n\n%s, %d runs\n\n| %s |\n|%s\n", cell(k.Base), item(strings.Join(k.Facts, ", ")), k.Runs, joined(head), strings.Repeat("---|", len(head)))
		for _, r := range rows {
			fmt.Fprintf(&b, "| %s |\n", joined(r))
		}
		fmt.Fprintf(&b, "\n%s\n", knobsMethod)
		for _, s := range k.Notes {
			fmt.Fprintf(&b, "\n> %s\n", item(s))
		}
	default:
		k = shown(k)
		fmt.Fprintf(&b, "one flag at a time against: %s\n%s, %d runs\n\n", k.Base, strings.Join(k.Facts, ", "), k.Runs)
		tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, strings.ToUpper(strings.Join(head, "\t")))
		for i, r := range rows {
			if i > 0 && rows[i-1][0]+rows[i-1][2] == r[0]+r[2] {
				r = append([]string{"", "", "", ""}, r[4:]...)
			}
			fmt.Fprintln(tw, strings.Join(shown(r), "\t"))
		}
		_ = tw.Flush()
		fmt.Fprintf(&b, "\n%s\n", knobsMethod)
		for _, s := range k.Notes {
			fmt.Fprintf(&b, "note: %s\n", s)
		}
	}
	_, err := io.WriteString(out, guard(b.String()))
	return err
}

const knobsMethod = "Seconds; shifts of medians, with what the 95 % intervals of both allow. Steps that neither shift significantly nor should are left out. p: Mann-Whitney, corrected for all milestones of the arm (Holm); ~ is not significant at 0.05. What counts from FaultInjected contains the others and is not tested."

// A multiple is one milestone drawn for all arms.
type multiple struct {
	Title, From string
	Picture     template.HTML
}

// A comparisonPage is what the template of a comparison is filled with.
type comparisonPage struct {
	Title    string
	Style    template.CSS
	Patterns template.HTML
	Tables   []comparisonSection
}

type comparisonSection struct {
	Title     string
	Facts     string
	Arms      [][2]string
	Multiples []multiple
	Head      []string
	Rows      [][]string
	Method    string
	Shifts    []string
	Notes     []string
}

func comparisonHTML(out io.Writer, tables []*compare.Table) error {
	p := comparisonPage{Title: comparisonTitle(tables[0]), Style: template.CSS(styleCSS), Patterns: patterns}
	for _, t := range tables {
		s := comparisonSection{Title: comparisonTitle(t), Facts: strings.Join(t.Facts, ", "), Head: comparisonHead(t), Method: method(t), Shifts: shifts(t), Notes: t.Notes}
		for _, a := range t.Arms[1:] {
			s.Arms = append(s.Arms, [2]string{a.Name, differs(a)})
		}
		for _, r := range slices.Concat(t.Totals, t.Rows) {
			s.Multiples = append(s.Multiples, multiple{r.Milestone, r.From, template.HTML(drawMultiple(t, r))})
		}
		for _, r := range t.Rows {
			s.Rows = append(s.Rows, comparisonCells(t, r, true))
		}
		for _, r := range t.Totals {
			s.Rows = append(s.Rows, comparisonCells(t, r, false))
		}
		p.Tables = append(p.Tables, s)
	}
	return render(out, "comparison", p)
}

// drawMultiple draws a milestone: a strip for each arm, with the window and what was
// measured.
func drawMultiple(t *compare.Table, r compare.Row) string {
	const width, pad, rowHeight = 340.0, 10.0, 38.0
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, c := range r.Cells {
		for _, w := range c.Windows {
			lo, hi = min(lo, w[0]), max(hi, w[1])
		}
		for _, v := range c.Values {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	if math.IsInf(lo, 0) {
		return ""
	}
	if hi-lo < 0.1 {
		lo, hi = lo-0.05, hi+0.05
	}
	x := func(v float64) float64 { return pad + (v-lo)/(hi-lo)*(width-2*pad) }
	height := rowHeight*float64(len(r.Cells)) + 16
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s"><title>%s</title>`, width, height, esc(r.Milestone+" after "+r.From), esc(r.Milestone+" after "+r.From))
	by := step(hi-lo, 6)
	for v := math.Ceil(lo/by) * by; v <= hi; v += by {
		fmt.Fprintf(&b, `<path class="grid" d="M%s 0V%s"/><text class="axis" x="%s" y="%s" text-anchor="middle">%s</text>`, n(x(v)), n(height-14), n(x(v)), n(height-4), strconv.FormatFloat(round2(v), 'f', -1, 64))
	}
	for i, c := range r.Cells {
		top := rowHeight * float64(i)
		fmt.Fprintf(&b, `<text class="name" x="4" y="%s">%s</text><text class="name" x="%s" y="%s" text-anchor="end">%s</text>`, n(top+11), esc(t.Arms[i].Name), n(width-4), n(top+11), esc(centre(c, t.Arms[i].Runs)))
		y := top + 16
		fmt.Fprintf(&b, `<path class="base" d="M0 %sH%s"/>`, n(y+8), n(width))
		for _, w := range envelope(c.Windows) {
			fmt.Fprintf(&b, `<rect class="window hit" x="%s" y="%s" width="%s" height="16"><title>window %.2f to %.2f s</title></rect>`, n(x(w[0])), n(y), n(max(2, x(w[1])-x(w[0]))), w[0], w[1])
		}
		for k, v := range c.Values {
			class := "pass"
			if len(c.Windows) == 0 {
				class = "plain"
			} else if !slices.ContainsFunc(c.Windows, func(w [2]float64) bool { return v >= w[0] && v <= w[1] }) {
				class = "fail"
			}
			// Spread over the height, so that equal values can be told apart.
			dy := 3 + 10*float64((k*7)%11)/10
			fmt.Fprintf(&b, `<g class="mark %s"><title>%.3f s</title><circle cx="%s" cy="%s" r="2.4"/></g>`, class, v, n(x(v)), n(y+dy))
		}
		if c.Median != nil {
			fmt.Fprintf(&b, `<path class="stem median" d="M%s %sv20"/>`, n(x(*c.Median)), n(y-2))
		}
	}
	b.WriteString("</svg>")
	return b.String()
}

// envelope puts windows that overlap into one: those of single runs differ a little.
func envelope(windows [][2]float64) [][2]float64 {
	var all [][2]float64
	for _, w := range windows { // in order
		if k := len(all) - 1; k >= 0 && w[0] <= all[k][1] {
			all[k][1] = max(all[k][1], w[1])
		} else {
			all = append(all, w)
		}
	}
	return all
}
