package chaos

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
	"github.com/flatline-chaos/flatline/pkg/timeline"
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

// A Keeper is a fault of files that must come back as they were: the repair would
// put others in their place.
type Keeper interface {
	// Kept records how they are after the undo.
	Kept(ctx context.Context, t *Target) error
}

// A kind is a type of fault: what it does to the chain, which package judge knows, and how to
// make one.
type kind struct {
	judge.Traits
	make func() Fault // nil breaks nothing
}

// kinds are all types of faults.
func kinds() map[string]kind {
	all, make := map[string]kind{}, makers()
	for _, typ := range judge.Faults() {
		traits, _ := judge.TraitsOf(typ)
		all[typ] = kind{traits, make[typ]}
	}
	return all
}

// makers make a fault of each type that breaks something. A test says that package judge has
// the same types.
func makers() map[string]func() Fault {
	all := map[string]func() Fault{
		"rotation":          func() Fault { return &rotation{} },
		"rotation-off":      func() Fault { return &rotationOff{} },
		"kubelet-restart":   func() Fault { return &kubeletRestart{} },
		"kubelet-stopped":   func() Fault { return &kubeletDown{how: "stopped"} },
		"kubelet-frozen":    func() Fault { return &kubeletDown{how: "frozen"} },
		"kubelet-killed":    func() Fault { return &kubeletDown{how: "killed"} },
		"node-paused":       func() Fault { return &nodePaused{} },
		"containerd-frozen": func() Fault { return &containerdFrozen{} },
		"csr-denied":        func() Fault { return &csrDenied{} },
		"csr-refused":       func() Fault { return &csrDenied{refuse: true} },
		"signer-off":        func() Fault { return &signerOff{} },
		"kcm-stopped":       func() Fault { return &controllerStopped{} },
		"kcm-frozen":        func() Fault { return &controllerFrozen{} },
		"kcm-killed":        func() Fault { return &controllerKilled{} },
	}
	for name, f := range fileFaults() {
		all[name] = func() Fault { return &certFile{fileFault: f} }
	}
	return all
}

// A Node is a cluster node under test.
type Node struct {
	Name string
	observe.Node
}

// script runs a shell script on the node. Nothing of stdin is recorded anywhere.
func (n Node) script(ctx context.Context, stdin []byte, script string) (string, error) {
	return n.bash(ctx, stdin, script)
}

// bash runs a shell script with arguments on the node.
func (n Node) bash(ctx context.Context, stdin []byte, script string, args ...string) (string, error) {
	argv := []string{"bash", "-c", script}
	if len(args) > 0 {
		argv = append(append(argv, "bash"), args...)
	}
	var out bytes.Buffer
	err := n.Exec(ctx, bytes.NewReader(stdin), &out, argv...)
	return out.String(), err
}

// given is a script that has arguments: a step is one text, beside which nothing is kept.
func given(script string, args ...string) string {
	words := []string{"set --"}
	for _, a := range args {
		words = append(words, quote(a))
	}
	return strings.Join(words, " ") + "\n" + script
}

// quote makes one word of a shell out of any text.
func quote(text string) string {
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// Command is a line for a shell that calls flatline: by the name by which it was called, if
// this program is flatline.
func Command(args ...string) string {
	program := os.Args[0]
	if filepath.Base(program) != "flatline" {
		program = "flatline"
	}
	words := []string{quote(program)}
	for _, a := range args {
		words = append(words, quote(a))
	}
	return strings.Join(words, " ")
}

// A Target is what a fault acts on.
type Target struct {
	RunID        string
	Spec         FaultSpec
	Client       *cluster.Client // for looking; breaking and repairing go through the nodes
	ControlPlane Node
	Nodes        []Node // to be broken
	ControlNodes []Node // to be left alone, the control plane among them
	Emit         func(timeline.Event)
	Timing       judge.Timing  // of the heartbeat, from the flags in force
	Offset       time.Duration // of the nodes' clock against the observer's

	ca    *authority
	begun bool // something was broken
}

// now is the nodes' time.
func (t *Target) now() time.Time { return time.Now().Add(t.Offset) }

// renewed is when a node's kubelet renewed its Lease last, by its own clock.
func (t *Target) renewed(ctx context.Context, node string) (time.Time, error) {
	l, err := t.Client.NodeLeases().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the Lease of node %s: %w", node, err)
	}
	if l.Spec.RenewTime == nil {
		return time.Time{}, fmt.Errorf("the Lease of node %s was never renewed", node)
	}
	return l.Spec.RenewTime.Time, nil
}

// startTime is what a kubelet may take to start, until its first renewal.
const startTime = 5 * time.Second

// silent says whether no target has renewed its Lease for longer than a kubelet that
// is just started again takes.
func (t *Target) silent(ctx context.Context) (all bool, seen string, err error) {
	all = true
	var ages []string
	for _, n := range t.Nodes {
		at, err := t.renewed(ctx, n.Name)
		if err != nil {
			return false, "", err
		}
		age := t.now().Sub(at)
		all = all && age > t.Timing.I()+startTime
		ages = append(ages, fmt.Sprintf("%s: the Lease was renewed %.1f s ago", n.Name, age.Seconds()))
	}
	return all, strings.Join(ages, "; "), nil
}

// waitRenewed waits until a node's kubelet has renewed its Lease after a time.
func (t *Target) waitRenewed(ctx context.Context, node string, since time.Time) error {
	ctx, cancel := context.WithTimeoutCause(ctx, recoverDeadline,
		fmt.Errorf("the kubelet of %s does not renew its Lease after a restart", node))
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		at, err := t.renewed(ctx, node)
		return err == nil && at.After(since), nil
	})
	if err != nil {
		return context.Cause(ctx)
	}
	return nil
}

// installed records that a certificate, of which pem is the text, was put into the
// place of a node's.
func (t *Target) installed(n Node, at time.Time, name string, pem []byte) {
	if len(pem) == 0 {
		return
	}
	d := map[string]string{"file": pkiDir + "/" + name}
	observe.DescribeCertificate(pem, d)
	t.Emit(timeline.Event{Stamp: at, Source: "run", Type: timeline.TypeInstalled, Object: "certificate " + n.Name, Detail: d})
}

// restarted records that a kubelet was stopped and started as part of the fault.
func (t *Target) restarted(n Node, stopped, started time.Time) {
	t.Emit(timeline.Event{Stamp: stopped, Source: "run", Type: timeline.TypeKubeletStopped, Object: "node " + n.Name})
	t.Emit(timeline.Event{Stamp: started, Source: "run", Type: timeline.TypeKubeletStarted, Object: "node " + n.Name})
}

// injected records that the fault is in place, at the node's own time. What comes
// after the first is the fault of a moment of its own.
func (t *Target) injected(at time.Time, what string) {
	typ := timeline.TypeInjected
	if t.begun {
		typ = timeline.TypeStruck
	}
	t.begun = true
	t.Emit(timeline.Event{Stamp: at, Source: "run", Type: typ, Detail: map[string]string{"what": what}})
}

// installMinted gives every target the certificate that the experiment makes, where
// it makes one, and starts its kubelet with it.
func (t *Target) installMinted(ctx context.Context) error {
	c := t.Spec.Certificate
	if c.Mint == 0 {
		return nil
	}
	for _, n := range t.Nodes {
		if err := t.installShort(ctx, n, c); err != nil {
			return err
		}
	}
	return nil
}

// mint makes a certificate for a node that soon runs out.
func (t *Target) mint(n Node, c Certificate) ([]byte, error) {
	if c.Rotate == "later" {
		return t.ca.rotateLater(n.Name, time.Duration(c.Mint))
	}
	return t.ca.rotateNow(n.Name, time.Duration(c.Mint))
}

// installShort gives a node a certificate that soon runs out, and starts its
// kubelet with it.
func (t *Target) installShort(ctx context.Context, n Node, c Certificate) error {
	pem, err := t.mint(n, c)
	if err != nil {
		return err
	}
	started, err := n.times(ctx, pem, inStage(t.RunID, "(umask 077; cat > short.pem)\nsystemctl stop kubelet\n"+
		installScript("short.pem", shortFile)+
		"date +%s.%N; systemctl start kubelet"), 1)
	if err != nil {
		return fmt.Errorf("installing a short-lived certificate on %s: %w", n.Name, err)
	}
	t.installed(n, started[0], shortFile, pem)
	t.Emit(timeline.Event{Stamp: started[0], Source: "run", Type: timeline.TypeKubeletStarted, Object: "node " + n.Name})
	return nil
}

// shortFile is the name of a certificate that soon runs out, otherFile of what is
// put in the place of a good one.
const shortFile, otherFile = "flatline-short.pem", "flatline-other.pem"
