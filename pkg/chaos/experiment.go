// Package chaos runs experiments: it breaks the way a kubelet keeps its client
// certificate, has everything watched while it does, and puts it right again.
//
// The story of a run is in run.go. A fault is a small type with three methods;
// what must be undone is data on disk before anything is changed, so that
// another process can undo it after a crash.
package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// An Experiment is one file of experiments/, with one profile applied.
type Experiment struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Profile    string   `json:"profile,omitempty"`
	Spec       Spec     `json:"spec"`
}

// YAML is the experiment as a file that Parse reads back as it is.
func (e *Experiment) YAML() ([]byte, error) {
	text, err := yaml.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("writing experiment %s: %w", e.Metadata.Name, err)
	}
	return text, nil
}

// Metadata names an experiment.
type Metadata struct {
	// The name of the file, without .yaml.
	Name string `json:"name"`
	// Labels select experiments in suites: tier is smoke, full or slow, and scope says what
	// is broken. The label fault is always the type of the fault.
	Labels map[string]string `json:"labels,omitempty"`
}

// A Spec is what an experiment does and what must come of it, with nothing left to be
// looked up elsewhere.
type Spec struct {
	Description string              `json:"description"`
	Cluster     ClusterSpec         `json:"cluster"`
	Canaries    Canaries            `json:"canaries"`
	Target      TargetSpec          `json:"target"`
	Fault       FaultSpec           `json:"fault"`
	Hold        judge.Duration      `json:"hold,omitempty"`
	Expect      []judge.Expectation `json:"expect,omitempty"`
	Never       []judge.Expectation `json:"never,omitempty"`
	// Outcome is what a run comes to where that is not pass: "not-injected" where an
	// experiment shows that a fault has no effect.
	Outcome judge.Outcome `json:"outcome,omitempty"`
}

// A ClusterSpec says what cluster is needed.
type ClusterSpec struct {
	// How many nodes there are beside the control plane, at least 2.
	Workers int `json:"workers"`
	// Flags of each component, and fields of the kubelet's configuration.
	Flags map[string]map[string]Value `json:"flags,omitempty"`
}

// A Value is the value of a flag: a string, number or boolean of the file.
type Value string

// UnmarshalJSON takes any scalar.
func (v *Value) UnmarshalJSON(b []byte) error {
	switch b[0] {
	case '{', '[', 'n':
		return &json.UnmarshalTypeError{Value: string(b) + " is no string, number or boolean", Type: reflect.TypeFor[Value]()}
	case '"':
		s, err := strconv.Unquote(string(b))
		*v = Value(s)
		return err
	}
	*v = Value(b)
	return nil
}

// Canaries are pods on the target that wait to be evicted.
type Canaries struct {
	// One Deployment of one pod for each: tolerationSeconds for
	// node.kubernetes.io/unreachable.
	Tolerations []judge.Duration `json:"tolerations,omitempty"`
	// A pod of a DaemonSet too, which is never evicted.
	DaemonSet bool `json:"daemonSet,omitempty"`
}

// A TargetSpec says how many nodes are broken. The rest are control nodes.
type TargetSpec struct {
	Role string `json:"role"`
	// How many are broken. One worker must be left alone, unless the fault spares none.
	Count int `json:"count"`
}

// A FaultSpec says what is broken, and a Certificate which one ends: what an experiment says of
// them is what its record is judged by.
type (
	FaultSpec   = judge.FaultPlan
	Certificate = judge.FaultCertificate
)

// plan is what the judge needs to know of the experiment.
func (e *Experiment) plan() *judge.Plan {
	var p judge.Plan
	p.Metadata.Name, p.Profile = e.Metadata.Name, e.Profile
	p.Spec.Fault, p.Spec.Expect, p.Spec.Never, p.Spec.Outcome = e.Spec.Fault, e.Spec.Expect, e.Spec.Never, e.Spec.Outcome
	return &p
}

// DefaultProfile is the name of the profile that changes nothing.
const DefaultProfile = "default"

// An InvalidError says what is wrong with what the user gave, in one line.
type InvalidError struct{ Text string }

func (e *InvalidError) Error() string { return e.Text }

func invalid(format string, args ...any) error {
	return &InvalidError{strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")}
}

// maxName is how long the name of an experiment may be: with a run's id it becomes the name of
// a folder, and stands in that of a benchmark.
const maxName = 40

// reserved are folders beside those of experiments, of clusters and of sweeps: what lies there
// may be deleted.
var reserved = []string{"clusters", "tune"}

func validateName(p *field.Path, name string) field.ErrorList {
	switch {
	case !timeline.IsName(name) || len(name) > maxName:
		return field.ErrorList{field.Invalid(p, name, fmt.Sprintf("lowercase letters, digits and dashes between them, at most %d: it becomes the name of a folder", maxName))}
	case slices.Contains(reserved, name):
		return field.ErrorList{field.Invalid(p, name, "a folder of that name holds something else: take another")}
	}
	return nil
}

// validate checks a resolved experiment.
func (e *Experiment) validate() field.ErrorList {
	spec := field.NewPath("spec")
	return e.check(placedIn(spec.Child("expect"), e.Spec.Expect), placedIn(spec.Child("never"), e.Spec.Never))
}

// check checks what types cannot say. All errors are found; the first is told.
func (e *Experiment) check(expect, never []placed) field.ErrorList {
	var errs field.ErrorList
	root := field.NewPath("spec")
	if e.APIVersion != judge.APIVersion {
		errs = append(errs, field.NotSupported(field.NewPath("apiVersion"), e.APIVersion, []string{judge.APIVersion}))
	}
	if e.Kind != "Experiment" {
		errs = append(errs, field.NotSupported(field.NewPath("kind"), e.Kind, []string{"Experiment"}))
	}
	s := e.Spec
	if s.Description == "" {
		errs = append(errs, field.Required(root.Child("description"), "say in a sentence what is broken"))
	}
	if s.Cluster.Workers < 2 {
		errs = append(errs, field.Invalid(root.Child("cluster", "workers"), s.Cluster.Workers, "at least 2: one to break and one to leave alone"))
	}
	for _, component := range slices.Sorted(maps.Keys(s.Cluster.Flags)) {
		if !slices.Contains(components, component) {
			errs = append(errs, field.NotSupported(root.Child("cluster", "flags"), component, components))
		}
		for _, name := range slices.Sorted(maps.Keys(s.Cluster.Flags[component])) {
			at := root.Child("cluster", "flags", component)
			if !flagName.MatchString(name) {
				errs = append(errs, field.Invalid(at, name, "letters, digits, dashes and dots: it becomes an argument of "+component))
			} else if value := string(s.Cluster.Flags[component][name]); slices.Contains(components, component) {
				if err := (Setting{component, name, value}).fits(); err != nil {
					errs = append(errs, field.Invalid(at.Child(name), value, err.Error()))
				}
			}
		}
	}
	if s.Target.Role != "worker" {
		errs = append(errs, field.NotSupported(root.Child("target", "role"), s.Target.Role, []string{"worker"}))
	}
	if spared := 1; s.Target.Count < 1 || s.Target.Count > s.Cluster.Workers || !s.Fault.Everyone && s.Target.Count > s.Cluster.Workers-spared {
		errs = append(errs, field.Invalid(root.Child("target", "count"), s.Target.Count, "at least 1 and fewer than the workers: one must be left alone"))
	}
	for i, t := range s.Canaries.Tolerations {
		at := root.Child("canaries", "tolerations").Index(i)
		if time.Duration(t)%time.Second != 0 {
			errs = append(errs, field.Invalid(at, t.String(), "whole seconds, as tolerationSeconds of Kubernetes"))
		}
		if slices.Contains(s.Canaries.Tolerations[:i], t) {
			errs = append(errs, field.Duplicate(at, t.String()))
		}
	}
	errs = append(errs, validateFault(root.Child("fault"), s.Fault)...)
	errs = append(errs, validateExpectations(expect, s.Canaries)...)
	errs = append(errs, validateExpectations(never, s.Canaries)...)
	if s.Outcome != "" && s.Outcome != judge.OutcomeNotInjected {
		errs = append(errs, field.NotSupported(root.Child("outcome"), s.Outcome, []judge.Outcome{judge.OutcomeNotInjected}))
	}
	return errs
}

// flagName is what a flag or a field of a component is called.
var flagName = regexp.MustCompile(`^[A-Za-z][-.A-Za-z0-9]{0,99}$`)

// components are those that have flags.
var components = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd", "kubelet"}

func validateFault(p *field.Path, f FaultSpec) field.ErrorList {
	var errs field.ErrorList
	kind, ok := judge.TraitsOf(f.Type)
	if !ok {
		if f.Type == "" {
			return append(errs, field.Required(p.Child("type"), "what is broken; none breaks nothing"))
		}
		return append(errs, field.Invalid(p.Child("type"), f.Type, "there is no such fault; "+nearest(f.Type, judge.Faults())))
	}
	effect, ok := kind.Effects[f.Trigger]
	if triggers := slices.Sorted(maps.Keys(kind.Effects)); len(triggers) > 0 && !ok && triggers[0] != "" {
		errs = append(errs, field.NotSupported(p.Child("trigger"), f.Trigger, triggers))
	} else if f.Trigger != "" && !ok {
		errs = append(errs, field.Forbidden(p.Child("trigger"), "this fault bites by itself"))
	}
	// What keeps a kubelet from its next certificate is about one that runs out.
	runsOut := kind.RunsOut || f.Trigger == byRotation || effect == judge.EffectUnstored
	switch {
	case !runsOut && f.Certificate != Certificate{}:
		errs = append(errs, field.Forbidden(p.Child("certificate"), "this fault is not about a certificate that runs out"))
	case runsOut && f.Certificate == Certificate{} && f.Kubelet == "":
		errs = append(errs, field.Required(p.Child("certificate"), "{from: rotation} or {mint: 40s}"))
	case f.Certificate != Certificate{}:
		errs = append(errs, validateCertificate(p.Child("certificate"), f.Certificate)...)
		if f.Trigger == byRotation && f.Certificate.Mint > 0 && f.Certificate.Rotate != "later" {
			errs = append(errs, field.Invalid(p.Child("certificate", "rotate"), f.Certificate.Rotate, "later: the files must be broken before the kubelet wants the next certificate"))
		}
	}
	if f.Kubelet != "" && f.Kubelet != "stopped" {
		errs = append(errs, field.NotSupported(p.Child("kubelet"), f.Kubelet, []string{"stopped"}))
	}
	if f.Kubelet != "" && f.Certificate != (Certificate{}) {
		errs = append(errs, field.Forbidden(p.Child("certificate"), "a kubelet that is stopped does not use it"))
	}
	if f.Kubelet != "" && !kind.BesideKubelet {
		errs = append(errs, field.Forbidden(p.Child("kubelet"), "only faults of the controller manager are tried on a stopped kubelet"))
	}
	if f.At != nil {
		if f.Kubelet == "" {
			errs = append(errs, field.Forbidden(p.Child("at"), "without kubelet: stopped there is no injection before the fault"))
		}
		errs = append(errs, validateMoment(p.Child("at"), f.At.After)...)
	}
	if f.Release != nil {
		if !kind.CanRelease {
			errs = append(errs, field.Forbidden(p.Child("release"), "this fault cannot be taken back without a repair"))
		}
		errs = append(errs, validateMoment(p.Child("release"), f.Release.After)...)
	}
	return errs
}

func validateMoment(p *field.Path, after string) field.ErrorList {
	if slices.Contains(judge.Names(), after) {
		return nil
	}
	return field.ErrorList{field.Invalid(p.Child("after"), after, nearest(after, judge.Names()))}
}

func validateCertificate(p *field.Path, c Certificate) field.ErrorList {
	switch {
	case (c.From == "") == (c.Mint == 0):
		return field.ErrorList{field.Forbidden(p, "exactly one of from and mint belongs here: {from: rotation} or {mint: 40s}")}
	case c.From != "" && c.From != "rotation":
		return field.ErrorList{field.NotSupported(p.Child("from"), c.From, []string{"rotation"})}
	case c.Mint > 0 && time.Duration(c.Mint) < 20*time.Second:
		return field.ErrorList{field.Invalid(p.Child("mint"), c.Mint.String(), "at least 20s: the kubelet must start, ask and renew before it ends")}
	case c.Rotate != "" && (c.Rotate != "later" || c.Mint == 0):
		return field.ErrorList{field.Invalid(p.Child("rotate"), c.Rotate, "later, and only beside mint")}
	}
	return nil
}

func validateExpectations(xs []placed, canaries Canaries) field.ErrorList {
	var errs field.ErrorList
	for _, x := range xs {
		at := x.at
		if !slices.Contains(judge.Names(), x.Milestone) {
			errs = append(errs, field.Invalid(at.Child("milestone"), x.Milestone, nearest(x.Milestone, judge.Names())))
		}
		row := judge.RowOf(x.Milestone)
		switch {
		case row.Subject == judge.NumberOf:
			if n, err := strconv.Atoi(x.Subject); err != nil || n < 2 || strconv.Itoa(n) != x.Subject {
				errs = append(errs, field.Invalid(at.Child("subject"), x.Subject, "the number of the request, from 2"))
			}
		case row.Subject == judge.EffectOf:
			if effects := []string{"NoExecute", "NoSchedule"}; !slices.Contains(effects, x.Subject) {
				errs = append(errs, field.NotSupported(at.Child("subject"), x.Subject, effects))
			}
		case row.Subject == judge.RepeatOf:
			if x.Subject != "" && x.Subject != judge.Again {
				errs = append(errs, field.NotSupported(at.Child("subject"), x.Subject, []string{judge.Again}))
			}
		case row.Subject == judge.TolerationOf && len(canaries.Tolerations) == 0:
			errs = append(errs, field.Invalid(at.Child("milestone"), x.Milestone, "there is no canary for it in spec.canaries.tolerations"))
		case row.Subject == judge.TolerationOf && x.Subject != "" && !slices.Contains(canaries.subjects(), x.Subject):
			errs = append(errs, field.NotSupported(at.Child("subject"), x.Subject, canaries.subjects()))
		case row.Subject == judge.NoSubject && x.Subject != "":
			errs = append(errs, field.Forbidden(at.Child("subject"), "only "+judge.PodEvicted+", "+judge.ReplacementReady+", "+judge.CSRRepeated+", "+judge.NoExecuteTainted+" and "+judge.NotReadyTainted+" have one"))
		}
		if x.Max > 0 && x.Max < x.Min {
			errs = append(errs, field.Invalid(at.Child("max"), x.Max.String(), "less than min"))
		}
		if (x.Min > 0 || x.Max > 0) && x.Why == "" {
			errs = append(errs, field.Required(at.Child("why"), "a limit of one's own needs its reason"))
		}
	}
	return errs
}

// subjects are the values of the canary label, "daemonset" not included.
func (c Canaries) subjects() []string {
	var s []string
	for _, t := range c.Tolerations {
		s = append(s, subject(t))
	}
	return s
}

// subject is the form of a toleration in labels and expectations: "300s".
func subject(t judge.Duration) string {
	return strconv.FormatFloat(time.Duration(t).Seconds(), 'f', -1, 64) + "s"
}

// eachToleration replaces an expectation about evictions that names no toleration
// by one for each.
func eachToleration(xs []judge.Expectation, c Canaries) []judge.Expectation {
	var out []judge.Expectation
	for _, x := range xs {
		if x.Subject != "" || judge.RowOf(x.Milestone).Subject != judge.TolerationOf {
			out = append(out, x)
			continue
		}
		for _, s := range c.subjects() {
			x.Subject = s
			out = append(out, x)
		}
	}
	return out
}

// flags returns the flags in the form that package cluster takes.
func (c ClusterSpec) flags() map[string]map[string]string {
	out := map[string]map[string]string{}
	for component, m := range c.Flags {
		out[component] = map[string]string{}
		for k, v := range m {
			out[component][k] = string(bytes.TrimSpace([]byte(v)))
		}
	}
	return out
}
