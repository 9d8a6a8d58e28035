package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	// resyncPeriod is how long a route, rule or file that somebody else took
	// away stays away. A resync reads the local cache, not the API server.
	resyncPeriod = time.Minute

	// retryPeriod is the pause after a sync that failed.
	retryPeriod = 5 * time.Second
)

// An agent keeps the network of one node in line with the Node objects.
type agent struct {
	node       string
	podSubnets []netip.Prefix
	nodes      cache.Store
	informer   cache.Controller
	changed    chan struct{} // holds at most one pending request to sync
}

// newAgent returns an agent for the named node. podSubnets are the subnets of
// the whole cluster, between which nothing is masqueraded.
func newAgent(config *rest.Config, node string, podSubnets []netip.Prefix) (*agent, error) {
	client, err := newNodeClient(config)
	if err != nil {
		return nil, err
	}
	a := &agent{node: node, podSubnets: podSubnets, changed: make(chan struct{}, 1)}
	a.nodes, a.informer = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client, "nodes", metav1.NamespaceAll, fields.Everything()),
		ObjectType:    &corev1.Node{},
		ResyncPeriod:  resyncPeriod,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { a.notify() },
			DeleteFunc: func(any) { a.notify() },
			UpdateFunc: func(before, after any) {
				if needsSync(before.(*corev1.Node), after.(*corev1.Node)) {
					a.notify()
				}
			},
		},
	})
	return a, nil
}

// newNodeClient returns a client that knows the core group only: a clientset
// would triple the size of the program.
func newNodeClient(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("failed to register the core types: %w", err)
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("failed to make an API client: %w", err)
	}
	return client, nil
}

// needsSync says whether an update of a node matters here. Most do not: they
// are heartbeats. A resync, which shows an object twice, always does.
func needsSync(before, after *corev1.Node) bool {
	return before.ResourceVersion == after.ResourceVersion ||
		!slices.Equal(before.Spec.PodCIDRs, after.Spec.PodCIDRs) ||
		!slices.Equal(before.Status.Addresses, after.Status.Addresses)
}

// notify asks for a sync without waiting for it.
func (a *agent) notify() {
	select {
	case a.changed <- struct{}{}:
	default: // one is pending already
	}
}

// run syncs on every relevant change until ctx ends. While the API server is
// away the informer retries with a back-off of its own and resyncs go on.
func (a *agent) run(ctx context.Context) error {
	slog.Info("waiting for the list of nodes")
	go a.informer.Run(ctx.Done())
	// A sync that knows only some of the nodes would remove good routes.
	if !cache.WaitForCacheSync(ctx.Done(), a.informer.HasSynced) {
		return nil // ctx ended
	}
	slog.Info("watching the nodes", "known", len(a.nodes.ListKeys()))
	a.notify()
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.changed:
		case <-retry:
		}
		retry = nil
		if err := a.sync(ctx); err != nil {
			slog.Error("sync failed", "retry-in", retryPeriod, "err", err)
			retry = time.After(retryPeriod)
		}
	}
}

// sync brings the node in line with the nodes known now. One part that fails
// does not keep the others from being done.
func (a *agent) sync(ctx context.Context) error {
	var nodes []*corev1.Node
	for _, obj := range a.nodes.List() {
		nodes = append(nodes, obj.(*corev1.Node))
	}
	want, err := plan(a.node, nodes)
	return errors.Join(
		err,
		syncRoutes(want.routes),
		syncMasquerade(ctx, a.podSubnets),
		syncConfig(want),
	)
}
