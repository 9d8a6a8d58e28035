package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Step undoes or repairs one change. It is data, so that another process, or a
// timer inside the node, can run it after the runner was killed, any number of
// times: it exits 0 when there is nothing left to do.
//
// A Step never carries key material; keys are staged inside the node.
type Step struct {
	Desc   string `json:"desc"`
	On     string `json:"on"` // a node, or "host"
	Script string `json:"script"`
}

// A Record is one line of a journal.
type Record struct {
	Kind string    `json:"kind"` // "cluster", "undo", "repair", "clean" or "closed"
	At   time.Time `json:"at"`
	Step *Step     `json:"step,omitempty"`
	// Of the cluster record only.
	Cluster string `json:"cluster,omitempty"`
	RunID   string `json:"runID,omitempty"`
}

// A Journal holds what must be done to put a cluster right again. Each record is
// on disk before the change that it undoes.
type Journal struct {
	mu      sync.Mutex
	f       *os.File
	records []Record
}

// CreateJournal begins a journal for one run on one cluster.
func CreateJournal(name, cluster, runID string) (*Journal, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("creating journal: %w", err)
	}
	j := &Journal{f: f}
	if err := j.append(Record{Kind: "cluster", Cluster: cluster, RunID: runID}); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return j, nil
}

// Undo records a step that takes back a change to be made, Repair one that brings
// the target back after the undo; each kind runs in the order of its records.
func (j *Journal) Undo(s Step) error { return j.append(Record{Kind: "undo", Step: &s}) }

// Repair: see Undo.
func (j *Journal) Repair(s Step) error { return j.append(Record{Kind: "repair", Step: &s}) }

// Clean records a step that removes what the run itself put into a node. It runs
// when all else was done.
func (j *Journal) Clean(s Step) error { return j.append(Record{Kind: "clean", Step: &s}) }

// Close records that everything was put right.
func (j *Journal) Close() error { return errors.Join(j.append(Record{Kind: "closed"}), j.f.Close()) }

// closeJournal records in a journal on disk that everything was put right, unless
// that is there already.
func closeJournal(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("closing journal: %w", err)
	}
	records, err := ReadJournal(bytes.NewReader(data))
	if err != nil || records[len(records)-1].Kind == "closed" {
		return err
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("closing journal: %w", err)
	}
	if len(data) > 0 && data[len(data)-1] != '\n' { // a torn line must not swallow ours
		err = f.Truncate(int64(bytes.LastIndexByte(data, '\n') + 1))
	}
	j := &Journal{f: f}
	return errors.Join(err, j.Close())
}

func (j *Journal) append(r Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	r.At = time.Now().UTC()
	line, err := json.Marshal(r)
	if err == nil {
		_, err = j.f.Write(append(line, '\n'))
	}
	if err == nil {
		err = j.f.Sync()
	}
	if err != nil {
		return fmt.Errorf("writing journal: %w", err)
	}
	j.records = append(j.records, r)
	return nil
}

// Steps returns the recorded steps of a kind in the order in which they run.
func (j *Journal) Steps(kind string) []Step {
	j.mu.Lock()
	defer j.mu.Unlock()
	return stepsOf(j.records, kind)
}

func stepsOf(records []Record, kind string) []Step {
	var steps []Step
	for _, r := range records {
		if r.Kind == kind && r.Step != nil {
			steps = append(steps, *r.Step)
		}
	}
	return steps
}

// ReadJournal reads a journal. A last line that was cut short is ignored: its
// change was never made, since records are synced first.
func ReadJournal(r io.Reader) ([]Record, error) {
	br := bufio.NewReader(r)
	var records []Record
	for n := 1; ; n++ {
		line, err := br.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if len(records) == 0 {
				return nil, errors.New("reading journal: line 1: no cluster record")
			}
			return records, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading journal: line %d: %w", n, err)
		}
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		var rec Record
		err = dec.Decode(&rec)
		if err == nil && dec.More() {
			err = errors.New("more than one record")
		}
		if err != nil {
			return nil, fmt.Errorf("reading journal: line %d: %w", n, err)
		}
		switch {
		case n == 1 && (rec.Kind != "cluster" || rec.Cluster == "" || rec.RunID == ""):
			return nil, errors.New("reading journal: line 1: no cluster record with cluster and runID")
		case n > 1 && rec.Kind != "closed" && (!slices.Contains([]string{"undo", "repair", "clean"}, rec.Kind) || rec.Step == nil || rec.Step.On == "" || rec.Step.Script == ""):
			return nil, fmt.Errorf("reading journal: line %d: kind %q without a step that says where and what", n, rec.Kind)
		}
		records = append(records, rec)
	}
}

// stepDeadline is how long one step may take: it ends what hangs, and no step on a slow
// machine.
const stepDeadline = 5 * time.Minute

// runSteps runs all steps, whether or not one fails, and returns the last line of
// output of each. A node that is gone needs no undo.
func runSteps(ctx context.Context, nodes map[string]Node, steps []Step) ([]string, error) {
	var errs []error
	out := make([]string, len(steps))
	for i, s := range steps {
		n, ok := at(nodes, s.On)
		if !ok {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, stepDeadline)
		text, err := n.script(ctx, nil, s.Script)
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s on %s: %w", s.Desc, s.On, err))
		}
		lines := strings.Split(strings.TrimSpace(text), "\n")
		out[i] = lines[len(lines)-1]
	}
	return out, errors.Join(errs...)
}
