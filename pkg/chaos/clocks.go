package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/flatline-chaos/flatline/pkg/observe"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// clockDeadline ends a comparison that hangs, far above what the slowest machine takes.
const clockDeadline = time.Minute

// A comparison is one of a clock with the observer's.
type comparison func(context.Context) (observe.Clock, error)

// clocks are those whose stamps are in a record: of every node, and of the API server.
func (r *run) clocks(api *http.Client, host string) map[string]comparison {
	bootID, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // not there on another system than Linux
	all := map[string]comparison{
		"kube-apiserver": func(ctx context.Context) (observe.Clock, error) {
			return observe.CompareServer(ctx, api, host+"/version")
		},
	}
	for name, n := range r.nodes {
		all["node "+name] = func(ctx context.Context) (observe.Clock, error) {
			return observe.CompareNode(ctx, n, string(bootID))
		}
	}
	return all
}

// compareClocks records how all clocks stand, when is timeline.Before or timeline.After what is
// measured, and returns what it found. The error names those that could not be compared.
func compareClocks(
	ctx context.Context, when string, clocks map[string]comparison, fact func(typ, object string, detail map[string]string),
) (map[string]observe.Clock, error) {
	ctx, cancel := context.WithTimeout(ctx, clockDeadline)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	found := map[string]observe.Clock{}
	var failed error
	for object, compare := range clocks {
		all.Go(func() {
			c, err := compare(ctx)
			detail := map[string]string{"when": when, "same": strconv.FormatBool(c.Same),
				"offset": timeline.Seconds(c.Offset), "error": timeline.Seconds(c.Error)}
			if err != nil {
				detail = map[string]string{"when": when, "why": err.Error()}
			}
			fact(timeline.TypeClock, object, detail)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s: %w", object, err))
				return
			}
			found[object] = c
		})
	}
	all.Wait()
	return found, failed
}

// startClocks compares the clocks and takes that of the control plane for the one by which
// stamps are read.
func (r *run) startClocks(ctx context.Context, config *rest.Config) error {
	api, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	r.compare = r.clocks(api, config.Host)
	found, err := compareClocks(ctx, timeline.Before, r.compare, r.fact)
	if err != nil {
		return err
	}
	clock := found["node "+r.target.ControlPlane.Name]
	if !clock.Same {
		r.cfg.ClockOffset, r.cfg.ClockError = clock.Offset.Seconds(), clock.Error.Seconds()
		r.cfg.Warnings = append(r.cfg.Warnings, fmt.Sprintf(
			"the nodes have another kernel than the observer: their clock is %.3f s ahead, give or take %.3f s",
			r.cfg.ClockOffset, r.cfg.ClockError))
	}
	r.target.Offset = clock.Offset
	return nil
}
