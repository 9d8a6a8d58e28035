package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/flatline-chaos/flatline"

// mayImport says which of our packages each of our packages may import. A package
// that is not listed may be imported by main and internal/cli only.
var mayImport = map[string][]string{
	"":                  {"internal/cli", "internal/compare", "internal/record"}, // and what its tests judge
	"experiments":       {},
	"internal/cli":      {"experiments", "internal/claims", "internal/compare", "internal/safely", "internal/record", "internal/report", "internal/sweep", "pkg/chaos", "pkg/cluster", "pkg/judge", "pkg/timeline"},
	"internal/claims":   {"pkg/judge"},
	"internal/compare":  {"pkg/judge"},
	"internal/golden":   {},
	"internal/kubefake": {"pkg/cluster"},
	"internal/safely":   {},
	"internal/record":   {"internal/safely", "pkg/judge", "pkg/timeline"},
	"internal/report":   {"internal/claims", "internal/compare", "internal/safely", "pkg/judge", "pkg/timeline"},
	"internal/sweep":    {"internal/record", "internal/report", "pkg/chaos", "pkg/cluster", "pkg/judge"},
	"pkg/chaos":         {"internal/kubefake", "internal/record", "internal/safely", "pkg/cluster", "pkg/judge", "pkg/observe", "pkg/timeline"},
	"pkg/cluster":       {},
	"pkg/judge":         {"pkg/timeline"},
	"pkg/observe":       {"pkg/timeline"},
	"pkg/timeline":      {},
	"suites":            {"experiments", "internal/report", "internal/sweep", "pkg/chaos", "pkg/cluster", "pkg/judge"},
}

// onlyIn says which packages alone may import a module's packages, test files
// included.
var onlyIn = map[string][]string{
	"sigs.k8s.io/kind":       {"pkg/cluster"},
	"github.com/onsi/":       {"suites"},
	"github.com/spf13/cobra": {"internal/cli"},
	"k8s.io/kubernetes":      {},
}

// What judges a record needs no cluster, and so nothing that talks to one.
func TestTheJudgeNeedsNoKubernetes(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./pkg/judge", "./internal/compare").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for imp := range strings.FieldsSeq(string(out)) {
		if strings.Contains(imp, "k8s.io/") {
			t.Errorf("package judge or compare depends on %s", imp)
		}
	}
	out, err = exec.Command("go", "list", "-deps", "./pkg/timeline").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for imp := range strings.FieldsSeq(string(out)) {
		if host, _, _ := strings.Cut(imp, "/"); strings.Contains(host, ".") && imp != module+"/pkg/timeline" {
			t.Errorf("package timeline depends on %s", imp)
		}
	}
}

func TestImportsFollowTheTable(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := 0
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; seen++ {
		var p struct {
			ImportPath                         string
			Imports, TestImports, XTestImports []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		allowed, listed := mayImport[name]
		if !listed {
			t.Errorf("package %q is not in the table", name)
		}
		ourImports := p.Imports
		if name == "suites" { // it has test files only
			ourImports = slices.Concat(p.TestImports, p.XTestImports)
		}
		for _, imp := range ourImports {
			if ours, ok := strings.CutPrefix(imp, module+"/"); ok && !slices.Contains(allowed, ours) {
				t.Errorf("%s imports %s, which the table does not allow", name, ours)
			}
		}
		for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			for prefix, where := range onlyIn {
				if strings.HasPrefix(imp, prefix) && !slices.Contains(where, name) {
					t.Errorf("%s imports %s, which is for %v alone", name, imp, where)
				}
			}
		}
	}
	if seen < len(mayImport) {
		t.Errorf("go list found %d packages, the table has %d", seen, len(mayImport))
	}
}

func TestNothingDependsOnKubernetesItself(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for dep := range strings.Lines(string(out)) {
		if strings.HasPrefix(dep, "k8s.io/kubernetes") {
			t.Errorf("the main module depends on %s", strings.TrimSpace(dep))
		}
	}
}
