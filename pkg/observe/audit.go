package observe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// An Audit reads the API server's audit log inside the control-plane node: who
// did what, with which result, at which microsecond. It does not go deaf when
// watches do, so it is the first source of most facts.
//
// Run follows the log from its present end; ReadAll afterwards reads the same
// part once more as a whole and emits what the stream missed, so that a cut
// stream costs nothing.
type Audit struct {
	Node Node
	Path string

	mu    sync.Mutex
	first int64           // byte offset at which this run's part of the log begins
	next  int64           // byte offset up to which whole lines were read by the stream
	seen  map[string]bool // audit id and stage
}

// Run implements Source. It resumes a cut stream at the byte where it broke.
func (a *Audit) Run(ctx context.Context, ready func(), emit func(timeline.Event)) error {
	var size strings.Builder
	if err := a.Node.Exec(ctx, nil, &size, "stat", "-c", "%s", a.Path); err != nil {
		return fmt.Errorf("finding the audit log %s: %w", a.Path, err)
	}
	end, err := strconv.ParseInt(strings.TrimSpace(size.String()), 10, 64)
	if err != nil {
		return fmt.Errorf("finding the end of the audit log %s: %w", a.Path, err)
	}
	a.mu.Lock()
	a.first, a.next, a.seen = end, end, map[string]bool{}
	a.mu.Unlock()
	ready()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		before := a.next
		err := a.follow(ctx, emit)
		if ctx.Err() != nil {
			return nil
		}
		if a.next > before {
			wait = 100 * time.Millisecond
		}
		emit(timeline.Event{Source: timeline.SourceAudit, Type: timeline.TypeStreamCut,
			Detail: map[string]string{"why": fmt.Sprint(err), "offset": strconv.FormatInt(a.next, 10)}})
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// followScript streams the file $2 from its byte $1 on, for as long as its standard input
// lasts: what runs in a node does not end with the one who asked for it.
const followScript = `tail -c "+$1" -F "$2" < /dev/null &
tail=$!
{ cat; kill $tail; } <&0 > /dev/null 2>&1 &
wait $tail`

// follow streams the log from a.next until the stream ends.
func (a *Audit) follow(ctx context.Context, emit func(timeline.Event)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	pr, pw := io.Pipe()
	open, end := io.Pipe()
	defer end.Close()
	defer context.AfterFunc(ctx, func() { end.Close() })()
	go func() {
		err := a.Node.Exec(ctx, open, pw, "bash", "-c", followScript, "bash", strconv.FormatInt(a.next+1, 10), a.Path)
		if err == nil {
			err = io.EOF
		}
		pw.CloseWithError(err)
	}()
	defer pr.Close()
	return a.scan(pr, func(n int) { a.mu.Lock(); a.next += int64(n); a.mu.Unlock() }, emit)
}

// ReadAll reads this run's part of the log once more, up to its present end, and
// emits what was not seen before.
func (a *Audit) ReadAll(ctx context.Context, emit func(timeline.Event)) error {
	a.mu.Lock()
	first := a.first
	a.mu.Unlock()
	pr, pw := io.Pipe()
	go func() {
		pw.CloseWithError(a.Node.Exec(ctx, nil, pw, "tail", "-c", "+"+strconv.FormatInt(first+1, 10), a.Path))
	}()
	defer pr.Close()
	if err := a.scan(pr, func(int) {}, emit); !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the whole audit log: %w", err)
	}
	return nil
}

// scan emits the events of whole lines until the reading ends, and says how; a line
// without its end is left for the next read.
func (a *Audit) scan(r io.Reader, consumed func(int), emit func(timeline.Event)) error {
	br := bufio.NewReaderSize(r, 1<<16)
	for {
		line, err := br.ReadBytes('\n')
		if err != nil {
			return err
		}
		e, id, perr := ParseAudit(line)
		if perr != nil {
			e, id = timeline.Event{Source: timeline.SourceAudit, Type: timeline.TypeUnreadable,
				Detail: map[string]string{"why": perr.Error()}}, string(line)
		}
		a.mu.Lock()
		seen := a.seen[id]
		a.seen[id] = true
		a.mu.Unlock()
		if !seen {
			emit(e)
		}
		consumed(len(line))
	}
}

// ParseAudit turns one line of an audit log into an Event and the id under which
// the same line would be met again. Stamp is the stageTimestamp; for a finished
// request that is when the response was complete.
//
// Object is the resource with subresource and name, as in "nodes/status worker";
// a request outside of any resource has its URI there. Detail: code, user, ip,
// agent (the program's name), cred (first 16 hex digits of the SHA-256 of the
// client certificate, only where a certificate authenticated), ns, stage (only
// if it is not ResponseComplete), took (seconds from the request's arrival at the
// server to Stamp; a watch has none), base (the resourceVersion
// that a write names as the one it changes), uri (only for refused requests), and
// from the request body bytes, ready, taints, renew, holder (of an election's
// Lease), signer, subjects.
func ParseAudit(line []byte) (timeline.Event, string, error) {
	var a auditv1.Event
	if err := json.Unmarshal(line, &a); err != nil {
		return timeline.Event{}, "", fmt.Errorf("parsing audit line: %w", err)
	}
	if a.AuditID == "" || a.Verb == "" {
		return timeline.Event{}, "", errors.New("parsing audit line: no auditID or verb")
	}
	d := map[string]string{}
	put := func(k, v string) {
		if v != "" {
			d[k] = v
		}
	}
	put("user", a.User.Username)
	if len(a.SourceIPs) > 0 {
		put("ip", a.SourceIPs[0])
	}
	agent, _, _ := strings.Cut(a.UserAgent, "/")
	put("agent", agent)
	if ids := a.User.Extra["authentication.kubernetes.io/credential-id"]; len(ids) > 0 {
		if sha, ok := strings.CutPrefix(ids[0], "X509SHA256="); ok {
			put("cred", sha[:min(16, len(sha))])
		}
	}
	if a.ResponseStatus != nil {
		put("code", strconv.Itoa(int(a.ResponseStatus.Code)))
	}
	if a.Stage != auditv1.StageResponseComplete {
		put("stage", string(a.Stage))
	}
	if took := a.StageTimestamp.Sub(a.RequestReceivedTimestamp.Time); a.Verb != "watch" && !a.RequestReceivedTimestamp.IsZero() {
		put("took", timeline.Seconds(took))
	}
	object := a.RequestURI
	if ref := a.ObjectRef; ref != nil && ref.Resource != "" {
		object = ref.Resource
		if ref.Subresource != "" {
			object += "/" + ref.Subresource
		}
		if ref.Name != "" {
			object += " " + ref.Name
		}
		put("ns", ref.Namespace)
		put("base", ref.ResourceVersion)
		if c := d["code"]; c == "401" || c == "403" {
			put("uri", a.RequestURI)
		}
	}
	if a.RequestObject != nil {
		put("bytes", strconv.Itoa(len(a.RequestObject.Raw)))
		readBody(a.RequestObject.Raw, put)
		if ref := a.ObjectRef; ref != nil && d["holder"] == ref.Name { // a node's Lease is its own
			delete(d, "holder")
		}
	}
	return timeline.Event{Stamp: a.StageTimestamp.Time, Source: timeline.SourceAudit, Type: a.Verb, Object: object, Detail: d},
		string(a.AuditID) + " " + string(a.Stage), nil
}

// readBody takes from a request body, whole object or patch, what tells a
// heartbeat's story.
func readBody(raw []byte, put func(k, v string)) {
	var body struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Spec struct {
			SignerName string          `json:"signerName"`
			RenewTime  string          `json:"renewTime"`
			Holder     string          `json:"holderIdentity"`
			Taints     json.RawMessage `json:"taints"` // null in a patch that removes the last one
		} `json:"spec"`
		Status struct {
			Conditions []struct{ Type, Status, Reason string } `json:"conditions"`
		} `json:"status"`
		Subjects *[]struct{ Kind, Name string } `json:"subjects"`
	}
	if json.Unmarshal(raw, &body) != nil {
		return // a JSON patch, say; the verb and the object still stand
	}
	put("base", body.Metadata.ResourceVersion)
	put("renew", body.Spec.RenewTime)
	put("holder", body.Spec.Holder)
	put("signer", body.Spec.SignerName)
	if body.Spec.Taints != nil {
		var taints []struct{ Key, Effect string }
		if json.Unmarshal(body.Spec.Taints, &taints) == nil {
			var names []string
			for _, t := range taints {
				names = append(names, t.Key+":"+t.Effect)
			}
			put("taints", taintList(names))
		}
	}
	for _, c := range body.Status.Conditions {
		switch c.Type {
		case "Ready":
			put("ready", c.Status)
			put("reason", c.Reason)
		case "Approved", "Denied", "Failed":
			put("condition", c.Type)
		}
	}
	if body.Subjects != nil {
		var names []string
		for _, s := range *body.Subjects {
			names = append(names, s.Kind+" "+s.Name)
		}
		put("subjects", strings.Join(names, ", "))
	}
}

// taintList writes a list of taints such that "no taints" is a value too.
func taintList(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}
