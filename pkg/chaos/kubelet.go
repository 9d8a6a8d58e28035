package chaos

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/observe"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// now is the node's time.
func (n Node) now(ctx context.Context) (time.Time, error) {
	out, err := n.script(ctx, nil, "date +%s.%N")
	if err != nil {
		return time.Time{}, fmt.Errorf("asking %s for its time: %w", n.Name, err)
	}
	return observe.ParseEpoch(strings.TrimSpace(out))
}

// when changes something by a script that prints a time of the node.
func (n Node) when(ctx context.Context, script string) (time.Time, error) {
	times, err := n.times(ctx, nil, script, 1)
	if err != nil {
		return time.Time{}, fmt.Errorf("running a step on %s: %w", n.Name, err)
	}
	return times[0], nil
}

// times changes something by a script that prints so many times of the node, and nothing
// else.
func (n Node) times(ctx context.Context, stdin []byte, script string, count int) ([]time.Time, error) {
	out, err := n.change(ctx, stdin, script)
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(out)
	if len(fields) != count {
		return nil, fmt.Errorf("unexpected answer %q", out)
	}
	var times []time.Time
	for _, f := range fields {
		at, err := observe.ParseEpoch(f)
		if err != nil {
			return nil, err
		}
		times = append(times, at)
	}
	return times, nil
}

// kubeletRestart restarts the target's kubelet and does no more: the control arm
// of every fault that has to restart it.
type kubeletRestart struct {
	before map[string]string // process by node
}

// Undo has nothing to take back.
func (f *kubeletRestart) Undo(*Target) []Step { return nil }

// Inject restarts the kubelets.
func (f *kubeletRestart) Inject(ctx context.Context, t *Target) error {
	f.before = map[string]string{}
	for i, n := range t.Nodes {
		pid, err := kubeletPID(ctx, n)
		if err != nil {
			return err
		}
		f.before[n.Name] = pid
		at, err := n.when(ctx, "systemctl stop kubelet; date +%s.%N; systemctl start kubelet")
		if err != nil {
			return err
		}
		if i == 0 {
			t.injected(at, "the kubelet is restarted")
		}
		t.Emit(timeline.Event{Stamp: at, Source: "run", Type: timeline.TypeKubeletStarted, Object: "node " + n.Name})
	}
	return nil
}

// Witness sees it biting when every kubelet is another process than before.
func (f *kubeletRestart) Witness(ctx context.Context, t *Target) (Evidence, error) {
	if f.before == nil {
		return Evidence{}, nil
	}
	ev := Evidence{InPlace: true, Biting: true}
	var seen []string
	for _, n := range t.Nodes {
		pid, err := kubeletPID(ctx, n)
		if err != nil {
			return Evidence{}, err
		}
		ev.Biting = ev.Biting && pid != f.before[n.Name] && pid != "0"
		seen = append(seen, fmt.Sprintf("%s: process %s, was %s", n.Name, pid, f.before[n.Name]))
	}
	ev.Seen = strings.Join(seen, "; ")
	return ev, nil
}

// kubeletPID is the main process of a node's kubelet, "0" while there is none.
func kubeletPID(ctx context.Context, n Node) (string, error) {
	out, err := n.script(ctx, nil, "systemctl show kubelet -p MainPID --value")
	if err != nil {
		return "", fmt.Errorf("asking for the kubelet of %s: %w", n.Name, err)
	}
	return strings.TrimSpace(out), nil
}

// stopKubelets stops the targets' kubelets and returns when each was stopped. The
// repair starts them again.
func (t *Target) stopKubelets(ctx context.Context) ([]time.Time, error) {
	var times []time.Time
	for _, n := range t.Nodes {
		at, err := n.when(ctx, "date +%s.%N; systemctl stop kubelet")
		if err != nil {
			return nil, fmt.Errorf("stopping the kubelet of %s: %w", n.Name, err)
		}
		times = append(times, at)
	}
	return times, nil
}

// restartKubelet stops a node's kubelet, runs a script in the run's folder, and
// starts it again. A script that fails leaves it stopped.
func (t *Target) restartKubelet(ctx context.Context, n Node, stdin []byte, script string) (stopped, started time.Time, err error) {
	times, err := n.times(ctx, stdin, inStage(t.RunID, "set -e\nat=$(date +%s.%N)\nsystemctl stop kubelet\n"+script+
		"started=$(date +%s.%N)\nsystemctl start kubelet\necho $at $started"), 2)
	if err != nil {
		return time.Time{}, time.Time{}, fmt.Errorf("restarting the kubelet of %s: %w", n.Name, err)
	}
	return times[0], times[1], nil
}

// kubeletProcess finds the main process of the kubelet; it fails where there is none,
// and ends the script where nobody can tell.
const kubeletProcess = `p=$(systemctl show kubelet -p MainPID --value) || exit 1; [ "$p" != 0 ]`

// kubeletDown takes the target's kubelet away: stopped by systemd, which leaves it
// so; frozen with SIGSTOP; or killed once, after which systemd starts it again.
type kubeletDown struct {
	how   string // stopped, frozen or killed
	since time.Time
}

// thawKubelet lets it go on, and says when.
const thawKubelet = kubeletProcess + " || exit 0\ndate +%s.%N; kill -CONT $p"

// Undo leaves starting it to the repair: a kubelet that only goes on would renew its
// Lease before, so that a frozen one is told to end first.
func (f *kubeletDown) Undo(t *Target) []Step {
	var steps []Step
	for _, n := range t.Nodes {
		steps = append(steps, Step{Desc: "stopping the kubelet", On: n.Name,
			Script: inStage(t.RunID, kubeletProcess+" && { kill -TERM $p; kill -CONT $p; }\nsystemctl stop kubelet")})
	}
	return steps
}

// Release lets a frozen kubelet go on.
func (f *kubeletDown) Release(ctx context.Context, t *Target) (time.Time, error) {
	return t.goOn(ctx, "the kubelet", thawKubelet)
}

// goOn lets what is frozen on every target go on, by a script that prints the time,
// and returns the last of these.
func (t *Target) goOn(ctx context.Context, what, script string) (time.Time, error) {
	var last time.Time
	for _, n := range t.Nodes {
		at, err := n.when(ctx, script)
		if err != nil {
			return time.Time{}, fmt.Errorf("letting %s of %s go on: %w", what, n.Name, err)
		}
		last = at
	}
	return last, nil
}

// Inject takes each target's kubelet away.
func (f *kubeletDown) Inject(ctx context.Context, t *Target) error {
	script := map[string]string{
		"stopped": "date +%s.%N; systemctl stop kubelet",
		"frozen":  kubeletProcess + " || exit 1\ndate +%s.%N; kill -STOP $p",
		"killed":  kubeletProcess + " || exit 1\ndate +%s.%N; kill -KILL $p",
	}[f.how]
	for i, n := range t.Nodes {
		at, err := n.when(ctx, script)
		if err != nil {
			return err
		}
		if i == 0 {
			f.since = at
			t.injected(at, "the kubelet is "+f.how)
		}
		t.Emit(timeline.Event{Stamp: at, Source: "run", Type: timeline.TypeKubeletStopped, Object: "node " + n.Name,
			Detail: map[string]string{"how": f.how}})
	}
	return nil
}

// Witness sees it biting when no target has renewed its Lease for longer than a
// start takes.
func (f *kubeletDown) Witness(ctx context.Context, t *Target) (Evidence, error) {
	ev := Evidence{InPlace: true}
	var seen []string
	for _, n := range t.Nodes {
		out, err := n.script(ctx, nil, kubeletProcess+` || { echo none; exit 0; }
read -r _ _ state _ < /proc/$p/stat; echo "$state"`)
		if err != nil {
			return Evidence{}, fmt.Errorf("looking at the kubelet of %s: %w", n.Name, err)
		}
		state := strings.TrimSpace(out)
		ev.InPlace = ev.InPlace && (f.how == "stopped" && state == "none" || f.how == "frozen" && state == "T")
		switch state {
		case "none":
			seen = append(seen, n.Name+": no kubelet runs")
		case "T":
			seen = append(seen, n.Name+": the kubelet is frozen")
		}
	}
	if f.how == "killed" { // once: there is nothing that could vanish
		ev.InPlace = !f.since.IsZero()
	}
	if f.since.IsZero() {
		return ev, nil
	}
	silent, ages, err := t.silent(ctx)
	if err != nil {
		return Evidence{}, err
	}
	ev.Biting = ev.InPlace && silent
	ev.Seen = strings.Join(append(seen, ages), "; ")
	return ev, nil
}
