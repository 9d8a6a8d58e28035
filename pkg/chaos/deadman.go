package chaos

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/flatline-chaos/flatline/pkg/judge"
)

// deadManAfter is how old the runner's last sign of life may be before a node
// helps itself.
const deadManAfter = 75 * time.Second

// keepAliveEvery is how often the runner gives a sign of life.
const keepAliveEvery = 10 * time.Second

// stage is the folder inside a node that belongs to one run.
func stage(runID string) string { return "/var/lib/flatline/" + runID }

// inStage makes a script that does nothing where the run's folder is gone: then
// everything was undone and cleaned up already.
func inStage(runID, script string) string {
	return "cd " + stage(runID) + " 2>/dev/null || exit 0\n" + script
}

// armDeadMan puts a timer into a node that runs the given steps when the runner
// has not been heard of for deadManAfter. It is armed before the first change.
// Each step runs whether or not another failed; a marker tells that it fired.
func armDeadMan(ctx context.Context, n Node, runID string, steps []Step) error {
	var body strings.Builder
	fmt.Fprintf(&body, "cd %s || exit 0\n", stage(runID))
	fmt.Fprintf(&body, "[ $(( $(date +%%s) - $(stat -c %%Y alive) )) -lt %d ] && exit 0\n", int(deadManAfter.Seconds()))
	body.WriteString("[ -e fired ] && exit 0\ndate +%s.%N > fired\n")
	for i := range steps {
		fmt.Fprintf(&body, "bash step-%d > out-%d 2>&1\n", i, i)
	}
	var script strings.Builder
	fmt.Fprintf(&script, "set -e\nmkdir -p %[1]s\ncd %[1]s\ntouch alive\n", stage(runID))
	for i, s := range steps {
		writeFile(&script, fmt.Sprintf("step-%d", i), s.Script)
	}
	writeFile(&script, "deadman", body.String())
	fmt.Fprintf(&script, "systemd-run --quiet --unit=%s --on-active=10 --on-unit-active=10 --timer-property=AccuracySec=1s bash %s/deadman\n", timerUnit(runID), stage(runID))
	if _, err := n.script(ctx, nil, script.String()); err != nil {
		return fmt.Errorf("arming the dead-man timer on %s: %w", n.Name, err)
	}
	return nil
}

// writeFile adds to a script the writing of a file with any content.
func writeFile(script *strings.Builder, name, content string) {
	const end = "FLATLINE-END-OF-FILE"
	fmt.Fprintf(script, "cat > %s <<'%s'\n%s\n%s\n", name, end, strings.TrimSuffix(content, "\n"), end)
}

func timerUnit(runID string) string { return "flatline-" + runID }

// cleanStep disarms the timer and removes the run's folder, and certificates of
// ours that the kubelet has rotated away from.
func cleanStep(node, runID string) Step {
	return Step{Desc: "removing the dead-man timer and staged files", On: node,
		Script: inStage(runID, fmt.Sprintf(`systemctl stop %[1]s.timer 2>/dev/null
systemctl reset-failed %[1]s.service %[1]s.timer 2>/dev/null
for f in %[3]s/flatline-*.pem; do
  [ -e "$f" ] && [ "$(readlink -f %[3]s/kubelet-client-current.pem)" != "$f" ] && rm -f "$f"
done
cd /
rm -rf %[2]s
rmdir /var/lib/flatline 2>/dev/null
exit 0`, timerUnit(runID), stage(runID), pkiDir))}
}

// keepAlive gives a sign of life to a node, and says whether its timer fired.
func keepAlive(ctx context.Context, n Node, runID string) (fired bool, err error) {
	out, err := n.script(ctx, nil, inStage(runID, "touch alive; [ -e fired ] && echo fired; exit 0"))
	if err != nil {
		return false, fmt.Errorf("giving a sign of life to %s: %w", n.Name, err)
	}
	return strings.TrimSpace(out) == "fired", nil
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
