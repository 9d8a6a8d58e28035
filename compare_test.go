package main

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/flatline-chaos/flatline/internal/compare"
	"github.com/flatline-chaos/flatline/internal/record"
	"github.com/flatline-chaos/flatline/internal/report"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

const grace = "kube-controller-manager.node-monitor-grace-period"

// tuned returns recorded runs by their grace period, with all other flags as they are in
// the profile.
func tuned(t testing.TB, folder string) map[string][]*judge.Run {
	t.Helper()
	recs, err := record.Read([]string{folder})
	if err != nil {
		t.Fatal(err)
	}
	arms := map[string][]*judge.Run{}
	for _, r := range recs {
		flags := r.Run.Flags
		if r.Run.Experiment == "kubelet-stopped" && r.Run.Profile == "fast" && flags["kubelet"]["nodeLeaseDurationSeconds"].Value == "8" &&
			flags["kubelet"]["nodeStatusUpdateFrequency"].Value == "10s" && flags["kube-controller-manager"]["node-monitor-period"].Value == "1s" {
			value := flags["kube-controller-manager"]["node-monitor-grace-period"].Value
			arms[value] = append(arms[value], r.Run)
		}
	}
	return arms
}

// Runs that are the same must not be told apart: of many splits of twenty recorded runs
// of one arm, at most one in twenty may show any significant difference, but for what chance
// does to that number. The rank test is exact, so that more means that it is used
// wrongly, say without the correction.
func TestFalsePositives(t *testing.T) {
	runs := tuned(t, "docs/evidence/tune")["12s"]
	if len(runs) < 20 {
		t.Fatalf("%d runs on record, want 20", len(runs))
	}
	runs = runs[:20]
	const splits = 1000
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{6, 10} {
		found := 0
		for range splits {
			random.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
			if compare.New("", compare.Arm{Name: "A", Runs: runs[:n]}, compare.Arm{Name: "B", Runs: runs[n : 2*n]}).Changed() {
				found++
			}
		}
		limit := splits * (compare.Alpha + 2*math.Sqrt(compare.Alpha*(1-compare.Alpha)/splits))
		t.Logf("%d against %d: a difference in %d of %d splits, at most %.0f are allowed", n, n, found, splits, limit)
		if float64(found) > limit {
			t.Errorf("%d against %d: %d of %d splits of the same runs differ, at most %.0f may", n, n, found, splits, limit)
		}
	}
}

// A grace that is longer by half is found with six runs each, where it belongs and nowhere
// before, and the shift is that of the model.
func TestLongerGraceIsFound(t *testing.T) {
	arms := tuned(t, "docs/evidence/sweep")
	if len(arms["8s"]) < 6 || len(arms["12s"]) < 6 {
		t.Fatalf("%d and %d runs on record, want 6 each", len(arms["8s"]), len(arms["12s"]))
	}
	table := compare.New(grace, compare.Arm{Name: "8s", Runs: arms["8s"][:6]}, compare.Arm{Name: "12s", Runs: arms["12s"][:6]})
	for _, r := range table.Rows {
		c := r.Cells[1]
		switch r.Milestone {
		case judge.ReadyUnknown:
			if !c.Significant || c.Delta == nil || c.ModelDelta == nil || math.Abs(*c.ModelDelta-4) > 0.001 || math.Abs(*c.Delta-*c.ModelDelta) > 1 {
				t.Errorf("ReadyUnknown: %+v", c)
			}
		default:
			if c.Significant {
				t.Errorf("%s differs too: %+v", r.Milestone, c)
			}
		}
	}
}

// The tables of the README are those of the runs on record.
func TestTablesOfTheREADME(t *testing.T) {
	below := func(folder string) []*judge.Run {
		recs, err := record.Read([]string{folder})
		if err != nil {
			t.Fatal(err)
		}
		var runs []*judge.Run
		for _, r := range recs {
			runs = append(runs, r.Run)
		}
		return runs
	}
	var want bytes.Buffer
	tables, err := compare.By(grace, below("docs/evidence/sweep"))
	if err == nil {
		err = report.Comparison(&want, "text", tables)
	}
	if err != nil {
		t.Fatal(err)
	}
	knobs, err := compare.Attribute(below("docs/evidence/tune"))
	if err != nil {
		t.Fatal(err)
	}
	var more bytes.Buffer
	if err := report.Knobs(&more, "text", knobs); err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{want.String(), more.String()} {
		var block strings.Builder
		for line := range strings.Lines(table) {
			if line = strings.TrimRight(line, " \n"); line != "" {
				line = "    " + line
			}
			block.WriteString(line + "\n")
		}
		if !bytes.Contains(readme, []byte(block.String())) {
			t.Errorf("the README does not have\n%s", block.String())
		}
	}
}

// Stock benchstat says the same medians of the runs' bench.txt.
func TestBenchstatAgrees(t *testing.T) {
	arms := tuned(t, "docs/evidence/sweep")
	var bench bytes.Buffer
	for _, value := range []string{"8s", "12s", "16s"} {
		for _, r := range arms[value] {
			if err := report.Bench(&bench, r); err != nil {
				t.Fatal(err)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "bench.txt")
	if err := os.WriteFile(file, bench.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "tool", "-modfile=hack/tools/go.mod", "benchstat", "-format", "csv", "-filter", ".unit:sec-window/op", "-table", ".config", "-ignore", "outcome", "-col", "node-monitor-grace-period@(8s 12s 16s)", file).Output()
	if err != nil {
		t.Fatalf("benchstat: %v", err)
	}
	// One line a benchmark: its name, then median and interval (and delta and p) of each arm.
	medians := map[string][]string{}
	lines := csv.NewReader(bytes.NewReader(out))
	lines.FieldsPerRecord = -1
	all, err := lines.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		if len(l) > 7 && strings.HasPrefix(l[0], "KubeletStopped/phase=") {
			medians[strings.TrimSuffix(l[0], "-1")] = []string{l[1], l[3], l[7]}
		}
	}
	tables, err := compare.By(grace, append(append(arms["8s"], arms["12s"]...), arms["16s"]...))
	if err != nil || len(tables) != 1 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	compared := 0
	for _, r := range tables[0].Rows {
		name, subject, _ := strings.Cut(r.Milestone, " ")
		name = "KubeletStopped/phase=" + name
		if subject != "" {
			name += "/toleration=" + subject
		}
		for i, text := range medians[name] {
			want, err := strconv.ParseFloat(text, 64)
			if err != nil || math.Abs(*r.Cells[i].Median-want) > 1e-9 {
				t.Errorf("%s of arm %d: %v, benchstat says %s (%v)", r.Milestone, i, *r.Cells[i].Median, text, err)
			}
			compared++
		}
	}
	if compared != 3*len(tables[0].Rows) {
		t.Errorf("%d medians were compared, of %d rows and 3 arms; benchstat:\n%s", compared, len(tables[0].Rows), out)
	}
}

// BenchmarkCompare1000 compares a thousand recorded runs: found, read, judged and compared.
func BenchmarkCompare1000(b *testing.B) {
	files, err := filepath.Glob("docs/evidence/tune/kubelet-stopped/*.jsonl.gz")
	if err != nil || len(files) == 0 {
		b.Fatalf("no records: %v", err)
	}
	dir := b.TempDir()
	for i := range 1000 {
		if err := copyAs(files[i%len(files)], filepath.Join(dir, fmt.Sprintf("%04d.jsonl.gz", i)), fmt.Sprintf("run-%04d", i)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		recs, err := record.Read([]string{dir})
		if err != nil {
			b.Fatal(err)
		}
		var runs []*judge.Run
		for _, r := range recs {
			runs = append(runs, r.Run)
		}
		if len(runs) != 1000 {
			b.Fatalf("%d runs", len(runs))
		}
		tables, err := compare.By(grace, runs)
		if err != nil {
			b.Fatal(err)
		}
		if err := report.Comparison(io.Discard, "text", tables); err != nil {
			b.Fatal(err)
		}
	}
}

// copyAs copies a recorded timeline and gives the run another name.
func copyAs(from, to, id string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	own := strings.TrimSuffix(filepath.Base(from), ".jsonl.gz")
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(bytes.Replace(data, []byte(`"runID":"`+own+`"`), []byte(`"runID":"`+id+`"`), 1)); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, b.Bytes(), 0o644)
}
