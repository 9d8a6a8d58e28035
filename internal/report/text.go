// Package report shows runs to people. It holds every rendering and no fact or
// opinion of its own.
package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/flatline-chaos/flatline/pkg/judge"
)

// Marks of verdicts.
const (
	tick    = "✓"
	cross   = "✗"
	unknown = "?"
)

func mark(v judge.Verdict) string {
	switch v {
	case judge.Pass:
		return tick
	case judge.Fail:
		return cross
	case judge.Inconclusive:
		return unknown
	}
	return ""
}

// Text writes the answer of a run: the table of milestones, what surrounds it,
// and the outcome as the last word.
func Text(out io.Writer, r *judge.Run) error { return text(out, r, false) }

// Wide is Text with the source of every time and the term that ruled its window.
func Wide(out io.Writer, r *judge.Run) error { return text(out, r, true) }

func text(out io.Writer, r *judge.Run, wide bool) error {
	r = shown(r)
	var b strings.Builder
	fmt.Fprintf(&b, "%s, profile %s", r.Experiment, r.Profile)
	if len(r.Target) > 0 { // else there was no cluster
		fmt.Fprintf(&b, ", Kubernetes %s, target %s", r.KubernetesVersion, strings.Join(r.Target, " "))
	}
	b.WriteString("\n\n")
	table(&b, r, wide)
	heartbeats(&b, r)
	if r.Bitten != nil {
		fmt.Fprintf(&b, "the fault was seen biting at %.1f s: %s\n", r.Bitten.Seconds, r.Bitten.Seen)
	}
	kubelets(&b, r)
	if len(r.ControlNodes) > 0 && r.Outcome != judge.OutcomeSetupFailed {
		fmt.Fprintf(&b, "control nodes %s: %s\n", shorts(r.ControlNodes, r.Cluster), unchanged(r))
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	for _, g := range r.Gaps {
		until := "the end"
		if g.To != nil {
			until = fmt.Sprintf("%.1f s", *g.To)
		}
		fmt.Fprintf(&b, "gap: source %s saw nothing from %.1f s to %s: %s\n", g.Source, g.From, until, g.Why)
	}
	c := r.Cost
	fmt.Fprintf(&b, "took %.0f s: create %.0f, delete %.0f, overhead %.0f%s", c.WallSeconds, c.Phases["create"], c.Phases["delete"], c.OverheadSeconds, ownPhases(c))
	if c.ObserveSeconds > 0 {
		fmt.Fprintf(&b, "; observing cost %.2f requests/s and %.1f %% of a core for the runner", float64(c.APIRequests)/c.ObserveSeconds, 100*c.ObserverCPUSeconds/c.ObserveSeconds)
	}
	fmt.Fprintf(&b, "\n")
	if r.Pace != nil {
		fmt.Fprintf(&b, "the machine: %s\n", r.Pace)
	}
	fmt.Fprintf(&b, "\noutcome: %s\n", outcome(r))
	for _, why := range r.Reasons {
		fmt.Fprintf(&b, "  %s\n", why)
	}
	_, err := io.WriteString(out, guard(b.String()))
	return err
}

// table writes the milestones of the targets; those of control nodes only where
// there are any, which is never good news.
func table(b *strings.Builder, r *judge.Run, wide bool) {
	if len(r.Milestones) == 0 {
		return
	}
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	head := []string{"MILESTONE", "NODE", "SECONDS", "COUNTED FROM", "VALUE", "WINDOW", "", "NOTE"}
	if wide {
		head = append(head, "SEEN BY", "WINDOW COMES FROM")
	}
	fmt.Fprintln(tw, strings.Join(head, "\t"))
	for _, m := range r.Milestones {
		row := cells(m, r.Cluster)
		if wide {
			why := ""
			if m.Window != nil {
				why = m.Window.Rule()
			}
			row = append(row, strings.Join(slices.Sorted(maps.Keys(m.Seen)), ","), why)
		}
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	_ = tw.Flush() // a strings.Builder does not fail
	b.WriteString("\n")
}

// cells are the columns of one milestone, in text and Markdown alike.
func cells(m judge.Result, cluster string) []string {
	seconds, from, value, window := "-", "", "", ""
	if m.Seconds != nil {
		seconds = fmt.Sprintf("%.2f", *m.Seconds)
	}
	if m.After != nil {
		from = m.After.Title()
		if m.Seconds != nil {
			value = fmt.Sprintf("%.2f", m.After.Seconds)
			if m.Verdict == judge.Fail { // so near to a bound, perhaps, that it counts
				value = fmt.Sprintf("%.3f", m.After.Seconds)
			}
		}
	}
	note := m.Note
	if m.Window != nil {
		window = m.Window.String()
		if m.Window.Class != judge.Derived {
			window = m.Window.Class
		}
		if len(m.Window.Intervals) > 1 && m.Window.Branch != "" {
			note = join(m.Window.Branch, note)
		}
	}
	if m.Limit != nil && m.Limit.Max == 0 {
		window += fmt.Sprintf(" limit [%g, ∞)", m.Limit.Min)
	} else if m.Limit != nil {
		window += fmt.Sprintf(" limit [%g, %g]", m.Limit.Min, m.Limit.Max)
	}
	if m.Never {
		window = "never"
	}
	return []string{m.Title(), short(m.Node, cluster), seconds, from, value, window, mark(m.Verdict), note}
}

func heartbeats(b *strings.Builder, r *judge.Run) {
	if len(r.Heartbeats) == 0 {
		return
	}
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "HEARTBEAT\tRENEWALS\tGAP MIN\tMEDIAN\tMAX\tVERB\tBYTES\tSTATUS REPORTS\tBYTES\n")
	for _, h := range r.Heartbeats {
		fmt.Fprintf(tw, "%s\t%d\t%.2f\t%.2f\t%.2f\t%s\t%d\t%s\t%d\n", short(h.Node, r.Cluster), h.Renewals, h.GapMin, h.GapMedian, h.GapMax, counted(h.Verbs), h.BytesMedian, counted(h.Status.Verbs), h.Status.BytesMedian)
	}
	_ = tw.Flush()
	b.WriteString("\n")
}

// outcome is that of a run, and whether it is the one that the experiment is to come
// to, where that is not pass.
func outcome(r *judge.Run) string {
	switch {
	case r.Wanted == "":
		return string(r.Outcome)
	case r.AsWanted():
		return string(r.Outcome) + ", which this experiment is to show"
	}
	return fmt.Sprintf("%s, where this experiment is to show %s", r.Outcome, r.Wanted)
}

// ownPhases lists how long the phases took that are overhead, all or in part: those of the
// cluster have a number of their own, and the hold is the experiment's.
func ownPhases(c judge.Cost) string {
	var s []string
	for _, phase := range phases {
		if took, ok := c.Phases[phase]; ok && !slices.Contains([]string{"create", "hold", "delete"}, phase) {
			s = append(s, fmt.Sprintf("%s %.1f", phase, took))
		}
	}
	if len(s) == 0 {
		return ""
	}
	return " (" + strings.Join(s, ", ") + ")"
}

// kubelets writes what became of the targets' kubelets.
func kubelets(b *strings.Builder, r *judge.Run) {
	texts := kubeletTexts(r)
	for _, t := range texts {
		fmt.Fprintln(b, t)
	}
	if r.Bitten != nil || len(texts) > 0 {
		b.WriteString("\n")
	}
}

// kubeletTexts tells what became of the targets' kubelets, where there is more to
// tell than that they ran.
func kubeletTexts(r *judge.Run) []string {
	var texts []string
	for _, k := range r.Kubelets {
		node := short(k.Node, r.Cluster)
		if len(k.States) > 1 {
			texts = append(texts, fmt.Sprintf("kubelet of %s: %s", node, strings.Join(kubeletStates(k), "; ")))
		}
		if q := k.Requests; q.Made > 0 {
			texts = append(texts, fmt.Sprintf("requests of %s before the undo: %d made, %d issued, %d stored", node, q.Made, q.Issued, q.Stored))
		}
		if k.Exit != "" {
			texts = append(texts, fmt.Sprintf("when the kubelet of %s ends by itself: %s", node, k.Exit))
		}
	}
	return texts
}

// kubeletStates are the states of a kubelet in words.
func kubeletStates(k judge.Kubelet) []string {
	var s []string
	for i, st := range k.States {
		text := fmt.Sprintf("%s from %.1f s", st.State, st.From)
		if i == 0 {
			text = st.State
		}
		if st.Note != "" {
			text += " (" + st.Note + ")"
		}
		s = append(s, text)
	}
	return s
}

// counted says how often each verb was used: "patch 1, update 39".
func counted(verbs map[string]int) string {
	var s []string
	for _, v := range slices.Sorted(maps.Keys(verbs)) {
		s = append(s, fmt.Sprintf("%s %d", v, verbs[v]))
	}
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}

// short is a node's name without the name of its cluster, which is the same for
// all of them.
func short(node, cluster string) string { return strings.TrimPrefix(node, cluster+"-") }

func shorts(nodes []string, cluster string) string {
	var s []string
	for _, n := range nodes {
		s = append(s, short(n, cluster))
	}
	return strings.Join(s, ", ")
}

// unchanged says whether anything of the chain happened on a control node.
func unchanged(r *judge.Run) string {
	if len(r.ControlChanges) > 0 {
		return "changed, see below"
	}
	return "unchanged"
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// Changes writes in what two judgements of a run differ, a line each.
func Changes(out io.Writer, changes []string) error {
	_, err := io.WriteString(out, guard("\nchanged since it was judged last:\n  "+strings.Join(shown(changes), "\n  ")+"\n"))
	return err
}

// Live shows a run while it happens: a line for every phase and milestone and, on
// a terminal, one status line that is rewritten.
type Live struct {
	out      io.Writer
	terminal bool
	status   bool // a status line stands there
	phase    string
}

// NewLive writes to out, which is a terminal or not.
func NewLive(out io.Writer, terminal bool) *Live { return &Live{out: out, terminal: terminal} }

// Show tells one piece of news. It must not be called by two goroutines at once.
func (l *Live) Show(u judge.Update) {
	elapsed := fmt.Sprintf("%7.1fs", u.Elapsed.Seconds())
	switch {
	case u.Next != nil:
		if !l.terminal {
			return
		}
		l.clear()
		fmt.Fprintf(l.out, "%s  %s; next: %s", elapsed, l.phase, plain(Countdown(*u.Next, u.Elapsed)))
		l.status = true
	case u.Phase != "" && u.Phase != "end":
		l.phase = u.Phase
		l.line("%s  == %s", elapsed, u.Phase)
	case u.Milestone != nil:
		l.line("%s  %s", elapsed, plain(Line(*u.Milestone)))
	case u.Text != "":
		l.line("%s  %s", elapsed, u.Text)
	}
}

func (l *Live) line(format string, args ...any) {
	l.clear()
	fmt.Fprintln(l.out, Lines(fmt.Sprintf(format, args...)))
}

func (l *Live) clear() {
	if l.status {
		fmt.Fprint(l.out, "\r\x1b[K")
		l.status = false
	}
}

// Line says one milestone: name, node, value, window, tick or cross.
func Line(m judge.Result) string {
	s := fmt.Sprintf("%-22s %s", m.Title(), m.Node)
	if m.Seconds != nil {
		s += fmt.Sprintf("  %+.2f s", *m.Seconds)
	}
	if inside, judged := m.Inside(); judged {
		v := cross
		if inside {
			v = tick
		}
		s += fmt.Sprintf("  %.2f s after %s, window %s %s", m.After.Seconds, m.After.Title(), m.Window, v)
		if len(m.Window.Intervals) > 1 && m.Window.Branch != "" {
			s += "  " + m.Window.Branch
		}
	}
	return s
}

// Countdown says when the next milestone is due.
func Countdown(d judge.Due, now time.Duration) string {
	title := d.Name
	if d.Subject != "" {
		title += " " + d.Subject
	}
	if wait := d.From - now; wait > 0 {
		return fmt.Sprintf("%s in %.0f s", title, wait.Seconds())
	}
	return fmt.Sprintf("%s at any moment, at the latest in %.0f s", title, max(0, (d.To-now).Seconds()))
}
