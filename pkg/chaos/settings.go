package chaos

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// A Setting is a flag with the value that it is to have.
type Setting struct{ Component, Name, Value string }

// String is the form that ParseSettings reads: component.name=value, quoted if need be.
func (s Setting) String() string {
	if strings.ContainsAny(s.Value, `",`) {
		return s.Flag() + `="` + strings.ReplaceAll(s.Value, `"`, `""`) + `"`
	}
	return s.Flag() + "=" + s.Value
}

// Flag is component.name.
func (s Setting) Flag() string { return s.Component + "." + s.Name }

// ParseSettings reads component.name=value, or several values of one flag with commas
// between them. A value with commas stands in double quotes, and a quote inside of them is
// doubled. Its errors are *InvalidError.
func ParseSettings(text string) ([]Setting, error) {
	flag, values, ok := strings.Cut(text, "=")
	component, name, dot := strings.Cut(flag, ".")
	if !ok || !dot || component == "" || name == "" || values == "" {
		return nil, invalid("%q: want component.flag=value,value, such as kube-controller-manager.node-monitor-grace-period=8s,12s", text)
	}
	list, err := splitValues(values)
	if err != nil {
		return nil, invalid("%s: %v", flag, err)
	}
	quoted := strings.HasPrefix(strings.TrimSpace(values), `"`)
	if cluster.Known(component, name) && cluster.TakesList(component, name) && len(list) > 1 && !quoted {
		return nil, invalid(`%s: it takes a list, so quote each value: %s="%s" is one value, "A","B" are two`, flag, flag, values)
	}
	var all []Setting
	for _, value := range list {
		s := Setting{component, name, value}
		if err := s.check(); err != nil {
			return nil, err
		}
		for _, other := range all {
			if judge.SameValue(other.Value, s.Value) {
				return nil, invalid("%s: the value %s stands there twice", s.Flag(), s.Value)
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// splitValues splits values at the commas that are outside of quotes.
func splitValues(text string) ([]string, error) {
	var all []string
	for {
		text = strings.TrimSpace(text)
		inQuotes, quoted := strings.CutPrefix(text, `"`)
		if !quoted {
			value, rest, more := strings.Cut(text, ",")
			all = append(all, strings.TrimSpace(value))
			if !more {
				return all, nil
			}
			text = rest
			continue
		}
		var value strings.Builder
		for {
			part, rest, closed := strings.Cut(inQuotes, `"`)
			if !closed {
				return nil, errors.New("a quote is not closed")
			}
			value.WriteString(part)
			if inQuotes, quoted = strings.CutPrefix(rest, `"`); !quoted {
				text = strings.TrimSpace(rest)
				break
			}
			value.WriteByte('"')
		}
		all = append(all, value.String())
		if text == "" {
			return all, nil
		}
		rest, more := strings.CutPrefix(text, ",")
		if !more {
			return nil, fmt.Errorf("a comma belongs between values, not %q", text)
		}
		text = rest
	}
}

func (s Setting) check() error {
	if cluster.KnownFlags(s.Component) == nil {
		return invalid("%s: there is no component %q; %s", s, s.Component, nearest(s.Component, components))
	}
	if err := s.fits(); err != nil {
		return invalid("%s: %v", s.Flag(), err)
	}
	return nil
}

// fits checks name and value of a flag of a component that there is.
func (s Setting) fits() error {
	if !cluster.Known(s.Component, s.Name) {
		if heir := cluster.Heir(s.Component, s.Name); heir != "" {
			return fmt.Errorf("%s %s has no flag %q: %s", s.Component, cluster.KnownVersion, s.Name, heir)
		}
		return fmt.Errorf("%s %s has no flag %q; %s", s.Component, cluster.KnownVersion, s.Name, nearest(s.Name, cluster.KnownFlags(s.Component)))
	}
	if s.Value == "" {
		return errors.New("a value is missing")
	}
	return cluster.CheckFlag(s.Component, s.Name, s.Value)
}

// With is the experiment with flags of its cluster set to other values.
func (e *Experiment) With(settings []Setting) *Experiment {
	changed := *e
	changed.Spec.Cluster.Flags = map[string]map[string]Value{}
	for component, flags := range e.Spec.Cluster.Flags {
		changed.Spec.Cluster.Flags[component] = maps.Clone(flags)
	}
	for _, s := range settings {
		flags := changed.Spec.Cluster.Flags
		if flags[s.Component] == nil {
			flags[s.Component] = map[string]Value{}
		}
		flags[s.Component][s.Name] = Value(s.Value)
	}
	return &changed
}

// Soak is an experiment that breaks nothing on the cluster of this one, for as long as
// healthy nodes need to show that they stay Ready: two renewals of every Lease, a
// grace, and two passes.
func (e *Experiment) Soak() (*Experiment, error) {
	p, err := PlanFor(e, cluster.KnownVersion)
	if err != nil {
		return nil, err
	}
	tim, err := p.Config.Timing()
	if err != nil {
		return nil, err
	}
	soak := *e
	soak.Metadata = Metadata{Name: "soak", Labels: map[string]string{"fault": "none"}}
	soak.Spec = Spec{
		Description: "Nothing is broken: healthy nodes must stay Ready with these flags.",
		Cluster:     e.Spec.Cluster, Canaries: e.Spec.Canaries, Target: e.Spec.Target,
		Fault: FaultSpec{Type: "none"},
		Hold:  judge.Duration((2*tim.I() + tim.G + 2*tim.Pass()).Round(time.Second)),
	}
	for _, name := range []string{judge.LeaseStalled, judge.ReadyUnknown, judge.ReadyFalse, judge.NoScheduleTainted,
		judge.NoExecuteTainted, judge.PodEvicted, judge.KubeletExited} {
		soak.Spec.Never = append(soak.Spec.Never, judge.Expectation{Milestone: name})
	}
	return &soak, nil
}

// Flags are the flags that its cluster is to have, as cluster.Spec.Flags.
func (e *Experiment) Flags() map[string]map[string]string { return e.Spec.Cluster.flags() }
