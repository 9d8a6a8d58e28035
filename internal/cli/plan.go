package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flatline-chaos/flatline/internal/report"
	"github.com/flatline-chaos/flatline/pkg/chaos"
)

func (a *app) plan() *cobra.Command {
	var profile, kubernetes string
	var set []string
	c := &cobra.Command{
		Use:   "plan NAME",
		Short: "Say what an experiment would do and expect; touches nothing and needs no Docker",
		Args:  oneExperiment,
		RunE: func(_ *cobra.Command, args []string) error {
			exp, err := loadWith(args[0], profile, set)
			if err != nil {
				return err
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
	return c
}

// planOf is what there is to show of a plan.
func planOf(exp *chaos.Experiment, p *chaos.Plan) *report.Plan {
	var never []string
	for _, x := range exp.Spec.Never {
		never = append(never, strings.TrimSpace(x.Milestone+" "+x.Subject))
	}
	least, most := p.OnOwnCluster()
	return &report.Plan{
		Name: exp.Metadata.Name, Profile: exp.Profile, Description: exp.Spec.Description, Fault: faultText(exp.Spec.Fault),
		Config: &p.Config, Undo: steps(p.Undo), Repair: steps(p.Repair),
		Forecasts: p.Forecasts, Never: never, Outcome: exp.Spec.Outcome, Least: least, Most: most,
	}
}

func faultText(f chaos.FaultSpec) string {
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
