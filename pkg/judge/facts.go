package judge

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// A fact is an event, read once: says is what it tells, as one of the types below.
type fact struct {
	timeline.Event
	says any
}

// What the audit log tells. Each is one entry.
type (
	// A request is any entry of the audit log.
	request struct {
		verb, resource, name, ns    string // resource with its subresource: "nodes/status"
		user, agent, ip, cred, code string
		base                        string        // resourceVersion that a write changes
		took                        time.Duration // 0 where it is not known
		bytes                       int
		accepted                    bool // answered with 2xx
		// What a write says, where it does.
		renew, ready, taints, condition string
	}
	// A renewal is an accepted write of a node's Lease.
	renewal struct {
		*request
		node string
	}
	// An election is an accepted write of kube-controller-manager's Lease.
	election struct {
		*request
		holder string
	}
	// A report is an accepted write of a node's status; ready is "" where it says nothing of it.
	report struct {
		*request
		node string
	}
	// A nodeRead is the node controller's look at a node before it taints it
	// (controller_utils.go UpdateNodeTaints).
	nodeRead struct {
		*request
		node string
	}
	// A nodeTaints is an accepted write of a node's taints.
	nodeTaints struct {
		*request
		node string
	}
	// A csrMade is a kubelet's accepted request for a client certificate. The entry has no
	// name of it.
	csrMade struct {
		*request
		node string
	}
	// A csrAwaited is a kubelet that waits for its own request.
	csrAwaited struct {
		*request
		csr, node string
	}
	// A csrDecided is an accepted approval, denial or issue.
	csrDecided struct {
		*request
		csr    string
		issued bool // by the signer, which writes the certificate with the status of an approved one
	}
	// A podMarked is the node controller's update of a pod that it marks as not ready, accepted
	// or not. A patch by the same user is the eviction controller's.
	podMarked struct {
		*request
		pod string // namespace/name
	}
	// A podDeleted is the eviction controller's accepted deletion.
	podDeleted struct {
		*request
		pod string
	}
)

// What watches tell.
type (
	// A watchState says that a watch sees everything from here on, or that it may not.
	watchState struct {
		resource string
		sees     bool
	}
	leaseSeen struct {
		change
		renew string
	}
	nodeSeen struct {
		change
		ready, taints string
	}
	podSeen struct {
		change
		id, ns, node, canary string // id is namespace/name
		ready, deleting      bool
	}
	csrSeen struct {
		change
		node, state, cred string // node is "" where no node made it
		serving           bool   // not for a client certificate
	}
	// A change is an object as a watch delivers it: listed, added, modified or deleted.
	change struct{ verb, name, rv string }
)

// What the shell in a node tells.
type (
	processSeen struct {
		node, pid, state, exit, why string
		restarts                    int
		counted                     bool // restarts was told
	}
	certificateSeen struct {
		node, file, serial  string
		cred                string // fingerprint, "" where it cannot be read
		notBefore, notAfter time.Time
	}
	paceSeen struct {
		node       string
		look, late time.Duration
	}
)

// An act is what the run did or saw. of is the object's name, such as that of a node.
type act struct {
	typ, of string
	detail  map[string]string
}

// entry is the request of any fact of the audit log.
func (r *request) entry() *request { return r }

// entryOf is the request that a fact of the audit log is about.
func entryOf(says any) (*request, bool) {
	e, ok := says.(interface{ entry() *request })
	if !ok {
		return nil, false
	}
	return e.entry(), true
}

// readAll reads events.
func readAll(events []timeline.Event) []fact {
	facts := make([]fact, len(events))
	for i, e := range events {
		facts[i] = read(e)
	}
	return facts
}

// read reads an event. What it does not know says nothing.
func read(e timeline.Event) fact {
	kind, name, _ := strings.Cut(e.Object, " ")
	f := fact{Event: e}
	switch e.Source {
	case timeline.SourceRun:
		f.says = act{e.Type, name, e.Detail}
		if e.Type == timeline.TypeInstalled { // the run put it there: nobody else may have looked before it was gone
			f.says = installed{readCertificate(e, name)}
		}
	case timeline.SourceAudit:
		f.says = readRequest(e, kind, name)
	case timeline.SourceWatch:
		f.says = readWatch(e, kind, name)
	case timeline.SourceNode:
		f.says = readNode(e, name)
	}
	return f
}

// An installed is a certificate that the run itself has put in its place.
type installed struct{ certificateSeen }

func readRequest(e timeline.Event, kind, name string) any {
	d := e.Detail
	r := &request{verb: e.Type, resource: kind, name: name, ns: d["ns"], user: d["user"], agent: d["agent"], ip: d["ip"], cred: d["cred"], code: d["code"], base: d["base"],
		accepted: strings.HasPrefix(d["code"], "2"), renew: d["renew"], ready: d["ready"], taints: d["taints"], condition: d["condition"]}
	if took, err := timeline.ParseSeconds(d["took"]); err == nil {
		r.took = max(0, took)
	}
	if n, err := strconv.Atoi(d["bytes"]); err == nil {
		r.bytes = n
	}
	node, isNode := strings.CutPrefix(r.user, nodeUser)
	pod := r.ns + "/" + name
	switch {
	case kind == "leases" && name == "kube-controller-manager" && r.accepted && (r.written() || d["holder"] != ""):
		return election{r, d["holder"]}
	case kind == "leases" && r.ns == "kube-node-lease" && r.accepted && r.written():
		return renewal{r, name}
	case kind == "nodes/status" && r.accepted:
		return report{r, name}
	case kind == "nodes" && r.verb == "get" && r.user == nodeController:
		return nodeRead{r, name}
	case kind == "nodes" && r.accepted && r.taints != "":
		return nodeTaints{r, name}
	case kind == "certificatesigningrequests" && r.verb == "create" && r.accepted && isClientSigner(d["signer"]) && isNode:
		return csrMade{r, node}
	case kind == "certificatesigningrequests" && isNode && r.agent == "kubelet" && name != "":
		return csrAwaited{r, name, node}
	case kind == "certificatesigningrequests/approval" && r.accepted:
		return csrDecided{r, name, false}
	case kind == "certificatesigningrequests/status" && r.accepted:
		return csrDecided{r, name, true}
	case kind == "pods/status" && r.verb == "update" && r.user == nodeController:
		return podMarked{r, pod}
	case kind == "pods" && r.verb == "delete" && r.accepted && r.user == nodeController:
		return podDeleted{r, pod}
	}
	return r
}

// written says whether a request writes an object as a whole or in part.
func (r *request) written() bool {
	return slices.Contains([]string{"create", "update", "patch"}, r.verb)
}

// changed says whether the API server has accepted a write.
func (r *request) changed() bool { return r.accepted && (r.written() || r.verb == "delete") }

// isClientSigner leaves out requests for serving certificates. A record that does
// not name the signer is of a time when the kubelets asked for no others.
func isClientSigner(signer string) bool {
	return signer == "" || signer == "kubernetes.io/kube-apiserver-client-kubelet"
}

func readWatch(e timeline.Event, kind, name string) any {
	d := e.Detail
	c := change{e.Type, name, d["rv"]}
	switch {
	case e.Type == timeline.TypeGap:
		return watchState{kind, false}
	case e.Type == timeline.TypeWatching:
		return watchState{kind, true}
	case name == "":
		return nil
	}
	switch kind {
	case "leases":
		return leaseSeen{c, d["renew"]}
	case "nodes":
		return nodeSeen{c, d["ready"], d["taints"]}
	case "pods":
		return podSeen{c, d["ns"] + "/" + name, d["ns"], d["node"], d["canary"], d["ready"] == "True", d["deleting"] != ""}
	case "certificatesigningrequests":
		node, ok := strings.CutPrefix(d["user"], nodeUser)
		if !ok {
			node = ""
		}
		return csrSeen{c, node, d["state"], d["cred"], !isClientSigner(d["signer"])}
	}
	return nil
}

func readNode(e timeline.Event, node string) any {
	d := e.Detail
	switch e.Type {
	case timeline.TypeProcess:
		restarts, err := strconv.Atoi(d["restarts"])
		return processSeen{node, d["pid"], d["state"], d["exit"], d["why"], restarts, err == nil}
	case timeline.TypeCertificate:
		return readCertificate(e, node)
	case timeline.TypePace:
		seconds := func(key string) time.Duration {
			s, err := timeline.ParseSeconds(d[key])
			if err != nil {
				return 0
			}
			return max(0, s)
		}
		return paceSeen{node, seconds("look"), seconds("late")}
	}
	return nil
}

func readCertificate(e timeline.Event, node string) certificateSeen {
	c := certificateSeen{node: node, file: e.Detail["file"], serial: e.Detail["serial"], cred: e.Detail["cred"]}
	c.notBefore, _ = time.Parse(time.RFC3339, e.Detail["notBefore"])
	c.notAfter, _ = time.Parse(time.RFC3339, e.Detail["notAfter"])
	return c
}
