// Package kubefake answers the requests of a cluster.Client from objects in memory, for
// tests of logic. Everything but the network is real: paths, parameters and encodings are
// those of a request to an API server.
package kubefake

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	kubetesting "k8s.io/client-go/testing"

	"github.com/flatline-chaos/flatline/pkg/cluster"
)

// An API is what the requests of one client find. Actions says what was asked, and
// PrependReactor lets a test answer in its place.
type API struct {
	kubetesting.Fake
	tracker kubetesting.ObjectTracker
}

// New returns a client of an API server that has objects. It panics on what is no object of
// Kubernetes.
func New(objects ...runtime.Object) (*cluster.Client, *API) {
	api := &API{tracker: kubetesting.NewObjectTracker(cluster.Scheme, codecs.UniversalDecoder())}
	for _, o := range objects {
		if err := api.tracker.Add(o); err != nil {
			panic(err)
		}
	}
	api.AddReactor("*", "*", kubetesting.ObjectReaction(api.tracker))
	return Client(api), api
}

// Tracker has the objects.
func (a *API) Tracker() kubetesting.ObjectTracker { return a.tracker }

// Client returns a client whose requests go to wire.
func Client(wire http.RoundTripper) *cluster.Client {
	c, err := cluster.NewClient(&rest.Config{Host: "http://apiserver.invalid", Transport: wire, QPS: -1})
	if err != nil {
		panic(err)
	}
	return c
}

var codecs = serializer.NewCodecFactory(cluster.Scheme)

// RoundTrip implements http.RoundTripper.
func (a *API) RoundTrip(r *http.Request) (*http.Response, error) {
	action, err := read(r)
	if err != nil {
		return nil, err
	}
	o, err := a.Invokes(action, &metav1.Status{Status: metav1.StatusSuccess})
	code := http.StatusOK
	if refused := apierrors.APIStatus(nil); errors.As(err, &refused) {
		status := refused.Status()
		o, code = &status, int(status.Code)
	} else if err != nil {
		return nil, err
	}
	version := action.GetResource().GroupVersion()
	if _, ok := o.(*metav1.Status); ok {
		version = schema.GroupVersion{Version: "v1"}
	}
	if o == nil {
		o = &metav1.Status{Status: metav1.StatusSuccess}
	}
	body, err := runtime.Encode(codecs.LegacyCodec(version), o)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(bytes.NewReader(body))}, nil
}

// A target is what the path of a request names.
type target struct {
	resource                     schema.GroupVersionResource
	kind                         schema.GroupVersionKind
	namespace, name, subresource string
}

// read says what a request asks for.
func read(r *http.Request) (kubetesting.Action, error) {
	t, err := named(r.URL.Path)
	if err != nil {
		return nil, err
	}
	var o runtime.Object
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if o, err = runtime.Decode(codecs.UniversalDeserializer(), body); err != nil {
			return nil, err
		}
	}
	switch {
	case r.Method == http.MethodGet && t.name == "":
		var opts metav1.ListOptions
		if err := metav1.Convert_url_Values_To_v1_ListOptions(ptr(r.URL.Query()), &opts, nil); err != nil {
			return nil, err
		}
		return kubetesting.NewListActionWithOptions(t.resource, t.kind, t.namespace, opts), nil
	case r.Method == http.MethodGet:
		return kubetesting.NewGetSubresourceAction(t.resource, t.namespace, t.subresource, t.name), nil
	case r.Method == http.MethodPost:
		return kubetesting.NewCreateAction(t.resource, t.namespace, o), nil
	case r.Method == http.MethodPut:
		return kubetesting.NewUpdateSubresourceAction(t.resource, t.subresource, t.namespace, o), nil
	case r.Method == http.MethodDelete:
		return kubetesting.NewDeleteAction(t.resource, t.namespace, t.name), nil
	}
	return nil, fmt.Errorf("%s %s is not known", r.Method, r.URL.Path)
}

// named reads /api/v1 or /apis/GROUP/VERSION, then namespaces/NAMESPACE if more follows,
// then RESOURCE/NAME/SUBRESOURCE.
func named(path string) (t target, err error) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var gv schema.GroupVersion
	switch {
	case parts[0] == "api" && len(parts) > 2:
		gv, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		gv, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return t, fmt.Errorf("%s names no resource", path)
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.resource = gv.WithResource(parts[0])
	parts = append(parts, "", "")
	t.name, t.subresource = parts[1], parts[2]
	for kind := range cluster.Scheme.KnownTypes(gv) {
		if plural, _ := meta.UnsafeGuessKindToResource(gv.WithKind(kind)); plural == t.resource {
			t.kind = gv.WithKind(kind)
			return t, nil
		}
	}
	return t, fmt.Errorf("%s names a resource that is not known", path)
}

func ptr[T any](v T) *T { return &v }
