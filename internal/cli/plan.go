package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flatline-chaos/flatline/internal/report"
	"github.com/flatline-chaos/flatline/pkg/chaos"
)

func (a *app) plan() *cobra.Command {
	var profile, kubernetes, format string
	var set []string
	c := &cobra.Command{
		Use:   "plan NAME",
		Short: "Say what an experiment would do and expect; touches nothing and needs no Docker",
		Long: `Say what an experiment would do and expect; touches nothing and needs no Docker.

With -o yaml: the whole experiment, with its profile applied and all defaults filled
in. In a file of its name, flatline run FILE reads it back as it is.`,
		Args: oneExperiment,
		RunE: func(_ *cobra.Command, args []string) error {
			if !slices.Contains(planFormats, format) {
				return &chaos.InvalidError{Text: fmt.Sprintf("-o %s: want one of %s", format, strings.Join(planFormats, ", "))}
			}
			exp, err := loadWith(args[0], profile, set)
			if err != nil {
				return err
			}
			if format == "yaml" {
				return a.printExperiment(exp)
			}
			p, err := chaos.PlanFor(exp, kubernetes)
			if err != nil {
				return &chaos.InvalidError{Text: err.Error()}
			}
			return planOf(exp, p).Text(a.out)
		},
	}
	profileFlag(c, &profile)
	setFlag(c, &set)
	c.Flags().StringVar(&kubernetes, "kubernetes", "v1.37", "Kubernetes version whose defaults to take")
	c.Flags().StringVarP(&format, "output", "o", "text", "text, or yaml: the experiment itself")
	complete(c, "output", planFormats...)
	return c
}

// planFormats are the values of -o of plan.
var planFormats = []string{"text", "yaml"}

// printExperiment writes an experiment as a file that can be run.
func (a *app) printExperiment(exp *chaos.Experiment) error {
	text, err := exp.YAML()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "# %s, resolved: nothing is added to this file when it is run as %s.yaml.\n%s",
		exp.Metadata.Name, exp.Metadata.Name, text)
	return err
}

// planOf is what there is to show of a plan.
func planOf(exp *chaos.Experiment, p *chaos.Plan) *report.Plan {
	least, most := p.OnOwnCluster()
	return &report.Plan{
		Name: exp.Metadata.Name, Profile: exp.Profile, Description: exp.Spec.Description,
		Setup: setup(exp.Spec), Fault: faultText(exp.Spec.Fault),
		Config: &p.Config, Undo: steps(p.Undo), Repair: steps(p.Repair),
		Forecasts: p.Forecasts, Never: p.Never, Outcome: exp.Spec.Outcome, Least: least, Most: most,
	}
}

// setup says on what an experiment is run, and for how long.
func setup(s chaos.Spec) []string {
	var tolerations []string
	for _, t := range s.Canaries.Tolerations {
		tolerations = append(tolerations, t.String())
	}
	canaries := "none"
	if len(tolerations) > 0 {
		canaries = "a pod for each toleration of " + strings.Join(tolerations, ", ")
	}
	if s.Canaries.DaemonSet {
		canaries = strings.TrimPrefix(canaries+", and one of a DaemonSet", "none, and ")
	}
	lines := []string{fmt.Sprintf("cluster: %d workers, %d of them broken", s.Cluster.Workers, s.Target.Count), "canaries: " + canaries}
	if s.Hold > 0 {
		lines = append(lines, "observed for at least "+s.Hold.String())
	}
	return lines
}

// faultText says what is broken, and when.
func faultText(f chaos.FaultSpec) string {
	text := certificateText(f)
	if f.Everyone {
		text += ", on the control nodes too"
	}
	if f.Kubelet != "" {
		text += ", beside a kubelet that is stopped"
	}
	if f.At != nil {
		text += fmt.Sprintf(", %s after %s", f.At.Plus, f.At.After)
	}
	if f.Release != nil {
		text += fmt.Sprintf("; taken back %s after %s", f.Release.Plus, f.Release.After)
		if f.Release.Touch {
			text += ", and the waiting request is written to"
		}
	}
	return text
}

func certificateText(f chaos.FaultSpec) string {
	text := f.Type
	if f.Trigger != "" {
		text += ", made to bite by a " + f.Trigger
	}
	switch c := f.Certificate; {
	case c == chaos.Certificate{}:
		return text
	case c.Mint > 0 && c.Rotate == "later":
		return fmt.Sprintf("%s, with a certificate that is valid for %s and to be rotated after 70 to 90 %% of that", text, c.Mint)
	case c.Mint > 0:
		return fmt.Sprintf("%s, with a certificate that is valid for %s and past its rotation deadline", text, c.Mint)
	default:
		return text + ", right after the target was issued a certificate"
	}
}

func steps(list []chaos.Step) []string {
	var out []string
	for _, s := range list {
		out = append(out, s.Desc+" on "+s.On)
	}
	return out
}
