package experiments_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"github.com/flatline-chaos/flatline/experiments"
	"github.com/flatline-chaos/flatline/internal/golden"
	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// The schema is that of the types which read the files, with their comments. What a type
// cannot say is added: names that are known, and where null may stand.
func TestSchema(t *testing.T) {
	schema, err := json.MarshalIndent(schemaOf(t), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Lines(t, "schema.json", short.ReplaceAllString(string(schema), `{"$$ref": "$1"}`)+"\n")
}

// short are references, which stand in a line of their own.
var short = regexp.MustCompile(`{\n *"\$ref": "([^"]*)"\n *}`)

type object = map[string]any

func schemaOf(t *testing.T) object {
	t.Helper()
	r := &jsonschema.Reflector{Anonymous: true, RequiredFromJSONSchemaTags: true, Mapper: scalars}
	const module = "github.com/flatline-chaos/flatline/experiments"
	for _, folder := range []string{"../pkg/chaos", "../pkg/judge"} {
		if err := r.AddGoComments(module, folder, jsonschema.WithFullComment()); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range r.CommentMap {
		r.CommentMap[name] = strings.Join(strings.Fields(text), " ")
	}
	s := reflected(t, r, &chaos.File{})
	defs := s["$defs"].(object)
	maps.Copy(defs, reflected(t, r, &judge.Expectation{})["$defs"].(object))
	maps.Copy(defs, reflected(t, r, &chaos.Change{})["$defs"].(object))
	extend(t, defs)
	s["title"] = "An experiment of flatline"
	return s
}

// reflected is the schema of a type as JSON has it.
func reflected(t *testing.T, r *jsonschema.Reflector, v any) object {
	t.Helper()
	data, err := json.Marshal(r.Reflect(v))
	var s object
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// scalars are types that read themselves.
func scalars(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[judge.Duration]():
		return &jsonschema.Schema{Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`, Examples: []any{"40s", "5m"}}
	case reflect.TypeFor[chaos.Value]():
		return &jsonschema.Schema{Ref: "#/$defs/Value"}
	case reflect.TypeFor[chaos.Milestones]():
		return &jsonschema.Schema{Ref: "#/$defs/Milestones"}
	}
	return nil
}

// extend adds what the types do not say.
func extend(t *testing.T, defs object) {
	t.Helper()
	property := func(def, name string) object { return defs[def].(object)["properties"].(object)[name].(object) }
	require := func(def string, names ...string) { defs[def].(object)["required"] = names }
	var groups map[string]any
	data, err := experiments.FS.ReadFile("groups.yaml")
	if err == nil {
		err = yaml.Unmarshal(data, &groups)
	}
	if err != nil {
		t.Fatal(err)
	}
	milestone := object{"$ref": "#/$defs/Milestone"}
	defs["Milestone"] = object{"enum": judge.Names()}
	// null removes a flag in a profile.
	defs["Value"] = object{"type": []string{"string", "number", "boolean", "null"}, "description": "The value of a flag."}
	defs["Milestones"] = object{"type": "array", "items": object{"anyOf": []any{
		object{"$ref": "#/$defs/Milestone"},
		object{"enum": slices.Sorted(maps.Keys(groups)), "description": "A group of groups.yaml."},
		object{"$ref": "#/$defs/Expectation"},
	}}}
	maps.Copy(property("Expectation", "milestone"), milestone)
	for _, def := range []string{"Moment", "Release"} {
		maps.Copy(property(def, "after"), milestone)
	}
	maps.Copy(property("FaultPlan", "type"), object{"enum": judge.Faults()})
	maps.Copy(property("FaultPlan", "trigger"), object{"enum": []string{judge.ByRestart, judge.ByRotation}})
	maps.Copy(property("FaultPlan", "kubelet"), object{"enum": []string{"stopped"}})
	maps.Copy(property("FaultCertificate", "from"), object{"enum": []string{"rotation"}})
	maps.Copy(property("FaultCertificate", "rotate"), object{"enum": []string{"later"}})
	maps.Copy(property("TargetSpec", "role"), object{"enum": []string{"worker"}})
	maps.Copy(property("File", "apiVersion"), object{"enum": []string{judge.APIVersion}})
	maps.Copy(property("File", "kind"), object{"enum": []string{"Experiment"}})
	require("File", "metadata", "spec")
	require("Metadata", "name")
	require("FileSpec", "description", "fault")
	require("Expectation", "milestone")

	components := object{}
	for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd", "kubelet"} {
		flags := object{}
		for _, name := range cluster.KnownFlags(component) {
			flags[name] = object{"$ref": "#/$defs/Value"}
		}
		of := object{"type": "object", "properties": flags, "additionalProperties": false}
		if component == "kubelet" {
			of["patternProperties"] = object{`\.`: object{"$ref": "#/$defs/Value"}}
		}
		components[component] = orNull(of)
	}
	flags := property("ClusterSpec", "flags")
	delete(flags, "additionalProperties")
	maps.Copy(flags, object{"properties": components, "additionalProperties": false})

	// In a profile null removes what the experiment says, in an experiment what the defaults say.
	for _, def := range []string{"FileSpec", "Overlay"} {
		of := defs[def].(object)["properties"].(object)
		maps.Copy(of["outcome"].(object), object{"enum": []any{judge.OutcomeNotInjected}})
		for _, name := range slices.Sorted(maps.Keys(of)) {
			if def == "Overlay" && (name == "expect" || name == "never") {
				of[name].(object)["anyOf"] = []any{object{"$ref": "#/$defs/Milestones"}, object{"$ref": "#/$defs/Change"}}
				delete(of[name].(object), "$ref")
			}
			if def == "Overlay" || slices.Contains([]string{"canaries", "cluster", "target"}, name) {
				of[name] = orNull(of[name].(object))
			}
		}
	}
	for _, def := range []string{"FaultPlan", "ClusterSpec", "Canaries", "FaultCertificate"} {
		of := defs[def].(object)["properties"].(object)
		for _, name := range slices.Sorted(maps.Keys(of)) {
			of[name] = orNull(of[name].(object))
		}
	}
}

// orNull is a schema that allows null too. What describes it stays where editors look.
func orNull(s object) object {
	inner := maps.Clone(s)
	delete(inner, "description")
	out := object{"anyOf": []any{inner, object{"type": "null"}}}
	if text, ok := s["description"]; ok {
		out["description"] = text
	}
	return out
}

// compiled is the schema as an editor has it.
func compiled(t *testing.T) *validator.Schema {
	t.Helper()
	doc, err := validator.UnmarshalJSON(bytes.NewReader(experiments.Schema))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// check holds a text of YAML against a schema.
func check(s *validator.Schema, text []byte) error {
	js, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	doc, err := validator.UnmarshalJSON(bytes.NewReader(js))
	if err != nil {
		return err
	}
	return s.Validate(doc)
}

// Every experiment fits the schema, as it is written and resolved.
func TestExperimentsFitTheSchema(t *testing.T) {
	s := compiled(t)
	names, err := chaos.Names(experiments.FS)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := experiments.FS.ReadFile(name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		if err := check(s, data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, profile := range []string{chaos.DefaultProfile, "fast"} {
			exp, err := chaos.Load(experiments.FS, name, profile)
			if err != nil {
				t.Fatal(err)
			}
			text, err := exp.YAML()
			if err == nil {
				err = check(s, text)
			}
			if err != nil {
				t.Errorf("%s, profile %s: %v", name, profile, err)
			}
		}
	}
}

// The schema refuses mistakes of spelling and of type. What takes more than one field to see
// is left to flatline plan: those mistakes are a file.
func TestSchemaRefuses(t *testing.T) {
	s := compiled(t)
	files, err := filepath.Glob("../pkg/chaos/testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var accepted bytes.Buffer
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if check(s, data) == nil {
			fmt.Fprintln(&accepted, filepath.Base(file))
		}
	}
	golden.Lines(t, "testdata/accepted-by-schema.txt", accepted.String())
}
