package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
)

// The stand-ins of a node that lasts. A node's own state lies in its HOME, and
// what the API server holds in HOME/api: the binding, requests that wait, and a
// link to each node.
var crashStubs = map[string]string{
	"sync": "",
	"systemctl": `
case "$*" in
"stop kubelet") echo inactive > $HOME/kubelet;;
"start kubelet") echo active > $HOME/kubelet;;
"is-active kubelet") cat $HOME/kubelet;;
"is-active --quiet flatline-"*) exit 3;;
"list-units "*) cat $HOME/timer 2>/dev/null;;
"stop flatline-"*) [ "$2" = "$(cut -d' ' -f1 $HOME/timer)" ] && rm $HOME/timer;;
"reset-failed "*) ;;
*) echo "systemctl $*" >&2; exit 1;;
esac`,
	"systemd-run": `
[ -e $HOME/timer ] && { echo "the unit is there already" >&2; exit 1; }
for a; do
  case "$a" in --unit=*) unit=${a#--unit=}.timer; shift;; --*) shift;; esac
done
echo $unit "$@" > $HOME/timer`,
	"kubectl": `
shift 3
b=$HOME/api/binding
for last; do :; done
ready() {
  read state < $HOME/api/nodes/$1/kubelet; [ $state = active ] || return 1
  case "$(readlink -e $HOME/api/nodes/$1/pki/kubelet-client-current.pem)" in ''|*/flatline-short.pem) return 1;; esac
}
case "$*" in
"get clusterrolebinding "*"-o json") cat $b;;
"get clusterrolebinding "*) jq -j '.subjects[] | .kind + " " + .name + ", "' $b;;
"patch clusterrolebinding "*) jq -c --argjson p "$last" '. * $p' $b > $b.new && mv $b.new $b;;
"delete clusterrolebinding "*) rm $b;;
"replace -f "*) [ -e $b ] && cp $last $b;;
"create -f "*) [ ! -e $b ] && cp $last $b;;
"get csr "*) for f in $HOME/api/requests/*; do
    case "$*" in *"\"system:node:${f##*/}\""*) printf '%s ' ${f##*/};; esac
  done;;
"delete csr --ignore-not-found "*) shift 3; for c; do rm -f $HOME/api/requests/$c; done;;
"wait "*) ready ${last#node/};;
"get node "*) ready $3 || echo node.kubernetes.io/unreachable;;
"get nodes "*) for n in $HOME/api/nodes/*; do ready ${n##*/} && echo -n "${n##*/} Ready; "; done;;
*) echo "kubectl $*" >&2; exit 1;;
esac`,
	// As time passes a kubelet with a certificate of ours asks for another, and gets
	// it where the binding lets it. By then the short one has expired.
	"sleep": `
for n in $HOME/api/nodes/*; do
  name=${n##*/}
  read state < $n/kubelet; [ $state = active ] || continue
  case "$(readlink -e $n/pki/kubelet-client-current.pem)" in */flatline-*) ;; *) continue;; esac
  if ! grep -qs -e '"system:nodes"' -e "\"system:node:$name\"" $HOME/api/binding; then
    touch $HOME/api/requests/$name
  elif ready=$(readlink $n/pki/kubelet-client-current.pem); [ "${ready##*/}" = flatline-spare.pem ]; then
    rm -f $HOME/api/requests/$name
    echo new > $n/pki/kubelet-client-2026-01-02-03-04-06.pem
    ln -sfn kubelet-client-2026-01-02-03-04-06.pem $n/pki/kubelet-client-current.pem
  fi
done`,
}

// A crashCase is a run that is stopped again and again, each time in a new world.
type crashCase struct {
	name    string
	exp     *Experiment
	workers []string
	targets int
	bin, ca string // folder of the stand-ins, certificate and key of the CA
	client  kubernetes.Interface
	state   string                       // of the nodes before the run
	before  map[string]map[string]string // the same as the product sees it
}

const crashControlPlane = "c1-control-plane"

// A crashWorld is a cluster of shell nodes with the run at work on it.
type crashWorld struct {
	*crashCase
	t        *testing.T
	dir      string
	shells   map[string]*shellNode
	nodes    map[string]Node
	run      *run
	onScript func(script string) // before each script; may end the goroutine
}

type crashNode struct {
	*shellNode
	w *crashWorld
}

func (n crashNode) Exec(ctx context.Context, stdin io.Reader, stdout io.Writer, argv ...string) error {
	last := argv[len(argv)-1]
	// What only looks is no point of its own, nor is a sign of life: those come
	// from other goroutines, and a runner that is killed gives none.
	if n.w.onScript != nil && last != snapshotScript && last != clusterScript && !strings.Contains(last, "touch -c alive") {
		n.w.onScript(last)
	}
	for i := range argv {
		argv[i] = strings.NewReplacer("/etc/kubernetes", n.root+"/etc", "/etc/systemd", n.root+"/etc").Replace(argv[i])
	}
	return n.shellNode.Exec(ctx, stdin, stdout, argv...)
}

func newCrashWorld(t *testing.T, c *crashCase) *crashWorld {
	w := &crashWorld{crashCase: c, t: t, dir: t.TempDir(), shells: map[string]*shellNode{}, nodes: map[string]Node{}}
	for _, dir := range []string{"requests", "nodes"} {
		w.must(os.Mkdir(filepath.Join(w.dir, dir), 0o755))
	}
	whole, err := json.Marshal(binding(rotationRole, allNodes))
	w.must(err)
	w.must(os.WriteFile(filepath.Join(w.dir, "binding"), whole, 0o644))
	target := &Target{RunID: runID, Spec: c.exp.Spec.Fault, Client: c.client}
	for i, name := range append([]string{crashControlPlane}, c.workers...) {
		n := newShellNode(t)
		n.must(os.RemoveAll(n.path("bin")))
		n.must(os.Symlink(c.bin, n.path("bin")))
		n.must(os.Symlink(w.dir, n.path("api")))
		n.must(os.Symlink(n.root, filepath.Join(w.dir, "nodes", name)))
		n.must(os.MkdirAll(n.path("etc/pki"), 0o755))
		n.must(os.MkdirAll(n.path("etc/system/kubelet.service.d"), 0o755))
		n.write("etc/kubelet.conf", "as kubeadm made it")
		n.write("kubelet", "active\n")
		n.write("pki/kubelet-client-2026-01-02-03-04-05.pem", "old")
		n.must(os.Symlink("kubelet-client-2026-01-02-03-04-05.pem", n.path("pki/kubelet-client-current.pem")))
		node := Node{name, crashNode{n, w}}
		w.shells[name], w.nodes[name] = n, node
		if i == 0 {
			n.write("etc/pki/ca.crt", c.ca)
			n.write("etc/pki/ca.key", "")
			target.ControlPlane = node
		}
		if i > len(c.workers)-c.targets {
			target.Nodes = append(target.Nodes, node)
		} else {
			target.ControlNodes = append(target.ControlNodes, node)
		}
	}
	w.run = &run{exp: c.exp, id: runID, fault: &csrDenied{}, target: target, nodes: w.nodes, stopAlive: func() {}}
	// What the run waits for after the repair. The fold has no targets and is
	// content at once.
	w.run.rec = observe.NewRecorder(func(e observe.Event) {
		if e.Type == judge.TypeRepaired {
			w.pass()
		}
	})
	target.Emit = w.run.rec.Emit
	plan, err := PlanFor(c.exp, "v1.37")
	w.must(err)
	w.run.cfg = plan.Config
	w.run.fold, err = judge.NewFold(&w.run.cfg, judge.FaultPlan{}, w.run.rec.Start())
	w.must(err)
	return w
}

func (w *crashWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// pass lets time pass.
func (w *crashWorld) pass() {
	n := w.shells[crashControlPlane]
	w.must(n.Exec(context.Background(), nil, io.Discard, n.path("bin/sleep")))
}

// until does something that ends, as by SIGKILL, before its script number stop,
// and says whether it came to its end.
func (w *crashWorld) until(stop int, each func(script string), do func()) (whole bool) {
	ran := 0
	w.onScript = func(script string) {
		if ran == stop {
			runtime.Goexit()
		}
		ran++
		each(script)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
		whole = true
	}()
	<-done
	w.onScript = nil
	return whole
}

const never = -1

// live is the part of a run's story that changes nodes, stopped before its script
// number stop. It returns the text of each script and how many lines the journal
// had before it, and in the end.
func (w *crashWorld) live(stop int) (scripts []string, lines []int) {
	w.t.Helper()
	r := w.run
	var err error
	r.journal, err = CreateJournal(filepath.Join(w.dir, "journal.jsonl"), "c1", runID)
	w.must(err)
	defer r.journal.f.Close()
	count := func() int { return len(w.journal()) }
	ctx := w.t.Context()
	whole := w.until(stop, func(script string) {
		scripts, lines = append(scripts, script), append(lines, count())
	}, func() {
		if err = r.stageSpares(ctx); err != nil {
			return
		}
		if err = r.prepare(ctx); err != nil {
			return
		}
		if err = r.inject(ctx); err != nil {
			return
		}
		r.putRight(ctx)
		err = r.journal.Close()
	})
	r.stopAlive()
	w.must(err)
	if whole != (stop == never) {
		w.t.Fatalf("stopped before script %d: %v", stop, !whole)
	}
	return scripts, append(lines, count())
}

// journal returns the lines on disk.
func (w *crashWorld) journal() []string {
	data, err := os.ReadFile(filepath.Join(w.dir, "journal.jsonl"))
	w.must(err)
	lines := strings.SplitAfter(string(data), "\n")
	return lines[:len(lines)-1]
}

// patient is what another process finds when the journal was cut after so many
// lines, or in the middle of the next.
func (w *crashWorld) patient(lines int, torn bool) *patient {
	w.t.Helper()
	all := w.journal()
	text := strings.Join(all[:lines], "")
	if torn {
		text += all[lines][:len(all[lines])/2]
	}
	records, err := ReadJournal(strings.NewReader(text))
	w.must(err)
	if len(records) != lines {
		w.t.Fatalf("%d records of %d lines", len(records), lines)
	}
	return &patient{records: records, nodes: w.nodes, controlPlane: crashControlPlane, before: w.before}
}

// describe says how nodes and cluster are. What keeps the nodes at work comes
// first, what a run put there comes second.
func (w *crashWorld) describe() (vital, rest string) {
	w.t.Helper()
	var v, r strings.Builder
	list := func(pattern string) (names []string) {
		files, err := filepath.Glob(pattern)
		w.must(err)
		for _, f := range files {
			names = append(names, filepath.Base(f))
		}
		return names
	}
	for _, name := range slices.Sorted(maps.Keys(w.shells)) {
		n := w.shells[name]
		current, _ := filepath.EvalSymlinks(n.path("pki/kubelet-client-current.pem"))
		fmt.Fprintf(&v, "%s: kubelet %s, certificate of its own %v\n", name, strings.TrimSpace(n.read("kubelet")),
			strings.HasPrefix(filepath.Base(current), "kubelet-client-2026-"))
		fmt.Fprintf(&r, "%s: timer %v, staged %v, ours %v, half rotated %v\n", name, n.exists("timer"), list(n.path("flatline/*")),
			list(n.path("pki/flatline-*")), n.exists("pki/kubelet-client-updated.pem"))
	}
	var b rbacv1.ClusterRoleBinding
	if data, err := os.ReadFile(filepath.Join(w.dir, "binding")); err != nil {
		v.WriteString("no binding\n")
	} else {
		w.must(json.Unmarshal(data, &b))
		fmt.Fprintf(&v, "binding %s: %v\n", b.RoleRef.Name, b.Subjects)
	}
	fmt.Fprintf(&r, "requests that wait: %v\n", list(filepath.Join(w.dir, "requests/*")))
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
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(w.shells))) {
		n := w.shells[name]
		if !n.exists("timer") {
			continue
		}
		n.silentFor(2 * deadManAfter)
		fired := n.exists("flatline/" + runID + "/fired")
		argv := strings.Fields(n.read("timer"))[1:]
		w.must(w.nodes[name].Exec(w.t.Context(), nil, io.Discard, argv...))
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
func (w *crashWorld) heal(when string, p *patient) {
	w.t.Helper()
	if err := p.heal(w.t.Context(), func(string) {}); err != nil {
		w.t.Errorf("%s: %v", when, err)
	}
	w.pass()
	w.wantAsBefore(when)
}

func crashCases(t *testing.T) []*crashCase {
	bin := t.TempDir()
	for name, body := range crashStubs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ca := testAuthority(t, newKey(t))
	pem := block("CERTIFICATE", ca.cert.Raw) + pkcs8(t, ca.key)
	client := fake.NewClientset(binding(rotationRole, allNodes))
	cases := []*crashCase{
		{name: "two targets with a minted certificate", workers: []string{"c1-worker", "c1-worker2"}, targets: 2,
			exp: parse(t, strings.Replace(smallExperiment, "from: rotation", "mint: 40s", 1), "")},
		{name: "everyone", workers: []string{"c1-worker", "c1-worker2"}, targets: 1, exp: parse(t, smallExperiment, "")},
	}
	cases[1].exp.Spec.Fault.Everyone = true
	for _, c := range cases {
		c.exp.Spec.Expect = nil
		c.bin, c.ca, c.client = bin, pem, client
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
			w := newCrashWorld(t, c)
			vital, rest := w.describe()
			c.state = vital + rest
			c.before = readState(t.Context(), w.nodes, crashControlPlane)
			for object, d := range c.before {
				if d["unreadable"] != "" {
					t.Fatalf("%s: %s", object, d["unreadable"])
				}
			}
			scripts, lines := w.live(never)
			w.wantAsBefore("not stopped")
			armed := slices.IndexFunc(scripts, func(s string) bool { return strings.Contains(s, "systemd-run") })
			undo := slices.Index(scripts, w.run.journal.Steps("undo")[0].Script)
			clean := slices.Index(scripts, w.run.journal.Steps("clean")[0].Script)
			if armed < 0 || undo < armed || clean < undo {
				t.Fatalf("armed by script %d, undone from %d, cleaned from %d", armed, undo, clean)
			}
			points := 0
			at := func(name string, stop int, do func(w *crashWorld)) {
				points++
				t.Run(fmt.Sprintf("%d %s", stop, name), func(t *testing.T) {
					t.Parallel()
					w := newCrashWorld(t, c)
					if stop == len(scripts) {
						stop = never
					}
					w.live(stop)
					do(w)
				})
			}
			for stop, most := range lines {
				least := 1
				if stop > 0 {
					least = lines[stop-1]
				}
				for n := least; n <= most; n++ {
					at(fmt.Sprintf("line %d", n), stop, func(w *crashWorld) {
						p := w.patient(n, n < most)
						w.heal("healed", p)
						if diffs := p.differences(w.t.Context()); len(diffs) > 0 {
							w.t.Errorf("healed, but %q", diffs)
						}
						w.heal("healed again", w.patient(n, false))
					})
					if stop > armed {
						at(fmt.Sprintf("line %d, timers", n), stop, func(w *crashWorld) { w.deadMan(); w.heal("healed", w.patient(n, false)) })
					}
				}
			}
			// Whoever heals may be killed too: with all broken, and with all repaired.
			for _, stop := range []int{undo, clean} {
				w := newCrashWorld(t, c)
				w.live(stop)
				var healing int
				var err error
				p := w.patient(lines[stop], false)
				w.until(never, func(string) { healing++ }, func() { err = p.heal(t.Context(), func(string) {}) })
				w.must(err)
				for k := 1; k < healing; k++ {
					for _, timers := range []bool{false, true} {
						if timers && stop == clean {
							continue // as with all broken and most of the healing done
						}
						at(fmt.Sprintf("healed up to %d, timers %v", k, timers), stop, func(w *crashWorld) {
							p := w.patient(lines[stop], false)
							if w.until(k, func(string) {}, func() { _ = p.heal(context.Background(), func(string) {}) }) {
								w.t.Error("it was not stopped")
							}
							if timers {
								w.deadMan()
							}
							w.heal("healed again", w.patient(lines[stop], false))
						})
					}
				}
			}
			t.Logf("%d scripts, %d lines, %d points", len(scripts), lines[len(scripts)], points)
		})
	}
}
