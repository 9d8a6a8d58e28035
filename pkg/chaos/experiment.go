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
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
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

// Metadata names an experiment. Labels select it in suites: fault, tier, scope.
type Metadata struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// A Spec is what an experiment does and what must come of it. It states real
// defaults; a profile overlays other timers, by the rules of a JSON merge patch.
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
	Outcome  judge.Outcome              `json:"outcome,omitempty"`
	Profiles map[string]json.RawMessage `json:"profiles,omitempty"`
}

// A ClusterSpec says what cluster is needed.
type ClusterSpec struct {
	Workers int                         `json:"workers"`
	Flags   map[string]map[string]Value `json:"flags,omitempty"`
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
	// Tolerations has one Deployment of one pod each: tolerationSeconds for
	// node.kubernetes.io/unreachable.
	Tolerations []judge.Duration `json:"tolerations,omitempty"`
	// DaemonSet adds a pod that is never evicted.
	DaemonSet bool `json:"daemonSet,omitempty"`
}

// A TargetSpec says how many nodes are broken. The rest are control nodes.
type TargetSpec struct {
	Role  string `json:"role"`
	Count int    `json:"count"`
}

// A FaultSpec says what is broken.
type FaultSpec struct {
	Type string `json:"type"`
	// Trigger is what makes a fault of the certificate's files bite: "restart" of the
	// kubelet, or its next "rotation".
	Trigger string `json:"trigger,omitempty"`
	// Effect follows from the two; it is no field of a file.
	Effect judge.Effect `json:"effect,omitempty"`
	// Everyone has a fault that can spare the control nodes hit them too, as it
	// would outside of an experiment.
	Everyone    bool         `json:"everyone,omitempty"`
	Certificate *Certificate `json:"certificate,omitempty"`
	// Kubelet "stopped" has the target's kubelet stopped too: after the fault, or
	// at the injection where At says that the fault comes later.
	Kubelet string `json:"kubelet,omitempty"`
	// At is when the fault comes, if that is not at the injection.
	At *When `json:"at,omitempty"`
	// Release takes the fault back some time before the undo and leaves the node
	// to itself.
	Release *Release `json:"release,omitempty"`
}

// A When is a moment of the run: so long after a milestone of the first target.
type When struct {
	After string         `json:"after"`
	Plus  judge.Duration `json:"plus,omitempty"`
}

// A Release says when and how a fault is taken back with the node left to itself.
type Release struct {
	After string         `json:"after"`
	Plus  judge.Duration `json:"plus,omitempty"`
	// Touch has the waiting request written to, so that controllers look at it at
	// once.
	Touch bool `json:"touch,omitempty"`
}

// plan is what windows depend on of the fault.
func (f FaultSpec) plan() judge.FaultPlan {
	var p judge.FaultPlan
	data, err := json.Marshal(f)
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil {
		panic(err) // both are ours, and a test reads every experiment so
	}
	return p
}

// A Certificate says which client certificate runs out on the target. Exactly one
// of its fields is set.
type Certificate struct {
	// From "rotation": the one that the node was issued last.
	From string `json:"from,omitempty"`
	// Mint: one signed with the cluster's CA that is valid for so long, and past
	// its rotation deadline unless Rotate is "later".
	Mint   judge.Duration `json:"mint,omitempty"`
	Rotate string         `json:"rotate,omitempty"`
}

// DefaultProfile is the name of the profile that changes nothing.
const DefaultProfile = "default"

// An InvalidError says what is wrong with what the user gave, in one line.
type InvalidError struct{ Text string }

func (e *InvalidError) Error() string { return e.Text }

func invalid(format string, args ...any) error {
	return &InvalidError{strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")}
}

// Names lists the experiments in a folder.
func Names(fsys fs.FS) ([]string, error) {
	files, err := fs.Glob(fsys, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing experiments: %w", err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(f, ".yaml")
	}
	slices.Sort(files) // "-" comes before "."
	return files, nil
}

// Load reads the experiment of a name from a folder and applies a profile. Every
// error about the input is an *InvalidError.
func Load(fsys fs.FS, name, profile string) (*Experiment, error) {
	file := name + ".yaml"
	data, err := fs.ReadFile(fsys, file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		names, lerr := Names(fsys)
		if lerr != nil {
			return nil, lerr
		}
		return nil, invalid("there is no experiment %q; %s", name, nearest(name, names))
	}
	if err != nil {
		return nil, fmt.Errorf("loading experiment %s: %w", name, err)
	}
	return Parse(file, data, profile)
}

// MaxFile is how many bytes an experiment's file may have; the longest of flatline's has 4 kB.
const MaxFile = 1 << 20

// Parse reads an experiment and applies a profile. file is for messages; the base
// of its name must be the experiment's name.
func Parse(file string, data []byte, profile string) (*Experiment, error) {
	if len(data) > MaxFile {
		return nil, invalid("%s: it has more than %d bytes", file, MaxFile)
	}
	if n := secondDocument(data); n > 0 {
		return nil, invalid("%s: line %d: another document begins here; a file holds one experiment", file, n)
	}
	js, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, invalid("%s: %s", file, yamlProblem(err))
	}
	var e Experiment
	if err := strict(js, &e); err != nil {
		return nil, invalid("%s: %s", file, err)
	}
	errs := e.validate()
	if e.Profile != "" {
		errs = append(errs, field.Forbidden(field.NewPath("profile"), "it is chosen when the experiment is run; spec.profiles holds those to choose from"))
	}
	if want := strings.TrimSuffix(path.Base(file), ".yaml"); e.Metadata.Name != want {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), e.Metadata.Name, "must be the name of the file, "+strconv.Quote(want)))
	}
	errs = append(errs, validateName(field.NewPath("metadata", "name"), e.Metadata.Name)...)
	if len(errs) > 0 {
		return nil, invalid("%s: %s", file, errs[0].Error())
	}
	if err := applyProfile(&e, js, profile); err != nil {
		return nil, invalid("%s: %s", file, err)
	}
	e.Spec.Expect = eachToleration(e.Spec.Expect, e.Spec.Canaries)
	e.Spec.Fault.Effect = kinds()[e.Spec.Fault.Type].Effects[e.Spec.Fault.Trigger]
	return &e, nil
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

// applyProfile overlays one profile on the spec. Every profile is tried, so that
// a mistake in one is found whichever is asked for.
func applyProfile(e *Experiment, js []byte, profile string) error {
	if profile == "" {
		profile = DefaultProfile
	}
	profiles := e.Spec.Profiles
	names := append(slices.Sorted(maps.Keys(profiles)), DefaultProfile)
	if !slices.Contains(names, profile) {
		return fmt.Errorf("there is no profile %q; %s", profile, nearest(profile, names))
	}
	var chosen Experiment
	for _, name := range names[:len(profiles)] {
		overlay := profiles[name]
		if !timeline.IsName(name) {
			return fmt.Errorf("spec.profiles: %q is no name of a profile: %s", name, timeline.NameRule)
		}
		at := "spec.profiles." + name
		if name == DefaultProfile {
			return fmt.Errorf("%s: the default profile is the experiment as it stands", at)
		}
		if !bytes.HasPrefix(overlay, []byte("{")) {
			return fmt.Errorf("%s: a mapping belongs here, such as {hold: 10s}", at)
		}
		values, err := jsonpatch.MergePatch([]byte("{}"), overlay) // without the nulls, which delete
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		var probe Spec
		if err := strict(values, &probe); err != nil {
			return fmt.Errorf("%s.%w", at, err)
		}
		if probe.Profiles != nil {
			return fmt.Errorf("%s.profiles: a profile has no profiles", at)
		}
		patch, err := json.Marshal(map[string]any{"spec": overlay})
		if err != nil {
			return err
		}
		merged, err := jsonpatch.MergePatch(js, patch)
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		var m Experiment
		if err := strict(merged, &m); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		if errs := m.validate(); len(errs) > 0 {
			// What the profile sets is found there; what it leaves, in the experiment.
			inSpec := strings.TrimPrefix(errs[0].Error(), "spec.")
			var set map[string]json.RawMessage
			_ = json.Unmarshal(values, &set)
			if _, ok := set[inSpec[:strings.IndexAny(inSpec, ".[:")]]; ok {
				return fmt.Errorf("%s.%s", at, inSpec)
			}
			return fmt.Errorf("%s: with this profile spec.%s", at, inSpec)
		}
		if name == profile {
			chosen = m
		}
	}
	if profile != DefaultProfile {
		*e = chosen
	}
	e.Profile, e.Spec.Profiles = profile, nil
	return nil
}

// strict decodes JSON and refuses unknown and duplicate keys and wrong types. The
// error is one line that begins with the path of the field.
func strict(js []byte, into any) error {
	problems, err := kjson.UnmarshalStrict(js, into)
	if err == nil && len(problems) > 0 {
		err = problems[0]
	}
	if err == nil {
		return nil
	}
	var typeErr *json.UnmarshalTypeError
	if errors.As(err, &typeErr) {
		at := wrongAt(js, reflect.TypeOf(into).Elem())
		if at == "" {
			at = "the whole file"
		}
		if t := typeErr.Type; t == reflect.TypeFor[Value]() || t == reflect.TypeFor[judge.Duration]() {
			return fmt.Errorf("%s: %s", at, typeErr.Value)
		}
		value := "a " + strings.NewReplacer("array", "list", "object", "mapping").Replace(typeErr.Value)
		return fmt.Errorf("%s: %s where %s belongs", at, value, kindName(typeErr.Type.Kind().String()))
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if unknown, ok := strings.CutPrefix(text, "unknown field "); ok {
		p, _ := strconv.Unquote(unknown)
		known := fieldsBeside(p, reflect.TypeOf(into).Elem())
		return fmt.Errorf("%s: no such field; %s", p, nearest(p[strings.LastIndex(p, ".")+1:], known))
	}
	return errors.New(text)
}

// wrongAt is the path of the first value that does not fit a type. The decoder's
// own leaves out the indices of lists and the keys of maps.
func wrongAt(js []byte, t reflect.Type) string {
	var list []json.RawMessage
	var mapping map[string]json.RawMessage
	inside := func(name string, js []byte, t reflect.Type) string {
		if json.Unmarshal(js, reflect.New(t).Interface()) == nil {
			return ""
		}
		below := wrongAt(js, t)
		if below != "" && below[0] != '[' {
			below = "." + below
		}
		return name + below
	}
	switch {
	case t.Kind() == reflect.Pointer:
		return wrongAt(js, t.Elem())
	case t.Kind() == reflect.Slice && json.Unmarshal(js, &list) == nil:
		for i, item := range list {
			if at := inside(fmt.Sprintf("[%d]", i), item, t.Elem()); at != "" {
				return at
			}
		}
	case t.Kind() == reflect.Map && json.Unmarshal(js, &mapping) == nil:
		for _, key := range slices.Sorted(maps.Keys(mapping)) {
			if at := inside(key, mapping[key], t.Elem()); at != "" {
				return at
			}
		}
	case t.Kind() == reflect.Struct && json.Unmarshal(js, &mapping) == nil:
		// In the order of the file as JSON, which is the decoder's.
		for _, key := range slices.Sorted(maps.Keys(mapping)) {
			for f := range t.Fields() {
				if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name == key {
					if at := inside(key, mapping[key], f.Type); at != "" {
						return at
					}
				}
			}
		}
	}
	return ""
}

// fieldsBeside are the fields of the mapping that holds the last name of a path.
func fieldsBeside(path string, t reflect.Type) []string {
	var known []string
	for name := range strings.SplitSeq(path, ".") {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			break // a name with a dot in it
		}
		known = nil
		name, _, _ = strings.Cut(name, "[")
		below := reflect.TypeFor[string]()
		for f := range t.Fields() {
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			known = append(known, key)
			if key == name {
				below = f.Type
			}
		}
		t = below
	}
	return known
}

func kindName(kind string) string {
	switch kind {
	case "struct", "map":
		return "a mapping"
	case "slice":
		return "a list"
	case "int":
		return "a whole number"
	case "bool":
		return "true or false"
	}
	return "a " + kind
}

// secondDocument is the number of the line that begins another YAML document, 0
// if there is none. The decoder would ignore what follows.
func secondDocument(data []byte) int {
	content := false
	n := 0
	for line := range bytes.Lines(data) {
		n++
		f := bytes.Fields(line)
		marker := len(f) > 0 && string(f[0]) == "---" && line[0] == '-'
		if marker && content {
			return n
		}
		content = content || len(f) > 0 && !marker && f[0][0] != '#' && line[0] != '%'
	}
	return 0
}

// yamlProblem takes the wrapping off a YAML error: "line 4: key "x" already set".
func yamlProblem(err error) string {
	s := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	s = strings.TrimPrefix(s, "yaml: ")
	s = strings.TrimPrefix(s, "unmarshal errors:\n")
	return strings.Join(strings.Fields(s), " ")
}

// validate checks what types cannot say. All errors are found; the first is told.
func (e *Experiment) validate() field.ErrorList {
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
			if !flagName.MatchString(name) {
				errs = append(errs, field.Invalid(root.Child("cluster", "flags", component), name, "letters, digits, dashes and dots: it becomes an argument of "+component))
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
	errs = append(errs, s.Fault.validate(root.Child("fault"))...)
	errs = append(errs, validateExpectations(root.Child("expect"), s.Expect, s.Canaries)...)
	errs = append(errs, validateExpectations(root.Child("never"), s.Never, s.Canaries)...)
	if s.Outcome != "" && s.Outcome != judge.OutcomeNotInjected {
		errs = append(errs, field.NotSupported(root.Child("outcome"), s.Outcome, []judge.Outcome{judge.OutcomeNotInjected}))
	}
	return errs
}

// flagName is what a flag or a field of a component is called.
var flagName = regexp.MustCompile(`^[A-Za-z][-.A-Za-z0-9]{0,99}$`)

// components are those that have flags.
var components = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd", "kubelet"}

func (f FaultSpec) validate(p *field.Path) field.ErrorList {
	var errs field.ErrorList
	known := slices.Sorted(maps.Keys(kinds()))
	kind, ok := kinds()[f.Type]
	if !ok {
		if f.Type == "" {
			return append(errs, field.Required(p.Child("type"), "what is broken; none breaks nothing"))
		}
		return append(errs, field.Invalid(p.Child("type"), f.Type, "there is no such fault; "+nearest(f.Type, known)))
	}
	if f.Effect != "" {
		errs = append(errs, field.Forbidden(p.Child("effect"), "it follows from type and trigger"))
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
	case !runsOut && f.Certificate != nil:
		errs = append(errs, field.Forbidden(p.Child("certificate"), "this fault is not about a certificate that runs out"))
	case runsOut && f.Certificate == nil && f.Kubelet == "":
		errs = append(errs, field.Required(p.Child("certificate"), "{from: rotation} or {mint: 40s}"))
	case f.Certificate != nil:
		errs = append(errs, f.Certificate.validate(p.Child("certificate"))...)
		if f.Trigger == byRotation && f.Certificate.Mint > 0 && f.Certificate.Rotate != "later" {
			errs = append(errs, field.Invalid(p.Child("certificate", "rotate"), f.Certificate.Rotate, "later: the files must be broken before the kubelet wants the next certificate"))
		}
	}
	if f.Kubelet != "" && f.Kubelet != "stopped" {
		errs = append(errs, field.NotSupported(p.Child("kubelet"), f.Kubelet, []string{"stopped"}))
	}
	if f.Kubelet != "" && f.Certificate != nil {
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

func (c *Certificate) validate(p *field.Path) field.ErrorList {
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

func validateExpectations(p *field.Path, xs []judge.Expectation, canaries Canaries) field.ErrorList {
	var errs field.ErrorList
	for i, x := range xs {
		at := p.Index(i)
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

// nearest says which of the known names are closest to a wrong one.
func nearest(name string, known []string) string {
	if len(known) <= 3 {
		return "there is only " + strings.Join(known, ", ")
	}
	type scored struct {
		name string
		d    int
	}
	var all []scored
	for _, k := range known {
		all = append(all, scored{k, distance(strings.ToLower(name), strings.ToLower(k))})
	}
	slices.SortStableFunc(all, func(a, b scored) int { return a.d - b.d })
	var best []string
	for _, s := range all[:min(3, len(all))] {
		if len(best) == 0 || s.d <= all[0].d+2 {
			best = append(best, s.name)
		}
	}
	return "nearest: " + strings.Join(best, ", ")
}

// distance is the number of characters to insert, delete or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
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
