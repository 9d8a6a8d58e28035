package judge

import "time"

// An Update is one piece of news about a run under way: exactly one field besides Elapsed
// and Folder is set.
type Update struct {
	Elapsed   time.Duration // since the start of the run
	Folder    string        // of the run
	Phase     string        // that begins now
	Text      string        // something to tell
	Milestone *Result       // that was reached
	Next      *Due          // the next one expected; told once a second
}
