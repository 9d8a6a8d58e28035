// Package judge turns the facts of a timeline into milestones, windows and
// verdicts. It is pure: it knows no clock, no environment and no network, so
// that a run recorded today can be judged again tomorrow with better rules.
//
// Windows are derived from the flags that were in force and from the source of
// the Kubernetes version that ran; each carries the term that ruled. None of them
// is a constant somebody measured once.
package judge

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// A Flag is the effective value of a component's flag and how it was learned:
// "configz", "flagz", "spec" or the name of a version table.
type Flag struct {
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// A Node is a node of the cluster under test.
type Node struct {
	Name string `json:"name"`
	Role string `json:"role"`
	IP   string `json:"ip"`
}

// An Engine is the container engine that a cluster ran on, and its machine.
type Engine struct {
	Kind    string `json:"kind"` // of the endpoint: "unix", "ssh", "tcp"
	Name    string `json:"name"` // of the machine
	ID      string `json:"id"`
	Version string `json:"version"`
	Kernel  string `json:"kernel"`
}

// A Config is what was read from the cluster before the fault: all that windows
// are computed from.
type Config struct {
	KubernetesVersion string `json:"kubernetesVersion"`
	NodeImage         string `json:"nodeImage"`
	// NodeImageID is that of the image's content: two images of one name may differ.
	NodeImageID  string                     `json:"nodeImageID,omitempty"`
	Engine       *Engine                    `json:"engine,omitempty"` // null in records from before it was written down
	Cluster      string                     `json:"cluster"`
	Flags        map[string]map[string]Flag `json:"flags"`
	Nodes        []Node                     `json:"nodes"`
	Target       []string                   `json:"target"`
	ControlNodes []string                   `json:"controlNodes"`
	// Canaries are the canary workloads, by the value of their label: the
	// toleration of each, such as "300s", or "daemonset".
	Canaries []string `json:"canaries,omitempty"`
	// CanaryNamespace is that of this run's canaries.
	CanaryNamespace string `json:"canaryNamespace,omitempty"`
	// ClockOffset is node minus observer in seconds, ClockError its bound; both
	// are 0 when nodes and observer share one kernel.
	ClockOffset float64  `json:"clockOffset,omitempty"`
	ClockError  float64  `json:"clockError,omitempty"`
	Warnings    []string `json:"warnings,omitempty"`
}

// A Plan is what the judge needs to know of an experiment.
type Plan struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Profile string `json:"profile"`
	Spec    struct {
		Fault  FaultPlan     `json:"fault"`
		Expect []Expectation `json:"expect"`
		Never  []Expectation `json:"never"`
		// Outcome is what a run comes to where that is not pass.
		Outcome Outcome `json:"outcome"`
	} `json:"spec"`
}

// A FaultPlan says what is broken. It is the field spec.fault of an experiment's file, and of
// the experiment in a record.
type FaultPlan struct {
	// What is broken; none breaks nothing.
	Type string `json:"type"`
	// When a fault of the certificate's files takes effect: at a "restart" of the kubelet, or
	// at its next "rotation".
	Trigger string `json:"trigger,omitempty"`
	// What the fault does to the heartbeat. It follows from type and trigger and is written
	// in resolved experiments alone.
	Effect Effect `json:"effect,omitempty"`
	// The fault hits the control nodes too, if it is one that can spare them.
	Everyone    bool             `json:"everyone,omitempty"`
	Certificate FaultCertificate `json:"certificate,omitzero"`
	// "stopped" stops the target's kubelet as well: after the fault, or at the injection if
	// the fault comes later.
	Kubelet string `json:"kubelet,omitempty"`
	// When the fault comes, if that is not at the injection.
	At *Moment `json:"at,omitempty"`
	// When the fault is taken back with the node left to itself, some time before the undo.
	Release *Release `json:"release,omitempty"`
}

// A FaultCertificate says which client certificate of the target ends. Exactly one of from and
// mint is set.
type FaultCertificate struct {
	// "rotation": the certificate that the node was issued last.
	From string `json:"from,omitempty"`
	// A certificate signed with the cluster's CA that is valid for so long. It is past its
	// rotation deadline, unless rotate says otherwise.
	Mint Duration `json:"mint,omitempty"`
	// "later": the certificate that is minted is not yet past its rotation deadline.
	Rotate string `json:"rotate,omitempty"`
}

// A Moment is so long after a milestone of the first target.
type Moment struct {
	// The milestone.
	After string `json:"after"`
	// How long after it.
	Plus Duration `json:"plus,omitempty"`
}

// A Release says when and how a fault is taken back before the undo.
type Release struct {
	Moment
	// The waiting request is written to, so that the controllers look at it at once and not
	// when their back-off is over.
	Touch bool `json:"touch,omitempty"`
}

// An Expectation names a milestone of the target that must occur inside its
// window (expect) or must not occur at all (never).
type Expectation struct {
	Milestone string `json:"milestone"`
	// What tells apart milestones of one name: a toleration such as "300s"
	// for PodEvicted and ReplacementReady. Empty takes the earliest.
	Subject string `json:"subject,omitempty"`
	// A limit of one's own, beside the window that is derived and counted as it is.
	Min Duration `json:"min,omitempty"`
	// A limit of one's own, beside the window that is derived and counted as it is.
	Max Duration `json:"max,omitempty"`
	// Why there is such a limit.
	Why string `json:"why,omitempty"`
}

// A Duration is a time.Duration that reads and writes as "12s".
type Duration time.Duration

// UnmarshalJSON refuses anything but a Go duration that is not negative. Its
// error is one that the decoder completes with the path of the field.
func (d *Duration) UnmarshalJSON(b []byte) error {
	bad := func(why string) error {
		return &json.UnmarshalTypeError{Value: string(b) + why, Type: reflect.TypeFor[Duration]()}
	}
	s, err := strconv.Unquote(string(b))
	if err != nil {
		return bad(` is not a duration such as "40s"`)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return bad(` is not a duration such as "40s"`)
	}
	if v < 0 {
		return bad(" is negative")
	}
	*d = Duration(v)
	return nil
}

// MarshalJSON writes the Go form.
func (d Duration) MarshalJSON() ([]byte, error) { return []byte(strconv.Quote(d.String())), nil }

// String is the shortest Go form: "5m", not "5m0s".
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Flag returns the effective value of a flag, "" if it is not known.
func (c *Config) Flag(component, name string) string { return c.Flags[component][name].Value }

// seconds reads a flag that is a duration, or a number of seconds.
func (c *Config) seconds(component, name string) (time.Duration, error) {
	v := c.Flag(component, name)
	if d, err := time.ParseDuration(v); err == nil {
		return d, nil
	}
	if f, err := strconv.ParseFloat(v, 64); err == nil {
		return time.Duration(f * float64(time.Second)), nil
	}
	return 0, fmt.Errorf("flag %s of %s: %q is not a duration", name, component, v)
}

// SameValue compares values of a flag as durations, numbers or truth values where both
// are: "60s" is "1m0s", "0.10" is "0.1".
func SameValue(a, b string) bool {
	if a == b {
		return true
	}
	if x, err := time.ParseDuration(a); err == nil {
		y, err := time.ParseDuration(b)
		return err == nil && x == y
	}
	if x, err := strconv.ParseFloat(a, 64); err == nil {
		y, err := strconv.ParseFloat(b, 64)
		return err == nil && x == y
	}
	x, errX := strconv.ParseBool(a)
	y, errY := strconv.ParseBool(b)
	return errX == nil && errY == nil && x == y
}

// Concerns says whether an expectation is about a target: the canaries that are
// evicted live on the first one.
func (c *Config) Concerns(x Expectation, target string) bool {
	return RowOf(x.Milestone).Subject != TolerationOf || target == c.Target[0]
}

// Timing holds the flags that rule the heartbeat, in the symbols of the
// equations.
type Timing struct {
	D time.Duration // kubelet nodeLeaseDurationSeconds
	G time.Duration // kube-controller-manager node-monitor-grace-period
	P time.Duration // kube-controller-manager node-monitor-period
	Q float64       // kube-controller-manager node-eviction-rate, nodes per second
	F time.Duration // kubelet nodeStatusUpdateFrequency: its syncs of the node's status
	R time.Duration // kubelet nodeStatusReportFrequency: its reports where nothing changes
	// Unhealthy is kube-controller-manager unhealthy-zone-threshold, a share.
	Unhealthy float64
	// Large is true for a cluster above large-cluster-size-threshold, where a
	// disrupted zone is evicted more slowly instead of not at all.
	Large bool
	// Race is true for Kubernetes 1.34 and later, where NoExecute is queued
	// before the lister has seen Ready=Unknown (kubernetes PR 120816).
	Race bool
}

// Timing reads the flags; an error names the one that is missing.
func (c *Config) Timing() (Timing, error) {
	var t Timing
	var err error
	if t.D, err = c.seconds("kubelet", "nodeLeaseDurationSeconds"); err != nil {
		return t, err
	}
	if t.G, err = c.seconds("kube-controller-manager", "node-monitor-grace-period"); err != nil {
		return t, err
	}
	if t.P, err = c.seconds("kube-controller-manager", "node-monitor-period"); err != nil {
		return t, err
	}
	if t.Q, err = strconv.ParseFloat(c.Flag("kube-controller-manager", "node-eviction-rate"), 64); err != nil || !(t.Q > 0) {
		return t, fmt.Errorf("flag node-eviction-rate of kube-controller-manager: %q is not a positive rate", c.Flag("kube-controller-manager", "node-eviction-rate"))
	}
	t.F, t.R = 10*time.Second, 5*time.Minute // Kubernetes' defaults, where the fields were not read
	for name, d := range map[string]*time.Duration{"nodeStatusUpdateFrequency": &t.F, "nodeStatusReportFrequency": &t.R} {
		if c.Flag("kubelet", name) == "" {
			continue
		}
		if *d, err = c.seconds("kubelet", name); err != nil {
			return t, err
		}
	}
	t.Unhealthy, t.Large = 0.55, len(c.Nodes) > 50 // Kubernetes' defaults, where the flags were not read
	if v, err := strconv.ParseFloat(c.Flag("kube-controller-manager", "unhealthy-zone-threshold"), 64); err == nil {
		t.Unhealthy = v
	}
	if v, err := strconv.Atoi(c.Flag("kube-controller-manager", "large-cluster-size-threshold")); err == nil {
		t.Large = len(c.Nodes) > v
	}
	var major, minor int
	if _, err := fmt.Sscanf(c.KubernetesVersion, "v%d.%d", &major, &minor); err != nil {
		return t, fmt.Errorf("kubernetesVersion %q is not of the form v1.37.2", c.KubernetesVersion)
	}
	t.Race = major > 1 || minor >= 34
	return t, nil
}

// I is the longest gap between two accepted renewals of a healthy Lease: a
// quarter of D, 4 % of jitter, and half a second for the request itself
// (component-helpers/apimachinery/lease/controller.go: JitterUntil, sliding).
func (t Timing) I() time.Duration { return t.D*26/100 + requested }

// Sync is the longest gap between two syncs of a kubelet's node status: 4 % of jitter
// (kubelet.go: JitterUntil of syncNodeStatus with nodeStatusUpdateFrequency, 0.04, sliding).
func (t Timing) Sync() time.Duration { return t.F * 104 / 100 }

// Report is the longest gap between two status reports of a kubelet that has nothing new to
// say: the first sync after nodeStatusReportFrequency (kubelet_node_status.go shouldPatchNodeStatus).
func (t Timing) Report() time.Duration {
	if t.F <= 0 {
		return t.R
	}
	return max(1, (t.R+t.F-1)/t.F) * t.Sync()
}

// requested is what the request for a renewal may take on any machine.
const requested = 500 * time.Millisecond

// Pass is the period of the node lifecycle controller's passes: the timer is
// sliding, so the time of a pass comes on top; 1 % is what was seen.
func (t Timing) Pass() time.Duration { return t.P + t.P/100 }

// Whole is the grace in whole passes: a node is given up in a pass, and the first of
// them after the grace may come so late (node_lifecycle_controller.go monitorNodeHealth:
// wait.UntilWithContext with the period).
func (t Timing) Whole() time.Duration {
	if t.P <= 0 {
		return t.G
	}
	return (t.G + t.P - 1) / t.P * t.P
}

// Flaps says why healthy nodes will flap between Ready and Unknown with these flags;
// empty where they need not. The controller hears a node by its Lease and by its status
// reports, and gives it up when both come too seldom (node_lifecycle_controller.go
// tryUpdateNodeHealth: probeTimestamp).
func (t Timing) Flaps() string {
	renew := t.D * 26 / 100
	if t.G > renew || t.R > 0 && t.G > t.Report() {
		return ""
	}
	return fmt.Sprintf("node-monitor-grace-period %s is not longer than the Lease renew interval of up to %s: healthy nodes will flap between Ready and Unknown",
		Duration(t.G), Duration(renew.Round(10*time.Millisecond)))
}

// Warnings says what in these flags will surprise.
func (t Timing) Warnings() []string {
	if why := t.Flaps(); why != "" {
		return []string{why}
	}
	return nil
}
