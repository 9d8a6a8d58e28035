package main

import (
	"encoding/json"
	"fmt"
	"slices"

	"flatline/docker/internal/object"
)

// sets are the five capability sets of an OCI process.
var sets = []string{"bounding", "effective", "inheritable", "permitted", "ambient"}

// filterSpec removes missing capabilities from the process of a config.json.
func filterSpec(spec []byte, missing []string) ([]byte, error) {
	return filterAt(spec, []string{"process", "capabilities"}, missing)
}

// filterProcess does the same for the process file of an exec.
func filterProcess(process []byte, missing []string) ([]byte, error) {
	return filterAt(process, []string{"capabilities"}, missing)
}

// filterAt descends path and returns data itself when there is nothing to do,
// so that the caller can leave the file alone.
func filterAt(data []byte, path, missing []string) ([]byte, error) {
	obj, err := object.Parse(data)
	if err != nil {
		return nil, err
	}
	if len(path) == 0 {
		return filterSets(data, obj, missing)
	}
	inner := obj.Get(path[0])
	if inner == nil || string(inner) == "null" {
		return data, nil
	}
	filtered, err := filterAt(inner, path[1:], missing)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path[0], err)
	}
	if string(filtered) == string(inner) {
		return data, nil
	}
	obj.Set(path[0], filtered)
	return obj.Bytes(), nil
}

func filterSets(data []byte, capabilities object.Object, missing []string) ([]byte, error) {
	changed := false
	for _, set := range sets {
		raw := capabilities.Get(set)
		if raw == nil || string(raw) == "null" {
			continue
		}
		var have []string
		if err := json.Unmarshal(raw, &have); err != nil {
			return nil, fmt.Errorf("%s: %w", set, err)
		}
		kept := slices.DeleteFunc(slices.Clone(have), func(c string) bool { return slices.Contains(missing, c) })
		if len(kept) == len(have) {
			continue
		}
		text, err := json.Marshal(kept)
		if err != nil {
			return nil, err
		}
		capabilities.Set(set, text)
		changed = true
	}
	if !changed {
		return data, nil
	}
	return capabilities.Bytes(), nil
}
