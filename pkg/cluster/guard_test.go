package cluster

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A guard lets its node go on when nobody was heard of, and twice so; it asks the engine
// before, and ends with the node. Its stand-in for sleep says what happens meanwhile.
func TestGuardScript(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the script is for a node's bash")
	}
	const silent = `
1) up 160;;
2) up 175;;
`
	for name, tc := range map[string]struct {
		sleeps              string // what happens in each, by its number
		code, paused, after string // what the engine answers
		asked               string // of it
		slept               string
		fired, ends         bool
	}{
		"the runner is heard of":      {"1) up 159;;\n2) up 160;;\n3) up 175; echo 170 > guard/alive;;\n", "200", "true", "204", "", "5 5 15 5", false, false},
		"the machine was started":     {"1) up 3;;\n2) up 4;;\n", "200", "true", "204", "GET json, POST unpause", "5 15 5", true, false},
		"the runner is gone":          {silent, "200", "true", "204", "GET json, POST unpause", "5 15 5", true, false},
		"the node goes on":            {silent, "200", "false", "204", "GET json", "5 15 5", false, false},
		"the node is gone":            {silent, "404", "", "", "GET json", "5 15", false, true},
		"the engine does not answer":  {silent, "000", "", "", "GET json", "5 15 5", false, false},
		"it is asked until it does":   {silent + "4) echo 200 > code;;\n", "000", "true", "204", "GET json, GET json, POST unpause", "5 15 5 15 5", true, false},
		"somebody else was faster":    {silent, "200", "true", "500", "GET json, POST unpause", "5 15 5", false, false},
		"no sign of life can be read": {"1) rm guard/alive;;\n", "200", "true", "204", "", "5 5", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			last := len(strings.Fields(tc.slept))
			stubs := map[string]string{
				"curl": `case "$*" in *" GET "*) echo '{}' > guard/state; echo GET json >> asked; cat code;; *" POST "*) echo POST unpause >> asked; cat after;; esac`,
				"jq":   `cat paused`,
				"sleep": `up() { echo "$1.50 1.00" > uptime; }
echo $1 >> sleeps
n=$(wc -l < sleeps)
case $n in
` + tc.sleeps + `esac
[ $n -lt ` + string(rune('0'+last)) + ` ] || kill -KILL $PPID`,
			}
			if tc.ends {
				stubs["sleep"] = strings.Replace(stubs["sleep"], "kill -KILL $PPID", "true", 1)
			}
			for name, body := range stubs {
				put(t, dir, name, []byte("#!/bin/bash\ncd "+dir+"\n"+body+"\n"))
				if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for name, text := range map[string]string{"uptime": "100.25 1.00\n", "code": tc.code, "paused": tc.paused + "\n", "after": tc.after} {
				put(t, dir, name, []byte(text))
			}
			script := strings.NewReplacer("mkdir -p /guard && cd /guard", "mkdir -p "+dir+"/guard && cd "+dir+"/guard", "/proc/uptime", dir+"/uptime").Replace(guardScript)
			cmd := exec.Command("bash", "-c", script, "guard", "c-worker", "60", "15")
			cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if tc.ends == errors.As(err, &exit) {
				t.Errorf("it ended by itself %v: %v: %s", err == nil, err, out)
			}
			read := func(name, sep string) string {
				data, _ := os.ReadFile(filepath.Join(dir, name))
				return strings.Join(strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' }), sep)
			}
			if asked, slept := read("asked", ", "), read("sleeps", " "); asked != tc.asked || slept != tc.slept {
				t.Errorf("asked %q, slept %q; want %q, %q: %s", asked, slept, tc.asked, tc.slept, out)
			}
			if _, err := os.Stat(filepath.Join(dir, "guard", "fired")); (err == nil) != tc.fired {
				t.Errorf("fired %v", err == nil)
			}
		})
	}
}

// A guard that cannot ask the engine is no guard, and one that is gone needs no sign.
func TestGuard(t *testing.T) {
	dir := stubDocker(t, `
case "$1 $2" in
"container inspect") echo sha256:abc;;
"context inspect") echo unix:///run/user/1000/docker.sock;;
"ps --all") cat $stub/there 2>/dev/null; true;;
"exec c-worker-guard") [ -e $stub/guard ] && { cat $stub/guard; exit; }
  echo "Error response from daemon: No such container: c-worker-guard" >&2; exit 1;;
esac`)
	t.Setenv("DOCKER_HOST", "")
	n := &Node{Name: "c-worker"}
	if fired, err := n.Sign(t.Context()); fired || err != nil {
		t.Errorf("no guard: fired %v, error %v", fired, err)
	}
	for says, want := range map[string]string{"true\n": "", "false\n": `it sees the node's State.Running as "false"`, "": "the guard cannot ask the engine"} {
		put(t, dir, "guard", []byte(says))
		if err := n.Guard(t.Context(), time.Minute, 15*time.Second); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", says, err, want)
		}
	}
	calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
	if !strings.Contains(string(calls), "--volume /run/user/1000/docker.sock:/engine.sock --entrypoint bash sha256:abc -c ") || !strings.Contains(string(calls), "guard c-worker 60 15\n") {
		t.Errorf("called %s", calls)
	}
	put(t, dir, "guard", []byte("fired\n"))
	if fired, err := n.Sign(t.Context()); !fired || err != nil {
		t.Errorf("fired %v, error %v", fired, err)
	}
	put(t, dir, "there", []byte("0123\n4567\n"))
	if err := n.Unguard(t.Context()); err != nil {
		t.Error(err)
	}
	if calls, _ = os.ReadFile(filepath.Join(dir, "calls")); !strings.HasSuffix(string(calls), "rm --force --volumes 0123\nrm --force --volumes 4567\n") {
		t.Errorf("called %s", calls)
	}
}
