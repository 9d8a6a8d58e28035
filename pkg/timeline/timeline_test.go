package timeline

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const header = `{"schema":"flatline.dev/timeline/v1","runID":"r1","start":"2026-01-02T03:04:05Z","experiment":{"a":1},"config":{"b":2}}` + "\n"

const two = `{"at":1,"source":"run","type":"Phase","object":"setup"}` + "\n" + `{"at":2.5,"source":"audit","type":"update","object":"leases a"}` + "\n"

func TestReadTimeline(t *testing.T) {
	tl, err := Read(strings.NewReader(header + two))
	if err != nil {
		t.Fatal(err)
	}
	h := tl.Header
	if h.RunID != "r1" || !h.Start.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) || string(h.Experiment) != `{"a":1}` || string(h.Config) != `{"b":2}` {
		t.Errorf("header is %+v", h)
	}
	if tl.Torn || len(tl.Events) != 2 || tl.Events[0].Object != "setup" || tl.Events[1].At != 2500*time.Millisecond {
		t.Errorf("torn %v, events %+v", tl.Torn, tl.Events)
	}
}

func TestReadTimelineNamesTheBrokenLine(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"empty":            {"", "line 1: no header"},
		"header torn":      {header[:40], "line 1: no header"},
		"header is event":  {two, `line 1: schema is ""`},
		"other schema":     {strings.Replace(header, "/v1", "/v2", 1) + two, `line 1: schema is "flatline.dev/timeline/v2", this version reads "flatline.dev/timeline/v1"`},
		"run id is a path": {strings.Replace(header, `"r1"`, `"../r1"`, 1) + two, `line 1: runID is "../r1"; want lowercase letters`},
		"no run id":        {strings.Replace(header, `"r1"`, `""`, 1) + two, `line 1: runID is ""; want`},
		"header no JSON":   {"hello\n" + two, "line 1: header: invalid"},
		"first event":      {header + "hello\n" + two, "line 2: "},
		"later event":      {header + two + `{"at":3,"source":"run"}` + "\n" + two, "line 4: an event needs"},
		"blank line":       {header + two + "\n" + two, "line 4: "},
		"last, not torn":   {header + two + `{"at":3,"sou` + "\n", "line 4: "},
	} {
		t.Run(name, func(t *testing.T) {
			tl, err := Read(strings.NewReader(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) || tl != nil {
				t.Errorf("got %+v, error %v, want one with %q", tl, err, tc.want)
			}
		})
	}
}

func TestReadTimelineKeepsWhatIsWholeBeforeATornLine(t *testing.T) {
	// Cut at every byte of the last line: whatever was lost, only that line is.
	whole := header + two
	last := len(header) + strings.Index(two, "\n") + 1
	for cut := last; cut <= len(whole); cut++ {
		tl, err := Read(strings.NewReader(whole[:cut]))
		if err != nil {
			t.Fatalf("cut at byte %d: %v", cut, err)
		}
		torn, n := cut != last && cut != len(whole), 1
		if cut == len(whole) {
			n = 2
		}
		if tl.Torn != torn || len(tl.Events) != n {
			t.Errorf("cut at byte %d: torn %v with %d events, want %v with %d", cut, tl.Torn, len(tl.Events), torn, n)
		}
	}
}

func TestReadTimelineReadsLongLines(t *testing.T) {
	long := strings.Repeat("x", 1<<20-len(`{"at":1,"source":"run","type":"Witness","detail":{"seen":""}}`)-1)
	tl, err := Read(strings.NewReader(header + `{"at":1,"source":"run","type":"Witness","detail":{"seen":"` + long + `"}}` + "\n"))
	if err != nil || tl.Events[0].Detail["seen"] != long {
		t.Errorf("a line of a megabyte: %v", err)
	}
}

// repeated is a reader of a text many times over.
func repeated(text string, times int) io.Reader {
	readers := make([]io.Reader, times)
	for i := range readers {
		readers[i] = strings.NewReader(text)
	}
	return io.MultiReader(readers...)
}

// Anybody who reads a stranger's timeline is bounded, whatever is in it; the error says by what.
func TestReadTimelineWithinLimits(t *testing.T) {
	event := `{"at":1,"source":"run","type":"x"}` + "\n"
	wide := `{"at":1,"source":"run","type":"x","detail":{"x":"` + strings.Repeat("x", 1<<20-100) + `"}}` + "\n"
	var details strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&details, `"%d":"",`, i)
	}
	many := `{"at":1,"source":"run","type":"x","detail":{` + strings.TrimSuffix(details.String(), ",") + "}}\n"
	for name, tc := range map[string]struct {
		text io.Reader
		want string
	}{
		"a line without end":       {repeated("x", 2<<20), "line 1: it has more than 1048576 bytes"},
		"a later one":              {io.MultiReader(strings.NewReader(header+two), repeated("x", 2<<20)), "line 4: it has more than 1048576 bytes"},
		"a byte too many":          {strings.NewReader(header + strings.Repeat("x", MaxLine) + "\n"), "line 2: it has more than 1048576 bytes"},
		"many events":              {io.MultiReader(strings.NewReader(header), repeated(event, MaxEvents+1)), "line 100002: more than 100000 events"},
		"many details":             {io.MultiReader(strings.NewReader(header), repeated(many, MaxDetails/10_000+1)), "line 102: more than 1000000 details"},
		"many bytes":               {io.MultiReader(strings.NewReader(header), repeated(wide, MaxSize/len(wide)+1)), "line 34: the lines up to here have more than 33554432 bytes"},
		"as many events as can be": {io.MultiReader(strings.NewReader(header), repeated(event, MaxEvents)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			tl, err := Read(tc.text)
			if tc.want == "" && (err != nil || len(tl.Events) != MaxEvents) {
				t.Errorf("error %v", err)
			}
			if tc.want != "" && (err == nil || !strings.HasSuffix(err.Error(), tc.want) || tl != nil) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestReadTimelineFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write([]byte(header + two))
	z.Close()

	for _, name := range []string{write("a.jsonl", []byte(header+two)), write("a.jsonl.gz", packed.Bytes())} {
		tl, err := ReadFile(name)
		if err != nil || len(tl.Events) != 2 {
			t.Errorf("%s: %+v, %v", filepath.Base(name), tl, err)
		}
	}
	for _, name := range []string{
		filepath.Join(dir, "absent.jsonl"),
		write("plain.jsonl.gz", []byte(header+two)),
		write("short.jsonl.gz", packed.Bytes()[:packed.Len()-9]),
		write("packed.jsonl", packed.Bytes()),
	} {
		if _, err := ReadFile(name); err == nil || !strings.Contains(err.Error(), filepath.Base(name)) {
			t.Errorf("%s: got error %v, want one that names the file", filepath.Base(name), err)
		}
	}
}

func FuzzReadTimeline(f *testing.F) {
	f.Add([]byte(header + two))
	f.Add([]byte(header + two + `{"at":3,"sou`))
	f.Add([]byte(header + "\n"))
	f.Add([]byte(strings.Replace(header, "/v1", "/v2", 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		tl, err := Read(bytes.NewReader(data))
		if err != nil {
			if !strings.Contains(err.Error(), "line ") {
				t.Errorf("error names no line: %v", err)
			}
			return
		}
		if lines := bytes.Count(data, []byte("\n")); len(tl.Events) != lines-1 {
			t.Errorf("%d events from %d whole lines", len(tl.Events), lines)
		}
		if torn := data[len(data)-1] != '\n'; torn != tl.Torn {
			t.Errorf("torn is %v, want %v", tl.Torn, torn)
		}
		for _, e := range tl.Events {
			if e.Source == "" || e.Type == "" {
				t.Errorf("an event without source or type: %+v", e)
			}
		}
		if _, err := json.Marshal(tl.Header.Config); err != nil {
			t.Errorf("the header's config is no JSON: %v", err)
		}
	})
}
