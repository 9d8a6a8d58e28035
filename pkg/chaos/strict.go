package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/flatline-chaos/flatline/pkg/judge"
)

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
		name := p[strings.LastIndex(p, ".")+1:]
		if why, ok := noFields[name]; ok {
			return fmt.Errorf("%s: no such field; %s", p, why)
		}
		return fmt.Errorf("%s: no such field; %s", p, nearest(name, fieldsBeside(p, reflect.TypeOf(into).Elem())))
	}
	return errors.New(text)
}

// noFields are fields that somebody may expect, and why they are none.
var noFields = map[string]string{
	"answers":  "it was removed, and nothing read it: leave it out",
	"profiles": "a profile has no profiles",
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
			for _, f := range reflect.VisibleFields(t) {
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

// fieldsBeside are the fields of the mapping that holds the last name of a path, nil if
// that mapping takes any name.
func fieldsBeside(path string, t reflect.Type) []string {
	var known []string
	for name := range strings.SplitSeq(path, ".") {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() == reflect.Map {
			known, t = nil, t.Elem()
			continue
		}
		if t.Kind() != reflect.Struct {
			break // a name with a dot in it
		}
		known = nil
		name, _, _ = strings.Cut(name, "[")
		below := reflect.TypeFor[string]()
		for _, f := range reflect.VisibleFields(t) {
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if key == "" {
				continue // embedded
			}
			known = append(known, key)
			if key == name {
				below = f.Type
			}
		}
		t = below
	}
	return known
}

// nameOf says what a value of JSON is.
func nameOf(js []byte) string {
	switch js[0] {
	case '{':
		return "a mapping"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "a bool"
	case 'n':
		return "null"
	}
	return "a number"
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
