package observe

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/x509"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// A Kubelet watches one node from the inside: the kubelet's process and the
// client certificate that it has on disk. It looks once a second with shell
// built-ins and prints only changes, since the commands that tell more cost a
// process each, and a sign of life now and then: a node that is silent, because it
// is paused say, was not watched.
type Kubelet struct {
	Node Node
	Name string
}

// kubeletScript prints "process <date> <pid> <restarts> <state> <exit code> <date
// of the exit> <last errors in base64>" (with "-" for the last three while the
// process runs) and "certificate <date> <link target> <certificate blocks in
// base64>" whenever one of them changes, the latter with the date at which the link or
// the file came to its place, and "alive <date> <look> <late>" every five
// seconds: since the line before, how long the longest look took that started no
// more than one process, and by how much the latest began late, in microseconds. Only
// certificate blocks leave the node, never the key. A process that was stopped by a
// signal is in the state "frozen".
//
//go:embed kubelet.sh
var kubeletScript string

// silence is how long a node may give no sign of life and still count as watched:
// three signs.
const silence = 15 * time.Second

// Run implements Source. A stream that breaks (the node is stopped or paused,
// say) leaves a Gap and is begun again.
func (k *Kubelet) Run(ctx context.Context, ready func(), emit func(timeline.Event)) error {
	for wait := 200 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := k.follow(ctx, ready, emit)
		if ctx.Err() != nil {
			return nil
		}
		emit(timeline.Event{Source: timeline.SourceNode, Type: timeline.TypeGap, Object: "kubelet " + k.Name,
			Detail: map[string]string{"why": err.Error()}})
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

func (k *Kubelet) follow(ctx context.Context, ready func(), emit func(timeline.Event)) error {
	ctx, stop := context.WithCancel(ctx) // ends the shell's exec, whatever ends the reading
	defer stop()
	pr, pw := io.Pipe()
	// The shell in the node lives as long as its standard input, and an exec does
	// not return before it has read that to the end.
	open, end := io.Pipe()
	defer end.Close()
	defer context.AfterFunc(ctx, func() { end.Close() })()
	go func() {
		err := k.Node.Exec(ctx, open, pw, "bash", "-c", kubeletScript, "bash", timeline.CurrentCertificate)
		if err == nil {
			err = errors.New("the watching shell ended")
		}
		pw.CloseWithError(err)
	}()
	defer pr.Close()
	lines := make(chan string)
	ended := make(chan error, 1)
	go func() {
		br := bufio.NewReader(pr)
		for {
			line, err := br.ReadString('\n')
			if err != nil {
				ended <- err
				return
			}
			select {
			case lines <- strings.TrimSuffix(line, "\n"):
			case <-ctx.Done():
				return
			}
		}
	}()
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	deaf := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return fmt.Errorf("watching the kubelet on %s: %w", k.Name, err)
		case <-quiet.C:
			deaf = true
			emit(timeline.Event{Source: timeline.SourceNode, Type: timeline.TypeGap, Object: "kubelet " + k.Name,
				Detail: map[string]string{"why": fmt.Sprintf("the node gave no sign of life for %s", silence), "since": timeline.Seconds(silence)}})
		case line := <-lines:
			quiet.Reset(silence)
			if deaf && strings.HasPrefix(line, "alive") {
				deaf = false
				emit(timeline.Event{Source: timeline.SourceNode, Type: timeline.TypeWatching, Object: "kubelet " + k.Name})
			}
			e, err := parseKubelet(k.Name, line)
			if err != nil {
				return fmt.Errorf("watching the kubelet on %s: %w", k.Name, err)
			}
			emit(e)
			if e.Type == timeline.TypeCertificate { // both first lines are out
				ready()
			}
		}
	}
}

// parseKubelet reads one line of kubeletScript.
func parseKubelet(node, line string) (timeline.Event, error) {
	f := strings.Split(line, " ")
	if len(f) < 3 {
		return timeline.Event{}, fmt.Errorf("unexpected line %q", line)
	}
	stamp, err := ParseEpoch(f[1])
	if err != nil {
		return timeline.Event{}, err
	}
	e := timeline.Event{Stamp: stamp, Source: timeline.SourceNode}
	switch {
	case f[0] == "process" && len(f) == 8:
		e.Type, e.Object = timeline.TypeProcess, "kubelet "+node
		e.Detail = map[string]string{"pid": f[2], "restarts": f[3], "state": f[4]}
		if f[5] != "-" {
			e.Detail["exit"] = f[5]
			if e.Stamp, err = ParseEpoch(f[6]); err != nil {
				return timeline.Event{}, err
			}
		}
		if f[7] != "-" {
			why, err := base64.StdEncoding.DecodeString(f[7])
			if err != nil {
				return timeline.Event{}, fmt.Errorf("unexpected line %q: %w", line, err)
			}
			e.Detail["why"] = strings.ToValidUTF8(strings.TrimSpace(string(why)), "?")
		}
	case f[0] == "alive" && len(f) == 4:
		e.Type, e.Object, e.Detail = timeline.TypePace, "pace "+node, map[string]string{}
		for i, key := range []string{"look", "late"} {
			us, err := strconv.ParseUint(f[2+i], 10, 40)
			if err != nil {
				return timeline.Event{}, fmt.Errorf("unexpected line %q: %w", line, err)
			}
			e.Detail[key] = timeline.Seconds(time.Duration(us) * time.Microsecond)
		}
	case f[0] == "certificate" && len(f) == 4:
		e.Type, e.Object = timeline.TypeCertificate, "certificate "+node
		e.Detail = map[string]string{"file": f[2]}
		text, err := base64.StdEncoding.DecodeString(f[3])
		if err != nil {
			return timeline.Event{}, fmt.Errorf("unexpected line %q: %w", line, err)
		}
		DescribeCertificate(text, e.Detail)
	default:
		return timeline.Event{}, fmt.Errorf("unexpected line %q", line)
	}
	return e, nil
}

// DescribeCertificate puts what the first certificate of a PEM text says into
// detail; see TypeCertificate for the keys. What cannot be read is left out, with
// the reason under "unreadable".
func DescribeCertificate(text []byte, detail map[string]string) {
	block, _ := pem.Decode(text)
	if block == nil {
		detail["unreadable"] = "no PEM block"
		return
	}
	sum := sha256.Sum256(block.Bytes)
	detail["cred"] = hex.EncodeToString(sum[:])[:16]
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		detail["unreadable"] = err.Error()
		return
	}
	detail["serial"] = c.SerialNumber.Text(16)
	detail["subject"] = c.Subject.String()
	detail["issuer"] = c.Issuer.String()
	detail["notBefore"] = c.NotBefore.UTC().Format(time.RFC3339)
	detail["notAfter"] = c.NotAfter.UTC().Format(time.RFC3339)
}

// ParseEpoch reads the output of `date +%s.%N`, and bash's EPOCHREALTIME.
func ParseEpoch(s string) (time.Time, error) {
	whole, frac, _ := strings.Cut(strings.TrimSpace(s), ".")
	sec, err := strconv.ParseUint(whole, 10, 36) // within what RFC 3339 can write
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is no time since the epoch", s)
	}
	var nsec uint64
	if frac != "" {
		if len(frac) == 6 { // bash's EPOCHREALTIME
			frac += "000"
		}
		if len(frac) != 9 {
			return time.Time{}, fmt.Errorf("%q is no time since the epoch with micro- or nanoseconds", s)
		}
		if nsec, err = strconv.ParseUint(frac, 10, 32); err != nil {
			return time.Time{}, fmt.Errorf("%q is no time since the epoch", s)
		}
	}
	return time.Unix(int64(sec), int64(nsec)).UTC(), nil
}
