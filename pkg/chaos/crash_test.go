package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/flatline-chaos/flatline/internal/kubefake"
	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// The stand-ins of a world's nodes. A node's own state lies in its HOME. Who looks at
// the WORLD, which holds the binding, requests that wait, and every node, says so.
var crashStubs = map[string]string{
	"sync":    "",
	"flock":   "",
	"timeout": `shift 3; "$@"`,
	"date":    standingClock,
	"ps":      `[ "$*" = "-eo stat=" ] && echo Ss`,
	"systemctl": `
local state unit=none
[ ! -e $HOME/timer ] || read -r unit < $HOME/timer
case "$*" in
"stop kubelet") echo inactive > $HOME/kubelet;;
"start kubelet") echo active > $HOME/kubelet;;
"is-active kubelet") read -r state < $HOME/kubelet; echo $state;;
"daemon-reload") ;;
"enable --quiet --now flatline-"*) [ -e $HOME/etc/systemd/system/$4 ] && echo $4 > $HOME/timer;;
"disable --quiet --now flatline-"*) [ $4 = $unit ] && rm $HOME/timer;;
"is-active --quiet flatline-"*.timer) [ $3 = $unit ];;
"is-active --quiet flatline-"*) return 3;;
"stop flatline-"*.service) ;;
"list-units "*) [ $unit = none ] || echo $unit;;
"reset-failed "*) ;;
*) echo "systemctl $*" >&2; return 1;;
esac`,
	// has says whether a node's current certificate is one of some files.
	"has": `
local f current=$WORLD/nodes/$1/pki/kubelet-client-current.pem
for f in $WORLD/nodes/$1/pki/$2; do
  [ -e $f ] && [ $f -ef $current ] && return
done
return 1`,
	"runs":  `local state; read -r state < $WORLD/nodes/$1/kubelet; [ $state = active ]`,
	"ready": `runs $1 && has $1 '*.pem' && ! has $1 flatline-short.pem`,
	"kubectl": `
: > $WORLD/looked
shift 3
local b=$WORLD/binding last=${!#} c f n
case "$*" in
"get clusterrolebinding "*"-o json") cat $b;;
"get clusterrolebinding "*) jq -j '.subjects[] | .kind + " " + .name + ", "' $b;;
"patch clusterrolebinding "*) jq -c --argjson p "$last" '. * $p' $b > $b.new && mv $b.new $b;;
"delete clusterrolebinding "*) rm $b;;
"get clusterrole "*) ;;
"replace -f "*) [ -e $b ] && cp $last $b;;
"create -f "*) [ ! -e $b ] && cp $last $b;;
"get csr "*) for f in $WORLD/requests/*; do
    case "$*" in *"\"system:node:${f##*/}\""*) printf '%s ' ${f##*/};; esac
  done;;
"delete namespace --ignore-not-found --wait=false flatline-"*) ;;
"delete csr --ignore-not-found "*) shift 3; for c; do rm -f $WORLD/requests/$c; done;;
"wait "*) ready ${last#node/};;
"get node "*) ready $3 || echo node.kubernetes.io/unreachable;;
"get nodes "*) for n in $WORLD/nodes/*; do ready ${n##*/} && echo -n "${n##*/} Ready; "; done;;
*) echo "kubectl $*" >&2; return 1;;
esac`,
	// As time passes a kubelet with a certificate of flatline's asks for another, and gets
	// it where the binding lets it. By then the short one has expired.
	"sleep": `
: > $WORLD/looked
local n name granted
for n in $WORLD/nodes/*; do
  name=${n##*/} granted=
  runs $name && has $name 'flatline-*.pem' || continue
  [ ! -e $WORLD/binding ] || read -rd '' granted < $WORLD/binding
  if [[ $granted != *'"system:nodes"'* && $granted != *"\"system:node:$name\""* ]]; then
    : >> $WORLD/requests/$name
  elif has $name flatline-spare.pem; then
    rm -f $WORLD/requests/$name
    echo new > $n/pki/kubelet-client-2026-01-02-03-04-06.pem
    ln -sfn kubelet-client-2026-01-02-03-04-06.pem $n/pki/kubelet-client-current.pem
  fi
done`,
}

const crashControlPlane = "c1-control-plane"

// A crashCase is a run that is stopped again and again.
type crashCase struct {
	name    string
	exp     *Experiment
	workers []string
	targets int
	lab     *lab
	start   tree
	state   string                       // of the nodes before the run
	before  map[string]map[string]string // the same as the product sees it
	journal []string                     // its lines
}

// start is a world in which nothing has happened.
func (c *crashCase) begin(t *testing.T, ca string) {
	whole, err := json.Marshal(binding(rotationRole, allNodes))
	if err != nil {
		t.Fatal(err)
	}
	c.start = tree{}
	c.start.put("binding", string(whole))
	c.start.folder("requests")
	for _, name := range append([]string{crashControlPlane}, c.workers...) {
		n := worldNode{name: name}
		const first = "kubelet-client-2026-01-02-03-04-05.pem"
		c.start.put(n.path("etc/kubelet.conf"), "as kubeadm made it")
		c.start.put(n.path("etc/pki/ca.crt"), "")
		c.start.put(n.path("etc/pki/ca.key"), "")
		c.start.folder(n.path("etc/systemd/system/kubelet.service.d"))
		c.start.put(n.path("proc/uptime"), nodeUptime)
		c.start.folder(n.path("flatline"))
		c.start.put(n.path("config.yaml"), "kind: KubeletConfiguration\n")
		c.start.put(n.path("kubelet"), "active\n")
		c.start.put(n.path("pki/"+first), "old")
		c.start.link(n.path("pki/kubelet-client-current.pem"), first)
	}
	c.start.put(worldNode{name: crashControlPlane}.path("etc/pki/ca.crt"), ca)
}

// A crashWorld is a world with those at work on it.
type crashWorld struct {
	*crashCase
	*world
	t     *testing.T
	nodes map[string]Node
}

func (c *crashCase) at(t *testing.T, files tree) *crashWorld {
	w := &crashWorld{c, c.lab.at(files), t, map[string]Node{}}
	for _, name := range append([]string{crashControlPlane}, c.workers...) {
		w.nodes[name] = Node{name, w.node(name)}
	}
	return w
}

func (w *crashWorld) node(name string) worldNode {
	return worldNode{w.world, name}
}

// containers are those of the nodes.
func (w *crashWorld) containers() map[string]string {
	ids := map[string]string{}
	for name := range w.nodes {
		ids[name] = "id-" + name
	}
	return ids
}

// names of the nodes in order.
func (w *crashWorld) names() []string { return slices.Sorted(maps.Keys(w.nodes)) }

func (w *crashWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

const waitScript = "sleep 1"

// pass lets time pass.
func (w *crashWorld) pass() {
	_, err := w.nodes[crashControlPlane].script(context.Background(), nil, waitScript)
	w.must(err)
}

// newRun is the run that changes the world.
func (w *crashWorld) newRun(journal string) *run {
	client, _ := kubefake.New(binding(rotationRole, allNodes))
	target := &Target{RunID: runID, Client: client, Spec: w.exp.Spec.Fault, ControlPlane: w.nodes[crashControlPlane]}
	for i, name := range append([]string{crashControlPlane}, w.workers...) {
		if i > len(w.workers)-w.targets {
			target.Nodes = append(target.Nodes, w.nodes[name])
		} else {
			target.ControlNodes = append(target.ControlNodes, w.nodes[name])
		}
	}
	r := &run{exp: w.exp, id: runID, fault: kinds()[w.exp.Spec.Fault.Type].make(), target: target, nodes: w.nodes, stopAlive: func() {}}
	// What the run waits for after the repair. The fold has no targets and is
	// content at once.
	r.rec = observe.NewRecorder(func(e timeline.Event) {
		if e.Type == timeline.TypeRepaired {
			w.pass()
		}
	})
	target.Emit = r.rec.Emit
	plan, err := PlanFor(w.exp, "v1.37")
	w.must(err)
	r.cfg = plan.Config
	r.fold, err = judge.NewFold(&r.cfg, judge.FaultPlan{}, r.rec.Start())
	w.must(err)
	r.journal, err = CreateJournal(journal, "c1", runID, w.containers())
	w.must(err)
	return r
}

// A stop is a moment at which somebody may be killed: before a script, or at the end.
type stop struct {
	script string
	files  tree
	lines  int // of the journal
}

// stops does something and returns all of its stops. lines counts the journal's.
func (w *crashWorld) stops(lines func() int, do func() error) []stop {
	w.t.Helper()
	var stops []stop
	w.world.before = func(script string, files tree) {
		// What only looks is no point of its own, nor is a sign of life: those come
		// from other goroutines, and a runner that is killed gives none.
		looks := script == snapshotScript() || script == clusterScript() || strings.HasSuffix(script, "[ ! -e fired ] || echo fired")
		if !looks && script != waitScript {
			stops = append(stops, stop{script, files, lines()})
		}
	}
	w.must(do())
	w.world.before = nil
	return append(stops, stop{"", w.files, lines()})
}

// live is the part of a run's story that changes nodes. The journal's lines are kept.
func (w *crashWorld) live() (stops []stop, r *run) {
	w.t.Helper()
	name := filepath.Join(w.t.TempDir(), "journal.jsonl")
	r = w.newRun(name)
	ctx := w.t.Context()
	stops = w.stops(func() int {
		data, err := os.ReadFile(name)
		w.must(err)
		w.journal = strings.SplitAfter(string(data), "\n")
		w.journal = w.journal[:len(w.journal)-1]
		return len(w.journal)
	}, func() error {
		if err := r.journal.Before(w.crashCase.before); err != nil {
			return err
		}
		for _, do := range []func(context.Context) error{r.stageSpares, r.prepare, r.inject} {
			if err := do(ctx); err != nil {
				return err
			}
		}
		r.putRight(ctx)
		return r.journal.Close()
	})
	return stops, r
}

// patient is what another process finds when the journal was cut after so many
// lines, or in the middle of the next.
func (w *crashWorld) patient(lines int, torn bool) *Patient {
	w.t.Helper()
	text := strings.Join(w.journal[:lines], "")
	if torn {
		text += w.journal[lines][:len(w.journal[lines])/2]
	}
	records, err := ReadJournal(strings.NewReader(text))
	w.must(err)
	if len(records) != lines {
		w.t.Fatalf("%d records of %d lines", len(records), lines)
	}
	var containers []*cluster.Node
	for name, id := range w.containers() {
		role := "worker"
		if name == crashControlPlane {
			role = "control-plane"
		}
		containers = append(containers, &cluster.Node{Name: name, Role: role, ID: id})
	}
	p, err := newPatient(containers, records)
	w.must(err)
	p.nodes = w.nodes
	return p
}

// describe says how nodes and cluster are. What keeps the nodes at work comes
// first, what a run put there comes second.
func (w *crashWorld) describe() (vital, rest string) {
	w.t.Helper()
	var v, r strings.Builder
	for _, name := range w.names() {
		n := w.node(name)
		current := filepath.Base(n.read("pki/kubelet-client-current.pem"))
		fmt.Fprintf(&v, "%s: kubelet %s, certificate of its own %v\n", name, strings.TrimSpace(n.read("kubelet")),
			strings.HasPrefix(current, "kubelet-client-2026-") && n.exists("pki/"+current))
		fmt.Fprintf(&r, "%s: timer %v, units %v, staged %v, ours %v, half rotated %v\n", name, n.exists("timer"), w.files.names(n.path("etc/systemd/system/flatline-*")), w.files.names(n.path("flatline/*")),
			w.files.names(n.path("pki/flatline-*")), n.exists("pki/kubelet-client-updated.pem"))
	}
	var b rbacv1.ClusterRoleBinding
	if f, ok := w.files["binding"]; !ok {
		v.WriteString("no binding\n")
	} else {
		w.must(json.Unmarshal([]byte(f.text), &b))
		fmt.Fprintf(&v, "binding %s: %v\n", b.RoleRef.Name, b.Subjects)
	}
	fmt.Fprintf(&r, "requests that wait: %v\n", w.files.names("requests/*"))
	return v.String(), r.String()
}

func (w *crashWorld) wantAsBefore(when string) {
	w.t.Helper()
	vital, rest := w.describe()
	if got := vital + rest; got != w.state {
		w.t.Errorf("%s:\n%s", when, differ(w.state, got))
	}
}

// deadMan has every timer fire that is armed, that of the control plane last: a
// target must come back even where it was repaired before the binding.
func (w *crashWorld) deadMan() {
	w.t.Helper()
	w.pass()
	for _, name := range slices.Backward(w.names()) {
		n := w.node(name)
		if !n.exists("timer") {
			continue
		}
		n.silentFor(2 * deadManAfter)
		fired := n.exists("flatline/" + runID + "/fired")
		_, start, _ := strings.Cut(n.read("etc/systemd/system/"+timerUnit(runID)+".service"), "ExecStart=")
		argv := strings.Fields(start)
		w.must(n.Exec(w.t.Context(), nil, io.Discard, argv...))
		if !n.exists("flatline/"+runID+"/fired") || fired {
			w.t.Errorf("the timer of %s did not fire", name)
		}
	}
	w.pass()
	vital, _ := w.describe()
	if !strings.HasPrefix(w.state, vital) {
		w.t.Errorf("the timers fired and left:\n%s", differ(w.state, vital))
	}
}

// heal heals as a process that knows nothing else.
func (w *crashWorld) heal(when string, p *Patient) {
	w.t.Helper()
	if err := p.heal(w.t.Context(), func(string) {}); err != nil {
		w.t.Errorf("%s: %v", when, err)
	}
	w.pass()
	w.wantAsBefore(when)
}

func crashCases(t *testing.T) []*crashCase {
	ca := testAuthority(t, newKey(t))
	lab := newLab(t, crashStubs)
	cases := []*crashCase{
		{name: "two targets with a minted certificate", targets: 2, exp: parse(t, strings.Replace(smallExperiment, "from: rotation", "mint: 40s", 1), "")},
		{name: "everyone", targets: 1, exp: parse(t, smallExperiment, "")},
	}
	cases[1].exp.Spec.Fault.Everyone = true
	for _, c := range cases {
		c.exp.Spec.Expect = nil
		c.workers = []string{"c1-worker", "c1-worker2"}
		c.lab = lab
		c.begin(t, block("CERTIFICATE", ca.cert.Raw)+pkcs8(t, ca.key))
	}
	return cases
}

// A runner may be killed anywhere between the first file that it stages and the
// last that it removes. It is stopped before each of its scripts, which is after
// the one before too, with the journal as it was after each of its lines and with
// the next one torn. Then the journal alone must lead back to the state that the
// run found, with or without the nodes having helped themselves.
func TestEveryCrashPoint(t *testing.T) {
	for _, c := range crashCases(t) {
		t.Run(c.name, func(t *testing.T) {
			var live []stop
			var armed, undo, clean int
			synctest.Test(t, func(t *testing.T) { live, armed, undo, clean = c.unharmed(t) })
			points := 0
			at := func(name string, s stop, do func(w *crashWorld)) {
				points++
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { do(c.at(t, s.files)) })
				})
			}
			for i, s := range live {
				least := 1
				if i > 0 {
					least = live[i-1].lines
				}
				for n := least; n <= s.lines; n++ {
					at(fmt.Sprintf("%d line %d", i, n), s, func(w *crashWorld) {
						p := w.patient(n, n < s.lines)
						w.heal("healed", p)
						if diffs := p.Differences(w.t.Context()); len(diffs) > 0 {
							w.t.Errorf("healed, but %q", diffs)
						}
						w.heal("healed again", w.patient(n, false))
					})
					if i > armed {
						at(fmt.Sprintf("%d line %d, timers", i, n), s, func(w *crashWorld) { w.deadMan(); w.heal("healed", w.patient(n, false)) })
					}
				}
			}
			// Anybody who heals may be killed too: with all broken, and with all repaired.
			for _, i := range []int{undo, clean} {
				lines := live[i].lines
				var healing []stop
				synctest.Test(t, func(t *testing.T) {
					w := c.at(t, live[i].files)
					healing = w.stops(func() int { return lines }, func() error { return w.patient(lines, false).heal(t.Context(), func(string) {}) })
				})
				for k, s := range healing[1 : len(healing)-1] {
					for _, timers := range []bool{false, true} {
						if timers && i == clean {
							continue // as with all broken and most of the healing done
						}
						at(fmt.Sprintf("%d healed up to %d, timers %v", i, k+1, timers), s, func(w *crashWorld) {
							if timers {
								w.deadMan()
							}
							w.heal("healed again", w.patient(lines, false))
						})
					}
				}
			}
			t.Cleanup(func() {
				t.Logf("%d scripts, %d lines, %d points; of %d scripts in all %d had to be run", len(live)-1, len(c.journal), points, c.lab.asked, len(c.lab.known))
			})
		})
	}
}

// unharmed is the story of a run that nobody kills, and which of its scripts arms the
// first timer, begins to undo, and to clean up.
func (c *crashCase) unharmed(t *testing.T) (live []stop, armed, undo, clean int) {
	w := c.at(t, c.start)
	vital, rest := w.describe()
	c.state, c.before = vital+rest, readState(t.Context(), w.nodes, crashControlPlane)
	for object, d := range c.before {
		if d["unreadable"] != "" {
			t.Fatalf("%s: %s", object, d["unreadable"])
		}
	}
	live, r := w.live()
	w.wantAsBefore("not stopped")
	first := func(is func(script string) bool) int {
		return slices.IndexFunc(live, func(s stop) bool { return is(s.script) })
	}
	step := func(kind string) int {
		return first(func(script string) bool { return script == r.journal.Steps(kind)[0].Script })
	}
	armed, undo, clean = first(func(script string) bool { return strings.Contains(script, "systemctl enable") }), step("undo"), step("clean")
	if armed < 0 || undo < armed || clean < undo {
		t.Fatalf("armed by script %d, undone from %d, cleaned from %d", armed, undo, clean)
	}
	return live, armed, undo, clean
}
