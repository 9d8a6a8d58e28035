package judge

import (
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Claim is a moment that the reference document gives for a step of the chain,
// under Kubernetes' own timers.
type Claim struct {
	ID      string  `json:"id"`
	Seconds float64 `json:"seconds"` // after the milestone from which the step's window counts
	Said    string  `json:"said"`
}

// ClaimsOn are the claims about the time of a milestone. They are about defaults:
// a run with other timers can neither confirm nor refute them.
func ClaimsOn(r Result) []Claim {
	switch r.Name {
	case LeaseStalled:
		return []Claim{{"C10", 10, "renewal stops within 10 s after the certificate has become invalid"}}
	case ReadyUnknown:
		return []Claim{{"C11", 40, "Ready=Unknown after about 40 s without renewal"}}
	case PodEvicted:
		if r.Subject == "300s" {
			return []Claim{{"C15", 300, "eviction starts 5 minutes after the node became NotReady"}}
		}
	}
	return nil
}

// Verdicts on a claim.
const (
	Confirmed = "confirmed"
	Refuted   = "refuted"
	Depends   = "depends"
	Open      = "open" // no run on record answers it
)

// An Answer is what runs say of one statement of the reference document.
type Answer struct {
	ID, Said string
	Verdict  string
	Measured string
	Runs     []string // by which, newest last
}

// Answers holds the document's statements against runs. Statements about defaults
// are answered by runs of the default profile alone, and by runs that passed.
func Answers(runs []*Run) []Answer {
	var answers []Answer
	for _, s := range statements() {
		a := Answer{ID: s.id, Said: s.said, Verdict: Open}
		var fit []*Run
		for _, r := range runs {
			if r.Outcome == OutcomePass && (ownTimers(r) || !s.defaults) && (len(s.by) == 0 || slices.ContainsFunc(s.by, func(by string) bool { ok, _ := path.Match(by, r.Experiment); return ok })) {
				fit = append(fit, r)
			}
		}
		if verdict, measured := s.answer(fit); len(fit) > 0 && verdict != "" {
			a.Verdict, a.Measured = verdict, measured
			for _, r := range fit {
				a.Runs = append(a.Runs, r.RunID)
			}
		}
		answers = append(answers, a)
	}
	return answers
}

// A statement is one claim and how runs answer it.
type statement struct {
	id, said string
	defaults bool     // it is about defaults
	by       []string // experiments, or patterns of path.Match; empty takes all
	answer   func(runs []*Run) (verdict, measured string)
}

func statements() []statement {
	csrDenied := []string{"csr-denied"}
	return []statement{
		{"C01", "each node has a Lease of its own name beside its status", false, nil, func(rs []*Run) (string, string) {
			nodes := 0
			for _, r := range rs {
				for _, h := range r.Heartbeats {
					nodes += min(1, h.Renewals)
				}
			}
			return Confirmed, fmt.Sprintf("%d nodes of %d runs renewed a Lease of their own name", nodes, len(rs))
		}},
		{"C02", "the Lease is renewed every 10 s by default", true, nil, func(rs []*Run) (string, string) {
			gaps := perHeartbeat(rs, func(h Heartbeat) (float64, bool) { return h.GapMedian, h.GapMedian > 0 })
			return about(gaps, 10, 1, "s between renewals, median of each node")
		}},
		{"C03", "the renewal is a PATCH of spec.renewTime", false, nil, func(rs []*Run) (string, string) {
			verbs := map[string]int{}
			for _, r := range rs {
				for _, h := range r.Heartbeats {
					for v, n := range h.Verbs {
						verbs[v] += n
					}
				}
			}
			return isOnly(verbs, "patch"), tally(verbs) + ", the whole object each"
		}},
		{"C04", "past leaseDurationSeconds, 40, the heartbeat counts as lost", false, []string{"csr-denied", "kubelet-stopped"}, func(rs []*Run) (string, string) {
			s := took(defaults(rs, csrDenied...), ReadyUnknown)
			if len(s) == 0 {
				return "", ""
			}
			grace := defaults(rs, csrDenied...)[0].Flags["kube-controller-manager"]["node-monitor-grace-period"].Value
			measured := fmt.Sprintf("Ready=Unknown %s s after the last renewal with D = 40 s and a grace of %s: the grace counts", spreadOf(s), grace)
			if more := turned(rs, "kubelet", "nodeLeaseDurationSeconds"); more != "" {
				measured += "; " + more
			}
			return Refuted, measured
		}},
		{"C05", "a node's Lease carries acquireTime and leaseTransitions", false, nil, unanswered},
		{"C06", "the node's status is written by PUT", false, nil, func(rs []*Run) (string, string) {
			verbs := map[string]int{}
			for _, r := range rs {
				for _, h := range r.Heartbeats {
					for v, n := range h.Status.Verbs {
						verbs[v] += n
					}
				}
			}
			if len(verbs) == 0 {
				return "", ""
			}
			return isOnly(verbs, "update"), tally(verbs) + " by kubelets"
		}},
		{"C07", "the node's status goes out every 60 s, --node-status-update-frequency is 60 s", false, []string{"control", "control-long", "csr-denied", "kubelet-stopped"}, func(rs []*Run) (string, string) {
			by := defaults(rs, "control", "control-long", "csr-denied")
			if len(by) == 0 {
				return "", ""
			}
			gaps := perHeartbeat(by, func(h Heartbeat) (float64, bool) { return h.Status.GapMedian, h.Status.Count > 2 })
			flag := by[0].Flags["kubelet"]
			flags := fmt.Sprintf("nodeStatusUpdateFrequency %s, nodeStatusReportFrequency %s", flag["nodeStatusUpdateFrequency"].Value, flag["nodeStatusReportFrequency"].Value)
			if more := turned(rs, "kubelet", "nodeStatusUpdateFrequency"); more != "" {
				flags += "; " + more
			}
			if len(gaps) == 0 {
				return Refuted, flags
			}
			verdict, measured := about(gaps, 60, 5, "s between reports, median of each node")
			return verdict, measured + "; " + flags
		}},
		{"C08", "a status report is much larger than a renewal", false, nil, func(rs []*Run) (string, string) {
			ratio := perHeartbeat(rs, func(h Heartbeat) (float64, bool) {
				return float64(h.Status.BytesMedian) / float64(max(1, h.BytesMedian)), h.Status.BytesMedian > 0 && h.BytesMedian > 0
			})
			if len(ratio) == 0 {
				return "", ""
			}
			verdict := Refuted
			if slices.Min(ratio) > 3 {
				verdict = Confirmed
			} else if slices.Max(ratio) > 3 {
				verdict = Depends
			}
			return verdict, "request of a report by that of a renewal, as JSON: " + spreadOf(ratio)
		}},
		{"C09", "with a failed rotation the API server refuses with 401 or 403", false, csrDenied, func(rs []*Run) (string, string) {
			first, then := took(rs, FirstRefused401), took(rs, FirstRefused403)
			if len(first) == 0 || len(then) == 0 {
				return "", ""
			}
			return Confirmed, fmt.Sprintf("one 401 %s s after the end of the certificate, then 403 %s s later", spreadOf(first), spreadOf(then))
		}},
		{"C10", "renewal stops within 10 s after the certificate has become invalid", true, csrDenied, func(rs []*Run) (string, string) {
			stall, refused := took(rs, LeaseStalled), took(rs, FirstRefused401)
			if len(stall) == 0 || len(refused) == 0 {
				return "", ""
			}
			return Confirmed, fmt.Sprintf("the last renewal %s s from its end, the first refusal %s s after it", spreadOf(stall), spreadOf(refused))
		}},
		{"C11", "Ready=Unknown after about 40 s without renewal", true, csrDenied, func(rs []*Run) (string, string) {
			return about(took(rs, ReadyUnknown), 40, 5, "s after the last renewal")
		}},
		{"C12", "the node controller watches Lease and NodeStatus together", false, nil, unanswered},
		{"C13", "after about 60 s NodeStatus fails too and the controller confirms the loss", true, nil, unanswered},
		{"C14", "after about 65 s Ready becomes False", true, csrDenied, func(rs []*Run) (string, string) {
			for _, r := range rs {
				for _, m := range r.Milestones {
					if m.Name == ReadyFalse && m.Seconds != nil && slices.Contains(r.Target, m.Node) {
						return Depends, "Ready=False was seen in " + r.RunID
					}
				}
			}
			return Refuted, "Ready=False never, Ready=Unknown " + spreadOf(took(rs, ReadyUnknown)) + " s after the last renewal: False is the kubelet's word"
		}},
		{"C15", "eviction starts 5 minutes after the node became NotReady", true, csrDenied, func(rs []*Run) (string, string) {
			var s []float64
			for _, r := range rs {
				for _, m := range r.Milestones {
					if m.Name == PodEvicted && m.Subject == "300s" && m.After != nil {
						s = append(s, m.After.Seconds)
					}
				}
			}
			return about(s, 300, 2, "s after the NoExecute taint, for a pod with the default toleration")
		}},
		{"C16", "a rotation that works: the request before the end, a new certificate loaded by itself, heartbeats go on", false, []string{"rotation"}, func(rs []*Run) (string, string) {
			return Confirmed, "new certificate in use " + spreadOf(took(rs, CertificateInUse)) + " s after it was stored, no renewal late"
		}},
		{"C17", "rotation fails when the request is refused (RBAC)", false, []string{"csr-denied", "csr-refused"}, func(rs []*Run) (string, string) {
			return Confirmed, fmt.Sprintf("%d runs: never issued, and the certificate ran out", len(rs))
		}},
		{"C18", "rotation fails when the signer is unavailable", false, []string{"signer-off", "kcm-stopped"}, func(rs []*Run) (string, string) {
			return Confirmed, fmt.Sprintf("%d runs: not issued while it was away; a late certificate healed the node without a restart", len(rs))
		}},
		{"C19", "rotation fails when the new certificate comes too late", false, []string{"csr-late-before", "csr-late-after", "csr-late-never"}, func(rs []*Run) (string, string) {
			did := map[string]bool{}
			for _, r := range rs {
				did[r.Experiment] = true
			}
			var parts []string
			for _, e := range []struct{ name, text string }{{"csr-late-before", "before the end nobody notices"}, {"csr-late-after", "after it the node heals by itself"}, {"csr-late-never", "ten minutes after the request it does not heal any more"}} {
				if did[e.name] {
					parts = append(parts, e.text)
				}
			}
			return Depends, strings.Join(parts, "; ")
		}},
		{"C20", "rotation fails when the kubelet cannot load the new certificate", false, []string{"cert-*"}, func(rs []*Run) (string, string) {
			did := map[string]map[string]bool{}
			for _, r := range rs {
				for _, k := range r.Kubelets {
					what := "cannot ask for the next one, or is refused it"
					switch {
					case slices.ContainsFunc(k.States, func(s KubeletState) bool { return s.State == StateCrashLooping }):
						what = "cannot start"
					case k.Requests.Issued > k.Requests.Stored:
						what = "is issued certificates and stores none"
					case k.Exit == "":
						what = "runs and is refused"
					}
					if did[what] == nil {
						did[what] = map[string]bool{}
					}
					did[what][r.Experiment] = true
				}
			}
			var parts []string
			for _, what := range slices.Sorted(maps.Keys(did)) {
				parts = append(parts, fmt.Sprintf("%s (%d ways)", what, len(did[what])))
			}
			return Confirmed, "but not before a restart or a rotation: the kubelet " + strings.Join(parts, ", ")
		}},
		{"C21", "once the certificate is invalid every request fails, Lease and NodeStatus at the same time", false, nil, unanswered},
	}
}

// unanswered is for a statement that no rule answers yet.
func unanswered([]*Run) (verdict, measured string) { return "", "" }

// defaults are the runs of some experiments under Kubernetes' own timers.
func defaults(runs []*Run, experiments ...string) []*Run {
	var fit []*Run
	for _, r := range runs {
		if ownTimers(r) && slices.Contains(experiments, r.Experiment) {
			fit = append(fit, r)
		}
	}
	return fit
}

// ownTimers says whether a run went by Kubernetes' own timers: its profile is the default
// one, and nothing else was set.
func ownTimers(r *Run) bool {
	kubelet, controller := r.Flags["kubelet"], r.Flags["kube-controller-manager"]
	return r.Profile == "default" && kubelet["nodeLeaseDurationSeconds"].Value == "40" && SameValue(kubelet["nodeStatusUpdateFrequency"].Value, "10s") &&
		SameValue(controller["node-monitor-period"].Value, "5s") && slices.Contains([]string{"50s", "40s"}, controller["node-monitor-grace-period"].Value)
}

// turned says what becomes of detection where one flag alone is another: the most runs
// that are the same but for it are taken. A flag that moves with it may differ too.
func turned(runs []*Run, component, name string) string {
	const follower = "nodeStatusReportFrequency" // of nodeStatusUpdateFrequency
	sets := map[string]map[string][]*Run{}
	for _, r := range runs {
		rest := maps.Clone(r.Flags)
		for _, c := range []string{component, "kubelet"} {
			rest[c] = maps.Clone(r.Flags[c])
		}
		value := rest[component][name].Value
		delete(rest[component], name)
		delete(rest["kubelet"], follower)
		maps.DeleteFunc(rest, func(component string, _ map[string]Flag) bool { return strings.Contains(component, "/") })
		key := fmt.Sprint(r.Experiment, r.Profile, rest) // maps are printed in order
		if sets[key] == nil {
			sets[key] = map[string][]*Run{}
		}
		sets[key][value] = append(sets[key][value], r)
	}
	var best map[string][]*Run
	size := 0
	for _, key := range slices.Sorted(maps.Keys(sets)) {
		n := 0
		for _, rs := range sets[key] {
			n += len(rs)
		}
		if len(sets[key]) > 1 && n > size {
			best, size = sets[key], n
		}
	}
	var parts []string
	for _, value := range slices.Sorted(maps.Keys(best)) {
		if s := took(best[value], ReadyUnknown); len(s) > 0 {
			parts = append(parts, fmt.Sprintf("%s s with %s %s (median of %d)", strconv.FormatFloat(round2(middle(s)), 'f', -1, 64), name, value, len(s)))
		}
	}
	if len(parts) < 2 {
		return ""
	}
	grace := ""
	for _, rs := range best {
		grace = rs[0].Flags["kube-controller-manager"]["node-monitor-grace-period"].Value
	}
	return "with a grace of " + grace + ", Ready=Unknown after the last renewal: " + strings.Join(parts, ", ")
}

// took collects how long a milestone of the targets took from its cause.
func took(runs []*Run, name string) []float64 {
	var s []float64
	for _, r := range runs {
		for _, m := range r.Milestones {
			if m.Name == name && m.Seconds != nil && m.After != nil && slices.Contains(r.Target, m.Node) {
				s = append(s, m.After.Seconds)
			}
		}
	}
	return s
}

func perHeartbeat(runs []*Run, value func(Heartbeat) (float64, bool)) []float64 {
	var s []float64
	for _, r := range runs {
		for _, h := range r.Heartbeats {
			if v, ok := value(h); ok {
				s = append(s, v)
			}
		}
	}
	return s
}

// about confirms a number if every value is within a tolerance of it.
func about(values []float64, want, tolerance float64, what string) (verdict, measured string) {
	if len(values) == 0 {
		return "", ""
	}
	verdict = Confirmed
	for _, v := range values {
		if math.Abs(v-want) > tolerance {
			verdict = Refuted
		}
	}
	return verdict, spreadOf(values) + " " + what
}

// spreadOf writes least and most of some values.
func spreadOf(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	number := func(v float64) string { return strconv.FormatFloat(round2(v), 'f', -1, 64) }
	lo, hi := number(slices.Min(values)), number(slices.Max(values))
	if lo == hi {
		return lo
	}
	return lo + " to " + hi
}

func isOnly(verbs map[string]int, want string) string {
	switch {
	case len(verbs) == 1 && verbs[want] > 0:
		return Confirmed
	case verbs[want] > 0:
		return Depends
	}
	return Refuted
}

func tally(verbs map[string]int) string {
	var s []string
	for _, v := range slices.Sorted(maps.Keys(verbs)) {
		s = append(s, fmt.Sprintf("%d %s", verbs[v], v))
	}
	return strings.Join(s, ", ")
}
