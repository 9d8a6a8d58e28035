package chaos

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// Options say how to run an experiment.
type Options struct {
	// Artifacts is the folder below which the run's own folder is made:
	// <experiment>/<UTC time>-<8 hex digits>.
	Artifacts string
	// Image says how to find the node image. It is not used with Cluster.
	Image cluster.Choice
	// Cluster is one to use and keep. If nil, a cluster is created for the run
	// and deleted after it.
	Cluster *cluster.Cluster
	// Lock is that of Cluster, where the caller holds it; else the run takes it.
	Lock *Lock
	// Progress, if not nil, is told what happens, one thing at a time. It must not
	// block.
	Progress func(judge.Update)
	// Log, if not nil, takes the words of the cluster's creation.
	Log io.Writer
	// Keep says when a cluster that the run created stays: KeepNever (also ""),
	// KeepOnFailure or KeepAlways. A dirty one always stays.
	Keep string
	// Pause stops before the undo until a file named "continue" appears in the
	// run's folder.
	Pause bool
	// Hurry, when it is closed, has the run skip whatever is not needed to put
	// things right.
	Hurry <-chan struct{}
}

// Values of Options.Keep.
const (
	KeepNever     = "never"
	KeepOnFailure = "on-failure"
	KeepAlways    = "always"
)

// A Result is a run as it was judged, and its record.
type Result struct {
	*judge.Run
	Trace  *judge.Trace // what happened over time; empty if the run could not be judged
	Folder string       // of the record, below Options.Artifacts
}

// Run runs one experiment and judges it. A missed expectation, a failed set-up or
// a fault that did not bite is an outcome and no error. When ctx ends, or the record
// cannot be written any more, whatever was changed is put right first, and the Result comes
// together with ctx's error or one that wraps ErrRecord. Without a Result nothing was begun.
func Run(ctx context.Context, exp *Experiment, opts Options) (*Result, error) {
	var version []string // that of the node image is known later, see setUp
	if opts.Cluster != nil {
		version = []string{opts.Cluster.Version}
	}
	if err := exp.Possible(version...); err != nil {
		return nil, err
	}
	r, err := begin(exp, opts)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() { // a run that leaves no record measures nothing
		select {
		case <-r.rec.Failed():
			stop(ErrRecord)
		case <-ctx.Done():
		}
	}()
	return r.story(ctx)
}

// ErrRecord says that the record of a run could not be written as a whole.
var ErrRecord = errors.New("the record of the run is not whole")

// story is the run from the beginning to the end. Each step records facts; the
// verdict is found in the file at the end.
func (r *run) story(ctx context.Context) (*Result, error) {
	if err := r.setUp(ctx); err != nil {
		r.setupFailed(ctx, err)
		return r.end(ctx)
	}
	if err := r.steady(ctx); err != nil {
		r.setupFailed(ctx, err)
		return r.end(ctx)
	}
	if err := r.prepare(ctx); err != nil {
		r.setupFailed(ctx, err)
		return r.end(ctx)
	}
	stop := func() {}
	if err := r.inject(ctx); err != nil {
		r.injectFailed(err)
	} else {
		stop = r.meanwhile(ctx)
		r.hold(ctx)
	}
	if r.opts.Pause && ctx.Err() == nil {
		r.pause(ctx)
	}
	stop()
	r.putRight(ctx)
	r.collect(ctx)
	return r.end(ctx)
}

// A run is one experiment under way.
type run struct {
	exp   *Experiment
	opts  Options
	id    string
	dir   string
	fault Fault // nil breaks nothing

	rec     *observe.Recorder
	audit   *observe.Audit
	journal *Journal
	cfg     judge.Config
	opened  bool // the timeline has its header

	cluster *cluster.Cluster
	lock    *Lock // nil if the caller holds it
	nodes   map[string]Node
	wrap    func(Node) Node // nil but in tests
	target  *Target
	api     *apiCounter
	compare map[string]comparison // of the clocks, by the object of its facts

	mu   sync.Mutex
	fold *judge.Fold // of what was seen so far

	observing time.Time
	cpu       time.Duration
	stopAlive func()
	telling   sync.Mutex
	acting    sync.Mutex    // one thing at a time is done with the fault, but for Attend
	coming    atomic.Int32  // strikes and releases still to come
	released  atomic.Bool   // the fault was taken back before the undo
	fired     sync.Map      // nodes whose dead-man timer was told to have fired
	outcome   judge.Outcome // as far as it is known before the end
}

// begin makes the run's folder and starts its clock.
func begin(exp *Experiment, opts Options) (*run, error) {
	r := &run{exp: exp, opts: opts, nodes: map[string]Node{}, api: &apiCounter{}, stopAlive: func() {}}
	if make := kinds()[exp.Spec.Fault.Type].make; make != nil {
		r.fault = make()
	}
	r.rec = observe.NewRecorder(r.see)
	var err error
	if r.id, err = newID(r.rec.Start()); err != nil {
		return nil, err
	}
	r.dir = filepath.Join(opts.Artifacts, exp.Metadata.Name, r.id)
	err = os.MkdirAll(filepath.Dir(r.dir), 0o755)
	if err == nil {
		err = os.Mkdir(r.dir, 0o755) // nobody else's
	}
	if err != nil {
		return nil, fmt.Errorf("making the run's folder: %w", err)
	}
	if err := roomFor(r.dir, recordSize); err != nil {
		return nil, errors.Join(err, os.Remove(r.dir))
	}
	latest := filepath.Join(filepath.Dir(r.dir), "latest")
	_ = os.Remove(latest)
	if err := os.Symlink(r.id, latest); err != nil {
		r.say("no link to the latest run: %v", err)
	}
	r.phase("setup")
	return r, nil
}

// recordSize is more than the record of a long run takes.
const recordSize = 4 << 20

// roomFor says now what would otherwise be learned after the cluster was made:
// that the disk is full.
func roomFor(dir string, size int) error {
	probe := filepath.Join(dir, ".probe")
	err := errors.Join(os.WriteFile(probe, make([]byte, size), 0o644), os.Remove(probe))
	if err != nil {
		return fmt.Errorf("making room for the run's record: %w", err)
	}
	return nil
}

// see is told of every event: it keeps the live fold and tells of milestones.
func (r *run) see(e timeline.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fold == nil {
		return
	}
	for _, m := range r.fold.Add(e) {
		res := r.fold.Result(m)
		r.update(judge.Update{Milestone: &res})
	}
}

func (r *run) update(u judge.Update) {
	if r.opts.Progress != nil {
		r.telling.Lock()
		defer r.telling.Unlock()
		u.Elapsed, u.Folder = time.Since(r.rec.Start()), r.dir
		r.opts.Progress(u)
	}
}

func (r *run) say(format string, args ...any) {
	r.update(judge.Update{Text: fmt.Sprintf(format, args...)})
}

// fact records what the run itself did or saw.
func (r *run) fact(typ, object string, detail map[string]string) {
	r.rec.Emit(timeline.Event{Source: "run", Type: typ, Object: object, Detail: detail})
}

func (r *run) phase(name string) {
	r.fact(timeline.TypePhase, name, nil)
	r.update(judge.Update{Phase: name})
}

// prepare has everything that takes the fault back on disk, and armed in the
// nodes, before anything is changed.
func (r *run) prepare(ctx context.Context) error {
	r.phase("inject")
	if r.fault == nil {
		return nil
	}
	if ev, err := r.fault.Witness(ctx, r.target); err != nil {
		return err
	} else if ev.InPlace {
		return fmt.Errorf("the fault is in place before it was injected: %s", ev.Seen)
	}
	undo, repair := r.fault.Undo(r.target), repairSteps(r.target)
	for i, s := range undo {
		undo[i] = whenArmed(r.id, s)
		if err := r.journal.Undo(undo[i]); err != nil {
			return err
		}
	}
	for i, s := range repair {
		repair[i] = whenArmed(r.id, s)
		if err := r.journal.Repair(repair[i]); err != nil {
			return err
		}
	}
	if err := r.copyJournal(ctx); err != nil {
		return err
	}
	return r.arm(ctx, append(undo, repair...))
}

//go:embed copy-journal.sh
var copyJournal string

// copyJournal puts the journal into the control-plane node: the way back must not depend on
// the folder of the run.
func (r *run) copyJournal(ctx context.Context) error {
	text, err := r.journal.text()
	if err != nil {
		return err
	}
	if _, err := r.target.ControlPlane.bash(ctx, text, copyJournal, stage(r.id)); err != nil {
		return fmt.Errorf("copying the journal to %s: %w", r.target.ControlPlane.Name, err)
	}
	return nil
}

// inject breaks what the experiment says; with a moment of its own the fault comes
// later, and only the kubelet is stopped now.
func (r *run) inject(ctx context.Context) error {
	if r.fault == nil {
		r.fact(timeline.TypeMeasuring, "", nil)
		return nil
	}
	spec := r.exp.Spec.Fault
	if spec.At == nil {
		if err := r.strike(ctx); err != nil {
			return err
		}
	}
	if spec.Kubelet == "" {
		return nil
	}
	if spec.At == nil {
		if err := r.oneMoreRenewal(ctx); err != nil {
			return err
		}
	}
	stopped, err := r.target.stopKubelets(ctx)
	if err != nil {
		return err
	}
	if spec.At != nil {
		r.target.injected(stopped[0], "the kubelet is stopped")
	}
	for i, n := range r.target.Nodes {
		r.rec.Emit(timeline.Event{Stamp: stopped[i], Source: "run", Type: timeline.TypeKubeletStopped, Object: "node " + n.Name})
	}
	return nil
}

// oneMoreRenewal waits until every target has renewed its Lease under the fault: a
// controller that does not see that meets it later as news.
func (r *run) oneMoreRenewal(ctx context.Context) error {
	tim, err := r.cfg.Timing()
	if err != nil {
		return err
	}
	err = r.wait(ctx, 2*tim.I()+recoverDeadline, func(f *judge.Fold) bool {
		zero, began := f.Zero()
		for _, n := range r.target.Nodes {
			if !began || f.Renewed(n.Name) <= zero {
				return false
			}
		}
		return true
	})
	if errors.Is(err, errTooLate) {
		return errors.New("no Lease was renewed under the fault, although the kubelet ran")
	}
	return err
}

// strike is the fault itself.
func (r *run) strike(ctx context.Context) error {
	r.acting.Lock()
	defer r.acting.Unlock()
	defer func() { r.target.ca = nil }() // nothing more is to be signed
	return r.fault.Inject(ctx, r.target)
}

func (r *run) injectFailed(err error) {
	r.say("injecting: %v", err)
	r.fact(timeline.TypeInjectFailed, "", map[string]string{"why": err.Error()})
}
