package judge

import (
	"fmt"
	"maps"
	"slices"
)

// An Effect is what a fault does to the heartbeat.
type Effect string

// Effects of faults of the kubelet and of its files.
const (
	EffectCrashLoop Effect = "crash-loop" // the kubelet cannot start
	EffectRefused   Effect = "refused"    // it runs, and the server refuses its certificate
	EffectUnasked   Effect = "unasked"    // it gets no answer to a request for the next certificate, or cannot even ask
	EffectUnsent    Effect = "unsent"     // its request fails before it is sent
	EffectUnstored  Effect = "unstored"   // it is issued certificates and cannot store them
	EffectSilent    Effect = "silent"     // it does nothing any more
	EffectNotReady  Effect = "not-ready"  // it renews its Lease and says that it is not ready
	EffectNone      Effect = "none"       // none that lasts
)

// A Step is one that a certificate signing request must pass.
type Step string

// Steps of a request.
const (
	StepApproval Step = "approval"
	StepIssue    Step = "issue"
)

// A Fate is what becomes of kube-controller-manager.
type Fate string

// Fates of kube-controller-manager.
const (
	FateReplaced Fate = "replaced" // its process ends, and the next one must win the election
	FateCrashed  Fate = "crashed"  // the same, and the next one starts at once
	FateFrozen   Fate = "frozen"   // its process stands still, and goes on
)

// Triggers of a fault of the certificate's files.
const (
	ByRestart  = "restart"  // of the kubelet
	ByRotation = "rotation" // the kubelet's next
)

// Traits are what a type of fault does to the chain, and what an experiment may say of it.
type Traits struct {
	// Effects are what it does to the heartbeat, by trigger; the key is "" where the type
	// needs none. Without an effect the heartbeat ends with the certificate, or not at all.
	Effects map[string]Effect
	// Withholds is the step that no request of the target passes while the fault is in place.
	Withholds  Step
	Controller Fate
	// RunsOut: the fault is about a certificate that runs out.
	RunsOut bool
	// Empties: the file holds no certificate any more that anybody could read.
	Empties bool
	// Heals: the node comes back by itself, though nobody takes the fault back.
	Heals bool
	// CanRelease: it can be taken back while the node is left to itself.
	CanRelease bool
	// BesideKubelet: it may come beside a kubelet that was stopped.
	BesideKubelet bool
}

// always is the effect of a fault that needs no trigger.
func always(e Effect) map[string]Effect { return map[string]Effect{"": e} }

// either is the effect of a fault of the files, by trigger.
func either(restart, rotation Effect) map[string]Effect {
	return map[string]Effect{ByRestart: restart, ByRotation: rotation}
}

// faults are all types of faults. Why a kubelet that cannot read its certificate ends only when
// it starts, and what a wrong one makes of a request: client-go util/certificate
// certificate_store.go and certificate_manager.go, kubelet/certificate/bootstrap.
var faults = map[string]Traits{
	"none":            {},
	"rotation":        {RunsOut: true, Heals: true},
	"kubelet-restart": {Heals: true},

	// Nobody answers the request for the next certificate.
	"csr-denied":  {RunsOut: true, Withholds: StepApproval, CanRelease: true},
	"csr-refused": {RunsOut: true, Withholds: StepApproval},
	"signer-off":  {RunsOut: true, Withholds: StepIssue, CanRelease: true},
	"kcm-stopped": {RunsOut: true, Withholds: StepApproval, Controller: FateReplaced, CanRelease: true, BesideKubelet: true},
	"kcm-killed":  {RunsOut: true, Withholds: StepApproval, Controller: FateCrashed, BesideKubelet: true},
	"kcm-frozen":  {RunsOut: true, Withholds: StepApproval, Controller: FateFrozen, CanRelease: true, BesideKubelet: true},

	// The kubelet does not ask for it, cannot use it or cannot store it.
	"rotation-off":        {Effects: always(EffectUnasked), RunsOut: true},
	"cert-unreadable":     {Effects: either(EffectCrashLoop, EffectUnasked)},
	"cert-path-dangling":  {Effects: either(EffectCrashLoop, EffectUnasked), Empties: true},
	"cert-path-moved":     {Effects: either(EffectCrashLoop, EffectUnasked), Empties: true},
	"cert-truncated":      {Effects: either(EffectCrashLoop, EffectUnsent), Empties: true},
	"cert-empty":          {Effects: either(EffectCrashLoop, EffectUnsent), Empties: true},
	"cert-foreign-ca":     {Effects: either(EffectRefused, EffectUnasked)},
	"cert-other-node":     {Effects: either(EffectRefused, EffectUnasked)},
	"cert-readonly":       {Effects: either(EffectUnstored, EffectUnstored)},
	"cert-immutable":      {Effects: either(EffectUnstored, EffectUnstored)},
	"cert-path-plainfile": {Effects: either(EffectUnstored, EffectUnstored)},
	"cert-mode-only":      {Effects: either(EffectNone, EffectNone)}, // root reads it all the same

	// The heartbeat itself.
	"kubelet-stopped":   {Effects: always(EffectSilent)},
	"kubelet-frozen":    {Effects: always(EffectSilent), CanRelease: true},
	"kubelet-killed":    {Effects: always(EffectNone)}, // systemd starts it again
	"node-paused":       {Effects: always(EffectSilent), CanRelease: true},
	"containerd-frozen": {Effects: always(EffectNotReady), CanRelease: true},
}

// Faults lists the types of faults, sorted.
func Faults() []string { return slices.Sorted(maps.Keys(faults)) }

// TraitsOf looks up a type of fault.
func TraitsOf(typ string) (Traits, bool) {
	t, ok := faults[typ]
	return t, ok
}

// A fault is what windows depend on: what an experiment says of it, and what its type does.
type fault struct {
	FaultPlan
	Traits
	effect Effect
}

// newFault joins a fault of an experiment with the traits of its type. The error names a type,
// or a trigger, that is unknown.
func newFault(p FaultPlan) (fault, error) {
	f := fault{FaultPlan: p}
	if p.Type == "" { // a record from before anything was chosen
		return f, nil
	}
	traits, ok := TraitsOf(p.Type)
	if !ok {
		return f, fmt.Errorf("fault type %q is unknown to this version", p.Type)
	}
	f.Traits = traits
	if f.effect, ok = traits.Effects[p.Trigger]; !ok && len(traits.Effects) > 0 {
		return f, fmt.Errorf("fault %s has no trigger %q", p.Type, p.Trigger)
	}
	return f, nil
}

// breaks says whether it breaks anything at all.
func (f fault) breaks() bool { return f.Type != "" && f.Type != "none" }

// silences says whether the heartbeat ends with the injection, and not with a certificate.
func (f fault) silences() bool {
	return f.Kubelet == "stopped" || slices.Contains([]Effect{EffectCrashLoop, EffectRefused, EffectSilent}, f.effect)
}

// heals says whether the node comes back by itself, before anything is repaired.
func (f fault) heals() bool {
	return f.Kubelet == "" && (f.Heals || f.effect == EffectNone || f.Release != nil)
}

// restartsController says whether another kube-controller-manager is a part of it.
func (f fault) restartsController() bool {
	return f.Controller == FateReplaced || f.Controller == FateCrashed
}

// mints says whether the experiment makes the certificate that runs out.
func (f fault) mints() bool { return f.Certificate.Mint > 0 }

// afterMark says whether it comes when the node was given up already.
func (f fault) afterMark() bool {
	return f.At != nil && slices.Index(Names(), f.At.After) >= slices.Index(Names(), ReadyUnknown)
}

// recovers says whether a part of the chain is waited for after the undo, not before. Where the
// node heals by itself only what the run does comes after it.
func (f fault) recovers(part Part) bool {
	switch part {
	case Repair:
		return true
	case WayBack:
		return !f.heals()
	}
	return false
}
