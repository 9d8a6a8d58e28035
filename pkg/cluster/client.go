package cluster

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	certv1 "k8s.io/api/certificates/v1"
	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
)

// groups are the API groups that an experiment deals with. The generated clientset knows
// all groups of Kubernetes; to compile those takes longer than everything else that
// flatline needs.
var groups = []struct {
	version schema.GroupVersion
	path    string
	add     func(*runtime.Scheme) error
}{
	{corev1.SchemeGroupVersion, "/api", corev1.AddToScheme},
	{appsv1.SchemeGroupVersion, "/apis", appsv1.AddToScheme},
	{certv1.SchemeGroupVersion, "/apis", certv1.AddToScheme},
	{coordv1.SchemeGroupVersion, "/apis", coordv1.AddToScheme},
	{rbacv1.SchemeGroupVersion, "/apis", rbacv1.AddToScheme},
}

// Scheme has the types of the API groups that a Client deals with.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	for _, g := range groups {
		utilruntime.Must(g.add(s))
	}
	return s
}()

var parameters = runtime.NewParameterCodec(Scheme)

// A Client reads and writes the objects that experiments deal with. Its methods return
// client-go's own generic clients.
type Client struct {
	of map[schema.GroupVersion]rest.Interface
}

// NewClient returns a client of the API server that rc names. It asks the server nothing.
// Its error is about rc.
func NewClient(rc *rest.Config) (*Client, error) {
	rc = rest.CopyConfig(rc)
	if rc.UserAgent == "" {
		rc.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	h, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	c := &Client{of: map[schema.GroupVersion]rest.Interface{}}
	for _, g := range groups {
		own := rest.CopyConfig(rc)
		own.GroupVersion, own.APIPath = &g.version, g.path
		own.NegotiatedSerializer = serializer.NewCodecFactory(Scheme).WithoutConversion()
		if c.of[g.version], err = rest.RESTClientForConfigAndClient(own, h); err != nil {
			return nil, fmt.Errorf("making a client of %s: %w", g.version, err)
		}
	}
	return c, nil
}

// Nodes returns the client of nodes.
func (c *Client) Nodes() *gentype.ClientWithList[*corev1.Node, *corev1.NodeList] {
	return gentype.NewClientWithList("nodes", c.of[corev1.SchemeGroupVersion], parameters, "",
		empty[corev1.Node], empty[corev1.NodeList], gentype.PrefersProtobuf[*corev1.Node]())
}

// Pods returns the client of pods in a namespace, metav1.NamespaceAll for all.
func (c *Client) Pods(namespace string) *gentype.ClientWithList[*corev1.Pod, *corev1.PodList] {
	return gentype.NewClientWithList("pods", c.of[corev1.SchemeGroupVersion], parameters, namespace,
		empty[corev1.Pod], empty[corev1.PodList], gentype.PrefersProtobuf[*corev1.Pod]())
}

// Namespaces returns the client of namespaces.
func (c *Client) Namespaces() *gentype.Client[*corev1.Namespace] {
	return gentype.NewClient("namespaces", c.of[corev1.SchemeGroupVersion], parameters, "",
		empty[corev1.Namespace], gentype.PrefersProtobuf[*corev1.Namespace]())
}

// Deployments returns the client of Deployments in a namespace.
func (c *Client) Deployments(namespace string) *gentype.Client[*appsv1.Deployment] {
	return gentype.NewClient("deployments", c.of[appsv1.SchemeGroupVersion], parameters, namespace,
		empty[appsv1.Deployment], gentype.PrefersProtobuf[*appsv1.Deployment]())
}

// DaemonSets returns the client of DaemonSets in a namespace.
func (c *Client) DaemonSets(namespace string) *gentype.Client[*appsv1.DaemonSet] {
	return gentype.NewClient("daemonsets", c.of[appsv1.SchemeGroupVersion], parameters, namespace,
		empty[appsv1.DaemonSet], gentype.PrefersProtobuf[*appsv1.DaemonSet]())
}

// NodeLeases returns the client of the Leases that kubelets renew.
func (c *Client) NodeLeases() *gentype.ClientWithList[*coordv1.Lease, *coordv1.LeaseList] {
	return gentype.NewClientWithList("leases", c.of[coordv1.SchemeGroupVersion], parameters, corev1.NamespaceNodeLease,
		empty[coordv1.Lease], empty[coordv1.LeaseList], gentype.PrefersProtobuf[*coordv1.Lease]())
}

// CSRs returns the client of certificate signing requests.
func (c *Client) CSRs() *gentype.ClientWithList[*certv1.CertificateSigningRequest, *certv1.CertificateSigningRequestList] {
	return gentype.NewClientWithList("certificatesigningrequests", c.of[certv1.SchemeGroupVersion], parameters, "",
		empty[certv1.CertificateSigningRequest], empty[certv1.CertificateSigningRequestList],
		gentype.PrefersProtobuf[*certv1.CertificateSigningRequest]())
}

// Decide writes the decision in r's conditions: approved or denied. It goes through the
// request's subresource approval, as kubectl certificate does. Its errors are those of
// the API server.
func (c *Client) Decide(ctx context.Context, r *certv1.CertificateSigningRequest) error {
	return c.of[certv1.SchemeGroupVersion].Put().UseProtobufAsDefault().Resource("certificatesigningrequests").
		Name(r.Name).SubResource("approval").Body(r).Do(ctx).Error()
}

// ClusterRoles returns the client of ClusterRoles.
func (c *Client) ClusterRoles() *gentype.Client[*rbacv1.ClusterRole] {
	return gentype.NewClient("clusterroles", c.of[rbacv1.SchemeGroupVersion], parameters, "",
		empty[rbacv1.ClusterRole], gentype.PrefersProtobuf[*rbacv1.ClusterRole]())
}

// ClusterRoleBindings returns the client of ClusterRoleBindings.
func (c *Client) ClusterRoleBindings() *gentype.Client[*rbacv1.ClusterRoleBinding] {
	return gentype.NewClient("clusterrolebindings", c.of[rbacv1.SchemeGroupVersion], parameters, "",
		empty[rbacv1.ClusterRoleBinding], gentype.PrefersProtobuf[*rbacv1.ClusterRoleBinding]())
}

// Raw returns the API server's answer to a GET of path. Its errors are those of the API
// server.
func (c *Client) Raw(ctx context.Context, path string) ([]byte, error) {
	return c.of[corev1.SchemeGroupVersion].Get().AbsPath(path).DoRaw(ctx)
}

func empty[T any]() *T { return new(T) }
