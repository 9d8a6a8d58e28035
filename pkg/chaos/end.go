package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/flatline-chaos/flatline/internal/record"
	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// hurried says whether somebody is in a hurry.
func (r *run) hurried() bool {
	select {
	case <-r.opts.Hurry:
		return true
	default:
		return false
	}
}

// endDeadline ends what hangs after the undo, far above what the slowest machine takes.
const endDeadline = 20 * time.Minute

// collect ends the observation: the audit log is read once more as a whole, and
// when the run did not pass the logs that explain it are kept.
func (r *run) collect(ctx context.Context) {
	r.phase("collect")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endDeadline)
	defer cancel()
	r.components(ctx)
	r.rec.Stop()
	if !r.hurried() { // what fails is on record, and the judge's to weigh
		_, _ = compareClocks(ctx, timeline.After, r.compare, r.fact)
	}
	if r.hurried() {
		r.fact(timeline.TypeGap, "audit", map[string]string{"from": "0", "why": "there was no time to read the log as a whole"})
	} else if err := r.audit.ReadAll(ctx, r.rec.Emit); err != nil {
		r.fact(timeline.TypeGap, "audit", map[string]string{"from": "0", "why": err.Error()})
	}
	r.fact(timeline.TypeCost, "", map[string]string{
		"apiRequests": fmt.Sprint(r.api.count()), "cpuSeconds": timeline.Seconds(cpuTime() - r.cpu),
		"observeSeconds": timeline.Seconds(time.Since(r.observing))})
	r.conclude()
	if r.outcome != judge.OutcomePass && !r.hurried() {
		r.keepLogs(ctx)
	}
}

// verdict judges what is in memory. What cannot be judged counts as not put right.
func (r *run) verdict() *Result {
	t := &timeline.Timeline{Events: r.rec.Events(), Header: timeline.Header{RunID: r.id, Start: r.rec.Start()}}
	var err error
	if t.Header.Experiment, err = json.Marshal(r.exp); err == nil {
		t.Header.Config, err = json.Marshal(r.cfg)
	}
	if err == nil {
		var run *judge.Run
		var trace *judge.Trace
		if run, trace, err = judge.Judge(t); err == nil {
			return &Result{run, trace, r.dir}
		}
	}
	run := &judge.Run{Experiment: r.exp.Metadata.Name, Profile: r.exp.Profile, RunID: r.id, Outcome: judge.OutcomeDirty,
		Reasons: []string{err.Error()}}
	return &Result{run, &judge.Trace{}, r.dir}
}

// conclude notes the outcome, and closes the journal where nothing is left to put right.
func (r *run) conclude() {
	r.outcome = r.verdict().Outcome
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
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrRecord) {
		why = "interrupted"
	}
	r.stopAlive()
	if r.journal != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), endDeadline)
		defer cancel()
		r.clean(cleanup)
	}
	r.fact(timeline.TypeSetupFailed, "", map[string]string{"why": why})
	r.conclude()
}

// end takes the cluster away, closes the timeline and judges it from the file; from memory
// if the file is not whole.
func (r *run) end(ctx context.Context) (*Result, error) {
	r.phase("delete")
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), endDeadline)
	defer cancel()
	switch {
	case r.cluster == nil:
	case r.opts.Cluster != nil:
		if err := deleteCanaries(cleanup, r.target.Client, r.id); err != nil {
			r.say("%v", err)
		}
	case r.keeps():
		r.say("cluster %s is kept (%s); use it with\n  export KUBECONFIG=%s\nand remove it with\n  %s", r.cluster.Name, r.outcome,
			quote(r.cluster.Kubeconfig()), Command("clean", r.cluster.Name))
	default:
		r.rec.Stop()
		if err := r.cluster.Delete(cleanup); err != nil {
			r.fact(timeline.TypeStepFailed, "delete", map[string]string{"why": err.Error()})
			r.say("%v; this tries again:\n  %s", err, Command("clean", r.cluster.Name))
		}
	}
	r.lock.Release()
	r.phase("end")
	if err := r.store(); err != nil {
		return r.verdict(), fmt.Errorf("%w: %w", ErrRecord, err)
	}
	rec, err := record.Open(r.dir)
	if err == nil {
		err = record.Write(r.dir, rec.Run)
	}
	if err != nil {
		return r.verdict(), fmt.Errorf("%w: %w", ErrRecord, err)
	}
	return &Result{rec.Run, rec.Trace, r.dir}, context.Cause(ctx)
}

// store has the timeline on disk.
func (r *run) store() error {
	if !r.opened {
		if err := r.open(); err != nil {
			return err
		}
	}
	return r.rec.Close()
}

// keeps says whether the cluster stays.
func (r *run) keeps() bool {
	return r.outcome == judge.OutcomeDirty || r.opts.Keep == KeepAlways || r.opts.Keep == KeepOnFailure && r.outcome != judge.OutcomePass
}
