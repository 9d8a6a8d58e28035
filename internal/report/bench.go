package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/perf/benchfmt"

	"github.com/flatline-chaos/flatline/pkg/judge"
)

// Bench writes the milestones in the Go benchmark format, with every effective
// flag as a key, so that benchstat compares runs: benchstat -col
// node-monitor-grace-period a.txt b.txt.
//
// The unit sec/op is the time since the injection, sec-window/op the time since
// the milestone from which the window counts.
func Bench(out io.Writer, r *judge.Run) error {
	w := benchfmt.NewWriter(out)
	config := []benchfmt.Config{}
	add := func(key, value string) {
		if value != "" {
			config = append(config, benchfmt.Config{Key: key, Value: []byte(value), File: true})
		}
	}
	add("experiment", r.Experiment)
	add("profile", r.Profile)
	add("outcome", string(r.Outcome))
	add("kubernetes", r.KubernetesVersion)
	for _, component := range slices.Sorted(maps.Keys(r.Flags)) {
		for _, name := range slices.Sorted(maps.Keys(r.Flags[component])) {
			add(kebab(name), r.Flags[component][name].Value)
		}
	}
	for _, m := range r.Milestones {
		if m.Seconds == nil || m.After == nil || !slices.Contains(r.Target, m.Node) {
			continue
		}
		name := fmt.Sprintf("%s/phase=%s", camel(r.Experiment), m.Name)
		if m.Subject != "" {
			name += "/toleration=" + m.Subject
		}
		if len(r.Target) > 1 {
			name += "/node=" + short(m.Node, r.Cluster)
		}
		rec := &benchfmt.Result{Config: config, Name: benchfmt.Name(name), Iters: 1, Values: []benchfmt.Value{
			{Value: *m.Seconds, Unit: "sec/op"}, {Value: m.After.Seconds, Unit: "sec-window/op"}}}
		if err := w.Write(rec); err != nil {
			return fmt.Errorf("writing benchmarks: %w", err)
		}
	}
	return nil
}

// camel makes a benchmark name of an experiment's: csr-denied is CsrDenied.
func camel(s string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(s, "-") {
		if part != "" {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return b.String()
}

// kebab makes a benchmark key, which has no capitals, of a flag or a field:
// nodeLeaseDurationSeconds is node-lease-duration-seconds.
func kebab(s string) string {
	var b strings.Builder
	for i, r := range s {
		if unicode.IsUpper(r) {
			if i > 0 {
				b.WriteByte('-')
			}
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return strings.ReplaceAll(b.String(), ".", "-")
}
