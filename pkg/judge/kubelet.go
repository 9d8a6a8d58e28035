package judge

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// States of a kubelet.
const (
	StateRunning = "running"
	// StateExpired is a kubelet that runs on with a certificate that has ended.
	StateExpired = "expired"
	StateFrozen  = "frozen"  // its process was stopped by a signal
	StateStopped = "stopped" // by systemd, because somebody said so
	StateExited  = "exited"  // by itself
	// StateCrashLooping is a kubelet that ended more than once, soon after each start.
	StateCrashLooping = "crash-looping"
)

// StateOrphan is a request that was issued a certificate which nobody has stored.
const StateOrphan = "orphan"

// A Kubelet sums up what became of the kubelet of a target.
type Kubelet struct {
	Node   string         `json:"node"`
	States []KubeletState `json:"states"`
	// Requests are those for a client certificate from the injection to the undo.
	Requests Requests `json:"requests"`
	// Exit says when, by the rule of its version, a kubelet in this state ends by
	// itself, or why it never does. Empty where its certificate did not run out.
	Exit string `json:"exit,omitempty"`
}

// A KubeletState is a state that lasted, in seconds since the injection.
type KubeletState struct {
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	State string  `json:"state"`
	Note  string  `json:"note,omitempty"`
}

// Requests counts requests for client certificates by what became of them. One that
// was issued and not stored is an orphan: nobody has its key any more.
type Requests struct {
	Made   int `json:"made"`
	Issued int `json:"issued"`
	Stored int `json:"stored"`
}

// loopLife is how long a process may live, in seconds, and its end still count as
// that of a start that failed.
const loopLife = 10

// kubeletStates makes the states of a kubelet of the lane of its process, of which
// each start is a span of its own, and of the ends of the certificates that it used.
func kubeletStates(process Lane, loaded []loaded) Lane {
	out := Lane{Name: process.Name}
	spans := process.Spans
	for i := 0; i < len(spans); {
		if j, ends, why := failedStarts(spans[i:]); ends > 1 {
			last := spans[i+j-1]
			out.Spans = append(out.Spans, Span{From: spans[i].From, To: last.To, Open: last.Open, State: StateCrashLooping, Note: why})
			i += j
			continue
		}
		out.Spans = append(out.Spans, expiring(spans[i], loaded)...)
		i++
	}
	return out
}

// failedStarts counts the ends of processes that failed soon after their start, at
// the beginning of some spans: how many spans they take, how many ends there are,
// and the last words of the last one.
func failedStarts(spans []Span) (n, ends int, why string) {
	for i, s := range spans {
		switch {
		case s.State == StateExited:
			ends++
			n, why = i+1, cmp.Or(s.Note, why)
		case i == 0 || s.State != StateRunning || s.Open || s.To-s.From >= loopLife:
			return n, ends, why
		}
	}
	return n, ends, why
}

// A loaded is a certificate that a kubelet uses from a time on.
type loaded struct {
	from, notAfter float64
	none           bool
}

// expiring splits the time of a running process where its certificate ends.
func expiring(s Span, certs []loaded) []Span {
	if s.State != StateRunning {
		return []Span{s}
	}
	var out []Span
	enter := func(at float64, state string) {
		if n := len(out); n > 0 {
			if out[n-1].State == state {
				return
			}
			out[n-1].To, out[n-1].Open = at, false
		}
		out = append(out, Span{From: at, To: s.To, State: state, Note: s.Note, Open: s.Open})
	}
	enter(s.From, s.State)
	for i, c := range certs {
		until := s.To
		if i+1 < len(certs) {
			until = certs[i+1].from
		}
		from := max(c.from, s.From)
		if from >= min(until, s.To) || c.none {
			continue
		}
		if c.notAfter > from {
			enter(from, StateRunning)
		}
		if end := max(c.notAfter, from); end < min(until, s.To) {
			enter(end, StateExpired)
		}
	}
	return out
}

// klogHead is what klog writes before a message: severity, date, process, place.
var klogHead = regexp.MustCompile(`\b[EFIW]\d{4} [0-9:.]+ +\d+ [^ ]+\] `)

// unreadableFile is how client-go says that a file of a kubeconfig cannot be read.
var unreadableFile = regexp.MustCompile(`(unable to read client-cert [^ ]+) for [^ ]+ due to open [^ ]+(: [a-z ]+)`)

// lastWords picks from the last errors of a kubelet why it ended. Of a certificate
// that it cannot load it says more in the line before the last: the last is about
// the file that would be tried instead.
func lastWords(errors string) string {
	lines := strings.Split(errors, "\n")
	i := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "existing bootstrap client") })
	line := lines[len(lines)-1]
	if i >= 0 {
		line = lines[i]
	}
	line = klogHead.ReplaceAllString(line, "")
	if _, after, ok := strings.Cut(line, ` err="`); ok {
		line, _, _ = strings.Cut(after, `" logger=`)
		line = strings.TrimSuffix(line, `"`)
	}
	if m := unreadableFile.FindStringSubmatch(line); m != nil {
		return m[1] + m[2]
	}
	const long = 240
	if len(line) > long {
		line = strings.ToValidUTF8(line[:long], "") + "…"
	}
	return line
}

// kubelets sums up the kubelets of the targets.
func (j *judgement) kubelets(tr *Trace) {
	for _, n := range tr.Nodes {
		if !n.Target {
			continue
		}
		k := Kubelet{Node: n.Name, States: []KubeletState{}, Requests: j.requests(n)}
		for _, s := range n.Kubelet.Spans {
			if s.To >= 0 || s.Open { // what it was when the fault came, and since
				k.States = append(k.States, KubeletState{From: s.From, To: s.To, State: s.State, Note: s.Note})
			}
		}
		if j.fold.reached(CertificateExpired, n.Name) {
			w := j.fold.kubeletExited(Key{Name: KubeletExited, Node: n.Name})
			k.Exit = w.Why
			if len(w.Intervals) > 0 {
				k.Exit = fmt.Sprintf("%s s after %s: %s", w, w.after.Name, w.Why)
			}
		}
		j.run.Kubelets = append(j.run.Kubelets, k)
	}
}

// requests counts a target's requests by their certificates: one is stored when the
// kubelet has made it its own.
func (j *judgement) requests(n NodeTrace) Requests {
	zero, began := j.fold.Zero()
	end, _ := j.observedUntil()
	if undone, ok := j.fold.Get(Key{Name: FaultUndone, Node: n.Name}); ok {
		end = undone.At
	}
	made, issued := map[string]bool{}, map[string]string{}
	stored := map[string]bool{}
	for _, e := range j.events {
		at := j.clock.when(e.Event)
		if !began || at < zero || at > end {
			continue
		}
		switch w := e.says.(type) {
		case csrSeen:
			if w.node == n.Name && !w.serving && w.verb != timeline.TypeListed && w.verb != timeline.TypeDeleted {
				made[w.name] = true
				if w.state == "Issued" {
					issued[w.name] = w.cred
				}
			}
		case certificateSeen:
			if w.node == n.Name && datedFile.MatchString(w.file) {
				stored[w.cred] = true
			}
		}
	}
	r := Requests{Made: len(made), Issued: len(issued)}
	for _, cred := range issued {
		if cred != "" && stored[cred] {
			r.Stored++
		}
	}
	return r
}
