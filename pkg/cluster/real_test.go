//go:build real

// Tests on real clusters: a container engine and a node image are needed, and minutes.
//
//	go test -tags real -run TestReal -v ./pkg/cluster
package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/flatline-chaos/flatline/pkg/cluster"
)

// spec returns what all the tests start from. Whatever happens, nothing stays behind.
func spec(t *testing.T, name string) cluster.Spec {
	t.Helper()
	image, err := cluster.ChooseImage(t.Context(), cluster.Choice{Override: os.Getenv("NODE_IMAGE")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Delete(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
	return cluster.Spec{
		Name: name, RunID: "real-test", Image: image.Ref, Workers: 1,
		Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"),
	}
}

func docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// nothingLeft checks that the engine is as it was before.
func nothingLeft(t *testing.T, s cluster.Spec, volumes string) {
	t.Helper()
	if left := docker(t, "ps", "-a", "--format", "{{.Names}}", "--filter", "label=dev.flatline.cluster="+s.Name); left != "" {
		t.Errorf("containers are left: %s", left)
	}
	if left := docker(t, "ps", "-a", "--format", "{{.Names}}", "--filter", "label=io.x-k8s.kind.cluster="+s.Name); left != "" {
		t.Errorf("kind's containers are left: %s", left)
	}
	if left := docker(t, "images", "-q", "flatline/run:"+s.Name); left != "" {
		t.Errorf("the image is left: %s", left)
	}
	if left := docker(t, "volume", "ls", "-q"); left != volumes {
		t.Errorf("volumes are %q, were %q", left, volumes)
	}
	if _, err := os.Lstat(s.Kubeconfig); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the kubeconfig is left: %v", err)
	}
	list, err := cluster.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(list, func(i cluster.Info) bool { return i.Name == s.Name }) {
		t.Errorf("it is still listed: %+v", list)
	}
}

func TestRealCluster(t *testing.T) {
	volumes := docker(t, "volume", "ls", "-q")
	s := spec(t, "flatline-real")
	s.Flags = map[string]map[string]string{
		"kube-apiserver":          {"default-unreachable-toleration-seconds": "31"},
		"kube-controller-manager": {"node-monitor-period": "1s", "node-monitor-grace-period": "12s", "cluster-signing-duration": "1h"},
		"etcd":                    {"heartbeat-interval": "150"},
		"kubelet":                 {"nodeLeaseDurationSeconds": "8", "logging.verbosity": "3"},
	}
	start := time.Now()
	c, err := cluster.Create(t.Context(), s, testLog{t})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("created in %s", time.Since(start))

	for _, n := range c.Nodes() {
		t.Logf("node %+v", *n)
		want := s.Name + " real-test SIGRTMIN+3 container=docker"
		got := docker(t, "inspect", "--format", `{{index .Config.Labels "dev.flatline.cluster"}} {{index .Config.Labels "dev.flatline.run"}} {{.Config.StopSignal}} {{range .Config.Env}}{{if eq . "container=docker"}}{{.}}{{end}}{{end}}`, n.Name)
		if got != want {
			t.Errorf("%s: labels, stop signal and environment are %q, want %q", n.Name, got, want)
		}
	}
	info, err := os.Stat(s.Kubeconfig)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("kubeconfig: %v %v", info, err)
	}
	list, err := cluster.List(t.Context())
	if err != nil || !slices.ContainsFunc(list, func(i cluster.Info) bool {
		return i.Name == s.Name && i.RunID == "real-test" && slices.Equal(i.Containers, []string{s.Name + "-control-plane", s.Name + "-worker"})
	}) {
		t.Errorf("list %+v %v", list, err)
	}

	t.Run("Again", func(t *testing.T) {
		s := s
		s.Kubeconfig += "2"
		if _, err := cluster.Create(t.Context(), s, testLog{t}); err == nil || !strings.Contains(err.Error(), "it exists already") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("AtWork", func(t *testing.T) { atWork(t, s) })
	t.Run("Kubeconfig", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := cluster.WriteKubeconfig(t.Context(), s.Name, path); err != nil {
			t.Fatal(err)
		}
		opened, err := cluster.Open(t.Context(), s.Name, path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := opened.Flags(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("Exec", func(t *testing.T) { execs(t, c.Nodes()[1]) })
	t.Run("Flags", func(t *testing.T) {
		opened, err := cluster.Open(t.Context(), s.Name, s.Kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		flags(t, opened)
	})
	t.Run("Audit", func(t *testing.T) { audit(t, c) })

	start = time.Now()
	docker(t, "pause", s.Name+"-worker")
	for range 2 {
		if err := c.Delete(t.Context()); err != nil {
			t.Error(err)
		}
	}
	t.Logf("deleted twice in %s", time.Since(start))
	nothingLeft(t, s, volumes)
	if _, err := cluster.Open(t.Context(), s.Name, ""); !errors.Is(err, cluster.ErrNotFound) {
		t.Errorf("opening what is gone: %v", err)
	}
}

// atWork has two hold one cluster; a container from the run's image is none of its nodes.
func atWork(t *testing.T, s cluster.Spec) {
	look := func() cluster.Work {
		list, err := cluster.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(list, func(i cluster.Info) bool { return i.Name == s.Name })
		w, err := cluster.AtWork(t.Context(), list[i])
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	if w := look(); !w.Young || w.Why == "" {
		t.Errorf("before anybody was: %+v", w)
	}
	one, err := cluster.Hold(t.Context(), s.Name, "the first")
	if err != nil {
		t.Fatal(err)
	}
	if w := look(); w.Young || !strings.Contains(w.Why, "the first") {
		t.Errorf("while one is: %+v", w)
	}
	var busy *cluster.BusyError
	if _, err := cluster.Hold(t.Context(), s.Name, "the second"); !errors.As(err, &busy) || !strings.Contains(busy.Why, "the first") {
		t.Errorf("the second: %v", err)
	}
	start := time.Now()
	one.Release()
	t.Logf("released in %s", time.Since(start))
	if w := look(); w != (cluster.Work{}) {
		t.Errorf("after it was: %+v", w)
	}
	id := docker(t, "run", "--detach", "--entrypoint", "sleep", "flatline/run:"+s.Name, "600")
	defer docker(t, "rm", "--force", "--volumes", id)
	c, err := cluster.Open(t.Context(), s.Name, "")
	if err != nil || len(c.Nodes()) != 2 {
		t.Errorf("%+v, %v", c, err)
	}
}

func execs(t *testing.T, n *cluster.Node) {
	var out bytes.Buffer
	start := time.Now()
	if err := n.Exec(t.Context(), strings.NewReader("in"), &out, "sh", "-c", "cat; hostname"); err != nil || out.String() != "in"+n.Name+"\n" {
		t.Errorf("%q %v", out.String(), err)
	}
	t.Logf("one exec: %s", time.Since(start))
	err := n.Exec(t.Context(), nil, nil, "sh", "-c", "echo words >&2; exit 3")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.HasSuffix(err.Error(), ": words") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start = time.Now()
	if err := n.Exec(ctx, nil, nil, "sleep", "30"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	t.Logf("an exec cut after 1 s ended after %s", time.Since(start))
}

func flags(t *testing.T, c *cluster.Cluster) {
	start := time.Now()
	flags, err := c.Flags(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("flags took %s", time.Since(start))
	for _, component := range slices.Sorted(maps.Keys(flags)) {
		for _, name := range slices.Sorted(maps.Keys(flags[component])) {
			t.Logf("%s %s = %+v", component, name, flags[component][name])
		}
	}
	for _, want := range []struct{ component, name, value, origin string }{
		{"kube-apiserver", "default-unreachable-toleration-seconds", "31", "flagz"},
		{"kube-apiserver", "default-not-ready-toleration-seconds", "300", "flagz"},
		{"kube-controller-manager", "node-monitor-grace-period", "12s", "flagz"},
		{"kube-controller-manager", "cluster-signing-duration", "1h0m0s", "flagz"},
		{"kube-controller-manager", "node-eviction-rate", "0.1", "flagz"},
		{"kubelet", "nodeLeaseDurationSeconds", "8", "configz"},
		{"kubelet", "nodeStatusReportFrequency", "5m0s", "configz"},
		{"kubelet", "logging.verbosity", "3", "configz"},
		{"etcd", "heartbeat-interval", "150", "spec"},
	} {
		if got := flags[want.component][want.name]; got != (cluster.Flag{Value: want.value, Origin: want.origin}) {
			t.Errorf("%s %s is %+v", want.component, want.name, got)
		}
	}
	// On a version that the table is of, it says what the processes say.
	for component, planned := range cluster.Planned(c.Version, nil) {
		for name, flag := range planned {
			if got := flags[component][name]; got.Value != flag.Value && !slices.Contains([]string{"31", "1s", "12s", "1h0m0s", "8"}, got.Value) {
				t.Errorf("%s %s: %+v, the table has %s", component, name, got, flag.Value)
			}
		}
	}
}

func audit(t *testing.T, c *cluster.Cluster) {
	read := func() []auditv1.Event {
		var out bytes.Buffer
		if err := c.Nodes()[0].Exec(t.Context(), nil, &out, "cat", cluster.AuditLog); err != nil {
			t.Fatal(err)
		}
		t.Logf("audit log: %d bytes", out.Len())
		var events []auditv1.Event
		lines := bufio.NewScanner(&out)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			var e auditv1.Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Fatalf("%v: %s", err, lines.Text())
			}
			events = append(events, e)
		}
		return events
	}
	before := read()

	// Nobody, and somebody whose certificate another CA has signed.
	ask := func(path string, certificates ...tls.Certificate) int {
		config := &tls.Config{InsecureSkipVerify: true}
		if len(certificates) > 0 { // sent whatever the server says it trusts
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificates[0], nil }
		}
		client := http.Client{Transport: &http.Transport{TLSClientConfig: config}}
		defer client.CloseIdleConnections()
		response, err := client.Get(c.REST().Host + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	if code := ask("/api/v1/namespaces/default/pods?who=nobody"); code != http.StatusForbidden {
		t.Errorf("anonymous request: %d", code)
	}
	if code := ask("/api/v1/namespaces/default/secrets?who=stranger", stranger(t)); code != http.StatusUnauthorized {
		t.Errorf("request with a foreign certificate: %d", code)
	}
	if code := ask("/livez?who=stranger", stranger(t)); code != http.StatusUnauthorized {
		t.Errorf("probe with a foreign certificate: %d", code)
	}
	after := read()
	found := map[string]int{}
	for _, e := range after[len(before):] {
		if strings.Contains(e.RequestURI, "who=") {
			found[fmt.Sprintf("%s %q %d", e.RequestURI, e.User.Username, e.ResponseStatus.Code)]++
		}
	}
	want := map[string]int{
		`/api/v1/namespaces/default/pods?who=nobody "system:anonymous" 403`: 1,
		`/api/v1/namespaces/default/secrets?who=stranger "" 401`:            1,
		`/livez?who=stranger "" 401`:                                        1,
	}
	if !maps.Equal(found, want) {
		t.Errorf("recorded: %v, want %v", found, want)
	}

	idle := read()
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	<-timer.C
	later := read()
	t.Logf("an idle minute: %d events", len(later)-len(idle))
	summarize(t, later[len(idle):])
	t.Log("since the birth:")
	summarize(t, later)
	for _, e := range later {
		if r := e.ObjectRef; r != nil && (r.Resource == "secrets" || r.Subresource == "token") && e.User.Username != "" && e.User.Username != "system:anonymous" {
			t.Errorf("a secret or token is recorded: %+v", e)
		}
	}
}

func summarize(t *testing.T, events []auditv1.Event) {
	counts := map[string]int{}
	sizes := map[string]int{}
	for _, e := range events {
		what := e.RequestURI
		if r := e.ObjectRef; r != nil {
			what = strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")
		}
		key := fmt.Sprintf("%s %s %s %s %s", e.User.Username, e.Verb, what, e.Level, e.Stage)
		line, _ := json.Marshal(e)
		counts[key]++
		sizes[key] += len(line)
	}
	for _, key := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return sizes[b] - sizes[a] }) {
		t.Logf("%7d bytes %4d  %s", sizes[key], counts[key], key)
	}
}

// stranger makes a client certificate that no cluster trusts.
func stranger(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:nowhere", Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestRealUnknownFlag(t *testing.T) {
	for name, test := range map[string]struct {
		flags map[string]map[string]string
		want  string
	}{
		"kube-controller-manager": {
			map[string]map[string]string{"kube-controller-manager": {"pod-eviction-timeout": "5m"}},
			"creating cluster flatline-real: starting kube-controller-manager: unknown flag: --pod-eviction-timeout",
		},
		"kube-apiserver": {
			map[string]map[string]string{"kube-apiserver": {"default-unreachable-toleration-seconds": "5m"}},
			`creating cluster flatline-real: starting kube-apiserver: invalid argument "5m" for "--default-unreachable-toleration-seconds" flag: strconv.ParseInt: parsing "5m": invalid syntax`,
		},
		"etcd": {
			map[string]map[string]string{"etcd": {"heartbeat": "5m"}},
			"creating cluster flatline-real: starting etcd: flag provided but not defined: -heartbeat",
		},
		"kubelet": {
			map[string]map[string]string{"kubelet": {"nodeLeaseDurationSeconds": "-1"}},
			"creating cluster flatline-real: starting kubelet: failed to validate kubelet configuration, error: invalid configuration: nodeLeaseDurationSeconds must be greater than 0",
		},
		"kubelet field": {
			map[string]map[string]string{"kubelet": {"nodeLeaseDurationSecond": "8"}},
			"creating cluster flatline-real: starting kubelet: it does not know the configuration field nodeLeaseDurationSecond",
		},
	} {
		t.Run(name, func(t *testing.T) {
			volumes := docker(t, "volume", "ls", "-q")
			s := spec(t, "flatline-real")
			s.Flags = test.flags
			start := time.Now()
			_, err := cluster.Create(t.Context(), s, testLog{t})
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("error %v, want %s", err, test.want)
			}
			t.Logf("after %s: %v", time.Since(start), err)
			nothingLeft(t, s, volumes)
		})
	}
}

// A creation that is cancelled at some step leaves nothing.
func TestRealCancel(t *testing.T) {
	for _, step := range []string{"Labelling the node image", "Preparing nodes", "Starting control-plane", "Joining worker nodes"} {
		t.Run(step, func(t *testing.T) {
			volumes := docker(t, "volume", "ls", "-q")
			s := spec(t, "flatline-real")
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			why := errors.New("the user has had enough")
			var start time.Time
			_, err := cluster.Create(ctx, s, writerFunc(func(p []byte) (int, error) {
				if bytes.Contains(p, []byte(step)) {
					start = time.Now()
					cancel(why)
				}
				return testLog{t}.Write(p)
			}))
			if !errors.Is(err, why) {
				t.Errorf("error %v", err)
			}
			t.Logf("returned %s after it was cancelled: %v", time.Since(start), err)
			nothingLeft(t, s, volumes)
		})
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// Flags of a running cluster are changed and taken back; a flag that does not exist is
// told in the component's own words.
func TestRealSetFlags(t *testing.T) {
	s := spec(t, "flatline-flags")
	s.Flags = map[string]map[string]string{
		"kube-controller-manager": {"node-monitor-period": "1s"},
		"kubelet":                 {"nodeLeaseDurationSeconds": "8"},
	}
	c, err := cluster.Create(t.Context(), s, testLog{t})
	if err != nil {
		t.Fatal(err)
	}
	files := func() string {
		return docker(t, "exec", c.Nodes()[0].Name, "bash", "-c", "cd /etc/kubernetes/manifests && ls -A && cat *.yaml /var/lib/kubelet/config.yaml | sha256sum") +
			docker(t, "exec", c.Nodes()[1].Name, "sha256sum", "/var/lib/kubelet/config.yaml")
	}
	before := files()
	set := func(what string, more map[string]map[string]string) error {
		flags := map[string]map[string]string{}
		for component := range s.Flags {
			flags[component] = maps.Clone(s.Flags[component])
		}
		for component, m := range more {
			if flags[component] == nil {
				flags[component] = map[string]string{}
			}
			maps.Copy(flags[component], m)
		}
		start := time.Now()
		if err := c.SetFlags(t.Context(), flags); err != nil {
			return err
		}
		t.Logf("%s: %s", what, time.Since(start))
		now, err := c.Flags(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for component, m := range flags {
			for name, value := range m {
				if got := now[component][name]; got.Value != value || got.Origin == "spec" {
					t.Errorf("%s: %s of %s is %+v, want %s", what, name, component, got, value)
				}
			}
		}
		for key := range now {
			if strings.HasPrefix(key, "kubelet/") {
				t.Errorf("%s: %s differs: %v", what, key, now[key])
			}
		}
		return nil
	}
	for _, step := range []struct {
		what string
		more map[string]map[string]string
	}{
		{"kube-controller-manager", map[string]map[string]string{"kube-controller-manager": {"node-monitor-grace-period": "12s", "node-monitor-period": "2s"}}},
		{"nothing new", map[string]map[string]string{"kube-controller-manager": {"node-monitor-grace-period": "12s", "node-monitor-period": "2s"}}},
		{"kubelets", map[string]map[string]string{"kubelet": {"nodeStatusUpdateFrequency": "4s"}}},
		{"kube-apiserver", map[string]map[string]string{"kube-apiserver": {"default-unreachable-toleration-seconds": "31"}}},
		{"all taken back", nil},
	} {
		if err := set(step.what, step.more); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
	}
	if now := files(); now != before {
		t.Errorf("the files are not those of the creation:\n%s\n%s", before, now)
	}
	if err := set("taken away", map[string]map[string]string{"etcd": {"heartbeat-interval": "150"}}); err == nil || !strings.Contains(err.Error(), "flags of etcd are not changed in a running cluster") {
		t.Errorf("etcd: error %v", err)
	}
	err = set("unknown", map[string]map[string]string{"kube-controller-manager": {"no-such-flag": "1"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("unknown flag: error %v", err)
	}
	t.Log(err)
}
