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
	r = shown(r)
	var b strings.Builder
	w := benchfmt.NewWriter(&b)
	config := []benchfmt.Config{}
	add := func(key, value string) {
		if value != "" {
			config = append(config, benchfmt.Config{Key: key, Value: []byte(value), File: true})
		}
	}
	own := []string{"experiment", "profile", "outcome", "kubernetes"} // no flag takes the place of these
	for i, value := range []string{r.Experiment, r.Profile, string(r.Outcome), r.KubernetesVersion} {
		add(own[i], value)
	}
	for _, component := range slices.Sorted(maps.Keys(r.Flags)) {
		for _, name := range slices.Sorted(maps.Keys(r.Flags[component])) {
			key := kebab(name)
			if slices.Contains(own, key) {
				key = kebab(component) + "-" + key
			}
			add(key, r.Flags[component][name].Value)
		}
	}
	for _, m := range r.Milestones {
		if m.Seconds == nil || m.After == nil || !slices.Contains(r.Target, m.Node) {
			continue
		}
		name := fmt.Sprintf("%s/phase=%s", word(camel(r.Experiment)), word(m.Name))
		if m.Subject != "" {
			name += "/toleration=" + word(m.Subject)
		}
		if len(r.Target) > 1 {
			name += "/node=" + word(short(m.Node, r.Cluster))
		}
		rec := &benchfmt.Result{Config: config, Name: benchfmt.Name(name), Iters: 1, Values: []benchfmt.Value{
			{Value: *m.Seconds, Unit: "sec/op"}, {Value: m.After.Seconds, Unit: "sec-window/op"}}}
		if err := w.Write(rec); err != nil {
			return fmt.Errorf("writing benchmarks: %w", err)
		}
	}
	_, err := io.WriteString(out, guard(b.String()))
	return err
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

// kebab makes a benchmark key of a flag or a field, or of anything else: lowercase letters,
// digits and dashes, a letter first. nodeLeaseDurationSeconds is node-lease-duration-seconds.
func kebab(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r >= 'A' && r <= 'Z':
			if i > 0 {
				b.WriteByte('-')
			}
			b.WriteRune(unicode.ToLower(r))
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		default:
			b.WriteByte('-')
		}
	}
	if key := b.String(); key != "" && key[0] >= 'a' && key[0] <= 'z' {
		return key
	}
	return "flag-" + b.String()
}
