package timeline

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
)

// Schema is the version of the timeline format. A reader refuses any other.
const Schema = "flatline.dev/timeline/v1"

// A Header is line 1 of a timeline: all that is needed to judge the rest.
type Header struct {
	Schema string `json:"schema"`
	// RunID names the run; it is also on every container of its cluster. It is a DNS label.
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

// Limits of a timeline, which are part of the format: anybody who reads one of a stranger needs
// a bound. A run of twelve minutes has 3,500 events with 32,000 details in 1 MB, and no line
// longer than 4 kB. To judge or draw the largest takes 350 MB of memory.
const (
	MaxLine    = 1 << 20   // bytes of a line, with its end
	MaxSize    = 32 << 20  // bytes of all lines, unpacked
	MaxEvents  = 100_000   // six hours of a cluster of four nodes
	MaxDetails = 1_000_000 // of all events together
)

// Read reads a timeline. An error names the line, and the limit where one is exceeded.
func Read(r io.Reader) (*Timeline, error) {
	lines := &lineReader{in: bufio.NewReaderSize(r, 1<<16)}
	t := &Timeline{}
	details := 0
	for n := 1; ; n++ {
		bad := func(err error) (*Timeline, error) { return nil, fmt.Errorf("reading timeline: line %d: %w", n, err) }
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			t.Torn = len(line) > 0
			if n == 1 {
				return bad(errors.New("no header"))
			}
			return t, nil
		}
		if err != nil {
			return bad(err)
		}
		line = bytes.TrimSpace(line)
		if n == 1 {
			if t.Header, err = readHeader(line); err != nil {
				return bad(err)
			}
			continue
		}
		var e Event
		if err := e.UnmarshalJSON(line); err != nil { // as json.Unmarshal would, which scans the line once before
			return bad(err)
		}
		if details += len(e.Detail); details > MaxDetails {
			return bad(fmt.Errorf("more than %d details", MaxDetails))
		}
		if len(t.Events) == MaxEvents {
			return bad(fmt.Errorf("more than %d events", MaxEvents))
		}
		t.Events = append(t.Events, e)
	}
}

// readHeader reads line 1.
func readHeader(line []byte) (Header, error) {
	var h Header
	if err := json.Unmarshal(line, &h); err != nil {
		return h, fmt.Errorf("header: %w", err)
	}
	if h.Schema != Schema {
		return h, fmt.Errorf("schema is %.60q, this version reads %q", h.Schema, Schema)
	}
	if !IsName(h.RunID) {
		return h, fmt.Errorf("runID is %.60q; want %s", h.RunID, NameRule)
	}
	return h, nil
}

// name is a DNS label (RFC 1123, section 2.1).
var name = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// NameRule says what IsName wants.
const NameRule = "lowercase letters, digits and dashes between them, at most 63"

// IsName says whether a text can be the name of a run or an experiment, which become names of
// folders and Kubernetes objects: a DNS label.
func IsName(s string) bool { return name.MatchString(s) }

// A lineReader reads lines within the limits of a timeline.
type lineReader struct {
	in   *bufio.Reader
	line []byte
	size int
}

// next is the next line with its end, valid until the call after; the last one may have none
// and comes with io.EOF.
func (r *lineReader) next() ([]byte, error) {
	r.line = r.line[:0]
	for {
		part, err := r.in.ReadSlice('\n')
		r.line = append(r.line, part...)
		r.size += len(part)
		switch {
		case len(r.line) > MaxLine:
			return nil, fmt.Errorf("it has more than %d bytes", MaxLine)
		case r.size > MaxSize:
			return nil, fmt.Errorf("the lines up to here have more than %d bytes", MaxSize)
		case !errors.Is(err, bufio.ErrBufferFull):
			return r.line, err
		}
	}
}

// Unpack reads a file as its name wants it: one that ends in .gz is unpacked.
func Unpack(name string, r io.Reader) (io.Reader, error) {
	if !strings.HasSuffix(name, ".gz") {
		return r, nil
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("reading timeline: unpacking: %w", err)
	}
	return z, nil
}

// ReadFile reads a timeline file; a name that ends in .gz is unpacked.
func ReadFile(name string) (*Timeline, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading timeline: %w", err)
	}
	defer f.Close()
	r, err := Unpack(name, f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	t, err := Read(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}
