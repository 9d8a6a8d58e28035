package chaos

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/flatline-chaos/flatline/internal/safely"
	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// spareLife is how long the spare certificate is valid: long enough that a node
// forgotten over night can still be healed from its journal.
const spareLife = 24 * time.Hour

//go:embed stage-spare.sh
var stageSpare string

// stageSpares puts into every target the certificate with which it is repaired:
// signed by the cluster's CA and past its rotation deadline. The kubelet is
// healthy with it at once and asks for a regular one, which proves that approver,
// signer and the store work again. Neither CA nor API is needed when it is used.
func (r *run) stageSpares(ctx context.Context) error {
	t := r.target
	ca, err := readAuthority(ctx, t.ControlPlane)
	if err != nil {
		return err
	}
	ca.offset = t.Offset
	t.ca = ca
	guard := slices.ContainsFunc(r.fault.Undo(t), func(s Step) bool { return s.Do != "" })
	// On disk before the folders are there: what a killed runner staged goes too. The
	// control plane comes last, since it keeps a copy of the journal.
	for _, n := range t.Nodes {
		if err := r.journal.cleanAll(cleanSteps(n.Name, r.id, guard)); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(t.Nodes, func(n Node) bool { return n.Name == t.ControlPlane.Name }) {
		if err := r.journal.cleanAll(cleanSteps(t.ControlPlane.Name, r.id, false)); err != nil {
			return err
		}
	}
	if err := r.copyJournal(ctx); err != nil {
		return err
	}
	nodes := map[string]Node{}
	for _, n := range t.Nodes {
		nodes[n.Name] = n
	}
	return atOnce(slices.Collect(maps.Keys(nodes)), func(name string) error {
		pem, err := ca.rotateNow(name, spareLife)
		if err != nil {
			return err
		}
		if _, err := nodes[name].bash(ctx, pem, stageSpare, stage(r.id)); err != nil {
			return fmt.Errorf("staging the spare certificate on %s: %w", name, err)
		}
		return nil
	})
}

// repairSteps bring a target back whatever state it is in: expired, crash-looping
// or with files made unusable. They need nothing but the node itself.
func repairSteps(t *Target) []Step {
	var steps []Step
	for _, n := range t.Nodes {
		steps = append(steps,
			Step{Desc: "installing the spare certificate", On: n.Name,
				Script: inStage(t.RunID, "systemctl stop kubelet\n"+installScript("spare.pem", "flatline-spare.pem"))},
			Step{Desc: "starting the kubelet", On: n.Name,
				Script: inStage(t.RunID, "at=$(date +%s.%N)\nsystemctl reset-failed kubelet 2>/dev/null\nsystemctl start kubelet && echo $at")})
	}
	return steps
}

//go:embed snapshot.sh
var snapshotFile string

// snapshotScript prints what a run must leave as it found it in a node. A node may have got
// another address since, by a restart of the engine: kind puts that into its files.
func snapshotScript() string { return given(snapshotFile, pkiDir, kubeletConfig, manifests) }

//go:embed cluster-state.sh
var clusterFile string

// clusterScript prints what a run must leave as it found it in the API. It runs on
// the control-plane node.
func clusterScript() string {
	return given(adminFunction+clusterFile, rotationBinding, signerRole)
}

// readState reads what a run must leave as it found it, by object.
func readState(ctx context.Context, nodes map[string]Node, controlPlane string) map[string]map[string]string {
	state := map[string]map[string]string{}
	var mu sync.Mutex
	var all sync.WaitGroup
	read := func(object string, n Node, script string) {
		d := map[string]string{}
		out, err := n.script(ctx, nil, script)
		if err != nil {
			d["unreadable"] = err.Error()
		}
		for line := range strings.Lines(out) {
			if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
				d[k] = v
			}
		}
		mu.Lock()
		defer mu.Unlock()
		state[object] = d
	}
	all.Go(func() { read("cluster", nodes[controlPlane], clusterScript()) })
	for name, n := range nodes { // at once: each waits for processes in a node
		all.Go(func() { read("node "+name, n, snapshotScript()) })
	}
	all.Wait()
	return state
}

// snapshot records the state before or after, and returns it.
func (r *run) snapshot(ctx context.Context, when string) map[string]map[string]string {
	state := readState(ctx, r.nodes, r.target.ControlPlane.Name)
	for _, object := range slices.Sorted(maps.Keys(state)) {
		d := maps.Clone(state[object])
		d["when"] = when
		r.fact(timeline.TypeSnapshot, object, d)
	}
	return state
}

// leftover says what an earlier run has left on a cluster, or what could not be
// read; empty if nothing.
func leftover(state map[string]map[string]string) string {
	for _, object := range slices.Sorted(maps.Keys(state)) {
		if why := state[object]["unreadable"]; why != "" {
			return object + ": " + why
		}
		for key, clean := range map[string]string{"staged": "", "ours": "0", "timers": "0", "pending": "absent", "frozen": "0"} {
			if v, read := state[object][key]; read && v != clean {
				return fmt.Sprintf("%s has %s %s", object, key, v)
			}
		}
	}
	return ""
}

// components records which containers the control plane runs in: a change of one
// resets the controllers' clocks.
func (r *run) components(ctx context.Context) {
	out, err := r.target.ControlPlane.script(ctx, nil, `set -o pipefail
crictl ps -o json | jq -r '[.containers[] |
	select(.metadata.name | IN("kube-controller-manager", "kube-apiserver", "etcd", "kube-scheduler"))] |
	sort_by(.createdAt) | .[] | .metadata.name + " " + .id[:13]'`)
	if err != nil {
		r.fact(timeline.TypeLookFailed, "control plane", map[string]string{"why": err.Error()})
		return
	}
	for line := range strings.Lines(out) {
		if name, id, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			r.fact(timeline.TypeController, name, map[string]string{"id": id})
		}
	}
}

// A Patient is a cluster with the journal of the run that changed it.
type Patient struct {
	Name         string // the folder of the run, or the cluster and the run
	file         string // the journal; "" if it is the copy in the cluster
	records      []Record
	nodes        map[string]Node
	controlPlane string
	before       map[string]map[string]string // the state that the run found
}

// ErrGone says that the cluster of a journal does not exist any more: nothing is left to heal.
var ErrGone = errors.New("the cluster is gone")

// Examine reads the journal in a run's folder and finds the cluster. The error wraps ErrGone
// if there is none.
func Examine(ctx context.Context, dir string) (*Patient, error) {
	real, err := filepath.EvalSymlinks(dir) // "latest" may come to mean another run meanwhile
	if err != nil {
		return nil, fmt.Errorf("healing %s: %w", dir, err)
	}
	file := filepath.Join(real, "journal.jsonl")
	f, err := safely.Open(file)
	if err != nil {
		return nil, fmt.Errorf("healing %s: %w", dir, err)
	}
	defer f.Close()
	p, err := examine(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("healing %s: %w", dir, err)
	}
	p.Name, p.file = dir, file
	return p, nil
}

func examine(ctx context.Context, journal io.Reader) (*Patient, error) {
	records, err := ReadJournal(journal)
	if err != nil {
		return nil, err
	}
	c, err := cluster.Open(ctx, records[0].Cluster, "")
	if errors.Is(err, cluster.ErrNotFound) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, err
	}
	return newPatient(c.Nodes(), records)
}

// ExamineCluster finds the copies of journals that lie in a cluster's control-plane node,
// for when the folders of the runs are lost.
func ExamineCluster(ctx context.Context, name string) ([]*Patient, error) {
	c, err := cluster.Open(ctx, name, "")
	if errors.Is(err, cluster.ErrNotFound) {
		return nil, invalid("there is no cluster %q of flatline's; %s lists them", name, Command("clean", "--all", "--dry-run"))
	}
	if err != nil {
		return nil, err
	}
	control := Node{c.Nodes()[0].Name, c.Nodes()[0]} // the control plane comes first
	out, err := control.script(ctx, nil, "cat $(ls -tr /var/lib/flatline/*/journal.jsonl 2>/dev/null) </dev/null")
	if err != nil {
		return nil, fmt.Errorf("looking for journals in %s: %w", control.Name, err)
	}
	journals, err := splitJournals(out)
	if err != nil {
		return nil, fmt.Errorf("healing cluster %s: %w", name, err)
	}
	var all []*Patient
	for _, records := range journals {
		p, err := newPatient(c.Nodes(), records)
		if err != nil {
			return nil, fmt.Errorf("healing cluster %s: %w", name, err)
		}
		p.Name = "cluster " + name + ", run " + records[0].RunID
		all = append(all, p)
	}
	return all, nil
}

// splitJournals reads journals that stand one behind another.
func splitJournals(text string) ([][]Record, error) {
	const first = `{"kind":"cluster"`
	var all [][]Record
	for i, part := range strings.Split(text, first) {
		if i == 0 {
			if part != "" {
				return nil, errors.New("reading journal: line 1: no cluster record")
			}
			continue
		}
		records, err := ReadJournal(strings.NewReader(first + part))
		if err != nil {
			return nil, err
		}
		all = append(all, records)
	}
	return all, nil
}

// newPatient refuses nodes that are not those of the journal's cluster.
func newPatient(nodes []*cluster.Node, records []Record) (*Patient, error) {
	p := &Patient{records: records, nodes: map[string]Node{}, before: map[string]map[string]string{}}
	first := records[0]
	if len(first.Containers) == 0 {
		return nil, errors.New("its journal does not say which containers it is about: the version of flatline that made the run has to heal it")
	}
	for _, n := range nodes {
		if was, known := first.Containers[n.Name]; known && was != n.ID {
			return nil, fmt.Errorf("node %s is another container than the one that the journal is about: cluster %s was made anew", n.Name,
				first.Cluster)
		} else if !known {
			return nil, fmt.Errorf("the journal does not know node %s of cluster %s", n.Name, first.Cluster)
		}
		p.nodes[n.Name] = Node{n.Name, n}
		if n.Role == "control-plane" {
			p.controlPlane = n.Name
		}
	}
	if p.controlPlane == "" {
		return nil, fmt.Errorf("cluster %s has no control-plane node any more", first.Cluster)
	}
	for _, r := range records {
		if r.Step != nil && first.Containers[r.Step.On] == "" {
			return nil, fmt.Errorf("a step of the journal is about %q, which is no node of its cluster", r.Step.On)
		}
		if r.Kind == "before" {
			p.before = r.Before
		}
	}
	return p, nil
}

// Steps are what Heal takes, in their order.
func (p *Patient) Steps() []Step {
	return slices.Concat(stepsOf(p.records, "undo"), stepsOf(p.records, "repair"), stepsOf(p.records, "clean"))
}

// Differences says what is not as the run found it. What cannot be seen any more is not
// as it was.
func (p *Patient) Differences(ctx context.Context) []string {
	var diffs []string
	now := readState(ctx, p.nodes, p.controlPlane)
	for _, object := range slices.Sorted(maps.Keys(p.before)) {
		was, is := p.before[object], now[object]
		if is == nil {
			diffs = append(diffs, object+": is gone")
			continue
		}
		keys := maps.Clone(was)
		maps.Copy(keys, is)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if is[key] != was[key] {
				diffs = append(diffs, fmt.Sprintf("%s: %s was %q and is %q", object, key, was[key], is[key]))
			}
		}
	}
	return diffs
}

// Heal puts right what a run left behind, from its journal alone, and compares the result
// with what the run had found. It may be called any number of times, by any process: the
// journal stays open until nothing differs. say is told of every step.
func (p *Patient) Heal(ctx context.Context, say func(string)) error {
	err := p.cure(ctx, say)
	if err == nil && p.file != "" {
		err = closeJournal(p.file)
	}
	if err != nil {
		return fmt.Errorf("healing %s: %w", p.Name, err)
	}
	return nil
}

// cure takes the cluster's lock, heals, and says what differs after that.
func (p *Patient) cure(ctx context.Context, say func(string)) error {
	l, err := lockCluster(p.records[0].Cluster)
	if err != nil {
		return err
	}
	defer l.Release()
	if err := p.heal(ctx, say); err != nil {
		return err
	}
	if diffs := p.Differences(ctx); len(diffs) > 0 {
		return fmt.Errorf("every step went well, but\n  %s", strings.Join(diffs, "\n  "))
	}
	return nil
}

// Unhealed lists the folders of runs below an artifacts folder whose journal was not closed
// and whose cluster may still be there: what cannot be looked at is listed too. Folders of
// another user are passed over, and told.
func Unhealed(ctx context.Context, artifacts string, say func(string)) ([]string, error) {
	var journals []string
	err := filepath.WalkDir(artifacts, func(path string, d fs.DirEntry, err error) error { // which follows no links
		if err == nil && d.Name() == "journal.jsonl" {
			journals = append(journals, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking for journals: %w", err)
	}
	var open []string
	for _, name := range journals {
		dir := filepath.Dir(name)
		if closed(name) {
			continue
		}
		if !own(name) {
			say(dir + " belongs to another user: name it to heal it")
			continue
		}
		if _, err := Examine(ctx, dir); !errors.Is(err, ErrGone) {
			open = append(open, dir)
		}
	}
	return open, nil
}

// closed says whether a journal says that everything was put right.
func closed(name string) bool {
	f, err := safely.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	records, err := ReadJournal(f)
	return err == nil && records[len(records)-1].Kind == "closed"
}

// own says whether a file is of the user, or of the one who became root with sudo.
func own(name string) bool {
	info, err := os.Lstat(name)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	owner := fmt.Sprint(stat.Uid)
	return ok && (owner == fmt.Sprint(os.Geteuid()) || os.Geteuid() == 0 && owner == os.Getenv("SUDO_UID"))
}

// heal runs the steps. What is staged is removed only when all else went well: it
// is needed for the next try.
func (p *Patient) heal(ctx context.Context, say func(string)) error {
	var errs []error
	stop, err := p.stayAlive(ctx)
	defer stop()
	if err != nil {
		errs = append(errs, err)
	}
	run := func(kind string) {
		for _, s := range stepsOf(p.records, kind) {
			say(s.Desc + " on " + s.On)
			if _, err := runSteps(ctx, p.nodes, []Step{s}); err != nil {
				errs = append(errs, err)
			}
		}
	}
	run("undo")
	run("repair")
	for _, n := range targetsOf(p.records) {
		if _, ok := p.nodes[n]; !ok {
			continue // the comparison says so
		}
		say("waiting for " + n + " to be Ready, untainted and with a certificate of its own")
		if _, err := p.nodes[p.controlPlane].script(ctx, nil, waitHealthy(n)); err != nil {
			errs = append(errs, fmt.Errorf("waiting for node %s: %w", n, err))
		}
		if _, err := p.nodes[n].bash(ctx, nil, waitRotated, timeline.CurrentCertificate); err != nil {
			errs = append(errs, fmt.Errorf("waiting for node %s to rotate: %w", n, err))
		}
	}
	say("removing the canaries")
	if _, err := p.nodes[p.controlPlane].script(ctx, nil, removeCanaries(p.records[0].RunID)); err != nil {
		errs = append(errs, fmt.Errorf("removing the canaries: %w", err))
	}
	if len(errs) == 0 {
		run("clean")
	}
	return errors.Join(errs...)
}

// removeCanaries has the run's namespace vanish, a little later.
func removeCanaries(runID string) string {
	return admin + "delete namespace --ignore-not-found --wait=false " + canaryNamespace(runID) + " >/dev/null"
}

// stayAlive keeps the dead-man timers quiet while somebody heals: should that end
// too, they act. A timer that is at work already is waited for.
func (p *Patient) stayAlive(ctx context.Context) (stop func(), err error) {
	clean, id := stepsOf(p.records, "clean"), p.records[0].RunID
	armed := watchers(p.nodes, clean, id)
	err = settleAll(ctx, p.nodes, clean, id)
	ctx, cancel := context.WithCancel(ctx)
	var alive sync.WaitGroup
	alive.Go(func() { giveSigns(ctx, armed, func(watcher, bool, error) {}) })
	return func() { cancel(); alive.Wait() }, err
}

//go:embed wait-healthy.sh
var waitHealthyFile string

// waitHealthy waits up to three minutes until a node is Ready, and as long until its taints are gone.
func waitHealthy(node string) string { return given(adminFunction+waitHealthyFile, node) }

// waitRotated waits up to three minutes until the kubelet has left the
// certificate that was staged for it.
//
//go:embed wait-rotated.sh
var waitRotated string

// targetsOf are the nodes that a journal repairs.
func targetsOf(records []Record) []string {
	var names []string
	for _, s := range stepsOf(records, "repair") {
		names = append(names, s.On)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// recoverDeadline is how long a repaired node may take to be as before: far above what it
// takes on a slow machine, since a node that comes back late is no node that was left
// broken. Its windows say what is late.
const recoverDeadline = 5 * time.Minute

// putRightDeadline ends what hangs: every step and the recovery have limits of their own.
const putRightDeadline = time.Hour

// putRight undoes the fault, repairs the targets, waits until they are as before
// and compares them with what they were. It is not stopped by the end of ctx.
func (r *run) putRight(ctx context.Context) {
	if r.fault == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), putRightDeadline)
	defer cancel()
	r.phase("undo")
	if err := r.settle(ctx); err != nil {
		r.fact(timeline.TypeStepFailed, "undo", map[string]string{"why": err.Error()})
	}
	_, out, err := r.take(ctx, "undo")
	if err != nil {
		r.fact(timeline.TypeStepFailed, "undo", map[string]string{"why": err.Error()})
	} else {
		r.rec.Emit(timeline.Event{Stamp: lastStamp(out), Source: "run", Type: timeline.TypeUndone})
	}
	if k, ok := r.fault.(Keeper); ok {
		if err := k.Kept(ctx, r.target); err != nil {
			r.fact(timeline.TypeStepFailed, "undo", map[string]string{"why": err.Error()})
		}
	}
	r.phase("repair")
	steps, out, repairErr := r.take(ctx, "repair")
	if repairErr != nil {
		r.fact(timeline.TypeStepFailed, "repair", map[string]string{"why": repairErr.Error()})
	}
	for i, s := range steps {
		if at, perr := observe.ParseEpoch(out[i]); perr == nil {
			r.rec.Emit(timeline.Event{Stamp: at, Source: "run", Type: timeline.TypeRepaired, Object: "node " + s.On})
		}
	}
	var missing string
	healErr := r.wait(ctx, recoverDeadline, func(f *judge.Fold) bool { missing = f.Unhealed(); return missing == "" })
	if healErr != nil {
		r.fact(timeline.TypeNotHealed, "", map[string]string{"why": missing})
	}
	r.stopAlive()
	if err == nil && repairErr == nil && healErr == nil {
		r.clean(ctx)
	} // else what is staged is needed: by the dead-man timers, and by Heal
	r.snapshot(ctx, "after")
}

// take takes the steps of one kind and records each. It returns them with the last
// line of output of each.
func (r *run) take(ctx context.Context, kind string) ([]Step, []string, error) {
	steps := r.journal.Steps(kind)
	var last []string
	var errs []error
	for _, s := range steps {
		out, err := runSteps(ctx, r.nodes, []Step{s})
		if at, perr := observe.ParseEpoch(out[0]); perr == nil && s.Do != "" { // by the clock here
			out[0] = epoch(at.Add(r.target.Offset))
		}
		detail := map[string]string{"kind": kind, "what": s.Desc}
		if err != nil {
			detail["why"] = err.Error()
			errs = append(errs, err)
		}
		r.fact(timeline.TypeStep, "node "+s.On, detail)
		last = append(last, out...)
	}
	return steps, last, errors.Join(errs...)
}

// clean removes what the run itself put into the nodes, the copy of the journal last.
func (r *run) clean(ctx context.Context) {
	if _, _, err := r.take(ctx, "clean"); err != nil {
		r.fact(timeline.TypeStepFailed, "clean", map[string]string{"why": err.Error()})
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
