package observe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// A Watch follows one kind of object edge by edge: every change is an event. It
// does not use an informer, whose relist would swallow edges in silence; when the
// server cannot continue a watch, it says so with a Gap event and lists afresh.
// Detail has the object's resourceVersion under rv: an event says which state the
// object came to, and its arrival is only the latest time at which it did.
type Watch struct {
	// Resource is the plural name, as in audit entries: "leases".
	Resource string
	list     func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch    func(context.Context, metav1.ListOptions) (watch.Interface, error)
	describe func(runtime.Object) (stamp time.Time, detail map[string]string)
}

// A ListerWatcher lists and watches the objects of one resource. The typed clients of
// client-go are such, those of kubernetes.Interface too.
type ListerWatcher[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// Leases watches the heartbeats of all nodes: api is that of
// namespace kube-node-lease. Stamp is renewTime, by the
// kubelet's clock.
func Leases(api ListerWatcher[*coordv1.LeaseList]) *Watch {
	return &Watch{"leases",
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return api.List(ctx, o) },
		api.Watch,
		func(o runtime.Object) (time.Time, map[string]string) {
			l := o.(*coordv1.Lease)
			if l.Spec.RenewTime == nil {
				return time.Time{}, map[string]string{}
			}
			return l.Spec.RenewTime.Time, map[string]string{"renew": l.Spec.RenewTime.UTC().Format(metav1.RFC3339Micro)}
		}}
}

// Nodes watches node conditions and taints. lastHeartbeatTime and timeAdded have
// other meanings than their names say and are left out.
func Nodes(api ListerWatcher[*corev1.NodeList]) *Watch {
	return &Watch{"nodes",
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return api.List(ctx, o) },
		api.Watch,
		func(o runtime.Object) (time.Time, map[string]string) {
			n := o.(*corev1.Node)
			d := map[string]string{}
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady {
					d["ready"], d["reason"] = string(c.Status), c.Reason
				}
			}
			var taints []string
			for _, t := range n.Spec.Taints {
				taints = append(taints, t.Key+":"+string(t.Effect))
			}
			d["taints"] = taintList(taints)
			return time.Time{}, d
		}}
}

// Pods watches the pods of all namespaces, or of the one that api is of. Detail: node, ready, phase, deleting
// (only while a deletion is under way), canary (the label flatline.dev/canary).
func Pods(api ListerWatcher[*corev1.PodList]) *Watch {
	return &Watch{"pods",
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return api.List(ctx, o) },
		api.Watch,
		func(o runtime.Object) (time.Time, map[string]string) {
			p := o.(*corev1.Pod)
			d := map[string]string{"ns": p.Namespace, "node": p.Spec.NodeName, "phase": string(p.Status.Phase), "ready": "False"}
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodReady {
					d["ready"] = string(c.Status)
				}
			}
			if p.DeletionTimestamp != nil {
				d["deleting"] = "true"
			}
			if v := p.Labels[CanaryLabel]; v != "" {
				d["canary"] = v
			}
			return time.Time{}, d
		}}
}

// CanaryLabel marks the pods that an experiment evicts on purpose; its value is
// the pod's toleration.
const CanaryLabel = "flatline.dev/canary"

// CSRs watches certificate signing requests. Detail: user, signer, state
// (Pending, Approved, Issued, Denied, Failed), and of the certificate that was
// issued cred and serial, as in TypeCertificate.
func CSRs(api ListerWatcher[*certv1.CertificateSigningRequestList]) *Watch {
	return &Watch{"certificatesigningrequests",
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return api.List(ctx, o) },
		api.Watch,
		func(o runtime.Object) (time.Time, map[string]string) {
			r := o.(*certv1.CertificateSigningRequest)
			d := map[string]string{"user": r.Spec.Username, "signer": r.Spec.SignerName, "state": CSRState(r)}
			if len(r.Status.Certificate) > 0 {
				issued := map[string]string{}
				DescribeCertificate(r.Status.Certificate, issued)
				d["cred"], d["serial"] = issued["cred"], issued["serial"]
			}
			return time.Time{}, d
		}}
}

// CSRState is the furthest that a request has come: Pending, Approved, Issued,
// Denied or Failed.
func CSRState(r *certv1.CertificateSigningRequest) string {
	state := "Pending"
	for _, c := range r.Status.Conditions {
		state = string(c.Type)
	}
	if len(r.Status.Certificate) > 0 {
		state = "Issued"
	}
	return state
}

// Run implements Source.
func (w *Watch) Run(ctx context.Context, ready func(), emit func(timeline.Event)) error {
	for wait := 200 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := w.once(ctx, ready, emit)
		if ctx.Err() != nil {
			return nil
		}
		emit(timeline.Event{Source: timeline.SourceWatch, Type: timeline.TypeGap, Object: w.Resource,
			Detail: map[string]string{"why": err.Error()}})
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// once lists, then watches from there until the server cannot go on.
func (w *Watch) once(ctx context.Context, ready func(), emit func(timeline.Event)) error {
	list, err := w.list(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing %s: %w", w.Resource, err)
	}
	version, err := listVersion(list)
	if err != nil {
		return err
	}
	if err := meta.EachListItem(list, func(o runtime.Object) error { emit(w.event(timeline.TypeListed, o)); return nil }); err != nil {
		return fmt.Errorf("listing %s: %w", w.Resource, err)
	}
	rw, err := watchtools.NewRetryWatcherWithContext(ctx, version, &cache.ListWatch{WatchFuncWithContext: w.watch})
	if err != nil {
		return fmt.Errorf("watching %s: %w", w.Resource, err)
	}
	defer rw.Stop()
	ready()
	emit(timeline.Event{Source: timeline.SourceWatch, Type: timeline.TypeWatching, Object: w.Resource})
	for e := range rw.ResultChan() {
		if e.Type == watch.Error {
			return fmt.Errorf("watching %s: %s", w.Resource, statusText(e.Object))
		}
		emit(w.event(strings.ToLower(string(e.Type)), e.Object))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.New("watching " + w.Resource + ": the watch ended")
}

func (w *Watch) event(typ string, o runtime.Object) timeline.Event {
	stamp, detail := w.describe(o)
	name := ""
	if m, ok := o.(metav1.Object); ok {
		name = m.GetName()
		detail["rv"] = m.GetResourceVersion()
	}
	return timeline.Event{Stamp: stamp, Source: timeline.SourceWatch, Type: typ, Object: w.Resource + " " + name, Detail: detail}
}

func listVersion(list runtime.Object) (string, error) {
	m, ok := list.(metav1.ListMetaAccessor)
	if !ok || m.GetListMeta().GetResourceVersion() == "" {
		return "", fmt.Errorf("listing: %T without a resource version", list)
	}
	return m.GetListMeta().GetResourceVersion(), nil
}

func statusText(o runtime.Object) string {
	if s, ok := o.(*metav1.Status); ok {
		return s.Message
	}
	return fmt.Sprintf("%T", o)
}
