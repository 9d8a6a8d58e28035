package experiments_test

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/flatline-chaos/flatline/experiments"
	"github.com/flatline-chaos/flatline/internal/golden"
	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
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

// Every experiment loads in every profile it has, can fail, and can be read.
func TestShipped(t *testing.T) {
	names, err := chaos.Names(experiments.FS)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(names, "control") || !slices.Contains(names, "csr-denied") || slices.Contains(names, "defaults") {
		t.Fatalf("experiments %q", names)
	}
	for _, name := range names {
		data, err := fs.ReadFile(experiments.FS, name+".yaml")
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(data, []byte("\n")); n > mostLines {
			t.Errorf("%s.yaml has %d lines: what it shares with others belongs in defaults.yaml or groups.yaml", name, n)
		}
		var file chaos.File
		if err := yaml.Unmarshal(data, &file); err != nil {
			t.Fatal(err)
		}
		for profile := range file.Spec.Profiles {
			if _, err := chaos.Load(experiments.FS, name, profile); err != nil {
				t.Errorf("profile %s: %v", profile, err)
			}
		}
		for _, profile := range []string{chaos.DefaultProfile, "fast"} {
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

// mostLines is how long an experiment's file may be.
const mostLines = 20

// The table of experiments in the README is printed from the files.
func TestREADME(t *testing.T) {
	names, err := chaos.Names(experiments.FS)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("\n| name | what happens | expected outcome | tier, scope | minutes: fast | default |\n|---|---|---|---|---|---|\n")
	for _, name := range names {
		exp, err := chaos.Load(experiments.FS, name, "")
		if err != nil {
			t.Fatal(err)
		}
		outcome := cmp.Or(exp.Spec.Outcome, judge.OutcomePass)
		fmt.Fprintf(&b, "| [%s](%s.yaml) | %s | %s | %s, %s | %s | %s |\n", name, name, exp.Spec.Description, outcome,
			exp.Metadata.Labels["tier"], exp.Metadata.Labels["scope"], minutes(t, name, "fast"), minutes(t, name, ""))
	}
	b.WriteString("\n")
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- printed from the files: go test ./experiments -update -->\n", "<!-- end -->\n"
	head, rest, ok := strings.Cut(string(readme), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("README.md has no place for the table: %q to %q", begin, end)
	}
	golden.Lines(t, "README.md", head+begin+b.String()+end+tail)
}

// minutes bounds how long a run takes.
func minutes(t *testing.T, name, profile string) string {
	t.Helper()
	exp, err := chaos.Load(experiments.FS, name, profile)
	if err != nil {
		t.Fatal(err)
	}
	p, err := chaos.PlanFor(exp, cluster.KnownVersion)
	if err != nil {
		t.Fatal(err)
	}
	least, most := p.OnOwnCluster()
	return fmt.Sprintf("%.0f to %.0f", least.Minutes(), most.Minutes())
}
