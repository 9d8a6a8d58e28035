package report

import (
	"bytes"
	_ "embed" // the page and its style
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/flatline-chaos/flatline/internal/claims"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed style.css
	styleCSS string
)

// HTML writes the page of one run: self-contained, without scripts, for every
// width and for print. It needs no network.
func HTML(out io.Writer, tr *judge.Trace, r *judge.Run) error {
	tr, r = shown(tr), shown(r)
	p := page{
		Run: r, Sentence: Sentence(r), Sign: signOf(r), Outcome: outcome(r), Style: template.CSS(styleCSS), Patterns: patterns,
	}
	if len(r.Milestones) > 0 {
		p.Wide = template.HTML(picture(tr, r, wideWidth, "wide"))
		p.Narrow = template.HTML(picture(tr, r, narrowWidth, "narrow"))
	}
	for _, m := range r.Milestones {
		p.Rows = append(p.Rows, tableRow(m, r))
	}
	p.Facts = facts(r)
	p.Kubelets = kubeletTexts(r)
	p.Flags = flagRows(r)
	p.Deeds = tr.Deeds
	p.States = stateRows(tr, r)
	for _, name := range phases {
		if s, ok := r.Cost.Phases[name]; ok {
			p.Phases = append(p.Phases, phaseRow{name, s, 100 * s / max(r.Cost.WallSeconds, s, 1e-9)})
		}
	}
	return render(out, "run", p)
}

// phases are those of a run, in order.
var phases = []string{"setup", "create", "steady", "inject", "hold", "undo", "repair", "collect", "delete"}

// SVG writes the drawing alone, for other documents.
func SVG(out io.Writer, tr *judge.Trace, r *judge.Run) error {
	head, body, _ := strings.Cut(picture(tr, r, wideWidth, "wide"), "\n")
	_, err := fmt.Fprintf(out, "%s\n<style>%s</style>\n%s<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n%s", inXML(head), styleCSS, patterns, inXML(body))
	return err
}

// A page is what the template of one run is filled with.
type page struct {
	Run          *judge.Run
	Sentence     string
	Sign         string
	Outcome      string
	Kubelets     []string
	Style        template.CSS
	Patterns     template.HTML
	Wide, Narrow template.HTML
	Facts        [][2]string
	Rows         []resultRow
	Flags        []flagRow
	Deeds        []judge.Deed
	States       []stateRow
	Phases       []phaseRow
}

// A resultRow is one milestone of the table.
type resultRow struct {
	Title, Node, Short, Seconds, Value, From, Window, Rule, Verdict, Sign, Note, Evidence string
	Raw                                                                                   string // seconds since the injection, for programs
	Gauge                                                                                 template.HTML
}

type flagRow struct{ Component, Name, Value, Origin string }

type phaseRow struct {
	Name    string
	Seconds float64
	Percent float64
}

// A stateRow is one state of one thing: the drawing as text.
type stateRow struct{ Node, What, State, From, To string }

func render(out io.Writer, name string, data any) error {
	t, err := template.New("page").Funcs(template.FuncMap{"short": short, "shorts": shorts, "signed": signed, "sign": sign, "inc": func(i int) int { return i + 1 }}).Parse(pageHTML)
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, name, data); err != nil {
		return fmt.Errorf("filling the page: %w", err)
	}
	_, err = io.WriteString(out, inXML(b.String()))
	return err
}

// signOf is the sign of a run: what an experiment is to show is as good as a pass.
func signOf(r *judge.Run) string {
	if r.AsWanted() {
		return tick
	}
	return sign(r.Outcome)
}

// sign stands for an outcome where a colour alone would not do.
func sign(o judge.Outcome) string {
	switch o {
	case judge.OutcomePass:
		return tick
	case judge.OutcomeFail, judge.OutcomeDirty:
		return cross
	}
	return unknown
}

func facts(r *judge.Run) [][2]string {
	f := [][2]string{{"run", r.RunID}, {"experiment", r.Experiment + ", profile " + r.Profile}}
	if len(r.Target) > 0 {
		f = append(f, [2]string{"target", shorts(r.Target, r.Cluster)}, [2]string{"control nodes", shorts(r.ControlNodes, r.Cluster) + ": " + unchanged(r)},
			[2]string{"Kubernetes", r.KubernetesVersion + ", node image " + r.NodeImage})
	}
	if r.InjectedAt != nil {
		f = append(f, [2]string{"injected at", r.InjectedAt.UTC().Format("2006-01-02 15:04:05.000") + " UTC"})
	}
	if r.Bitten != nil {
		f = append(f, [2]string{"seen biting", fmt.Sprintf("at %.1f s: %s", r.Bitten.Seconds, r.Bitten.Seen)})
	}
	took := fmt.Sprintf("%.0f s, of which the tool's own %.0f s", r.Cost.WallSeconds, r.Cost.OverheadSeconds)
	if r.Pace != nil {
		took += "; the machine: " + r.Pace.String()
	}
	if s := r.Cost.ObserveSeconds; s > 0 {
		took += fmt.Sprintf("; observing cost %.2f requests/s and %.1f %% of a core", float64(r.Cost.APIRequests)/s, 100*r.Cost.ObserverCPUSeconds/s)
	}
	return append(f, [2]string{"took", took})
}

func tableRow(m judge.Result, r *judge.Run) resultRow {
	c := cells(m, r.Cluster)
	row := resultRow{Title: c[0], Node: m.Node, Short: c[1], Seconds: c[2], From: c[3], Value: c[4], Window: c[5], Sign: c[6], Note: c[7], Verdict: string(m.Verdict)}
	if m.Seconds != nil {
		row.Raw = fmt.Sprintf("%g", *m.Seconds)
	}
	if m.Window != nil {
		row.Rule = m.Window.Rule()
	}
	if r.Profile == defaultProfile {
		for _, c := range claims.On(m) {
			row.Note = join(row.Note, fmt.Sprintf("the document's %s: %s", c.ID, c.Said))
		}
	}
	if m.Limit != nil && m.Limit.Why != "" {
		row.Note = join(row.Note, "limit: "+m.Limit.Why)
	}
	row.Gauge = gauge(m)
	if m.Evidence != nil {
		if data, err := json.Marshal(m.Evidence); err == nil {
			row.Evidence = string(data)
		}
	}
	return row
}

// gauge draws a value against its window, on a scale of its own: in the picture of
// a long run a window of one second is a hair.
func gauge(m judge.Result) template.HTML {
	if m.Window == nil || len(m.Window.Intervals) == 0 || m.Window.Class != judge.Derived || m.After == nil {
		return ""
	}
	const width, pad = 120.0, 8.0
	lo, hi := m.Window.Intervals[0].Min, m.Window.Intervals[0].Max
	for _, i := range m.Window.Intervals {
		lo, hi = min(lo, i.Min), max(hi, i.Max)
	}
	if m.Seconds != nil {
		lo, hi = min(lo, m.After.Seconds), max(hi, m.After.Seconds)
	}
	x := func(s float64) float64 { return pad + (s-lo)/max(hi-lo, 1e-9)*(width-2*pad) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="gauge" viewBox="0 0 %g 16" aria-hidden="true">`, width)
	fmt.Fprintf(&b, `<line class="base" x1="0" x2="%g" y1="8" y2="8"/>`, width)
	for _, i := range m.Window.Intervals {
		class := "window"
		if len(m.Window.Intervals) == 1 || i.Branch == m.Window.Branch {
			class += " hit"
		}
		fmt.Fprintf(&b, `<rect class="%s" x="%s" y="4" width="%s" height="8"/>`, class, n(x(i.Min)), n(max(x(i.Max)-x(i.Min), 2)))
	}
	if m.Seconds != nil {
		class := "pass"
		if m.Verdict == judge.Fail {
			class = "fail"
		}
		fmt.Fprintf(&b, `<path class="needle %s" d="M%s 1v14"/>`, class, n(x(m.After.Seconds)))
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

func flagRows(r *judge.Run) []flagRow {
	var rows []flagRow
	for _, component := range slices.Sorted(maps.Keys(r.Flags)) {
		for _, name := range slices.Sorted(maps.Keys(r.Flags[component])) {
			f := r.Flags[component][name]
			rows = append(rows, flagRow{component, name, f.Value, f.Origin})
		}
	}
	return rows
}

// stateRows is the drawing as text: every state of every thing that has states.
func stateRows(tr *judge.Trace, r *judge.Run) []stateRow {
	var rows []stateRow
	left := 0
	put := func(node, what string, spans []judge.Span) {
		for _, s := range spans {
			if len(rows) >= mostStates {
				left++
				continue
			}
			to := signed(s.To)
			if s.Open {
				to = "the end"
			}
			rows = append(rows, stateRow{node, what, s.State, signed(s.From), to})
		}
	}
	for _, t := range tr.Nodes {
		node := short(t.Name, r.Cluster)
		if k := len(t.Renewals); k > 0 {
			rows = append(rows, stateRow{node, "Lease", fmt.Sprintf("%d renewals", k), signed(t.Renewals[0]), signed(t.Renewals[k-1])})
		}
		if k := len(t.Refused); k > 0 {
			rows = append(rows, stateRow{node, "requests of the kubelet", fmt.Sprintf("%d refused, the first: %s", k, t.Refused[0].What), signed(t.Refused[0].At), signed(t.Refused[k-1].At)})
		}
		put(node, "Ready", t.Ready.Spans)
		for _, l := range t.Taints {
			put(node, "taint "+l.Name, l.Spans)
		}
		for _, c := range t.Certificates {
			state := fmt.Sprintf("on disk, valid %s to %s", signed(c.NotBefore), signed(c.NotAfter))
			if c.Requests > 0 {
				state += fmt.Sprintf(", %d requests %s to %s", c.Requests, signed(c.Used.From), signed(c.Used.To))
			}
			put(node, "certificate "+shortSerial(c.Serial), []judge.Span{{From: c.OnDisk.From, To: c.OnDisk.To, State: state, Open: c.OnDisk.Open}})
		}
		for _, l := range t.Requests {
			put(node, "request "+l.Name, l.Spans)
		}
		for _, s := range t.Kubelet.Spans {
			if s.Note != "" {
				s.State += ": " + s.Note
			}
			put(node, "kubelet", []judge.Span{s})
		}
		for _, p := range t.Pods {
			put(short(p.On, r.Cluster), "pod "+p.Name, p.Spans)
		}
	}
	put("", "kube-controller-manager led by", tr.Leader.Spans)
	put("", "kube-apiserver", tr.Server.Spans)
	put("", "gap", tr.Gaps)
	if left > 0 {
		rows = append(rows, stateRow{What: fmt.Sprintf("and %d more states", left)})
	}
	return rows
}
