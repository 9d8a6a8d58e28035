package chaos

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flatline-chaos/flatline/pkg/observe"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// All clocks are asked, and each answer is a fact, also where another one fails.
func TestCompareClocks(t *testing.T) {
	says := func(c observe.Clock, err error) comparison {
		return func(context.Context) (observe.Clock, error) { return c, err }
	}
	ahead := observe.Clock{Offset: 1500 * time.Millisecond, Error: 20 * time.Millisecond}
	clocks := map[string]comparison{
		"node w1": says(observe.Clock{Same: true}, nil), "kube-apiserver": says(ahead, nil), "node w2": says(observe.Clock{}, errors.New("paused")),
	}
	want := map[string]map[string]string{
		"node w1":        {"when": "after", "same": "true", "offset": "0.000000", "error": "0.000000"},
		"kube-apiserver": {"when": "after", "same": "false", "offset": "1.500000", "error": "0.020000"},
		"node w2":        {"when": "after", "why": "paused"},
	}
	var mu sync.Mutex
	got := map[string]map[string]string{}
	found, err := compareClocks(t.Context(), timeline.After, clocks, func(typ, object string, detail map[string]string) {
		mu.Lock()
		defer mu.Unlock()
		got[typ+" "+object] = detail
	})
	for object, detail := range want {
		if !maps.Equal(got["Clock "+object], detail) {
			t.Errorf("of %s: %v, want %v", object, got["Clock "+object], detail)
		}
	}
	if len(got) != len(want) || err == nil || !strings.Contains(err.Error(), "node w2: paused") {
		t.Errorf("%d facts, error %v", len(got), err)
	}
	if names := slices.Sorted(maps.Keys(found)); !slices.Equal(names, []string{"kube-apiserver", "node w1"}) || found["kube-apiserver"] != ahead {
		t.Errorf("found %v", found)
	}
}

// The clocks of all nodes and of the API server are compared.
func TestClocksOfARun(t *testing.T) {
	r := &run{nodes: map[string]Node{"c1-control-plane": {}, "c1-worker": {}}}
	if got, want := slices.Sorted(maps.Keys(r.clocks(nil, ""))), []string{"kube-apiserver", "node c1-control-plane", "node c1-worker"}; !slices.Equal(got, want) {
		t.Errorf("compared are %v, want %v", got, want)
	}
}
