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

// A Releaser is a fault that can be taken back with the node left to itself.
type Releaser interface {
	// Release takes it back and returns the node's time at which that was done.
	Release(ctx context.Context, t *Target) (time.Time, error)
}

// An Attendant is a fault that has something to do for as long as it lasts.
type Attendant interface {
	// Attend works until ctx ends, at the same time as the other methods.
	Attend(ctx context.Context, t *Target)
}

// A kind is a type of fault and what an experiment may say of it.
type kind struct {
	make          func() Fault // nil breaks nothing
	certificate   bool         // a certificate runs out
	release       bool         // it is a Releaser
	besideKubelet bool         // it may come beside a stopped kubelet
}

// kinds are all faults by their type.
func kinds() map[string]kind {
	return map[string]kind{
		"none":            {},
		"rotation":        {make: func() Fault { return &rotation{} }, certificate: true},
		"kubelet-restart": {make: func() Fault { return &kubeletRestart{} }},
		"csr-denied":      {make: func() Fault { return &csrDenied{} }, certificate: true, release: true},
		"csr-refused":     {make: func() Fault { return &csrDenied{refuse: true} }, certificate: true},
		"signer-off":      {make: func() Fault { return &signerOff{} }, certificate: true, release: true},
		"kcm-stopped":     {make: func() Fault { return &controllerStopped{} }, certificate: true, release: true, besideKubelet: true},
		"kcm-frozen":      {make: func() Fault { return &controllerFrozen{} }, certificate: true, release: true, besideKubelet: true},
		"kcm-killed":      {make: func() Fault { return &controllerKilled{} }, certificate: true, besideKubelet: true},
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

	ca    *authority
	begun bool // something was broken
}

// injected records that the fault is in place, at the node's own time. What comes
// after the first is the fault of a moment of its own.
func (t *Target) injected(at time.Time, what string) {
	typ := judge.TypeInjected
	if t.begun {
		typ = judge.TypeStruck
	}
	t.begun = true
	t.Emit(observe.Event{Stamp: at, Source: "run", Type: typ, Detail: map[string]string{"what": what}})
}

// installMinted gives every target the certificate that the experiment makes, where
// it makes one, and starts its kubelet with it.
func (t *Target) installMinted(ctx context.Context) error {
	c := t.Spec.Certificate
	if c == nil || c.Mint == 0 {
		return nil
	}
	for _, n := range t.Nodes {
		if err := t.installShort(ctx, n, *c); err != nil {
			return err
		}
	}
	return nil
}

// installShort gives a node a certificate that soon runs out, and starts its
// kubelet with it.
func (t *Target) installShort(ctx context.Context, n Node, c Certificate) error {
	mint := t.ca.rotateNow
	if c.Rotate == "later" {
		mint = t.ca.rotateLater
	}
	pem, err := mint(n.Name, time.Duration(c.Mint))
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
