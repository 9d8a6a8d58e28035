package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// asFlatline has this test binary be flatline: its value says how.
const asFlatline = "FLATLINE_TEST_AS"

func TestMain(m *testing.M) {
	switch os.Getenv(asFlatline) {
	case "":
		os.Exit(m.Run())
	case "flatline":
		os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
	case "deaf":
		deaf()
	case "strangers":
		os.Exit(strangers(os.Args[1:]))
	}
}

// deaf is a verb that changes clusters and does not end when it is asked to. It says what became
// of a write that nobody reads, and what a child of it ignores.
func deaf() {
	c := &cobra.Command{RunE: func(c *cobra.Command, _ []string) error {
		_, err := os.Stdout.WriteString("nobody reads this")
		child, _ := exec.Command("grep", "SigIgn", "/proc/self/status").Output()
		fmt.Fprintf(os.Stderr, "%v; %s\n", err, bytes.TrimSpace(child))
		<-c.Context().Done()
		fmt.Fprintln(os.Stderr, "asked to end")
		select {}
	}}
	_ = newApp(os.Stdout, os.Stderr).interruptible(c).Execute()
}

// flatline is a process of it, or of another thing that TestMain knows.
func flatline(t *testing.T, as string, args ...string) *exec.Cmd {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // which ends what hangs
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, binary, args...)
	c.Env = append(os.Environ(), asFlatline+"="+as)
	return c
}

// ignored are the signals that this process ignored when it began. A verb that has listened
// for one in the meantime makes signal.Ignored say no, and a child ignores it all the same.
var ignored = map[syscall.Signal]bool{syscall.SIGINT: signal.Ignored(syscall.SIGINT), syscall.SIGHUP: signal.Ignored(syscall.SIGHUP)}

// Verbs that read are ended by the first signal, as any program is.
func TestSignalsEndVerbsThatRead(t *testing.T) {
	evidence, err := filepath.Abs("../../docs/evidence/kubelet-stopped-fast")
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"judge PIPE", "report PIPE", "claims PIPE", "compare PIPE EVIDENCE", "compare --knobs PIPE",
		"plan PIPE", "node-image"} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			t.Run(verb+" "+sig.String(), func(t *testing.T) {
				t.Parallel()
				if sig != syscall.SIGTERM && ignored[sig] { // by nohup, or in the background of a shell
					t.Skip("it is ignored here, and by every child")
				}
				dir := t.TempDir()
				pipe := filepath.Join(dir, "pipe.yaml") // the end of a timeline's name does not matter
				if err := syscall.Mkfifo(pipe, 0o600); err != nil {
					t.Fatal(err)
				}
				c := flatline(t, "flatline", strings.Fields(strings.NewReplacer("PIPE", pipe, "EVIDENCE", evidence).Replace(verb))...)
				if verb == "node-image" { // which waits for the engine's client
					if err := os.WriteFile(filepath.Join(dir, "docker"), []byte("#!/bin/sh\nread x <"+pipe+"\n"), 0o755); err != nil {
						t.Fatal(err)
					}
					c.Env = append(c.Env, "NODE_IMAGE=", "PATH="+dir+":"+os.Getenv("PATH"))
				}
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // it comes back when somebody reads
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				if err := c.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				var exit *exec.ExitError
				if err := c.Wait(); !errors.As(err, &exit) {
					t.Fatalf("it ended with %v", err)
				}
				if status := exit.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != sig {
					t.Errorf("it ended with %v", exit)
				}
			})
		}
	}
}

// The third signal ends a verb that does not come to its end, with no run under way too. A reader
// that went away does not end it, and its children do not inherit that.
func TestTheThirdSignalEnds(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	c := flatline(t, "deaf")
	c.Stdout = w
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(stderr)
	next := func() (line string) {
		for line == "" && said.Scan() {
			line = said.Text()
		}
		return line
	}
	got := next()
	if !strings.Contains(got, "broken pipe") {
		t.Errorf("of a write that nobody reads it says %q", got)
	}
	if _, mask, ok := strings.Cut(got, "SigIgn:"); ok {
		ignored, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
		if err != nil || ignored&(1<<(syscall.SIGPIPE-1)) != 0 {
			t.Errorf("a child ignores the signals %s, %v", mask, err)
		}
	}
	for _, want := range []string{"asked to end", "in a hurry", "left as it is"} {
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if got := next(); !strings.Contains(got, want) {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	var exit *exec.ExitError
	if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Errorf("it ended with %v", err)
	}
}
