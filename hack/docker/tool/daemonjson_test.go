package main

import (
	"strings"
	"testing"
)

const ours = `{
  "runtimes": {
    "flatline-runc": {
      "path": "/opt/rt"
    }
  },
  "default-runtime": "flatline-runc"
}
`

func TestAddRuntime(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"no file", "", ours},
		{"empty object", "{}\n", ours},
		{"already there", ours, ours},
		{"null runtimes", `{"runtimes":null}`, ours},
		{
			"unknown keys, order, numbers and indentation stay",
			"{\n\t\"zeta\": 18446744073709551615,\n\t\"log-opts\": {\"max-size\": \"<10m>\"},\n\t\"runtimes\": {\"nvidia\": {\"path\": \"n\", \"x\": 1.0}},\n\t\"debug\": true\n}\n",
			"{\n\t\"zeta\": 18446744073709551615,\n\t\"log-opts\": {\n\t\t\"max-size\": \"<10m>\"\n\t},\n\t\"runtimes\": {\n\t\t\"nvidia\": {\n\t\t\t\"path\": \"n\",\n\t\t\t\"x\": 1.0\n\t\t},\n" +
				"\t\t\"flatline-runc\": {\n\t\t\t\"path\": \"/opt/rt\"\n\t\t}\n\t},\n\t\"debug\": true,\n\t\"default-runtime\": \"flatline-runc\"\n}\n",
		},
		{
			"an older entry is replaced where it stands",
			`{"default-runtime":"flatline-runc","runtimes":{"flatline-runc":{"path":"/old"},"b":{"path":"b"}}}`,
			"{\n  \"default-runtime\": \"flatline-runc\",\n  \"runtimes\": {\n    \"flatline-runc\": {\n      \"path\": \"/opt/rt\"\n    },\n    \"b\": {\n      \"path\": \"b\"\n    }\n  }\n}\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := addRuntime([]byte(tt.in), "flatline-runc", "/opt/rt", nil)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestAddRuntimeRefuses(t *testing.T) {
	for _, tt := range []struct{ in, part string }{
		{`{"debug": true,}`, "invalid character"},
		{`[]`, "expected a JSON object"},
		{`{"default-runtime":"nvidia"}`, `default-runtime is already "nvidia"`},
		{`{"default-runtime":"runc"}`, `default-runtime is already "runc"`},
		{`{"default-runtime":1}`, "default-runtime:"},
		{`{"runtimes":[]}`, "runtimes: expected a JSON object"},
	} {
		if got, err := addRuntime([]byte(tt.in), "flatline-runc", "/opt/rt", nil); err == nil || !strings.Contains(err.Error(), tt.part) {
			t.Errorf("addRuntime(%s) = %s, %v, want an error with %q", tt.in, got, err, tt.part)
		}
	}
}

func TestAddRuntimeArguments(t *testing.T) {
	got, err := addRuntime(nil, "r", "/opt/rt", []string{"--real-runc=/x"})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(got), `"--real-runc=/x"`) {
		t.Errorf("no argument in %s", got)
	}
}

func TestRemoveRuntime(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"only ours: nothing left", ours, ""},
		{"not there: the same bytes", `{"debug":true, "runtimes":{}}`, `{"debug":true, "runtimes":{}}`},
		{
			"others stay",
			`{"a":1,"runtimes":{"b":{"path":"b"},"flatline-runc":{}},"default-runtime":"flatline-runc"}`,
			"{\n  \"a\": 1,\n  \"runtimes\": {\n    \"b\": {\n      \"path\": \"b\"\n    }\n  }\n}\n",
		},
		{
			"a default of somebody else stays",
			`{"runtimes":{"flatline-runc":{}},"default-runtime":"b"}`,
			"{\n  \"default-runtime\": \"b\"\n}\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := removeRuntime([]byte(tt.in), "flatline-runc")
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
