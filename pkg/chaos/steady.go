package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
)

// steady starts every source, places the canaries, and waits until the cluster is
// as it must be before a fault.
func (r *run) steady(ctx context.Context) error {
	r.phase("steady")
	fold, err := judge.NewFold(&r.cfg, r.exp.Spec.Fault, r.rec.Start())
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.fold = fold
	r.mu.Unlock()
	r.observing, r.cpu = time.Now(), cpuTime()
	r.api.reset()
	t := r.target
	r.audit = &observe.Audit{Node: t.ControlPlane, Path: cluster.AuditLog}
	sources := map[string]observe.Source{"audit": r.audit}
	for _, w := range watches(t.Client) {
		sources[w.Resource] = w
	}
	for name, n := range r.nodes {
		sources["kubelet "+name] = &observe.Kubelet{Node: n, Name: name}
	}
	waiting, cancel := context.WithTimeoutCause(ctx, steadyDeadline, errors.New("not all sources were ready in time"))
	defer cancel()
	if err := r.rec.Watch(waiting, sources); err != nil {
		return err
	}
	if err := r.waitFor(ctx, (*judge.Fold).Unready); err != nil { // else the canaries go elsewhere, and stay there
		return err
	}
	image, err := pauseImage(ctx, t.Nodes[0])
	if err != nil {
		return err
	}
	if err := createCanaries(ctx, t.Client, r.exp.Spec.Canaries, r.id, t.Nodes[0].Name, image); err != nil {
		return err
	}
	if err := r.waitFor(ctx, (*judge.Fold).Unsteady); err != nil {
		return err
	}
	if r.fault != nil {
		found := r.snapshot(ctx, "before")
		if left := leftover(found); left != "" {
			return fmt.Errorf("cluster %s is not as it should be before a fault: %s; this puts right what a run left:\n  %s", r.cluster.Name,
				left, Command("heal", "--cluster", r.cluster.Name))
		}
		if err := r.journal.Before(found); err != nil {
			return err
		}
		if err := r.stageSpares(ctx); err != nil {
			return err
		}
	}
	if r.exp.Spec.Fault.Certificate.From == "rotation" && !r.exp.Spec.Fault.Everyone { // nobody rotates together
		if err := r.waitRotation(ctx); err != nil {
			return err
		}
	}
	r.components(ctx)
	return ctx.Err()
}

// steadyDeadline is how long a cluster may take to become steady after it was
// created.
const steadyDeadline = 5 * time.Minute

// waitFor waits until nothing is missing.
func (r *run) waitFor(ctx context.Context, missing func(*judge.Fold) string) error {
	var why string
	err := r.wait(ctx, steadyDeadline, func(f *judge.Fold) bool { why = missing(f); return why == "" })
	if errors.Is(err, errTooLate) {
		return fmt.Errorf("waiting for the steady state: %s", why)
	}
	return err
}

// waitRotation waits until every target has just been issued a certificate.
func (r *run) waitRotation(ctx context.Context) error {
	r.say("waiting for the target's next certificate, so that the fault meets a fresh one")
	const longest = 10 * time.Minute
	err := r.wait(ctx, longest, func(f *judge.Fold) bool {
		for _, n := range r.target.Nodes {
			_, rotated := f.Certificate(n.Name)
			if rotated == 0 || f.Now()-rotated > judge.Fresh {
				return false
			}
		}
		return true
	})
	if errors.Is(err, errTooLate) {
		return fmt.Errorf("waiting for the target to be issued a certificate: none in %s; is cluster-signing-duration a few minutes?", longest)
	}
	return err
}

// watches follow all that the API server tells of the chain.
func watches(c *cluster.Client) []*observe.Watch {
	return []*observe.Watch{observe.Leases(c.NodeLeases()), observe.Nodes(c.Nodes()), observe.Pods(c.Pods(metav1.NamespaceAll)), observe.CSRs(c.CSRs())}
}
