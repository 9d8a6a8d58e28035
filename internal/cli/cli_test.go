package cli

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flatline-chaos/flatline/experiments"
	"github.com/flatline-chaos/flatline/internal/golden"
	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// invoke runs one command in an empty folder, where it finds no programs and from
// where it must not leave anything.
func invoke(t *testing.T, input string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	if input != "" {
		if err := os.CopyFS(dir, os.DirFS(input)); err != nil {
			t.Fatal(err)
		}
	}
	before := listing(t, dir)
	t.Chdir(dir)
	t.Setenv("PATH", t.TempDir())
	t.Setenv("ARTIFACTS", "")
	var out, errs strings.Builder
	code = Main(args, &out, &errs)
	if after := listing(t, dir); after != before {
		t.Errorf("%q left behind %s, there was %s", args, after, before)
	}
	return code, out.String(), errs.String()
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		names = append(names, strings.TrimPrefix(path, dir))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, " ")
}

// What was typed wrong is said in one line, with exit code 2, and nothing happens.
func TestBadInput(t *testing.T) {
	file, err := filepath.Abs("testdata/bad.golden")
	if err != nil {
		t.Fatal(err)
	}
	input, err := filepath.Abs("testdata/input")
	if err != nil {
		t.Fatal(err)
	}
	evidence, err := filepath.Abs("../../docs/evidence/kubelet-stopped-fast")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, args := range []string{
		"run",
		"run ''",
		"run csr-denid",
		"run csr-denied control",
		"run csr-denied --profile fsat",
		"run csr-denied --profil fast",
		"run csr-denied --profile",
		"run csr-denied --keep sometimes",
		"run csr-denied -o xml",
		"run csr-denied.yaml",
		"run unknown-key.yaml",
		"run ./unknown-key.yaml --profile fast",
		"run ../../etc/passwd",
		"run csr-denied --set kubelet.nodeLeaseDurationSeconds=4,8",
		"plan csr-denied --set kubelet.nodeLeaseDuration=4",
		"plan csr-denied -o json",
		"schema csr-denied",
		"plan csr-denied --set kubelet.node-status-update-frequency=4s",
		"plan csr-denied --set kube-controller-manager.pod-eviction-timeout=30s",
		"plan csr-denied --set kube-apiserver.feature-gates=A=true,B=false",
		"run limit.yaml --set kube-controller-manager.node-monitor-grace-period=1m",
		"plan limit.yaml",
		"list csr-denied",
		"rnu csr-denied",
		"--verbose",
		"heal a b",
		"heal --cluster c1 folder",
		"heal --check --dry-run",
		"heal .",
		"heal nowhere",
		"heal unknown-key.yaml",
		"judge",
		"judge nowhere",
		"judge .",
		"judge unknown-key.yaml",
		"judge nowhere -o xml",
		"report",
		"report nowhere",
		"report .",
		"report unknown-key.yaml",
		"report nowhere -o png",
		"tune",
		"tune kubelet-stopped",
		"tune kubelet-stoped --set kubelet.nodeLeaseDurationSeconds=4",
		"tune kubelet-stopped --set nodeLeaseDurationSeconds=4",
		"tune kubelet-stopped --set kubelet.nodeLeaseDurationSeconds",
		"tune kubelet-stopped --set kubelet.nodeLeaseDurationSecond=4",
		"tune kubelet-stopped --set kubelet.nodeLeaseDurationSeconds=4s",
		"tune kubelet-stopped --set kubelet.nodeLeaseDurationSeconds=4,,8",
		"tune kubelet-stopped --set kubelet.nodeLeaseDurationSeconds=4,4",
		"tune kubelet-stopped --set kube-apiserver.feature-gates=A=true,B=false",
		"tune kubelet-stopped --set kubelet.nodeLeaseDurationSeconds=4 --set kubelet.nodeLeaseDurationSeconds=8",
		"tune kubelet-stopped --set kube-controller-manager.node-monitor-grace-period=8",
		"tune kubelet-stopped --set kube-controler-manager.node-monitor-grace-period=8s",
		"tune kubelet-stopped --set kube-controller-manager.node-eviction-rate=0",
		"tune kubelet-stopped --set kubelet.nodeLeaseDurationSeconds=4 --count 0",
		"tune kubelet-stopped --set kubelet.nodeLeaseDurationSeconds=4 --count six",
		"tune kubelet-stopped --set kubelet.nodeLeaseDurationSeconds=4 --shard 3/2",
		"compare",
		"compare nowhere",
		"compare nowhere nowhere",
		"compare nowhere ''",
		"compare . . .",
		"compare EVIDENCE --col kubelet.nonsense",
		"compare EVIDENCE --col kubelet.nodeLeaseDurationSeconds",
		"compare EVIDENCE --knobs",
		"compare . --knobs --col kubelet.nodeLeaseDurationSeconds",
		"compare . --knobs -o html",
		"compare . . -o yaml",
		"clean one two",
		"node-image x",
	} {
		t.Run(args, func(t *testing.T) {
			argv := strings.Fields(args)
			for i := range argv {
				argv[i] = strings.NewReplacer("''", "", "EVIDENCE", evidence).Replace(argv[i])
			}
			code, stdout, stderr := invoke(t, input, argv...)
			fmt.Fprintf(&got, "$ flatline %s\n%sexit code %d\n\n", args, stderr, code)
			if stdout != "" {
				t.Errorf("stdout is for answers: %q", stdout)
			}
			if code != exitInvalid {
				t.Errorf("exit code %d: %s", code, stderr)
			}
			if strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "flatline: ") {
				t.Errorf("not one line: %q", stderr)
			}
		})
	}
	golden.Lines(t, file, got.String())
}

// The plan of a sweep needs neither Docker nor a record.
func TestTunePlan(t *testing.T) {
	file, err := filepath.Abs("testdata/tune.golden")
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := invoke(t, "", "tune", "kubelet-stopped", "--profile", "fast", "--dry-run", "--shard", "2/2", "--count", "5",
		"--set", "kube-controller-manager.node-monitor-grace-period=2s,12s", "--set", "kubelet.nodeStatusUpdateFrequency=4s,10s")
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	golden.Lines(t, file, stdout)
}

// Sets of recorded runs are compared; as a gate the exit code says whether anything differs.
func TestCompare(t *testing.T) {
	evidence, err := filepath.Abs("../../docs/evidence")
	if err != nil {
		t.Fatal(err)
	}
	dir := evidence + "/"
	for _, test := range []struct {
		args, want string
		code       int
	}{
		{"--exit-code " + dir + "csr-denied-fast " + dir + "csr-denied-fast," + dir + "csr-denied-everyone-fast",
			"nothing differs significantly", 0},
		{"--col profile " + dir + "csr-denied-fast " + dir + "csr-denied-default", "profile: default, fast", 0},
		{"--col kube-controller-manager.node-monitor-grace-period " + dir + "tune/kubelet-stopped", "node-monitor-grace-period 8s → 16s", 0},
		{"--exit-code --col kube-controller-manager.node-monitor-grace-period " + dir + "tune/kubelet-stopped -o markdown",
			"| ReadyUnknown | LeaseStalled |", 1},
		{"--col kube-controller-manager.node-monitor-grace-period -o csv " + dir + "tune", "1,ReadyUnknown,LeaseStalled,8s,", 0},
		{"--col kube-controller-manager.node-monitor-grace-period -o json " + dir + "tune", `"milestone": "ReadyUnknown"`, 0},
		{"--col kube-controller-manager.node-monitor-grace-period -o html " + dir + "tune", "<figcaption>ReadyUnknown", 0},
		{"--knobs " + dir + "tune", "one flag at a time against: ", 0},
	} {
		t.Run(test.args, func(t *testing.T) {
			code, stdout, stderr := invoke(t, "", append([]string{"compare"}, strings.Fields(test.args)...)...)
			if code != test.code || (stderr != "") != (test.code != 0) || !strings.Contains(stdout, test.want) {
				t.Errorf("exit code %d, stderr %q, no %q in\n%s", code, stderr, test.want, stdout)
			}
		})
	}
}

// Shards that are read together are what the whole is.
func TestShardsNeedNoMerging(t *testing.T) {
	tune, err := filepath.Abs("../../docs/evidence/tune/kubelet-stopped")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(tune + "/*.jsonl.gz")
	if err != nil || len(files) < 18 {
		t.Fatalf("%d records, %v", len(files), err)
	}
	shards := []string{t.TempDir(), t.TempDir()}
	for i, file := range files {
		data, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(shards[i%2], filepath.Base(file)), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"compare", "--col", "kube-controller-manager.node-monitor-grace-period"}
	_, whole, _ := invoke(t, "", append(args, tune)...)
	_, parts, _ := invoke(t, "", append(args, shards...)...)
	if whole == "" || whole != parts {
		t.Errorf("the whole is\n%s\nthe shards together are\n%s", whole, parts)
	}
}

// The share of a job in CI: GitLab counts from one, the others from zero.
func TestShardOf(t *testing.T) {
	for _, test := range []struct{ env, want string }{
		{"", ""},
		{"CI_NODE_INDEX=1 CI_NODE_TOTAL=3", "1/3"},
		{"CIRCLE_NODE_INDEX=0 CIRCLE_NODE_TOTAL=4", "1/4"},
		{"BUILDKITE_PARALLEL_JOB=3 BUILDKITE_PARALLEL_JOB_COUNT=4", "4/4"},
		{"CI_NODE_INDEX=1", ""},
		{"CI_NODE_TOTAL=1", ""},
	} {
		got := shardOf(func(name string) string {
			for pair := range strings.FieldsSeq(test.env) {
				if value, ok := strings.CutPrefix(pair, name+"="); ok {
					return value
				}
			}
			return ""
		})
		if got != test.want {
			t.Errorf("%q: shard %q, want %q", test.env, got, test.want)
		}
	}
}

// Every experiment has a line, and all descriptions begin in one column.
func TestList(t *testing.T) {
	code, stdout, stderr := invoke(t, "", "list")
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	names, err := chaos.Names(experiments.FS)
	if err != nil {
		t.Fatal(err)
	}
	widest := 0
	for _, name := range names {
		widest = max(widest, len(name))
	}
	var want strings.Builder
	for _, name := range names {
		e, err := chaos.Load(experiments.FS, name, "")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&want, "%-*s  %s\n", widest, name, e.Spec.Description)
	}
	if stdout != want.String() {
		t.Errorf("got\n%s\nwant\n%s", stdout, want.String())
	}
}

// A plan needs no Docker; the flags it shows are those of the version's table.
func TestPlan(t *testing.T) {
	for _, profile := range []string{"default", "fast"} {
		t.Run(profile, func(t *testing.T) {
			file, err := filepath.Abs("testdata/plan-" + profile + ".golden")
			if err != nil {
				t.Fatal(err)
			}
			code, stdout, stderr := invoke(t, "", "plan", "csr-denied", "--profile", profile)
			if code != 0 || stderr != "" {
				t.Errorf("exit code %d, stderr %q", code, stderr)
			}
			golden.Lines(t, file, stdout)
		})
	}
}

// A denial that is true whatever happens is told.
func TestPlanTellsOfVacuousDenials(t *testing.T) {
	for name, want := range map[string]string{
		"cert-readonly-restart": "vacuous: CertificateInUse: it is recorded only after CertificateRotated, which must not occur either\n",
		"cert-empty-restart":    "vacuous: CertificateExpired: the file holds no certificate whose end could be read\n",
		"csr-denied":            "",
	} {
		code, stdout, stderr := invoke(t, "", "plan", name)
		if code != 0 || stderr != "" || !strings.Contains(stdout, want) || want == "" && strings.Contains(stdout, "vacuous") {
			t.Errorf("%s: exit code %d, stderr %q, no %q in\n%s", name, code, stderr, want, stdout)
		}
	}
}

// A plan as YAML is a file that is planned, and run, as the experiment was. Values of --set are in it.
func TestPlanIsReadBack(t *testing.T) {
	for _, profile := range []string{"default", "fast"} {
		args := []string{"--profile", profile, "--set", "kubelet.nodeLeaseDurationSeconds=6"}
		code, text, stderr := invoke(t, "", append([]string{"plan", "csr-denied-everyone", "-o", "yaml"}, args...)...)
		if code != 0 || stderr != "" {
			t.Fatalf("exit code %d, stderr %q", code, stderr)
		}
		input := t.TempDir()
		if err := os.WriteFile(filepath.Join(input, "csr-denied-everyone.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if code, again, stderr := invoke(t, input, "plan", "csr-denied-everyone.yaml", "-o", "yaml"); code != 0 || again != text {
			t.Errorf("exit code %d, stderr %q, it is read back as\n%s\nand was\n%s", code, stderr, again, text)
		}
		_, planned, _ := invoke(t, "", append([]string{"plan", "csr-denied-everyone"}, args...)...)
		if code, again, stderr := invoke(t, input, "plan", "./csr-denied-everyone.yaml", "--profile", profile); code != 0 || again != planned {
			t.Errorf("exit code %d, stderr %q, the plan of it is\n%s\nand was\n%s", code, stderr, again, planned)
		}
	}
}

// The schema is printed as it is.
func TestSchema(t *testing.T) {
	if code, stdout, stderr := invoke(t, "", "schema"); code != 0 || stderr != "" || stdout != string(experiments.Schema) {
		t.Errorf("exit code %d, stderr %q, %d bytes", code, stderr, len(stdout))
	}
}

// Help is an answer: it goes to stdout and is no mistake.
func TestHelp(t *testing.T) {
	file, err := filepath.Abs("testdata/help.golden")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{}, {"--help"}, {"help"}, {"run", "--help"}, {"heal", "-h"}, {"list", "-h"}} {
		code, stdout, stderr := invoke(t, "", args...)
		if code != 0 || stderr != "" || !strings.Contains(stdout, "Usage:") {
			t.Errorf("%q: exit code %d, stderr %q, stdout %q", args, code, stderr, stdout)
		}
	}
	_, root, _ := invoke(t, "", "--help")
	golden.Lines(t, file, root)
	_, help, _ := invoke(t, "", "run", "--help")
	_, codes, ok := strings.Cut(strings.Join(strings.Fields(help), " "), "Exit codes: ")
	if !ok {
		t.Fatalf("no exit codes:\n%s", help)
	}
	for _, code := range []string{"0 pass;", "1 an expectation was missed;", "2 invalid input;", "3 the set-up failed;",
		"4 the fault did not bite,", "5 the cluster could not be put right", "130 interrupted,"} {
		if !strings.Contains(codes, code) {
			t.Errorf("%q is missing in: %s", code, codes)
		}
	}
}

// The flag goes before $ARTIFACTS, which is its default.
func TestArtifacts(t *testing.T) {
	for _, test := range []struct{ env, want string }{{"", "_artifacts"}, {"/tmp/x", "/tmp/x"}} {
		a := newApp(io.Discard, io.Discard)
		a.env = func(name string) string { return map[string]string{"ARTIFACTS": test.env}[name] }
		run, _, err := a.command().Find([]string{"run"})
		if err != nil {
			t.Fatal(err)
		}
		if got := run.Flag("artifacts").DefValue; got != test.want {
			t.Errorf("with $ARTIFACTS %q the default of --artifacts is %s, want %s", test.env, got, test.want)
		}
	}
}

// A journal that cannot be read means that the cluster stays as it is.
func TestHealBrokenJournal(t *testing.T) {
	input, err := filepath.Abs("testdata/broken")
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := invoke(t, input, "heal", ".")
	if code != 5 || stdout != "" || !strings.Contains(stderr, `line 2: kind "undo" without a step`) {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// How a run ends the program: a cluster that was not put right comes first, then a run
// that was cut short, then what could not be written.
func TestEnding(t *testing.T) {
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	lost, full := chaos.ErrRecord, errors.New("the disk is full")
	for name, tc := range map[string]struct {
		ctx         context.Context
		outcome     judge.Outcome
		err, unsaid error
		code        int
		says        string
	}{
		"pass":                     {t.Context(), judge.OutcomePass, nil, nil, 0, ""},
		"fail":                     {t.Context(), judge.OutcomeFail, nil, nil, 1, ""},
		"interrupted":              {cut, judge.OutcomeSetupFailed, context.Canceled, nil, 130, ""},
		"interrupted and dirty":    {cut, judge.OutcomeDirty, context.Canceled, nil, 5, ""},
		"no record":                {t.Context(), judge.OutcomePass, lost, nil, 3, lost.Error()},
		"no record, and dirty":     {t.Context(), judge.OutcomeDirty, lost, full, 5, lost.Error() + "\n" + full.Error()},
		"pass that nobody can see": {t.Context(), judge.OutcomePass, nil, full, 3, full.Error()},
		"fail that nobody can see": {t.Context(), judge.OutcomeFail, nil, full, 3, full.Error()},
		"interrupted, and full":    {cut, judge.OutcomePass, context.Canceled, full, 130, full.Error()},
	} {
		err := ending(tc.ctx, &judge.Run{Outcome: tc.outcome}, tc.err, tc.unsaid)
		var code *codeError
		says := ""
		if errors.As(err, &code) && code.err != nil {
			says = code.err.Error()
		}
		if (err == nil) != (tc.code == 0) || err != nil && code.code != tc.code || says != tc.says {
			t.Errorf("%s: %+v %q, want code %d, %q", name, code, says, tc.code, tc.says)
		}
	}
}

// A run's folder is drawn where it lies; a recorded timeline wherever it is told;
// a folder of runs as one page, a run that lies there twice once.
func TestReport(t *testing.T) {
	record, err := filepath.Abs("../../docs/evidence/csr-denied-everyone-fast/20261129t155005z-c00f.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	other, err := filepath.Abs("../../docs/evidence/csr-denied-fast/20261129t170735z-7542.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for run, from := range map[string]string{"e/one": record, "e/two": record, "e/deep/down/three": other} {
		if err := os.MkdirAll(filepath.Join(dir, run), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, run, "timeline.jsonl"), unpack(t, from), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("two", filepath.Join(dir, "e/latest")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args       []string
		file, want string
	}{
		{[]string{filepath.Join(dir, "e/latest")}, filepath.Join(dir, "e/latest/report.html"), "<title>csr-denied-everyone fast: pass</title>"},
		{[]string{filepath.Join(dir, "e/one"), "-o", "svg"}, filepath.Join(dir, "e/one/report.svg"), "<svg "},
		{[]string{filepath.Join(dir, "e"), "--file", filepath.Join(dir, "all.html")}, filepath.Join(dir, "all.html"),
			"<title>2 runs of csr-denied fast, csr-denied-everyone fast</title>"},
		{[]string{record, "-f", "-"}, "", "<title>csr-denied-everyone fast: pass</title>"},
	} {
		code, stdout, stderr := invoke(t, "", append([]string{"report"}, test.args...)...)
		if code != 0 || stderr != "" {
			t.Fatalf("%q: exit code %d, stderr %q", test.args, code, stderr)
		}
		page := stdout
		if test.file != "" {
			data, err := os.ReadFile(test.file)
			if err != nil || stdout != test.file+"\n" {
				t.Fatalf("%q: %v, stdout %q, want %s", test.args, err, stdout, test.file)
			}
			page = string(data)
		}
		if !strings.Contains(page, test.want) {
			t.Errorf("%q: no %q in %.200s", test.args, test.want, page)
		}
	}
	// Judge finds runs in the same way.
	if code, stdout, _ := invoke(t, "", "judge", filepath.Join(dir, "e"), "-o", "name"); code != 0 ||
		stdout != "20261129t170735z-7542\n20261129t155005z-c00f\n" {
		t.Errorf("exit code %d, stdout %q, want the names of two runs", code, stdout)
	}
	if code, _, stderr := invoke(t, "", "report", filepath.Join(dir, "e"), "-o", "svg"); code != exitInvalid ||
		!strings.Contains(stderr, "one run, not several") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

func unpack(t *testing.T, name string) []byte {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
