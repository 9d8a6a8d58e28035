package chaos

import (
	"net/http"
	"sync/atomic"
	"syscall"
	"time"
)

// An apiCounter counts the requests that we make of the API server.
type apiCounter struct{ n atomic.Int64 }

func (c *apiCounter) wrap(rt http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		c.n.Add(1)
		return rt.RoundTrip(r)
	})
}

func (c *apiCounter) reset()       { c.n.Store(0) }
func (c *apiCounter) count() int64 { return c.n.Load() }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// cpuTime is the processor time that this process and the commands it has waited
// for have used so far.
func cpuTime() time.Duration {
	var total time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			total += time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())
		}
	}
	return total
}
