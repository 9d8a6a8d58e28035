package record

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flatline-chaos/flatline/internal/safely"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// folder makes the folder of a run.
func folder(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(evidence + "/*.gz")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	packed, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	r, err := timeline.Unpack(files[0], packed)
	if err != nil {
		t.Fatal(err)
	}
	data, err := safely.ReadAll(r, files[0], 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, timelineFile), data, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What is judged is written as a whole, and not through a link. It reads back as it was.
func TestVerdictIsWrittenThroughNoLink(t *testing.T) {
	dir, outside := folder(t), filepath.Join(t.TempDir(), "outside")
	err := errors.Join(os.WriteFile(outside, []byte("mine"), 0o644),
		os.Symlink(outside, filepath.Join(dir, ".run.json")), os.Symlink(outside, filepath.Join(dir, verdictFile)))
	if err != nil {
		t.Fatal(err)
	}
	rec, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if rec.Trace == nil || len(rec.Trace.Nodes) == 0 {
		t.Error("the record has no trace")
	}
	if err := Write(dir, rec.Run); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(outside); err != nil || string(data) != "mine" {
		t.Errorf("outside there is %q, %v", data, err)
	}
	if info, err := os.Lstat(filepath.Join(dir, verdictFile)); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%s is %v, %v", verdictFile, info, err)
	}
	was, err := Verdict(dir)
	if err != nil || was == nil {
		t.Fatalf("verdict %v, %v", was, err)
	}
	want, _ := json.Marshal(rec.Run)
	if got, err := json.Marshal(was); err != nil || string(got) != string(want) {
		t.Errorf("the verdict reads back as %.300s, it was %.300s (%v)", got, want, err)
	}
}

// A record without a verdict is a record; a verdict that cannot be read is an error with its
// name.
func TestVerdictThatIsNotThere(t *testing.T) {
	dir := folder(t)
	for _, name := range []string{dir, filepath.Join(dir, timelineFile)} {
		if run, err := Verdict(name); run != nil || err != nil {
			t.Errorf("%s: %v, %v", name, run, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, verdictFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Verdict(dir); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, verdictFile)) {
		t.Errorf("error %v does not name the file", err)
	}
	if _, err := Open(filepath.Join(dir, "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
