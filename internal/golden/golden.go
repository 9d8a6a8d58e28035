// Package golden compares what a test finds with what a file says, line by line. It is for
// tests alone: it defines their flag -update.
package golden

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// Lines fails the test for every line of got that the file does not have, and where the file
// has others or another order. With -update it writes the file first.
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
	known := strings.SplitAfter(string(want), "\n")
	for line := range strings.Lines(got) {
		if !slices.Contains(known, line) {
			t.Errorf("%s does not have the line %q", file, line)
		}
	}
	t.Errorf("%s says otherwise; if the change is meant: go test -run %s -update, then look at what git diff says of it", file, t.Name())
}
