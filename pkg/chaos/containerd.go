package chaos

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// containerdFrozen stops the process of the target's containerd with SIGSTOP, and not
// the containers: the kubelet lives and renews, and finds no runtime.
type containerdFrozen struct {
	since time.Time
}

const (
	// containerdProcess is that of containerd alone: its unit holds the shims of all
	// containers too.
	containerdProcess = `p=$(systemctl show containerd -p MainPID --value) || exit 1; [ "$p" != 0 ]`
	thawContainerd    = containerdProcess + " || exit 0\nkill -CONT $p && date +%s.%N"
)

// Undo lets it go on.
func (f *containerdFrozen) Undo(t *Target) []Step {
	var steps []Step
	for _, n := range t.Nodes {
		steps = append(steps, Step{Desc: "letting containerd go on", On: n.Name, Script: inStage(t.RunID, thawContainerd)})
	}
	return steps
}

// Release lets it go on with the kubelet left alone.
func (f *containerdFrozen) Release(ctx context.Context, t *Target) (time.Time, error) {
	return t.goOn(ctx, "containerd", thawContainerd)
}

// Inject freezes it on each target.
func (f *containerdFrozen) Inject(ctx context.Context, t *Target) error {
	for i, n := range t.Nodes {
		at, err := n.when(ctx, containerdProcess+" || exit 1\nkill -STOP $p && date +%s.%N")
		if err != nil {
			return fmt.Errorf("freezing containerd of %s: %w", n.Name, err)
		}
		if i == 0 {
			f.since = at
			t.injected(at, "containerd is frozen")
		}
	}
	return nil
}

// Witness sees it biting when containerd answers nobody.
func (f *containerdFrozen) Witness(ctx context.Context, t *Target) (Evidence, error) {
	ev := Evidence{InPlace: true, Biting: true}
	var seen []string
	for _, n := range t.Nodes {
		out, err := n.script(ctx, nil, containerdProcess+` || exit 1
read -r _ _ state _ < /proc/$p/stat
timeout 2 crictl version >/dev/null 2>&1 && echo "$state answers" || echo "$state does not answer"`)
		if err != nil {
			return Evidence{}, fmt.Errorf("looking at containerd of %s: %w", n.Name, err)
		}
		state, answer, _ := strings.Cut(strings.TrimSpace(out), " ")
		ev.InPlace = ev.InPlace && state == "T"
		ev.Biting = ev.Biting && state == "T" && answer == "does not answer"
		seen = append(seen, fmt.Sprintf("%s: containerd in state %s %s", n.Name, state, answer))
	}
	ev.Biting = ev.Biting && !f.since.IsZero()
	ev.Seen = strings.Join(seen, "; ")
	return ev, nil
}
