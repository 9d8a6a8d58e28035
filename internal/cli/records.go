package cli

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/flatline-chaos/flatline/internal/record"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// someRuns wants the names of recorded runs.
func someRuns(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("say which run: its folder, such as _artifacts/csr-denied/latest, or a recorded timeline")
	}
	return nil
}

// readRecords reads the runs that names stand for.
func readRecords(names []string) ([]*record.Record, error) {
	recs, err := record.Read(names)
	if err != nil {
		return nil, &codeError{code: exitInvalid, err: err}
	}
	return recs, nil
}

// readFinished reads runs, without those whose runner was killed: they say nothing.
func readFinished(names []string) ([]*judge.Run, error) {
	recs, err := readRecords(names)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(runsOf(recs), func(r *judge.Run) bool { return !r.Finished() }), nil
}

// runsOf are the runs of records.
func runsOf(recs []*record.Record) []*judge.Run {
	var runs []*judge.Run
	for _, rec := range recs {
		runs = append(runs, rec.Run)
	}
	return runs
}
