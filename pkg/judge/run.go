package judge

import (
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// APIVersion is the version of Run as it is written to run.json.
const APIVersion = "flatline.dev/v1alpha1"

// A Run is the judged record of one run: run.json. It holds nothing that cannot
// be derived from the timeline. Seconds are seconds; times in milestones count
// from the injection.
type Run struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	RunID      string  `json:"runID"`
	Experiment string  `json:"experiment"`
	Profile    string  `json:"profile"`
	Outcome    Outcome `json:"outcome"`
	// Wanted is the outcome that the experiment is to come to; empty means pass.
	Wanted            Outcome                    `json:"wanted,omitempty"`
	Reasons           []string                   `json:"reasons,omitempty"`
	KubernetesVersion string                     `json:"kubernetesVersion"`
	NodeImage         string                     `json:"nodeImage"`
	NodeImageID       string                     `json:"nodeImageID,omitempty"` // of its content
	Engine            *Engine                    `json:"engine,omitempty"`
	Cluster           string                     `json:"cluster"`
	Flags             map[string]map[string]Flag `json:"flags"`
	Target            []string                   `json:"target"`
	ControlNodes      []string                   `json:"controlNodes"`
	ControlChanges    []string                   `json:"controlChanges"`
	InjectedAt        *time.Time                 `json:"injectedAt,omitempty"`
	Bitten            *Sight                     `json:"bitten,omitempty"` // null where nobody saw that
	Milestones        []Result                   `json:"milestones"`
	Heartbeats        []Heartbeat                `json:"heartbeats"`
	Pace              *Pace                      `json:"pace,omitempty"` // null where nothing was measured
	Kubelets          []Kubelet                  `json:"kubelets"`       // of the targets
	Differences       []Difference               `json:"differences"`
	Warnings          []string                   `json:"warnings"`
	Gaps              []Gap                      `json:"gaps"`
	Cost              Cost                       `json:"cost"`
}

// A Sight is the first time that the fault was seen biting, and in whose words.
type Sight struct {
	Seconds float64 `json:"seconds"`
	Seen    string  `json:"seen"`
}

// A Result is one milestone with its window and verdict. Seconds is null for a
// milestone that was expected and not reached: that is censored, not a number.
type Result struct {
	Name     string             `json:"name"`
	Node     string             `json:"node"`
	Subject  string             `json:"subject,omitempty"`
	Seconds  *float64           `json:"seconds"`
	After    *After             `json:"after,omitempty"`
	Window   *Window            `json:"window,omitempty"`
	Limit    *Limit             `json:"limit,omitempty"`
	Source   string             `json:"source,omitempty"`
	Seen     map[string]float64 `json:"seen,omitempty"`
	Expected bool               `json:"expected,omitempty"`
	Never    bool               `json:"never,omitempty"`
	Verdict  Verdict            `json:"verdict,omitempty"`
	Note     string             `json:"note,omitempty"`
	// Evidence is the fact that shows it, as it stands in the timeline.
	Evidence *timeline.Event `json:"evidence,omitempty"`
}

// After says from which milestone a window counts, and how long it took from
// there.
type After struct {
	Name    string  `json:"name"`
	Subject string  `json:"subject,omitempty"` // where it is not that of the milestone itself
	Seconds float64 `json:"seconds"`
}

// after counts from a milestone to another one.
func after(from Key, of Key) *After {
	a := &After{Name: from.Name, Subject: from.Subject}
	if a.Subject == of.Subject {
		a.Subject = ""
	}
	return a
}

// A Limit is a user's own bound beside the derived window.
type Limit struct {
	Min float64 `json:"min,omitempty"`
	Max float64 `json:"max,omitempty"`
	Why string  `json:"why,omitempty"`
}

// A Heartbeat sums up the accepted Lease renewals of one node while its kubelet
// was not meddled with: up to the injection on a target, to the end of the
// observation on every other node. Gap is between two renewals, in seconds; Bytes is the size of
// the renewed object in the form of the audit log (JSON).
type Heartbeat struct {
	Node        string         `json:"node"`
	Renewals    int            `json:"renewals"`
	GapMin      float64        `json:"gapMin"`
	GapMedian   float64        `json:"gapMedian"`
	GapMax      float64        `json:"gapMax"`
	Verbs       map[string]int `json:"verbs"`
	BytesMedian int            `json:"bytesMedian"`
	// Status sums up the kubelet's status reports in the same time, the other
	// heartbeat.
	Status Reports `json:"status"`
}

// Reports sums up accepted requests of one kind.
type Reports struct {
	Count       int            `json:"count"`
	GapMedian   float64        `json:"gapMedian"`
	Verbs       map[string]int `json:"verbs"`
	BytesMedian int            `json:"bytesMedian"`
}

// A Difference says how much later the watch saw a milestone than the audit log.
type Difference struct {
	Milestone string  `json:"milestone"`
	Node      string  `json:"node"`
	Subject   string  `json:"subject,omitempty"`
	Seconds   float64 `json:"seconds"`
}

// A Gap is a time in which a source may have missed changes, in seconds since the
// start of the timeline. To is null while it was never closed.
type Gap struct {
	Source string   `json:"source"`
	From   float64  `json:"from"`
	To     *float64 `json:"to"`
	Why    string   `json:"why"`
}

// Cost is what the run took. The phases sum to the wall time; overhead is wall -
// create - delete - (injection to the last expected recovery): the tool's own.
type Cost struct {
	WallSeconds        float64            `json:"wallSeconds"`
	OverheadSeconds    float64            `json:"overheadSeconds"`
	Phases             map[string]float64 `json:"phases"`
	ObserveSeconds     float64            `json:"observeSeconds"`
	APIRequests        int                `json:"apiRequests"`
	ObserverCPUSeconds float64            `json:"observerCPUSeconds"`
}

func limit(x Expectation) *Limit {
	if x.Min == 0 && x.Max == 0 {
		return nil
	}
	return &Limit{Min: time.Duration(x.Min).Seconds(), Max: time.Duration(x.Max).Seconds(), Why: x.Why}
}
