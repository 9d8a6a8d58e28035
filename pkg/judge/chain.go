package judge

import (
	"slices"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// Names of milestones, in Kubernetes words. "NotReady" is none of them: Unknown
// is the controller's word and False the kubelet's.
const (
	FaultInjected      = "FaultInjected"
	FaultStruck        = "FaultStruck"    // the fault itself, where it comes some time after the injection
	KubeletStarted     = "KubeletStarted" // started again as part of the fault
	KubeletStopped     = "KubeletStopped" // stopped, frozen or paused as part of the fault
	CSRCreated         = "CSRCreated"
	CSRApproved        = "CSRApproved"
	CSRDenied          = "CSRDenied"
	CSRIssued          = "CSRIssued"
	CSRRepeated        = "CSRRepeated"        // subject: the number of the request, from 2
	CertificateRotated = "CertificateRotated" // a new certificate stored by the kubelet
	CertificateInUse   = "CertificateInUse"   // the first request that it authenticated
	CertificateExpired = "CertificateExpired" // NotAfter of the one in use
	LeaseStalled       = "LeaseStalled"       // its time is the last successful renewal
	FirstRefused401    = "FirstRefused401"
	FirstRefused403    = "FirstRefused403"
	ReadyUnknown       = "ReadyUnknown"
	ReadyFalse         = "ReadyFalse"
	PodsUnready        = "PodsUnready" // the last pod of the node
	NoScheduleTainted  = "NoScheduleTainted"
	NoExecuteTainted   = "NoExecuteTainted"
	NotReadyTainted    = "NotReadyTainted"   // node.kubernetes.io/not-ready; subject: the effect
	PodEvicted         = "PodEvicted"        // subject: the toleration
	ReplacementReady   = "ReplacementReady"  // subject: the toleration
	KubeletExited      = "KubeletExited"     // by itself; systemd starts it again
	RenewalLate        = "RenewalLate"       // an accepted renewal after a longer gap than a healthy kubelet makes
	ControllerStopped  = "ControllerStopped" // the container of kube-controller-manager ended
	ControllerLeads    = "ControllerLeads"   // another kube-controller-manager has taken the lead
	FaultReleased      = "FaultReleased"     // taken back, the node left to itself
	FaultUndone        = "FaultUndone"
	RepairDone         = "RepairDone" // the kubelet was started with a good certificate
	LeaseResumed       = "LeaseResumed"
	ReadyTrue          = "ReadyTrue"
	TaintsGone         = "TaintsGone"
	PodsBack           = "PodsBack"
)

// Again is the subject of a NoExecute taint that was taken back and set once more.
const Again = "again"

// A Part is one of the three of a chain.
type Part string

// Parts of a chain.
const (
	Loss    Part = "loss"
	Repair  Part = "repair"   // what the run itself does
	WayBack Part = "way back" // waited for after the undo, unless the node heals by itself
)

// A Subject tells apart milestones of one name on one node.
type Subject string

// Subjects of milestones.
const (
	NoSubject    Subject = ""
	TolerationOf Subject = "toleration" // of the canary, such as "300s"
	NumberOf     Subject = "number"     // of the request, from 2
	EffectOf     Subject = "effect"     // of the taint
	RepeatOf     Subject = "again, or none"
)

// A Row is what there is to know of a milestone before anything has happened.
type Row struct {
	Name    string
	Part    Part
	Subject Subject
	// Lane is where it belongs in a picture: "fault", "controller", "kubelet", "requests",
	// "certificate", "lease", "ready", "taints" or "pods".
	Lane string
	// Sources are those that show it, by the object of their gaps; none where the run itself
	// does it.
	Sources []string
	// Needs are milestones of which one must be recorded before this one can be.
	Needs []string
	// Write says that it is a write that others learn of through a watch: what counts from
	// it may come a moment before the audit log's stamp of it.
	Write bool
	// ownClock says that it is timed by its kubelet alone, and not by a watch of a write.
	ownClock bool
	window   func(*Fold, Key) Window
}

// Sources of milestones.
var (
	byAudit  = []string{timeline.SourceAudit}
	byCSRs   = []string{timeline.SourceAudit, "certificatesigningrequests"}
	byLeases = []string{timeline.SourceAudit, "leases"}
	byNodes  = []string{timeline.SourceAudit, "nodes"}
	byWrites = []string{timeline.SourceAudit, "pods"}
	byPods   = []string{"pods"}
	byNode   = []string{"kubelet"} // the shell that watches files and process of a node
)

// Chain is all milestones in the order of the chain: what each is, and the function of its
// window. docs/windows.md is printed from it. It is a function because a variable could not be
// initialized: windows ask for other windows, through this table.
func Chain() []Row {
	return []Row{
		{Name: FaultInjected, Part: Loss, Lane: "fault", window: (*Fold).sinceInjection},
		{Name: KubeletStarted, Part: Loss, Lane: "kubelet", window: (*Fold).sinceInjection},
		{Name: KubeletStopped, Part: Loss, Lane: "kubelet", window: (*Fold).sinceInjection},
		{Name: FaultStruck, Part: Loss, Lane: "fault", window: (*Fold).sinceInjection},
		{Name: ControllerStopped, Part: Loss, Lane: "controller", window: (*Fold).sinceInjection},
		{Name: CSRCreated, Part: Loss, Lane: "requests", Sources: byCSRs, Write: true, window: (*Fold).csrCreated},
		{Name: CSRApproved, Part: Loss, Lane: "requests", Sources: byCSRs, Write: true, window: (*Fold).csrApproved},
		{Name: CSRDenied, Part: Loss, Lane: "requests", Sources: byCSRs, window: (*Fold).csrDenied},
		{Name: CSRIssued, Part: Loss, Lane: "requests", Sources: byCSRs, Write: true, window: (*Fold).csrIssued},
		{Name: CSRRepeated, Part: Loss, Lane: "requests", Subject: NumberOf, Sources: byCSRs, Needs: []string{CSRCreated}, ownClock: true, window: (*Fold).csrRepeated},
		{Name: CertificateRotated, Part: WayBack, Lane: "certificate", Sources: byNode, window: (*Fold).certificateRotated},
		{Name: CertificateInUse, Part: Loss, Lane: "certificate", Sources: byAudit, Needs: []string{CertificateRotated}, window: (*Fold).certificateInUse},
		{Name: CertificateExpired, Part: Loss, Lane: "certificate", Sources: byNode, window: (*Fold).certificateExpired},
		{Name: LeaseStalled, Part: Loss, Lane: "lease", Sources: byLeases, Write: true, window: (*Fold).leaseStalled},
		{Name: RenewalLate, Part: Loss, Lane: "lease", Sources: byAudit, window: (*Fold).sinceInjection},
		{Name: FirstRefused401, Part: Loss, Lane: "lease", Sources: byAudit, window: (*Fold).firstRefused401},
		{Name: FirstRefused403, Part: Loss, Lane: "lease", Sources: byAudit, window: (*Fold).firstRefused403},
		{Name: FaultReleased, Part: Loss, Lane: "fault", window: (*Fold).sinceInjection},
		{Name: ControllerLeads, Part: Loss, Lane: "controller", Sources: byAudit, window: (*Fold).controllerLeads},
		{Name: ReadyUnknown, Part: Loss, Lane: "ready", Sources: byNodes, Write: true, window: (*Fold).readyUnknown},
		{Name: ReadyFalse, Part: Loss, Lane: "ready", Sources: byNodes, Write: true, window: (*Fold).readyFalse},
		{Name: PodsUnready, Part: Loss, Lane: "pods", Sources: byWrites, Needs: []string{ReadyUnknown}, window: (*Fold).podsUnready},
		{Name: NoScheduleTainted, Part: Loss, Lane: "taints", Sources: byNodes, window: (*Fold).noScheduleTainted},
		{Name: NoExecuteTainted, Part: Loss, Lane: "taints", Subject: RepeatOf, Sources: byNodes, Write: true, window: (*Fold).noExecuteTainted},
		{Name: NotReadyTainted, Part: Loss, Lane: "taints", Subject: EffectOf, Sources: byNodes, Write: true, window: (*Fold).notReadyTainted},
		{Name: PodEvicted, Part: Loss, Lane: "pods", Subject: TolerationOf, Sources: byWrites, window: (*Fold).podEvicted},
		{Name: ReplacementReady, Part: Loss, Lane: "pods", Subject: TolerationOf, Sources: byPods, Needs: []string{PodEvicted}, window: (*Fold).replacementReady},
		{Name: KubeletExited, Part: Loss, Lane: "kubelet", Sources: byNode, ownClock: true, window: (*Fold).kubeletExited},
		{Name: FaultUndone, Part: Repair, Lane: "fault", window: (*Fold).sinceInjection},
		{Name: RepairDone, Part: Repair, Lane: "fault", window: (*Fold).repairDone},
		{Name: LeaseResumed, Part: WayBack, Lane: "lease", Sources: byLeases, Needs: []string{LeaseStalled}, window: (*Fold).leaseResumed},
		{Name: ReadyTrue, Part: WayBack, Lane: "ready", Sources: byNodes, Needs: []string{ReadyUnknown}, Write: true, window: (*Fold).readyTrue},
		{Name: TaintsGone, Part: WayBack, Lane: "taints", Sources: byNodes, Needs: []string{NoScheduleTainted, NotReadyTainted}, window: (*Fold).taintsGone},
		{Name: PodsBack, Part: WayBack, Lane: "pods", Sources: byPods, Needs: []string{ReadyTrue}, window: (*Fold).podsBackAgain},
	}
}

// Names lists all milestones in the order of the chain.
func Names() []string {
	var names []string
	for _, r := range Chain() {
		names = append(names, r.Name)
	}
	return names
}

// RowOf looks up a milestone; the zero row is none.
func RowOf(name string) Row {
	rows := Chain()
	if i := slices.IndexFunc(rows, func(r Row) bool { return r.Name == name }); i >= 0 {
		return rows[i]
	}
	return Row{}
}
