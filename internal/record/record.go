// Package record finds recorded runs in folders and has them judged by today's rules.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
)

// A Record is a run on record.
type Record struct {
	File       string          // its timeline
	Experiment json.RawMessage // as it was resolved for the run
	Run        *judge.Run      // by today's rules
}

// Trace reads the timeline once more, for a picture.
func (r *Record) Trace() (*judge.Trace, error) {
	t, err := observe.ReadTimelineFile(r.File)
	if err != nil {
		return nil, err
	}
	return judge.NewTrace(t)
}

// A NoneError says that there is no run in a folder.
type NoneError struct{ Folder string }

func (e *NoneError) Error() string {
	return e.Folder + ": there is no timeline.jsonl in it or below: name the folder of a run, or one that holds runs"
}

// Read reads all runs that some names stand for: the folder of a run, a timeline by
// itself (.jsonl or .jsonl.gz), or a folder with any number of either somewhere
// below. A run that is found more than once is taken once. The order is that of the
// names, and below a folder that of the paths.
func Read(names []string) ([]*Record, error) {
	files, err := find(names)
	if err != nil {
		return nil, err
	}
	recs, errs := make([]*Record, len(files)), make([]error, len(files))
	var all sync.WaitGroup
	room := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, file := range files {
		all.Go(func() {
			room <- struct{}{}
			recs[i], errs[i] = read(file)
			<-room
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(recs, func(r *Record) bool {
		twice := seen[r.Run.RunID]
		seen[r.Run.RunID] = true
		return twice
	}), nil
}

func read(file string) (*Record, error) {
	t, err := observe.ReadTimelineFile(file)
	if err != nil {
		return nil, err
	}
	run, err := judge.Judge(t)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &Record{File: file, Experiment: t.Header.Experiment, Run: run}, nil
}

// find finds the timelines that names stand for.
func find(names []string) ([]string, error) {
	var found []string
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			found = append(found, name)
			continue
		}
		before := len(found)
		root, err := filepath.EvalSymlinks(name) // the link to the latest run
		if err != nil {
			return nil, err
		}
		err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() { // below a folder, a link is a run once more
				return err
			}
			if info, err := d.Info(); err != nil || info.Size() == 0 { // its runner was killed at that moment
				return err
			}
			if d.Name() == "timeline.jsonl" || strings.HasSuffix(d.Name(), ".jsonl.gz") {
				found = append(found, filepath.Join(name, strings.TrimPrefix(path, root)))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(found) == before {
			return nil, &NoneError{name}
		}
	}
	return found, nil
}
