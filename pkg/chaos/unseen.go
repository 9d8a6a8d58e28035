package chaos

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// config is what is known of a run of the experiment without a cluster: flags as the version's
// table and the experiment say.
func (e *Experiment) config(kubernetes string) *judge.Config {
	c := &judge.Config{KubernetesVersion: kubernetes, Canaries: e.Spec.Canaries.labels(), Flags: map[string]map[string]judge.Flag{}}
	for component, m := range cluster.Planned(kubernetes, e.Spec.Cluster.flags()) {
		c.Flags[component] = map[string]judge.Flag{}
		for name, f := range m {
			c.Flags[component][name] = judge.Flag(f)
		}
	}
	return c
}

// configs are those of some Kubernetes versions.
func (e *Experiment) configs(versions ...string) []*judge.Config {
	var all []*judge.Config
	for _, v := range versions {
		all = append(all, e.config(v))
	}
	return all
}

// unseen finds expectations that no run can meet, under none of some configurations.
func (e *Experiment) unseen(expect []placed, configs ...*judge.Config) field.ErrorList {
	var errs field.ErrorList
	plan := e.plan()
	for _, x := range expect {
		for _, y := range eachToleration([]judge.Expectation{x.Expectation}, e.Spec.Canaries) {
			var found judge.Unseen
			bad := len(configs) > 0
			for _, c := range configs {
				u, ok, err := c.Unseen(plan, y)
				bad = bad && ok && err == nil // flags that cannot be read are told of where they are needed
				found = u
			}
			if !bad {
				continue
			}
			value := map[string]string{"min": x.Min.String(), "max": x.Max.String()}[found.Field]
			if value == "" {
				value = strings.TrimSpace(y.Milestone + " " + y.Subject)
			}
			errs = append(errs, field.Invalid(x.at.Child(found.Field), value, found.Want))
		}
	}
	return errs
}

// Possible refuses an experiment that asks for what no run can show, under any of some Kubernetes
// versions such as "v1.37"; without one, under any that is known.
func (e *Experiment) Possible(versions ...string) error {
	if len(versions) == 0 {
		versions = cluster.Versions()
	}
	return e.possible(e.configs(versions...)...)
}

func (e *Experiment) possible(configs ...*judge.Config) error {
	if errs := e.unseen(placedIn(field.NewPath("spec", "expect"), e.Spec.Expect), configs...); len(errs) > 0 {
		return invalid("%s.yaml: %s", e.Metadata.Name, errs[0])
	}
	return nil
}
