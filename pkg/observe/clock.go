package observe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// A Clock says how another wall clock stands to the observer's.
type Clock struct {
	// Same is true when both run on one kernel: then it is one clock.
	Same bool
	// Offset is the other clock minus the observer's, Error the most by which Offset may be off.
	// Both are zero when Same is true.
	Offset, Error time.Duration
}

// clockScript prints the node's boot id, and its time for each line that it reads.
const clockScript = `cat /proc/sys/kernel/random/boot_id && while read -r _; do echo "$EPOCHREALTIME"; done`

// asked is how often a node is asked for its time: the quickest answer counts.
const asked = 5

// CompareNode asks a node for its boot id and, if that is not the observer's own, for its
// time. bootID is empty where the observer has none.
func CompareNode(ctx context.Context, n Node, bootID string) (Clock, error) {
	ctx, stop := context.WithCancel(ctx) // ends the shell
	defer stop()
	stdin, ask := io.Pipe()
	answers, stdout := io.Pipe()
	defer answers.Close()
	defer ask.Close()
	go func() {
		err := n.Exec(ctx, stdin, stdout, "bash", "-c", clockScript)
		if err == nil {
			err = errors.New("the shell ended")
		}
		stdin.CloseWithError(err)
		stdout.CloseWithError(err)
	}()
	defer context.AfterFunc(ctx, func() { stdin.CloseWithError(context.Cause(ctx)); stdout.CloseWithError(context.Cause(ctx)) })()
	clock, err := readNodeClock(ask, bufio.NewReader(answers), strings.TrimSpace(bootID))
	if err != nil {
		return Clock{}, fmt.Errorf("comparing clocks: %w", err)
	}
	return clock, nil
}

// readNodeClock talks to clockScript.
func readNodeClock(ask io.Writer, answers *bufio.Reader, bootID string) (Clock, error) {
	boot, err := answers.ReadString('\n')
	if err != nil {
		return Clock{}, err
	}
	if boot = strings.TrimSpace(boot); boot == "" || strings.Contains(boot, " ") {
		return Clock{}, fmt.Errorf("unexpected boot id %q", boot)
	}
	if boot == bootID {
		return Clock{Same: true}, nil
	}
	var best Clock
	for i := range asked {
		sent := time.Now()
		if _, err := io.WriteString(ask, "\n"); err != nil {
			return Clock{}, err
		}
		line, err := answers.ReadString('\n')
		if err != nil {
			return Clock{}, err
		}
		half := time.Since(sent) / 2
		there, err := ParseEpoch(line)
		if err != nil {
			return Clock{}, err
		}
		if c := (Clock{Offset: there.Sub(sent.Add(half)), Error: half}); i == 0 || c.Error < best.Error {
			best = c
		}
	}
	return best, nil
}

// A server is asked for its time until the second turns between two answers that are so near.
const (
	serverEvery   = 20 * time.Millisecond
	serverNear    = 60 * time.Millisecond
	serverLongest = 3 * time.Second // what is known then has to do
)

// CompareServer compares clocks with a server by the dates of its answers, which are whole
// seconds (RFC 9110, section 6.6.1): where one second turns into the next the clock is known as
// well as two requests lie near each other. It takes a second on a quick machine.
func CompareServer(ctx context.Context, client *http.Client, url string) (Clock, error) {
	var low, high time.Duration // the offset lies between them
	for began, i := time.Now(), 0; ; i++ {
		sent := time.Now()
		date, err := serverDate(ctx, client, url)
		if err != nil {
			return Clock{}, fmt.Errorf("comparing clocks: %w", err)
		}
		from, to := time.Until(date), date.Add(time.Second).Sub(sent)
		if i == 0 {
			low, high = from, to
		}
		low, high = max(low, from), min(high, to)
		if low > high {
			return Clock{}, errors.New("comparing clocks: one of them was set meanwhile")
		}
		if high-low <= serverNear || time.Since(began) >= serverLongest {
			return Clock{Offset: (low + high) / 2, Error: (high - low) / 2}, nil
		}
		select {
		case <-ctx.Done():
			return Clock{}, fmt.Errorf("comparing clocks: %w", context.Cause(ctx))
		case <-time.After(serverEvery):
		}
	}
}

// serverDate is when a server answered, whatever it did, to the second.
func serverDate(ctx context.Context, client *http.Client, url string) (time.Time, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return time.Time{}, err
	}
	res, err := client.Do(req)
	if err != nil {
		return time.Time{}, err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20)); err != nil { // so that the connection is used again
		return time.Time{}, err
	}
	date, err := http.ParseTime(res.Header.Get("Date"))
	if err != nil {
		return time.Time{}, fmt.Errorf("the date of the answer: %w", err)
	}
	return date, nil
}
