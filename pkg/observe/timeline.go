package observe

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Schema is the version of the timeline format. A reader refuses any other.
const Schema = "flatline.dev/timeline/v1"

// A Header is line 1 of a timeline: all that is needed to judge the rest.
type Header struct {
	Schema string `json:"schema"`
	// RunID names the run; it is also on every container of its cluster.
	RunID string `json:"runID"`
	// Start is the wall clock at which Event.At is zero.
	Start time.Time `json:"start"`
	// Experiment is the resolved experiment, Config what was read from the
	// cluster about it. Package observe does not look inside.
	Experiment json.RawMessage `json:"experiment"`
	Config     json.RawMessage `json:"config"`
}

// A Timeline is a whole record of one run.
type Timeline struct {
	Header Header
	Events []Event
	// Torn says that the last line was cut short, as after a crash of the
	// writer; the events before it are whole.
	Torn bool
}

// ReadTimeline reads a timeline. An error names the line.
func ReadTimeline(r io.Reader) (*Timeline, error) {
	br := bufio.NewReaderSize(r, 1<<16)
	t := &Timeline{}
	for n := 1; ; n++ {
		line, err := br.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			t.Torn = len(line) > 0
			if n == 1 {
				return nil, fmt.Errorf("reading timeline: line 1: no header")
			}
			return t, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading timeline: line %d: %w", n, err)
		}
		line = bytes.TrimSpace(line)
		if n == 1 {
			if err := json.Unmarshal(line, &t.Header); err != nil {
				return nil, fmt.Errorf("reading timeline: line 1: header: %w", err)
			}
			if t.Header.Schema != Schema {
				return nil, fmt.Errorf("reading timeline: line 1: schema is %q, this version reads %q", t.Header.Schema, Schema)
			}
			continue
		}
		var e Event
		if err := e.UnmarshalJSON(line); err != nil { // as json.Unmarshal would, which scans the line once before
			return nil, fmt.Errorf("reading timeline: line %d: %w", n, err)
		}
		t.Events = append(t.Events, e)
	}
}

// ReadTimelineFile reads a timeline file; a name that ends in .gz is unpacked.
func ReadTimelineFile(name string) (*Timeline, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading timeline: %w", err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(name, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			return nil, fmt.Errorf("reading timeline %s: %w", name, err)
		}
	}
	t, err := ReadTimeline(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}
