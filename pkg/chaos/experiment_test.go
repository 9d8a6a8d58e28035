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

	"github.com/flatline-chaos/flatline/experiments"
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
	e, err := Parse(nil, "small.yaml", []byte(yaml), profile)
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
		Metadata: Metadata{Name: "small", Labels: map[string]string{"fault": "csr-denied", "tier": "smoke"}},
		Spec: Spec{
			Description: "Nothing in particular.",
			Cluster: ClusterSpec{Workers: 3, Flags: map[string]map[string]Value{
				"kube-controller-manager": {"cluster-signing-duration": "3m", "v": "4", "node-eviction-rate": "0.1"},
				"kubelet":                 {"serializeImagePulls": "false", "enforceNodeAllocatable": "[pods]", "imageGCHighThresholdPercent": "85"},
			}},
			Canaries: Canaries{Tolerations: seconds(0, 30, 300), DaemonSet: true},
			Target:   TargetSpec{Role: "worker", Count: 2},
			Fault:    FaultSpec{Type: "csr-denied", Certificate: Certificate{From: "rotation"}},
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
	again, err := Parse(nil, "small.yaml", js, "")
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

// A profile is laid over the experiment: mappings are merged, null deletes, all else is
// replaced, a certificate too. A list of milestones may be changed instead.
func TestProfiles(t *testing.T) {
	for _, tc := range []struct {
		name, overlay string
		change        func(*Spec)
	}{
		{"empty", "{}", func(*Spec) {}},
		{"maps are merged", "{cluster: {flags: {kubelet: {maxPods: 1}, etcd: {pre-vote: true}}}}", func(s *Spec) {
			s.Cluster.Flags["kubelet"]["maxPods"] = "1"
			s.Cluster.Flags["etcd"] = map[string]Value{"pre-vote": "true"}
		}},
		{"scalars are replaced", "{hold: 2s, cluster: {workers: 5, flags: {kube-controller-manager: {v: 2}}}, target: {count: 1}}", func(s *Spec) {
			s.Hold, s.Cluster.Workers, s.Target.Count = seconds(2)[0], 5, 1
			s.Cluster.Flags["kube-controller-manager"]["v"] = "2"
		}},
		{"lists are replaced", "{never: [], expect: [{milestone: ReadyUnknown}]}", func(s *Spec) {
			s.Never, s.Expect = nil, []judge.Expectation{{Milestone: "ReadyUnknown"}}
		}},
		{"subjects follow the tolerations", "{canaries: {tolerations: [5s]}, expect: [{milestone: PodEvicted}]}", func(s *Spec) {
			s.Canaries.Tolerations = seconds(5)
			s.Expect = []judge.Expectation{{Milestone: "PodEvicted", Subject: "5s"}}
		}},
		{"a certificate is replaced whole", "{fault: {certificate: {mint: 40s}}}", func(s *Spec) {
			s.Fault.Certificate = Certificate{Mint: seconds(40)[0]}
		}},
		{"a certificate as files had it once", "{fault: {certificate: {from: null, mint: 40s}}}", func(s *Spec) {
			s.Fault.Certificate = Certificate{Mint: seconds(40)[0]}
		}},
		{"names are milestones", "{expect: [ReadyUnknown, {milestone: CSRRepeated, subject: \"2\"}]}", func(s *Spec) {
			s.Expect = []judge.Expectation{{Milestone: "ReadyUnknown"}, {Milestone: "CSRRepeated", Subject: "2"}}
		}},
		{"a list is changed", "{expect: {remove: [{milestone: ReplacementReady, subject: 30s}, ReplacementReady, {milestone: PodEvicted}], add: [LeaseStalled]}, never: {remove: [PodEvicted]}}", func(s *Spec) {
			s.Expect = []judge.Expectation{{Milestone: "ReadyUnknown"}, {Milestone: "LeaseStalled"}}
			s.Never = s.Never[:1]
		}},
		{"null deletes a duration", "{hold: null}", func(s *Spec) { s.Hold = 0 }},
		{"null deletes a flag", "{cluster: {flags: {kube-controller-manager: {v: null}}}}", func(s *Spec) {
			delete(s.Cluster.Flags["kube-controller-manager"], "v")
		}},
		{"null deletes a mapping", "{cluster: {flags: {kubelet: null}}}", func(s *Spec) { delete(s.Cluster.Flags, "kubelet") }},
		{"null of nothing", "{cluster: {flags: {etcd: {v: null}}}}", func(s *Spec) { s.Cluster.Flags["etcd"] = map[string]Value{} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			yaml := smallExperiment + "  profiles:\n    other: {hold: 99s, cluster: {flags: {kubelet: {podsPerCore: 9}}}}\n    it: " + tc.overlay + "\n"
			want := parse(t, smallExperiment, "")
			want.Profile = "it"
			tc.change(&want.Spec)
			same(t, parse(t, yaml, "it"), want)
		})
	}
}

// A folder of experiments that share defaults and groups.
func folder(experiment string) fstest.MapFS {
	return fstest.MapFS{
		"x.yaml": {Data: []byte(experiment)},
		"defaults.yaml": {Data: []byte(`apiVersion: flatline.dev/v1alpha1
kind: Experiment
spec:
  cluster: {workers: 2}
  canaries: {tolerations: [0s, 30s]}
  target: {role: worker, count: 1}
  profiles: {fast: {canaries: {tolerations: [0s, 5s]}, cluster: {flags: {kubelet: {nodeLeaseDurationSeconds: 8}}}}}
`)},
		"groups.yaml": {Data: []byte("node-lost: [ReadyUnknown, PodEvicted]\ntainted: [{milestone: NotReadyTainted, subject: NoSchedule}]\n")},
	}
}

// What a file leaves out is that of its folder; null has no value in any profile.
func TestDefaultsAndGroups(t *testing.T) {
	const head = "metadata: {name: x}\nspec:\n  description: Nothing.\n  fault: {type: kubelet-stopped}\n"
	for _, tc := range []struct {
		name, rest, profile, want string
	}{
		{"default", "", "", `{"description":"Nothing.","cluster":{"workers":2},"canaries":{"tolerations":["0s","30s"]},"target":{"role":"worker","count":1},"fault":{"type":"kubelet-stopped","effect":"silent"}}`},
		{"fast", "  target: {count: 2}\n  cluster: {workers: 3}\n", "fast", `{"description":"Nothing.","cluster":{"workers":3,"flags":{"kubelet":{"nodeLeaseDurationSeconds":"8"}}},"canaries":{"tolerations":["0s","5s"]},"target":{"role":"worker","count":2},"fault":{"type":"kubelet-stopped","effect":"silent"}}`},
		{"no canaries", "  canaries: null\n", "fast", `{"description":"Nothing.","cluster":{"workers":2,"flags":{"kubelet":{"nodeLeaseDurationSeconds":"8"}}},"canaries":{},"target":{"role":"worker","count":1},"fault":{"type":"kubelet-stopped","effect":"silent"}}`},
		{"a profile over that of the defaults", "  profiles: {fast: {hold: 3s, cluster: {flags: {kubelet: null}}}}\n", "fast", `{"description":"Nothing.","cluster":{"workers":2},"canaries":{"tolerations":["0s","5s"]},"target":{"role":"worker","count":1},"fault":{"type":"kubelet-stopped","effect":"silent"},"hold":"3s"}`},
		{"groups", "  expect: [node-lost]\n  profiles: {fast: {expect: {remove: [node-lost], add: [tainted]}}}\n", "fast", `{"description":"Nothing.","cluster":{"workers":2,"flags":{"kubelet":{"nodeLeaseDurationSeconds":"8"}}},"canaries":{"tolerations":["0s","5s"]},"target":{"role":"worker","count":1},"fault":{"type":"kubelet-stopped","effect":"silent"},"expect":[{"milestone":"NotReadyTainted","subject":"NoSchedule"}]}`},
		{"no such profile", "  profiles: {fast: null}\n", "fast", `x.yaml: there is no profile "fast"; there is only default`},
		{"unknown group", "  expect: [node-lots]\n", "", `x.yaml: spec.expect[0]: Invalid value: "node-lots": there is no such milestone or group; nearest: node-lost`},
		{"member without canaries", "  canaries: null\n  expect: [ReadyTrue, node-lost]\n", "", `x.yaml: spec.expect[1][node-lost].milestone: Invalid value: "PodEvicted": there is no canary for it in spec.canaries.tolerations`},
		{"nothing to remove", "  canaries: {daemonSet: null}\n", "", `x.yaml: spec.canaries.daemonSet: null removes a default, and it has none: leave it out`},
		{"only with the profile of the defaults", "  expect: [{milestone: PodEvicted, subject: 30s}]\n", "", `{"description":"Nothing.","cluster":{"workers":2},"canaries":{"tolerations":["0s","30s"]},"target":{"role":"worker","count":1},"fault":{"type":"kubelet-stopped","effect":"silent"},"expect":[{"milestone":"PodEvicted","subject":"30s"}]}`},
		{"not with the profile of the defaults", "  expect: [{milestone: PodEvicted, subject: 30s}]\n", "fast", `x.yaml: with profile fast of defaults.yaml: spec.expect[0].subject: Unsupported value: "30s": supported values: "0s", "5s"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, err := Load(folder(head+tc.rest), "x", tc.profile)
			if err != nil {
				if got := oneLine(t, "x", err); got != tc.want {
					t.Errorf("error %s, want %s", got, tc.want)
				}
				return
			}
			if js, err := json.Marshal(e.Spec); err != nil || string(js) != tc.want {
				t.Errorf("got %v\n%s, want\n%s", err, js, tc.want)
			}
		})
	}
}

// A mistake in a shared file names that file.
func TestBadDefaultsAndGroups(t *testing.T) {
	for _, tc := range []struct{ file, text, want string }{
		{"defaults.yaml", "spec: {cluster: {worker: 2}}", "defaults.yaml: spec.cluster.worker: no such field; there is only workers, flags"},
		{"defaults.yaml", "metadata: {name: x}", "defaults.yaml: metadata, profile and expectations belong to an experiment"},
		{"defaults.yaml", "a: [", "defaults.yaml: line 1: did not find expected node content"},
		{"groups.yaml", "node-lost: [ReadyUnknwon]", `groups.yaml: node-lost[0]: Invalid value: "ReadyUnknwon": there is no such milestone or group; nearest: ReadyUnknown`},
		{"groups.yaml", "Lost: [ReadyUnknown]", `groups.yaml: "Lost" is no name of a group: lowercase letters, digits and dashes between them, at most 63`},
		{"groups.yaml", "a: [ReadyUnknown]\nb: [a]", `groups.yaml: b[0]: Invalid value: "a": there is no such milestone or group; nearest: PodsBack, ReadyTrue, CSRCreated`},
		{"groups.yaml", "a: ReadyUnknown", "groups.yaml: a: a string where a list belongs"},
	} {
		fsys := folder("")
		fsys[tc.file] = &fstest.MapFile{Data: []byte(tc.text)}
		if _, err := Load(fsys, "x", ""); err == nil || oneLine(t, tc.file, err) != tc.want {
			t.Errorf("error %v, want %s", err, tc.want)
		}
	}
}

// A resolved experiment is whole: it is read back as it is, in its own profile alone.
func TestResolvedIsReadBack(t *testing.T) {
	names, err := Names(experiments.FS)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		for _, profile := range []string{DefaultProfile, "fast"} {
			exp, err := Load(experiments.FS, name, profile)
			if err != nil {
				t.Fatal(err)
			}
			text, err := exp.YAML()
			if err != nil {
				t.Fatal(err)
			}
			again, err := Parse(experiments.FS, name+".yaml", text, "")
			if err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			same(t, again, exp)
			if _, err := Parse(experiments.FS, name+".yaml", text, profile); err != nil {
				t.Error(err)
			}
			want := name + `.yaml: profile: it is resolved for profile "` + profile + `"; "other" cannot be chosen any more`
			if _, err := Parse(experiments.FS, name+".yaml", text, "other"); err == nil || err.Error() != want {
				t.Errorf("error %v, want %s", err, want)
			}
		}
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
		_, err := Parse(nil, name+".yaml", []byte(strings.Replace(smallExperiment, "name: small", "name: "+name, 1)), "")
		if (err == nil) != ok || err != nil && !strings.HasPrefix(err.Error(), name+".yaml: metadata.name: ") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	long := smallExperiment + "#" + strings.Repeat("x", MaxFile-len(smallExperiment)-1)
	if _, err := Parse(nil, "small.yaml", []byte(long), ""); err != nil {
		t.Error(err)
	}
	if _, err := Parse(nil, "small.yaml", []byte(long+"x"), ""); oneLine(t, "small", err) != "small.yaml: it has more than 1048576 bytes" {
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
		e, err := Parse(experiments.FS, "fuzz.yaml", data, profile)
		if err != nil {
			if line := oneLine(t, "fuzz", err); !strings.HasPrefix(line, "fuzz.yaml: ") {
				t.Errorf("the file is not named: %s", line)
			}
			return
		}
		if e.Metadata.Name != "fuzz" || e.Profile != cmp.Or(profile, e.Profile, DefaultProfile) {
			t.Errorf("not resolved: %+v", e)
		}
		// What was accepted is written into the timeline and must read back.
		js, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(experiments.FS, "fuzz.yaml", js, "")
		if err != nil {
			t.Fatalf("%v of its own\n%s", err, js)
		}
		if same, err := json.Marshal(again); err != nil || !bytes.Equal(same, js) {
			t.Errorf("%v: it is read back as\n%s\nand was\n%s", err, same, js)
		}
	})
}
