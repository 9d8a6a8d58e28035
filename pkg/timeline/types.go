package timeline

// Sources of events.
const (
	SourceRun      = "run"      // what the run did
	SourceAudit    = "audit"    // the audit log: Type is the verb
	SourceWatch    = "watch"    // a watch of the API server
	SourceNode     = "node"     // the shell that watches a node's files and kubelet
	SourceRecorder = "recorder" // what the timeline says of itself
)

// Types of events of a watch: what it delivers, and that it does so from here on. TypeWatching
// is of a node's shell too.
const (
	TypeListed   = "listed"
	TypeAdded    = "added"
	TypeModified = "modified"
	TypeDeleted  = "deleted"
	TypeWatching = "Watching"
)

// Types of events of the audit log besides verbs.
const (
	TypeStreamCut  = "StreamCut"  // its stream ended and is opened again where it was; detail why, offset
	TypeUnreadable = "Unreadable" // a line that is none of an audit log; detail why
)

// Types of events with source "run": what the run did. Stamp is the node's own time of the
// change where there is one.
const (
	TypeInjected       = "Injected"       // the fault is in place
	TypeMeasuring      = "Measuring"      // no fault: the measured part begins
	TypeInstalled      = "Installed"      // object "certificate <node>": the run put one in its place; detail as in TypeCertificate
	TypeKubeletStarted = "KubeletStarted" // object "node <name>"
	TypeStruck         = "Struck"         // the fault came after the injection
	TypeKubeletStopped = "KubeletStopped" // object "node <name>"
	TypeStopped        = "Stopped"        // object "kube-controller-manager": its container ended
	TypeReleased       = "Released"       // the fault was taken back before the undo
	TypeUndone         = "Undone"
	TypeRepaired       = "Repaired" // object "node <name>"
)

// Further types of events with source "run": what the run saw, and what became of it.
const (
	TypePhase         = "Phase"         // object is the phase that begins; "end" ends the last
	TypeWitness       = "Witness"       // detail inPlace, biting ("true" or "false"), seen
	TypeWitnessFailed = "WitnessFailed" // it could not look; detail why
	TypeSetupFailed   = "SetupFailed"   // detail why
	TypeStep          = "Step"          // an undo, repair or clean step was taken; object is the node, detail kind, what, and why if it failed
	TypeStepFailed    = "StepFailed"    // an undo or repair step; detail why
	TypeNotHealed     = "NotHealed"     // recovery did not come in time; detail why
	TypeSnapshot      = "Snapshot"      // object is the node; detail when (before, after) and what was read
	TypeDeadMan       = "DeadManFired"
	TypeController    = "Controller" // object is the component; detail id (container) at one look
	// TypeClock is how a clock stands to the observer's. Object is "node <name>" or "kube-apiserver".
	// Detail: when (before, after), same ("true": one kernel), offset (ahead of the observer's) and
	// error (of that) in seconds; or when and why it could not be compared.
	TypeClock        = "Clock"
	TypeCost         = "Cost" // detail apiRequests, cpuSeconds, observeSeconds
	TypeInterrupted  = "Interrupted"
	TypeInjectFailed = "InjectFailed" // detail why
	TypeLookFailed   = "LookFailed"   // object is what could not be looked at
)

// When something that is read twice was read.
const (
	Before = "before" // what is measured
	After  = "after"
)

// Types of events of a Kubelet source.
const (
	// TypeProcess: the kubelet's process changed. Detail: pid (0 when there is
	// none), restarts (by systemd), state (systemd's ActiveState, or frozen), and
	// where there is none and systemd knows, exit (its code, or "signal-9"). Where one ended by
	// itself, why holds the last errors that it wrote to its journal, a line each.
	// Stamp is the time of the exit, or of the start; of the first look, and of a
	// process that was frozen or thawed, it is that of the look, up to a second
	// after the change.
	TypeProcess = "Process"
	// TypeCertificate: the certificate file changed. Stamp is when the link was made
	// or the file written, whatever was later; when they were moved there, if they are
	// older than that; and the time of the look if both are older than the look before, or
	// the file is gone. Records up to 4 December 2026 have the time of the next look, up to a
	// second late, for a file that changed during one. Detail: file (what the link points to) and, if
	// it holds a certificate, cred (first 16 hex digits of its SHA-256, as in audit
	// entries), serial, subject, issuer, notBefore, notAfter.
	TypeCertificate = "Certificate"
	// TypePace: the watching shell is there, and how promptly the machine let it work
	// since the event before. Detail, in seconds: look (the longest time that it took to
	// start one process and have its answer), late (by how much a rest of a second was
	// exceeded).
	TypePace = "Pace"
)

// A kubelet keeps its client certificates in CertificateFolder, and CurrentCertificate is the
// link to the one in use (client-go util/certificate/certificate_store.go).
const (
	CertificateFolder  = "/var/lib/kubelet/pki"
	CurrentCertificate = CertificateFolder + "/kubelet-client-current.pem"
)
