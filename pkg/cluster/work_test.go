package cluster

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// workStub is an engine with cluster c whose clock says 12:00:00.
const workStub = `
case "$1" in
info) [ -e $stub/away ] && { echo "Cannot connect to the Docker daemon" >&2; exit 1; }
  echo '{"ID":"i","Name":"n","ServerVersion":"28","SystemTime":"2026-12-03T12:00:00Z","CgroupVersion":"2"}';;
context) cat $stub/endpoint;;
ps) cat $stub/ps 2>/dev/null;;
cp) [ -e $stub/sign ] && exec cat $stub/sign
  echo "Error response from daemon: Could not find the file /etc/flatline/at-work in container c-control-plane" >&2; exit 1;;
exec) cat $stub/said; while read -r _; do :; done; touch $stub/ended;;
esac
`

func signOf(t *testing.T, at time.Time) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	who := "process 7 of user 0 on \x1b[1mhere\n"
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "at-work", Mode: 0o644, Size: int64(len(who)), ModTime: at}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(who)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func put(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Whether somebody is at work is read at the engine, by its clock, and without a file of flatline's.
func TestAtWork(t *testing.T) {
	noon := time.Date(2026, 12, 3, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		sign  time.Duration // before noon; 0 is none
		made  time.Duration
		alone bool // without a control plane
		want  Work
	}{
		"touched just now":          {sign: 3 * time.Second, made: time.Hour, want: Work{Why: "somebody is at work on it: process 7 of user 0 on [1mhere, seen 3 s ago"}},
		"touched a minute ago":      {sign: time.Minute, made: time.Hour},
		"touched, and young":        {sign: time.Hour, made: time.Minute},
		"given back":                {sign: noon.Sub(time.Unix(0, 0)), made: time.Minute},
		"never touched, and young":  {made: time.Minute, want: Work{"it was begun 60 s ago and may be being made", true}},
		"an image, and young":       {made: 29 * time.Minute, alone: true, want: Work{"it was begun 1740 s ago and may be being made", true}},
		"never touched, and old":    {made: 30 * time.Minute},
		"an image that is left":     {made: time.Hour, alone: true},
		"its clock was set back":    {sign: -time.Hour, made: time.Hour, want: Work{Why: "somebody is at work on it: process 7 of user 0 on [1mhere, seen -3600 s ago"}},
		"touched 59 seconds before": {sign: 59 * time.Second, made: time.Hour, want: Work{Why: "somebody is at work on it: process 7 of user 0 on [1mhere, seen 59 s ago"}},
	} {
		dir := stubDocker(t, workStub)
		if test.sign != 0 {
			put(t, dir, "sign", signOf(t, noon.Add(-test.sign)))
		}
		i := Info{Name: "c", Made: noon.Add(-test.made), control: "c-control-plane"}
		if test.alone {
			i.control = ""
		}
		if got, err := AtWork(t.Context(), i); err != nil || got != test.want {
			t.Errorf("%s: %+v %v, want %+v", name, got, err, test.want)
		}
		put(t, dir, "away", nil)
		if _, err := AtWork(t.Context(), i); err == nil {
			t.Errorf("%s: nobody is at work at an engine that does not answer", name)
		}
	}
}

// A holder's shell ends with its standard input; somebody else's is told by name.
func TestHold(t *testing.T) {
	dir := stubDocker(t, workStub)
	put(t, dir, "ps", []byte(line("c-control-plane", "control-plane", "c", "c")+"\n"))
	put(t, dir, "sign", signOf(t, time.Unix(0, 0)))
	put(t, dir, "said", []byte("held\n"))
	h, err := Hold(t.Context(), "c", "me")
	if err != nil {
		t.Fatal(err)
	}
	h.Release()
	if _, err := os.Stat(filepath.Join(dir, "ended")); err != nil {
		t.Error("the shell was not let end by itself")
	}

	var busy *BusyError
	put(t, dir, "said", []byte("busy process 9\n"))
	if _, err := Hold(t.Context(), "c", "me"); !errors.As(err, &busy) || busy.Why != "somebody is at work on it: process 9" {
		t.Errorf("error %v", err)
	}
	put(t, dir, "sign", signOf(t, time.Date(2026, 12, 3, 11, 59, 58, 0, time.UTC)))
	if _, err := Hold(t.Context(), "c", "me"); !errors.As(err, &busy) || !strings.Contains(busy.Why, "seen 2 s ago") {
		t.Errorf("error %v", err)
	}
	put(t, dir, "away", nil)
	if _, err := Hold(t.Context(), "c", "me"); err == nil || errors.As(err, &busy) && busy.Why == "" {
		t.Errorf("error %v", err)
	}
	(*Holding)(nil).Release()
}

func TestAskEngine(t *testing.T) {
	dir := stubDocker(t, workStub)
	for endpoint, remote := range map[string]bool{
		"unix:///var/run/docker.sock": false, "npipe:////./pipe/docker_engine": false, "ssh://root@far": true, "tcp://127.0.0.1:2375": true,
	} {
		put(t, dir, "endpoint", []byte(endpoint+"\n"))
		e, err := AskEngine(t.Context())
		if err != nil || e.Endpoint != endpoint || e.Remote() != remote || e.Version != "28" || e.Name != "n" {
			t.Errorf("%+v %v", e, err)
		}
	}
	put(t, dir, "away", nil)
	if _, err := AskEngine(t.Context()); err == nil || !strings.Contains(err.Error(), "Cannot connect") {
		t.Errorf("error %v", err)
	}
}

// Of what a node says is its administrator's access only keys are taken over.
func TestAccessOf(t *testing.T) {
	const admin = `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],
"clusters":[{"name":"k","cluster":{"server":"https://elsewhere:6443","proxy-url":"http://elsewhere","certificate-authority-data":"Y2E="}}],
"users":[{"name":"u","user":{"client-certificate-data":"Y2VydA==","client-key-data":"a2V5"%s}}]}`
	text, err := accessOf(fmt.Sprintf(admin, `,"exec":{"command":"id","apiVersion":"client.authentication.k8s.io/v1","interactiveMode":"Never"}`), "c", "https://127.0.0.1:41")
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"exec", "elsewhere", "proxy"} {
		if strings.Contains(string(text), gone) {
			t.Errorf("%s is taken over:\n%s", gone, text)
		}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := clientConfig(path, "c")
	if err != nil || c.Host != "https://127.0.0.1:41" || string(c.CertData) != "cert" || string(c.KeyData) != "key" || string(c.CAData) != "ca" {
		t.Errorf("%+v %v", c, err)
	}
	if _, err := accessOf(strings.Replace(fmt.Sprintf(admin, ""), `"client-key-data":"a2V5"`, `"token":"x"`, 1), "c", "https://127.0.0.1:41"); err == nil {
		t.Error("a user without a key is taken")
	}
}
