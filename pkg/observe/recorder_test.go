package observe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// A sourceFunc is a Source made of its Run.
type sourceFunc func(ctx context.Context, ready func(), emit func(timeline.Event)) error

func (f sourceFunc) Run(ctx context.Context, ready func(), emit func(timeline.Event)) error {
	return f(ctx, ready, emit)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// readyAfter is a source that is ready after d and then works on.
func readyAfter(d time.Duration) Source {
	return sourceFunc(func(ctx context.Context, ready func(), _ func(timeline.Event)) error {
		pause(ctx, d)
		ready()
		ready() // a source that begins again says so again
		<-ctx.Done()
		return nil
	})
}

// failsAfter is a source that is ready, if at all, and ends with err after d.
func failsAfter(d time.Duration, isReady bool, err error) Source {
	return sourceFunc(func(ctx context.Context, ready func(), _ func(timeline.Event)) error {
		if isReady {
			ready()
		}
		pause(ctx, d)
		return err
	})
}

func recorded(r *Recorder) []string {
	var s []string
	for _, e := range r.Events() {
		s = append(s, strings.TrimSpace(fmt.Sprintf("%v %s %s", e.At, e.Type, e.Object)))
	}
	return s
}

func TestWatchReturnsWhenEverySourceIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		defer r.Close()
		start := time.Now()
		err := r.Watch(t.Context(), map[string]Source{"a": readyAfter(2 * time.Second), "b": readyAfter(7 * time.Second), "c": readyAfter(0)})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 7*time.Second {
			t.Errorf("Watch returned after %v, want 7s: the last source's time", took)
		}
		wantLines(t, recorded(r), "0s Ready c", "2s Ready a", "7s Ready b")
	})
}

func TestWatchFailsWithTheSourceThatCannotStart(t *testing.T) {
	cause := errors.New("no such file")
	for name, tc := range map[string]struct {
		source Source
		want   string
	}{
		"an error":        {failsAfter(time.Second, false, cause), "starting source bad: no such file"},
		"ended by itself": {failsAfter(time.Second, false, nil), "starting source bad: ended by itself"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := NewRecorder(nil)
				start := time.Now()
				err := r.Watch(t.Context(), map[string]Source{"good": readyAfter(0), "slow": readyAfter(time.Hour), "bad": tc.source})
				if err == nil || err.Error() != tc.want {
					t.Errorf("got error %v, want %q", err, tc.want)
				}
				if took := time.Since(start); took != time.Second {
					t.Errorf("Watch returned after %v, want it at once", took)
				}
				if err := r.Close(); err != nil { // returns only if the other sources were stopped
					t.Error(err)
				}
			})
		})
	}
}

func TestASourceThatFailsLaterLeavesAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		if err := r.Watch(t.Context(), map[string]Source{"steady": readyAfter(0), "weak": failsAfter(3*time.Second, true, errors.New("log is gone"))}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		r.Stop()
		var gaps []timeline.Event
		for _, e := range r.Events() {
			if e.Type == timeline.TypeGap {
				gaps = append(gaps, e)
			}
		}
		want := timeline.Event{At: 3 * time.Second, Source: "recorder", Type: timeline.TypeGap, Object: "weak", Detail: map[string]string{"from": "3.000000", "why": "log is gone"}}
		if len(gaps) != 1 || !gaps[0].Equal(want) {
			t.Errorf("gaps %+v, want only %+v", gaps, want)
		}
	})
}

func TestStopLeavesNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		// A source may well end with an error when it is stopped.
		stubborn := sourceFunc(func(ctx context.Context, ready func(), emit func(timeline.Event)) error {
			ready()
			<-ctx.Done()
			time.Sleep(2 * time.Second)
			emit(timeline.Event{Source: "audit", Type: "last words"})
			return ctx.Err()
		})
		if err := r.Watch(t.Context(), map[string]Source{"stubborn": stubborn}); err != nil {
			t.Fatal(err)
		}
		r.Stop()
		r.Emit(timeline.Event{Source: "run", Type: "after"})
		wantLines(t, recorded(r), "0s Ready stubborn", "2s last words", "2s after")
	})
}

func TestWatchHonoursItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("the user has had enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(5*time.Second, func() { cancel(why) })
		r := NewRecorder(nil)
		start := time.Now()
		err := r.Watch(ctx, map[string]Source{"a": readyAfter(0), "slow": sourceFunc(func(ctx context.Context, _ func(), _ func(timeline.Event)) error { <-ctx.Done(); return ctx.Err() })})
		if !errors.Is(err, why) || time.Since(start) != 5*time.Second {
			t.Errorf("Watch returned %v after %v", err, time.Since(start))
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if got := recorded(r); slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "Gap") }) {
			t.Errorf("an end that was wanted left a gap: %q", got)
		}
	})
}

func TestEventsBeforeOpenStandBehindTheHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		r.Emit(timeline.Event{Source: "run", Type: "Phase", Object: "setup"})
		time.Sleep(90 * time.Second)
		r.Emit(timeline.Event{Source: "run", Type: "Phase", Object: "steady"})
		name := filepath.Join(t.TempDir(), "timeline.jsonl")
		h := timeline.Header{Schema: "another", RunID: "r1", Start: time.Unix(0, 0), Experiment: json.RawMessage(`{}`), Config: json.RawMessage(`{}`)}
		if err := r.Open(name, h); err != nil {
			t.Fatal(err)
		}
		r.Emit(timeline.Event{Source: "run", Type: "Phase", Object: "inject"})
		tl, err := timeline.ReadFile(name) // before Close: each event is on disk when Emit returns
		if err != nil {
			t.Fatal(err)
		}
		if tl.Header.RunID != "r1" || !tl.Header.Start.Equal(r.Start()) {
			t.Errorf("header %+v, want the recorder's start %v", tl.Header, r.Start())
		}
		var got []string
		for _, e := range tl.Events {
			got = append(got, timeline.Seconds(e.At)+" "+e.Object)
		}
		wantLines(t, got, "0.000000 setup", "90.000000 steady", "90.000000 inject")
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := NewRecorder(nil).Open(name, h); !errors.Is(err, os.ErrExist) {
			t.Errorf("a second run got %v for the same file, want a refusal", err)
		}
	})
}

func TestEmitKeepsATimeThatWasGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		time.Sleep(1234567890 * time.Nanosecond)
		r.Emit(timeline.Event{Source: "run", Type: "now"})
		r.Emit(timeline.Event{Source: "run", Type: "then", At: 5*time.Second + 600*time.Nanosecond})
		wantLines(t, recorded(r), "1.234568s now", "5.000001s then")
	})
}

func TestOneOrderForFileMemoryAndListener(t *testing.T) {
	var heard []string
	var inside atomic.Int32
	r := NewRecorder(func(e timeline.Event) {
		if inside.Add(1) != 1 {
			t.Error("two events are told at once")
		}
		runtime.Gosched() // a listener that is entered twice will be seen
		heard = append(heard, e.Object)
		inside.Add(-1)
	})
	name := filepath.Join(t.TempDir(), "timeline.jsonl")
	var wg sync.WaitGroup
	for s := range 8 {
		wg.Go(func() {
			for n := range 50 {
				if s == 0 && n == 20 { // the header comes while others emit
					if err := r.Open(name, timeline.Header{RunID: "r1", Experiment: json.RawMessage(`{}`), Config: json.RawMessage(`{}`)}); err != nil {
						t.Error(err)
					}
				}
				r.Emit(timeline.Event{Source: "run", Type: "n", Object: fmt.Sprintf("%d/%d", s, n)})
			}
		})
	}
	wg.Wait()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	tl, err := timeline.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var memory, file []string
	for _, e := range r.Events() {
		memory = append(memory, e.Object)
	}
	for _, e := range tl.Events {
		file = append(file, e.Object)
	}
	if len(heard) != 400 || !slices.Equal(heard, memory) || !slices.Equal(heard, file) {
		t.Errorf("the listener heard %d events, memory holds %d, the file %d; or their order differs", len(heard), len(memory), len(file))
	}
}

func TestEventsAreACopy(t *testing.T) {
	r := NewRecorder(nil)
	r.Emit(timeline.Event{Source: "run", Type: "a"})
	r.Events()[0].Type = "changed"
	if got := r.Events()[0].Type; got != "a" {
		t.Errorf("a caller changed a recorded event to %q", got)
	}
}

func TestCloseReportsTheFirstWriteError(t *testing.T) {
	open := func(t *testing.T) *Recorder {
		r := NewRecorder(nil)
		if err := r.Open(filepath.Join(t.TempDir(), "timeline.jsonl"), timeline.Header{Experiment: json.RawMessage(`{}`), Config: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Run("disk full", func(t *testing.T) {
		r := open(t)
		full := errors.New("no space left")
		r.out = bufio.NewWriter(failingWriter{full})
		r.Emit(timeline.Event{Source: "run", Type: "a"})
		if err := r.Close(); !errors.Is(err, full) || !strings.Contains(err.Error(), "writing timeline") {
			t.Errorf("Close returned %v", err)
		}
	})
	t.Run("an event that has no form on disk", func(t *testing.T) {
		r := open(t)
		r.Emit(timeline.Event{Source: "run", Type: "a", Stamp: time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC)})
		r.Emit(timeline.Event{Source: "run", Type: "b"})
		if err := r.Close(); err == nil || !strings.Contains(err.Error(), "writing timeline") {
			t.Errorf("Close returned %v", err)
		}
	})
	t.Run("file closed by somebody", func(t *testing.T) {
		r := open(t)
		r.file.Close()
		if err := r.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Close returned %v", err)
		}
	})
	t.Run("nothing wrong", func(t *testing.T) {
		r := open(t)
		r.Emit(timeline.Event{Source: "run", Type: "a"})
		if err := errors.Join(r.Close(), r.Close()); err != nil {
			t.Errorf("closing twice: %v", err)
		}
	})
	t.Run("never opened", func(t *testing.T) {
		r := NewRecorder(nil)
		r.Emit(timeline.Event{Source: "run", Type: "a"})
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("folder is not there", func(t *testing.T) {
		err := NewRecorder(nil).Open(filepath.Join(t.TempDir(), "absent", "timeline.jsonl"), timeline.Header{Experiment: json.RawMessage(`{}`), Config: json.RawMessage(`{}`)})
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Open returned %v", err)
		}
	})
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestASyncErrorIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		if err := r.Open(filepath.Join(t.TempDir(), "timeline.jsonl"), timeline.Header{Experiment: json.RawMessage(`{}`), Config: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
		if err := r.Watch(t.Context(), map[string]Source{"a": readyAfter(0)}); err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		r.file.Close()
		r.mu.Unlock()
		time.Sleep(syncEvery + time.Millisecond)
		r.Stop()
		if r.err == nil || !strings.Contains(r.err.Error(), "syncing timeline") {
			t.Errorf("after a tick of the clock the error is %v", r.err)
		}
		if err := r.Close(); err == nil {
			t.Error("Close reports nothing")
		}
	})
}

func TestAQuietClockIsNoFact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		if err := r.Watch(t.Context(), map[string]Source{"a": readyAfter(0)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		r.Stop()
		wantLines(t, recorded(r), "0s Ready a")
	})
}

// A timeline that cannot be written is told at once, once, and goes on in memory.
func TestRecorderFailed(t *testing.T) {
	r := NewRecorder(nil)
	if err := r.Open(filepath.Join(t.TempDir(), "timeline.jsonl"), timeline.Header{RunID: "r1"}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.Failed():
		t.Fatal("nothing has failed")
	default:
	}
	if err := r.file.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r.Emit(timeline.Event{Source: "run", Type: "Phase"})
	}
	<-r.Failed()
	if err := r.Close(); err == nil || !strings.Contains(err.Error(), "writing timeline") || len(r.Events()) != 2 {
		t.Errorf("error %v, %d events", err, len(r.Events()))
	}
}

// What is written can be read: an event that is too long ends the record.
func TestRecorderKeepsItsLimits(t *testing.T) {
	for name, e := range map[string]timeline.Event{"a line": {Source: "run", Type: strings.Repeat("x", timeline.MaxLine)}, "all lines": {Source: "run", Type: strings.Repeat("x", timeline.MaxLine/2)}} {
		r := NewRecorder(nil)
		file := filepath.Join(t.TempDir(), "timeline.jsonl")
		if err := r.Open(file, timeline.Header{RunID: "r1", Experiment: []byte("{}"), Config: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		for range 2 * timeline.MaxSize / timeline.MaxLine {
			r.Emit(e)
		}
		<-r.Failed()
		if err := r.Close(); err == nil || !strings.Contains(err.Error(), "read") {
			t.Errorf("%s: error %v", name, err)
		}
		if _, err := timeline.ReadFile(file); err != nil {
			t.Errorf("%s: what was written before: %v", name, err)
		}
	}
}
