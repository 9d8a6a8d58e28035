package cluster

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

func recorded(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestPlanned(t *testing.T) {
	set := map[string]map[string]string{
		"kube-controller-manager": {"node-monitor-period": "1s", "v": "4"},
		"etcd":                    {"heartbeat-interval": "150"},
		"kubelet":                 {"nodeStatusUpdateFrequency": "4s"},
	}
	for _, test := range []struct{ version, component, name, value, origin string }{
		{"v1.37.2", "kube-controller-manager", "node-monitor-grace-period", "50s", "table v1.37"},
		{"v1.32.13", "kube-controller-manager", "node-monitor-grace-period", "50s", "table v1.32"},
		{"v1.31.14", "kube-controller-manager", "node-monitor-grace-period", "40s", "table v1.31"},
		{"v1.20.0", "kube-controller-manager", "node-monitor-grace-period", "40s", "table v1.31"},
		{"v1.38.0-alpha.1", "kube-controller-manager", "node-monitor-grace-period", "50s", "table v1.37"},
		{"", "kube-controller-manager", "node-monitor-grace-period", "50s", "table v1.37"},
		{"v1.37.2", "kube-controller-manager", "node-monitor-period", "1s", "spec"},
		{"v1.37.2", "kube-controller-manager", "v", "4", "spec"},
		{"v1.37.2", "etcd", "heartbeat-interval", "150", "spec"},
		{"v1.37.2", "kubelet", "nodeStatusUpdateFrequency", "4s", "spec"},
		{"v1.37.2", "kubelet", "nodeStatusReportFrequency", "4s", "table v1.37"},
		{"v1.37.2", "kube-apiserver", "default-unreachable-toleration-seconds", "300", "table v1.37"},
	} {
		if got := Planned(test.version, set)[test.component][test.name]; got != (Flag{test.value, test.origin}) {
			t.Errorf("%s %s %s: %+v, want %s from %s", test.version, test.component, test.name, got, test.value, test.origin)
		}
	}
	if got := Planned("v1.37.2", nil)["kubelet"]["nodeStatusReportFrequency"].Value; got != "5m0s" {
		t.Errorf("nodeStatusReportFrequency is %s", got)
	}
}

// The table against a v1.37.2 cluster that was made with the flags in set.
func TestTableIsWhatProcessesSay(t *testing.T) {
	set := map[string]map[string]string{
		"kube-apiserver":          {"default-unreachable-toleration-seconds": "31"},
		"kube-controller-manager": {"node-monitor-grace-period": "12s"},
		"kubelet":                 {"nodeLeaseDurationSeconds": "8", "logging.verbosity": "3"},
	}
	flagz, configz := splitPages(t, recorded(t, "controller-v1.37.2.jsonl"))
	for name, test := range map[string]struct {
		component, origin string
		read              func(map[string]Flag) (map[string]Flag, error)
	}{
		"controller manager": {"kube-controller-manager", "flagz", func(f map[string]Flag) (map[string]Flag, error) {
			return f, readController(f, configz+"\n"+flagz)
		}},
		"controller manager without flagz": {"kube-controller-manager", "configz", func(f map[string]Flag) (map[string]Flag, error) {
			return f, readController(f, configz)
		}},
		"API server": {"kube-apiserver", "flagz", func(f map[string]Flag) (map[string]Flag, error) {
			return f, readFlagz(f, []byte(recorded(t, "apiserver-flagz-v1.37.2.json")))
		}},
		"kubelet": {"kubelet", "configz", func(f map[string]Flag) (map[string]Flag, error) {
			var page struct{ KubeletConfig map[string]any }
			err := decode(strings.NewReader(recorded(t, "kubelet-configz-v1.37.2.json")), &page)
			return readKubelet(f, page.KubeletConfig), err
		}},
	} {
		planned := Planned("v1.37.2", set)[test.component]
		got, err := test.read(maps.Clone(planned))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(got) == 0 || len(got) != len(planned) {
			t.Errorf("%s: %d flags, want %d", name, len(got), len(planned))
		}
		for flag, want := range planned {
			want.Origin = test.origin
			if got[flag] != want {
				t.Errorf("%s: %s is %+v, want %+v", name, flag, got[flag], want)
			}
		}
	}
}

// splitPages returns the flagz and the configz of what controllerPages gives.
func splitPages(t *testing.T, pages string) (flagz, configz string) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(pages))
	for decoder.More() {
		var page json.RawMessage
		if err := decoder.Decode(&page); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(page[:40]), "Flagz") {
			flagz = string(page)
		} else {
			configz = string(page)
		}
	}
	return flagz, configz
}

func TestReadControllerGarbage(t *testing.T) {
	for _, pages := range []string{"", "404 page not found", "{} {"} {
		if err := readController(map[string]Flag{}, pages); err == nil {
			t.Errorf("%q: no error", pages)
		}
	}
}

func TestUnknownFields(t *testing.T) {
	var page struct{ KubeletConfig map[string]any }
	if err := decode(strings.NewReader(recorded(t, "kubelet-configz-v1.37.2.json")), &page); err != nil {
		t.Fatal(err)
	}
	set := map[string]string{
		"nodeLeaseDurationSeconds":                   "8",
		"logging.verbosity":                          "3",
		"crashLoopBackOff.maxContainerRestartPeriod": "1s",
		"readOnlyPort":                               "0", // nothing, and left out
		"nodeLeaseDurationSecond":                    "8",
		"logging.verbose":                            "3",
	}
	want := []string{"logging.verbose", "nodeLeaseDurationSecond"}
	if got := unknownFields(set, page.KubeletConfig); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
