package judge

import (
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// process tells a kubelet that ended by itself, which systemd counts as a
// restart, from one that was stopped.
func (f *Fold) process(p processSeen, at time.Duration, n *nodeState) {
	if !p.counted {
		return
	}
	again := p.restarts > n.restarts
	if p.gone(again) == StateExited && n.running || again {
		note := "started again before it was seen gone"
		if p.exit != "" {
			note = exitCode(p.exit)
		}
		if why := lastWords(p.why); why != "" {
			note = join(note, why)
		}
		f.mark(Key{KubeletExited, p.node, ""}, timeline.SourceNode, at, note)
	}
	if f.began {
		n.exits += max(0, p.restarts-n.restarts)
	}
	if p.pid != n.pid {
		if n.pid = p.pid; p.runs() {
			n.started, n.answered = at, false
			f.load(n)
		}
	}
	n.restarts, n.running = p.restarts, p.runs()
}

// runs says whether there is a process.
func (p processSeen) runs() bool { return p.pid != "0" }

// gone tells why there is no kubelet: it was stopped, or it ended by itself, and
// systemd knows how, or has counted one more restart. One that is about to start for
// no such reason was stopped. Nothing is said of a process that is there.
func (p processSeen) gone(again bool) string {
	switch {
	case p.runs():
		return ""
	case p.state == "inactive", p.state == "deactivating", p.exit == "" && !again:
		return StateStopped
	}
	return StateExited
}

// exitCode says how a kubelet ended.
func exitCode(code string) string {
	if signal, ok := strings.CutPrefix(code, "signal-"); ok {
		return "ended by signal " + signal
	}
	return "exit code " + code
}
