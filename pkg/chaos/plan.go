package chaos

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// A Plan is what an experiment would do, told without a cluster.
type Plan struct {
	Config    judge.Config // flags as the version's table and the experiment say
	Undo      []Step
	Repair    []Step
	Forecasts []judge.Forecast
	// Least and Most bound the run's duration, from what is derived and from
	// what creating and deleting a cluster takes on a small machine.
	Least, Most time.Duration
}

// What a run takes beside its chain: create, steady state, undo, way back, delete.
const (
	leastAround = 45 * time.Second
	mostAround  = 150 * time.Second
)

// PlanFor plans an experiment for a Kubernetes version such as "v1.37". It touches
// nothing.
func PlanFor(exp *Experiment, kubernetes string) (*Plan, error) {
	p := &Plan{Config: judge.Config{KubernetesVersion: kubernetes, Canaries: exp.Spec.Canaries.labels(), Flags: map[string]map[string]judge.Flag{}}}
	for component, m := range cluster.Planned(kubernetes, exp.Spec.Cluster.flags()) {
		p.Config.Flags[component] = map[string]judge.Flag{}
		for name, f := range m {
			p.Config.Flags[component][name] = judge.Flag(f)
		}
	}
	tim, err := p.Config.Timing()
	if err != nil {
		return nil, fmt.Errorf("planning %s: %w", exp.Metadata.Name, err)
	}
	p.Config.Warnings = tim.Warnings()
	if newFault := kinds()[exp.Spec.Fault.Type].make; newFault != nil {
		t := &Target{RunID: "<run>", Spec: exp.Spec.Fault, ControlPlane: Node{Name: "control-plane"}}
		for i := range exp.Spec.Cluster.Workers {
			name := "worker"
			if i > 0 {
				name = fmt.Sprintf("worker%d", i+1)
			}
			if i >= exp.Spec.Cluster.Workers-exp.Spec.Target.Count {
				t.Nodes = append(t.Nodes, Node{Name: name})
			} else {
				t.ControlNodes = append(t.ControlNodes, Node{Name: name})
			}
		}
		p.Undo, p.Repair = newFault().Undo(t), repairSteps(t)
	}
	data, err := json.Marshal(exp)
	if err != nil {
		return nil, fmt.Errorf("planning %s: %w", exp.Metadata.Name, err)
	}
	var plan judge.Plan
	if err := json.Unmarshal(data, &plan); err != nil {
		return nil, fmt.Errorf("planning %s: %w", exp.Metadata.Name, err)
	}
	if p.Forecasts, err = judge.Foretell(&p.Config, &plan); err != nil {
		return nil, fmt.Errorf("planning %s: %w", exp.Metadata.Name, err)
	}
	hold := time.Duration(exp.Spec.Hold)
	p.Least, p.Most = hold, hold
	for _, f := range p.Forecasts {
		if f.Bounded {
			p.Least, p.Most = max(p.Least, f.From), max(p.Most, f.To)
		}
	}
	p.Least, p.Most = p.Least+leastAround, p.Most+mostAround
	if c := exp.Spec.Fault.Certificate; c != nil && c.From == "rotation" {
		if tau, err := time.ParseDuration(p.Config.Flag("kube-controller-manager", "cluster-signing-duration")); err == nil {
			p.Most += tau // the wait for a fresh certificate
		}
	}
	return p, nil
}
