package docker

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// clone has the Makefile and some scripts of the repository in a folder of its own, with a
// program in the place of flatline.
func (h *host) clone(flatline string, scripts ...string) {
	h.t.Helper()
	for _, name := range append(scripts, "Makefile", "hack/lib.sh") {
		data, err := os.ReadFile(filepath.Join(h.repo, name))
		if err != nil {
			h.t.Fatal(err)
		}
		h.write("repo/"+name, string(data))
	}
	if flatline != "" {
		h.write("repo/bin/flatline", flatline)
	}
}

func (h *host) make(args ...string) result {
	return h.run("make", append([]string{"--no-print-directory", "-C", h.path("repo")}, args...)...)
}

const echoing = "#!/bin/sh\nfor a; do printf '<%s>' \"$a\"; done\necho\n"

// What a shell exports is not meant for a cluster; what make is told is.
func TestMakeTakesItsCommandLineOnly(t *testing.T) {
	h := newHost(t)
	h.clone("")
	makefile := h.read("repo/Makefile")
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`\$[({]([A-Z_]+)[)}]`).FindAllStringSubmatch(makefile, -1) {
		used[m[1]] = true
	}
	if len(used) < 15 {
		t.Fatalf("the Makefile uses %v: too few to be all", used)
	}
	for name := range used {
		if name != "ARGUMENTS" && name != "MAKEFILE_LIST" {
			h.env = append(h.env, name+"=prod")
		}
	}
	var targets []string
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):.*## `).FindAllStringSubmatch(makefile, -1) {
		targets = append(targets, m[1])
	}
	for _, flag := range []string{"-n", "-en"} {
		for _, target := range targets {
			if r := h.make(flag, target); r.code != 0 || strings.Contains(r.stdout, "prod") {
				t.Errorf("make %s %s: %+v", flag, target, r)
			}
		}
	}
	r := h.make("-n", "experiment", "NAME=csr-denied", "CLUSTER=mine", "SET=a.b=1 c.d=2")
	if want := "bin/flatline run 'csr-denied'  --set 'a.b=1' --set 'c.d=2' --keep 'never'  --cluster 'mine'\n"; !strings.HasSuffix(r.stdout, want) {
		t.Errorf("got %+v, want %s", r, want)
	}
}

func TestMakeQuotes(t *testing.T) {
	h := newHost(t)
	h.clone(echoing, "hack/binary")
	if r := h.make("heal", "RUN=it's a $$(touch stray); folder"); r.code != 0 || r.stdout != "<heal><it's a $(touch stray); folder>\n" {
		t.Errorf("got %+v", r)
	}
	if r := h.make("heal"); r.code != 0 || r.stdout != "<heal>\n" {
		t.Errorf("all of them: %+v", r)
	}
}

// What puts a cluster right needs no tree that builds, and no compiler.
func TestHealOfABrokenTree(t *testing.T) {
	h := newHost(t)
	h.clone(echoing, "hack/binary")
	h.write("repo/go.mod", "module stub\n\ngo 1.26\n")
	h.write("repo/main.go", "package main\n\nfunc main() { nothing }\n")
	for _, target := range []string{"heal", "clean"} {
		if r := h.make(target); r.code != 0 || r.stdout != "<"+target+">\n" {
			t.Errorf("%s: %+v", target, r)
		}
	}
	if r := h.make("list"); r.code == 0 || !strings.Contains(r.stderr, "flatline does not build") {
		t.Errorf("list: %+v", r)
	}
}

// Root in the clone of another user: git refuses, and flatline is built all the same.
func TestBuildWhereGitRefuses(t *testing.T) {
	h := newHost(t)
	h.clone("", "hack/binary")
	h.write("repo/go.mod", "module stub\n\ngo 1.26\n")
	h.write("repo/main.go", "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\nfunc main() { fmt.Println(os.Args[1:]) }\n")
	h.write("repo/.git/HEAD", "ref: refs/heads/main\n")
	h.write("bin/git", "#!/bin/sh\necho 'fatal: detected dubious ownership' >&2\nexit 128\n")
	if r := h.make("heal"); r.code != 0 || r.stdout != "[heal]\n" {
		t.Errorf("got %+v", r)
	}
}

// Two runs of an experiment at once: each is recorded by the folder that it names.
func TestEvidenceTakesTheRunItMade(t *testing.T) {
	h := newHost(t)
	h.clone(`#!/bin/sh
if [ "$1" != run ]; then exit 0; fi
mkdir -p _artifacts/x/mine _artifacts/x/other docs/evidence/x-fast
echo mine >_artifacts/x/mine/timeline.jsonl
echo other >_artifacts/x/other/timeline.jsonl
ln -sfn other _artifacts/x/latest
printf 'outcome: pass\n_artifacts/x/mine\n'
`, "hack/evidence")
	if r := h.run(h.path("repo/hack/evidence"), "x", "fast", "1"); r.code != 0 {
		t.Fatalf("got %+v", r)
	}
	out, err := exec.Command("gzip", "-dc", h.path("repo/docs/evidence/x-fast/mine.jsonl.gz")).Output()
	if err != nil || string(out) != "mine\n" {
		t.Fatalf("on record: %q, %v", out, err)
	}
	h.clone("#!/bin/sh\nexit 3\n")
	h.run(h.path("repo/hack/evidence"), "x", "fast", "2").oneError(t, "the run left no record, exit code 3")
}

// What cannot be had is no reason to pass, and what is found is one to fail.
func TestShellcheck(t *testing.T) {
	const none, debian = "find_shellcheck() { return 1; }", "debian_like() { :; }; is_root() { :; }"
	h := newHost(t)
	h.with("hack/shellcheck", none+"; debian_like() { return 1; }").oneError(t, "there is no shellcheck to read the scripts with")
	h.with("hack/shellcheck", none+"; "+debian+"; is_root() { return 1; }").oneError(t, "there is no shellcheck to read the scripts with")
	h.with("hack/shellcheck", "SHELLCHECK=/nowhere").oneError(t, "SHELLCHECK names /nowhere, which is no program")

	h.write("bin/found", "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 1\n")
	installs := none + "; " + debian + `; install_packages() { find_shellcheck() { echo found; }; echo "installs ${packages[*]}" >&2; }`
	r := h.with("hack/shellcheck", installs)
	if want := "Changes to this machine (hack/unsetup takes them back):\n  - install the Debian package shellcheck, to read the scripts with, and what it depends on\ninstalls shellcheck\n"; r.code != 1 || r.stderr != want {
		t.Errorf("got %+v, want exit code 1 and %q", r, want)
	}
	read := strings.Fields(r.stdout)
	for _, name := range []string{".ci/run", "hack/shellcheck", "hack/lib.sh", "hack/nodeimage/files/kube-proxy", "pkg/chaos/arm.sh", "pkg/chaos/testdata/stand-in"} {
		if !slices.Contains(read, name) {
			t.Errorf("%s is not read, but %v", name, read)
		}
	}
	h.with("hack/shellcheck", "find_shellcheck() { echo found; }; scripts() { :; }").oneError(t, "no script was found")
}

// A pattern hits an editor that has the file open, too.
func TestNothingIsEndedByPattern(t *testing.T) {
	h := newHost(t)
	var scripts int
	err := filepath.WalkDir(filepath.Join(h.repo, "hack"), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || filepath.Ext(path) != "" && filepath.Ext(path) != ".sh" {
			return err
		}
		data, err := os.ReadFile(path)
		if err == nil && strings.HasPrefix(string(data), "#!") {
			scripts++
			if m := regexp.MustCompile(`\b(pkill|killall|skill)\b`).FindString(string(data)); m != "" {
				t.Errorf("%s uses %s", path, m)
			}
		}
		return err
	})
	if err != nil || scripts < 15 {
		t.Errorf("%d scripts, %v", scripts, err)
	}
}

// A run that reaches its last phase and stays there until it is killed.
const runs = `#!/bin/bash
echo "$*" >>"$STUB/flatline"
case $1 in
run)
	dir=$6/$2
	mkdir -p "$dir"
	n=$(ls "$dir" | grep -c z-)
	mkdir "$dir/2026010${n}t000000z-000$n"
	ln -sfn "2026010${n}t000000z-000$n" "$dir/latest"
	printf '0.0s  == %s\n' setup hold undo repair >&2
	read line <"$STUB/end"
	;;
esac
`

// A cluster of two nodes that are well and have no timers.
const wellCluster = `#!/bin/bash
case "$1 $*" in
*get\ nodes*) printf 'True node-role.kubernetes.io/control-plane\nTrue \n' ;;
ps\ *-aq*) ;;
ps\ *) printf '%s\n' flatline-0000-control-plane flatline-0000-worker ;;
esac
`

func TestKillTest(t *testing.T) {
	h := newHost(t)
	h.clone(runs, "hack/kill-test")
	h.write("bin/docker", wellCluster)
	h.write("repo/experiments/a.yaml", "spec:\n  fault: {type: a}\n")
	h.write("repo/experiments/b.yaml", "spec:\n  fault: {type: b}\n")
	h.write("repo/experiments/none.yaml", "spec:\n  fault: {type: none}\n")
	h.write("repo/experiments/defaults.yaml", "spec:\n  cluster: {workers: 2}\n")
	if out, err := exec.Command("mkfifo", h.path("end")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	script := h.path("repo/hack/kill-test")
	h.env = append(h.env, "REUSE=", "ARTIFACTS=", "ENGINE_RESTART=", "PHASES=undo repair")

	r := h.run(script, "1")
	if r.code != 0 {
		t.Fatalf("got %+v", r)
	}
	var kills []string
	for line := range strings.Lines(h.read("repo/docs/evidence/kill-test.tsv")) {
		fields := strings.Split(line, "\t")
		kills = append(kills, fields[0]+" "+fields[1])
	}
	if want := []string{"phase experiment", "undo a", "repair a", "undo b", "repair b"}; !slices.Equal(kills, want) {
		t.Errorf("kills on record: %v, want %v", kills, want)
	}
	calls := h.read("flatline")
	if n := strings.Count(calls, "--cluster flatline-0000\n"); n != 3 {
		t.Errorf("%d runs were on the cluster of the first, want 3:\n%s", n, calls)
	}
	if strings.Count(calls, "clean flatline-0000\n") != 1 {
		t.Errorf("the cluster was not deleted once:\n%s", calls)
	}

	h.write("flatline", "")
	if r := h.run(script, "1"); r.code != 0 || strings.Contains(h.read("flatline"), "run ") {
		t.Errorf("what is on record is done again: %+v", r)
	}
	for phases, part := range map[string]string{"hold lunch": "there is no phase lunch", "engine": "want ENGINE_RESTART=1 too"} {
		h.env = append(h.env, "PHASES="+phases)
		if r := h.run(script, "1"); r.code != 2 || !strings.HasPrefix(r.stderr, "error: PHASES: ") || !strings.Contains(r.stderr, part) {
			t.Errorf("%s: %+v", phases, r)
		}
	}
}
