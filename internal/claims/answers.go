package claims

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/flatline-chaos/flatline/pkg/judge"
)

func leasesOfOwnName(runs []*judge.Run) string {
	nodes := 0
	for _, r := range runs {
		for _, h := range r.Heartbeats {
			nodes += min(1, h.Renewals)
		}
	}
	return fmt.Sprintf("%d nodes of %d runs renewed a Lease of their own name", nodes, len(runs))
}

func renewalInterval(runs []*judge.Run) (verdict, measured string) {
	gaps := perHeartbeat(runs, func(h judge.Heartbeat) (float64, bool) { return h.GapMedian, h.GapMedian > 0 })
	return about(gaps, 10, 1, "s between renewals, median of each node")
}

func renewalVerbs(runs []*judge.Run) (verdict, measured string) {
	verbs := countVerbs(runs, func(h judge.Heartbeat) map[string]int { return h.Verbs })
	return isOnly(verbs, "patch"), tally(verbs) + ", the whole object each"
}

func whatEndsTheHeartbeat(runs []*judge.Run) string {
	own := withOwnTimers(runs, "csr-denied")
	s := took(own, judge.ReadyUnknown)
	if len(s) == 0 {
		return ""
	}
	measured := fmt.Sprintf("Ready=Unknown %s s after the last renewal with D = 40 s and a grace of %s: the grace counts",
		spreadOf(s), graceOf(own[0]))
	if more := oneFlagChanged(runs, "kubelet", "nodeLeaseDurationSeconds"); more != "" {
		measured += "; " + more
	}
	return measured
}

func statusVerbs(runs []*judge.Run) (verdict, measured string) {
	verbs := countVerbs(runs, func(h judge.Heartbeat) map[string]int { return h.Status.Verbs })
	if len(verbs) == 0 {
		return "", ""
	}
	return isOnly(verbs, "update"), tally(verbs) + " by kubelets"
}

func statusInterval(runs []*judge.Run) (verdict, measured string) {
	own := withOwnTimers(runs, "control", "control-long", "csr-denied")
	if len(own) == 0 {
		return "", ""
	}
	kubelet := own[0].Flags["kubelet"]
	flags := fmt.Sprintf("nodeStatusUpdateFrequency %s, nodeStatusReportFrequency %s",
		kubelet["nodeStatusUpdateFrequency"].Value, kubelet["nodeStatusReportFrequency"].Value)
	if more := oneFlagChanged(runs, "kubelet", "nodeStatusUpdateFrequency"); more != "" {
		flags += "; " + more
	}
	gaps := perHeartbeat(own, func(h judge.Heartbeat) (float64, bool) { return h.Status.GapMedian, h.Status.Count > 2 })
	if len(gaps) == 0 {
		return Refuted, flags
	}
	verdict, measured = about(gaps, 60, 5, "s between reports, median of each node")
	return verdict, measured + "; " + flags
}

// statusSize takes more than three times as large for much larger.
func statusSize(runs []*judge.Run) (verdict, measured string) {
	const much = 3
	ratio := perHeartbeat(runs, func(h judge.Heartbeat) (float64, bool) {
		return float64(h.Status.BytesMedian) / float64(max(1, h.BytesMedian)), h.Status.BytesMedian > 0 && h.BytesMedian > 0
	})
	if len(ratio) == 0 {
		return "", ""
	}
	verdict = Refuted
	if slices.Min(ratio) > much {
		verdict = Confirmed
	} else if slices.Max(ratio) > much {
		verdict = Depends
	}
	return verdict, "request of a report by that of a renewal, as JSON: " + spreadOf(ratio)
}

func refusals(runs []*judge.Run) string {
	first, then := took(runs, judge.FirstRefused401), took(runs, judge.FirstRefused403)
	if len(first) == 0 || len(then) == 0 {
		return ""
	}
	return fmt.Sprintf("one 401 %s s after the end of the certificate, then 403 %s s later", spreadOf(first), spreadOf(then))
}

func lastRenewal(runs []*judge.Run) string {
	stall, refused := took(runs, judge.LeaseStalled), took(runs, judge.FirstRefused401)
	if len(stall) == 0 || len(refused) == 0 {
		return ""
	}
	return fmt.Sprintf("the last renewal %s s from its end, the first refusal %s s after it", spreadOf(stall), spreadOf(refused))
}

func readyUnknown(runs []*judge.Run) (verdict, measured string) {
	return about(took(runs, judge.ReadyUnknown), 40, 5, "s after the last renewal")
}

func readyFalse(runs []*judge.Run) (verdict, measured string) {
	for _, r := range runs {
		for _, m := range r.Milestones {
			if m.Name == judge.ReadyFalse && m.Seconds != nil && slices.Contains(r.Target, m.Node) {
				return Depends, "Ready=False was seen in " + r.RunID
			}
		}
	}
	return Refuted, "Ready=False never, Ready=Unknown " + spreadOf(took(runs, judge.ReadyUnknown)) +
		" s after the last renewal: False is the kubelet's word"
}

func eviction(runs []*judge.Run) (verdict, measured string) {
	var s []float64
	for _, r := range runs {
		for _, m := range r.Milestones {
			if m.Name == judge.PodEvicted && m.Subject == "300s" && m.After != nil {
				s = append(s, m.After.Seconds)
			}
		}
	}
	return about(s, 300, 2, "s after the NoExecute taint, for a pod with the default toleration")
}

func newCertificate(runs []*judge.Run) string {
	return "new certificate in use " + spreadOf(took(runs, judge.CertificateInUse)) + " s after it was stored, no renewal late"
}

func lateCertificates(runs []*judge.Run) string {
	var parts []string
	for _, e := range []struct{ name, text string }{
		{"csr-late-before", "before the end nobody notices"},
		{"csr-late-after", "after it the node heals by itself"},
		{"csr-late-never", "ten minutes after the request it does not heal any more"},
	} {
		if slices.ContainsFunc(runs, func(r *judge.Run) bool { return r.Experiment == e.name }) {
			parts = append(parts, e.text)
		}
	}
	return strings.Join(parts, "; ")
}

// unusableCertificates counts by how many experiments a kubelet came to each end.
func unusableCertificates(runs []*judge.Run) string {
	ways := map[string]map[string]bool{}
	for _, r := range runs {
		for _, k := range r.Kubelets {
			end := endOf(k)
			if ways[end] == nil {
				ways[end] = map[string]bool{}
			}
			ways[end][r.Experiment] = true
		}
	}
	var parts []string
	for _, end := range slices.Sorted(maps.Keys(ways)) {
		parts = append(parts, fmt.Sprintf("%s (%d ways)", end, len(ways[end])))
	}
	return "but not before a restart or a rotation: the kubelet " + strings.Join(parts, ", ")
}

// endOf says what becomes of a kubelet whose certificate cannot be used.
func endOf(k judge.Kubelet) string {
	switch {
	case slices.ContainsFunc(k.States, func(s judge.KubeletState) bool { return s.State == judge.StateCrashLooping }):
		return "cannot start"
	case k.Requests.Issued > k.Requests.Stored:
		return "is issued certificates and stores none"
	case k.Exit == "":
		return "runs and is refused"
	}
	return "cannot ask for the next one, or is refused it"
}

// withOwnTimers returns the runs of some experiments under Kubernetes' own timers.
func withOwnTimers(runs []*judge.Run, experiments ...string) []*judge.Run {
	var fit []*judge.Run
	for _, r := range runs {
		if ownTimers(r) && slices.Contains(experiments, r.Experiment) {
			fit = append(fit, r)
		}
	}
	return fit
}

// ownTimers says whether a run had Kubernetes' own timers: its profile is the default one,
// and no timer was set. The grace was 40 s before Kubernetes 1.32 and is 50 s since.
func ownTimers(r *judge.Run) bool {
	kubelet, controller := r.Flags["kubelet"], r.Flags["kube-controller-manager"]
	return r.Profile == "default" && kubelet["nodeLeaseDurationSeconds"].Value == "40" &&
		judge.SameValue(kubelet["nodeStatusUpdateFrequency"].Value, "10s") &&
		judge.SameValue(controller["node-monitor-period"].Value, "5s") && slices.Contains([]string{"50s", "40s"}, graceOf(r))
}

// graceOf is the node-monitor-grace-period of a run.
func graceOf(r *judge.Run) string {
	return r.Flags["kube-controller-manager"]["node-monitor-grace-period"].Value
}

// oneFlagChanged says when Ready=Unknown came under each value of one flag, in runs that
// are the same but for it. Of several such sets it takes the one with the most runs. It
// returns "" if fewer than two values have a number.
func oneFlagChanged(runs []*judge.Run, component, name string) string {
	best := largest(byValue(runs, component, name))
	var parts []string
	for _, value := range slices.Sorted(maps.Keys(best)) {
		if s := took(best[value], judge.ReadyUnknown); len(s) > 0 {
			parts = append(parts, fmt.Sprintf("%s s with %s %s (median of %d)", number(upperMedian(s)), name, value, len(s)))
		}
	}
	if len(parts) < 2 {
		return ""
	}
	grace := ""
	for _, rs := range best { // the same in all of them
		grace = graceOf(rs[0])
	}
	return "with a grace of " + grace + ", Ready=Unknown after the last renewal: " + strings.Join(parts, ", ")
}

// byValue sorts runs by everything but one flag, and those that are the same by its value. A
// flag that follows this one may differ too. Flags of single nodes do not count.
func byValue(runs []*judge.Run, component, name string) map[string]map[string][]*judge.Run {
	const follower = "nodeStatusReportFrequency" // of nodeStatusUpdateFrequency
	sets := map[string]map[string][]*judge.Run{}
	for _, r := range runs {
		rest := maps.Clone(r.Flags)
		for _, c := range []string{component, "kubelet"} {
			rest[c] = maps.Clone(r.Flags[c])
		}
		value := rest[component][name].Value
		delete(rest[component], name)
		delete(rest["kubelet"], follower)
		maps.DeleteFunc(rest, func(component string, _ map[string]judge.Flag) bool { return strings.Contains(component, "/") })
		key := fmt.Sprint(r.Experiment, r.Profile, rest) // maps are printed in order
		if sets[key] == nil {
			sets[key] = map[string][]*judge.Run{}
		}
		sets[key][value] = append(sets[key][value], r)
	}
	return sets
}

// largest returns the set with the most runs among those that have several values, the first
// in order if two have as many.
func largest(sets map[string]map[string][]*judge.Run) map[string][]*judge.Run {
	var best map[string][]*judge.Run
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
	return best
}

// took collects how long a milestone of the targets took from its cause, in seconds.
func took(runs []*judge.Run, name string) []float64 {
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

// perHeartbeat collects a value of every node of every run that has it.
func perHeartbeat(runs []*judge.Run, value func(judge.Heartbeat) (float64, bool)) []float64 {
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

// countVerbs sums up with which verbs nodes wrote.
func countVerbs(runs []*judge.Run, of func(judge.Heartbeat) map[string]int) map[string]int {
	verbs := map[string]int{}
	for _, r := range runs {
		for _, h := range r.Heartbeats {
			for verb, n := range of(h) {
				verbs[verb] += n
			}
		}
	}
	return verbs
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

// spreadOf writes the least and the most of some values.
func spreadOf(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	lo, hi := number(slices.Min(values)), number(slices.Max(values))
	if lo == hi {
		return lo
	}
	return lo + " to " + hi
}

// number writes a value with at most two decimals, and zero without a sign.
func number(v float64) string { return strconv.FormatFloat(math.Round(v*1e2)/1e2+0, 'f', -1, 64) }

// upperMedian is one of the values, so that it can be found in the runs. There must be one.
func upperMedian(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// isOnly confirms that a verb is the only one.
func isOnly(verbs map[string]int, want string) string {
	switch {
	case len(verbs) == 1 && verbs[want] > 0:
		return Confirmed
	case verbs[want] > 0:
		return Depends
	}
	return Refuted
}

// tally writes how often each verb was used.
func tally(verbs map[string]int) string {
	var s []string
	for _, v := range slices.Sorted(maps.Keys(verbs)) {
		s = append(s, fmt.Sprintf("%d %s", verbs[v], v))
	}
	return strings.Join(s, ", ")
}
