package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flatline-chaos/flatline/pkg/cluster"
)

func step(name string) Step { return Step{Desc: name, On: "worker", Script: "echo " + name} }

func TestJournal(t *testing.T) {
	name := filepath.Join(t.TempDir(), "journal.jsonl")
	j, err := CreateJournal(name, "c1", "r1", map[string]string{"worker": "id"})
	if err != nil {
		t.Fatal(err)
	}
	awkward := Step{Desc: "a \"b\"", On: "worker", Script: "line 1\nline 2 'x' $y <>&\u2028 \\ é\n"}
	var want []string
	onDisk := func(kind, desc string) {
		t.Helper()
		want = append(want, kind+" "+desc)
		// Read from the file as another process would after this one was killed.
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		records, err := ReadJournal(f)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range records {
			s := Step{}
			if r.Step != nil {
				s = *r.Step
			}
			if r.At.IsZero() {
				t.Errorf("record %+v has no time", r)
			}
			got = append(got, r.Kind+" "+s.Desc)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("on disk %q, want %q", got, want)
		}
	}
	onDisk("cluster", "")
	for _, r := range []struct {
		kind string
		add  func(Step) error
		step Step
	}{
		{"clean", j.Clean, step("c1")}, {"undo", j.Undo, step("u1")}, {"repair", j.Repair, step("r1")},
		{"undo", j.Undo, awkward}, {"repair", j.Repair, step("r2")}, {"clean", j.Clean, step("c2")},
	} {
		if err := r.add(r.step); err != nil {
			t.Fatal(err)
		}
		onDisk(r.kind, r.step.Desc)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	onDisk("closed", "")

	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	records, err := ReadJournal(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if records[0].Cluster != "c1" || records[0].RunID != "r1" {
		t.Errorf("cluster record %+v", records[0])
	}
	for kind, want := range map[string][]Step{
		"undo": {step("u1"), awkward}, "repair": {step("r1"), step("r2")}, "clean": {step("c1"), step("c2")}, "closed": nil,
	} {
		if got := stepsOf(records, kind); !slices.Equal(got, want) {
			t.Errorf("%s read %+v, want %+v", kind, got, want)
		}
		if got := j.Steps(kind); !slices.Equal(got, want) {
			t.Errorf("%s kept %+v, want %+v", kind, got, want)
		}
	}

	// Another run must not write into this one's journal, and a record that could
	// not be written must stop the change that it would undo.
	if _, err := CreateJournal(name, "c2", "r2", nil); !errors.Is(err, os.ErrExist) {
		t.Errorf("creating it again: %v", err)
	}
	if err := j.Undo(step("late")); err == nil || len(j.Steps("undo")) != 2 {
		t.Errorf("writing to a closed journal: %v, steps %v", err, j.Steps("undo"))
	}
}

const (
	clusterLine = `{"kind":"cluster","at":"2026-01-02T03:04:05Z","cluster":"c1","runID":"r1"}` + "\n"
	undoLine    = `{"kind":"undo","at":"2026-01-02T03:04:05Z","step":{"desc":"d","on":"n","script":"s"}}` + "\n"
	closedLine  = `{"kind":"closed","at":"2026-01-02T03:04:05Z"}` + "\n"
)

func TestReadJournal(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		records    int
		err        string
	}{
		{"whole", clusterLine + undoLine + closedLine, 3, ""},
		{"torn", clusterLine + undoLine + undoLine[:30], 2, ""},
		{"torn before its line break", clusterLine + strings.TrimSuffix(undoLine, "\n"), 1, ""},
		{"torn first", clusterLine[:30], 0, "line 1: no cluster record"},
		{"empty", "", 0, "line 1: no cluster record"},
		{"no cluster record", undoLine, 0, "line 1: no cluster record"},
		{"cluster without name", strings.Replace(clusterLine, "c1", "", 1), 0, "line 1: no cluster record"},
		{"cluster without run", strings.Replace(clusterLine, "r1", "", 1), 0, "line 1: no cluster record"},
		{"two clusters", clusterLine + clusterLine, 0, `line 2: kind "cluster"`},
		{"no JSON", clusterLine + undoLine + "undo\n" + undoLine, 0, "line 3: "},
		{"blank line", clusterLine + "\n" + undoLine, 0, "line 2: "},
		{"torn in the middle", clusterLine + undoLine[:30] + "\n" + undoLine, 0, "line 2: "},
		{"two records in a line", clusterLine + strings.TrimSuffix(undoLine, "\n") + undoLine, 0, "line 2: more than one record"},
		{"unknown kind", clusterLine + strings.Replace(undoLine, "undo", "redo", 1), 0, `line 2: kind "redo"`},
		{"unknown field", clusterLine + strings.Replace(undoLine, "desc", "dsc", 1), 0, `line 2: json: unknown field "dsc"`},
		{"no step", clusterLine + strings.Replace(closedLine, "closed", "undo", 1), 0, `line 2: kind "undo" without a step`},
		{"no node", clusterLine + strings.Replace(undoLine, `"on":"n"`, `"on":""`, 1), 0, "line 2: "},
		{"an awkward cluster", strings.Replace(clusterLine, "c1", "c1; id", 1), 0, "line 1: no cluster record"},
		{"an awkward run", strings.Replace(clusterLine, "r1", "../r1", 1), 0, "line 1: no cluster record"},
		{"a node with a path", clusterLine + strings.Replace(undoLine, `"on":"n"`, `"on":"../n"`, 1), 0, `line 2: field on: "../n" is not the name of a node`},
		{"the host", clusterLine + strings.Replace(undoLine, `"on":"n"`, `"host":"n"`, 1), 0, `line 2: json: unknown field "host"`},
		{"a verb", clusterLine + strings.Replace(undoLine, `"script":"s"`, `"do":"unpause"`, 1), 2, ""},
		{"an unknown verb", clusterLine + strings.Replace(undoLine, `"script":"s"`, `"do":"rm"`, 1), 0, `line 2: field do: "rm" is not one of unguard, unpause`},
		{"a verb and a script", clusterLine + strings.Replace(undoLine, `"script":"s"`, `"script":"s","do":"unpause"`, 1), 0, "line 2: "},
		{"no state", clusterLine + strings.Replace(closedLine, "closed", "before", 1), 0, "line 2: kind before without a state"},
		{"no script", clusterLine + strings.Replace(undoLine, `"script":"s"`, `"script":""`, 1), 0, "line 2: "},
	} {
		records, err := ReadJournal(strings.NewReader(tc.text))
		switch {
		case tc.err == "" && (err != nil || len(records) != tc.records):
			t.Errorf("%s: %d records, error %v; want %d", tc.name, len(records), err, tc.records)
		case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err) || records != nil):
			t.Errorf("%s: %d records, error %v; want %q", tc.name, len(records), err, tc.err)
		}
	}
	_, err := ReadJournal(&brokenReader{strings.NewReader(clusterLine)})
	if err == nil || !strings.Contains(err.Error(), "line 2: the disk is gone") {
		t.Errorf("a reader that fails: %v", err)
	}
}

type brokenReader struct{ *strings.Reader }

func (r *brokenReader) Read(p []byte) (int, error) {
	if r.Len() == 0 {
		return 0, errors.New("the disk is gone")
	}
	return r.Reader.Read(p)
}

func FuzzReadJournal(f *testing.F) {
	f.Add([]byte(clusterLine + undoLine + closedLine))
	f.Add([]byte(clusterLine + undoLine[:40]))
	f.Add([]byte(clusterLine + clusterLine))
	f.Fuzz(func(t *testing.T, data []byte) {
		records, err := ReadJournal(bytes.NewReader(data))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "reading journal: line ") {
				t.Errorf("no line is named: %v", err)
			}
			return
		}
		if want := bytes.Count(data, []byte("\n")); len(records) != want {
			t.Fatalf("%d records of %d whole lines", len(records), want)
		}
		if records[0].Kind != "cluster" || records[0].Cluster == "" || records[0].RunID == "" {
			t.Errorf("first record %+v", records[0])
		}
		// What can be healed from must say where and what.
		for _, kind := range []string{"undo", "repair", "clean"} {
			for _, s := range stepsOf(records, kind) {
				if s.On == "" || (s.Script == "") == (s.Do == "") {
					t.Errorf("%s step %+v", kind, s)
				}
			}
		}
		var again bytes.Buffer
		for _, r := range records {
			line, err := json.Marshal(r)
			if err != nil {
				return // a year that JSON cannot say
			}
			again.Write(append(line, '\n'))
		}
		if _, err := ReadJournal(&again); err != nil {
			t.Errorf("its own records: %v", err)
		}
	})
}

func TestRunSteps(t *testing.T) {
	errBad := errors.New("exit status 3")
	errWorse := errors.New("exit status 4")
	worker := &fakeNode{answer: func(_ context.Context, script string) (string, error) {
		switch script {
		case "bad":
			return "one\nhalf a line", errBad
		case "worse":
			return "", errWorse
		}
		return "first\n" + script + "\n\n", nil
	}}
	other := &fakeNode{}
	nodes := map[string]Node{"worker": {"worker", worker}, "other": {"other", other}}
	out, err := runSteps(t.Context(), nodes, []Step{
		{Desc: "A", On: "worker", Script: "a"}, {Desc: "B", On: "worker", Script: "bad"}, {Desc: "C", On: "other", Script: "c"},
		{Desc: "gone", On: "deleted", Script: "x"}, {Desc: "W", On: "worker", Script: "worse"}, {Desc: "Z", On: "worker", Script: "z"},
	})
	if want := []string{"a", "bad", "worse", "z"}; !slices.Equal(worker.scripts, want) {
		t.Errorf("ran %q, want %q", worker.scripts, want)
	}
	if want := []string{"c"}; !slices.Equal(other.scripts, want) {
		t.Errorf("ran %q, want %q", other.scripts, want)
	}
	if want := []string{"a", "half a line", "", "", "", "z"}; !slices.Equal(out, want) {
		t.Errorf("output %q, want %q", out, want)
	}
	if !errors.Is(err, errBad) || !errors.Is(err, errWorse) || err.Error() != "B on worker: exit status 3\nW on worker: exit status 4" {
		t.Errorf("error %v", err)
	}
	if _, err := runSteps(t.Context(), nil, []Step{step("x")}); err != nil {
		t.Errorf("all nodes gone: %v", err)
	}
}

// A step that hangs takes its own minute and none of the others'.
func TestRunStepsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left []time.Duration
		n := &fakeNode{answer: func(ctx context.Context, script string) (string, error) {
			deadline, ok := ctx.Deadline()
			if !ok {
				t.Error("no deadline")
			}
			left = append(left, time.Until(deadline))
			if script == "hang" {
				<-ctx.Done()
				return "", context.Cause(ctx)
			}
			return "", nil
		}}
		_, err := runSteps(t.Context(), map[string]Node{"n": {"n", n}}, []Step{{Desc: "1", On: "n", Script: "hang"}, {Desc: "2", On: "n", Script: "hang"}, {Desc: "3", On: "n", Script: "ok"}})
		if want := []time.Duration{stepDeadline, stepDeadline, stepDeadline}; !slices.Equal(left, want) {
			t.Errorf("deadlines %v, want %v", left, want)
		}
		if want := fmt.Sprintf("1 on n: %v\n2 on n: %[1]v", context.DeadlineExceeded); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	})
}

// A journal is about containers: a cluster that was made anew under the same name, or a step
// that is about something else, is refused before anything is done.
func TestPatientOfAnotherCluster(t *testing.T) {
	nodes := []*cluster.Node{{Name: "c1-control-plane", Role: "control-plane", ID: "aa"}, {Name: "c1-worker", Role: "worker", ID: "bb"}}
	ids := map[string]string{"c1-control-plane": "aa", "c1-worker": "bb"}
	first := Record{Kind: "cluster", Cluster: "c1", RunID: "r1", Containers: ids}
	undo := func(on string) Record { return Record{Kind: "undo", Step: &Step{Desc: "d", On: on, Script: "s"}} }
	before := Record{Kind: "before", Before: map[string]map[string]string{"node c1-worker": {"a": "b"}}}
	if p, err := newPatient(nodes, []Record{first, before, undo("c1-worker")}); err != nil || p.controlPlane != "c1-control-plane" || p.before["node c1-worker"]["a"] != "b" || len(p.Steps()) != 1 {
		t.Errorf("%+v, error %v", p, err)
	}
	for name, tc := range map[string]struct {
		nodes   []*cluster.Node
		records []Record
		err     string
	}{
		"made anew":           {[]*cluster.Node{nodes[0], {Name: "c1-worker", ID: "cc"}}, []Record{first}, "node c1-worker is another container than the one that the journal is about: cluster c1 was made anew"},
		"one more":            {append(slices.Clone(nodes), &cluster.Node{Name: "c1-worker2", ID: "cc"}), []Record{first}, "the journal does not know node c1-worker2 of cluster c1"},
		"no control plane":    {nodes[1:], []Record{first}, "cluster c1 has no control-plane node any more"},
		"an older version":    {nodes, []Record{{Kind: "cluster", Cluster: "c1", RunID: "r1"}}, "its journal does not say which containers it is about"},
		"somebody else's":     {nodes, []Record{first, undo("c2-worker")}, `a step of the journal is about "c2-worker", which is no node of its cluster`},
		"a node that is gone": {nodes[:1], []Record{first, undo("c1-worker")}, ""},
	} {
		_, err := newPatient(tc.nodes, tc.records)
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: error %v, want %q", name, err, tc.err)
		}
	}
}

// What a cluster holds are whole journals, one behind another.
func TestSplitJournals(t *testing.T) {
	for text, want := range map[string]int{"": 0, clusterLine: 1, clusterLine + undoLine + clusterLine + closedLine: 2, undoLine: -1, clusterLine + "x\n": -1, "x" + clusterLine: -1} {
		if all, err := splitJournals(text); (err != nil) != (want < 0) || err == nil && len(all) != want {
			t.Errorf("%q: %d journals, error %v", text, len(all), err)
		}
	}
}

// A command line can be pasted, whatever the folder is called.
func TestCommand(t *testing.T) {
	const odd = `a b'"$(x)`
	line := Command("heal", odd)
	out, err := exec.Command("bash", "-c", "flatline() { printf '%s|' \"$@\"; }\n"+line).CombinedOutput()
	if err != nil || string(out) != "heal|"+odd+"|" {
		t.Errorf("%s: %q, error %v", line, out, err)
	}
}
