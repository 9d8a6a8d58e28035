package cluster

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	certv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

type asked []string

func (a *asked) RoundTrip(r *http.Request) (*http.Response, error) {
	*a = append(*a, r.Method+" "+r.URL.Path+" "+r.Header.Get("User-Agent"))
	return nil, errors.New("no network in tests")
}

// Each method asks for what its name says, in the name of the program.
func TestClientAsksForWhatItsNameSays(t *testing.T) {
	var wire asked
	c, err := NewClient(&rest.Config{Host: "http://apiserver.invalid", Transport: &wire})
	if err != nil {
		t.Fatal(err)
	}
	ctx, one := t.Context(), metav1.GetOptions{}
	for want, ask := range map[string]func() error{
		"GET /api/v1/nodes/a":                                                  func() error { _, err := c.Nodes().Get(ctx, "a", one); return err },
		"GET /api/v1/nodes":                                                    func() error { _, err := c.Nodes().List(ctx, metav1.ListOptions{}); return err },
		"GET /api/v1/pods":                                                     func() error { _, err := c.Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{}); return err },
		"GET /api/v1/namespaces/n/pods/a":                                      func() error { _, err := c.Pods("n").Get(ctx, "a", one); return err },
		"DELETE /api/v1/namespaces/a":                                          func() error { return c.Namespaces().Delete(ctx, "a", metav1.DeleteOptions{}) },
		"GET /apis/apps/v1/namespaces/n/deployments/a":                         func() error { _, err := c.Deployments("n").Get(ctx, "a", one); return err },
		"GET /apis/apps/v1/namespaces/n/daemonsets/a":                          func() error { _, err := c.DaemonSets("n").Get(ctx, "a", one); return err },
		"GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a": func() error { _, err := c.NodeLeases().Get(ctx, "a", one); return err },
		"GET /apis/certificates.k8s.io/v1/certificatesigningrequests/a":        func() error { _, err := c.CSRs().Get(ctx, "a", one); return err },
		"PUT /apis/certificates.k8s.io/v1/certificatesigningrequests/a/approval": func() error {
			return c.Decide(ctx, &certv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
		},
		"GET /apis/rbac.authorization.k8s.io/v1/clusterroles/a":        func() error { _, err := c.ClusterRoles().Get(ctx, "a", one); return err },
		"GET /apis/rbac.authorization.k8s.io/v1/clusterrolebindings/a": func() error { _, err := c.ClusterRoleBindings().Get(ctx, "a", one); return err },
		"GET /version": func() error { _, err := c.Raw(ctx, "/version"); return err },
	} {
		wire = nil
		if err := ask(); err == nil {
			t.Fatal("the wire answered")
		}
		if len(wire) != 1 || !strings.HasPrefix(wire[0], want+" "+rest.DefaultKubernetesUserAgent()) {
			t.Errorf("asked %q, want %q", wire, want)
		}
	}
}

func TestClientOfNoServer(t *testing.T) {
	if _, err := NewClient(&rest.Config{Host: "http://%"}); err == nil {
		t.Error("no error")
	}
}
