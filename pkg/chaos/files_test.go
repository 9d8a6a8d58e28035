package chaos

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

var triggers = []string{byRestart, byRotation}

// fileStubs are the stand-ins of a node whose mounts, attributes, processes and unit
// are files below HOME. A kubelet that finds no folder makes one. Those above the empty
// one change something.
var fileStubs = [][2]string{
	{"systemctl", `
case "$*" in
"stop kubelet")
  local state
  { read -r _ _ state _ < $HOME/proc/4711/stat; } 2>/dev/null
  [ "$state" != T ] || { echo "it does not end: it is frozen" >&2; return 1; }
  command -p rm -f $HOME/proc/4711/stat; echo 0 > $HOME/pid;;
"start kubelet")
  echo "4711 (kubelet) S 1" > $HOME/proc/4711/stat; echo 4711 > $HOME/pid
  [ -d $HOME/pki ] || { mkdir $HOME/pki; echo another > $HOME/pki/kubelet.crt; echo another > $HOME/pki/kubelet.key; };;
"daemon-reload") (cd $HOME/etc/systemd/system/kubelet.service.d && cat *) > $HOME/unit;;
"reset-failed kubelet") ;;
"show kubelet -p NRestarts --value") cat $HOME/restarts;;
"show kubelet -p MainPID --value"|"show containerd -p MainPID --value") cat $HOME/pid;;
*) return 1;;
esac`},
	{"mount", `
case "$*" in
"--bind $HOME/pki $HOME/pki") echo "/dev/x $HOME/pki ext4 rw,relatime 0 0" >> $HOME/proc/mounts;;
"-o remount,ro,bind $HOME/pki") sed -i '$s/ rw,/ ro,/' $HOME/proc/mounts;;
*) return 1;;
esac`},
	{"umount", `[ "$*" = $HOME/pki ] && sed -i '$d' $HOME/proc/mounts`},
	{"chattr", `
case "$*" in
"+i $HOME/pki") touch $HOME/immutable;;
"-i $HOME/pki") [ -d $HOME/pki ] && command -p rm -f $HOME/immutable;;
*) return 1;;
esac`},
	{"kill", `
[ "$2" = 4711 ] || return 1
case $1 in
-STOP) echo "4711 (kubelet) T 1" > $HOME/proc/4711/stat;;
-CONT) echo "4711 (kubelet) S 1" > $HOME/proc/4711/stat;;
-KILL) echo killed > $HOME/killed;;
esac`},
	{"mv", `held "$@" && return 1; command -p mv "$@"`}, {"rm", `held "$@" && return 1; command -p rm "$@"`},
	{"cp", `command -p cp "$@"`}, {"ln", `command -p ln "$@"`}, {"chmod", `command -p chmod "$@"`}, {"truncate", `command -p truncate "$@"`},
	{"install", `command -p install "$@"`}, {"sync", ""},
	{},
	{"mountpoint", `[ "$*" = "-q $HOME/pki" ] && [ -s $HOME/proc/mounts ]`},
	{"findmnt", `[ "$*" = "-n -o OPTIONS $HOME/pki" ] && tail -n 1 $HOME/proc/mounts | cut -d' ' -f4 | grep .`},
	{"lsattr", `flag() { [ -e $HOME/$1 ] && echo $2 || echo -; }; echo "----$(flag immutable i)------$(flag indexed I)--e------- $2"`},
	{"journalctl", `case "$*" in "-u kubelet --since @"[0-9]*" -o cat") cat $HOME/journal;; *) return 1;; esac`},
}

// newFileNode is a node with a kubelet that has rotated its certificate once. The
// command that is in the file "fail" fails.
func newFileNode(t *testing.T) *shellNode {
	n := newShellNode(t)
	for _, dir := range []string{"flatline/" + runID, "etc/systemd/system/kubelet.service.d", "proc/4711"} {
		n.must(os.MkdirAll(n.path(dir), 0o755))
	}
	const dated = "pki/kubelet-client-2026-01-02-03-04-05.pem"
	for name, text := range map[string]string{
		"pid": "4711\n", "restarts": "3\n", "proc/mounts": "", "proc/4711/stat": "4711 (kubelet) S 1\n", "fail": "", "journal": "", "unit": "[Service]\n",
		dated: block("CERTIFICATE", make([]byte, 600)), "pki/kubelet.crt": "of the server", "pki/kubelet.key": "key of the server", "flatline/" + runID + "/spare.pem": "spare",
		"config.yaml": "kind: KubeletConfiguration\nrotateCertificates: true\nstaticPodPath: /etc/kubernetes/manifests\n", "etc/systemd/system/kubelet.service.d/10-kubeadm.conf": "[Service]\n",
	} {
		n.write(name, text)
	}
	for name, mode := range map[string]os.FileMode{dated: 0o600, "pki/kubelet.key": 0o600, "pki": 0o750, "config.yaml": 0o660} {
		n.must(os.Chmod(n.path(name), mode))
	}
	n.must(os.Symlink(n.path(dated), n.path("pki/kubelet-client-current.pem")))
	standIn(t, n.root, "held", `
[ -s $HOME/proc/mounts ] || [ -e $HOME/immutable ] || return 1
local f
for f; do case $f in $HOME/pki|$HOME/pki/*) return 0;; esac; done
return 1`)
	log := `echo "$call" >> $HOME/calls`
	for _, s := range fileStubs {
		if s[0] == "" {
			log = ":"
			continue
		}
		standIn(t, n.root, s[0], fmt.Sprintf(`local fail call="%s $*"
%s
IFS= read -r fail < $HOME/fail
[ "$call" != "$fail" ] || { echo "$call: refused" >&2; return 1; }
%s`, s[0], log, s[1]))
	}
	return n
}

// tree is all that a fault of files may change, with mode, content and links.
func (n *shellNode) tree() string {
	var b strings.Builder
	n.must(filepath.WalkDir(n.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(n.root, path)
		if top, _, _ := strings.Cut(name, "/"); !strings.HasPrefix(top, "pki") && !strings.HasPrefix(top, "config.yaml") && top != "etc" {
			if d.IsDir() && name != "." {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		what := ""
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			what, err = os.Readlink(path)
		case info.Mode().IsRegular():
			what = n.read(name)
		}
		fmt.Fprintf(&b, "%s %s %q\n", name, info.Mode(), what)
		return err
	}))
	return b.String()
}

// changes are the commands since the last time that change something, on any node.
func (n *shellNode) changes() []string {
	commands := strings.Split(strings.TrimSpace(strings.ReplaceAll(n.calls(), n.root, "HOME")), "\n")
	return slices.DeleteFunc(commands, func(c string) bool { return c == "" || strings.HasPrefix(c, "systemctl show ") })
}

// fails has such a command fail from now on; "" has none.
func (n *shellNode) fails(command string) {
	n.write("fail", strings.ReplaceAll(command, "HOME", n.root))
}

// renewedLater is the Lease of a node that has just been renewed, no matter when it is read.
func renewedLater(node string) *coordv1.Lease {
	at := metav1.NewMicroTime(time.Now().Add(time.Hour))
	return &coordv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: node}, Spec: coordv1.LeaseSpec{RenewTime: &at}}
}

// breaking is a target on one such node, with the certificate that an experiment
// with this fault would give.
func breaking(n *shellNode, ca *authority, name, trigger string) (*Target, *[]timeline.Event, Fault) {
	target, events := fakeTarget(n, n, renewedLater("c1-worker2"))
	target.ca, target.Nodes, target.Spec = ca, target.Nodes[:1], FaultSpec{Type: name, Trigger: trigger}
	switch effect := kinds()[name].Effects[trigger]; {
	case name == "rotation-off":
		target.Spec.Certificate = Certificate{From: "rotation"}
	case trigger == byRotation:
		target.Spec.Certificate = Certificate{Mint: seconds(40)[0], Rotate: "later"}
	case effect == judge.EffectUnstored:
		target.Spec.Certificate = Certificate{Mint: seconds(40)[0]}
	}
	return target, events, kinds()[name].make()
}

// Whatever of an injection was done, all or what comes before a command that fails,
// undo puts every file back byte for byte, link for link and mode for mode, takes our
// drop-in out of the unit and leaves the kubelet stopped, as often as it is run; and
// it does not take the repair back.
func TestFilesComeBack(t *testing.T) {
	ca := testAuthority(t, newKey(t))
	comesBack := func(t *testing.T, name, trigger, fail string) (commands []string) {
		n := newFileNode(t)
		target, events, fault := breaking(n, ca, name, trigger)
		file, _ := fault.(*certFile)
		before, unit := n.tree(), n.read("unit")
		look := func(when string, want bool) {
			t.Helper()
			if file == nil {
				return
			}
			if ev, err := fault.Witness(t.Context(), target); err != nil || ev.InPlace != want {
				t.Errorf("%s: %+v, error %v", when, ev, err)
			}
		}
		look("before", false)
		n.calls()
		n.fails(fail)
		if err := fault.Inject(t.Context(), target); (err != nil) != (fail != "") {
			t.Errorf("%q fails: error %v", fail, err)
		}
		n.fails("")
		commands = n.changes()
		if fail == "" {
			look("injected", true)
		}
		if file != nil && fail == "" {
			if n.exists("etc/systemd/system/kubelet.service.d/90-flatline.conf") != file.powerless || strings.Contains(n.read("unit"), "CapabilityBoundingSet=~CAP_DAC_OVERRIDE") != file.powerless {
				t.Errorf("powerless %v, the unit is %s", file.powerless, n.read("unit"))
			}
			// As the shell hears it: the last of the words that show it, and no others.
			said := strings.ReplaceAll(file.says[trigger], ".*", " x: ")
			n.write("journal", "I0102 starting\nfirst "+said+"\nE0102 "+said+"!\nI0102 more\n")
			if ev, err := fault.Witness(t.Context(), target); err != nil || !ev.Biting || ev.Seen != "c1-worker2: E0102 "+said+"!" {
				t.Errorf("heard %+v, error %v", ev, err)
			}
		}
		n.run("systemctl start kubelet") // as systemd does again and again
		undo := fault.Undo(target)
		for again := range 2 {
			for _, s := range undo {
				if !strings.HasPrefix(s.Script, inStage(runID, "")) || s.On != "c1-worker2" {
					t.Errorf("%s, on %s: would do something after the clean-up", s.Desc, s.On)
				}
				n.run(s.Script)
			}
			if got := n.tree(); got != before {
				t.Errorf("%q failed, undone %d times:\n%s", fail, again+1, differ(before, got))
			}
			if n.read("pid") != "0\n" || n.read("unit") != unit {
				t.Errorf("%q failed: the kubelet is %s, its unit %s", fail, n.read("pid"), n.read("unit"))
			}
		}
		if fail != "" {
			return commands
		}
		look("undone", false)
		if file != nil {
			n.must(file.Kept(t.Context(), target))
			kept := *events
			was, is := maps.Clone(kept[0].Detail), maps.Clone(kept[len(kept)-1].Detail)
			if was["when"] != "before" || is["when"] != "undone" || was["kubelet.key"] == "" || !strings.HasSuffix(was["kubelet-client-current.pem"], ".pem") {
				t.Errorf("recorded %v\nand %v", was, is)
			}
			delete(was, "when")
			delete(is, "when")
			if !maps.Equal(was, is) {
				t.Errorf("undone it is recorded as %v, was %v", is, was)
			}
		}
		for _, s := range repairSteps(target) {
			n.run(s.Script)
		}
		repaired := n.tree()
		for _, s := range slices.Concat(undo, repairSteps(target)) { // who heals takes both again
			n.run(s.Script)
		}
		if got := n.tree(); got != repaired {
			t.Errorf("undone and repaired twice:\n%s", differ(repaired, got))
		}
		return commands
	}
	var tried sync.Map
	for name := range kinds() {
		_, ofFiles := fileFaults()[name]
		for _, trigger := range triggers {
			if !ofFiles && (name != "rotation-off" || trigger == byRotation) {
				continue
			}
			t.Run(name+" "+trigger, func(t *testing.T) {
				t.Parallel()
				commands := comesBack(t, name, trigger, "")
				for i, command := range commands {
					// Where two faults begin alike, one of them is enough.
					if _, done := tried.LoadOrStore(strings.Join(commands[:i+1], "\n"), true); !done {
						comesBack(t, name, trigger, command)
					}
				}
			})
		}
	}
}

// An undo that says nothing has put all back; one that says that it failed does so the
// next time.
func TestUndoOfFilesThatFails(t *testing.T) {
	ca := testAuthority(t, newKey(t))
	for _, name := range []string{"cert-unreadable", "cert-readonly", "cert-immutable", "cert-path-moved", "rotation-off"} {
		trigger := byRestart
		if name == "rotation-off" {
			trigger = ""
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			undoes := func(fail string) (commands []string) {
				n := newFileNode(t)
				before, unit := n.tree(), n.read("unit")
				target, _, fault := breaking(n, ca, name, trigger)
				n.must(fault.Inject(t.Context(), target))
				n.calls()
				n.fails(fail)
				undo := func() error {
					_, err := (Node{"n", n}).script(t.Context(), nil, fault.Undo(target)[0].Script)
					return err
				}
				err := undo()
				commands = n.changes()
				if undone := n.tree() == before && n.read("unit") == unit; err == nil && !undone {
					t.Errorf("%q fails, and no error:\n%sthe unit is %s", fail, differ(before, n.tree()), n.read("unit"))
				}
				n.fails("")
				if err := undo(); err != nil || n.tree() != before || n.read("unit") != unit {
					t.Errorf("%q had failed: %v\n%sthe unit is %s", fail, err, differ(before, n.tree()), n.read("unit"))
				}
				return commands
			}
			for _, command := range undoes("") {
				undoes(command)
			}
		})
	}
}

// storyOf is what an injection tells, with the stamps of fileAnswers.
func storyOf(f fileFault, trigger string, minted bool) []string {
	targets := []string{"c1-worker2", "c1-worker3"}
	var story []string
	tell := func(text string) { story = append(story, text) }
	installed := func(node, at string, is bool) {
		if is {
			tell("run Installed certificate " + node + " " + at)
		}
	}
	for _, n := range targets {
		tell("run Snapshot certificate files of " + n + " 00")
	}
	if trigger == byRestart {
		tell("run Injected 41.5 " + f.what + "; the kubelet is restarted")
		for _, n := range targets {
			installed(n, "42.5", minted || f.pem != nil)
			tell("run KubeletStopped node " + n + " 41.5")
			tell("run KubeletStarted node " + n + " 42.5")
		}
		return story
	}
	for _, n := range targets {
		installed(n, "42.5", minted)
		if minted || f.powerless {
			tell("run KubeletStarted node " + n + " 42.5")
		}
	}
	tell("run Injected 44.5 " + f.what + " when the kubelet wants the next one")
	for _, n := range targets {
		installed(n, "44.5", f.pem != nil)
	}
	return story
}

func fileAnswers() *fakeNode {
	return answers("lsattr", "attributes=\nkubelet.key=-rw------- root:root 0123\n", "echo $at $started", "1001.500000000 1002.500000000\n", "echo $at", "1004.500000000\n")
}

// What each fault tells, in order, whose certificate it puts there, and that no key is
// written where others may read it.
func TestInjectOfEachFileFault(t *testing.T) {
	own, now, later := Certificate{From: "rotation"}, Certificate{Mint: seconds(40)[0]}, Certificate{Mint: seconds(40)[0], Rotate: "later"}
	for name, f := range fileFaults() {
		for _, trigger := range triggers {
			for _, c := range map[string][]Certificate{byRestart: {{}, own, now}, byRotation: {own, later}}[trigger] {
				if trigger == byRestart && (f.effects[trigger] == judge.EffectUnstored) != (c != (Certificate{})) {
					continue
				}
				minted := c != (Certificate{}) && c.Mint > 0
				t.Run(fmt.Sprint(name, " ", trigger, ", minted ", minted), func(t *testing.T) {
					worker := fileAnswers()
					target, events := fakeTarget(&fakeNode{}, worker, renewedLater("c1-worker2"), renewedLater("c1-worker3"))
					target.ca, target.Spec = testAuthority(t, newKey(t)), FaultSpec{Type: name, Trigger: trigger, Certificate: c}
					fault := &certFile{fileFault: f}
					if err := fault.Inject(t.Context(), target); err != nil {
						t.Fatal(err)
					}
					if got, want := told(*events), storyOf(f, trigger, minted); !slices.Equal(got, want) {
						t.Errorf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
					}
					if d := (*events)[0].Detail; d["when"] != "before" || d["kubelet.key"] != "-rw------- root:root 0123" {
						t.Errorf("recorded %v", d)
					}
					keys := map[string]int{}
					for i, script := range worker.scripts {
						parses(t, "script", script)
						staged := ""
						for _, file := range []string{"short.pem", "other.pem"} {
							if strings.Contains(script, "(umask 077; cat > "+file+")\n") {
								staged = file
							}
						}
						if (worker.stdin[i] != "") != (staged != "") || strings.Contains(script, "PRIVATE KEY") || strings.Count(script, "cat >") > 1 {
							t.Errorf("the key must go in by stdin, and into a file of ours alone:\n%s", script)
						}
						if staged == "" {
							continue
						}
						keys[staged]++
						if !strings.HasPrefix(script, inStage(runID, "set -e\n")) || strings.Index(script, "cat >") > strings.Index(script, "set -- "+staged) {
							t.Errorf("not staged before it is installed:\n%s", script)
						}
						b, rest := pem.Decode([]byte(worker.stdin[i]))
						cert, err := x509.ParseCertificate(b.Bytes)
						if err != nil || !strings.Contains(string(rest), "PRIVATE KEY") {
							t.Fatal(err, string(rest))
						}
						whose, known := "c1-worker2", cert.CheckSignatureFrom(target.ca.cert) == nil
						if keys[staged] == 2 {
							whose = "c1-worker3"
						}
						if staged == "other.pem" && name == "cert-other-node" {
							whose = "c1-worker"
						}
						if cert.Subject.CommonName != "system:node:"+whose || known == (staged == "other.pem" && name == "cert-foreign-ca") {
							t.Errorf("%s is of %s, signed by the cluster's CA %v", staged, cert.Subject.CommonName, known)
						}
					}
					want := map[string]int{}
					if minted {
						want["short.pem"] = 2
					}
					if f.pem != nil {
						want["other.pem"] = 2
					}
					if !maps.Equal(keys, want) {
						t.Errorf("staged %v, want %v", keys, want)
					}
				})
			}
		}
	}
}

// An injection that fails at any of its scripts says so, and tells nothing that comes
// after; and no one may take an empty answer for a time.
func TestInjectOfEachFileFaultFails(t *testing.T) {
	bad := errors.New("exit status 1")
	for _, trigger := range triggers {
		f := fileFaults()["cert-readonly"]
		inject := func(at int, err error) (int, []string, error) {
			worker, ran := fileAnswers(), 0
			whole := worker.answer
			worker.answer = func(ctx context.Context, script string) (string, error) {
				if ran++; ran == at {
					return "", err
				}
				return whole(ctx, script)
			}
			target, events := fakeTarget(&fakeNode{}, worker, renewedLater("c1-worker2"), renewedLater("c1-worker3"))
			target.ca, target.Spec = testAuthority(t, newKey(t)), FaultSpec{Trigger: trigger, Certificate: Certificate{Mint: seconds(40)[0]}}
			err = (&certFile{fileFault: f}).Inject(t.Context(), target)
			return ran, told(*events), err
		}
		all, story, err := inject(0, nil)
		if err != nil {
			t.Fatal(err)
		}
		last := -1
		for at := 1; at <= all; at++ {
			_, told, err := inject(at, bad)
			if !errors.Is(err, bad) || len(told) >= len(story) && trigger == byRestart || !slices.Equal(told, story[:len(told)]) || len(told) < last {
				t.Errorf("by %s, script %d fails: error %v, told %q", trigger, at, err, told)
			}
			last = len(told)
			if _, mute, err := inject(at, nil); at > 4 && (err == nil || !slices.Equal(mute, told)) { // the first four keep and look
				t.Errorf("by %s, script %d is mute: error %v, told %q", trigger, at, err, mute)
			}
		}
	}
	// A kubelet that does not come back with the new certificate will not rotate it.
	ctx, cancel := context.WithCancelCause(t.Context())
	worker := fileAnswers()
	target, events := fakeTarget(&fakeNode{}, worker)
	target.ca, target.Spec = testAuthority(t, newKey(t)), FaultSpec{Trigger: byRotation, Certificate: Certificate{Mint: seconds(40)[0], Rotate: "later"}}
	cancel(bad)
	if err := (&certFile{fileFault: fileFaults()["cert-readonly"]}).Inject(ctx, target); !errors.Is(err, bad) || strings.Contains(fmt.Sprint(told(*events)), timeline.TypeInjected) {
		t.Errorf("error %v, told %q", err, told(*events))
	}
}

// Who was not broken has nothing to be kept, and who cannot be looked at is an error.
func TestKept(t *testing.T) {
	worker := fileAnswers()
	target, events := fakeTarget(&fakeNode{}, worker)
	f := &certFile{since: map[string]time.Time{"c1-worker3": time.Unix(1, 0)}}
	if err := f.Kept(t.Context(), target); err != nil || len(*events) != 1 || (*events)[0].Object != "certificate files of c1-worker3" || (*events)[0].Detail["when"] != "undone" {
		t.Errorf("error %v, told %v", err, *events)
	}
	gone := errors.New("no such container")
	worker.answer = func(context.Context, string) (string, error) { return "", gone }
	if err := f.Kept(t.Context(), target); !errors.Is(err, gone) {
		t.Errorf("error %v", err)
	}
	if err := (&certFile{}).Kept(t.Context(), target); err != nil {
		t.Errorf("nothing was broken: %v", err)
	}
}

// It bites when every target's kubelet says so, and has failed to start more than once
// where that is the effect.
func TestWitnessOfFiles(t *testing.T) {
	injected := map[string]time.Time{"c1-worker2": time.Unix(1000, 999), "c1-worker3": time.Unix(1002, 0)}
	const powerful, powerless, silent = "000001ffffffffff", "000001fffffffff9", "the kubelet has said nothing of the kind so far"
	for name, tc := range map[string]struct {
		fault, trigger  string
		since           map[string]time.Time
		one, other      string
		inPlace, biting bool
		seen            string
	}{
		"before":                           {"cert-readonly", byRestart, nil, "out\n0\n0\n", "out\n0\n0\n", false, false, "c1-worker2: " + silent + "; c1-worker3: " + silent},
		"in place before":                  {"cert-readonly", byRestart, nil, "in\n0\n0\n", "in\n0\n0\n", true, false, "c1-worker2: " + silent},
		"in place on one":                  {"cert-readonly", byRestart, injected, "in\n0\n0\nread-only", "out\n0\n0\nread-only", false, false, "c1-worker2: read-only; c1-worker3: read-only"},
		"all say so":                       {"cert-readonly", byRestart, injected, "in\n0\n0\nread-only", "in\n0\n0\nread-only", true, true, "c1-worker2: read-only; c1-worker3: read-only"},
		"one says so":                      {"cert-readonly", byRestart, injected, "in\n0\n0\nread-only", "in\n0\n0\n", true, false, "c1-worker2: read-only; c1-worker3: " + silent},
		"it says so and has not restarted": {"cert-truncated", byRestart, injected, "in\n0\n0\nPEM", "in\n2\n0\nPEM", true, false, "c1-worker2: PEM"},
		"it says so and restarted once":    {"cert-truncated", byRestart, injected, "in\n1\n0\nPEM", "in\n2\n0\nPEM", true, false, "c1-worker2: PEM"},
		"it says so and restarted twice":   {"cert-truncated", byRestart, injected, "in\n2\n0\nPEM", "in\n2\n0\nPEM", true, true, "c1-worker2: PEM"},
		"it restarts and says nothing":     {"cert-truncated", byRestart, injected, "in\n9\n0\n", "in\n9\n0\n", true, false, "c1-worker2: " + silent},
		"an empty file at a rotation":      {"cert-empty", byRotation, injected, "in\n0\n0\nPEM", "in\n0\n0\nPEM", true, true, "c1-worker2: PEM"},
		"no restart at a rotation":         {"cert-truncated", byRotation, injected, "in\n0\n0\nPEM", "in\n0\n0\nPEM", true, true, "c1-worker2: PEM"},
		"root reads all":                   {"cert-mode-only", byRestart, injected, "in\n0\n" + powerful + "\n", "in\n0\n0000000000000002\n", true, false, "c1-worker2: the kubelet reads its files whatever their mode: it has CAP_DAC_OVERRIDE; c1-worker3: the kubelet reads"},
		"root reads all at a rotation":     {"cert-mode-only", byRotation, injected, "in\n0\n" + powerful + "\n", "in\n0\n" + powerful + "\n", true, false, "c1-worker2: the kubelet reads its files whatever their mode: it has CAP_DAC_OVERRIDE"},
		"mode only, and no power":          {"cert-mode-only", byRestart, injected, "in\n0\n" + powerless + "\n", "in\n0\n0\n", true, false, "c1-worker2: " + silent},
		"power is an excuse for one":       {"cert-unreadable", byRestart, injected, "in\n9\n" + powerful + "\n", "in\n9\n0\n", true, false, "c1-worker2: " + silent},
	} {
		one, other := &fakeNode{answer: func(context.Context, string) (string, error) { return tc.one, nil }}, &fakeNode{answer: func(context.Context, string) (string, error) { return tc.other, nil }}
		target, events := fakeTarget(&fakeNode{}, nil)
		target.Nodes = []Node{{"c1-worker2", one}, {"c1-worker3", other}}
		target.Spec = FaultSpec{Type: tc.fault, Trigger: tc.trigger}
		f := &certFile{fileFault: fileFaults()[tc.fault], since: tc.since}
		ev, err := f.Witness(t.Context(), target)
		if err != nil || ev.InPlace != tc.inPlace || ev.Biting != tc.biting || !strings.HasPrefix(ev.Seen, tc.seen) || len(*events) > 0 {
			t.Errorf("%s: %+v, error %v; want in place %v, biting %v, seen %s", name, ev, err, tc.inPlace, tc.biting, tc.seen)
		}
		for i, script := range []string{one.scripts[0], other.scripts[0]} {
			parses(t, name, script)
			if since := fmt.Sprintf("journalctl -u kubelet --since @%d ", []int{1000, 1002}[i]); strings.Contains(script, since) != (tc.since != nil) || !strings.Contains(script, f.inPlace) {
				t.Errorf("%s: looked by\n%s", name, script)
			}
		}
	}
	// To be unable to look is not to see nothing.
	gone := errors.New("no such container")
	for answer, err := range map[string]error{"": nil, "in\n": nil, "in\n0\n": nil, "in\n\n0\nread-only": nil, "in\n0\nx\nread-only": nil, "in\n0\n0\nread-only": gone} {
		node := &fakeNode{answer: func(context.Context, string) (string, error) { return answer, err }}
		target, _ := fakeTarget(&fakeNode{}, node)
		target.Spec.Trigger = byRestart
		ev, got := (&certFile{fileFault: fileFaults()["cert-readonly"], since: injected}).Witness(t.Context(), target)
		if got == nil || err != nil && !errors.Is(got, err) || !strings.Contains(got.Error(), "c1-worker2") {
			t.Errorf("%q: saw %+v, error %v", answer, ev, got)
		}
	}
}

// Every fault of files has an effect and words for both triggers, by which it is
// judged and heard.
func TestFileFaultsAreWhole(t *testing.T) {
	for name, f := range fileFaults() {
		for _, trigger := range triggers {
			e, err := Parse(nil, name+".yaml", []byte(strings.NewReplacer("name: small", "name: "+name, "{type: csr-denied, certificate: {from: rotation}}", fmt.Sprintf("{type: %s, trigger: %s%s}", name, trigger,
				map[bool]string{true: ", certificate: {from: rotation}"}[trigger == byRotation || f.effects[trigger] == judge.EffectUnstored])).Replace(smallExperiment)), "")
			if err != nil {
				t.Errorf("%s: %v", name, err)
			} else if e.Spec.Fault.Effect != f.effects[trigger] || e.Spec.Fault.Effect == "" || f.says[trigger] == "" || f.what == "" || f.inPlace == "" || f.breaks == "" && f.pem == nil {
				t.Errorf("%s by %s: effect %q, %+v", name, trigger, e.Spec.Fault.Effect, f)
			}
		}
	}
	if e := parse(t, strings.Replace(smallExperiment, "{type: csr-denied, certificate: {from: rotation}}", "{type: kubelet-frozen}", 1), ""); e.Spec.Fault.Effect != judge.EffectSilent {
		t.Errorf("effect %q", e.Spec.Fault.Effect)
	}
}

// ext4 indexes a folder that has become large, by itself: that is no change of a run. What
// chattr sets is one.
func TestAttributesOfTheFilesystem(t *testing.T) {
	n := newFileNode(t)
	for name, script := range map[string]string{"snapshot": snapshotScript(), "files": given(filesScript, pkiDir)} {
		attributes := func() string {
			t.Helper()
			_, after, there := strings.Cut(n.run(script), "attributes=")
			line, _, _ := strings.Cut(after, "\n")
			if !there || line == "" {
				t.Errorf("%s: no attributes", name)
			}
			return line
		}
		before := attributes()
		n.write("indexed", "")
		if got := attributes(); got != before {
			t.Errorf("%s: indexed by the filesystem, attributes %s, before %s", name, got, before)
		}
		n.write("immutable", "")
		if got := attributes(); got == before {
			t.Errorf("%s: immutable, attributes %s as before", name, got)
		}
		n.must(errors.Join(os.Remove(n.path("indexed")), os.Remove(n.path("immutable"))))
	}
}
