package chaos

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// deadManAfter is how old the runner's last sign of life may be before a node
// helps itself.
const deadManAfter = 60 * time.Second

// keepAliveEvery is how often the runner gives a sign of life.
const keepAliveEvery = 10 * time.Second

// secondLook is how much later a timer looks again before it acts. A node that was
// paused, like a laptop that slept, wakes up with an old sign of life, and its runner
// too; giving signs takes longer than that.
const secondLook = 15 * time.Second

// stage is the folder inside a node that belongs to one run.
func stage(runID string) string { return "/var/lib/flatline/" + runID }

// inStage makes a script that does nothing where the run's folder is gone: then
// everything was undone and cleaned up already.
func inStage(runID, script string) string {
	return "cd " + quote(stage(runID)) + " 2>/dev/null || exit 0\n" + script
}

// whenArmed makes a step that does nothing where no timer was armed: nothing was
// changed then, and the journal may hold only some of the steps.
func whenArmed(runID string, s Step) Step {
	if s.Do == "" {
		s.Script = "[ -e " + quote(stage(runID)+"/alive") + " ] || exit 0\n" + s.Script
	}
	return s
}

// What a step may take inside a node: its turn, and its work. A kubelet may take 90 s to
// stop.
const (
	turnBound = 145 * time.Second
	workBound = 145 * time.Second
)

// aloneScript runs the script in $1 as the only one that changes the node, and ends it at
// its bound whatever has become of who asked for it: two that restore the same files at
// once would destroy them. With "change" in $2 it refuses once a timer has taken the fault
// back: a change that comes after the undo would stay.
var aloneScript = fmt.Sprintf(`exec 9>/run/flatline.lock && flock -w %d 9 ||
	{ echo "another step is still at work in this node" >&2; exit 1; }
if [ "$2" = change ] && compgen -G '/var/lib/flatline/*/fired' >/dev/null; then
	echo "the dead-man timer has fired in this node" >&2; exit 1
fi
timeout -k 5 %d bash -c "$1"`, int(turnBound.Seconds()), int(workBound.Seconds()))

// alone has the node run a script that takes something back.
func (n Node) alone(ctx context.Context, stdin []byte, script string) (string, error) {
	return n.bash(ctx, stdin, aloneScript, script)
}

// change has the node run a script that breaks something.
func (n Node) change(ctx context.Context, stdin []byte, script string) (string, error) {
	return n.bash(ctx, stdin, aloneScript, script, "change")
}

// signFunction has sign, which gives a sign of life in the current folder.
//
//go:embed sign.sh
var signFunction string

// deadManScript takes the steps in a folder when the runner has not been heard of. What
// failed is tried again at the next tick. Who heals gives signs too: see settle.
//
//go:embed deadman.sh
var deadManScript string

// armScript makes a run's folder with what its timer needs, and the timer of systemd,
// which a restart of the node does not end.
//
//go:embed arm.sh
var armScript string

// armDeadMan puts a timer into a node that runs the given steps when the runner has not
// been heard of for deadManAfter; for what is done from outside it has the engine guard the
// node. It is armed before the first change. Each step runs whether or not another failed;
// a marker tells that it fired.
func armDeadMan(ctx context.Context, n Node, runID string, steps []Step) error {
	args := []string{stage(runID), timerUnit(runID), aloneScript, deadManScript, wholeSeconds(deadManAfter), wholeSeconds(secondLook)}
	guard := false
	for _, s := range steps {
		if s.Do != "" {
			guard = true
		} else {
			args = append(args, strings.TrimSuffix(s.Script, "\n"))
		}
	}
	if _, err := n.bash(ctx, nil, signFunction+armScript, args...); err != nil {
		return fmt.Errorf("arming the dead-man timer on %s: %w", n.Name, err)
	}
	if !guard {
		return nil
	}
	g, err := as[guarded](n)
	if err != nil {
		return err
	}
	return g.Guard(ctx, deadManAfter, secondLook)
}

//go:embed settle.sh
var settleScript string

// settle gives a sign of life, has a timer that has fired act once more should that be the
// last sign, and waits until one that is at work has done.
func settle(runID string) string {
	return inStage(runID, signFunction+given(settleScript, timerUnit(runID)))
}

// wholeSeconds are those of a duration, for a script.
func wholeSeconds(d time.Duration) string { return fmt.Sprint(int(d.Seconds())) }

func timerUnit(runID string) string { return "flatline-" + runID }

//go:embed clean.sh
var cleanScript string

// cleanSteps disarm the timer and remove the run's folder, and certificates of
// ours that the kubelet has rotated away from.
func cleanSteps(node, runID string, guard bool) []Step {
	var steps []Step
	if guard {
		steps = append(steps, Step{Desc: "removing the node's guard", On: node, Do: "unguard"})
	}
	return append(steps, Step{Desc: "removing the dead-man timer and staged files", On: node,
		Script: inStage(runID, given(cleanScript, timerUnit(runID), stage(runID), pkiDir))})
}

// keepAlive gives a sign of life to a node, and says whether its timer fired.
func keepAlive(ctx context.Context, n Node, runID string) (fired bool, err error) {
	out, err := n.script(ctx, nil, inStage(runID, signFunction+"[ -e alive ] || exit 0\nsign\n[ ! -e fired ] || echo fired"))
	if err != nil {
		return false, fmt.Errorf("giving a sign of life to %s: %w", n.Name, err)
	}
	return strings.TrimSpace(out) == "fired", nil
}

// A watcher acts when it gets no signs of life.
type watcher struct {
	name string // for whom it watches
	sign func(ctx context.Context) (fired bool, err error)
}

// watchers are who acts when a run is not heard of, by the steps that end them.
func watchers(nodes map[string]Node, clean []Step, runID string) []watcher {
	var all []watcher
	for _, s := range clean {
		n, ok := nodes[s.On]
		g, err := as[guarded](n)
		switch {
		case !ok, s.Do == "unguard" && err != nil:
		case s.Do == "unguard":
			all = append(all, watcher{"guard of " + n.Name, g.Sign})
		default:
			all = append(all, watcher{"node " + n.Name, func(ctx context.Context) (bool, error) { return keepAlive(ctx, n, runID) }})
		}
	}
	return all
}

// arm gives every node that has steps of its own a dead-man timer, and begins to
// give signs of life.
func (r *run) arm(ctx context.Context, steps []Step) error {
	byNode := map[string][]Step{}
	for _, s := range steps {
		byNode[s.On] = append(byNode[s.On], s)
	}
	names := slices.Sorted(maps.Keys(byNode))
	if err := atOnce(names, func(name string) error { return armDeadMan(ctx, r.nodes[name], r.id, byNode[name]) }); err != nil {
		return err
	}
	armed := watchers(r.nodes, r.journal.Steps("clean"), r.id)
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var alive sync.WaitGroup
	alive.Go(func() { giveSigns(ctx, armed, r.heardOf) })
	r.stopAlive = sync.OnceFunc(func() {
		stop()
		alive.Wait()
		giveSign(context.WithoutCancel(ctx), armed, r.heardOf) // what fired since the last look is told too
	})
	return nil
}

// atOnce does something for each name at the same time, and returns all errors in order.
func atOnce(names []string, do func(name string) error) error {
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { errs[i] = do(name) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// heardOf notes what a watcher answered to a sign of life.
func (r *run) heardOf(w watcher, fired bool, err error) {
	if err != nil {
		r.fact("KeepAliveFailed", w.name, map[string]string{"why": err.Error()})
	}
	if !fired {
		return
	}
	if _, told := r.fired.LoadOrStore(w.name, true); !told {
		r.fact(timeline.TypeDeadMan, w.name, nil)
	}
}

// giveSigns gives signs of life until ctx ends.
func giveSigns(ctx context.Context, armed []watcher, heard func(w watcher, fired bool, err error)) {
	_ = wait.PollUntilContextCancel(ctx, keepAliveEvery, false, func(ctx context.Context) (bool, error) {
		giveSign(ctx, armed, heard)
		return false, nil
	})
}

// giveSign gives one sign to all at once, so that one that does not answer does not starve
// the others.
func giveSign(ctx context.Context, armed []watcher, heard func(w watcher, fired bool, err error)) {
	look, cancel := context.WithTimeout(ctx, 2*keepAliveEvery)
	defer cancel()
	var all sync.WaitGroup
	for _, w := range armed {
		all.Go(func() {
			if fired, err := w.sign(look); ctx.Err() == nil {
				heard(w, fired, err)
			}
		})
	}
	all.Wait()
}

// settle has every timer of the run that is at work end first, so that nobody undoes beside
// it, and tells of those that have fired.
func (r *run) settle(ctx context.Context) error {
	armed := watchers(r.nodes, r.journal.Steps("clean"), r.id)
	giveSign(ctx, armed, r.heardOf)
	return settleAll(ctx, r.nodes, r.journal.Steps("clean"), r.id)
}

// settleAll gives each armed node a sign of life and waits for its timer.
func settleAll(ctx context.Context, nodes map[string]Node, clean []Step, runID string) error {
	var names []string
	for _, s := range clean {
		if n, ok := nodes[s.On]; ok && s.Do == "" && !paused(ctx, n) {
			names = append(names, s.On)
		}
	}
	return atOnce(names, func(name string) error {
		if _, err := nodes[name].script(ctx, nil, settle(runID)); err != nil {
			return fmt.Errorf("waiting for the dead-man timer on %s: %w", name, err)
		}
		return nil
	})
}
