package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var lacking = []string{"CAP_SYS_RESOURCE", "CAP_BPF"}

func TestFilterSpec(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{
			"all five sets, everything else as it was",
			`{"ociVersion":"1.0.2","process":{"terminal":false,"capabilities":{` +
				`"bounding":["CAP_CHOWN","CAP_SYS_RESOURCE","CAP_BPF"],"effective":["CAP_SYS_RESOURCE"],` +
				`"inheritable":["CAP_BPF","CAP_KILL"],"permitted":["CAP_CHOWN","CAP_SYS_RESOURCE"],"ambient":["CAP_SYS_RESOURCE","CAP_CHOWN"]},` +
				`"args":["\u003csh>","-c"],"newField":{"z":1,"a":18446744073709551615}},"linux":{"resources":{"memory":{"limit":-1.0}}}}`,
			`{"ociVersion":"1.0.2","process":{"terminal":false,"capabilities":{` +
				`"bounding":["CAP_CHOWN"],"effective":[],"inheritable":["CAP_KILL"],"permitted":["CAP_CHOWN"],"ambient":["CAP_CHOWN"]},` +
				`"args":["\u003csh>","-c"],"newField":{"z":1,"a":18446744073709551615}},"linux":{"resources":{"memory":{"limit":-1.0}}}}`,
		},
		{"unknown sets and names stay", `{"process":{"capabilities":{"future":["CAP_BPF"],"bounding":["CAP_NEW","CAP_BPF"]}}}`, `{"process":{"capabilities":{"future":["CAP_BPF"],"bounding":["CAP_NEW"]}}}`},
		{"nothing to remove: the same bytes", "{\n \"process\": {\"capabilities\": {\"bounding\": [\"CAP_CHOWN\"]}}}\n", "{\n \"process\": {\"capabilities\": {\"bounding\": [\"CAP_CHOWN\"]}}}\n"},
		{"capabilities null", `{"process":{"capabilities":null}}`, `{"process":{"capabilities":null}}`},
		{"set null", `{"process":{"capabilities":{"ambient":null,"bounding":["CAP_BPF"]}}}`, `{"process":{"capabilities":{"ambient":null,"bounding":[]}}}`},
		{"no capabilities", `{"process":{"args":[]}}`, `{"process":{"args":[]}}`},
		{"no process", `{"ociVersion":"1.0.2"}`, `{"ociVersion":"1.0.2"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := filterSpec([]byte(tt.in), lacking)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestFilterProcess(t *testing.T) {
	got, err := filterProcess([]byte(`{"user":{"uid":0},"capabilities":{"bounding":["CAP_BPF","CAP_KILL"]},"cwd":"/"}`), lacking)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"user":{"uid":0},"capabilities":{"bounding":["CAP_KILL"]},"cwd":"/"}`; string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestFilterErrors(t *testing.T) {
	for _, tt := range []struct{ in, part string }{
		{`{"process":`, "unexpected end"},
		{`{"process":[]}`, "process: expected a JSON object"},
		{`{"process":{"capabilities":{"bounding":"CAP_BPF"}}}`, "process: capabilities: bounding"},
	} {
		if _, err := filterSpec([]byte(tt.in), lacking); err == nil || !strings.Contains(err.Error(), tt.part) {
			t.Errorf("filterSpec(%s): %v, want it to say %q", tt.in, err, tt.part)
		}
	}
}

func TestRequest(t *testing.T) {
	tests := []struct{ name, line, file string }{
		{"as containerd creates", "--root /run/r --log /b/log.json --log-format json --systemd-cgroup create --bundle /b --pid-file /b/init.pid id", "/b/config.json"},
		{"as containerd executes", "--root /run/r --log=/b/log.json exec --process /tmp/p1 --detach --pid-file /b/x.pid id", "/tmp/p1"},
		{"equals sign", "create --bundle=/b id", "/b/config.json"},
		{"one dash", "run -bundle /b id", "/b/config.json"},
		{"short names", "run -b /b id", "/b/config.json"},
		{"short process", "exec -p /p id", "/p"},
		{"no bundle: the working folder", "create id", "config.json"},
		{"a command as container's name", "--root create state id", ""},
		{"exec without a process file", "exec id sh", ""},
		{"flags of the command that is executed", "exec --detach -- id sh -p /etc/passwd", ""},
		{"other commands", "delete --force id", ""},
		{"nothing", "", ""},
		{"version", "--version", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if file, _ := request(strings.Fields(tt.line)); file != tt.file {
				t.Errorf("request = %q, want %q", file, tt.file)
			}
		})
	}
}

func TestNextInPath(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	own, other := t.TempDir(), t.TempDir()
	if err := os.Symlink(self, filepath.Join(own, "runc")); err != nil {
		t.Fatal(err)
	}
	real := filepath.Join(other, "runc")
	if err := os.WriteFile(real, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", own+string(os.PathListSeparator)+other)
	if got, err := nextInPath("runc"); err != nil || got != real {
		t.Errorf("nextInPath = %q, %v, want %q", got, err, real)
	}
}
