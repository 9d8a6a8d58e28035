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
const deadManAfter = 60 * time.Second

// keepAliveEvery is how often the runner gives a sign of life.
const keepAliveEvery = 10 * time.Second

// stage is the folder inside a node that belongs to one run.
func stage(runID string) string { return "/var/lib/flatline/" + runID }

// inStage makes a script that does nothing where the run's folder is gone: then
// everything was undone and cleaned up already.
func inStage(runID, script string) string {
	return "cd " + stage(runID) + " 2>/dev/null || exit 0\n" + script
}

// whenArmed makes a step that does nothing where no timer was armed: nothing was
// changed then, and the journal may hold only some of the steps.
func whenArmed(runID string, s Step) Step {
	s.Script = "[ -e " + stageOn(s.On, runID) + "/alive ] || exit 0\n" + s.Script
	return s
}

// secondLook is how much later a timer looks again before it acts. A node that was
// paused, like a laptop that slept, wakes up with an old sign of life, and its runner
// too; giving signs takes longer than that.
const secondLook = 15 * time.Second

// armDeadMan puts a timer into a node, or onto the host, that runs the given steps
// when the runner has not been heard of for deadManAfter. It is armed before the first
// change. Each step runs whether or not another failed; a marker tells that it fired.
func armDeadMan(ctx context.Context, n Node, runID string, steps []Step) error {
	dir := stageOn(n.Name, runID)
	var body strings.Builder
	fmt.Fprintf(&body, "cd %s || exit 0\n", dir)
	fmt.Fprintf(&body, "alive() { [ $(( $(date +%%s) - $(stat -c %%Y alive) )) -lt %d ]; }\n", int(deadManAfter.Seconds()))
	fmt.Fprintf(&body, "[ -e fired ] || { alive && exit 0; sleep %d; alive && exit 0; date +%%s.%%N > fired; }\n", int(secondLook.Seconds()))
	body.WriteString("alive && exit 0\n") // somebody heals: see stayAlive
	for i := range steps {                // what failed is tried again at the next tick
		fmt.Fprintf(&body, "[ -e done-%[1]d ] || { bash step-%[1]d > out-%[1]d 2>&1 && touch done-%[1]d; }\n", i)
	}
	var script strings.Builder
	fmt.Fprintf(&script, "set -e\nmkdir -p %[1]s\ncd %[1]s\ntouch alive\n", dir)
	for i, s := range steps {
		writeFile(&script, fmt.Sprintf("step-%d", i), s.Script)
	}
	writeFile(&script, "deadman", body.String())
	if n.Name == host { // it may have no systemd; whatever it is, the folder's end is the loop's
		fmt.Fprintf(&script, "setsid nohup bash -c 'while [ -e %[1]s/alive ]; do bash %[1]s/deadman; sleep 5; done' >/dev/null 2>&1 </dev/null &\n", dir)
	} else {
		fmt.Fprintf(&script, "systemd-run --quiet --unit=%s --on-active=10 --on-unit-active=10 --timer-property=AccuracySec=1s bash %s/deadman\n", timerUnit(runID), dir)
	}
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

// settle gives a sign of life and waits until a timer that is at work has done.
func settle(on, runID string) string {
	if on == host { // a step of its takes a moment, and may be taken twice
		return "touch -c " + stageOn(host, runID) + "/alive"
	}
	return inStage(runID, fmt.Sprintf("touch -c alive\nfor i in $(seq 60); do systemctl is-active --quiet %s.service || exit 0; sleep 1; done\necho 'it is still at work' >&2; exit 1", timerUnit(runID)))
}

func timerUnit(runID string) string { return "flatline-" + runID }

// cleanStep disarms the timer and removes the run's folder, and certificates of
// ours that the kubelet has rotated away from.
func cleanStep(node, runID string) Step {
	if node == host {
		return Step{Desc: "ending the dead-man timer", On: host, Script: "rm -rf " + stageOn(host, runID)}
	}
	return Step{Desc: "removing the dead-man timer and staged files", On: node,
		Script: inStage(runID, fmt.Sprintf(`systemctl stop %[1]s.timer %[1]s.service 2>/dev/null
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
	out, err := n.script(ctx, nil, "cd "+stageOn(n.Name, runID)+" 2>/dev/null || exit 0\ntouch -c alive; [ -e fired ] && echo fired; exit 0")
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
		n, _ := at(r.nodes, name)
		if err := armDeadMan(ctx, n, r.id, s); err != nil {
			return err
		}
		armed = append(armed, n)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var alive sync.WaitGroup
	alive.Go(func() { r.stayAlive(ctx, armed) })
	r.stopAlive = sync.OnceFunc(func() {
		stop()
		alive.Wait()
		giveSign(context.WithoutCancel(ctx), armed, r.id, r.heardOf) // what fired since the last look is told too
	})
	return nil
}

func (r *run) stayAlive(ctx context.Context, armed []Node) {
	giveSigns(ctx, armed, r.id, r.heardOf)
}

// heardOf notes what a node answered to a sign of life.
func (r *run) heardOf(n Node, fired bool, err error) {
	if err != nil {
		r.fact("KeepAliveFailed", "node "+n.Name, map[string]string{"why": err.Error()})
	}
	if !fired {
		return
	}
	if _, told := r.fired.LoadOrStore(n.Name, true); !told {
		r.fact(judge.TypeDeadMan, "node "+n.Name, nil)
	}
}

// giveSigns gives signs of life to armed nodes until ctx ends.
func giveSigns(ctx context.Context, armed []Node, runID string, heard func(n Node, fired bool, err error)) {
	tick := time.NewTicker(keepAliveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			giveSign(ctx, armed, runID, heard)
		}
	}
}

// giveSign gives one sign to all nodes at once, so that one that does not answer
// does not starve the others.
func giveSign(ctx context.Context, armed []Node, runID string, heard func(n Node, fired bool, err error)) {
	look, cancel := context.WithTimeout(ctx, keepAliveEvery/2)
	defer cancel()
	var all sync.WaitGroup
	for _, n := range armed {
		all.Go(func() {
			if fired, err := keepAlive(look, n, runID); ctx.Err() == nil {
				heard(n, fired, err)
			}
		})
	}
	all.Wait()
}
