package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// A File is an experiment as it is written. Load and Parse make an Experiment of it.
type File struct {
	// The version of this format. Without it the newest one is meant.
	APIVersion string   `json:"apiVersion,omitempty"`
	Kind       string   `json:"kind,omitempty"`
	Metadata   Metadata `json:"metadata"`
	// The profile of a resolved experiment, as "flatline plan NAME -o yaml" prints it. Such a
	// file is complete: it gets no defaults and has no profiles.
	Profile string   `json:"profile,omitempty"`
	Spec    FileSpec `json:"spec"`
}

// A FileSpec says what an experiment does and what must come of it. What it leaves out comes
// from defaults.yaml. A field that is null has no value at all, in no profile, whatever
// defaults.yaml says.
type FileSpec struct {
	Overlay
	// Other settings to choose from, each under its name. A profile is laid over the
	// experiment: mappings are merged, null removes a field, and everything else is
	// replaced. A certificate is replaced as a whole.
	Profiles map[string]Overlay `json:"profiles,omitempty"`
}

// An Overlay is a part of an experiment.
type Overlay struct {
	// One sentence: what is broken.
	Description string      `json:"description,omitempty"`
	Cluster     ClusterSpec `json:"cluster,omitzero"`
	Canaries    Canaries    `json:"canaries,omitzero"`
	Target      TargetSpec  `json:"target,omitzero"`
	Fault       FaultSpec   `json:"fault,omitzero"`
	// How long to observe at least, after the injection.
	Hold judge.Duration `json:"hold,omitempty"`
	// What must happen, each milestone inside the window that flatline computes for it.
	Expect Milestones `json:"expect,omitzero"`
	// What must not happen before the undo.
	Never Milestones `json:"never,omitzero"`
	// The outcome that a run must have, if that is not pass: not-injected, for an experiment
	// which shows that a fault has no effect.
	Outcome judge.Outcome `json:"outcome,omitempty"`
}

// Milestones is a list. Each entry is the name of a milestone, the name of a group of
// groups.yaml, or a mapping. A profile may change the list of the experiment instead, with a
// mapping of what to add and what to remove.
type Milestones struct{ json.RawMessage }

// A Change is what a profile makes of a list of milestones.
type Change struct {
	// Entries to remove. Each must be in the list.
	Remove Milestones `json:"remove,omitzero"`
	// Entries to append.
	Add Milestones `json:"add,omitzero"`
}

// Files that the experiments of a folder share.
const defaultsFile, groupsFile = "defaults.yaml", "groups.yaml"

// Names lists the experiments in a folder.
func Names(fsys fs.FS) ([]string, error) {
	files, err := fs.Glob(fsys, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing experiments: %w", err)
	}
	var names []string
	for _, f := range files {
		if f != defaultsFile && f != groupsFile {
			names = append(names, strings.TrimSuffix(f, ".yaml"))
		}
	}
	slices.Sort(names) // "-" comes before "."
	return names, nil
}

// Load reads the experiment of a name from a folder and applies a profile. Every
// error about the input is an *InvalidError.
func Load(fsys fs.FS, name, profile string) (*Experiment, error) {
	file := name + ".yaml"
	data, err := fs.ReadFile(fsys, file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) || file == defaultsFile || file == groupsFile {
		names, lerr := Names(fsys)
		if lerr != nil {
			return nil, lerr
		}
		return nil, invalid("there is no experiment %q; %s", name, nearest(name, names))
	}
	if err != nil {
		return nil, fmt.Errorf("loading experiment %s: %w", name, err)
	}
	return Parse(fsys, file, data, profile)
}

// MaxFile is how many bytes an experiment's file may have; the longest of flatline's has 1 kB.
const MaxFile = 1 << 20

// Parse reads an experiment and applies a profile. Its defaults and groups are those of a
// folder, if there is one. file is for messages; the base of its name must be the
// experiment's name. Without a profile it is the default one, or that of a resolved file.
func Parse(folder fs.FS, file string, data []byte, profile string) (*Experiment, error) {
	c, err := readCommon(folder)
	if err != nil {
		return nil, err
	}
	e, err := c.parse(file, data, profile)
	if err != nil {
		return nil, invalid("%s: %s", file, err)
	}
	return e, nil
}

// common is what the experiments of a folder share.
type common struct {
	defaults mapping // as an experiment
	groups   map[string][]judge.Expectation
}

// readCommon reads what a folder has of the two files.
func readCommon(folder fs.FS) (*common, error) {
	c := &common{}
	if folder == nil {
		return c, nil
	}
	var f File
	js, err := readShared(folder, defaultsFile, &f)
	if err != nil {
		return nil, err
	}
	if f.Metadata.Name != "" || f.Metadata.Labels != nil || f.Profile != "" || f.Spec.Expect.RawMessage != nil || f.Spec.Never.RawMessage != nil {
		return nil, invalid("%s: metadata, profile and expectations belong to an experiment", defaultsFile)
	}
	c.defaults, _ = parseTree(js).(mapping)
	var groups map[string]Milestones
	if _, err := readShared(folder, groupsFile, &groups); err != nil {
		return nil, err
	}
	members := map[string][]judge.Expectation{}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if !timeline.IsName(name) {
			return nil, invalid("%s: %q is no name of a group: %s", groupsFile, name, timeline.NameRule)
		}
		list, err := c.list(groups[name], field.NewPath(name)) // no group is in a group
		if err != nil {
			return nil, invalid("%s: %s", groupsFile, err)
		}
		members[name] = bare(list)
	}
	c.groups = members
	return c, nil
}

// readShared reads one of the two files into a value, if it is there.
func readShared(folder fs.FS, name string, into any) ([]byte, error) {
	data, err := fs.ReadFile(folder, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("loading experiments: %w", err)
	}
	js, err := toJSON(data)
	if err == nil {
		err = strict(js, into)
	}
	if err != nil {
		return nil, invalid("%s: %s", name, err)
	}
	return js, nil
}

// toJSON reads one YAML document. The error is one line.
func toJSON(data []byte) ([]byte, error) {
	if len(data) > MaxFile {
		return nil, fmt.Errorf("it has more than %d bytes", MaxFile)
	}
	if n := secondDocument(data); n > 0 {
		return nil, fmt.Errorf("line %d: another document begins here; a file holds one experiment", n)
	}
	js, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, errors.New(yamlProblem(err))
	}
	return js, nil
}

// parse reads an experiment. Errors are about the file, which they do not name.
func (c *common) parse(file string, data []byte, profile string) (*Experiment, error) {
	js, err := toJSON(data)
	if err != nil {
		return nil, err
	}
	own, ok := parseTree(js).(mapping)
	if ok {
		if js, err = json.Marshal(withoutNulls(own)); err != nil {
			return nil, err
		}
	}
	var f File
	if err := strict(js, &f); err != nil {
		return nil, err
	}
	defaults := c.defaults
	if f.Profile != "" {
		defaults = nil
	}
	if err := nullsOf(own, defaults); err != nil {
		return nil, err
	}
	defaults = without(defaults, own)
	d := &draft{common: c, file: &f, own: own, defaults: defaults, whole: lay(own, defaults)}
	return d.resolve(strings.TrimSuffix(path.Base(file), ".yaml"), profile)
}

// A draft is an experiment on its way from the file to the resolved form.
type draft struct {
	*common
	file                 *File
	own, defaults, whole mapping // what the file says, its defaults, and both
	expect, never        []placed
}

// resolve checks everything and applies a profile.
func (d *draft) resolve(name, profile string) (*Experiment, error) {
	root := field.NewPath("spec")
	var err error
	if d.expect, err = d.list(d.file.Spec.Expect, root.Child("expect")); err != nil {
		return nil, err
	}
	if d.never, err = d.list(d.file.Spec.Never, root.Child("never")); err != nil {
		return nil, err
	}
	e, err := build(d.whole)
	if err != nil {
		return nil, err
	}
	effect := e.Spec.Fault.Effect
	e.Spec.Fault.Effect = ""
	errs := append(e.check(d.expect, d.never), d.checkName(name)...)
	derived := effectOf(e.Spec.Fault)
	switch {
	case effect == "":
	case d.file.Profile == "":
		errs = append(errs, field.Forbidden(root.Child("fault", "effect"), "it follows from type and trigger"))
	case effect != derived:
		errs = append(errs, field.NotSupported(root.Child("fault", "effect"), effect, []judge.Effect{derived}))
	}
	if label, ok := e.Metadata.Labels["fault"]; ok && label != e.Spec.Fault.Type {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "labels", "fault"), label, "it is always spec.fault.type, "+strconv.Quote(e.Spec.Fault.Type)+": leave it out"))
	}
	switch {
	case len(errs) > 0 && d.file.Profile != "":
		return nil, fmt.Errorf("%w; a file that names its profile gets no defaults", errs[0])
	case len(errs) > 0:
		return nil, errs[0]
	}
	if d.file.Profile != "" {
		if d.file.Spec.Profiles != nil {
			return nil, field.Forbidden(root.Child("profiles"), "a file that names its profile is resolved and has no others")
		}
		if profile != "" && profile != d.file.Profile {
			return nil, fmt.Errorf("profile: it is resolved for profile %q; %q cannot be chosen any more", d.file.Profile, profile)
		}
		e.finish(d.file.Profile, d.expect, d.never)
		return e, firstOf(e.unseen(d.expect, e.configs(cluster.Versions()...)...))
	}
	return d.choose(e, profile)
}

// choose lays a profile over an experiment. Every profile of the file is tried, so that a
// mistake in one is found whichever is asked for.
func (d *draft) choose(e *Experiment, profile string) (*Experiment, error) {
	if profile == "" {
		profile = DefaultProfile
	}
	names := append(slices.Sorted(maps.Keys(at(d.whole, "spec", "profiles"))), DefaultProfile)
	if !slices.Contains(names, profile) {
		return nil, fmt.Errorf("there is no profile %q; %s", profile, nearest(profile, names))
	}
	chosen := e.finish(DefaultProfile, d.expect, d.never)
	if err := firstOf(chosen.unseen(d.expect, chosen.configs(cluster.Versions()...)...)); err != nil {
		return nil, err
	}
	for _, name := range names[:len(names)-1] {
		if !timeline.IsName(name) {
			return nil, fmt.Errorf("spec.profiles: %q is no name of a profile: %s", name, timeline.NameRule)
		}
		if name == DefaultProfile {
			return nil, fmt.Errorf("spec.profiles.%s: the default profile is the experiment as it stands", name)
		}
		if _, own := d.file.Spec.Profiles[name]; !own && name != profile {
			continue
		}
		e, err := d.with(name)
		if err != nil {
			return nil, err
		}
		if name == profile {
			chosen = e
		}
	}
	return chosen, nil
}

// with lays one profile over the experiment.
func (d *draft) with(name string) (*Experiment, error) {
	own := d.file.Spec.Profiles[name]
	p := field.NewPath("spec", "profiles", name)
	expect, err := d.change(d.expect, own.Expect, p.Child("expect"))
	if err != nil {
		return nil, err
	}
	never, err := d.change(d.never, own.Never, p.Child("never"))
	if err != nil {
		return nil, err
	}
	e, err := build(d.whole, at(d.defaults, "spec", "profiles", name), at(d.own, "spec", "profiles", name))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p, err)
	}
	errs := e.check(expect, never)
	if e.Spec.Fault.Effect != "" {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "fault", "effect"), "it follows from type and trigger"))
	}
	if len(errs) == 0 {
		e.finish(name, expect, never)
		errs = e.unseen(expect, e.configs(cluster.Versions()...)...)
	}
	if len(errs) == 0 {
		return e, nil
	}
	// What the profile sets is found there; what it leaves, in the experiment.
	text := errs[0].Error()
	inSpec := strings.TrimPrefix(text, "spec.")
	set, mine := at(d.own, "spec", "profiles", name)[inSpec[:strings.IndexAny(inSpec, ".[:")]]
	_, written := d.file.Spec.Profiles[name]
	switch {
	case strings.HasPrefix(text, p.String()+"."):
		return nil, errs[0]
	case mine && set != nil:
		return nil, fmt.Errorf("%s.%s", p, inSpec)
	case written:
		return nil, fmt.Errorf("%s: with this profile spec.%s", p, inSpec)
	}
	return nil, fmt.Errorf("with profile %s of %s: spec.%s", name, defaultsFile, inSpec)
}

// checkName checks the name of an experiment against that of its file.
func (d *draft) checkName(want string) field.ErrorList {
	var errs field.ErrorList
	p := field.NewPath("metadata", "name")
	if d.file.Metadata.Name != want {
		errs = append(errs, field.Invalid(p, d.file.Metadata.Name, "must be the name of the file, "+strconv.Quote(want)))
	}
	return append(errs, validateName(p, d.file.Metadata.Name)...)
}

// build decodes an experiment with overlays, without its expectations.
func build(whole mapping, overlays ...mapping) (*Experiment, error) {
	whole = maps.Clone(whole)
	spec := maps.Clone(at(whole, "spec"))
	for _, overlay := range overlays {
		spec = lay(overlay, spec)
	}
	for _, name := range []string{"expect", "never", "profiles"} {
		delete(spec, name)
	}
	if whole != nil {
		whole["spec"] = spec
	}
	js, err := json.Marshal(whole)
	if err != nil {
		return nil, err
	}
	var e Experiment
	return &e, strict(js, &e)
}

// firstOf is the error that is told of several.
func firstOf(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return errs[0]
}

// finish sets what follows from the rest.
func (e *Experiment) finish(profile string, expect, never []placed) *Experiment {
	e.Profile = profile
	labels := map[string]string{"fault": e.Spec.Fault.Type}
	for k, v := range e.Metadata.Labels {
		if k != "fault" {
			labels[k] = v
		}
	}
	e.Metadata.Labels = labels
	e.Spec.Expect, e.Spec.Never = eachToleration(bare(expect), e.Spec.Canaries), bare(never)
	e.Spec.Fault.Effect = effectOf(e.Spec.Fault)
	return e
}

// effectOf is what follows from type and trigger.
func effectOf(f FaultSpec) judge.Effect {
	traits, _ := judge.TraitsOf(f.Type)
	return traits.Effects[f.Trigger]
}

// A placed expectation knows where it is written.
type placed struct {
	judge.Expectation
	at *field.Path
}

// bare are the expectations alone.
func bare(list []placed) []judge.Expectation {
	var xs []judge.Expectation
	for _, x := range list {
		xs = append(xs, x.Expectation)
	}
	return xs
}

// placedIn are expectations that are written one by one.
func placedIn(p *field.Path, xs []judge.Expectation) []placed {
	var list []placed
	for i, x := range xs {
		list = append(list, placed{x, p.Index(i)})
	}
	return list
}

// list reads a list of milestones, with the members of groups in their place.
func (c *common) list(l Milestones, p *field.Path) ([]placed, error) {
	if len(l.RawMessage) == 0 {
		return nil, nil
	}
	var items []json.RawMessage
	if err := json.Unmarshal(l.RawMessage, &items); err != nil {
		return nil, fmt.Errorf("%s: %s where a list belongs", p, nameOf(l.RawMessage))
	}
	var list []placed
	for i, item := range items {
		at := p.Index(i)
		var x judge.Expectation
		switch item[0] {
		case '"':
			if err := json.Unmarshal(item, &x.Milestone); err != nil {
				return nil, err
			}
			if members, ok := c.groups[x.Milestone]; ok {
				for _, m := range members {
					list = append(list, placed{m, at.Key(x.Milestone)})
				}
				continue
			}
			if !slices.Contains(judge.Names(), x.Milestone) {
				known := slices.Concat(judge.Names(), slices.Sorted(maps.Keys(c.groups)))
				return nil, field.Invalid(at, x.Milestone, "there is no such milestone or group; "+nearest(x.Milestone, known))
			}
		case '{':
			if err := strict(item, &x); err != nil {
				return nil, fmt.Errorf("%s.%w", at, err)
			}
		default:
			return nil, fmt.Errorf("%s: %s where a milestone belongs: a name, or a mapping such as {milestone: CSRRepeated, subject: \"2\"}", at, nameOf(item))
		}
		list = append(list, placed{x, at})
	}
	return list, nil
}

// change is what a profile makes of a list: another one, or the same without some entries
// and with others.
func (c *common) change(list []placed, l Milestones, p *field.Path) ([]placed, error) {
	switch {
	case len(l.RawMessage) == 0:
		return list, nil
	case l.RawMessage[0] != '{':
		return c.list(l, p)
	}
	var change Change
	if err := strict(l.RawMessage, &change); err != nil {
		return nil, fmt.Errorf("%s.%w", p, err)
	}
	gone, err := c.list(change.Remove, p.Child("remove"))
	if err != nil {
		return nil, err
	}
	added, err := c.list(change.Add, p.Child("add"))
	if err != nil {
		return nil, err
	}
	list = slices.Clone(list)
	for _, x := range gone {
		same := func(y placed) bool { return y.Milestone == x.Milestone && y.Subject == x.Subject }
		if !slices.ContainsFunc(list, same) {
			return nil, field.Invalid(x.at, strings.TrimSpace(x.Milestone+" "+x.Subject), "the list of the experiment does not have it")
		}
		list = slices.DeleteFunc(list, same)
	}
	for _, x := range added {
		if slices.ContainsFunc(list, func(y placed) bool { return y.Expectation == x.Expectation }) {
			return nil, field.Invalid(x.at, strings.TrimSpace(x.Milestone+" "+x.Subject), "the list of the experiment has it already")
		}
		list = append(list, x)
	}
	return list, nil
}

// A mapping is a mapping of a file, before it has a type.
type mapping = map[string]any

// parseTree decodes JSON with numbers as they are written.
func parseTree(js []byte) any {
	var v any
	dec := json.NewDecoder(bytes.NewReader(js))
	dec.UseNumber()
	_ = dec.Decode(&v) // what is no JSON has no value
	return v
}

// at is a mapping inside of another one, nil if it is not there.
func at(m mapping, path ...string) mapping {
	for _, name := range path {
		m, _ = m[name].(mapping)
	}
	return m
}

// lay lays one mapping over another: mappings are merged, null removes, all else is
// replaced. One kind of certificate excludes the other, so it is replaced too.
func lay(over, base mapping) mapping {
	out := mapping{}
	maps.Copy(out, base)
	for name, v := range over {
		switch v := v.(type) {
		case nil:
			delete(out, name)
		case mapping:
			below, _ := out[name].(mapping)
			if name == "certificate" {
				below = nil
			}
			out[name] = lay(v, below)
		default:
			out[name] = v
		}
	}
	return out
}

// withoutNulls is a mapping as it is without what is null.
func withoutNulls(m mapping) mapping { return lay(m, nil) }

// without are defaults without what an experiment removes from them: from its profiles too.
func without(defaults, own mapping) mapping {
	if defaults == nil {
		return nil
	}
	nulls := onlyNulls(at(own, "spec"))
	delete(nulls, "profiles")
	spec := lay(nulls, at(defaults, "spec"))
	profiles := mapping{}
	for name := range at(spec, "profiles") {
		profiles[name] = lay(nulls, at(spec, "profiles", name))
	}
	spec["profiles"] = profiles
	out := maps.Clone(defaults)
	out["spec"] = spec
	return out
}

// onlyNulls is what is null in a mapping.
func onlyNulls(m mapping) mapping {
	out := mapping{}
	for name, v := range m {
		if below, ok := v.(mapping); ok {
			if n := onlyNulls(below); len(n) > 0 {
				out[name] = n
			}
		} else if v == nil {
			out[name] = nil
		}
	}
	return out
}

// nullsOf refuses what is null in an experiment and has no default. In a profile null
// removes what the experiment says.
func nullsOf(own, defaults mapping) error {
	spec := at(defaults, "spec")
	known := []mapping{spec}
	for _, name := range slices.Sorted(maps.Keys(at(spec, "profiles"))) {
		known = append(known, at(spec, "profiles", name))
	}
	mine := maps.Clone(at(own, "spec"))
	if profiles, ok := mine["profiles"].(mapping); ok {
		mine["profiles"] = mapping{}
		for name, v := range profiles {
			if v == nil {
				mine["profiles"].(mapping)[name] = nil
			}
		}
	}
	if where := unknownNull(onlyNulls(mine), known); where != "" {
		return fmt.Errorf("spec.%s: null removes a default, and it has none: leave it out", where)
	}
	return nil
}

// unknownNull is the path of the first null that is in none of some mappings.
func unknownNull(nulls mapping, known []mapping) string {
	for _, name := range slices.Sorted(maps.Keys(nulls)) {
		var inside []mapping
		found := false
		for _, m := range known {
			v, ok := m[name]
			found = found || ok
			if below, ok := v.(mapping); ok {
				inside = append(inside, below)
			}
		}
		if below, ok := nulls[name].(mapping); ok {
			if where := unknownNull(below, inside); where != "" {
				return name + "." + where
			}
		} else if !found {
			return name
		}
	}
	return ""
}
