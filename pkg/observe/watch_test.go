package observe

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// away is an API server that does not answer.
type away[L runtime.Object] struct{}

func (away[L]) List(context.Context, metav1.ListOptions) (l L, err error) {
	return l, errors.New("no network in tests")
}
func (away[L]) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, errors.New("no network in tests")
}

var (
	leases = Leases(away[*coordv1.LeaseList]{})
	nodes  = Nodes(away[*corev1.NodeList]{})
	pods   = Pods(away[*corev1.PodList]{})
	csrs   = CSRs(away[*certv1.CertificateSigningRequestList]{})
)

func TestWatchesDescribeWhatTheySee(t *testing.T) {
	renewed := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("", 3600)))
	deleted := metav1.Now()
	for name, tc := range map[string]struct {
		src   *Watch
		obj   runtime.Object
		want  map[string]string
		stamp time.Time
	}{
		"Lease": {leases, &coordv1.Lease{Spec: coordv1.LeaseSpec{RenewTime: &renewed}},
			map[string]string{"renew": "2026-01-02T02:04:05.000006Z"}, time.Date(2026, 1, 2, 2, 4, 5, 6000, time.UTC)},
		"Lease never renewed": {leases, &coordv1.Lease{}, map[string]string{}, time.Time{}},
		"node": {nodes, &corev1.Node{
			Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}, {Key: "k", Effect: corev1.TaintEffectNoExecute}}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
				{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", LastHeartbeatTime: metav1.Now()}}}},
			map[string]string{"ready": "Unknown", "reason": "NodeStatusUnknown", "taints": "k:NoSchedule,k:NoExecute"}, time.Time{}},
		"new node": {nodes, &corev1.Node{}, map[string]string{"taints": "none"}, time.Time{}},
		"pod": {pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{CanaryLabel: "5s"}, DeletionTimestamp: &deleted},
			Spec: corev1.PodSpec{NodeName: "w1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}},
			map[string]string{"ns": "ns", "node": "w1", "phase": "Running", "ready": "True", "deleting": "true", "canary": "5s"}, time.Time{}},
		"pod nobody placed": {pods, &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}},
			map[string]string{"ns": "", "node": "", "phase": "Pending", "ready": "False"}, time.Time{}},
		"CSR": {csrs, &certv1.CertificateSigningRequest{Spec: certv1.CertificateSigningRequestSpec{Username: "system:node:w1", SignerName: "s"}},
			map[string]string{"user": "system:node:w1", "signer": "s", "state": "Pending"}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			stamp, got := tc.src.describe(tc.obj)
			if !maps.Equal(got, tc.want) || !stamp.Equal(tc.stamp) {
				t.Errorf("got  %v at %v\nwant %v at %v", got, stamp, tc.want, tc.stamp)
			}
		})
	}
}

func TestCSRStateIsTheFurthest(t *testing.T) {
	condition := func(types ...certv1.RequestConditionType) (cs []certv1.CertificateSigningRequestCondition) {
		for _, c := range types {
			cs = append(cs, certv1.CertificateSigningRequestCondition{Type: c})
		}
		return cs
	}
	for want, status := range map[string]certv1.CertificateSigningRequestStatus{
		"Pending":  {},
		"Approved": {Conditions: condition(certv1.CertificateApproved)},
		"Denied":   {Conditions: condition(certv1.CertificateDenied)},
		"Failed":   {Conditions: condition(certv1.CertificateApproved, certv1.CertificateFailed)},
		"Issued":   {Conditions: condition(certv1.CertificateApproved), Certificate: []byte("PEM")},
	} {
		if got := CSRState(&certv1.CertificateSigningRequest{Status: status}); got != want {
			t.Errorf("%+v is %s, want %s", status, got, want)
		}
	}
}

// A store is the server's side of a Watch: each list and each watch takes the
// next of what was prepared.
type store struct {
	lists    []func() (runtime.Object, error)
	watchers chan *watch.FakeWatcher
	from     []string // the versions from which watches began
}

func (s *store) source(t *testing.T) *Watch {
	w := Nodes(away[*corev1.NodeList]{})
	w.list = func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		next := s.lists[0]
		s.lists = s.lists[1:]
		return next()
	}
	w.watch = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		s.from = append(s.from, o.ResourceVersion)
		select {
		case fw := <-s.watchers:
			return fw, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return w
}

func node(name, version string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
}

func nodeList(version string, nodes ...*corev1.Node) func() (runtime.Object, error) {
	return func() (runtime.Object, error) {
		l := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
		for _, n := range nodes {
			l.Items = append(l.Items, *n)
		}
		return l, nil
	}
}

func (t *tape) states() []string {
	s := t.lines()
	for i, e := range t.events {
		if r := e.Detail["ready"]; r != "" {
			s[i] += " " + r
		}
	}
	return s
}

func TestWatchFollowsEdgeByEdgeAndListsAfreshAfterGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &store{watchers: make(chan *watch.FakeWatcher, 3), lists: []func() (runtime.Object, error){
			nodeList("10", node("a", "7", "True"), node("b", "8", "True")), nodeList("30", node("a", "25", "False"))}}
		first, second, third := watch.NewFake(), watch.NewFake(), watch.NewFake()
		s.watchers <- first
		var tape tape
		done := make(chan error)
		go func() { done <- s.source(t).Run(ctx, tape.ready, tape.emit) }()
		synctest.Wait()
		wantLines(t, tape.states(), "listed nodes a True", "listed nodes b True", "ready", "Watching nodes")

		first.Modify(node("a", "11", "Unknown"))
		first.Modify(node("a", "12", "True")) // an informer might swallow the edge
		first.Add(node("c", "13", "True"))
		first.Delete(node("b", "14", "True"))
		first.Action(watch.Bookmark, node("", "20", ""))
		synctest.Wait()
		tail := func(n int) []string { s := tape.states(); return s[min(n, len(s)):] }
		wantLines(t, tail(4), "modified nodes a Unknown", "modified nodes a True", "added nodes c True", "deleted nodes b True")

		// A watch that ends is taken up where it was: nothing is missed, no gap.
		first.Stop()
		s.watchers <- second
		time.Sleep(time.Minute)
		second.Modify(node("a", "21", "False"))
		synctest.Wait()
		wantLines(t, tail(8), "modified nodes a False")

		second.Error(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version"})
		s.watchers <- third
		time.Sleep(time.Minute)
		third.Modify(node("a", "31", "True"))
		synctest.Wait()
		wantLines(t, tail(9), "Gap nodes", "listed nodes a False", "ready", "Watching nodes", "modified nodes a True")
		if gap := tape.events[9]; gap.Source != "watch" || gap.Detail["why"] != "watching nodes: too old resource version" {
			t.Errorf("the gap is %+v", gap)
		}
		wantLines(t, s.from, "10", "20", "30")

		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v after its context ended", err)
		}
		wantLines(t, tail(14))
	})
}

func TestWatchIsReadyOnlyWhenItWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := &store{watchers: make(chan *watch.FakeWatcher, 1), lists: []func() (runtime.Object, error){
			func() (runtime.Object, error) { return nil, errors.New("connection refused") },
			nodeList(""),  // a server that cannot say where it is
			nodeList("0"), // "any version" is nowhere to watch from
			nodeList("5"),
		}}
		s.watchers <- watch.NewFake()
		var tape tape
		go s.source(t).Run(ctx, tape.ready, tape.emit)
		time.Sleep(time.Minute)
		synctest.Wait()
		wantLines(t, tape.lines(), "Gap nodes", "Gap nodes", "Gap nodes", "ready", "Watching nodes")
		for i, want := range []string{"listing nodes: connection refused", "without a resource version", "watching nodes: initial RV"} {
			if got := tape.events[i].Detail["why"]; !strings.Contains(got, want) {
				t.Errorf("gap %d is there because of %q, want %q", i, got, want)
			}
		}
	})
}

func TestWatchStampsALeaseWithItsRenewTime(t *testing.T) {
	at := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC))
	e := leases.event("modified", &coordv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "w1"}, Spec: coordv1.LeaseSpec{RenewTime: &at}})
	if !e.Stamp.Equal(at.Time) || e.Source != "watch" || e.Type != "modified" || e.Object != "leases w1" {
		t.Errorf("got %+v", e)
	}
}
