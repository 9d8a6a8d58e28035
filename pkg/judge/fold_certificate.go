package judge

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// A clientCert is what counts of a kubelet's client certificate; the zero value is
// none, or one that cannot be read.
type clientCert struct {
	cred, file          string // fingerprint, and where the link leads
	notBefore, notAfter time.Time
}

// asked notes a request for a client certificate: the first, and each one after it
// with its number.
func (f *Fold) asked(node, source string, at time.Duration, note string) {
	n := f.nodes[node]
	if n == nil {
		return
	}
	created := Key{CSRCreated, node, ""}
	if !f.began || source == timeline.SourceWatch && f.came(created, at) {
		f.mark(created, source, at, note)
		return
	}
	n.requests[source]++
	if n.requests[source] == 1 {
		f.mark(created, source, at, note)
	} else if n.target && !f.reached(FaultUndone, node) {
		f.mark(Key{CSRRepeated, node, strconv.Itoa(n.requests[source])}, source, at, note)
	}
}

// use notes the first request with each certificate.
func (f *Fold) use(node, cred string, at time.Duration) {
	n := f.nodes[node]
	if _, known := n.used[cred]; known || cred == "" || !f.began {
		return
	}
	n.used[cred] = at
	f.inUse(node, n)
}

// inUse marks that the certificate that a kubelet rotated to has authenticated a request. The
// kubelet had stored it by then (client-go util/certificate/certificate_manager.go rotateCerts:
// certStore.Update before updateCached): a later date of the file is that of the look that found it.
func (f *Fold) inUse(node string, n *nodeState) {
	at, ok := n.used[n.rotateTo]
	rotated, stored := f.got[Key{CertificateRotated, node, ""}]
	if !ok || !stored || n.rotateTo == "" {
		return
	}
	if at < n.rotated {
		if rotated.At == n.rotated { // else it is of a rotation before
			rotated.At, rotated.Source = at, timeline.SourceAudit
			rotated.Seen[timeline.SourceAudit] = at
			rotated.Note = join(rotated.Note, "stored by the first request with it; the file was found later")
		}
		n.rotated = at
	}
	if n.target {
		f.mark(Key{CertificateInUse, node, ""}, timeline.SourceAudit, at, "certificate "+n.rotateTo)
	}
}

// own notes whose a request is: a node asks for itself, and nobody else waits for
// it. What was decided may stand in the audit log before that.
func (f *Fold) own(says any) {
	var name, node string
	switch c := says.(type) {
	case csrAwaited:
		name, node = c.csr, c.node
	case csrSeen:
		name, node = c.name, c.node
		if node != "" && c.serving { // only a watch shows that, and the kubelet waits for these too
			f.owners[name] = ""
			return
		}
	}
	if _, known := f.owners[name]; !known && node != "" {
		f.owners[name] = node
	}
}

// decided notes what became of a request.
func (f *Fold) decided(node string, d csrDecided, at time.Duration) {
	switch {
	case d.condition == "Denied":
		f.mark(Key{CSRDenied, node, ""}, timeline.SourceAudit, at, d.csr)
	case d.condition != "Approved":
	case d.issued:
		f.mark(Key{CSRIssued, node, ""}, timeline.SourceAudit, at, d.csr)
	default:
		f.mark(Key{CSRApproved, node, ""}, timeline.SourceAudit, at, d.csr)
	}
}

// refusals notices a node's first 401 and 403, on any URI: the kubelet's clients
// share one transport, so whichever request comes first is refused.
func (f *Fold) refusals(r *request, at time.Duration, node string) {
	name, refused := map[string]string{"401": FirstRefused401, "403": FirstRefused403}[r.code]
	if !refused {
		return
	}
	note := r.what()
	if r.user != "" {
		note += " as " + r.user
	}
	f.mark(Key{name, node, ""}, timeline.SourceAudit, at, note)
	if r.resource == "leases" && r.name != "" {
		f.stalled(node, f.nodes[node])
	}
}

func (f *Fold) csr(c csrSeen, at time.Duration) {
	const source = timeline.SourceWatch
	if !f.csrs[c.name] && c.verb == timeline.TypeAdded {
		f.asked(c.node, source, at, c.name)
	}
	f.csrs[c.name] = true
	if c.verb != timeline.TypeModified {
		return
	}
	switch c.state {
	case "Approved":
		f.mark(Key{CSRApproved, c.node, ""}, source, at, c.name)
	case "Denied":
		f.mark(Key{CSRDenied, c.node, ""}, source, at, c.name)
	case "Issued":
		f.mark(Key{CSRApproved, c.node, ""}, source, at, c.name)
		f.mark(Key{CSRIssued, c.node, ""}, source, at, c.name)
	}
}

// datedFile is the name under which a kubelet stores what it rotated to.
var datedFile = regexp.MustCompile(`/kubelet-client-\d{4}-\d{2}-\d{2}-\d{2}-\d{2}-\d{2}\.pem$`)

// certificate follows what lies on the disk. A running kubelet looks at that only
// when it starts; what it rotates to it has before it is there. A certificate that
// it has had before, put back say, is no rotation.
func (f *Fold) certificate(c certificateSeen, at time.Duration, n *nodeState) {
	first := !n.looked || n.inUse.cred == "" && !f.began
	n.looked = true
	n.disk = clientCert{cred: c.cred, file: c.file, notBefore: c.notBefore, notAfter: c.notAfter}
	switch {
	case first:
		f.load(n)
	case datedFile.MatchString(c.file) && n.disk.cred != "" && !n.had[n.disk.cred]:
		f.load(n)
		n.rotated, n.rotateTo, n.answered = at, n.disk.cred, true
		f.mark(Key{CertificateRotated, c.node, ""}, timeline.SourceNode, at, "")
		f.inUse(c.node, n)
	case n.pid == "" || at <= n.started+readAfter: // it lay there when the process began
		f.load(n)
	}
	own := strings.HasSuffix(c.file, "/flatline-short.pem")
	if f.began && own && n.disk.cred != "" { // the experiment's own: it sets the time of the next request
		n.asked = n.disk
	}
}

// readAfter is sooner after its start than a kubelet reads its certificate.
const readAfter = 10 * time.Millisecond

// load notes that a kubelet uses what lies on the disk.
func (f *Fold) load(n *nodeState) {
	n.inUse = n.disk
	if n.disk.cred != "" && datedFile.MatchString(n.disk.file) { // no other name is proof: a look may fall into the middle of a rotation
		n.had[n.disk.cred] = true
	}
}

// expiry is the end of a node's certificate since the start of the timeline.
func (f *Fold) expiry(n *nodeState) time.Duration {
	return f.sinceStart(n.inUse.notAfter)
}

// sinceStart is a time that a node or the signer wrote, in time since the start of the timeline.
func (f *Fold) sinceStart(at time.Time) time.Duration { return at.Sub(f.start) - f.clock.offset }
