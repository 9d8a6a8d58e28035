package cluster

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"
)

//go:embed known-flags.txt
var knownFlags string

// KnownVersion is the Kubernetes version whose flags CheckFlag knows.
const KnownVersion = "v1.37.2"

// KnownFlags returns the names of a component's flags, nil if it is no component. Of the
// kubelet these are the fields of its configuration, without what is inside of them.
func KnownFlags(component string) []string {
	if component == "kubelet" {
		return fieldNames(reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]())
	}
	var names []string
	for line := range strings.Lines(knownFlags) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == component {
			names = append(names, f[1])
		}
	}
	return names
}

// Known says whether a component has a flag; for the kubelet a field of its
// configuration, with a dotted path to one that lies deeper.
func Known(component, name string) bool {
	if component == "kubelet" {
		first, _, _ := strings.Cut(name, ".")
		return slices.Contains(KnownFlags(component), first)
	}
	return slices.Contains(KnownFlags(component), name)
}

// CheckFlag says what is wrong with the value of a flag, by the type that the flag has;
// nil also where the type says nothing. The flag must be Known.
func CheckFlag(component, name, value string) error {
	if component == "kubelet" {
		return checkField(name, value)
	}
	for line := range strings.Lines(knownFlags) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == component && f[1] == name {
			return checkType(f[2], value)
		}
	}
	return fmt.Errorf("%s has no such flag", component)
}

// checkType parses a value as package flag would.
func checkType(typ, value string) error {
	var err error
	switch typ {
	case "duration":
		if _, err = time.ParseDuration(value); err != nil {
			return fmt.Errorf("%q is not a duration such as 40s", value)
		}
	case "int", "int32", "Level":
		if _, err = strconv.Atoi(value); err != nil {
			return fmt.Errorf("%q is not a whole number", value)
		}
	case "float", "float32":
		if _, err = strconv.ParseFloat(value, 64); err != nil {
			return fmt.Errorf("%q is not a number", value)
		}
	case "bool":
		if _, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("%q is not true or false", value)
		}
	}
	return nil
}

// checkField decodes a value into the kubelet's own type.
func checkField(name, value string) error {
	v, err := yamlValue(value)
	tree := map[string]any{}
	if err == nil {
		err = set(tree, strings.Split(name, "."), v)
	}
	var text []byte
	if err == nil {
		text, err = json.Marshal(tree)
	}
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(text, &kubeletv1beta1.KubeletConfiguration{})
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		want := map[reflect.Kind]string{reflect.Bool: "true or false", reflect.String: "a text", reflect.Slice: "a list", reflect.Map: "fields", reflect.Struct: "fields"}[wrong.Type.Kind()]
		return fmt.Errorf("%q is not %s", value, cmp.Or(want, "a whole number"))
	}
	return fmt.Errorf("%q does not fit: %s", value, strings.TrimPrefix(err.Error(), "json: "))
}

func fieldNames(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}
