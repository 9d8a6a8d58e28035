//go:build real

package chaos_test

import (
	"io"
	"os"
	"testing"
)

func TestRealExample(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	ExampleRun()
	os.Stdout = stdout
	w.Close()
	got, err := io.ReadAll(r)
	if want := "pass\nReadyUnknown after LeaseStalled pass\n"; err != nil || string(got) != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}
