package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/flatline-chaos/flatline/internal/golden"
	"github.com/flatline-chaos/flatline/internal/record"
	"github.com/flatline-chaos/flatline/internal/report"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// knownFailures lists recorded runs that did not pass, with their outcome.
var knownFailures = map[string]judge.Outcome{
	// A certificate of 60 s: the kubelet rotated 6.7 s before its end, and the open
	// connection went on with the old one until the ten-second tick, 0.3 s after it.
	"20261129t181143z-93c5": judge.OutcomeFail,
	// kube-controller-manager was stopped by hand for two seconds right after it had written
	// Unknown, on a quiet machine: what it did then is late, and no slow machine's.
	"20261203t000705z-0fd0": judge.OutcomeFail,
	// The observer looked between the names of two files and took the new certificate
	// for the spare one: the node was well, and the run waited for a rotation in vain.
	"20261129t205728z-d130": judge.OutcomeDirty,
	// The kubelets had just been restarted with other flags: one said for a moment that it
	// was not ready, and the canaries went elsewhere. Both are waited for now.
	"20261129t232704z-f400": judge.OutcomeSetupFailed,
}

// recorded reads all runs on record, once.
var recorded = sync.OnceValues(func() ([]*record.Record, error) { return record.Read([]string{"docs/evidence"}) })

// Rules that change are tried on every run on record: a verdict that changes with
// them is seen before it lands.
func TestRecordedRunsAreJudgedAsBefore(t *testing.T) {
	recs, err := recorded()
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range recs {
		run := rec.Run
		want, listed := knownFailures[run.RunID]
		if !listed {
			want = judge.OutcomePass
		}
		if !listed && run.Wanted != "" {
			want = run.Wanted
		}
		if run.Outcome != want {
			t.Errorf("%s: %s %v, want %s", rec.File, run.Outcome, run.Reasons, want)
		}
	}
}

// What today's rules say of every run on record is a file, so that a rule that changes
// shows what it changes: one line for each verdict, with its value and window.
func TestVerdictsOfRecordedRuns(t *testing.T) {
	recs, err := recorded()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	b.WriteString("run\tnode\tmilestone\tcounted from\tseconds\twindow\tverdict\n")
	for _, rec := range recs {
		run := rec.Run
		fmt.Fprintf(&b, "%s\t\t%s %s\t\t\t\t%s\n", run.RunID, run.Experiment, run.Profile, run.Outcome)
		for _, r := range run.Milestones {
			if r.Verdict == "" {
				continue
			}
			var from, seconds, window string
			if r.After != nil {
				from, seconds = r.After.Title(), fmt.Sprintf("%.3f", r.After.Seconds)
			}
			if r.Window != nil {
				window = r.Window.String()
			}
			fmt.Fprintf(&b, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", run.RunID, strings.TrimPrefix(r.Node, run.Cluster+"-"), r.Title(), from, seconds, window, r.Verdict)
		}
	}
	golden.Lines(t, "docs/evidence/verdicts.tsv", b.String())
}

// What is judged of every run on record is the same to the byte, so that a change of shape
// that means to change nothing is known to change nothing.
func TestRecordedRunsAreJudgedTheSameToTheByte(t *testing.T) {
	recs, err := recorded()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, rec := range recs {
		run, err := json.Marshal(rec.Run)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(run), filepath.ToSlash(rec.File))
	}
	golden.Lines(t, "testdata/judged.sha256", b.String())
}

// The picture and the table of the README are of one run on record.
func TestRunOfTheREADME(t *testing.T) {
	files, err := filepath.Glob("docs/evidence/csr-denied-fast/*-7542.jsonl.gz")
	if err != nil || len(files) != 1 {
		t.Fatalf("its record is gone: %v %v", files, err)
	}
	recs, err := record.Read(files)
	if err != nil {
		t.Fatal(err)
	}
	var picture, table bytes.Buffer
	if err := errors.Join(report.SVG(&picture, recs[0].Trace, recs[0].Run), report.Text(&table, recs[0].Run)); err != nil {
		t.Fatal(err)
	}
	const file = "docs/csr-denied.svg"
	if have, err := os.ReadFile(file); err != nil || !bytes.Equal(have, picture.Bytes()) {
		t.Errorf("%s is not what is drawn today: bin/flatline report -o svg -f %s %s (%v)", file, file, files[0], err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(table.String()) {
		if line = strings.TrimRight(line, " \n"); line != "" && !bytes.Contains(readme, []byte("\n    "+line+"\n")) {
			t.Errorf("README.md does not have this line of bin/flatline judge %s: %s", files[0], line)
		}
	}
}
