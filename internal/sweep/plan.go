// Package sweep runs one experiment under many settings of flags: it plans the arms, counts
// what is on record, and runs what is missing, interleaved, on as few clusters as can be.
//
// All that it remembers are the records of runs: an arm is an experiment with its
// flags, and a run of that very experiment which came to an answer counts. So a sweep
// that was killed goes on where it stopped, and shards need no merging.
package sweep

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/flatline-chaos/flatline/internal/record"
	"github.com/flatline-chaos/flatline/internal/report"
	"github.com/flatline-chaos/flatline/pkg/chaos"
	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// A Sweep is one experiment under many settings.
type Sweep struct {
	Experiment *chaos.Experiment
	// Axes has one flag each, with the values that it is to have.
	Axes [][]chaos.Setting
	// Each has one flag at a time set, beside an arm with none; else every
	// combination of values is an arm.
	Each  bool
	Count int // runs of each arm
	Shard Shard
	// AllowFlapping has arms run in which healthy nodes flap.
	AllowFlapping bool
	// Image is the node image; runs of another one do not count. Empty: any.
	Image string
	// ImageID is that of its content; runs that say another one do not count.
	ImageID string
}

// A Shard is a share of a sweep: the runs whose number modulo Of is Index-1. The zero
// Shard is all of it.
type Shard struct{ Index, Of int }

// ParseShard reads "2/3", the second of three.
func ParseShard(s string) (Shard, error) {
	index, of, ok := strings.Cut(s, "/")
	i, err1 := strconv.Atoi(index)
	n, err2 := strconv.Atoi(of)
	if !ok || err1 != nil || err2 != nil || i < 1 || i > n {
		return Shard{}, &chaos.InvalidError{Text: fmt.Sprintf("shard %q: want 1/3, 2/3 or 3/3", s)}
	}
	return Shard{i, n}, nil
}

// share is how many of count runs belong to the shard.
func (s Shard) share(count int) int {
	if s.Of == 0 {
		return count
	}
	return (count + s.Of - s.Index) / s.Of
}

// An Arm is the experiment under one setting of flags.
type Arm struct {
	Settings   []chaos.Setting // none: as it stands
	Experiment *chaos.Experiment
	Soak       *chaos.Experiment // the same flags with nothing broken
	Skip       string            // why it is not run
	Want       int               // runs, in this shard
	Runs       []*judge.Run      // on record, with an answer
	Soaked     bool              // it was seen, and healthy nodes stayed Ready

	plan  *chaos.Plan
	tries int // without an answer, in a row
}

// Name says what is set.
func (a *Arm) Name() string {
	if len(a.Settings) == 0 {
		return "as it stands"
	}
	var s []string
	for _, x := range a.Settings {
		s = append(s, x.Name+"="+x.Value)
	}
	return strings.Join(s, " ")
}

// missing is how many runs are to be made.
func (a *Arm) missing() int {
	if a.Skip != "" {
		return 0
	}
	return max(0, a.Want-len(a.Runs))
}

// A Plan is what a sweep would do.
type Plan struct {
	Sweep *Sweep
	Arms  []*Arm
	// Ignored is the number of runs on record that are of an arm and do not count:
	// they came to no answer, or are of another node image.
	Ignored int
}

// Plan resolves the arms of a sweep and counts what is on record. Errors about the
// input are *chaos.InvalidError.
func (s *Sweep) Plan(recs []*record.Record) (*Plan, error) {
	if s.Count < 1 {
		return nil, &chaos.InvalidError{Text: fmt.Sprintf("%d runs of each arm: want 1 or more", s.Count)}
	}
	for i, axis := range s.Axes {
		if slices.ContainsFunc(s.Axes[:i], func(other []chaos.Setting) bool { return other[0].Flag() == axis[0].Flag() }) {
			return nil, &chaos.InvalidError{Text: axis[0].Flag() + " is set twice: give all of its values at once, with commas between them"}
		}
	}
	p := &Plan{Sweep: s}
	for _, settings := range s.settings() {
		a := &Arm{Settings: settings, Experiment: s.Experiment.With(settings), Want: s.Shard.share(s.Count)}
		var err error
		if a.plan, err = chaos.PlanFor(a.Experiment, cluster.KnownVersion); err != nil {
			return nil, &chaos.InvalidError{Text: err.Error()}
		}
		if a.Soak, err = a.Experiment.Soak(); err != nil {
			return nil, &chaos.InvalidError{Text: err.Error()}
		}
		tim, err := a.plan.Config.Timing()
		if err != nil {
			return nil, &chaos.InvalidError{Text: err.Error()}
		}
		if why := tim.Flaps(); why != "" && !s.AllowFlapping {
			a.Skip = why
		}
		if again, err := p.count(a, recs); err != nil {
			return nil, err
		} else if !again {
			p.Arms = append(p.Arms, a)
		}
	}
	return p, nil
}

// settings lists what each arm sets.
func (s *Sweep) settings() [][]chaos.Setting {
	if s.Each {
		arms := [][]chaos.Setting{nil}
		for _, axis := range s.Axes {
			for _, x := range axis {
				arms = append(arms, []chaos.Setting{x})
			}
		}
		return arms
	}
	arms := [][]chaos.Setting{nil}
	for _, axis := range s.Axes {
		var longer [][]chaos.Setting
		for _, arm := range arms {
			for _, x := range axis {
				longer = append(longer, append(slices.Clone(arm), x))
			}
		}
		arms = longer
	}
	return arms
}

// count finds the runs of an arm among those on record. It says so if there is such an arm
// already: a value that is the one of the experiment makes no other.
func (p *Plan) count(a *Arm, recs []*record.Record) (again bool, err error) {
	own, err := json.Marshal(a.Experiment)
	if err != nil {
		return false, fmt.Errorf("planning %s: %w", a.Name(), err)
	}
	for _, other := range p.Arms {
		if same, err := json.Marshal(other.Experiment); err == nil && bytes.Equal(own, same) {
			return true, nil
		}
	}
	soak, err := json.Marshal(a.Soak)
	if err != nil {
		return false, fmt.Errorf("planning %s: %w", a.Name(), err)
	}
	for _, rec := range recs {
		whole := rec.Run.Finished() && p.Sweep.sameImage(rec.Run)
		recorded := withoutAnswers(rec.Experiment)
		switch {
		case bytes.Equal(recorded, soak):
			a.Soaked = a.Soaked || whole && (rec.Run.AsWanted() || p.Sweep.AllowFlapping && flapped(rec.Run))
		case !bytes.Equal(recorded, own):
		case whole && p.Sweep.counts(rec.Run):
			a.Runs = append(a.Runs, rec.Run)
		default:
			p.Ignored++
		}
	}
	return false, nil
}

// answers is a field that experiments had until December 2026. No code read it. A description
// stands before it and cannot hold the pattern: JSON escapes its quotes.
var answers = regexp.MustCompile(`"answers":\[("C[0-9]+",?)*\],`)

// withoutAnswers is the experiment of a record as it is resolved today.
func withoutAnswers(recorded []byte) []byte { return answers.ReplaceAll(recorded, nil) }

// sameImage says whether a run is of the sweep's node image.
func (s *Sweep) sameImage(r *judge.Run) bool {
	return s.Image == "" || s.Image == r.NodeImage && (s.ImageID == "" || r.NodeImageID == "" || s.ImageID == r.NodeImageID)
}

// order lists the runs to be made, as arms: interleaved, so that whatever changes with
// time meets all of them, and there and back again, so that an arm is not always the
// first and flags are changed less often.
func (p *Plan) order(arms []*Arm) []*Arm {
	var order []*Arm
	left := map[*Arm]int{}
	for _, a := range arms {
		left[a] = a.missing()
	}
	for round := 0; ; round++ {
		turn := slices.Clone(arms)
		if round%2 == 1 {
			slices.Reverse(turn)
		}
		before := len(order)
		for _, a := range turn {
			if left[a] > 0 {
				left[a]--
				order = append(order, a)
			}
		}
		if len(order) == before {
			return order
		}
	}
}

// A group is arms that one cluster can serve, one after the other.
type group struct {
	arms []*Arm
	base *chaos.Experiment // with the flags that all of them have
}

// groups puts the arms together that one cluster can serve: its flags are changed in
// place, but for those of etcd and the scheduler.
func (p *Plan) groups() []group {
	var groups []group
	for _, a := range p.Arms {
		i := slices.IndexFunc(groups, func(g group) bool { return cluster.InPlace(common(g.arms, a), a.Experiment.Flags()) == nil })
		if i < 0 {
			groups = append(groups, group{})
			i = len(groups) - 1
		}
		groups[i].arms = append(groups[i].arms, a)
	}
	for i, g := range groups {
		var settings []chaos.Setting
		for component, flags := range common(g.arms) {
			for name, value := range flags {
				settings = append(settings, chaos.Setting{Component: component, Name: name, Value: value})
			}
		}
		bare := *p.Sweep.Experiment
		bare.Spec.Cluster.Flags = nil
		groups[i].base = bare.With(settings)
	}
	return groups
}

// common returns the flags that all arms have, with the same value. Flags that are not
// changed in place are those of the first.
func common(arms []*Arm, more ...*Arm) map[string]map[string]string {
	arms = append(slices.Clone(arms), more...)
	flags := arms[0].Experiment.Flags()
	for _, a := range arms[1:] {
		others := a.Experiment.Flags()
		for component := range flags {
			if cluster.InPlace(nil, map[string]map[string]string{component: {"": ""}}) != nil {
				continue
			}
			maps.DeleteFunc(flags[component], func(name, value string) bool {
				other, ok := others[component][name]
				return !ok || other != value
			})
		}
	}
	return flags
}

// What a sweep takes beside its runs, on a small machine.
const (
	leastCreate, mostCreate = 25 * time.Second, 70 * time.Second
	leastChange, mostChange = 1 * time.Second, 30 * time.Second
	leastSoak, mostSoak     = 10 * time.Second, 30 * time.Second // beside its hold
)

// Takes bounds the duration of all that is missing. Where an arm has runs on record it goes
// by those.
func (p *Plan) Takes() (least, most time.Duration, runs int) {
	for _, g := range p.groups() {
		order := p.order(g.arms)
		if len(order) > 0 {
			least, most = least+leastCreate, most+mostCreate
		}
		var before *Arm
		soaked := map[*Arm]bool{}
		for _, a := range order {
			lo, hi := a.takes()
			least, most, runs = least+lo, most+hi, runs+1
			if a != before {
				least, most = least+leastChange, most+mostChange
			}
			if !a.Soaked && !soaked[a] {
				hold := time.Duration(a.Soak.Spec.Hold)
				least, most, soaked[a] = least+hold+leastSoak, most+hold+mostSoak, true
			}
			before = a
		}
	}
	return least, most, runs
}

// takes bounds the duration of one run.
func (a *Arm) takes() (least, most time.Duration) {
	least, most = a.plan.OnKeptCluster()
	if len(a.Runs) == 0 {
		return least, most
	}
	var walls []float64
	for _, r := range a.Runs {
		walls = append(walls, r.Cost.WallSeconds-r.Cost.Phases["create"]-r.Cost.Phases["delete"])
	}
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return seconds(slices.Min(walls)), seconds(slices.Max(walls))
}

// Text writes the plan.
func (p *Plan) Text(out io.Writer) error {
	var b strings.Builder
	s := p.Sweep
	least, most, runs := p.Takes()
	fmt.Fprintf(&b, "%s, profile %s: %d arms, %d runs of each, interleaved\n", s.Experiment.Metadata.Name, s.Experiment.Profile, len(p.Arms), s.Count)
	if s.Shard.Of > 0 {
		fmt.Fprintf(&b, "shard %d of %d: %d of them\n", s.Shard.Index, s.Shard.Of, s.Shard.share(s.Count))
	}
	b.WriteString("\n")
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "ARM\tON RECORD\tTO RUN\tREADY=UNKNOWN\tNOEXECUTE\n")
	for _, a := range p.Arms {
		fmt.Fprintf(tw, "%s\t%d\t%d\t%s\t%s\n", a.Name(), len(a.Runs), a.missing(), a.forecast(judge.ReadyUnknown), a.forecast(judge.NoExecuteTainted))
	}
	_ = tw.Flush() // a strings.Builder does not fail
	b.WriteString("(forecasts, since the injection)\n")
	for _, a := range p.Arms {
		if a.Skip != "" {
			fmt.Fprintf(&b, "\nskipped, %s: %s (--allow-flapping runs it)\n", a.Name(), a.Skip)
		}
		for _, w := range a.plan.Config.Warnings {
			if a.Skip == "" {
				fmt.Fprintf(&b, "\nwarning, %s: %s\n", a.Name(), w)
			}
		}
	}
	if p.Ignored > 0 {
		fmt.Fprintf(&b, "\n%d runs on record do not count: cut short, without an answer, or of another node image\n", p.Ignored)
	}
	if runs == 0 {
		b.WriteString("\nnothing is missing\n")
	} else {
		fmt.Fprintf(&b, "\n%d runs to make on %s: %s to %s\n", runs, clusters(len(p.groups())), report.Minutes(least), report.Minutes(most))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// forecast writes when the model has a milestone come.
func (a *Arm) forecast(name string) string {
	for _, f := range a.plan.Forecasts {
		if f.Name == name && f.Bounded {
			return fmt.Sprintf("%.1f to %.1f s", max(0, f.From.Seconds()), f.To.Seconds())
		}
	}
	return "-"
}

func clusters(n int) string {
	if n == 1 {
		return "one cluster"
	}
	return fmt.Sprintf("%d clusters", n)
}
