package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flatline-chaos/flatline/experiments"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

func TestWith(t *testing.T) {
	exp, err := Load(experiments.FS, "kubelet-stopped", "fast")
	if err != nil {
		t.Fatal(err)
	}
	const flag = "kube-controller-manager.node-monitor-grace-period"
	settings, err := ParseSettings(flag + "=8s, 16s")
	if err != nil || len(settings) != 2 || settings[1].String() != flag+"=16s" {
		t.Fatalf("settings %v, %v", settings, err)
	}
	more, err := ParseSettings("kube-apiserver.default-unreachable-toleration-seconds=60")
	if err != nil {
		t.Fatal(err)
	}
	changed := exp.With([]Setting{settings[0], more[0]}).Flags()
	if changed["kube-controller-manager"]["node-monitor-grace-period"] != "8s" || changed["kube-controller-manager"]["node-monitor-period"] != "1s" || changed["kube-apiserver"]["default-unreachable-toleration-seconds"] != "60" {
		t.Errorf("flags are %v", changed)
	}
	if was := exp.Flags(); was["kube-controller-manager"]["node-monitor-grace-period"] != "12s" || was["kube-apiserver"] != nil {
		t.Errorf("the experiment itself was changed: %v", was)
	}
}

// A value with commas stands in quotes. A list is never taken for several values.
func TestValuesWithCommas(t *testing.T) {
	for text, want := range map[string]string{
		`kube-apiserver.feature-gates="A=true,B=false"`:                   `["A=true,B=false"]`,
		`kube-apiserver.feature-gates="A=true,B=false", "C=true"`:         `["A=true,B=false" "C=true"]`,
		`kube-apiserver.feature-gates=A=true`:                             `["A=true"]`,
		`kube-controller-manager.node-monitor-grace-period="8s", 12s`:     `["8s" "12s"]`,
		`kubelet.enforceNodeAllocatable="[pods, kube-reserved]"`:          `["[pods, kube-reserved]"]`,
		`kubelet.evictionHard="{""memory.available"": ""5%"", a: ""1""}"`: `["{\"memory.available\": \"5%\", a: \"1\"}"]`,
		`kube-apiserver.feature-gates=A=true,B=false`:                     `kube-apiserver.feature-gates: it takes a list, so quote each value: kube-apiserver.feature-gates="A=true,B=false" is one value, "A","B" are two`,
		`kubelet.enforceNodeAllocatable=[pods,kube-reserved]`:             `kubelet.enforceNodeAllocatable: it takes a list, so quote each value: kubelet.enforceNodeAllocatable="[pods,kube-reserved]" is one value, "A","B" are two`,
		`kube-apiserver.feature-gates="A=true`:                            `kube-apiserver.feature-gates: a quote is not closed`,
		`kube-apiserver.feature-gates="A=true"B`:                          `kube-apiserver.feature-gates: a comma belongs between values, not "B"`,
		`kube-apiserver.feature-gates="A=true",`:                          `kube-apiserver.feature-gates: a value is missing`,
		`kube-controller-manager.pod-eviction-timeout=30s`:                `kube-controller-manager.pod-eviction-timeout: kube-controller-manager v1.37.2 has no flag "pod-eviction-timeout": it was removed in v1.27; evictions follow default-not-ready-toleration-seconds and default-unreachable-toleration-seconds of kube-apiserver`,
	} {
		settings, err := ParseSettings(text)
		var values []string
		for _, s := range settings {
			values = append(values, s.Value)
		}
		got := fmt.Sprintf("%q", values)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// A soak breaks nothing, on the same cluster, and lasts for two renewals, a grace and
// two passes.
func TestSoak(t *testing.T) {
	exp, err := Load(experiments.FS, "csr-denied", "fast")
	if err != nil {
		t.Fatal(err)
	}
	soak, err := exp.Soak()
	if err != nil {
		t.Fatal(err)
	}
	if errs := soak.validate(); len(errs) > 0 {
		t.Error(errs)
	}
	if want := 2*2580*time.Millisecond + 12*time.Second + 2*1010*time.Millisecond; time.Duration(soak.Spec.Hold) != want.Round(time.Second) {
		t.Errorf("it lasts %s, want %s", soak.Spec.Hold, want)
	}
	if soak.Spec.Fault.Type != "none" || soak.Flags()["kubelet"]["nodeLeaseDurationSeconds"] != "8" || len(soak.Spec.Expect) > 0 || exp.Metadata.Name != "csr-denied" {
		t.Errorf("the soak is %+v", soak)
	}
	var never []string
	for _, x := range soak.Spec.Never {
		never = append(never, x.Milestone)
	}
	if !strings.Contains(strings.Join(never, " "), judge.ReadyUnknown) {
		t.Errorf("it must never reach %v", never)
	}
}

func FuzzParseSettings(f *testing.F) {
	for _, s := range []string{"kubelet.nodeLeaseDurationSeconds=8", "kube-controller-manager.node-monitor-grace-period=8s,12s", "kubelet.logging.verbosity=3", "a.b=c", "=", ".", ",", "kubelet.a={", `kube-apiserver.feature-gates="A=true,B=""x""", "C=true"`, `kubelet.evictionHard="`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		settings, err := ParseSettings(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: the error is not one line: %q", text, err)
			}
			return
		}
		for _, s := range settings {
			again, err := ParseSettings(s.String())
			if err != nil || len(again) != 1 || again[0] != s {
				t.Errorf("%q: %v is read as %v, %v", text, s, again, err)
			}
		}
	})
}
