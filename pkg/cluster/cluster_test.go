package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestInfos(t *testing.T) {
	early, late := time.Unix(100, 0), time.Unix(200, 0)
	of := func(run string) map[string]string {
		return map[string]string{labelRun: run, labelOwner: "o", labelCache: "/c", labelFor: "f"}
	}
	there := []container{
		{name: "b-worker", role: "worker", cluster: "b", labels: of("r2"), made: late},
		{name: "a-control-plane", role: "control-plane", cluster: "a", labels: of("r1"), made: early},
		{name: "b-control-plane", role: "control-plane", cluster: "b", labels: of("r2"), made: early},
	}
	got := infos(there, []runImage{{"b", of("r2"), early}, {"left", of("r3"), early}})
	want := []Info{
		{Name: "a", RunID: "r1", Owner: "o", Cache: "/c", For: "f", Made: early, control: "a-control-plane", Containers: []string{"a-control-plane"}},
		{Name: "b", RunID: "r2", Owner: "o", Cache: "/c", For: "f", Made: late, control: "b-control-plane", Containers: []string{"b-control-plane", "b-worker"}},
		{Name: "left", RunID: "r3", Owner: "o", Cache: "/c", For: "f", Made: early},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// line is what the engine says of a container: its own name, kind's role and cluster, and
// the labels that it has or inherited from its image.
func line(name, role, kindCluster, cluster string, labels ...string) string {
	f := append([]string{name, "2026-12-03 02:13:01 +0100 CET", cluster, role, kindCluster, ""}, labels...)
	for len(f) < 14 {
		f = append(f, "")
	}
	text, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// Anybody who has labels of flatline's on a container by its image, or odd characters in them, is left
// alone and disturbs nothing.
func TestFind(t *testing.T) {
	dir := stubDocker(t, `cat $stub/ps`)
	lines := []string{
		line("a-worker", "worker", "a", "a", "r\twith\nodd", "v1", "{}", "i", "id", "o", "/c", "f"),
		line("b-image", "", "", "b", "r2"),
		line("a-look", "", "", "a", "r"),                  // docker run flatline/run:a
		line("other-worker", "worker", "other", "a", "r"), // another kind cluster, from that image
		line("x", "worker", "a b", "a b", "r"),
		line("--all", "worker", "a", "a", "r"),
	}
	if err := os.WriteFile(filepath.Join(dir, "ps"), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := find(t.Context(), "")
	if err != nil || len(got) != 2 || got[0].name != "a-worker" || got[1].name != "b-image" {
		t.Fatalf("%+v %v", got, err)
	}
	if c := got[0]; c.role != "worker" || c.cluster != "a" || c.label(labelRun) != "r\twith\nodd" || c.label(labelFor) != "f" || c.made.Unix() != 1796260381 {
		t.Errorf("%+v, made %d", c, c.made.Unix())
	}
	if err := os.WriteFile(filepath.Join(dir, "ps"), []byte("[]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := find(t.Context(), ""); err == nil {
		t.Error("a line without columns is taken")
	}
}

func TestPlain(t *testing.T) {
	for message, want := range map[string]string{
		"Creating cluster \"x\" ...\n":      `Creating cluster "x"`,
		" • Preparing nodes 📦 📦   ...\n":    "Preparing nodes",
		" ✓ Preparing nodes 📦 📦 \n":         "",
		" ✗ Starting control-plane 🕹️\n":    "Failed: Starting control-plane",
		" • Installing CNI 🔌  ...\n":        "Installing CNI",
		"Deleted nodes: [\"x-worker\"]":     `Deleted nodes: ["x-worker"]`,
		"cgroup v1 is deprecated, upgrade…": "cgroup v1 is deprecated, upgrade",
		"":                                  "",
	} {
		if got := plain(message); got != want {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
	var out bytes.Buffer
	log := &logger{w: &out}
	log.V(0).Infof(" • Writing configuration %s ...\n", "📜")
	log.V(1).Info("detail")
	log.Warn("a warning")
	if want := "Writing configuration\na warning\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// engineStub has one container of cluster c until it is removed for the second time.
var engineStub = `
case "$1" in
ps) [ -e $stub/removed2 ] || printf '%s\n' '` + line("c-control-plane", "control-plane", "c", "c", "r", "v1.37.2", `{"kubelet":{"a":"1"}}`, "node:1", "sha256:1") + `';;
rm)
  if [ -e $stub/removed ]; then touch $stub/removed2; exit; fi
  touch $stub/removed
  echo "Error response from daemon: removal of container c-control-plane is already in progress" >&2; exit 1;;
inspect) echo "0123abcd 172.18.0.3 10.0.0.1";;
image) [ -e $stub/imageGone ] || { touch $stub/imageGone; exit; }
  echo "Error: No such image: $4" >&2; exit 1;;
esac
`

// Something that takes no context ends all the same: its containers go.
func TestInterruptible(t *testing.T) {
	dir := stubDocker(t, engineStub)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("starting etcd: no")
	create := func() error {
		cancel(why)
		for { // without a bound: the containers go, or this hangs
			if _, err := os.Stat(filepath.Join(dir, "removed2")); err == nil {
				return errors.New("exit status 137")
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	if err := interruptible(ctx, "c", create); !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
	if err := interruptible(t.Context(), "c", func() error { return why }); !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
}

func TestDelete(t *testing.T) {
	dir := stubDocker(t, engineStub)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Name: "c", kubeconfig: kubeconfig}
	for range 2 {
		if err := c.Delete(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(kubeconfig); err == nil {
		t.Error("the kubeconfig is left")
	}
	for _, name := range []string{"", "a b", "-"} {
		if err := Delete(t.Context(), name); err == nil {
			t.Errorf("%q is taken for a name", name)
		}
	}
}

func TestOpen(t *testing.T) {
	dir := stubDocker(t, engineStub)
	c, err := Open(t.Context(), "c", "")
	if err != nil {
		t.Fatal(err)
	}
	want := &Node{Name: "c-control-plane", Role: "control-plane", IP: "172.18.0.3", ID: "0123abcd"}
	if len(c.Nodes()) != 1 || *c.Nodes()[0] != *want || c.RunID != "r" || c.Version != "v1.37.2" || c.Image != "node:1" || c.ImageID != "sha256:1" || c.flags["kubelet"]["a"] != "1" || c.REST() != nil {
		t.Errorf("%+v %+v", c, c.Nodes())
	}

	for content, want := range map[string]string{
		kubeconfigOf("kind-c"): "",
		kubeconfigOf("kind-d"): "not about kind-c alone",
		strings.Replace(kubeconfigOf("kind-c"), "127.0.0.1", "10.0.0.1", 1):                                                        "want https://127.0.0.1",
		kubeconfigOf("kind-c") + "users:\n- name: x\n  user: {exec: {command: id, apiVersion: client.authentication.k8s.io/v1}}\n": "no program to ask",
		kubeconfigOf("kind-c", "my-own"):     "not about kind-c alone",
		strings.Repeat("x", 3) + ": [broken": "reading kubeconfig",
	} {
		path := filepath.Join(dir, "kubeconfig")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Open(t.Context(), "c", path)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", content, err, want)
		}
		if err != nil {
			continue
		}
		one, other := c.REST(), c.REST() // copies, for callers to change
		if one == other || one.Host != "https://127.0.0.1:1" {
			t.Errorf("%+v, %+v", one, other)
		}
	}

	if err := os.WriteFile(filepath.Join(dir, "removed2"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), "c", ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("error %v, want ErrNotFound", err)
	}
}

func kubeconfigOf(clusters ...string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "apiVersion: v1\nkind: Config\ncurrent-context: %s\n", clusters[0])
	fmt.Fprintf(&text, "contexts:\n- name: %s\n  context: {cluster: %s}\nclusters:\n", clusters[0], clusters[0])
	for _, c := range clusters {
		fmt.Fprintf(&text, "- name: %s\n  cluster: {server: 'https://127.0.0.1:1'}\n", c)
	}
	return text.String()
}

func TestTail(t *testing.T) {
	var w tail
	for range 100 {
		if n, err := w.Write(bytes.Repeat([]byte("x"), 99)); n != 99 || err != nil {
			t.Fatal(n, err)
		}
		if _, err := w.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
	}
	if len(w) != 4096 || !bytes.HasSuffix(w, []byte("xx\n")) {
		t.Errorf("%d bytes", len(w))
	}
}
