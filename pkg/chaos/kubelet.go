package chaos

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
)

// now is the node's time.
func (n Node) now(ctx context.Context) (time.Time, error) {
	return n.when(ctx, "date +%s.%N")
}

// when runs a script that prints a time of the node.
func (n Node) when(ctx context.Context, script string) (time.Time, error) {
	out, err := n.script(ctx, nil, script)
	if err != nil {
		return time.Time{}, fmt.Errorf("running a step on %s: %w", n.Name, err)
	}
	at, err := observe.ParseEpoch(out)
	if err != nil {
		return time.Time{}, fmt.Errorf("running a step on %s: %w", n.Name, err)
	}
	return at, nil
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
		t.Emit(observe.Event{Stamp: at, Source: "run", Type: judge.TypeKubeletStarted, Object: "node " + n.Name})
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
