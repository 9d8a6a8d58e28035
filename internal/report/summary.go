package report

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/flatline-chaos/flatline/pkg/judge"
)

// Summary writes a row for each run, the spread of every milestone over all of
// them, and how much later the watch saw what the audit log stamped.
func Summary(out io.Writer, runs []*judge.Run) error {
	runs = shown(runs)
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "EXPERIMENT\tPROFILE\tRUN\tOUTCOME\tWALL S\tOVERHEAD S\tNOEXECUTE\tREQUESTS/S\tCPU %%\n")
	for _, r := range runs {
		perSecond, cpu := 0.0, 0.0
		if s := r.Cost.ObserveSeconds; s > 0 {
			perSecond, cpu = float64(r.Cost.APIRequests)/s, 100*r.Cost.ObserverCPUSeconds/s
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%.1f\t%.1f\t%s\t%.2f\t%.1f\n", r.Experiment, r.Profile, r.RunID, r.Outcome, r.Cost.WallSeconds, r.Cost.OverheadSeconds, branch(r), perSecond, cpu)
	}
	fmt.Fprintf(tw, "\nMILESTONE\tCOUNTED FROM\tRUNS\tMIN\tMEDIAN\tMAX\tWINDOW\n")
	for _, g := range group(runs) {
		fmt.Fprintf(tw, "%s\t%s\t%d\t%.2f\t%.2f\t%.2f\t%s\n", g.title, g.from, len(g.values), g.values[0], quantile(g.values, 0.5), g.values[len(g.values)-1], g.window)
	}
	branches(tw, runs)
	fmt.Fprintf(tw, "\nWATCH LATER THAN AUDIT, MS\t\tN\tMIN\tMEDIAN\tP99\tMAX\n")
	var all []float64
	byName := map[string][]float64{}
	for _, r := range runs {
		for _, d := range r.Differences {
			all = append(all, 1000*d.Seconds)
			byName[d.Milestone] = append(byName[d.Milestone], 1000*d.Seconds)
		}
	}
	for _, name := range judge.Names() {
		delays(tw, name, byName[name])
	}
	delays(tw, "all", all)
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(out, guard(b.String()))
	return err
}

// branches counts which branch each milestone took that has more than one, and says
// why of every one that did not take the first.
func branches(w io.Writer, runs []*judge.Run) {
	type key struct{ milestone, branch string }
	count := map[key]int{}
	var order []key
	var late []string
	for _, r := range runs {
		for _, m := range r.Milestones {
			if m.Window == nil || m.Window.Branch == "" || len(m.Window.Intervals) < 2 || !slices.Contains(r.Target, m.Node) {
				continue
			}
			k := key{m.Title(), m.Window.Branch}
			if count[k] == 0 {
				order = append(order, k)
			}
			count[k]++
			if m.Window.Branch != m.Window.Intervals[0].Branch {
				late = append(late, fmt.Sprintf("%s\t%s\t%s", r.RunID, m.Title(), m.Explain()))
			}
		}
	}
	if len(order) == 0 {
		return
	}
	fmt.Fprintf(w, "\nMILESTONE\tBRANCH\tRUNS\n")
	slices.SortStableFunc(order, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.milestone, b.milestone), cmp.Compare(a.branch, b.branch))
	})
	for _, k := range order {
		fmt.Fprintf(w, "%s\t%s\t%d\n", k.milestone, k.branch, count[k])
	}
	for _, l := range late {
		fmt.Fprintf(w, "  %s\n", l)
	}
}

func delays(w io.Writer, name string, ms []float64) {
	if len(ms) == 0 {
		return
	}
	slices.Sort(ms)
	fmt.Fprintf(w, "%s\t\t%d", name, len(ms))
	for _, v := range []float64{ms[0], quantile(ms, 0.5), quantile(ms, 0.99), ms[len(ms)-1]} {
		fmt.Fprintf(w, "\t%d", int(math.Round(v))) // an integer has no -0
	}
	fmt.Fprintln(w)
}

// branch is the letter of the branch that NoExecute took on the first target.
func branch(r *judge.Run) string {
	for _, m := range r.Milestones {
		if m.Name == judge.NoExecuteTainted && m.Window != nil && slices.Contains(r.Target, m.Node) {
			b, _, _ := strings.Cut(m.Window.Branch, ":")
			return b
		}
	}
	return "-"
}

// A spread is one milestone over many runs: seconds from the one before.
type spread struct {
	title, from, window string
	values              []float64
}

// group collects the milestones that runs have in common, in the order of the
// chain.
func group(runs []*judge.Run) []*spread {
	byTitle := map[string]*spread{}
	var order []*spread
	for _, r := range runs {
		if !r.Answered() {
			continue // it has no answer
		}
		settings, _ := json.Marshal(r.Flags) // strings only
		flags := sha256.Sum256(settings)     // they may be long
		for _, m := range r.Milestones {
			if !m.Expected || m.Seconds == nil || m.After == nil {
				continue
			}
			key := strings.Join([]string{r.Experiment, r.Profile, string(flags[:]), m.Title(), m.After.Title()}, " ")
			g := byTitle[key]
			if g == nil {
				g = &spread{title: m.Title(), from: m.After.Title(), window: windowText(m)}
				byTitle[key] = g
				order = append(order, g)
			}
			g.window = both(g.window, windowText(m))
			g.values = append(g.values, m.After.Seconds)
		}
	}
	for _, g := range order {
		slices.Sort(g.values)
	}
	return order
}

// both is one text for two windows of a milestone: the longer one where it has a
// branch more, which only some runs had.
func both(a, b string) string {
	switch {
	case strings.HasPrefix(a, b):
		return a
	case strings.HasPrefix(b, a):
		return b
	}
	return "each run its own"
}

func windowText(m judge.Result) string {
	if m.Window == nil {
		return ""
	}
	return m.Window.String()
}

// quantile is the smallest value that at least the share q of all values does not
// exceed.
func quantile(sorted []float64, q float64) float64 {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
