package chaos

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
)

// Options say how to run an experiment.
type Options struct {
	// Artifacts is the folder below which the run's own folder is made:
	// <experiment>/<UTC time>-<4 hex digits>.
	Artifacts string
	// Image says how to find the node image. It is not used with Cluster.
	Image cluster.Choice
	// Cluster is one to use and keep. If nil, a cluster is created for the run
	// and deleted after it.
	Cluster *cluster.Cluster
	// Progress, if not nil, is told what happens. It must not block.
	Progress func(Update)
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

// An Update is one piece of news about a run: exactly one field besides Elapsed
// and Folder is set.
type Update struct {
	Elapsed   time.Duration // since the start of the run
	Folder    string        // of the run
	Phase     string        // that begins now
	Text      string        // something to tell
	Milestone *judge.Result // that was reached
	Next      *judge.Due    // the next one expected; told once a second
}

// Folder is where the record of a run lies below an artifacts folder.
func Folder(artifacts string, run *judge.Run) string {
	return filepath.Join(artifacts, run.Experiment, run.RunID)
}

// Run runs one experiment and judges it. A missed expectation, a failed set-up or
// a fault that did not bite is an outcome and no error; an error means that there
// is no record of the run. When ctx ends, whatever was changed is put right
// first, and the Run comes together with ctx's error.
func Run(ctx context.Context, exp *Experiment, opts Options) (*judge.Run, error) {
	r, err := begin(exp, opts)
	if err != nil {
		return nil, err
	}
	return r.story(ctx)
}

// story is the run from the beginning to the end. Each step records facts; the
// verdict is found in the file at the end.
func (r *run) story(ctx context.Context) (*judge.Run, error) {
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
	if err := r.inject(ctx); err != nil {
		r.say("injecting: %v", err)
		r.fact("InjectFailed", "", map[string]string{"why": err.Error()})
	} else {
		r.hold(ctx)
	}
	if r.opts.Pause && ctx.Err() == nil {
		r.pause(ctx)
	}
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
	lock    *lock
	nodes   map[string]Node
	wrap    func(Node) Node // nil but in tests
	target  *Target
	api     *apiCounter

	mu   sync.Mutex
	fold *judge.Fold // of what was seen so far

	observing time.Time
	cpu       time.Duration
	stopAlive func()
	outcome   judge.Outcome // as far as it is known before the end
}

// begin makes the run's folder and starts its clock.
func begin(exp *Experiment, opts Options) (*run, error) {
	r := &run{exp: exp, opts: opts, nodes: map[string]Node{}, api: &apiCounter{}, stopAlive: func() {}}
	if make := faults()[exp.Spec.Fault.Type]; make != nil {
		r.fault = make()
	}
	r.rec = observe.NewRecorder(r.see)
	var err error
	if r.id, err = newID(r.rec.Start()); err != nil {
		return nil, err
	}
	r.dir = filepath.Join(opts.Artifacts, exp.Metadata.Name, r.id)
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the run's folder: %w", err)
	}
	latest := filepath.Join(filepath.Dir(r.dir), "latest")
	_ = os.Remove(latest)
	if err := os.Symlink(r.id, latest); err != nil {
		r.say("no link to the latest run: %v", err)
	}
	r.phase("setup")
	return r, nil
}

// see is told of every event: it keeps the live fold and tells of milestones.
func (r *run) see(e observe.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fold == nil {
		return
	}
	for _, m := range r.fold.Add(e) {
		res := r.fold.Result(m)
		r.update(Update{Milestone: &res})
	}
}

func (r *run) update(u Update) {
	if r.opts.Progress != nil {
		u.Elapsed, u.Folder = time.Since(r.rec.Start()), r.dir
		r.opts.Progress(u)
	}
}

func (r *run) say(format string, args ...any) { r.update(Update{Text: fmt.Sprintf(format, args...)}) }

// fact records what the run itself did or saw.
func (r *run) fact(typ, object string, detail map[string]string) {
	r.rec.Emit(observe.Event{Source: "run", Type: typ, Object: object, Detail: detail})
}

func (r *run) phase(name string) {
	r.fact(judge.TypePhase, name, nil)
	r.update(Update{Phase: name})
}

// setUp makes the cluster, reads what is in force there, and writes the header.
func (r *run) setUp(ctx context.Context) error {
	r.sweep(ctx)
	c := r.opts.Cluster
	name := "flatline-" + r.id[len(r.id)-4:]
	if c != nil {
		name = c.Name
	}
	var err error
	if r.lock, err = lockCluster(name); err != nil {
		return err
	}
	if c == nil {
		r.phase("create")
		if c, err = createCluster(ctx, r.exp, r.opts, r.id, r.dir, r.say); err != nil {
			return err
		}
		r.phase("setup")
	}
	r.cluster = c
	rc := c.REST()
	rc.Wrap(r.api.wrap)
	rc.QPS = -1 // the API server has its own limits; ours would only delay facts
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	r.target = &Target{RunID: r.id, Spec: r.exp.Spec.Fault, Client: client, Emit: r.rec.Emit}
	r.cfg = judge.Config{KubernetesVersion: c.Version, NodeImage: c.Image, Cluster: c.Name, Canaries: r.exp.Spec.Canaries.labels()}
	r.pickNodes()
	if err := r.readConfig(ctx); err != nil {
		return err
	}
	if r.journal, err = CreateJournal(filepath.Join(r.dir, "journal.jsonl"), c.Name, r.id); err != nil {
		return err
	}
	return r.open()
}

// sweep tells of clusters of ours that nobody uses.
func (r *run) sweep(ctx context.Context) {
	idle, err := Idle(ctx)
	if err != nil {
		r.say("%v", err)
	}
	for _, i := range idle {
		if r.opts.Cluster == nil || i.Name != r.opts.Cluster.Name {
			r.say("cluster %s of run %s is there and nobody is at work on it: kept, or left behind; flatline clean removes it", i.Name, i.RunID)
		}
	}
}

// CreateCluster makes a cluster that fits an experiment, to be given to several
// runs as Options.Cluster. Its private kubeconfig lies in a folder below
// Options.Artifacts; deleting the cluster is up to the caller.
func CreateCluster(ctx context.Context, exp *Experiment, opts Options) (*cluster.Cluster, error) {
	id, err := newID(time.Now())
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(opts.Artifacts, "clusters", id)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the cluster's folder: %w", err)
	}
	return createCluster(ctx, exp, opts, id, dir, func(string, ...any) {})
}

// OpenCluster finds a cluster that was kept, for Options.Cluster. Its kubeconfig
// is that in the folder of the run that made it.
func OpenCluster(ctx context.Context, name, artifacts string) (*cluster.Cluster, error) {
	c, err := cluster.Open(ctx, name, "")
	if errors.Is(err, cluster.ErrNotFound) {
		return nil, invalid("there is no cluster %q of ours; flatline clean --dry-run lists those that there are", name)
	}
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(artifacts, "*", c.RunID, "kubeconfig"))
	if err != nil || len(files) != 1 {
		return nil, invalid("cluster %q: its kubeconfig is not below %s, where run %s would have put it", name, artifacts, c.RunID)
	}
	return cluster.Open(ctx, name, files[0])
}

func createCluster(ctx context.Context, exp *Experiment, opts Options, id, dir string, say func(string, ...any)) (*cluster.Cluster, error) {
	image, err := cluster.ChooseImage(ctx, opts.Image)
	if err != nil {
		return nil, err
	}
	say("node image %s (%s)", image.Ref, image.Origin)
	log := opts.Log
	if log == nil {
		log = io.Discard
	}
	return cluster.Create(ctx, cluster.Spec{
		Name: "flatline-" + id[len(id)-4:], RunID: id, Image: image.Ref, Workers: exp.Spec.Cluster.Workers,
		Flags: exp.Spec.Cluster.flags(), Kubeconfig: filepath.Join(dir, "kubeconfig"),
	}, log)
}

// newID names a run or a cluster: the time, and four random digits.
func newID(now time.Time) (string, error) {
	var random [2]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", fmt.Errorf("naming the run: %w", err)
	}
	return now.UTC().Format("20060102t150405z-") + hex.EncodeToString(random[:]), nil
}

// pickNodes takes the last workers as targets: the first and the control plane
// stay control nodes.
func (r *run) pickNodes() {
	nodes := r.cluster.Nodes()
	for i, n := range nodes {
		node := Node{Name: n.Name, Node: n}
		if r.wrap != nil {
			node = r.wrap(node)
		}
		r.nodes[n.Name] = node
		r.cfg.Nodes = append(r.cfg.Nodes, judge.Node{Name: n.Name, Role: n.Role, IP: n.IP})
		if i == 0 {
			r.target.ControlPlane = node
		}
		if i >= len(nodes)-r.exp.Spec.Target.Count {
			r.target.Nodes = append(r.target.Nodes, node)
			r.cfg.Target = append(r.cfg.Target, n.Name)
		} else {
			r.target.ControlNodes = append(r.target.ControlNodes, node)
			r.cfg.ControlNodes = append(r.cfg.ControlNodes, n.Name)
		}
	}
}

// readConfig reads effective flags and how the nodes' clock stands to ours, and
// warns where a flag is not what the experiment asked for.
func (r *run) readConfig(ctx context.Context) error {
	flags, err := r.cluster.Flags(ctx)
	if err != nil {
		return err
	}
	r.cfg.Flags = map[string]map[string]judge.Flag{}
	for component, m := range flags {
		r.cfg.Flags[component] = map[string]judge.Flag{}
		for name, f := range m {
			r.cfg.Flags[component][name] = judge.Flag(f)
		}
	}
	bootID, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	clock, err := observe.CompareClocks(ctx, r.target.ControlPlane, string(bootID))
	if err != nil {
		return err
	}
	if !clock.Same {
		r.cfg.ClockOffset, r.cfg.ClockError = clock.Offset.Seconds(), clock.Error.Seconds()
		r.cfg.Warnings = append(r.cfg.Warnings, fmt.Sprintf("the nodes have another kernel than the observer: their clock is %.3f s ahead, give or take %.3f s", r.cfg.ClockOffset, r.cfg.ClockError))
	}
	for component, m := range r.exp.Spec.Cluster.Flags {
		for name, want := range m {
			f, known := r.cfg.Flags[component][name]
			if !known || sameValue(f.Value, string(want)) {
				continue
			}
			why := fmt.Sprintf("flag %s of %s is %s (%s), the experiment asks for %s", name, component, f.Value, f.Origin, want)
			if r.opts.Cluster != nil {
				return fmt.Errorf("cluster %s does not fit: %s", r.cluster.Name, why)
			}
			r.cfg.Warnings = append(r.cfg.Warnings, why)
		}
	}
	tim, err := r.cfg.Timing()
	if err != nil {
		return err
	}
	for _, w := range append(tim.Warnings(), r.cfg.Warnings...) {
		r.say("warning: %s", w)
	}
	return nil
}

// sameValue compares flag values as durations where both are.
func sameValue(a, b string) bool {
	da, ea := time.ParseDuration(a)
	db, eb := time.ParseDuration(b)
	return a == b || ea == nil && eb == nil && da == db
}

// open writes line 1 of the timeline.
func (r *run) open() error {
	exp, err := json.Marshal(r.exp)
	if err != nil {
		return fmt.Errorf("writing the experiment: %w", err)
	}
	cfg, err := json.Marshal(r.cfg)
	if err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	r.opened = true
	return r.rec.Open(filepath.Join(r.dir, "timeline.jsonl"), observe.Header{RunID: r.id, Experiment: exp, Config: cfg})
}

// steady starts every source, places the canaries, and waits until the cluster is
// as it must be before a fault.
func (r *run) steady(ctx context.Context) error {
	r.phase("steady")
	fold, err := judge.NewFold(&r.cfg, r.rec.Start())
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.fold = fold
	r.mu.Unlock()
	r.observing, r.cpu = time.Now(), cpuTime()
	r.api.reset()
	t := r.target
	r.audit = &observe.Audit{Node: t.ControlPlane, Path: cluster.AuditLog}
	sources := map[string]observe.Source{"audit": r.audit}
	for _, w := range []*observe.Watch{observe.Leases(t.Client), observe.Nodes(t.Client), observe.Pods(t.Client), observe.CSRs(t.Client)} {
		sources[w.Resource] = w
	}
	for name, n := range r.nodes {
		sources["kubelet "+name] = &observe.Kubelet{Node: n, Name: name}
	}
	if err := r.rec.Watch(context.WithoutCancel(ctx), sources); err != nil {
		return err
	}
	image, err := pauseImage(ctx, t.Nodes[0])
	if err != nil {
		return err
	}
	if err := createCanaries(ctx, t.Client, r.exp.Spec.Canaries, r.id, t.Nodes[0].Name, image); err != nil {
		return err
	}
	if r.fault != nil {
		r.snapshot(ctx, "before")
		if err := r.stageSpares(ctx); err != nil {
			return err
		}
	}
	if err := r.waitSteady(ctx); err != nil {
		return err
	}
	if c := r.exp.Spec.Fault.Certificate; c != nil && c.From == "rotation" {
		if err := r.waitRotation(ctx); err != nil {
			return err
		}
	}
	r.components(ctx)
	return ctx.Err()
}

// steadyDeadline is how long a cluster may take to become steady after it was
// created.
const steadyDeadline = 2 * time.Minute

func (r *run) waitSteady(ctx context.Context) error {
	var why string
	err := r.wait(ctx, steadyDeadline, func(f *judge.Fold) bool { why = f.Unsteady(); return why == "" })
	if errors.Is(err, errTooLate) {
		return fmt.Errorf("waiting for the steady state: %s", why)
	}
	return err
}

// freshCertificate is how long ago a target may have been issued its certificate
// when the fault comes: early enough that it has not yet asked for the next.
const freshCertificate = 15 * time.Second

// waitRotation waits until every target has just been issued a certificate.
func (r *run) waitRotation(ctx context.Context) error {
	r.say("waiting for the target's next certificate, so that the fault meets a fresh one")
	longest := 10 * time.Minute
	return r.wait(ctx, longest, func(f *judge.Fold) bool {
		for _, n := range r.target.Nodes {
			_, rotated := f.Certificate(n.Name)
			if rotated == 0 || f.Now()-rotated > freshCertificate {
				return false
			}
		}
		return true
	})
}

var errTooLate = errors.New("it took too long")

// wait returns when the condition holds for what was seen so far, or errTooLate.
// It tells once a second what is expected next.
func (r *run) wait(ctx context.Context, atMost time.Duration, ok func(*judge.Fold) bool) error {
	deadline := time.NewTimer(atMost)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		r.mu.Lock()
		done := ok(r.fold)
		next := r.next()
		r.mu.Unlock()
		if done {
			return nil
		}
		if n%10 == 0 && next != nil {
			r.update(Update{Next: next})
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return errTooLate
		case <-tick.C:
		}
	}
}

// next is the expected milestone that is due first; the caller holds the lock.
func (r *run) next() *judge.Due {
	var first *judge.Due
	for _, n := range r.target.Nodes {
		for _, x := range r.exp.Spec.Expect {
			due, done := r.fold.Due(judge.Key{Name: x.Milestone, Node: n.Name, Subject: x.Subject})
			if !done && due.Known && (first == nil || due.To < first.To) {
				first = &due
			}
		}
	}
	return first
}

// prepare has everything that takes the fault back on disk, and armed in the
// nodes, before anything is changed.
func (r *run) prepare(ctx context.Context) error {
	r.phase("inject")
	if r.fault == nil {
		return nil
	}
	undo, err := r.fault.Prepare(ctx, r.target)
	if err != nil {
		return err
	}
	repair := r.repairSteps()
	for _, s := range undo {
		if err := r.journal.Undo(s); err != nil {
			return err
		}
	}
	for _, s := range repair {
		if err := r.journal.Repair(s); err != nil {
			return err
		}
	}
	return r.arm(ctx, append(undo, repair...))
}

// inject breaks what the experiment says.
func (r *run) inject(ctx context.Context) error {
	if r.fault == nil {
		r.fact(judge.TypeMeasuring, "", nil)
		return nil
	}
	return r.fault.Inject(ctx, r.target)
}

// arm gives every node that has steps of its own a dead-man timer, and begins to
// give signs of life.
func (r *run) arm(ctx context.Context, steps []Step) error {
	byNode := map[string][]Step{}
	for _, s := range steps {
		byNode[s.On] = append(byNode[s.On], s)
	}
	var armed []Node
	for name, s := range byNode {
		if err := armDeadMan(ctx, r.nodes[name], r.id, s); err != nil {
			return err
		}
		armed = append(armed, r.nodes[name])
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var alive sync.WaitGroup
	alive.Go(func() { r.stayAlive(ctx, armed) })
	r.stopAlive = func() { stop(); alive.Wait() }
	return nil
}

func (r *run) stayAlive(ctx context.Context, armed []Node) {
	tick := time.NewTicker(keepAliveEvery)
	defer tick.Stop()
	told := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, n := range armed {
			fired, err := keepAlive(ctx, n, r.id)
			if err != nil && ctx.Err() == nil {
				r.fact("KeepAliveFailed", "node "+n.Name, map[string]string{"why": err.Error()})
			}
			if fired && !told[n.Name] {
				told[n.Name] = true
				r.fact(judge.TypeDeadMan, "node "+n.Name, nil)
			}
		}
	}
}

// witnessEvery is how often the fault is looked at.
const witnessEvery = 5 * time.Second

// hold waits until every expected milestone is there or its window has passed,
// and for as long as the experiment says; meanwhile the fault is looked at.
func (r *run) hold(ctx context.Context) {
	r.phase("hold")
	wctx, stop := context.WithCancel(ctx)
	var witness sync.WaitGroup
	if r.fault != nil {
		witness.Go(func() { r.watchFault(wctx) })
	}
	defer func() { stop(); witness.Wait() }()

	least := time.NewTimer(time.Duration(r.exp.Spec.Hold))
	defer least.Stop()
	err := r.wait(ctx, r.longestHold(), r.settled)
	if errors.Is(err, errTooLate) {
		r.say("the expected milestones did not all come; going on")
	}
	select {
	case <-ctx.Done():
	case <-least.C:
	}
	if ctx.Err() != nil {
		r.fact(judge.TypeInterrupted, "", nil)
	}
}

// watchFault records what the witness sees until ctx ends.
func (r *run) watchFault(ctx context.Context) {
	tick := time.NewTicker(witnessEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		look, cancel := context.WithTimeout(ctx, witnessEvery)
		ev, err := r.fault.Witness(look, r.target)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.fact("WitnessFailed", "", map[string]string{"why": err.Error()})
		default:
			r.fact(judge.TypeWitness, "", map[string]string{"inPlace": fmt.Sprint(ev.InPlace), "biting": fmt.Sprint(ev.Biting), "seen": ev.Seen})
		}
	}
}

// patience is how long a milestone without a derived bound is waited for.
const patience = 30 * time.Second

// settled says whether nothing more can come before the undo.
func (r *run) settled(f *judge.Fold) bool {
	for _, n := range r.target.Nodes {
		for _, x := range r.exp.Spec.Expect {
			if !judge.Recovery(x.Milestone) && !f.Settled(judge.Key{Name: x.Milestone, Node: n.Name, Subject: x.Subject}, patience) {
				return false
			}
		}
	}
	return true
}

// longestHold bounds the hold whatever the milestones do: what is left of the
// certificate, the grace, a spent eviction token, the longest toleration, and a
// minute.
func (r *run) longestHold() time.Duration {
	tim, err := r.cfg.Timing()
	if err != nil {
		return time.Minute
	}
	long := time.Minute + 2*tim.G + time.Duration(float64(time.Second)/tim.Q) + time.Duration(r.exp.Spec.Hold)
	if tolerations := r.exp.Spec.Canaries.Tolerations; len(tolerations) > 0 {
		long += time.Duration(slices.Max(tolerations))
	}
	switch c := r.exp.Spec.Fault.Certificate; {
	case c == nil:
	case c.Mint > 0:
		long += time.Duration(c.Mint)
	default:
		for _, n := range r.target.Nodes {
			r.mu.Lock()
			notAfter, _ := r.fold.Certificate(n.Name)
			r.mu.Unlock()
			long += time.Until(notAfter)
		}
	}
	return long
}

// pause waits before the undo, for somebody who wants to look around.
func (r *run) pause(ctx context.Context) {
	r.phase("pause")
	file := filepath.Join(r.dir, "continue")
	r.say("stopped before the undo; look around with\n  export KUBECONFIG=%s\nand go on with\n  touch %s", r.cluster.Kubeconfig(), file)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(file); err == nil {
			return
		}
		select {
		case <-ctx.Done():
			r.fact(judge.TypeInterrupted, "", nil)
			return
		case <-tick.C:
		}
	}
}

// hurried says whether somebody is in a hurry.
func (r *run) hurried() bool {
	select {
	case <-r.opts.Hurry:
		return true
	default:
		return false
	}
}

// recoverDeadline is how long a repaired node may take to be as before.
const recoverDeadline = 90 * time.Second

// putRight undoes the fault, repairs the targets, waits until they are as before
// and compares them with what they were. It is not stopped by the end of ctx.
func (r *run) putRight(ctx context.Context) {
	if r.fault == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
	defer cancel()
	r.phase("undo")
	out, err := runSteps(ctx, r.nodes, r.journal.Steps("undo"))
	if err != nil {
		r.fact(judge.TypeStepFailed, "undo", map[string]string{"why": err.Error()})
	} else {
		r.rec.Emit(observe.Event{Stamp: lastStamp(out), Source: "run", Type: judge.TypeUndone})
	}
	r.phase("repair")
	steps := r.journal.Steps("repair")
	out, repairErr := runSteps(ctx, r.nodes, steps)
	if repairErr != nil {
		r.fact(judge.TypeStepFailed, "repair", map[string]string{"why": repairErr.Error()})
	}
	for i, s := range steps {
		if at, perr := observe.ParseEpoch(out[i]); perr == nil {
			r.rec.Emit(observe.Event{Stamp: at, Source: "run", Type: judge.TypeRepaired, Object: "node " + s.On})
		}
	}
	var missing string
	healErr := r.wait(ctx, recoverDeadline, func(f *judge.Fold) bool { missing = f.Unhealed(); return missing == "" })
	if healErr != nil {
		r.fact(judge.TypeNotHealed, "", map[string]string{"why": missing})
	}
	r.stopAlive()
	if err == nil && repairErr == nil && healErr == nil {
		r.clean(ctx)
	} // else what is staged is needed: by the dead-man timers, and by Heal
	r.snapshot(ctx, "after")
}

// clean removes what the run itself put into the nodes.
func (r *run) clean(ctx context.Context) {
	if _, err := runSteps(ctx, r.nodes, r.journal.Steps("clean")); err != nil {
		r.fact(judge.TypeStepFailed, "clean", map[string]string{"why": err.Error()})
	}
}

// lastStamp is the last output that is a time; zero if there is none.
func lastStamp(out []string) time.Time {
	var last time.Time
	for _, s := range out {
		if at, err := observe.ParseEpoch(s); err == nil {
			last = at
		}
	}
	return last
}

// collect ends the observation: the audit log is read once more as a whole, and
// when the run did not pass the logs that explain it are kept.
func (r *run) collect(ctx context.Context) {
	r.phase("collect")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	r.components(ctx)
	r.rec.Stop()
	if r.hurried() {
		r.rec.Emit(observe.Event{Source: "recorder", Type: observe.TypeGap, Object: "audit", Detail: map[string]string{"from": "0", "why": "there was no time to read the log as a whole"}})
	} else if err := r.audit.ReadAll(ctx, r.rec.Emit); err != nil {
		r.fact(observe.TypeGap, "audit", map[string]string{"from": "0", "why": err.Error()})
	}
	r.fact(judge.TypeCost, "", map[string]string{
		"apiRequests": fmt.Sprint(r.api.count()), "cpuSeconds": observe.Seconds(cpuTime() - r.cpu), "observeSeconds": observe.Seconds(time.Since(r.observing))})
	t := &observe.Timeline{Events: r.rec.Events(), Header: observe.Header{RunID: r.id, Start: r.rec.Start()}}
	t.Header.Experiment, _ = json.Marshal(r.exp)
	t.Header.Config, _ = json.Marshal(r.cfg)
	verdict, err := judge.Judge(t)
	if err == nil {
		r.outcome = verdict.Outcome
	}
	if r.outcome != judge.OutcomePass && !r.hurried() {
		r.keepLogs(ctx)
	}
	if r.journal != nil && r.outcome != judge.OutcomeDirty {
		if err := r.journal.Close(); err != nil {
			r.say("closing the journal: %v", err)
		}
	}
}

// keepLogs saves what kubelets and the controller manager said.
func (r *run) keepLogs(ctx context.Context) {
	dir := filepath.Join(r.dir, "logs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.say("keeping logs: %v", err)
		return
	}
	for name, n := range r.nodes {
		out, _ := n.script(ctx, nil, "journalctl -u kubelet --no-pager -o short-precise | tail -n 4000")
		_ = os.WriteFile(filepath.Join(dir, "kubelet-"+name+".log"), []byte(out), 0o644)
	}
	out, _ := r.target.ControlPlane.script(ctx, nil, "tail -n 4000 /var/log/containers/kube-controller-manager-*.log")
	_ = os.WriteFile(filepath.Join(dir, "kube-controller-manager.log"), []byte(out), 0o644)
}

// setupFailed records why there was nothing to measure, and takes back what was
// prepared.
func (r *run) setupFailed(ctx context.Context, err error) {
	why := err.Error()
	if ctx.Err() != nil {
		why = "interrupted"
	}
	r.stopAlive()
	if r.journal != nil && r.opts.Cluster != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		r.clean(cleanup)
	}
	r.outcome = judge.OutcomeSetupFailed
	r.fact(judge.TypeSetupFailed, "", map[string]string{"why": why})
}

// end takes the cluster away, closes the timeline and judges it from the file.
func (r *run) end(ctx context.Context) (*judge.Run, error) {
	r.phase("delete")
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	switch {
	case r.cluster == nil:
	case r.opts.Cluster != nil:
		if err := deleteCanaries(cleanup, r.target.Client, r.id); err != nil {
			r.say("%v", err)
		}
	case r.keeps():
		r.say("cluster %s is kept (%s); use it with\n  export KUBECONFIG=%s\nand remove it with flatline clean", r.cluster.Name, r.outcome, r.cluster.Kubeconfig())
	default:
		r.rec.Stop()
		if err := r.cluster.Delete(cleanup); err != nil {
			r.say("%v", err)
		}
	}
	r.lock.release()
	r.phase("end")
	if !r.opened {
		if err := r.open(); err != nil {
			return nil, err
		}
	}
	if err := r.rec.Close(); err != nil {
		return nil, err
	}
	run, err := JudgeFolder(r.dir)
	if err != nil {
		return nil, err
	}
	return run, context.Cause(ctx)
}

// keeps says whether the cluster stays.
func (r *run) keeps() bool {
	return r.outcome == judge.OutcomeDirty || r.opts.Keep == KeepAlways || r.opts.Keep == KeepOnFailure && r.outcome != judge.OutcomePass
}

// JudgeFolder judges the timeline in a run's folder and writes run.json beside it.
func JudgeFolder(dir string) (*judge.Run, error) {
	t, err := observe.ReadTimelineFile(filepath.Join(dir, "timeline.jsonl"))
	if err != nil {
		return nil, err
	}
	run, err := judge.Judge(t)
	if err != nil {
		return nil, err
	}
	out, err := json.MarshalIndent(run, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing run.json: %w", err)
	}
	tmp := filepath.Join(dir, ".run.json")
	if err := os.WriteFile(tmp, append(out, '\n'), 0o644); err != nil {
		return nil, fmt.Errorf("writing run.json: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, "run.json")); err != nil {
		return nil, fmt.Errorf("writing run.json: %w", err)
	}
	return run, nil
}
