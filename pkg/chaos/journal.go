package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Step undoes or repairs one change. It is data, so that another process, or a
// timer inside the node, can run it after the runner was killed, any number of
// times: it exits 0 when there is nothing left to do.
//
// A Step never carries key material; keys are staged inside the node. Nothing of a step
// runs on the host: the node runs its script, or the engine does one of verbs with it.
type Step struct {
	Desc   string `json:"desc"`
	On     string `json:"on"` // the node that it is about
	Script string `json:"script,omitempty"`
	Do     string `json:"do,omitempty"`
}

// A Record is one line of a journal.
type Record struct {
	Kind string    `json:"kind"` // "cluster", "before", "undo", "repair", "clean" or "closed"
	At   time.Time `json:"at"`
	Step *Step     `json:"step,omitempty"`
	// Of the cluster record only. Containers are the engine's ids by node: a cluster of
	// the same name is another one.
	Cluster    string            `json:"cluster,omitempty"`
	RunID      string            `json:"runID,omitempty"`
	Containers map[string]string `json:"containers,omitempty"`
	// Before is the state that the run found, by object.
	Before map[string]map[string]string `json:"before,omitempty"`
}

// A Journal holds what must be done to put a cluster right again. Each record is
// on disk before the change that it undoes.
type Journal struct {
	mu      sync.Mutex
	f       *os.File
	records []Record
}

// CreateJournal begins a journal for one run on one cluster, whose nodes are these
// containers.
func CreateJournal(name, cluster, runID string, containers map[string]string) (*Journal, error) {
	first := Record{Kind: "cluster", Cluster: cluster, RunID: runID, Containers: containers}
	if err := first.check(1); err != nil {
		return nil, fmt.Errorf("creating journal: %w", err)
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("creating journal: %w", err)
	}
	j := &Journal{f: f}
	err = j.append(first)
	if err == nil {
		err = syncFolder(filepath.Dir(name)) // or a power cut may take the name
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return j, nil
}

func syncFolder(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("creating journal: %w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("creating journal: %w", err)
	}
	return nil
}

// Before records the state that the run found.
func (j *Journal) Before(state map[string]map[string]string) error {
	return j.append(Record{Kind: "before", Before: state})
}

// text is the journal as it is on disk.
func (j *Journal) text() ([]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	for _, r := range j.records {
		if err := enc.Encode(r); err != nil {
			return nil, fmt.Errorf("copying journal: %w", err)
		}
	}
	return out.Bytes(), nil
}

// Undo records a step that takes back a change to be made, Repair one that brings
// the target back after the undo; each kind runs in the order of its records.
func (j *Journal) Undo(s Step) error { return j.append(Record{Kind: "undo", Step: &s}) }

// Repair: see Undo.
func (j *Journal) Repair(s Step) error { return j.append(Record{Kind: "repair", Step: &s}) }

// Clean records a step that removes what the run itself put into a node. It runs
// when all else was done.
func (j *Journal) Clean(s Step) error { return j.append(Record{Kind: "clean", Step: &s}) }

func (j *Journal) cleanAll(steps []Step) error {
	for _, s := range steps {
		if err := j.Clean(s); err != nil {
			return err
		}
	}
	return nil
}

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
		if err := rec.check(n); err != nil {
			return nil, fmt.Errorf("reading journal: line %d: %w", n, err)
		}
		records = append(records, rec)
	}
}

// named is what nodes, clusters and runs are called: text that means nothing to a shell,
// to systemd or in a path.
var named = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// check says what is wrong with the record in a line.
func (r *Record) check(line int) error {
	if line == 1 {
		if r.Kind != "cluster" || !named.MatchString(r.Cluster) || !named.MatchString(r.RunID) {
			return errors.New("no cluster record with cluster and runID, each of the letters a-z, digits and hyphens")
		}
		return nil
	}
	switch r.Kind {
	case "closed":
		return nil
	case "before":
		if r.Before == nil {
			return errors.New("kind before without a state")
		}
		return nil
	case "undo", "repair", "clean":
	default:
		return fmt.Errorf("kind %q is not one of before, undo, repair, clean, closed", r.Kind)
	}
	s := r.Step
	switch {
	case s == nil || s.On == "" || (s.Script == "") == (s.Do == ""):
		return fmt.Errorf("kind %q without a step that says where, and what by either script or do", r.Kind)
	case !named.MatchString(s.On):
		return fmt.Errorf("field on: %q is not the name of a node", s.On)
	case s.Do != "" && verbs[s.Do] == nil:
		return fmt.Errorf("field do: %q is not one of %s", s.Do, strings.Join(slices.Sorted(maps.Keys(verbs)), ", "))
	}
	return nil
}

// stepDeadline is how long anybody who asked for a step waits for it: longer than the node lets
// it wait for its turn and work.
const stepDeadline = 5 * time.Minute

// runSteps runs all steps, whether or not one fails, and returns the last line of
// output of each. A node that is gone needs no undo.
func runSteps(ctx context.Context, nodes map[string]Node, steps []Step) ([]string, error) {
	var errs []error
	out := make([]string, len(steps))
	for i, s := range steps {
		n, ok := nodes[s.On]
		if !ok {
			continue
		}
		text, err := s.take(ctx, n)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s on %s: %w", s.Desc, s.On, err))
		}
		lines := strings.Split(strings.TrimSpace(text), "\n")
		out[i] = lines[len(lines)-1]
	}
	return out, errors.Join(errs...)
}

// take runs one step.
func (s Step) take(ctx context.Context, n Node) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, stepDeadline)
	defer cancel()
	if s.Do == "" {
		return n.alone(ctx, nil, s.Script)
	}
	do, ok := verbs[s.Do]
	if !ok {
		return "", fmt.Errorf("nobody knows how to do %q", s.Do)
	}
	return do(ctx, n)
}
