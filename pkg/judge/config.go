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
