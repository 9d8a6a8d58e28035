package chaos

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
)

// A Fault breaks one thing on purpose.
type Fault interface {
	// Undo lists the steps that take the fault back, in the order in which they
	// run. They are on disk, and dead-man timers hold them too, before Inject is
	// called. It asks nobody, so that a plan can be told without a cluster.
	Undo(t *Target) []Step
	// Inject breaks it.
	Inject(ctx context.Context, t *Target) error
	// Witness looks whether the fault is in place and whether it bites. An error
	// means that it could not look. It is asked before the injection too: a fault
	// that is in place already, or cannot be looked at, is not injected.
	Witness(ctx context.Context, t *Target) (Evidence, error)
}

// Evidence is what a witness saw.
type Evidence struct {
	InPlace bool   // what was changed is still changed
	Biting  bool   // and it has the effect that the fault is about
	Seen    string // in words
}

// faults are all faults by their type. A nil fault breaks nothing.
func faults() map[string]func() Fault {
	return map[string]func() Fault{
		"none":       nil,
		"csr-denied": func() Fault { return &csrDenied{} },
	}
}

// A Node is a cluster node under test.
type Node struct {
	Name string
	observe.Node
}

// script runs a shell script on the node. Nothing of stdin is recorded anywhere.
func (n Node) script(ctx context.Context, stdin []byte, script string) (string, error) {
	var out bytes.Buffer
	err := n.Exec(ctx, bytes.NewReader(stdin), &out, "bash", "-c", script)
	return out.String(), err
}

// A Target is what a fault acts on.
type Target struct {
	RunID        string
	Spec         FaultSpec
	Client       kubernetes.Interface // for looking; breaking and repairing go through the nodes
	ControlPlane Node
	Nodes        []Node // to be broken
	ControlNodes []Node // to be left alone, the control plane among them
	Emit         func(observe.Event)

	ca *authority
}

// injected records that the fault is in place, at the node's own time.
func (t *Target) injected(at time.Time, what string) {
	t.Emit(observe.Event{Stamp: at, Source: "run", Type: judge.TypeInjected, Detail: map[string]string{"what": what}})
}

// installShort gives a node a certificate that soon runs out, and starts its
// kubelet with it.
func (t *Target) installShort(ctx context.Context, n Node, life time.Duration) error {
	pem, err := t.ca.rotateNow(n.Name, life)
	if err != nil {
		return err
	}
	out, err := n.script(ctx, pem, "umask 077; cat > "+stage(t.RunID)+"/short.pem; systemctl stop kubelet\n"+
		installScript(stage(t.RunID)+"/short.pem", "flatline-short.pem")+
		"date +%s.%N; systemctl start kubelet")
	if err != nil {
		return fmt.Errorf("installing a short-lived certificate on %s: %w", n.Name, err)
	}
	at, err := observe.ParseEpoch(out)
	if err != nil {
		return fmt.Errorf("installing a short-lived certificate on %s: %w", n.Name, err)
	}
	t.Emit(observe.Event{Stamp: at, Source: "run", Type: judge.TypeKubeletStarted, Object: "node " + n.Name})
	return nil
}
