package chaos

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/flatline-chaos/flatline/internal/kubefake"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// asked is a transport that answers nothing and notes what was asked.
type asked []string

func (a *asked) RoundTrip(r *http.Request) (*http.Response, error) {
	*a = append(*a, r.URL.Path)
	return nil, errors.New("no network in tests")
}

// The judge knows a watch by the name of its resource, and a Lease of another namespace is
// no heartbeat.
func TestWatchesLookAtTheRightObjects(t *testing.T) {
	want := map[string]string{
		"leases": "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", "nodes": "/api/v1/nodes", "pods": "/api/v1/pods",
		"certificatesigningrequests": "/apis/certificates.k8s.io/v1/certificatesigningrequests",
	}
	var wire asked
	for _, w := range watches(kubefake.Client(&wire)) {
		wire = nil
		ctx, cancel := context.WithCancel(t.Context())
		_ = w.Run(ctx, cancel, func(timeline.Event) { cancel() }) // it tells of its failure, and ends
		if len(wire) != 1 || wire[0] != want[w.Resource] {
			t.Errorf("%s: asked for %q, want %q", w.Resource, wire, want[w.Resource])
		}
		delete(want, w.Resource)
	}
	for resource := range want {
		t.Errorf("nobody watches %s", resource)
	}
}
