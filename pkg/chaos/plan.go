package chaos

import (
	"fmt"
	"time"

	"github.com/flatline-chaos/flatline/pkg/judge"
)

// A Plan is what an experiment would do, told without a cluster.
type Plan struct {
	Config      judge.Config // flags as the version's table and the experiment say
	Undo        []Step
	Repair      []Step
	Forecasts   []judge.Forecast
	Never       []judge.Denial
	least, most time.Duration // of the chain
}

// What a run takes beside its chain on a small machine: steady state, undo, way back;
// and to create and delete a cluster.
const (
	leastAround, mostAround   = 10 * time.Second, 45 * time.Second
	leastCluster, mostCluster = 35 * time.Second, 105 * time.Second
)

// OnOwnCluster bounds the duration of a run that makes and deletes its cluster.
func (p *Plan) OnOwnCluster() (least, most time.Duration) {
	least, most = p.OnKeptCluster()
	return least + leastCluster, most + mostCluster
}

// OnKeptCluster bounds the duration of a run on a cluster that is there.
func (p *Plan) OnKeptCluster() (least, most time.Duration) {
	return p.least + leastAround, p.most + mostAround
}

// PlanFor plans an experiment for a Kubernetes version such as "v1.37". It touches
// nothing.
func PlanFor(exp *Experiment, kubernetes string) (*Plan, error) {
	p := &Plan{Config: *exp.config(kubernetes)}
	tim, err := p.Config.Timing()
	if err != nil {
		return nil, fmt.Errorf("planning %s: %w", exp.Metadata.Name, err)
	}
	if err := exp.possible(&p.Config); err != nil {
		return nil, err
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
	if p.Forecasts, err = judge.Foretell(&p.Config, exp.plan()); err != nil {
		return nil, fmt.Errorf("planning %s: %w", exp.Metadata.Name, err)
	}
	if p.Never, err = judge.Denials(exp.plan()); err != nil {
		return nil, fmt.Errorf("planning %s: %w", exp.Metadata.Name, err)
	}
	hold := time.Duration(exp.Spec.Hold)
	p.least, p.most = hold, hold
	for _, f := range p.Forecasts {
		if f.Bounded {
			p.least, p.most = max(p.least, f.From), max(p.most, f.To)
		}
	}
	if exp.Spec.Fault.Certificate.From == "rotation" {
		if tau, err := time.ParseDuration(p.Config.Flag(controllerManager, "cluster-signing-duration")); err == nil {
			p.most += tau // the wait for a fresh certificate
		}
	}
	return p, nil
}
