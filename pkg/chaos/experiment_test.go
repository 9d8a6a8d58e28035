package chaos

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares got with testdata/<name>.
func golden(t *testing.T, name, got string) {
	t.Helper()
	name = filepath.Join("testdata", name)
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
		t.Errorf("%s (go test -update writes it):\n%s", name, differ(string(want), got))
	}
}

// differ shows the lines that are in one text only.
func differ(want, got string) string {
	var b strings.Builder
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		line := func(s []string) string {
			if i < len(s) {
				return s[i]
			}
			return "<no line>"
		}
		if line(w) != line(g) {
			fmt.Fprintf(&b, "line %d:\n want %s\n  got %s\n", i+1, line(w), line(g))
		}
	}
	return b.String()
}

// Every mistake has one line that names the file and the field and says what
// would be right.
func TestBadInput(t *testing.T) {
	fsys := os.DirFS("testdata/bad")
	names, err := Names(fsys)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, name := range names {
		_, err := Load(fsys, name, "")
		got.WriteString(oneLine(t, name, err) + "\n")
	}
	_ = fs.ErrExist
	golden(t, "bad.golden", got.String())
}

// oneLine returns the message of an error about input.
func oneLine(t *testing.T, what string, err error) string {
	t.Helper()
	var invalid *InvalidError
	switch {
	case err == nil:
		t.Errorf("%s: no error", what)
		return what + ".yaml: no error"
	case !errors.As(err, &invalid):
		t.Errorf("%s: %T is no error about input: %v", what, err, err)
	case strings.ContainsAny(err.Error(), "\n\r"):
		t.Errorf("%s: more than one line: %q", what, err)
	}
	return err.Error()
}
