// Package record owns the folder of a run: it finds recorded runs, has them judged by
// today's rules, and writes and reads the verdict that lies beside a record.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/flatline-chaos/flatline/internal/safely"
	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// A Record is a run on record.
type Record struct {
	File       string          // its timeline
	Experiment json.RawMessage // as it was resolved for the run
	Run        *judge.Run      // by today's rules
	// Trace is what happened in the run. Of many records that are read together only the
	// first has one: nobody draws one of many, and a thousand would take gigabytes.
	Trace *judge.Trace
}

// A NoneError says that there is no run in a folder.
type NoneError struct{ Folder string }

func (e *NoneError) Error() string {
	return e.Folder + ": there is no timeline.jsonl in it or below: name the folder of a run, or one that holds runs"
}

// Read reads all runs that some names stand for: the folder of a run, a timeline by
// itself (.jsonl or .jsonl.gz), or a folder with any number of either somewhere
// below. A run that is found more than once is taken once: of two records with one run id the
// first counts. The order is that of the names, and below a folder that of the paths.
//
// The records may be anybody's. Below a folder only regular files are read, and of large
// timelines one at a time, so that many of them take no more memory than one.
func Read(names []string) ([]*Record, error) {
	files, err := find(names)
	if err != nil {
		return nil, err
	}
	recs, errs := make([]*Record, len(files)), make([]error, len(files))
	var all sync.WaitGroup
	var large sync.Mutex
	room := make(chan struct{}, min(runtime.GOMAXPROCS(0), mostAtOnce))
	for i, f := range files {
		all.Go(func() {
			room <- struct{}{}
			recs[i], errs[i] = read(f, &large)
			if i > 0 && recs[i] != nil {
				recs[i].Trace = nil
			}
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

// mostAtOnce is how many timelines are read at the same time, largeSize how many of its bytes
// make one large: twice the longest on record.
const (
	mostAtOnce = 8
	largeSize  = 2 << 20
)

// A source is a timeline to read: one that was named, which may be a pipe, or one that was found.
type source struct {
	file  string
	named bool
}

// timeline reads it. Large ones wait for their turn at the gate.
func (s source) timeline(g *gate) (*timeline.Timeline, error) {
	open := safely.Open
	if s.named {
		open = os.Open
	}
	f, err := open(s.file)
	if err != nil {
		return nil, fmt.Errorf("reading timeline: %w", err)
	}
	defer f.Close()
	r, err := timeline.Unpack(s.file, f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.file, err)
	}
	g.in = r
	t, err := timeline.Read(g)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.file, err)
	}
	return t, nil
}

// read reads a timeline and has it judged.
func read(s source, large *sync.Mutex) (*Record, error) {
	g := &gate{turn: large}
	defer g.leave()
	t, err := s.timeline(g)
	if err != nil {
		return nil, err
	}
	run, trace, err := judge.Judge(t)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.file, err)
	}
	return &Record{File: s.file, Experiment: t.Header.Experiment, Run: run, Trace: trace}, nil
}

// A gate lets largeSize bytes pass, and what is beyond only one reader at a time.
type gate struct {
	in     io.Reader
	passed int
	turn   *sync.Mutex
	mine   bool
}

func (g *gate) Read(p []byte) (int, error) {
	if g.passed > largeSize && !g.mine {
		g.turn.Lock()
		g.mine = true
	}
	n, err := g.in.Read(p)
	g.passed += n
	return n, err
}

func (g *gate) leave() {
	if g.mine {
		g.turn.Unlock()
	}
}

// find finds the timelines that names stand for.
func find(names []string) ([]source, error) {
	var found []source
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			found = append(found, source{name, true})
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
			if d.Name() == timelineFile || strings.HasSuffix(d.Name(), ".jsonl.gz") {
				found = append(found, source{file: filepath.Join(name, strings.TrimPrefix(path, root))})
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
