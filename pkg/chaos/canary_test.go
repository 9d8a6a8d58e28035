package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"

	"github.com/flatline-chaos/flatline/internal/golden"
	"github.com/flatline-chaos/flatline/internal/kubefake"
)

// The golden file holds every object as it goes to the API server.
func TestCreateCanaries(t *testing.T) {
	c, api := kubefake.New()
	spec := Canaries{Tolerations: seconds(0, 30, 300), DaemonSet: true}
	if err := createCanaries(t.Context(), c, spec, runID, "c1-worker2", "registry.example/pause:3.10"); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, a := range api.Actions() {
		create, ok := a.(kubetesting.CreateAction)
		if !ok {
			t.Errorf("%s %s", a.GetVerb(), a.GetResource().Resource)
			continue
		}
		got.WriteString(a.GetResource().Resource + " in " + a.GetNamespace() + "\n")
		js, err := json.MarshalIndent(create.GetObject(), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		got.Write(append(js, '\n'))
	}
	golden.Lines(t, "testdata/canaries.golden", got.String())

	c, api = kubefake.New()
	if err := createCanaries(t.Context(), c, Canaries{}, runID, "n", "i"); err != nil || len(api.Actions()) != 1 {
		t.Errorf("no canaries: %d requests, error %v", len(api.Actions()), err)
	}
}

func TestCanariesFail(t *testing.T) {
	refused := errors.New("connection refused")
	for resource, want := range map[string]string{
		"namespaces": "creating namespace flatline-" + runID, "deployments": "creating canary 30s", "daemonsets": "creating the canary DaemonSet",
	} {
		c, api := kubefake.New()
		api.PrependReactor("create", resource, func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
		err := createCanaries(t.Context(), c, Canaries{Tolerations: seconds(30), DaemonSet: true}, runID, "n", "i")
		if !errors.Is(err, refused) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: error %v", resource, err)
		}
	}
}

func TestDeleteCanaries(t *testing.T) {
	c, api := kubefake.New()
	if err := createCanaries(t.Context(), c, Canaries{}, runID, "n", "i"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // gone already is well
		if err := deleteCanaries(t.Context(), c, runID); err != nil {
			t.Error(err)
		}
	}
	refused := errors.New("connection refused")
	api.PrependReactor("delete", "namespaces", func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
	if err := deleteCanaries(t.Context(), c, runID); !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
}

func TestPauseImage(t *testing.T) {
	for _, tc := range []struct{ name, out, want, err string }{
		{"as containerd says it", `{"images":[{"id":"1","repoTags":["docker.io/kindest/kindnetd:v1"]},{"id":"2","repoTags":["registry.k8s.io/pause:3.10"],"repoDigests":[]}]}`, "registry.k8s.io/pause:3.10", ""},
		{"of a registry with a port", `{"images":[{"repoTags":["localhost:5000/pause:3.9"]}]}`, "localhost:5000/pause:3.9", ""},
		{"without a tag", `{"images":[{"repoTags":["localhost:5000/pause"]}]}`, "localhost:5000/pause", ""},
		{"second tag", `{"images":[{"repoTags":["x:1","pause:3.9"]}]}`, "pause:3.9", ""},
		{"only like it", `{"images":[{"repoTags":["registry.k8s.io/pause-amd64:3.1","pause/other:1","a/mypause:1"]}]}`, "", "there is none"},
		{"untagged", `{"images":[{"repoTags":null},{"repoTags":[""]}]}`, "", "there is none"},
		{"none", `{"images":[]}`, "", "there is none"},
		{"no JSON", "crictl: not found", "", "invalid character"},
	} {
		n := &fakeNode{answer: func(context.Context, string) (string, error) { return tc.out, nil }}
		got, err := pauseImage(t.Context(), Node{"worker", n})
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %q, error %v; want %q, %q", tc.name, got, err, tc.want, tc.err)
		}
	}
}
