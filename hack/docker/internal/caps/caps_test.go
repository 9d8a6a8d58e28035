package caps

import (
	"slices"
	"testing"
)

func TestMissing(t *testing.T) {
	tests := []struct {
		name, status, last string
		want               []string
	}{
		{"full set of a recent kernel", "Name:\tx\nCapBnd:\t000001ffffffffff\n", "40\n", nil},
		{"one lacks", "CapEff:\t0000000000000000\nCapBnd:\t000001fffeffffff\nCapAmb:\t0\n", "40\n", []string{"CAP_SYS_RESOURCE"}},
		{"first and last", "CapBnd:\t000000fffffffffe\n", "40\n", []string{"CAP_CHOWN", "CAP_CHECKPOINT_RESTORE"}},
		{"an old kernel does not lack what it does not know", "CapBnd:\t0000003fffffffff\n", "37\n", nil},
		{"a newer kernel than this table", "CapBnd:\t000003ffffffffff\n", "42\n", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := missing(tt.status, tt.last)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("missing = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestMissingErrors(t *testing.T) {
	for _, tt := range []struct{ name, status, last string }{
		{"no CapBnd", "Name:\tx\n", "40"},
		{"CapBnd is no number", "CapBnd:\tmany\n", "40"},
		{"last is no number", "CapBnd:\t00\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := missing(tt.status, tt.last); err == nil {
				t.Errorf("missing = %v, want an error", got)
			}
		})
	}
}
