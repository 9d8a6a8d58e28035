package cli

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (go test -update writes it): got\n%s\nwant\n%s", name, got, want)
	}
}

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
		"list csr-denied",
		"rnu csr-denied",
		"--verbose",
		"heal a b",
		"heal .",
		"heal nowhere",
		"heal unknown-key.yaml",
		"judge",
		"judge nowhere",
		"judge .",
		"judge unknown-key.yaml",
		"judge nowhere -o xml",
		"clean one two",
		"node-image x",
	} {
		t.Run(args, func(t *testing.T) {
			argv := strings.Fields(args)
			for i := range argv {
				argv[i] = strings.ReplaceAll(argv[i], "''", "")
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
	golden(t, file, got.String())
}

func TestList(t *testing.T) {
	file, err := filepath.Abs("testdata/list.golden")
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := invoke(t, "", "list")
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	golden(t, file, stdout)
}

// Help is an answer: it goes to stdout and is no mistake.
func TestHelp(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"help"}, {"run", "--help"}, {"heal", "-h"}, {"list", "-h"}} {
		code, stdout, stderr := invoke(t, "", args...)
		if code != 0 || stderr != "" || !strings.Contains(stdout, "Usage:") {
			t.Errorf("%q: exit code %d, stderr %q, stdout %q", args, code, stderr, stdout)
		}
	}
	_, root, _ := invoke(t, "", "--help")
	for _, verb := range []string{"run", "list", "judge", "heal", "clean", "node-image"} {
		if !strings.Contains(root, "\n  "+verb+" ") {
			t.Errorf("verb %s is missing:\n%s", verb, root)
		}
	}
	_, help, _ := invoke(t, "", "run", "--help")
	_, codes, ok := strings.Cut(strings.Join(strings.Fields(help), " "), "Exit codes: ")
	if !ok {
		t.Fatalf("no exit codes:\n%s", help)
	}
	for _, code := range []string{"0 pass;", "1 an expectation was missed;", "2 invalid input;", "3 the set-up failed;", "4 the fault did not bite,", "5 the cluster could not be put right", "130 interrupted,"} {
		if !strings.Contains(codes, code) {
			t.Errorf("%q is missing in: %s", code, codes)
		}
	}
}

// The flag goes before $ARTIFACTS, which is its default.
func TestArtifacts(t *testing.T) {
	t.Setenv("ARTIFACTS", "")
	if got := defaultArtifacts(); got != "_artifacts" {
		t.Errorf("without $ARTIFACTS: %s", got)
	}
	t.Setenv("ARTIFACTS", "/tmp/x")
	if got := defaultArtifacts(); got != "/tmp/x" {
		t.Errorf("with $ARTIFACTS: %s", got)
	}
	run, _, err := command(io.Discard, io.Discard).Find([]string{"run"})
	if err != nil {
		t.Fatal(err)
	}
	if got := run.Flag("artifacts").DefValue; got != "/tmp/x" {
		t.Errorf("the default of --artifacts is %s", got)
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
