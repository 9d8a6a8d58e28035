package record

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

const evidence = "../../docs/evidence/kubelet-stopped-fast"

func ids(t *testing.T, names ...string) []string {
	t.Helper()
	recs, err := Read(names)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range recs {
		ids = append(ids, r.Run.RunID)
		if !r.Run.Finished() || len(r.Experiment) == 0 {
			t.Errorf("%s: finished %v, an experiment of %d bytes", r.File, r.Run.Finished(), len(r.Experiment))
		}
	}
	return ids
}

// However deep a run lies, and through however many names it is found, it is there once.
func TestRead(t *testing.T) {
	all := ids(t, evidence)
	if len(all) < 3 || !slices.IsSorted(all) {
		t.Fatalf("runs are %v", all)
	}
	dir := t.TempDir()
	deep := filepath.Join(dir, "a/b/c")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(evidence + "/*.gz")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"one.jsonl.gz": data, "timeline.jsonl": nil, "journal.jsonl": []byte("{}\n"),
		"other.txt": []byte("x")} {
		if err := os.WriteFile(filepath.Join(deep, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("b", filepath.Join(dir, "a/latest")); err != nil {
		t.Fatal(err)
	}
	for _, names := range [][]string{{dir}, {filepath.Join(dir, "a/latest")}, {filepath.Join(deep, "one.jsonl.gz")}, {dir, deep, dir}} {
		if got := ids(t, names...); !slices.Equal(got, all[:1]) {
			t.Errorf("%v: runs are %v, want %v", names, got, all[:1])
		}
	}
	if got := ids(t, dir, evidence); !slices.Equal(got, all) {
		t.Errorf("both: runs are %v, want %v", got, all)
	}
}

// A timeline that was named may come through a pipe, and has a picture all the same; below a
// folder there are files only.
func TestReadPipe(t *testing.T) {
	files, err := filepath.Glob(evidence + "/*.gz")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	dir := t.TempDir()
	data, err := os.ReadFile(files[0])
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(dir, "run.jsonl.gz"), data, 0o644),
			syscall.Mkfifo(filepath.Join(dir, "pipe.jsonl.gz"), 0o600),
			syscall.Mkfifo(filepath.Join(dir, "timeline.jsonl"), 0o600), os.Symlink("/dev/zero", filepath.Join(dir, "zero.jsonl.gz")))
	}
	if err != nil {
		t.Fatal(err)
	}
	found, err := Read([]string{dir})
	if err != nil || len(found) != 1 {
		t.Fatalf("%d records, %v", len(found), err)
	}
	go func() { _ = os.WriteFile(filepath.Join(dir, "pipe.jsonl.gz"), data, 0o600) }()
	piped, err := Read([]string{filepath.Join(dir, "pipe.jsonl.gz")})
	if err != nil || len(piped) != 1 || piped[0].Run.RunID != found[0].Run.RunID {
		t.Fatalf("%d records, %v", len(piped), err)
	}
	for _, r := range []*Record{found[0], piped[0]} {
		if r.Trace == nil || len(r.Trace.Nodes) == 0 {
			t.Errorf("%s: no trace", r.File)
		}
	}
}

func TestReadNothing(t *testing.T) {
	var none *NoneError
	if _, err := Read([]string{t.TempDir()}); !errors.As(err, &none) {
		t.Errorf("error %v", err)
	}
	if _, err := Read([]string{"nowhere"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	broken := filepath.Join(t.TempDir(), "timeline.jsonl")
	if err := os.WriteFile(broken, []byte("{\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read([]string{filepath.Dir(broken)}); err == nil || !strings.Contains(err.Error(), broken) {
		t.Errorf("error %v does not name the file", err)
	}
}
