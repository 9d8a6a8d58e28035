package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
)

// spareLife is how long the spare certificate is valid: long enough that a node
// forgotten over night can still be healed from its journal.
const spareLife = 24 * time.Hour

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
	t.ca = ca
	staged := map[string]bool{}
	for _, n := range append([]Node{t.ControlPlane}, t.Nodes...) {
		if staged[n.Name] {
			continue
		}
		staged[n.Name] = true
		// On disk before the folder is there: what a killed runner staged goes too.
		if err := r.journal.Clean(cleanStep(n.Name, r.id)); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(r.fault.Undo(t), func(s Step) bool { return s.On == host }) {
		if err := r.journal.Clean(cleanStep(host, r.id)); err != nil {
			return err
		}
	}
	if _, err := t.ControlPlane.script(ctx, nil, "mkdir -p "+stage(r.id)); err != nil {
		return fmt.Errorf("staging on %s: %w", t.ControlPlane.Name, err)
	}
	for _, n := range t.Nodes {
		pem, err := ca.rotateNow(n.Name, spareLife)
		if err != nil {
			return err
		}
		if _, err := n.script(ctx, pem, fmt.Sprintf("set -e\numask 077\nmkdir -p %[1]s\ncat > %[1]s/spare.pem\nsync %[1]s/spare.pem", stage(r.id))); err != nil {
			return fmt.Errorf("staging the spare certificate on %s: %w", n.Name, err)
		}
	}
	return nil
}

// repairSteps bring a target back whatever state it is in: expired, crash-looping
// or with files made unusable. They need nothing but the node itself.
func repairSteps(t *Target) []Step {
	var steps []Step
	for _, n := range t.Nodes {
		steps = append(steps,
			Step{Desc: "installing the spare certificate", On: n.Name, Script: inStage(t.RunID, "systemctl stop kubelet\n"+installScript("spare.pem", "flatline-spare.pem"))},
			Step{Desc: "starting the kubelet", On: n.Name, Script: inStage(t.RunID, "at=$(date +%s.%N)\nsystemctl reset-failed kubelet 2>/dev/null\nsystemctl start kubelet && echo $at")})
	}
	return steps
}

// snapshotScript prints what a run must leave as it found it in a node.
const snapshotScript = `
echo kubelet=$(systemctl is-active kubelet)
echo kubeconfig=$(sha256sum < /etc/kubernetes/kubelet.conf | cut -c1-16)
echo bootstrap=$([ -e /etc/kubernetes/bootstrap-kubelet.conf ] && echo present || echo absent)
echo dropins=$(cd /etc/systemd/system/kubelet.service.d && ls | tr '\n' ' ')
echo config=$(sha256sum < /var/lib/kubelet/config.yaml | cut -c1-16)
echo files=$(cd /var/lib/kubelet/pki && stat -c '%A %U:%G %n,' . * | sed 's/client-20[-0-9]*/client-DATE/' | sort -u)
echo attributes=$(lsattr -d /var/lib/kubelet/pki 2>/dev/null | cut -d' ' -f1)
echo mounts=$(grep -c ' /var/lib/kubelet/pki ' /proc/mounts)
echo beside=$(cd /var/lib/kubelet && ls -d pki.* 2>/dev/null)
echo link=$([ -L /var/lib/kubelet/pki/kubelet-client-current.pem ] && [ -e /var/lib/kubelet/pki/kubelet-client-current.pem ] && echo good || echo bad)
echo ours=$(ls /var/lib/kubelet/pki | grep -c '^flatline-')
echo pending=$([ -e /var/lib/kubelet/pki/kubelet-client-updated.pem ] && echo present || echo absent)
echo manifests=$(cd /etc/kubernetes/manifests 2>/dev/null && sha256sum * 2>/dev/null | sha256sum | cut -c1-16)
echo frozen=$(ps -eo stat= | grep -c '^T')
echo staged=$(ls /var/lib/flatline 2>/dev/null | tr '\n' ' ')
echo timers=$(systemctl list-units --all --no-legend 'flatline-*' | wc -l)
`

// clusterScript prints what a run must leave as it found it in the API. It runs on
// the control-plane node.
const clusterScript = `
echo subjects=$(` + admin + `get clusterrolebinding ` + rotationBinding + ` -o jsonpath='{range .subjects[*]}{.kind} {.name}, {end}')
echo signer=$(` + admin + `get clusterrole ` + signerRole + ` -o json | jq -cS '[.rules, .metadata.annotations]' | sha256sum | cut -c1-16)
echo nodes=$(` + admin + `get nodes -o jsonpath='{range .items[*]}{.metadata.name} Ready={.status.conditions[?(@.type=="Ready")].status} {.spec.taints[*].key}; {end}')
`

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
	all.Go(func() { read("cluster", nodes[controlPlane], clusterScript) })
	for name, n := range nodes { // at once: each waits for processes in a node
		all.Go(func() { read("node "+name, n, snapshotScript) })
	}
	all.Wait()
	return state
}

// snapshot records the state before or after, and returns it.
func (r *run) snapshot(ctx context.Context, when string) map[string]map[string]string {
	state := readState(ctx, r.nodes, r.target.ControlPlane.Name)
	for _, object := range slices.Sorted(maps.Keys(state)) {
		d := state[object]
		d["when"] = when
		r.fact(judge.TypeSnapshot, object, d)
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
	out, err := r.target.ControlPlane.script(ctx, nil, `for c in kube-controller-manager kube-apiserver etcd kube-scheduler; do echo "$c $(crictl ps -q --name "^$c$" | head -n1 | cut -c1-13)"; done`)
	if err != nil {
		r.fact("LookFailed", "control plane", map[string]string{"why": err.Error()})
		return
	}
	for line := range strings.Lines(out) {
		if name, id, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			r.fact(judge.TypeController, name, map[string]string{"id": id})
		}
	}
}

// A patient is a cluster with the journal of the run that changed it.
type patient struct {
	records      []Record
	nodes        map[string]Node
	controlPlane string
	before       map[string]map[string]string // the state that the run found
}

// errGone says that the cluster of a journal does not exist any more.
var errGone = errors.New("the cluster is gone")

// examine reads the journal and the timeline in a run's folder and finds the
// cluster. It refuses one that is not the one of the journal.
func examine(ctx context.Context, dir string) (*patient, error) {
	f, err := os.Open(filepath.Join(dir, "journal.jsonl"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := &patient{nodes: map[string]Node{}, before: map[string]map[string]string{}}
	if p.records, err = ReadJournal(f); err != nil {
		return nil, err
	}
	c, err := cluster.Open(ctx, p.records[0].Cluster, "")
	if errors.Is(err, cluster.ErrNotFound) {
		return nil, errGone
	}
	if err != nil {
		return nil, err
	}
	for _, n := range c.Nodes() {
		p.nodes[n.Name] = Node{n.Name, n}
		if n.Role == "control-plane" {
			p.controlPlane = n.Name
		}
	}
	if p.controlPlane == "" {
		return nil, fmt.Errorf("cluster %s has no control-plane node any more", c.Name)
	}
	// A runner that was killed may have left no whole timeline: then there is
	// nothing to compare with, and the steps still run.
	if t, err := observe.ReadTimelineFile(filepath.Join(dir, "timeline.jsonl")); err == nil {
		for _, e := range t.Events {
			if e.Type == judge.TypeSnapshot && e.Detail["when"] == "before" {
				p.before[e.Object] = e.Detail
			}
		}
	}
	return p, nil
}

// differences says what is not as the run found it.
func (p *patient) differences(ctx context.Context) []string {
	var diffs []string
	now := readState(ctx, p.nodes, p.controlPlane)
	for _, object := range slices.Sorted(maps.Keys(now)) {
		was, known := p.before[object]
		if !known {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(now[object])) {
			if now[object][key] != was[key] {
				diffs = append(diffs, fmt.Sprintf("%s: %s was %q and is %q", object, key, was[key], now[object][key]))
			}
		}
	}
	return diffs
}

// Compare says what is not as a run found it, from the record in its folder. A
// cluster that is gone has no differences.
func Compare(ctx context.Context, dir string) ([]string, error) {
	p, err := examine(ctx, dir)
	if errors.Is(err, errGone) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("comparing with the state before %s: %w", dir, err)
	}
	return p.differences(ctx), nil
}

// Heal puts right what a run left behind, from its journal alone, and compares
// the result with what the run had found. It may be called any number of times,
// by any process. say is told of every step.
func Heal(ctx context.Context, dir string, say func(string)) error {
	p, err := examine(ctx, dir)
	if errors.Is(err, errGone) {
		say("the cluster is gone: there is nothing to heal")
		return nil
	}
	if err != nil {
		return fmt.Errorf("healing %s: %w", dir, err)
	}
	l, err := lockCluster(p.records[0].Cluster)
	if err != nil {
		return fmt.Errorf("healing %s: %w", dir, err)
	}
	defer l.Release()
	if err := p.heal(ctx, say); err != nil {
		return fmt.Errorf("healing %s: %w", dir, err)
	}
	if err := closeJournal(filepath.Join(dir, "journal.jsonl")); err != nil {
		return fmt.Errorf("healing %s: %w", dir, err)
	}
	if diffs := p.differences(ctx); len(diffs) > 0 {
		return fmt.Errorf("healing %s: every step went well, but\n  %s", dir, strings.Join(diffs, "\n  "))
	}
	return nil
}

// Unhealed lists the folders of runs below an artifacts folder whose journal was
// not closed and whose cluster is still there.
func Unhealed(ctx context.Context, artifacts string) ([]string, error) {
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
		p, err := examine(ctx, dir)
		if err != nil {
			continue // gone, or never begun: a journal whose first line is missing undoes nothing
		}
		if p.records[len(p.records)-1].Kind != "closed" {
			open = append(open, dir)
		}
	}
	return open, nil
}

// heal runs the steps. What is staged is removed only when all else went well: it
// is needed for the next try.
func (p *patient) heal(ctx context.Context, say func(string)) error {
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
			continue // gone
		}
		say("waiting for " + n + " to be Ready, untainted and with a certificate of its own")
		if _, err := p.nodes[p.controlPlane].script(ctx, nil, waitHealthy(n)); err != nil {
			errs = append(errs, fmt.Errorf("waiting for node %s: %w", n, err))
		}
		if _, err := p.nodes[n].script(ctx, nil, waitRotated); err != nil {
			errs = append(errs, fmt.Errorf("waiting for node %s to rotate: %w", n, err))
		}
	}
	if len(errs) == 0 {
		run("clean")
	}
	return errors.Join(errs...)
}

// stayAlive keeps the dead-man timers quiet while somebody heals: should that end
// too, they act. A timer that is at work already is waited for.
func (p *patient) stayAlive(ctx context.Context) (stop func(), err error) {
	id := p.records[0].RunID
	var armed []Node
	var errs []error
	for _, s := range stepsOf(p.records, "clean") {
		n, ok := at(p.nodes, s.On)
		if !ok {
			continue
		}
		armed = append(armed, n)
		if n.Name != host && paused(ctx, n.Name) {
			continue
		}
		if _, err := n.script(ctx, nil, settle(s.On, id)); err != nil {
			errs = append(errs, fmt.Errorf("waiting for the dead-man timer on %s: %w", s.On, err))
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var alive sync.WaitGroup
	alive.Go(func() { giveSigns(ctx, armed, id, func(Node, bool, error) {}) })
	return func() { cancel(); alive.Wait() }, errors.Join(errs...)
}

// waitHealthy waits up to three minutes until a node is Ready, and one more until its taints are gone.
func waitHealthy(node string) string {
	return fmt.Sprintf(`%[1]swait --for=condition=Ready --timeout=180s node/%[2]s >/dev/null || exit 1
for i in $(seq 60); do
  case "$(%[1]sget node %[2]s -o jsonpath='{.spec.taints[*].key}')" in *unreachable*|*not-ready*) sleep 1;; *) exit 0;; esac
done
echo "the taints of %[2]s do not go" >&2; exit 1`, admin, node)
}

// waitRotated waits up to half a minute until the kubelet has left the
// certificate that was staged for it.
const waitRotated = `for i in $(seq 30); do
  case "$(readlink -f ` + pkiDir + `/kubelet-client-current.pem)" in */flatline-*) sleep 1;; *) exit 0;; esac
done
echo "the kubelet does not rotate its certificate" >&2; exit 1`

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

// putRight undoes the fault, repairs the targets, waits until they are as before
// and compares them with what they were. It is not stopped by the end of ctx.
func (r *run) putRight(ctx context.Context) {
	if r.fault == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Minute)
	defer cancel()
	r.phase("undo")
	_, out, err := r.take(ctx, "undo")
	if err != nil {
		r.fact(judge.TypeStepFailed, "undo", map[string]string{"why": err.Error()})
	} else {
		r.rec.Emit(observe.Event{Stamp: lastStamp(out), Source: "run", Type: judge.TypeUndone})
	}
	if k, ok := r.fault.(Keeper); ok {
		if err := k.Kept(ctx, r.target); err != nil {
			r.fact(judge.TypeStepFailed, "undo", map[string]string{"why": err.Error()})
		}
	}
	r.phase("repair")
	steps, out, repairErr := r.take(ctx, "repair")
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

// take takes the steps of one kind and records each. It returns them with the last
// line of output of each.
func (r *run) take(ctx context.Context, kind string) ([]Step, []string, error) {
	steps := r.journal.Steps(kind)
	var last []string
	var errs []error
	for _, s := range steps {
		out, err := runSteps(ctx, r.nodes, []Step{s})
		detail := map[string]string{"kind": kind, "what": s.Desc}
		if err != nil {
			detail["why"] = err.Error()
			errs = append(errs, err)
		}
		r.fact(judge.TypeStep, "node "+s.On, detail)
		last = append(last, out...)
	}
	return steps, last, errors.Join(errs...)
}

// clean removes what the run itself put into the nodes.
func (r *run) clean(ctx context.Context) {
	if _, _, err := r.take(ctx, "clean"); err != nil {
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
