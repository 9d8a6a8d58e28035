package judge

// A Trace is the state of everything in a run over time: the facts of its timeline
// put in order by node, for anybody who draws or lists them. All times are seconds
// since the injection, or since the beginning of the measured part where nothing
// was injected; of a run that did not come so far, since its start.
type Trace struct {
	From, To float64 // from the first look at the cluster to the end of the observation
	Nodes    []NodeTrace
	// Phases are those of the run itself: setup, create, steady and so on.
	Phases Lane
	// Fault is the time from the injection to the undo: fault, then released if it
	// was taken back before.
	Fault     Lane
	Witnesses []Witness
	// Leader is the identity that holds the election of kube-controller-manager,
	// for as long as the Lease was good. Terms are the renewals.
	Leader Lane
	Terms  []float64
	// Server is the time in which kube-apiserver was seen to answer: its audit log
	// was never silent for longer than a Lease may go without a renewal.
	Server Lane
	// Containers tells the containers of the control plane's components at each
	// look.
	Containers []Lane
	Gaps       []Span
	Deeds      []Deed
}

// A NodeTrace is what happened on one node.
type NodeTrace struct {
	Name, Role string
	Target     bool
	Renewals   []float64 // of its Lease, accepted
	Refused    []Deed    // requests of its kubelet that were answered with 401 or 403
	Ready      Lane      // True, False, Unknown
	Taints     []Lane    // one for each taint, named "key:effect"
	// Certificates are those that lay on the disk as the kubelet's own, in the
	// order in which they came.
	Certificates []Certificate
	Requests     []Lane // certificate signing requests by name: Pending, Approved, Issued, orphan, Denied, Failed
	Kubelet      Lane   // see StateRunning and so on
	Pods         []PodTrace
}

// A Certificate is one client certificate of a kubelet.
type Certificate struct {
	Serial, File        string
	NotBefore, NotAfter float64
	// RotateFrom and RotateTo are 70 and 90 % of its life, between which a kubelet
	// asks for the next (client-go util/certificate nextRotationDeadline).
	RotateFrom, RotateTo float64
	OnDisk               Span
	// Used holds the first and the last request that it authenticated.
	Used     Span
	Requests int
}

// A PodTrace is one canary pod: pending, running, unready, terminating. It is
// listed with the node on which its canary lived when the fault came; On is its
// own node.
type PodTrace struct {
	Canary, On string
	Lane
}

// A Lane is the states of one thing, one after the other.
type Lane struct {
	Name  string
	Spans []Span
}

// A Span is a state that lasted. Open means that it did so when the observation
// ended.
type Span struct {
	From, To float64
	State    string
	Note     string
	Open     bool
}

// A Witness is one look at the fault.
type Witness struct {
	At              float64
	InPlace, Biting bool
	Seen            string
}

// A Deed is something that somebody did at one moment.
type Deed struct {
	At   float64
	What string
}

// enter ends the present state and begins another; an empty one is none. It does
// not begin before the end of what was there.
func (l *Lane) enter(at float64, state, note string) {
	if n := len(l.Spans); n > 0 {
		last := &l.Spans[n-1]
		if last.Open && last.State == state && last.Note == note {
			return
		}
		at = max(at, last.To)
		if last.Open {
			last.To, last.Open = at, false
		}
	}
	if state != "" {
		l.Spans = append(l.Spans, Span{From: at, To: at, State: state, Note: note, Open: true})
	}
}

// state is the present state, "" if there is none.
func (l *Lane) state() string {
	if n := len(l.Spans); n > 0 && l.Spans[n-1].Open {
		return l.Spans[n-1].State
	}
	return ""
}

// close ends what is still open with the observation.
func (l *Lane) close(at float64) {
	if n := len(l.Spans); n > 0 && l.Spans[n-1].Open {
		l.Spans[n-1].To = max(at, l.Spans[n-1].From)
	}
}
