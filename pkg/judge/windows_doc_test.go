package judge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/flatline-chaos/flatline/internal/golden"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

const windowsHead = `# Windows

The judge derives the window of each milestone from the flags that were in force, from the
Kubernetes version that ran, and from what the machine took in that very run. This page is
printed from the code that does it (` + "`go test ./pkg/judge -run TestWindowsPage -update`" + `).

## Symbols

| symbol | what it is |
|---|---|
| D | nodeLeaseDurationSeconds of the kubelet; it renews after D/4, up to 4 % later |
| I | the longest gap between two renewals of a healthy Lease: 0.26 D + 0.5 s |
| F | nodeStatusUpdateFrequency of the kubelet, 1.04 F with its jitter |
| R | nodeStatusReportFrequency of the kubelet |
| G | node-monitor-grace-period of kube-controller-manager |
| P, P' | node-monitor-period of kube-controller-manager, and with the time that a pass takes: 1.01 P |
| q | node-eviction-rate of kube-controller-manager, in nodes a second |

Seconds without a symbol are what a step takes besides its flags. The machine's part of them is
measured in each run, printed beside the window, and added to it where it was slower.

## Milestones, in the order of the chain

`

const windowsTail = `## Milestones without a bound

Their order is judged and their time is not, unless the experiment sets a limit.

| milestone | after | part | seen by |
|---|---|---|---|
`

// The page says of each milestone what its row and its window's function say.
func TestWindowsPage(t *testing.T) {
	comments := windowComments(t)
	examples := forecastsOnRecord(t)
	var b strings.Builder
	var unbounded []string
	b.WriteString(windowsHead)
	for _, r := range Chain() {
		name := runtime.FuncForPC(reflect.ValueOf(r.window).Pointer()).Name()
		name = name[strings.LastIndex(name, ".")+1:]
		comment := comments[name]
		about, equations, source := parts(comment)
		if about == "" || len(equations) == 0 {
			t.Errorf("%s: the comment of %s lacks its sentence or its equation", r.Name, name)
		}
		if source == "" && strings.Contains(strings.Join(equations, ""), "[") {
			t.Errorf("%s: the comment of %s names no source in Kubernetes", r.Name, name)
		}
		if !strings.Contains(strings.Join(equations, ""), "[") {
			unbounded = append(unbounded, fmt.Sprintf("| %s | %s | %s | %s |", r.Name, strings.TrimPrefix(equations[0], "after "), r.Part, shown(r)))
			continue
		}
		fmt.Fprintf(&b, "### %s\n\n%s\n\n```\n%s\n```\n\n", r.Name, about, strings.Join(equations, "\n"))
		fmt.Fprintf(&b, "Part: %s. Seen by: %s.", r.Part, shown(r))
		if r.Subject != NoSubject {
			fmt.Fprintf(&b, " Subject: %s.", r.Subject)
		}
		if source != "" {
			fmt.Fprintf(&b, " Source: %s.", source)
		}
		b.WriteString("\n\n")
		for _, e := range examples[r.Name] {
			fmt.Fprintf(&b, "- %s\n", e)
		}
		if len(examples[r.Name]) > 0 {
			b.WriteString("\n")
		}
	}
	b.WriteString(windowsTail + strings.Join(unbounded, "\n") + "\n")
	golden.Lines(t, "../../docs/windows.md", b.String())
}

// shown says who sees a milestone.
func shown(r Row) string {
	if len(r.Sources) == 0 {
		return "the run itself"
	}
	return strings.Join(r.Sources, ", ")
}

// windowComments are the comments of the methods of Fold.
func windowComments(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("window_*.go")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				all[fn.Name.Name] = fn.Doc.Text()
			}
		}
	}
	return all
}

// parts takes a window's comment apart: its sentences, its equations, its source.
func parts(comment string) (about string, equations []string, source string) {
	_, comment, _ = strings.Cut(comment, " ") // the name of the function
	var words, of []string
	for line := range strings.Lines(comment) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "\t"):
			equations = append(equations, strings.TrimPrefix(line, "\t"))
		case len(of) > 0 || strings.HasPrefix(line, "Source: "):
			of = append(of, strings.TrimPrefix(line, "Source: "))
		case line != "":
			words = append(words, line)
		}
	}
	about = strings.Join(words, " ")
	about = strings.TrimPrefix(about, "is ")
	if about != "" {
		about = strings.ToUpper(about[:1]) + about[1:]
	}
	return about, equations, strings.TrimRight(strings.Join(of, " "), ". ")
}

// forecastsOnRecord are windows as they were foretold for recorded runs, by milestone: of each
// experiment's rule one, with the default flags and with those of fast.
func forecastsOnRecord(t *testing.T) map[string][]string {
	t.Helper()
	folders, err := filepath.Glob("../../docs/evidence/*/*.jsonl.gz")
	if err != nil || len(folders) == 0 {
		t.Fatalf("no records: %v", err)
	}
	type rule struct{ milestone, after, why string }
	told := map[rule]map[string]string{}
	var order []rule
	for _, file := range folders {
		tl, err := timeline.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var cfg Config
		var plan Plan
		if err := cmp.Or(json.Unmarshal(tl.Header.Config, &cfg), json.Unmarshal(tl.Header.Experiment, &plan)); err != nil {
			t.Fatal(err)
		}
		forecasts, err := Foretell(&cfg, &plan)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range forecasts {
			if len(f.Window.Intervals) == 0 || plan.Spec.Fault.Type == "" {
				continue
			}
			k := rule{f.Name, f.After, shape(f.Window.Why)}
			if told[k] == nil {
				told[k] = map[string]string{}
				order = append(order, k)
			}
			if told[k][plan.Profile] == "" {
				told[k][plan.Profile] = fmt.Sprintf("%s s (%s: %s)", f.Window, plan.Profile, plan.Metadata.Name)
			}
		}
	}
	all := map[string][]string{}
	slices.SortStableFunc(order, func(a, b rule) int { return cmp.Compare(a.after, b.after) })
	for _, k := range order {
		var both []string
		for _, profile := range []string{"default", "fast"} {
			if s := told[k][profile]; s != "" {
				both = append(both, s)
			}
		}
		all[k.milestone] = append(all[k.milestone], k.after+" + "+strings.Join(both, "; "))
	}
	return all
}

// shape is a rule in words, without its numbers.
func shape(why string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r == '.' {
			return -1
		}
		return r
	}, why)
}
