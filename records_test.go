package main

import (
	"path/filepath"
	"testing"

	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
)

// otherwise lists recorded runs that did not pass, with their outcome.
var otherwise = map[string]judge.Outcome{}

// Rules that change are tried on every run on record: a verdict that changes with
// them is seen before it lands.
func TestRecordedRunsAreJudgedAsBefore(t *testing.T) {
	files, err := filepath.Glob("docs/evidence/*/*.jsonl.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("no records: %v", err)
	}
	for _, name := range files {
		timeline, err := observe.ReadTimelineFile(name)
		if err != nil {
			t.Error(err)
			continue
		}
		run, err := judge.Judge(timeline)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want, listed := otherwise[run.RunID]
		if !listed {
			want = judge.OutcomePass
		}
		if run.Outcome != want {
			t.Errorf("%s: %s %v, want %s", name, run.Outcome, run.Reasons, want)
		}
	}
}
