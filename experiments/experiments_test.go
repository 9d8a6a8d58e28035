package experiments_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/flatline-chaos/flatline/experiments"
	"github.com/flatline-chaos/flatline/internal/golden"
	"github.com/flatline-chaos/flatline/pkg/chaos"
)

// What an experiment comes to in a profile is the same to the byte, however its file says
// it: records name it, and a sweep finds its runs by it.
func TestResolvedTheSameToTheByte(t *testing.T) {
	names, err := chaos.Names(experiments.FS)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, name := range names {
		for _, profile := range []string{chaos.DefaultProfile, "fast"} {
			exp, err := chaos.Load(experiments.FS, name, profile)
			if err != nil {
				t.Fatal(err)
			}
			resolved, err := json.Marshal(exp)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%x  %s %s\n", sha256.Sum256(resolved), name, profile)
		}
	}
	golden.Lines(t, "testdata/resolved.sha256", b.String())
}

// Every experiment loads in every profile it has.
func TestShipped(t *testing.T) {
	names, err := chaos.Names(experiments.FS)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(names, "control") || !slices.Contains(names, "csr-denied") {
		t.Fatalf("experiments %q", names)
	}
	for _, name := range names {
		data, err := fs.ReadFile(experiments.FS, name+".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Fault    struct{ Type string }
				Profiles map[string]json.RawMessage
			}
		}
		if err := yaml.Unmarshal(data, &file); err != nil {
			t.Fatal(err)
		}
		// Suites select by this label; a copied file keeps that of its model.
		if file.Metadata.Labels["fault"] != file.Spec.Fault.Type {
			t.Errorf("%s: label fault is %q, the fault is %q", name, file.Metadata.Labels["fault"], file.Spec.Fault.Type)
		}
		if _, ok := file.Spec.Profiles["fast"]; !ok {
			t.Fatalf("%s has no profile fast", name)
		}
		file.Spec.Profiles[chaos.DefaultProfile] = nil
		for profile := range file.Spec.Profiles {
			e, err := chaos.Load(experiments.FS, name, profile)
			if err != nil {
				t.Errorf("profile %s: %v", profile, err)
				continue
			}
			if len(e.Spec.Expect)+len(e.Spec.Never) == 0 {
				t.Errorf("%s, profile %s: nothing is expected, so it cannot fail", name, profile)
			}
		}
	}
}
