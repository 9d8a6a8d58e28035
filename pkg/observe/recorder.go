package observe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// A Recorder merges the events of all sources into one timeline file.
// Each event is flushed at once and the file is synced every second, so that a
// crash loses at most a second and never the order.
type Recorder struct {
	start   time.Time
	onEvent func(timeline.Event)

	mu     sync.Mutex
	events []timeline.Event
	file   *os.File
	out    *bufio.Writer
	size   int           // bytes of the events written
	err    error         // the first write error; reported by Close
	failed chan struct{} // closed with it

	wg     sync.WaitGroup
	cancel context.CancelFunc
}

// syncEvery is how often the file is synced and the clocks are compared.
const syncEvery = time.Second

// maxDrift is the wall-against-monotonic movement that is worth a fact.
const maxDrift = 50 * time.Millisecond

// NewRecorder starts the clock of a timeline. onEvent, if not nil, sees every
// event after it was recorded, one at a time and in order; it must not block.
func NewRecorder(onEvent func(timeline.Event)) *Recorder {
	return &Recorder{start: time.Now(), onEvent: onEvent, failed: make(chan struct{})}
}

// Start is the wall and monotonic time at which Event.At is zero.
func (r *Recorder) Start() time.Time { return r.start }

// Open creates the timeline file, writes the header, then all events emitted so
// far. Events emitted before Open are kept in memory. Schema and Start of the
// header are filled in.
func (r *Recorder) Open(name string, h timeline.Header) error {
	h.Schema, h.Start = timeline.Schema, r.start.UTC().Round(time.Microsecond)
	line, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("writing timeline header: %w", err)
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("creating timeline: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.file, r.out, r.size = f, bufio.NewWriter(f), len(line)+1
	r.out.Write(append(line, '\n'))
	for _, e := range r.events {
		r.write(e)
	}
	return r.err
}

// Emit records an event. A zero At means now.
func (r *Recorder) Emit(e timeline.Event) {
	if e.At == 0 {
		e.At = time.Since(r.start) // not when its turn has come
	}
	e.At = e.At.Round(time.Microsecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	if r.out != nil {
		r.write(e)
	}
	if r.onEvent != nil {
		r.onEvent(e)
	}
}

// write appends one line; the caller holds the lock.
func (r *Recorder) write(e timeline.Event) {
	line, err := json.Marshal(e)
	if err == nil {
		r.size += len(line) + 1
		err = r.limits(len(line) + 1)
	}
	if err == nil {
		_, err = r.out.Write(append(line, '\n'))
	}
	if err == nil {
		err = r.out.Flush()
	}
	if err != nil {
		r.fail(fmt.Errorf("writing timeline: %w", err))
	}
}

// limits refuses what nobody would read: a record that is too long is none.
func (r *Recorder) limits(line int) error {
	switch {
	case line > timeline.MaxLine:
		return fmt.Errorf("an event of %d bytes, at most %d are read", line, timeline.MaxLine)
	case r.size > timeline.MaxSize:
		return fmt.Errorf("more than %d bytes, which is all that is read", timeline.MaxSize)
	case len(r.events) > timeline.MaxEvents:
		return fmt.Errorf("more than %d events, which is all that is read", timeline.MaxEvents)
	}
	return nil
}

// fail keeps the first error; the caller holds the lock.
func (r *Recorder) fail(err error) {
	if r.err == nil {
		r.err = err
		close(r.failed)
	}
}

// Failed is closed when the timeline could not be written. Events are kept in memory even
// then.
func (r *Recorder) Failed() <-chan struct{} { return r.failed }

// Watch runs sources until Stop is called, and returns when every one of them is
// ready; ctx bounds the waiting for that. A source that fails before all are ready is an error; one
// that fails later leaves a Gap event without an end.
func (r *Recorder) Watch(ctx context.Context, sources map[string]Source) error {
	waiting := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.mu.Lock()
	r.cancel = cancel
	r.mu.Unlock()
	type outcome struct {
		name string
		err  error
	}
	ready := make(chan outcome, 2*len(sources))
	for name, src := range sources {
		r.wg.Go(func() {
			isReady := sync.OnceFunc(func() {
				r.Emit(timeline.Event{Source: "recorder", Type: timeline.TypeReady, Object: name})
				ready <- outcome{name: name}
			})
			err := src.Run(ctx, isReady, r.Emit)
			if err == nil && ctx.Err() == nil {
				err = errors.New("ended by itself")
			}
			if err != nil && ctx.Err() == nil {
				r.Emit(timeline.Event{Source: "recorder", Type: timeline.TypeGap, Object: name,
					Detail: map[string]string{"from": timeline.Seconds(time.Since(r.start)), "why": err.Error()}})
				ready <- outcome{name, err}
			}
		})
	}
	r.wg.Go(func() { ; r.keep(ctx) })

	for range sources {
		select {
		case o := <-ready:
			if o.err != nil {
				cancel()
				return fmt.Errorf("starting source %s: %w", o.name, o.err)
			}
		case <-waiting.Done():
			cancel()
			return fmt.Errorf("starting sources: %w", context.Cause(waiting))
		}
	}
	return nil
}

// keep syncs the file every second and notices a wall clock that moves.
func (r *Recorder) keep(ctx context.Context) {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	var told time.Duration
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			drift := now.Round(0).Sub(r.start.Round(0)) - now.Sub(r.start)
			if d := drift - told; d > maxDrift || d < -maxDrift {
				told = drift
				r.Emit(timeline.Event{Source: "recorder", Type: timeline.TypeClockDrift, Detail: map[string]string{"drift": timeline.Seconds(drift)}})
			}
			r.mu.Lock()
			if r.file != nil {
				if err := r.file.Sync(); err != nil {
					r.fail(fmt.Errorf("syncing timeline: %w", err))
				}
			}
			r.mu.Unlock()
		}
	}
}

// Stop ends all sources and waits for them. Emit goes on working.
func (r *Recorder) Stop() {
	r.mu.Lock()
	cancel := r.cancel
	r.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	r.wg.Wait()
}

// Events returns all events so far, in the order in which they were recorded.
func (r *Recorder) Events() []timeline.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]timeline.Event(nil), r.events...)
}

// Close stops the sources, syncs and closes the file, and returns the first
// error met while writing it.
func (r *Recorder) Close() error {
	r.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return r.err
	}
	err := errors.Join(r.out.Flush(), r.file.Sync(), r.file.Close())
	r.file, r.out = nil, nil
	if r.err != nil { // the others say the same
		return r.err
	}
	return err
}
