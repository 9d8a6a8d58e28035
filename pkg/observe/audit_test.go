package observe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// The lines have the shape of those that Kubernetes 1.37 writes, fields that no
// reader of flatline's looks at included.
var auditLines = map[string]struct {
	line string
	want timeline.Event // Source and Stamp are the same for all
	id   string
}{
	"a node renews its Lease": {
		`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Request","auditID":"a1","stage":"ResponseComplete","requestURI":"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/w1?timeout=8s","verb":"update","user":{"username":"system:node:w1","groups":["system:nodes","system:authenticated"],"extra":{"authentication.kubernetes.io/credential-id":["X509SHA256=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"]}},"sourceIPs":["10.0.0.2","192.0.2.7"],"userAgent":"kubelet/v1.37.2 (linux/amd64) kubernetes/1234567","objectRef":{"resource":"leases","namespace":"kube-node-lease","name":"w1","uid":"u","apiGroup":"coordination.k8s.io","apiVersion":"v1","resourceVersion":"700"},"responseStatus":{"metadata":{},"code":200},"requestObject":{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"w1"},"spec":{"holderIdentity":"w1","leaseDurationSeconds":8,"renewTime":"2026-01-02T03:04:04.900000Z"}},"requestReceivedTimestamp":"2026-01-02T03:04:05.000001Z","stageTimestamp":"2026-01-02T03:04:05.000006Z","annotations":{"authorization.k8s.io/decision":"allow"}}`,
		timeline.Event{Type: "update", Object: "leases w1", Detail: map[string]string{"user": "system:node:w1", "ip": "10.0.0.2", "agent": "kubelet", "cred": "0123456789abcdef", "code": "200",
			"ns": "kube-node-lease", "bytes": "177", "base": "700", "took": "0.000005", "renew": "2026-01-02T03:04:04.900000Z"}},
		"a1 ResponseComplete",
	},
	"a controller manager renews the Lease of its election": {
		`{"auditID":"a1e","stage":"ResponseComplete","requestURI":"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager?timeout=5s","verb":"update","user":{"username":"system:kube-controller-manager"},"sourceIPs":["10.0.0.1"],"userAgent":"kube-controller-manager/v1.37.2","objectRef":{"resource":"leases","namespace":"kube-system","name":"kube-controller-manager"},"responseStatus":{"code":200},"requestObject":{"spec":{"holderIdentity":"cp_77e0","leaseDurationSeconds":15,"renewTime":"2026-01-02T03:04:05.000000Z"}},"stageTimestamp":"2026-01-02T03:04:05.000006Z"}`,
		timeline.Event{Type: "update", Object: "leases kube-controller-manager", Detail: map[string]string{"user": "system:kube-controller-manager", "ip": "10.0.0.1", "agent": "kube-controller-manager", "code": "200",
			"ns": "kube-system", "bytes": "105", "renew": "2026-01-02T03:04:05.000000Z", "holder": "cp_77e0"}},
		"a1e ResponseComplete",
	},
	"nobody is refused with 401": {
		`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"a2","stage":"ResponseStarted","requestURI":"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/w1?timeout=8s","verb":"update","user":{},"sourceIPs":["10.0.0.2"],"userAgent":"kubelet/v1.37.2 (linux/amd64)","objectRef":{"resource":"leases","namespace":"kube-node-lease","name":"w1","apiGroup":"coordination.k8s.io","apiVersion":"v1"},"responseStatus":{"metadata":{},"status":"Failure","message":"Authentication failed, attempted: x509","code":401},"stageTimestamp":"2026-01-02T03:04:05.000006Z"}`,
		timeline.Event{Type: "update", Object: "leases w1", Detail: map[string]string{"ip": "10.0.0.2", "agent": "kubelet", "code": "401", "ns": "kube-node-lease", "stage": "ResponseStarted",
			"uri": "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/w1?timeout=8s"}},
		"a2 ResponseStarted",
	},
	"anonymous is refused its Lease with 403": {
		`{"auditID":"a3","stage":"ResponseComplete","requestURI":"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/w1","verb":"get","user":{"username":"system:anonymous","groups":["system:unauthenticated"]},"sourceIPs":["10.0.0.2"],"userAgent":"kubelet/v1.37.2","objectRef":{"resource":"leases","namespace":"kube-node-lease","name":"w1"},"responseStatus":{"status":"Failure","reason":"Forbidden","code":403},"stageTimestamp":"2026-01-02T03:04:05.000006Z"}`,
		timeline.Event{Type: "get", Object: "leases w1", Detail: map[string]string{"user": "system:anonymous", "ip": "10.0.0.2", "agent": "kubelet", "code": "403", "ns": "kube-node-lease",
			"uri": "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/w1"}},
		"a3 ResponseComplete",
	},
	"anonymous is refused its status with 403": {
		`{"auditID":"a4","stage":"ResponseComplete","requestURI":"/api/v1/nodes/w1/status?timeout=10s","verb":"patch","user":{"username":"system:anonymous"},"sourceIPs":["10.0.0.2"],"userAgent":"kubelet/v1.37.2","objectRef":{"resource":"nodes","name":"w1","apiVersion":"v1","subresource":"status"},"responseStatus":{"code":403},"requestObject":{"status":{"$setElementOrder/conditions":[{"type":"Ready"}],"conditions":[{"lastHeartbeatTime":"2026-01-02T03:04:05Z","type":"Ready"}]}},"stageTimestamp":"2026-01-02T03:04:05.000006Z"}`,
		timeline.Event{Type: "patch", Object: "nodes/status w1", Detail: map[string]string{"user": "system:anonymous", "ip": "10.0.0.2", "agent": "kubelet", "code": "403",
			"uri": "/api/v1/nodes/w1/status?timeout=10s", "bytes": "136"}},
		"a4 ResponseComplete",
	},
	"the node controller taints": {
		`{"auditID":"a5","stage":"ResponseComplete","requestURI":"/api/v1/nodes/w1","verb":"patch","user":{"username":"system:serviceaccount:kube-system:node-controller","extra":{"authentication.kubernetes.io/credential-id":["JTI=0000"]}},"sourceIPs":["10.0.0.1"],"userAgent":"kube-controller-manager/v1.37.2 (linux/amd64) kubernetes/1234567/system:serviceaccount:kube-system:node-controller","objectRef":{"resource":"nodes","name":"w1"},"responseStatus":{"code":200},"requestObject":{"metadata":{"resourceVersion":"9"},"spec":{"taints":[{"effect":"NoSchedule","key":"node.kubernetes.io/unreachable","timeAdded":"2026-01-02T03:04:05Z"},{"effect":"NoExecute","key":"node.kubernetes.io/unreachable"}]}},"stageTimestamp":"2026-01-02T03:04:05.000006Z"}`,
		timeline.Event{Type: "patch", Object: "nodes w1", Detail: map[string]string{"user": "system:serviceaccount:kube-system:node-controller", "ip": "10.0.0.1", "agent": "kube-controller-manager", "code": "200",
			"bytes": "216", "base": "9", "taints": "node.kubernetes.io/unreachable:NoSchedule,node.kubernetes.io/unreachable:NoExecute"}},
		"a5 ResponseComplete",
	},
	"the last taint goes": { // null is "none", which is not the same as a patch about something else
		`{"auditID":"a6","stage":"ResponseComplete","requestURI":"/api/v1/nodes/w1","verb":"patch","user":{"username":"system:serviceaccount:kube-system:node-controller"},"objectRef":{"resource":"nodes","name":"w1"},"responseStatus":{"code":200},"requestObject":{"spec":{"taints":null}},"stageTimestamp":"2026-01-02T03:04:05.000006Z"}`,
		timeline.Event{Type: "patch", Object: "nodes w1", Detail: map[string]string{"user": "system:serviceaccount:kube-system:node-controller", "code": "200", "bytes": "24", "taints": "none"}},
		"a6 ResponseComplete",
	},
	"a patch of labels says nothing of taints": {
		`{"auditID":"a7","stage":"ResponseComplete","requestURI":"/api/v1/nodes/w1","verb":"patch","user":{"username":"u"},"objectRef":{"resource":"nodes","name":"w1"},"responseStatus":{"code":200},"requestObject":{"metadata":{"labels":{"a":"b"}},"spec":{}},"stageTimestamp":"2026-01-02T03:04:05.000006Z"}`,
		timeline.Event{Type: "patch", Object: "nodes w1", Detail: map[string]string{"user": "u", "code": "200", "bytes": "43"}},
		"a7 ResponseComplete",
	},
	"the node controller writes Unknown": {
		`{"auditID":"a8","stage":"ResponseComplete","requestURI":"/api/v1/nodes/w1/status","verb":"update","user":{"username":"system:serviceaccount:kube-system:node-controller"},"objectRef":{"resource":"nodes","name":"w1","subresource":"status"},"responseStatus":{"code":200},"requestObject":{"status":{"conditions":[{"type":"MemoryPressure","status":"Unknown","reason":"NodeStatusUnknown"},{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown"},{"type":"PIDPressure","status":"False","reason":"Other"}]}},"stageTimestamp":"2026-01-02T03:04:05.000006Z"}`,
		timeline.Event{Type: "update", Object: "nodes/status w1", Detail: map[string]string{"user": "system:serviceaccount:kube-system:node-controller", "code": "200", "bytes": "223", "ready": "Unknown", "reason": "NodeStatusUnknown"}},
		"a8 ResponseComplete",
	},
	"a node asks for a certificate": {
		`{"auditID":"a9","stage":"ResponseComplete","requestURI":"/apis/certificates.k8s.io/v1/certificatesigningrequests","verb":"create","user":{"username":"system:node:w1"},"sourceIPs":["10.0.0.2"],"userAgent":"kubelet/v1.37.2","objectRef":{"resource":"certificatesigningrequests","apiGroup":"certificates.k8s.io"},"responseStatus":{"code":201},"requestObject":{"metadata":{"generateName":"csr-"},"spec":{"signerName":"kubernetes.io/kube-apiserver-client-kubelet"},"status":{}},"stageTimestamp":"2026-01-02T03:04:05.000006Z"}`,
		timeline.Event{Type: "create", Object: "certificatesigningrequests", Detail: map[string]string{"user": "system:node:w1", "ip": "10.0.0.2", "agent": "kubelet", "code": "201", "bytes": "116", "signer": "kubernetes.io/kube-apiserver-client-kubelet"}},
		"a9 ResponseComplete",
	},
	"a request is approved": {
		`{"auditID":"b1","stage":"ResponseComplete","requestURI":"/apis/certificates.k8s.io/v1/certificatesigningrequests/csr-1/approval","verb":"update","user":{"username":"system:serviceaccount:kube-system:certificate-controller"},"objectRef":{"resource":"certificatesigningrequests","name":"csr-1","subresource":"approval"},"responseStatus":{"code":200},"requestObject":{"status":{"conditions":[{"type":"Approved","status":"True","reason":"AutoApproved"}]}},"stageTimestamp":"2026-01-02T03:04:05.000006Z"}`,
		timeline.Event{Type: "update", Object: "certificatesigningrequests/approval csr-1", Detail: map[string]string{"user": "system:serviceaccount:kube-system:certificate-controller", "code": "200", "bytes": "87", "condition": "Approved"}},
		"b1 ResponseComplete",
	},
	"a binding gets other subjects": {
		`{"auditID":"b2","stage":"ResponseComplete","requestURI":"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/x","verb":"patch","user":{"username":"kubernetes-admin"},"userAgent":"kubectl/v1.37.2","objectRef":{"resource":"clusterrolebindings","name":"x"},"responseStatus":{"code":200},"requestObject":{"subjects":[{"kind":"User","name":"system:node:cp"},{"kind":"Group","name":"g"}]},"stageTimestamp":"2026-01-02T03:04:05.000006Z"}`,
		timeline.Event{Type: "patch", Object: "clusterrolebindings x", Detail: map[string]string{"user": "kubernetes-admin", "agent": "kubectl", "code": "200", "bytes": "82", "subjects": "User system:node:cp, Group g"}},
		"b2 ResponseComplete",
	},
	"a request outside of any resource": {
		`{"auditID":"b3","stage":"ResponseComplete","requestURI":"/healthz?verbose","verb":"get","user":{"username":"system:anonymous"},"responseStatus":{"code":403},"stageTimestamp":"2026-01-02T03:04:05.000006Z"}`,
		timeline.Event{Type: "get", Object: "/healthz?verbose", Detail: map[string]string{"user": "system:anonymous", "code": "403"}},
		"b3 ResponseComplete",
	},
	"a JSON patch keeps verb and object": {
		`{"auditID":"b4","stage":"ResponseComplete","requestURI":"/api/v1/nodes/w1","verb":"patch","user":{"username":"u"},"objectRef":{"resource":"nodes","name":"w1"},"responseStatus":{"code":200},"requestObject":[{"op":"remove","path":"/spec/taints"}],"stageTimestamp":"2026-01-02T03:04:05.000006Z"}`,
		timeline.Event{Type: "patch", Object: "nodes w1", Detail: map[string]string{"user": "u", "code": "200", "bytes": "39"}},
		"b4 ResponseComplete",
	},
	"a watch has begun": {
		`{"auditID":"b5","stage":"ResponseStarted","requestURI":"/api/v1/nodes?watch=true","verb":"watch","user":{"username":"system:node:w1"},"objectRef":{"resource":"nodes","name":"w1"},"responseStatus":{"code":200},"stageTimestamp":"2026-01-02T03:04:05.000006Z"}`,
		timeline.Event{Type: "watch", Object: "nodes w1", Detail: map[string]string{"user": "system:node:w1", "code": "200", "stage": "ResponseStarted"}},
		"b5 ResponseStarted",
	},
	"a short credential id": {
		`{"auditID":"b6","stage":"Panic","requestURI":"/x","verb":"get","user":{"username":"u","extra":{"authentication.kubernetes.io/credential-id":["X509SHA256=ab"]}},"stageTimestamp":"2026-01-02T03:04:05.000006Z"}`,
		timeline.Event{Type: "get", Object: "/x", Detail: map[string]string{"user": "u", "cred": "ab", "stage": "Panic"}},
		"b6 Panic",
	},
}

func TestParseAudit(t *testing.T) {
	for name, tc := range auditLines {
		t.Run(name, func(t *testing.T) {
			e, id, err := ParseAudit([]byte(tc.line + "\n"))
			if err != nil {
				t.Fatal(err)
			}
			want := tc.want
			want.Source, want.Stamp = "audit", time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
			if !e.Equal(want) {
				t.Errorf("got  %+v\nwant %+v", e, want)
			}
			if id != tc.id {
				t.Errorf("id is %q, want %q", id, tc.id)
			}
		})
	}
}

func TestParseAuditRefusesGarbage(t *testing.T) {
	for name, line := range map[string]string{
		"empty":       "\n",
		"no JSON":     "Error from server\n",
		"half a line": `{"auditID":"a1","stage":"ResponseComp`,
		"no id":       `{"stage":"ResponseComplete","verb":"get","requestURI":"/x"}`,
		"no verb":     `{"auditID":"a1","stage":"ResponseComplete","requestURI":"/x"}`,
		"null":        "null",
		"bad time":    `{"auditID":"a1","verb":"get","stageTimestamp":"yesterday"}`,
	} {
		t.Run(name, func(t *testing.T) {
			if e, _, err := ParseAudit([]byte(line)); err == nil || !strings.Contains(err.Error(), "parsing audit line") {
				t.Errorf("got %+v, error %v", e, err)
			}
		})
	}
}

func FuzzParseAudit(f *testing.F) {
	for _, tc := range auditLines {
		f.Add([]byte(tc.line))
	}
	f.Add([]byte(`{"auditID":"a","verb":"patch","requestObject":{"spec":{"taints":"no list"},"subjects":[]}}`))
	f.Add([]byte(`{"auditID":"a","verb":"get","sourceIPs":[],"responseStatus":null,"objectRef":{"name":"x"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, id, err := ParseAudit(line)
		if err != nil {
			if e.Type != "" || id != "" {
				t.Errorf("refused, and yet %+v under id %q", e, id)
			}
			return
		}
		if e.Source != "audit" || e.Type == "" || id == "" {
			t.Errorf("event %+v under id %q", e, id)
		}
		if len(e.Detail["cred"]) > 16 {
			t.Errorf("cred %q", e.Detail["cred"])
		}
		for k, v := range e.Detail {
			if v == "" {
				t.Errorf("an empty detail %s", k)
			}
		}
		if _, err := json.Marshal(e); err != nil && e.Stamp.UTC().Year() <= 9999 && e.Stamp.UTC().Year() >= 0 {
			t.Errorf("%+v cannot be written: %v", e, err)
		}
	})
}

// A logNode is a node with one file that grows. cuts says after how many bytes
// the next streams break; a stream without a cut goes on.
type logNode struct {
	mu      sync.Mutex
	log     []byte
	changed chan struct{}
	cuts    []int
	tails   []string // the offsets asked for, in tail's counting, "-F" marked
	stat    func() (string, error)
	noTail  error
}

func newLogNode(log string) *logNode {
	return &logNode{log: []byte(log), changed: make(chan struct{})}
}

func (n *logNode) append(s string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log = append(n.log, s...)
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *logNode) Exec(ctx context.Context, _ io.Reader, stdout io.Writer, argv ...string) error {
	if argv[0] == "stat" {
		if n.stat != nil {
			s, err := n.stat()
			io.WriteString(stdout, s)
			return err
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		_, err := fmt.Fprintln(stdout, len(n.log))
		return err
	}
	follow := argv[2] == followScript
	if follow {
		argv = []string{"tail", "-c", "+" + argv[4], argv[5]}
	}
	if argv[0] != "tail" || argv[1] != "-c" || argv[3] != "/audit.log" {
		return fmt.Errorf("no such command: %q", argv)
	}
	first, err := strconv.Atoi(strings.TrimPrefix(argv[2], "+"))
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.tails = append(n.tails, argv[2]+map[bool]string{true: " -F"}[follow])
	if n.noTail != nil {
		n.mu.Unlock()
		return n.noTail
	}
	left := 1 << 30
	if follow && len(n.cuts) > 0 {
		left, n.cuts = n.cuts[0], n.cuts[1:]
	}
	n.mu.Unlock()
	for at := first - 1; ; {
		n.mu.Lock()
		part, changed := n.log[min(at, len(n.log)):], n.changed
		n.mu.Unlock()
		part = part[:min(left, len(part))]
		if _, err := stdout.Write(part); err != nil {
			return err
		}
		at, left = at+len(part), left-len(part)
		switch {
		case left == 0:
			return errors.New("connection reset")
		case !follow:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func auditLine(id string) string {
	return `{"auditID":"` + id + `","stage":"ResponseComplete","verb":"get","requestURI":"/` + id + `","stageTimestamp":"2026-01-02T03:04:05.000006Z"}` + "\n"
}

// A tape collects what a source emits.
type tape struct {
	mu     sync.Mutex
	events []timeline.Event
	readys int
}

func (t *tape) emit(e timeline.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, e)
}

// ready leaves its mark between the events, so that order can be asserted.
func (t *tape) ready() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readys++
	t.events = append(t.events, timeline.Event{Type: "ready"})
}

func (t *tape) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var s []string
	for _, e := range t.events {
		s = append(s, strings.TrimSpace(e.Type+" "+e.Object))
	}
	return s
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestAuditResumesACutStreamAtTheLineThatBroke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		before := auditLine("before")
		n := newLogNode(before)
		n.cuts = []int{len(auditLine("a")) + 20, 30} // in the middle of b, twice
		a := &Audit{Node: n, Path: "/audit.log"}
		var tape tape
		done := make(chan error)
		go func() { done <- a.Run(ctx, tape.ready, tape.emit) }()
		synctest.Wait()
		wantLines(t, tape.lines(), "ready")

		n.append(auditLine("a") + auditLine("b"))
		time.Sleep(time.Second)
		n.append(auditLine("c")[:50])
		synctest.Wait()
		n.append(auditLine("c")[50:])
		synctest.Wait()
		wantLines(t, tape.lines(), "ready", "get /a", "StreamCut", "StreamCut", "get /b", "get /c")
		offset := strconv.Itoa(len(before) + len(auditLine("a")))
		for _, e := range tape.events[2:4] {
			if e.Source != "audit" || e.Detail["offset"] != offset || e.Detail["why"] != "connection reset" {
				t.Errorf("the cut is told as %+v, want offset %s", e, offset)
			}
		}
		wantLines(t, n.tails, fmt.Sprintf("+%d -F", len(before)+1), fmt.Sprintf("+%d -F", len(before)+len(auditLine("a"))+1), fmt.Sprintf("+%d -F", len(before)+len(auditLine("a"))+1))

		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v after its context ended", err)
		}
	})
}

func TestAuditReadAllEmitsExactlyWhatTheStreamMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		n := newLogNode(auditLine("before"))
		a := &Audit{Node: n, Path: "/audit.log"}
		var tape tape
		done := make(chan error)
		go func() { done <- a.Run(ctx, tape.ready, tape.emit) }()
		synctest.Wait()
		n.append(auditLine("a") + "no JSON\n" + auditLine("a")) // the log may repeat a line
		synctest.Wait()
		cancel()
		<-done
		wantLines(t, tape.lines(), "ready", "get /a", "Unreadable")

		sameIDOtherStage := strings.Replace(auditLine("a"), "ResponseComplete", "ResponseStarted", 1)
		n.append(auditLine("late") + sameIDOtherStage + auditLine("torn")[:60])
		for range 2 { // the second time there is nothing new
			if err := a.ReadAll(t.Context(), tape.emit); err != nil {
				t.Fatal(err)
			}
			wantLines(t, tape.lines(), "ready", "get /a", "Unreadable", "get /late", "get /a")
		}
		n.noTail = errors.New("no such container")
		if err := a.ReadAll(t.Context(), tape.emit); err == nil || !errors.Is(err, n.noTail) {
			t.Errorf("ReadAll returned %v", err)
		}
	})
}

func TestAuditRetriesWithGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := newLogNode("")
		n.noTail = errors.New("paused")
		a := &Audit{Node: n, Path: "/audit.log"}
		start := time.Now()
		var when []time.Duration
		go a.Run(ctx, func() {}, func(timeline.Event) { when = append(when, time.Since(start)) })
		time.Sleep(12 * time.Second)
		synctest.Wait()
		ms := time.Millisecond
		if want := []time.Duration{0, 100 * ms, 300 * ms, 700 * ms, 1500 * ms, 3100 * ms, 6300 * ms, 11300 * ms}; !slices.Equal(when, want) {
			t.Errorf("cuts at %v, want %v", when, want)
		}
	})
}

func TestAuditIsNotReadyWithoutALog(t *testing.T) {
	for name, stat := range map[string]func() (string, error){
		"no file":   func() (string, error) { return "", errors.New("No such file") },
		"no number": func() (string, error) { return "busy\n", nil },
	} {
		t.Run(name, func(t *testing.T) {
			n := newLogNode("")
			n.stat = stat
			var tape tape
			err := (&Audit{Node: n, Path: "/audit.log"}).Run(t.Context(), tape.ready, tape.emit)
			if err == nil || !strings.Contains(err.Error(), "/audit.log") || tape.readys != 0 {
				t.Errorf("error %v, %d times ready", err, tape.readys)
			}
		})
	}
}

func TestTaintListHasAWordForNone(t *testing.T) {
	if got := taintList(nil); got != "none" {
		t.Errorf("no taints are %q", got)
	}
	if got := taintList([]string{"a:NoSchedule", "b:NoExecute"}); got != "a:NoSchedule,b:NoExecute" {
		t.Errorf("two taints are %q", got)
	}
}

// A stream in a node ends with anybody who reads it, and nothing of it stays.
func TestFollowScript(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the script is for a node's bash and tail")
	}
	name := filepath.Join(t.TempDir(), "a b'\"$(x).log")
	if err := os.WriteFile(name, []byte("one\ntwo\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-c", followScript, "bash", "5", name)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(out)
	for _, want := range []string{"two\n", "three\n"} {
		if line, err := br.ReadString('\n'); line != want || err != nil {
			t.Errorf("read %q, error %v; want %q", line, err, want)
		}
		f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("three\n"); errors.Join(err, f.Close()) != nil {
			t.Fatal(err)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, br); err != nil { // to its end: nobody holds it open
		t.Error(err)
	}
	_ = cmd.Wait() // killed
}
