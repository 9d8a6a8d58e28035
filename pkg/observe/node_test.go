package observe

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// clientCertificate makes a certificate like a kubelet's, as PEM and as DER.
func clientCertificate(t testing.TB, node string) (text, der []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(0xabc), Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		NotBefore: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC), NotAfter: time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC)}
	der, err = x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), der
}

func TestParseKubelet(t *testing.T) {
	text, der := clientCertificate(t, "w1")
	sum := sha256.Sum256(der)
	stamp := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	date := fmt.Sprintf("%d.000000006", stamp.Unix())
	for name, tc := range map[string]struct {
		line string
		want timeline.Event
	}{
		"process": {"process " + date + " 352 1 active - - -",
			timeline.Event{Type: timeline.TypeProcess, Object: "kubelet w1", Detail: map[string]string{"pid": "352", "restarts": "1", "state": "active"}}},
		"no process": {"process " + date + " 0 0 inactive - - -",
			timeline.Event{Type: timeline.TypeProcess, Object: "kubelet w1", Detail: map[string]string{"pid": "0", "restarts": "0", "state": "inactive"}}},
		"exited by itself": {"process 1767400000.000000000 0 3 activating 1 " + date + " " + base64.StdEncoding.EncodeToString([]byte("E1129 one\nE1129 two")),
			timeline.Event{Type: timeline.TypeProcess, Object: "kubelet w1", Detail: map[string]string{"pid": "0", "restarts": "3", "state": "activating", "exit": "1", "why": "E1129 one\nE1129 two"}}},
		"certificate": {"certificate " + date + " /pki/a.pem " + base64.StdEncoding.EncodeToString(text),
			timeline.Event{Type: timeline.TypeCertificate, Object: "certificate w1", Detail: map[string]string{"file": "/pki/a.pem", "cred": hex.EncodeToString(sum[:8]), "serial": "abc",
				"subject": "CN=system:node:w1,O=system:nodes", "issuer": "CN=kubernetes", "notBefore": "2026-01-02T03:00:00Z", "notAfter": "2026-01-02T04:00:00Z"}}},
		"no certificate in the file": {"certificate " + date + " /pki/a.pem ",
			timeline.Event{Type: timeline.TypeCertificate, Object: "certificate w1", Detail: map[string]string{"file": "/pki/a.pem", "unreadable": "no PEM block"}}},
		"it is there": {"alive " + date + " 8000 1200",
			timeline.Event{Type: timeline.TypePace, Object: "pace w1", Detail: map[string]string{"look": "0.008000", "late": "0.001200"}}},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := parseKubelet("w1", tc.line)
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Source, tc.want.Stamp = "node", stamp
			if !e.Equal(tc.want) {
				t.Errorf("got  %+v\nwant %+v", e, tc.want)
			}
		})
	}
	for name, line := range map[string]string{
		"empty":          "",
		"a message":      "bash: systemctl: command not found",
		"no date":        "process now 352 1 active - - -",
		"too few":        "process " + date + " 352 1",
		"too many":       "process " + date + " 352 1 active - - - too",
		"no base64":      "certificate " + date + " /pki/a.pem %%%",
		"no duration":    "alive " + date + " 1 soon",
		"a negative one": "alive " + date + " 1 -1",
		"other word":     "kernel " + date + " 1 2 3",
		"link with gaps": "certificate " + date + " /pki/a b.pem QQ==",
	} {
		t.Run(name, func(t *testing.T) {
			if e, err := parseKubelet("w1", line); err == nil {
				t.Errorf("%q was read as %+v", line, e)
			}
		})
	}
}

func TestDescribeCertificateSaysWhatItCannotRead(t *testing.T) {
	text, der := clientCertificate(t, "w1")
	other, _ := clientCertificate(t, "w2")
	for name, tc := range map[string]struct {
		text []byte
		want string // under "unreadable"
		cred bool
	}{
		"empty":            {nil, "no PEM block", false},
		"garbage":          {[]byte("\x00\xff not a certificate"), "no PEM block", false},
		"cut short":        {text[:len(text)/2], "no PEM block", false},
		"PEM of something": {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("no DER")}), "malformed", true},
		"trailing data":    {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: append(append([]byte(nil), der...), 0)}), "trailing", true},
	} {
		t.Run(name, func(t *testing.T) {
			d := map[string]string{"file": "kept"}
			DescribeCertificate(tc.text, d)
			if !strings.Contains(d["unreadable"], tc.want) || d["file"] != "kept" || (d["cred"] != "") != tc.cred || d["notAfter"] != "" {
				t.Errorf("got %v", d)
			}
		})
	}
	first := map[string]string{}
	DescribeCertificate(append(append([]byte(nil), text...), other...), first)
	if first["subject"] != "CN=system:node:w1,O=system:nodes" {
		t.Errorf("of two certificates %q is described, want the first", first["subject"])
	}
}

func FuzzParseKubelet(f *testing.F) {
	text, _ := clientCertificate(f, "w1")
	f.Add("process 1767323045.000000006 352 1 active - - -")
	f.Add("certificate 1767323045.000000006 /pki/a.pem " + base64.StdEncoding.EncodeToString(text))
	f.Add("certificate 1767323045.000000006  ")
	f.Add("alive 1767323045.000006 8000 1200")
	f.Add("process 68719476735.999999999 0 0 x - - -")
	f.Add("process 1767323045.000000006 0 3 activating signal-9 1767323045.000000006 RTExMjkK")
	f.Fuzz(func(t *testing.T, line string) {
		e, err := parseKubelet("w1", line)
		if err != nil {
			return
		}
		if e.Source != "node" || e.Stamp.IsZero() || e.Type != timeline.TypeProcess && e.Type != timeline.TypeCertificate && e.Type != timeline.TypePace {
			t.Errorf("%q was read as %+v", line, e)
		}
		if _, err := json.Marshal(e); err != nil {
			t.Errorf("%+v cannot be written: %v", e, err)
		}
	})
}

func FuzzDescribeCertificate(f *testing.F) {
	text, _ := clientCertificate(f, "w1")
	f.Add(text)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d := map[string]string{}
		DescribeCertificate(text, d)
		if _, bad := d["unreadable"]; bad == (d["notAfter"] != "") {
			t.Errorf("readable and unreadable at once, or neither: %v", d)
		}
		if na := d["notAfter"]; na != "" {
			if _, err := time.Parse(time.RFC3339, na); err != nil {
				t.Errorf("notAfter %q: %v", na, err)
			}
		}
	})
}

func TestParseEpoch(t *testing.T) {
	for s, want := range map[string]time.Time{
		"1767323045.000000006\n": time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		"1767323045.999999999":   time.Date(2026, 1, 2, 3, 4, 5, 999999999, time.UTC),
		" 1767323045 ":           time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		"0.100000000":            time.Unix(0, 100000000),
	} {
		got, err := ParseEpoch(s)
		if err != nil || !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("ParseEpoch(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
	// %N of a shell without nanoseconds, milliseconds, and what only begins well.
	for _, s := range []string{"", ".5", "x", "1767323045.%N", "1767323045.123", "1767323045abc", "1767323045.12345678x", "1767323045.+12345678", "-1.000000000", "+5", "1 767323045", "99999999999999999999", "9223372036854775807"} {
		if got, err := ParseEpoch(s); err == nil {
			t.Errorf("ParseEpoch(%q) = %v, want an error", s, got)
		}
	}
}

func FuzzParseEpoch(f *testing.F) {
	for _, s := range []string{"1767323045.000000006", "5", "1.%N", "", "0.000000001\n", "68719476736"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		at, err := ParseEpoch(s)
		if err != nil {
			return
		}
		if trimmed := strings.TrimSpace(s); strings.Trim(trimmed, "0123456789.") != "" {
			t.Errorf("%q was read as %v", s, at)
		}
		again, err := ParseEpoch(fmt.Sprintf("%d.%09d", at.Unix(), at.Nanosecond()))
		if err != nil || !again.Equal(at) {
			t.Errorf("%q is %v and then %v, %v", s, at, again, err)
		}
		if _, err := at.MarshalJSON(); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	})
}

// A scriptedNode gives the nth call of Exec to the nth function, the last one to
// all that follow.
type scriptedNode struct {
	calls int
	do    []func(ctx context.Context, stdout io.Writer) error
}

func (n *scriptedNode) Exec(ctx context.Context, _ io.Reader, stdout io.Writer, _ ...string) error {
	do := n.do[min(n.calls, len(n.do)-1)]
	n.calls++
	return do(ctx, stdout)
}

// says writes and then ends with err, or with ctx where err is nil.
func says(text string, err error) func(context.Context, io.Writer) error {
	return func(ctx context.Context, stdout io.Writer) error {
		if _, err := io.WriteString(stdout, text); err != nil {
			return err
		}
		if err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

func TestKubeletBeginsAgainAfterABrokenStream(t *testing.T) {
	process, certificate := "process 1767323045.000000006 352 0 active - - -\n", "certificate 1767323045.000000007 /pki/a.pem \n"
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		n := &scriptedNode{do: []func(context.Context, io.Writer) error{
			says("", errors.New("not running")),
			says(process, errors.New("connection reset")), // before the certificate: not ready yet
			says(process+certificate, errors.New("container paused")),
			says("bash: sorry\n", nil),
			func(_ context.Context, w io.Writer) error { io.WriteString(w, certificate[:20]); return nil },
			livingNode(process + certificate + certificate),
		}}
		var tape tape
		done := make(chan error)
		go func() { done <- (&Kubelet{Node: n, Name: "w1"}).Run(ctx, tape.ready, tape.emit) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		wantLines(t, slices.DeleteFunc(tape.lines(), isPace),
			"Gap kubelet w1",
			"Process kubelet w1", "Gap kubelet w1",
			"Process kubelet w1", "Certificate certificate w1", "ready", "Gap kubelet w1",
			"Gap kubelet w1",
			"Gap kubelet w1",
			"Process kubelet w1", "Certificate certificate w1", "ready", "Certificate certificate w1", "ready")
		var whys []string
		for _, e := range tape.events {
			if e.Type == timeline.TypeGap {
				if e.Source != "node" {
					t.Errorf("a gap of source %q", e.Source)
				}
				whys = append(whys, strings.TrimPrefix(e.Detail["why"], "watching the kubelet on w1: "))
			}
		}
		wantLines(t, whys, "not running", "connection reset", "container paused", `unexpected line "bash: sorry"`, "the watching shell ended")
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v after its context ended", err)
		}
		if last := slices.DeleteFunc(tape.lines(), isPace); last[len(last)-1] != "ready" {
			t.Errorf("the end of the context left %q", last[len(last)-1])
		}
	})
}

// alive is how a watching shell says that it is.
const alive = "alive 1767323045.000006 8000 1200\n"

func isPace(line string) bool { return line == "Pace pace w1" }

// livingNode says something and then, every five seconds, that it is alive.
func livingNode(text string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, w io.Writer) error {
		for {
			if _, err := io.WriteString(w, text); err != nil {
				return err
			}
			text = alive
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(5 * time.Second):
			}
		}
	}
}

// A node that says nothing at all, because it is paused say, is not one in which
// nothing changes.
func TestASilentNodeIsAGap(t *testing.T) {
	const process, certificate = "process 1767323045.000000006 352 0 active - - -\n", "certificate 1767323045.000000007 /pki/a.pem \n"
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		n := &scriptedNode{do: []func(context.Context, io.Writer) error{func(ctx context.Context, w io.Writer) error {
			for _, line := range []struct {
				at   time.Duration
				text string
			}{{0, process + certificate}, {14 * time.Second, alive}, {28 * time.Second, process}, {70 * time.Second, alive}, {75 * time.Second, alive}, {100 * time.Second, certificate}, {105 * time.Second, alive}} {
				time.Sleep(time.Until(start.Add(line.at)))
				if _, err := io.WriteString(w, line.text); err != nil {
					return err
				}
			}
			<-ctx.Done()
			return ctx.Err()
		}}}
		var tape tape
		var at []time.Duration
		emit := func(e timeline.Event) { at = append(at, time.Since(start)); tape.emit(e) }
		done := make(chan error)
		go func() { done <- (&Kubelet{Node: n, Name: "w1"}).Run(ctx, tape.ready, emit) }()
		time.Sleep(110 * time.Second)
		synctest.Wait()
		wantLines(t, tape.lines(), "Process kubelet w1", "Certificate certificate w1", "ready", "Pace pace w1", "Process kubelet w1", "Gap kubelet w1", "Watching kubelet w1", "Pace pace w1", "Pace pace w1", "Gap kubelet w1", "Certificate certificate w1", "ready", "Watching kubelet w1", "Pace pace w1")
		for i, want := range []time.Duration{0, 0, 14 * time.Second, 28 * time.Second, 43 * time.Second, 70 * time.Second, 70 * time.Second, 75 * time.Second, 90 * time.Second, 100 * time.Second, 105 * time.Second, 105 * time.Second} {
			if at[i] != want {
				t.Errorf("event %d came at %s, want %s", i, at[i], want)
			}
		}
		for _, e := range tape.events {
			if e.Type == timeline.TypeGap && e.Detail["since"] != "15.000000" {
				t.Errorf("the gap began %q s before", e.Detail["since"])
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v after its context ended", err)
		}
	})
}

// twoLooks runs kubeletScript for two looks at the link "current" of a folder, and returns the
// lines that it prints of the certificate. Steps are shell text: before the first look, inside it,
// and between the two.
func twoLooks(t *testing.T, dir, before, inside, between string) (lines [][]string) {
	t.Helper()
	const standIns = `
cd "$0" && eval "$before" || exit 1
looks=0
systemctl() { echo MainPID=0 NRestarts=0 ActiveState=inactive ExecMainCode=0 ExecMainStatus=0; }
readlink() { command readlink "$@"; (( looks )) || eval "$inside"; }
read() {
	[ "$*" = "-r -t 1 _" ] || { builtin read "$@"; return; }
	(( looks++ )) && return 0 # the observer is gone
	eval "$between"
	return 142 # a second without input
}
`
	cmd := exec.Command("bash", "-c", standIns+kubeletScript, dir, "current")
	cmd.Env = append(os.Environ(), "before="+before, "inside="+inside, "between="+between)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); f[0] == "certificate" {
			lines = append(lines, f)
		}
	}
	return lines
}

// A kubelet that stores its next certificate while the one before is looked at has stored it when
// the file says so. The look after finds it up to a second later, and by then the kubelet has made
// requests with it.
func TestACertificateIsStampedWhenItCame(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the script is for a node's bash and coreutils")
	}
	const (
		store   = `echo new > new.pem; ln -s new.pem next; mv -T next current; ` // as certificate_store.go updateSymlink does
		written = `stat -c %.6Y current > want`
		placed  = `stat -c %.6Z current > want`
	)
	for name, tc := range map[string]struct{ before, inside, between, file string }{
		"between two looks":     {"", "", store + written, "new.pem"},
		"inside a look":         {"", store + written, "", "new.pem"},
		"a file put back":       {"", "", `cp old.pem x; touch -d 2001-02-03 x; mv x old.pem; stat -c %.6Z old.pem > want`, "old.pem"},
		"a link put back":       {"", "", `ln -s one/in.pem x; touch -h -d 2001-02-03 x; mv -T x current; ` + placed, "in.pem"},
		"a date to come":        {"", "", `touch -d 2101-02-03 old.pem; stat -c %.6Z old.pem > want`, "old.pem"},
		"its folder, exchanged": {`unset EPOCHREALTIME; EPOCHREALTIME=4000000000.000001`, "", `rm to; ln -s two to; echo $EPOCHREALTIME > want`, "in.pem"},
		"gone":                  {`unset EPOCHREALTIME; EPOCHREALTIME=4000000000.000001`, "", `rm current; echo $EPOCHREALTIME > want`, "current"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			const files = `echo old > old.pem; ln -s old.pem current; mkdir one two; echo 1 > one/in.pem; echo 22 > two/in.pem; ln -s one to; `
			before := files + tc.before
			if strings.HasPrefix(name, "its folder") {
				before += "; ln -sf to/in.pem current"
			}
			lines := twoLooks(t, dir, before, tc.inside, tc.between)
			want, err := os.ReadFile(filepath.Join(dir, "want"))
			if err != nil || len(lines) != 2 {
				t.Fatalf("%d lines of the certificate: %q, %v; want 2", len(lines), lines, err)
			}
			if got := lines[1]; got[1] != strings.TrimSpace(string(want)) || filepath.Base(got[2]) != tc.file {
				t.Errorf("%s is stamped %s, want %s at %s", got[2], got[1], tc.file, want)
			}
		})
	}
}

func TestKubeletScriptSendsNoKey(t *testing.T) {
	// The file holds certificate and key; only the blocks between these marks may leave.
	if !strings.Contains(kubeletScript, `sed -n '/BEGIN CERT/,/END CERT/p' "$to"`) || regexp.MustCompile(`(cat|base64) [^|)]*\$(cert|to)\b`).MatchString(kubeletScript) {
		t.Error("the script does not filter the certificate file")
	}
}

// stdinNode behaves like a command: it ends when it is killed, and not before its
// standard input was read to the end.
type stdinNode struct{}

func (stdinNode) Exec(ctx context.Context, stdin io.Reader, _ io.Writer, _ ...string) error {
	<-ctx.Done()
	_, err := io.Copy(io.Discard, stdin)
	return errors.Join(ctx.Err(), err)
}

func TestAKubeletSourceEndsItsShell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- (&Kubelet{Node: stdinNode{}, Name: "w1"}).Run(ctx, func() {}, func(timeline.Event) {})
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil { // a deadlock fails the test
			t.Error(err)
		}
	})
}
