package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/flatline-chaos/flatline/internal/safely"
	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
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
	if r.journal != nil {
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
			r.fact(judge.TypeStepFailed, "delete", map[string]string{"why": err.Error()})
			r.say("%v; flatline clean %s tries again", err, r.cluster.Name)
		}
	}
	r.lock.Release()
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
	if err := safely.Replace(filepath.Join(dir, "run.json"), append(out, '\n')); err != nil {
		return nil, err
	}
	return run, nil
}
