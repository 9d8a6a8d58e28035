package observe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const ourBoot, otherBoot = "6fa7d81b-37d4-4ff2-a2a0-111111111111", "6fa7d81b-37d4-4ff2-a2a0-222222222222"

// A clockNode is a node that has a clock of its own, and takes some time for each answer: half of
// it on the way there. Its text, where it is set, is all that it says.
type clockNode struct {
	boot  string
	ahead time.Duration
	takes []time.Duration // the nth answer, the last one all that follow
	text  string
	err   error
}

func (n clockNode) Exec(ctx context.Context, stdin io.Reader, stdout io.Writer, _ ...string) error {
	if n.text != "" || n.err != nil {
		io.WriteString(stdout, n.text)
		return n.err
	}
	fmt.Fprintln(stdout, n.boot)
	in := bufio.NewReader(stdin)
	for i := 0; ; i++ {
		if _, err := in.ReadString('\n'); err != nil {
			return nil
		}
		half := n.takes[min(i, len(n.takes)-1)] / 2
		time.Sleep(half)
		at := time.Now().Add(n.ahead)
		time.Sleep(half)
		if _, err := fmt.Fprintf(stdout, "%d.%06d\n", at.Unix(), at.Nanosecond()/1000); err != nil {
			return err
		}
	}
}

func TestCompareNode(t *testing.T) {
	ms := func(n ...time.Duration) []time.Duration {
		for i := range n {
			n[i] *= time.Millisecond
		}
		return n
	}
	for name, tc := range map[string]struct {
		node clockNode
		mine string
		want Clock
	}{
		"one kernel":               {clockNode{boot: ourBoot, ahead: time.Hour, takes: ms(600)}, ourBoot + "\n", Clock{Same: true}},
		"another kernel, ahead":    {clockNode{boot: otherBoot, ahead: 5 * time.Second, takes: ms(600)}, ourBoot, Clock{Offset: 5 * time.Second, Error: 300 * time.Millisecond}},
		"another kernel, behind":   {clockNode{boot: otherBoot, ahead: -5 * time.Second, takes: ms(600)}, ourBoot, Clock{Offset: -5 * time.Second, Error: 300 * time.Millisecond}},
		"the quickest answer":      {clockNode{boot: otherBoot, takes: ms(900, 700, 20, 800)}, ourBoot, Clock{Error: 10 * time.Millisecond}},
		"observer without boot id": {clockNode{boot: otherBoot, takes: ms(600)}, "", Clock{Error: 300 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got, err := CompareNode(t.Context(), tc.node, tc.mine); err != nil || got != tc.want {
					t.Errorf("got %+v, %v; want %+v", got, err, tc.want)
				}
			})
		})
	}
	for name, node := range map[string]clockNode{
		"command fails":            {err: errors.New("no such container")},
		"it says nothing":          {text: "\n"},
		"a message":                {text: "bash: sorry\n"},
		"it ends after the id":     {text: otherBoot + "\n"},
		"it fails after the id":    {text: otherBoot + "\n", err: errors.New("killed")},
		"no boot id on both sides": {text: "\n1767323045.000006\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := CompareNode(t.Context(), node, ""); err == nil || !strings.Contains(err.Error(), "comparing clocks") {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// A node that is paused does not answer: the comparison ends with its context.
func TestCompareNodeEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got, err := CompareNode(ctx, clockNode{boot: otherBoot, takes: []time.Duration{time.Hour}}, ourBoot); err == nil {
			t.Errorf("got %+v", got)
		}
		time.Sleep(2 * time.Hour) // until the stand-in has ended too
	})
}

// The script itself, with this machine for a node.
func TestCompareNodeForReal(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the script is for a node's bash")
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := CompareNode(t.Context(), here{}, string(boot)); err != nil || got != (Clock{Same: true}) {
		t.Errorf("one kernel: %+v, %v", got, err)
	}
	if got, err := CompareNode(t.Context(), here{}, otherBoot); err != nil || got.Same || got.Offset.Abs() > got.Error {
		t.Errorf("one clock, told of as two: %+v, %v", got, err)
	}
}

// A clockServer has a clock of its own, and takes some time for each answer.
type clockServer struct {
	ahead, takes time.Duration
	date         string // where it is set, all that it says
	step         time.Duration
	asked        int
}

func (s *clockServer) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(s.takes / 2)
	date := time.Now().Add(s.ahead).UTC().Format(http.TimeFormat)
	if s.asked++; s.asked > 3 {
		s.ahead += s.step
	}
	time.Sleep(s.takes / 2)
	if s.date != "" {
		date = s.date
	}
	return &http.Response{StatusCode: 403, Header: http.Header{"Date": {date}}, Body: io.NopCloser(strings.NewReader("no"))}, nil
}

func TestCompareServer(t *testing.T) {
	for name, tc := range map[string]struct {
		ahead, takes, within time.Duration
	}{
		"one clock":       {0, 5 * time.Millisecond, 30 * time.Millisecond},
		"ahead":           {7*time.Second + 123*time.Millisecond, 5 * time.Millisecond, 30 * time.Millisecond},
		"behind":          {-1700 * time.Millisecond, 5 * time.Millisecond, 30 * time.Millisecond},
		"a slow machine":  {40 * time.Millisecond, 150 * time.Millisecond, 250 * time.Millisecond},
		"a very slow one": {40 * time.Millisecond, 1500 * time.Millisecond, 1300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				got, err := CompareServer(t.Context(), &http.Client{Transport: &clockServer{ahead: tc.ahead, takes: tc.takes}}, "https://c1/version")
				if err != nil || got.Same || (got.Offset-tc.ahead).Abs() > got.Error || got.Error > tc.within || got.Error <= 0 {
					t.Errorf("got %+v, %v; want %s within %s", got, err, tc.ahead, tc.within)
				}
				if took := time.Since(began); took > serverLongest+tc.takes+serverEvery {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
	for name, s := range map[string]*clockServer{
		"no date":         {date: "noon"},
		"it is set ahead": {step: 3 * time.Second},
		"it is set back":  {step: -3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got, err := CompareServer(t.Context(), &http.Client{Transport: s}, "https://c1/version"); err == nil || !strings.Contains(err.Error(), "comparing clocks") {
					t.Errorf("got %+v, %v", got, err)
				}
			})
		})
	}
}

// here is this machine as a node.
type here struct{}

func (here) Exec(ctx context.Context, stdin io.Reader, stdout io.Writer, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout = stdin, stdout
	return cmd.Run()
}
