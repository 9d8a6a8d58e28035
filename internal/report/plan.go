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

// A Plan is what an experiment would do, in the words to be shown.
type Plan struct {
	Name, Profile, Description, Fault string
	Setup                             []string // on what it is run
	Config                            *judge.Config
	Undo, Repair                      []string // "what on which node"
	Forecasts                         []judge.Forecast
	Never                             []judge.Denial
	Outcome                           judge.Outcome // that it is to come to, where that is not pass
	Least, Most                       time.Duration
}

// Text writes the plan.
func (p *Plan) Text(out io.Writer) error {
	p = shown(p)
	var b strings.Builder
	fmt.Fprintf(&b, "%s, profile %s, Kubernetes %s\n%s\n\n", p.Name, p.Profile, p.Config.KubernetesVersion, p.Description)
	for _, line := range p.Setup {
		fmt.Fprintln(&b, line)
	}
	fmt.Fprintf(&b, "\nflags that are set, and defaults that matter:\n")
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, component := range slices.Sorted(maps.Keys(p.Config.Flags)) {
		for _, name := range slices.Sorted(maps.Keys(p.Config.Flags[component])) {
			f := p.Config.Flags[component][name]
			fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\n", component, name, f.Value, f.Origin)
		}
	}
	_ = tw.Flush() // a strings.Builder does not fail
	fmt.Fprintf(&b, "\nfault: %s\n", p.Fault)
	for _, list := range []struct {
		title string
		steps []string
	}{{"undo", p.Undo}, {"repair", p.Repair}} {
		for i, s := range list.steps {
			fmt.Fprintf(&b, "%s %d: %s\n", list.title, i+1, s)
		}
	}
	if len(p.Forecasts) > 0 {
		fmt.Fprintf(&b, "\nexpected:\n")
		fmt.Fprintf(tw, "  MILESTONE\tCOUNTED FROM\tWINDOW\tSINCE INJECTION\tWINDOW COMES FROM\n")
	}
	for _, f := range p.Forecasts {
		window := f.Window.Class
		if f.Window.Class == judge.Derived || len(f.Window.Intervals) > 0 {
			window = f.Window.String()
		}
		why := f.Window.Rule()
		if f.Limit != nil {
			why = join(why, "limit: "+f.Limit.String())
		}
		since := ""
		if f.Bounded {
			since = fmt.Sprintf("%.0f to %.0f s", f.From.Seconds(), f.To.Seconds())
		}
		fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\t%s\n", title(f.Key), f.After, window, since, why)
	}
	_ = tw.Flush()
	if len(p.Never) > 0 {
		var names []string
		for _, d := range p.Never {
			names = append(names, title(d.Key))
		}
		fmt.Fprintf(&b, "\nmust not occur before the undo: %s\n", strings.Join(names, ", "))
	}
	for _, d := range p.Never {
		if d.Vacuous != "" {
			fmt.Fprintf(&b, "vacuous: %s: %s\n", title(d.Key), d.Vacuous)
		}
	}
	if p.Outcome != "" {
		fmt.Fprintf(&b, "\nis to come to: %s\n", p.Outcome)
	}
	for _, w := range p.Config.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	fmt.Fprintf(&b, "\ntakes %s to %s\n", Minutes(p.Least), Minutes(p.Most))
	_, err := io.WriteString(out, guard(b.String()))
	return err
}

func title(k judge.Key) string { return strings.TrimSpace(k.Name + " " + k.Subject) }

// Minutes writes how long something takes, to a tenth of a minute.
func Minutes(d time.Duration) string { return fmt.Sprintf("%.1f min", d.Minutes()) }
