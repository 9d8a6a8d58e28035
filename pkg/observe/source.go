// Package observe sees what changes in a cluster, and records it on one clock.
//
// It holds facts and no opinions: no threshold, milestone or verdict lives here.
// Sources see changes and say so as Events; a Recorder puts the events of all
// sources in one timeline file; package judge reads that file and nothing else.
//
// Two rules follow from that. What was not seen is a gap, never an absence: a
// source that may have missed something emits a Gap event. And a time that a
// server gave is kept beside the time at which the observer learned of it, so
// that nobody has to guess which of the two a number is.
package observe

import (
	"context"
	"io"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// A Source emits events until ctx ends. It calls ready once, when it would not
// miss a change any more. It returns nil when ctx ended, else why it gave up.
type Source interface {
	Run(ctx context.Context, ready func(), emit func(timeline.Event)) error
}

// A Node runs commands in one cluster node; standard error goes into the error.
type Node interface {
	Exec(ctx context.Context, stdin io.Reader, stdout io.Writer, argv ...string) error
}
