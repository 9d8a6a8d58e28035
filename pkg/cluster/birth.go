package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// birth watches the components of a cluster that is being created. kind waits for
// kubeadm, and kubeadm waits four minutes for a control plane that cannot come up; the
// reason stays inside the node. So the containers and the kubelet are asked directly.
type birth struct {
	nodes    []*Node // control plane first; their containers may not exist yet
	turn     int     // of the workers, one is looked at a time
	seen     map[string]bool
	restarts map[*Node]int     // of the kubelet, as systemd counts
	exits    map[string]int    // of a component, those that count
	words    map[string]string // the last that each component said before it exited
}

// birthOf watches nodes, the control plane first.
func birthOf(nodes []*Node) *birth {
	return &birth{nodes: nodes, seen: map[string]bool{}, restarts: map[*Node]int{}, exits: map[string]int{}, words: map[string]string{}}
}

func newBirth(s Spec) *birth {
	b := birthOf([]*Node{{Name: s.Name + "-control-plane"}})
	for i := range s.Workers {
		name := s.Name + "-worker"
		if i > 0 {
			name += strconv.Itoa(i + 1)
		}
		b.nodes = append(b.nodes, &Node{Name: name})
	}
	return b
}

// run looks every two seconds until ctx ends, or fails it because a component cannot start.
func (b *birth) run(ctx context.Context, fail context.CancelCauseFunc) {
	_ = wait.PollUntilContextCancel(ctx, 2*time.Second, false, func(ctx context.Context) (bool, error) {
		err := b.look(ctx)
		if err != nil {
			fail(err)
		}
		return err != nil, nil
	})
}

// look looks once at the control plane and at one of the workers. The error is about a
// component that will not come up; that a node could not be asked is none.
func (b *birth) look(ctx context.Context) error {
	if err := b.control(ctx, b.nodes[0]); err != nil {
		return err
	}
	if workers := b.nodes[1:]; len(workers) > 0 {
		b.turn++
		return b.kubelet(ctx, workers[b.turn%len(workers)])
	}
	return nil
}

// control looks at the kubelet and the static pods of the control plane.
func (b *birth) control(ctx context.Context, n *Node) error {
	if err := b.kubelet(ctx, n); err != nil {
		return err
	}
	return b.pods(ctx, n)
}

// pods looks at the static pods of the control plane.
func (b *birth) pods(ctx context.Context, n *Node) error {
	out, err := n.output(ctx, "crictl", "ps", "--all", "--output", "json")
	if err != nil {
		return nil
	}
	for _, c := range exited(out) {
		if b.seen[c.id] {
			continue
		}
		const script = `crictl inspect --output go-template --template '{{.status.exitCode}} {{.status.reason}}' "$1"
echo
crictl logs "$1" 2>&1 | head -c 1000000`
		out, err := n.output(ctx, "sh", "-c", script, "sh", c.id)
		if err != nil {
			continue // the next look will
		}
		b.seen[c.id] = true
		state, log, _ := strings.Cut(out, "\n")
		if code, reason, _ := strings.Cut(state, " "); crashed(code, reason) {
			if err := b.exit(c.component, 1, log); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget has what has exited so far count no more.
func (b *birth) forget(ctx context.Context, n *Node) error {
	out, err := n.output(ctx, "crictl", "ps", "--all", "--output", "json")
	for _, c := range exited(out) {
		b.seen[c.id] = true
	}
	return err
}

// kubelet looks whether systemd had to start the kubelet again.
func (b *birth) kubelet(ctx context.Context, n *Node) error {
	out, err := n.output(ctx, "systemctl", "show", "kubelet", "--property", "NRestarts", "--value")
	if err != nil {
		return nil
	}
	restarts, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		return nil
	}
	before := b.restarts[n]
	b.restarts[n] = restarts
	if restarts <= before { // a start by hand, as kubeadm does it, sets it to 0
		return nil
	}
	log, err := n.output(ctx, "journalctl", "--unit", "kubelet", "--no-pager", "--output", "cat", "--lines", "400")
	if err != nil {
		b.restarts[n] = before
		return nil
	}
	return b.exit("kubelet", restarts-before, log)
}

// exit takes note that a component has crashed so many more times, and says whether that is the end.
func (b *birth) exit(component string, times int, log string) error {
	words := lastWords(log)
	b.words[component] = words
	if !patient(words) {
		b.exits[component] += times
	}
	if hopeless(b.exits[component], words) {
		return starting(component, words)
	}
	return nil
}

// A StartError says that a component cannot start, in its own words.
type StartError struct{ Component, Words string }

func (e *StartError) Error() string { return "starting " + e.Component + ": " + e.Words }

func starting(component, words string) error { return &StartError{component, words} }

// explain says why the creation failed, from what the nodes tell after all.
func (b *birth) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e := b.look(ctx); e != nil {
		return e
	}
	err = withOutput(err)
	for _, component := range slices.Sorted(maps.Keys(b.words)) {
		err = errors.Join(err, starting(component, b.words[component]))
	}
	return err
}

// waiting matches the words of a component that misses another one: it will be started again,
// and kubeadm knows how long to wait. kube-controller-manager, for one, gives the API server ten seconds.
var waiting = regexp.MustCompile(`(?i)connection refused|deadline exceeded|i/o timeout|tls handshake timeout|no route to host|` +
	`timed out waiting|failed to wait for apiserver|leader ?election lost|unable to handle the request|transport is closing|\bEOF\b`)

// misconfigured matches words that will be the same the next time.
var misconfigured = regexp.MustCompile(`(?i)unknown (shorthand )?flag|unrecognized feature gate|flag provided but not defined|` +
	`invalid (argument|value|boolean value) .+ for|is not a valid flag|invalid configuration|` +
	`failed to (parse|validate|verify|load)( \w+)? (flags?|config)`)

// slow matches words of a component that somebody else took too long for, or that was
// stopped while it started: the machine may be busy, and the limit on the creation ends it.
var slow = regexp.MustCompile(`(?i)\btim(e|ed)[ -]?out\b|too (slow|long)|within the (requested|allotted) time|in the time allotted|` +
	`\bcancell?ed\b|connection reset|broken pipe|leader changed|no leader|code = unavailable|too many requests|not (yet )?ready|PostStartHook "[^"]*" failed`)

// patient tells whether words are no reason to give a component up, however often it says them.
func patient(words string) bool {
	return waiting.MatchString(words) || slow.MatchString(words) && !misconfigured.MatchString(words)
}

// hopeless tells whether a component that crashed so often, last with these words, will ever come up.
func hopeless(exits int, words string) bool {
	switch {
	case patient(words):
		return false
	case misconfigured.MatchString(words):
		return exits >= 1
	}
	return exits >= 2
}

// crashed tells a container that ended on its own account from one that was stopped.
func crashed(code, reason string) bool {
	const sigkill, sigterm = "137", "143"
	return code != "0" && (code != sigkill && code != sigterm || reason == "OOMKilled")
}

type exitedContainer struct{ id, component string }

// exited returns the containers of the control plane's static pods that have ended, from
// what `crictl ps --all --output json` says; nothing if it is not that.
func exited(ps string) []exitedContainer {
	var list struct {
		Containers []struct {
			ID     string            `json:"id"`
			State  string            `json:"state"`
			Labels map[string]string `json:"labels"`
		} `json:"containers"`
	}
	if json.Unmarshal([]byte(ps), &list) != nil {
		return nil
	}
	var ended []exitedContainer
	for _, c := range list.Containers {
		component := c.Labels["io.kubernetes.container.name"]
		if _, ok := components[component]; ok && c.State == "CONTAINER_EXITED" &&
			c.Labels["io.kubernetes.pod.namespace"] == "kube-system" {
			ended = append(ended, exitedContainer{c.ID, component})
		}
	}
	return ended
}

// lastWords returns, from the log of a process that has exited, what it says was the reason.
func lastWords(log string) string {
	var last, complaint string
	lines := strings.Split(strings.TrimSpace(log), "\n")
	for _, line := range slices.Backward(lines) {
		words, rank := meaning(strings.TrimSpace(line))
		switch {
		case rank == final:
			return shorten(words)
		case rank == bad && complaint == "":
			complaint = words
		case last == "":
			last = words
		}
	}
	if complaint != "" {
		return shorten(complaint)
	}
	return shorten(last)
}

type rank int

const (
	plainLine rank = iota
	bad            // an error, maybe one of many
	final          // the error that ended the process
)

var (
	klogLine = regexp.MustCompile(`^([IWEF])\d{4} [\d:.]+ +\d+ [^ \]]+\] (.*)$`)
	klogErr  = regexp.MustCompile(`^"command failed" err=(".*")`)
	finals   = regexp.MustCompile(`^(?:Error: |error execution phase [^:]+: |panic: |fatal error: )(.+)|^(flag provided but not defined: .+|invalid (?:boolean )?value .+ for .*flag .+)`)
)

// meaning takes a line of a log for what it is: klog's text, etcd's JSON, or words.
func meaning(line string) (string, rank) {
	if m := finals.FindStringSubmatch(line); m != nil {
		return m[1] + m[2], final
	}
	if m := klogLine.FindStringSubmatch(line); m != nil {
		severity, text := m[1], m[2]
		if m := klogErr.FindStringSubmatch(text); m != nil {
			if words, err := strconv.Unquote(m[1]); err == nil {
				text = words
			}
			return text, final
		}
		return text, map[string]rank{"E": bad, "F": final}[severity]
	}
	if strings.HasPrefix(line, "{") {
		var entry struct{ Level, Msg, Error string }
		if json.NewDecoder(bytes.NewReader([]byte(line))).Decode(&entry) == nil && entry.Msg != "" {
			words := entry.Msg
			if entry.Error != "" {
				words += ": " + entry.Error
			}
			switch {
			case entry.Level == "fatal" || entry.Level == "panic":
				return words, final
			case entry.Error != "":
				return words, bad
			}
			return words, plainLine
		}
	}
	return line, plainLine
}

// shorten makes words fit into a line of an error.
func shorten(words string) string {
	words = strings.Join(strings.Fields(words), " ")
	if r := []rune(words); len(r) > 400 {
		return string(r[:400]) + "..."
	}
	if words == "" {
		return "it exited without a word"
	}
	return words
}
