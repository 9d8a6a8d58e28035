package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

const runID = "20260102t030405z-beef"

// signedBefore is a sign of life of so long ago.
func signedBefore(d time.Duration) string { return fmt.Sprintln(1_000_000 - int64(d.Seconds())) }

// silentFor makes the runner's last sign of life so old.
func (n *shellNode) silentFor(d time.Duration) {
	n.t.Helper()
	n.write("flatline/"+runID+"/alive", signedBefore(d))
}

func armed(t *testing.T, steps ...Step) *shellNode {
	t.Helper()
	n := newShellNode(t)
	standIn(t, n.root, "date", standingClock)
	n.must(armDeadMan(t.Context(), Node{"n", n}, runID, steps))
	return n
}

func TestDeadManTimer(t *testing.T) {
	n := armed(t, step("a"))
	unit := "flatline-" + runID + ".timer"
	if got, want := n.calls(), "systemctl daemon-reload\nsystemctl enable --quiet --now "+unit+"\nsystemctl is-active --quiet "+unit+"\n"; got != want {
		t.Errorf("called %q, want %q", got, want)
	}
	dir := n.here(stage(runID))
	service, timer := n.read("etc/systemd/system/flatline-"+runID+".service"), n.read("etc/systemd/system/"+unit)
	if want := "[Service]\nExecStart=/bin/bash " + dir + "/deadman " + dir + " 60 15\n"; service != want {
		t.Errorf("service %q, want %q", service, want)
	}
	if want := "[Timer]\nOnActiveSec=10\nOnUnitActiveSec=10\nAccuracySec=1s\n[Install]\nWantedBy=timers.target\n"; timer != want {
		t.Errorf("timer %q, want %q", timer, want)
	}

	// Without a timer nothing may be broken.
	n = newShellNode(t)
	n.stub("systemctl", `echo "no bus" >&2; return 1`)
	if err := armDeadMan(t.Context(), Node{"worker", n}, runID, nil); err == nil || !strings.Contains(err.Error(), "arming the dead-man timer on worker: ") || !strings.Contains(err.Error(), "no bus") {
		t.Errorf("error %v", err)
	}

	// One without a sign of life would fire at once.
	n = newShellNode(t)
	n.must(os.Remove(n.path("proc/uptime")))
	if err := armDeadMan(t.Context(), Node{"worker", n}, runID, nil); err == nil || n.calls() != "" {
		t.Errorf("armed without a sign of life: %v", err)
	}
}

func TestDeadMan(t *testing.T) {
	n := armed(t,
		Step{On: "n", Script: "echo first >> ran; exit 3"},
		Step{On: "n", Script: inStage(runID, "echo second >> ran; echo said")},
		Step{On: "n", Script: "set -e; false; echo never >> ran"},
		Step{On: "n", Script: "echo fourth >> ran"})
	at := "flatline/" + runID + "/"
	look := func() {
		t.Helper()
		if err := deadMan(n); err != nil {
			t.Error(err)
		}
	}
	fired := func() bool {
		t.Helper()
		f, err := keepAliveLooks(n)
		n.must(err)
		return f
	}

	// Armed, and the runner lives.
	look()
	n.silentFor(deadManAfter - time.Second)
	look()
	if n.exists(at+"fired") || n.exists(at+"ran") || n.exists(at+"out-0") {
		t.Fatal("it fired while the runner was heard of")
	}
	if fired() {
		t.Error("said to have fired")
	}

	n.silentFor(deadManAfter)
	look()
	if got := n.read(at + "ran"); got != "first\nsecond\nfourth\n" {
		t.Errorf("ran %q", got)
	}
	if got := n.read(at + "out-1"); got != "said\n" {
		t.Errorf("output %q", got)
	}
	first := n.read(at + "fired")
	n.silentFor(time.Hour)
	look()
	if got := n.read(at + "ran"); got != "first\nsecond\nfourth\nfirst\n" { // the one that had failed
		t.Errorf("ran %q", got)
	}
	if n.read(at+"fired") != first {
		t.Error("the time at which it fired is lost")
	}
	if !fired() {
		t.Error("not said to have fired")
	}

	// Where the folder is gone all was cleaned up.
	n.must(os.RemoveAll(n.path(at)))
	_ = deadMan(n)
	if n.exists(at) {
		t.Error("it came back")
	}
}

// deadMan has the node's timer tick once.
func deadMan(n *shellNode) error {
	return n.Exec(n.t.Context(), nil, io.Discard, "/bin/bash", stage(runID)+"/deadman", stage(runID), "60", "15")
}

func keepAliveLooks(n *shellNode) (bool, error) {
	return keepAlive(n.t.Context(), Node{"n", n}, runID)
}

func TestKeepAlive(t *testing.T) {
	n := armed(t)
	n.silentFor(time.Hour)
	if _, err := keepAliveLooks(n); err != nil {
		t.Fatal(err)
	}
	if got := n.read("flatline/" + runID + "/alive"); got != signedBefore(0) {
		t.Errorf("the sign of life is %q", got)
	}
	n.must(os.RemoveAll(n.path("flatline/" + runID)))
	if fired, err := keepAliveLooks(n); fired || err != nil {
		t.Errorf("folder gone: fired %v, error %v", fired, err)
	}
	if n.exists("alive") || n.exists("flatline/"+runID) {
		t.Error("a sign of life outside the folder")
	}
	gone := errors.New("no such container")
	fake := &fakeNode{answer: func(context.Context, string) (string, error) { return "", gone }}
	if _, err := keepAlive(t.Context(), Node{"worker", fake}, runID); !errors.Is(err, gone) || !strings.Contains(err.Error(), "worker") {
		t.Errorf("error %v", err)
	}
}

// Steps pass through two layers of shell and must arrive as they are.
func TestDeadManContent(t *testing.T) {
	scripts := []string{
		"echo 'single' \"double\" $HOME ${x} $(false) `false` \\ \\\\ \\n",
		"line 1\n\n\n  indented\t\n#comment\n",
		"cat <<EOF\n$x EOF\nEOF\n",
		"cat <<'FLATLINE'\nx\nFLATLINE\n",
		`-o go-template='{{range .items}}{{if eq .x "y"}}%s %d{{end}}{{end}}' | xargs -r`,
		"é \u2028 \x01 \x7f",
		"last line without end\\",
	}
	var steps []Step
	for _, s := range scripts {
		steps = append(steps, Step{On: "n", Script: s})
	}
	n := armed(t, steps...)
	for i, s := range scripts {
		if got := n.read(fmt.Sprintf("flatline/%s/step-%d", runID, i)); got != strings.TrimSuffix(s, "\n")+"\n" {
			t.Errorf("%q arrived as %q", s, got)
		}
	}
}

func TestInStage(t *testing.T) {
	n := newShellNode(t)
	script := inStage(runID, "touch here; echo done; exit 7")
	if out := n.run(script); out != "" || n.exists("here") {
		t.Errorf("without the folder: output %q, file %v", out, n.exists("here"))
	}
	n.must(os.Mkdir(n.path("flatline/"+runID), 0o755))
	out, err := Node{"n", n}.script(t.Context(), nil, script)
	if err == nil || out != "done\n" || !n.exists("flatline/"+runID+"/here") {
		t.Errorf("in the folder: output %q, error %v", out, err)
	}
}

func TestCleanStep(t *testing.T) {
	n := armed(t, step("a"))
	n.must(os.Mkdir(n.path("flatline/another-run"), 0o755))
	n.calls()
	n.stub("systemctl", "return 5") // as for units that are not loaded
	clean := cleanSteps("n", runID, false)[0]
	n.run(clean.Script)
	calls := strings.Split(strings.TrimSpace(n.calls()), "\n")
	if !strings.HasPrefix(calls[0], "systemctl disable --quiet --now flatline-"+runID+".timer") || n.exists("etc/systemd/system/flatline-"+runID+".timer") || n.exists("etc/systemd/system/flatline-"+runID+".service") {
		t.Errorf("the timer must end, with its units, before the folder goes: %q", calls)
	}
	if n.exists("flatline/"+runID) || !n.exists("flatline/another-run") {
		t.Errorf("own folder there: %v, that of another run: %v", n.exists("flatline/"+runID), n.exists("flatline/another-run"))
	}
	n.run(clean.Script)
	if calls := n.calls(); calls != "" {
		t.Errorf("a second time: %q", calls)
	}

	// The last run leaves nothing.
	n = armed(t)
	n.run(clean.Script)
	if n.exists("flatline") {
		t.Error("the folder of all runs is left")
	}
	n.run(clean.Script)
}

func TestScriptsParse(t *testing.T) {
	target := &fakeNode{answer: now}
	control := &fakeNode{answer: now}
	r := fakeRun(t, control, target)
	prepareAndInject(t, r)
	for _, kind := range []string{"undo", "repair", "clean"} {
		steps := r.journal.Steps(kind)
		if len(steps) == 0 {
			t.Errorf("no %s steps", kind)
		}
		for _, s := range steps {
			parses(t, kind+" step "+s.Desc, s.Script)
		}
	}
	for i, s := range slices.Concat(target.scripts, control.scripts) {
		parses(t, fmt.Sprint("script ", i), s)
	}
	parses(t, "snapshot", snapshotScript())
	parses(t, "install", installScript("spare.pem", "flatline-spare.pem"))
}

// The engine may give a node another address when it restarts, which kind writes into the
// node's files: that is not for a run to take back.
func TestSnapshotKnowsNoAddress(t *testing.T) {
	read := func(ip, port string) string {
		n := newShellNode(t)
		n.stub("hostname", "echo "+ip+" 10.244.0.1")
		n.must(os.MkdirAll(n.path("etc/manifests"), 0o755))
		n.write("etc/kubelet.conf", "server: https://"+ip+":"+port+"\n")
		n.write("etc/manifests/etcd.yaml", "- --listen-client-urls=https://"+ip+":2379, peer 172.18.0.33\n")
		var of []string
		for line := range strings.Lines(n.run(snapshotScript())) {
			if strings.HasPrefix(line, "kubeconfig=") || strings.HasPrefix(line, "manifests=") {
				of = append(of, line)
			}
		}
		if len(of) != 2 {
			t.Errorf("read %q", of)
		}
		return strings.Join(of, "")
	}
	if one, other := read("172.18.0.3", "6443"), read("172.18.0.4", "6443"); one != other {
		t.Errorf("another address: %q and %q", one, other)
	}
	if one, other := read("172.18.0.3", "6443"), read("172.18.0.3", "6444"); one == other {
		t.Errorf("another port is not seen: %q", one)
	}
}
