// Package golden compares what a test finds with what a file says, line by line. It is for
// tests alone: it defines their flag -update.
package golden

import (
	"flag"
	"iter"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// Lines fails the test if got is not what the file says: once for every line that only one of
// them has, and once for the whole. With -update it writes the file first.
func Lines(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) == got {
		return
	}
	for line := range onlyIn(got, string(want)) {
		t.Errorf("%s does not have the line %q", file, line)
	}
	for line := range onlyIn(string(want), got) {
		t.Errorf("%s alone has the line %q", file, line)
	}
	t.Errorf("%s says otherwise; if the change is meant: go test -run %s -update, then look at what git diff says of it", file, t.Name())
}

// onlyIn yields the lines of a text that another does not have.
func onlyIn(text, other string) iter.Seq[string] {
	known := map[string]bool{}
	for line := range strings.Lines(other) {
		known[line] = true
	}
	return func(yield func(string) bool) {
		for line := range strings.Lines(text) {
			if !known[line] && !yield(line) {
				return
			}
		}
	}
}
