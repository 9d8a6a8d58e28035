package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"flatline/docker/internal/object"
)

// addRuntime merges a runtime and makes it the default in the text of a
// daemon.json; empty text counts as no file. Everything else keeps its place.
func addRuntime(data []byte, name, path string, args []string) ([]byte, error) {
	daemon := object.Object{}
	if len(bytes.TrimSpace(data)) > 0 {
		var err error
		if daemon, err = object.Parse(data); err != nil {
			return nil, err
		}
	}
	if raw := daemon.Get("default-runtime"); raw != nil {
		var current string
		if err := json.Unmarshal(raw, &current); err != nil {
			return nil, fmt.Errorf("default-runtime: %w", err)
		}
		if current != name {
			return nil, fmt.Errorf("default-runtime is already %q", current)
		}
	}
	runtimes := object.Object{}
	if raw := daemon.Get("runtimes"); raw != nil && string(raw) != "null" {
		var err error
		if runtimes, err = object.Parse(raw); err != nil {
			return nil, fmt.Errorf("runtimes: %w", err)
		}
	}
	runtime := object.Object{{Key: "path", Value: object.String(path)}}
	if len(args) > 0 {
		list, err := json.Marshal(args)
		if err != nil {
			return nil, err
		}
		runtime.Set("runtimeArgs", list)
	}
	runtimes.Set(name, runtime.Bytes())
	daemon.Set("runtimes", runtimes.Bytes())
	daemon.Set("default-runtime", object.String(name))
	return indent(daemon, data)
}

// removeRuntime takes back what addRuntime did and leaves the rest. It returns
// nil when nothing is left, so that the file can go.
func removeRuntime(data []byte, name string) ([]byte, error) {
	daemon, err := object.Parse(data)
	if err != nil {
		return nil, err
	}
	changed := false
	if string(daemon.Get("default-runtime")) == string(object.String(name)) {
		daemon.Delete("default-runtime")
		changed = true
	}
	if raw := daemon.Get("runtimes"); raw != nil && string(raw) != "null" {
		runtimes, err := object.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("runtimes: %w", err)
		}
		if runtimes.Get(name) != nil {
			runtimes.Delete(name)
			daemon.Set("runtimes", runtimes.Bytes())
			if len(runtimes) == 0 {
				daemon.Delete("runtimes")
			}
			changed = true
		}
	}
	switch {
	case !changed:
		return data, nil
	case len(daemon) == 0:
		return nil, nil
	}
	return indent(daemon, data)
}

// indent formats a daemon.json the way its original was.
func indent(daemon object.Object, like []byte) ([]byte, error) {
	step := "  "
	if _, rest, ok := bytes.Cut(like, []byte("\n")); ok {
		if n := slices.IndexFunc(rest, func(b byte) bool { return b != ' ' && b != '\t' }); n > 0 {
			step = string(rest[:n])
		}
	}
	var out bytes.Buffer
	if err := json.Indent(&out, daemon.Bytes(), "", step); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}
