package chaos

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/flatline-chaos/flatline/internal/golden"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// differ shows the lines that are in one text only.
func differ(want, got string) string {
	var b strings.Builder
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		line := func(s []string) string {
			if i < len(s) {
				return s[i]
			}
			return "<no line>"
		}
		if line(w) != line(g) {
			fmt.Fprintf(&b, "line %d:\n want %s\n  got %s\n", i+1, line(w), line(g))
		}
	}
	return b.String()
}

// Every mistake has one line that names the file and the field and says what
// would be right.
func TestBadInput(t *testing.T) {
	fsys := os.DirFS("testdata/bad")
	names, err := Names(fsys)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, name := range names {
		// More than once: a message that depends on the order of a map is a riddle.
		var said string
		for i := range 60 {
			_, err := Load(fsys, name, "")
			line := oneLine(t, name, err)
			if i == 0 {
				said = line
				got.WriteString(line + "\n")
			} else if line != said {
				t.Errorf("two messages for one mistake:\n%s\n%s", said, line)
				break
			}
		}
		if !strings.HasPrefix(said, name+".yaml: ") {
			t.Errorf("the file is not named: %s", said)
		}
	}
	golden.Lines(t, "testdata/bad.golden", got.String())
}

// oneLine returns the message of an error about input.
func oneLine(t *testing.T, what string, err error) string {
	t.Helper()
	var invalid *InvalidError
	switch {
	case err == nil:
		t.Errorf("%s: no error", what)
		return what + ".yaml: no error"
	case !errors.As(err, &invalid):
		t.Errorf("%s: %T is no error about input: %v", what, err, err)
	case strings.ContainsAny(err.Error(), "\n\r"):
		t.Errorf("%s: more than one line: %q", what, err)
	}
	return err.Error()
}

func TestLoadNames(t *testing.T) {
	yaml := []byte(smallExperiment + "  profiles: {fast: {hold: 1s}, faster: {}, slow: {}}\n")
	many := fstest.MapFS{"small.yaml": {Data: yaml}, "csr-denied.yaml": {}, "csr-lost.yaml": {}, "clock-skew.yaml": {}, "README.md": {}}
	few := fstest.MapFS{"small.yaml": {Data: yaml}}
	for _, tc := range []struct {
		fsys          fs.FS
		name, profile string
		want          string // part of the message; none if empty
	}{
		{many, "small", "", ""},
		{many, "small", "default", ""},
		{many, "small", "fast", ""},
		{many, "small", "Fast", `there is no profile "Fast"; nearest: fast, faster`},
		{many, "small", "x\ny", `there is no profile "x\ny"`},
		{many, "csr-denid", "", `there is no experiment "csr-denid"; nearest: csr-denied`},
		{many, "", "", `there is no experiment ""; nearest: `},
		{many, "README.md", "", `there is no experiment "README.md"`},
		{many, "../chaos/small", "", `there is no experiment "../chaos/small"`},
		{many, "/etc/passwd", "", `there is no experiment "/etc/passwd"`},
		{few, "smal", "", `there is no experiment "smal"; there is only small`},
		{few, "small.yaml", "", `there is no experiment "small.yaml"; there is only small`},
	} {
		e, err := Load(tc.fsys, tc.name, tc.profile)
		if tc.want == "" {
			if err != nil {
				t.Errorf("%s, profile %q: %v", tc.name, tc.profile, err)
			} else if want := cmp.Or(tc.profile, DefaultProfile); e.Profile != want {
				t.Errorf("%s, profile %q: profile is %q", tc.name, tc.profile, e.Profile)
			}
			continue
		}
		if got := oneLine(t, tc.name, err); !strings.Contains(got, tc.want) {
			t.Errorf("%q, profile %q: %s; want %s", tc.name, tc.profile, got, tc.want)
		}
	}
}

const smallExperiment = `apiVersion: flatline.dev/v1alpha1
kind: Experiment
metadata: {name: small, labels: {tier: smoke}}
spec:
  description: Nothing in particular.
  cluster:
    workers: 3
    flags:
      kube-controller-manager: {cluster-signing-duration: 3m, v: 4, node-eviction-rate: 0.1}
      kubelet: {serializeImagePulls: false, "enforceNodeAllocatable": "[pods]", imageGCHighThresholdPercent: 85}
  canaries: {tolerations: [0s, 30s, 5m], daemonSet: true}
  target: {role: worker, count: 2}
  fault: {type: csr-denied, certificate: {from: rotation}}
  hold: 10s
  expect:
    - {milestone: PodEvicted, max: 400s, why: ours}
    - {milestone: ReadyUnknown}
    - {milestone: ReplacementReady, subject: 30s}
    - {milestone: ReplacementReady}
  never: [{milestone: CSRIssued}, {milestone: PodEvicted}]
`

func parse(t *testing.T, yaml, profile string) *Experiment {
	t.Helper()
	e, err := Parse("small.yaml", []byte(yaml), profile)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func seconds(s ...int) []judge.Duration {
	var d []judge.Duration
	for _, s := range s {
		d = append(d, judge.Duration(time.Duration(s)*time.Second))
	}
	return d
}

func TestParse(t *testing.T) {
	d := func(s int) judge.Duration { return seconds(s)[0] }
	evicted := func(subject string) judge.Expectation {
		return judge.Expectation{Milestone: "PodEvicted", Subject: subject, Max: d(400), Why: "ours"}
	}
	want := &Experiment{
		APIVersion: "flatline.dev/v1alpha1", Kind: "Experiment", Profile: "default",
		Metadata: Metadata{Name: "small", Labels: map[string]string{"tier": "smoke"}},
		Spec: Spec{
			Description: "Nothing in particular.",
			Cluster: ClusterSpec{Workers: 3, Flags: map[string]map[string]Value{
				"kube-controller-manager": {"cluster-signing-duration": "3m", "v": "4", "node-eviction-rate": "0.1"},
				"kubelet":                 {"serializeImagePulls": "false", "enforceNodeAllocatable": "[pods]", "imageGCHighThresholdPercent": "85"},
			}},
			Canaries: Canaries{Tolerations: seconds(0, 30, 300), DaemonSet: true},
			Target:   TargetSpec{Role: "worker", Count: 2},
			Fault:    FaultSpec{Type: "csr-denied", Certificate: &Certificate{From: "rotation"}},
			Hold:     d(10),
			Expect: []judge.Expectation{evicted("0s"), evicted("30s"), evicted("300s"), {Milestone: "ReadyUnknown"},
				{Milestone: "ReplacementReady", Subject: "30s"},
				{Milestone: "ReplacementReady", Subject: "0s"}, {Milestone: "ReplacementReady", Subject: "30s"}, {Milestone: "ReplacementReady", Subject: "300s"}},
			Never: []judge.Expectation{{Milestone: "CSRIssued"}, {Milestone: "PodEvicted"}},
		},
	}
	same(t, parse(t, smallExperiment, ""), want)

	// The default profile is the experiment as it stands, whatever others there are.
	others := smallExperiment + "  profiles:\n    fast: {hold: 1s, canaries: {tolerations: [9s], daemonSet: false}, expect: [], cluster: {flags: {kubelet: null}}}\n"
	same(t, parse(t, others, ""), want)
	same(t, parse(t, others, "default"), want)

	// An experiment is written into the timeline in resolved form.
	js, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("small.yaml", bytes.Replace(js, []byte(`"profile":"default",`), nil, 1), "")
	if err != nil {
		t.Fatal(err)
	}
	same(t, again, want)
}

func same(t *testing.T, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		g, _ := json.MarshalIndent(got, "", " ")
		w, _ := json.MarshalIndent(want, "", " ")
		t.Errorf("got, against what was wanted:\n%s", differ(string(w), string(g)))
	}
}

// A profile is a JSON merge patch: mappings are merged, all else is replaced, and
// null deletes.
func TestProfiles(t *testing.T) {
	for _, tc := range []struct {
		name, overlay string
		change        func(*Spec)
	}{
		{"empty", "{}", func(*Spec) {}},
		{"maps are merged", "{cluster: {flags: {kubelet: {a: 1}, etcd: {b: true}}}}", func(s *Spec) {
			s.Cluster.Flags["kubelet"]["a"] = "1"
			s.Cluster.Flags["etcd"] = map[string]Value{"b": "true"}
		}},
		{"scalars are replaced", "{hold: 2s, cluster: {workers: 5, flags: {kube-controller-manager: {v: 2}}}, target: {count: 1}}", func(s *Spec) {
			s.Hold, s.Cluster.Workers, s.Target.Count = seconds(2)[0], 5, 1
			s.Cluster.Flags["kube-controller-manager"]["v"] = "2"
		}},
		{"lists are replaced", "{never: [], expect: [{milestone: ReadyUnknown}]}", func(s *Spec) {
			s.Never, s.Expect = []judge.Expectation{}, []judge.Expectation{{Milestone: "ReadyUnknown"}}
		}},
		{"subjects follow the tolerations", "{canaries: {tolerations: [5s]}, expect: [{milestone: PodEvicted}]}", func(s *Spec) {
			s.Canaries.Tolerations = seconds(5)
			s.Expect = []judge.Expectation{{Milestone: "PodEvicted", Subject: "5s"}}
		}},
		{"null deletes a field", "{fault: {certificate: {from: null, mint: 40s}}}", func(s *Spec) {
			s.Fault.Certificate = &Certificate{Mint: seconds(40)[0]}
		}},
		{"null deletes a duration", "{hold: null}", func(s *Spec) { s.Hold = 0 }},
		{"null deletes a flag", "{cluster: {flags: {kube-controller-manager: {v: null}}}}", func(s *Spec) {
			delete(s.Cluster.Flags["kube-controller-manager"], "v")
		}},
		{"null deletes a mapping", "{cluster: {flags: {kubelet: null}}}", func(s *Spec) { delete(s.Cluster.Flags, "kubelet") }},
		{"null of nothing", "{cluster: {flags: {etcd: {v: null}}}}", func(s *Spec) { s.Cluster.Flags["etcd"] = map[string]Value{} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			yaml := smallExperiment + "  profiles:\n    other: {hold: 99s, cluster: {flags: {kubelet: {z: 9}}}}\n    it: " + tc.overlay + "\n"
			want := parse(t, smallExperiment, "")
			want.Profile = "it"
			tc.change(&want.Spec)
			same(t, parse(t, yaml, "it"), want)
		})
	}
}

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "abc", 0}, {"abc", "", 3}, {"", "abc", 3}, {"abc", "abd", 1}, {"abc", "ac", 1}, {"ac", "abc", 1}, {"ab", "ba", 2}, {"kitten", "sitting", 3}} {
		if got := distance(tc.a, tc.b); got != tc.want {
			t.Errorf("%q, %q: %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

// What package cluster is given must be the text that a user would write on a
// command line.
func TestFlags(t *testing.T) {
	got := parse(t, smallExperiment, "").Spec.Cluster.flags()
	same(t, got, map[string]map[string]string{
		"kube-controller-manager": {"cluster-signing-duration": "3m", "v": "4", "node-eviction-rate": "0.1"},
		"kubelet":                 {"serializeImagePulls": "false", "enforceNodeAllocatable": "[pods]", "imageGCHighThresholdPercent": "85"},
	})
}

// The name of an experiment becomes that of a folder, and its file has a bound.
func TestNamesOfExperiments(t *testing.T) {
	for name, ok := range map[string]bool{
		"small": true, "a": true, "0-9": true, strings.Repeat("a", 40): true, strings.Repeat("a", 41): false,
		"-a": false, "a-": false, "A": false, "a.b": false, "a_b": false, "clusters": false, "tune": false, "cluster": true,
	} {
		_, err := Parse(name+".yaml", []byte(strings.Replace(smallExperiment, "name: small", "name: "+name, 1)), "")
		if (err == nil) != ok || err != nil && !strings.HasPrefix(err.Error(), name+".yaml: metadata.name: ") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	long := smallExperiment + "#" + strings.Repeat("x", MaxFile-len(smallExperiment)-1)
	if _, err := Parse("small.yaml", []byte(long), ""); err != nil {
		t.Error(err)
	}
	if _, err := Parse("small.yaml", []byte(long+"x"), ""); oneLine(t, "small", err) != "small.yaml: it has more than 1048576 bytes" {
		t.Errorf("error %v", err)
	}
	for _, id := range []string{"", "x", "20260102t030405z-beef"} { // folders that anybody may have made
		if got := ClusterName(id); !strings.HasPrefix(got, "flatline-") {
			t.Errorf("the cluster of %q is %q", id, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/bad/*.yaml", "../../experiments/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatal(pattern, err)
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data, "fast")
		}
	}
	f.Add([]byte(smallExperiment+"  profiles: {\"a\\nb\": {hold: 1}}"), "a\nb")
	f.Fuzz(func(t *testing.T, data []byte, profile string) {
		e, err := Parse("fuzz.yaml", data, profile)
		if err != nil {
			if line := oneLine(t, "fuzz", err); !strings.HasPrefix(line, "fuzz.yaml: ") {
				t.Errorf("the file is not named: %s", line)
			}
			return
		}
		if e.Spec.Profiles != nil || e.Metadata.Name != "fuzz" || e.Profile != cmp.Or(profile, DefaultProfile) {
			t.Errorf("not resolved: %+v", e)
		}
		// What was accepted is written into the timeline and must read back.
		e.Profile, e.Spec.Fault.Effect = "", ""
		js, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse("fuzz.yaml", js, ""); err != nil {
			t.Errorf("%v of its own\n%s", err, js)
		}
	})
}
