package chaos

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	certv1 "k8s.io/api/certificates/v1"

	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/observe"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// rotationOff starts the target's kubelet with rotateCertificates false: it never
// asks for a certificate, and the one it has ends when it would anyway.
type rotationOff struct {
	since map[string]time.Time // of the injection, by node
	off   map[string]bool      // nodes whose kubelet has said so
}

const kubeletConfig = cluster.KubeletConfig

//go:embed restore-config.sh
var restoreConfig string

//go:embed switch-rotation.sh
var switchRotation string

// Undo puts the configuration back; the kubelet stays stopped until the repair.
func (f *rotationOff) Undo(t *Target) []Step {
	var steps []Step
	for _, n := range t.Nodes {
		steps = append(steps, Step{Desc: "putting the kubelet's configuration back", On: n.Name,
			Script: inStage(t.RunID, given(restoreConfig, kubeletConfig))})
	}
	return steps
}

// Inject changes the configuration and starts the kubelet with it, and with the
// certificate that the experiment makes.
func (f *rotationOff) Inject(ctx context.Context, t *Target) error {
	f.since, f.off = map[string]time.Time{}, map[string]bool{}
	for i, n := range t.Nodes {
		var pem []byte
		install := ""
		if c := t.Spec.Certificate; c.Mint > 0 {
			var err error
			if pem, err = t.mint(n, c); err != nil {
				return err
			}
			install = "(umask 077; cat > short.pem)\n" + installScript("short.pem", shortFile)
		}
		stopped, started, err := t.restartKubelet(ctx, n, pem, given(switchRotation, kubeletConfig)+install)
		if err != nil {
			return fmt.Errorf("switching rotation off: %w", err)
		}
		f.since[n.Name] = stopped
		if i == 0 {
			t.injected(stopped, "the kubelet runs with rotateCertificates false")
		}
		t.installed(n, started, shortFile, pem)
		t.Emit(timeline.Event{Stamp: started, Source: "run", Type: timeline.TypeKubeletStarted, Object: "node " + n.Name})
	}
	return nil
}

// Witness asks each kubelet once for its effective configuration. It sees the fault
// biting when one that would have asked by now has not.
func (f *rotationOff) Witness(ctx context.Context, t *Target) (Evidence, error) {
	ev := Evidence{InPlace: true, Biting: f.since != nil}
	var seen []string
	for _, n := range t.Nodes {
		late, inFile, err := lateToAsk(ctx, n, f.since[n.Name], t.now())
		if err != nil {
			return Evidence{}, err
		}
		if f.since != nil && !f.off[n.Name] {
			on, err := rotates(ctx, t, n.Name)
			if err != nil {
				return Evidence{}, err
			}
			f.off[n.Name] = !on
		}
		ev.InPlace = ev.InPlace && inFile
		ev.Biting = ev.Biting && f.off[n.Name] && late
		seen = append(seen, fmt.Sprintf("%s: rotateCertificates by its configz %v, past its deadline %v", n.Name, !f.off[n.Name], late))
	}
	if ev.Biting {
		asked, _, err := t.everyTarget(ctx, t.firstOf(f.since), func(certv1.CertificateSigningRequest) bool { return true })
		if err != nil {
			return Evidence{}, err
		}
		ev.Biting = !asked
		seen = append(seen, fmt.Sprintf("asked for a certificate %v", asked))
	}
	ev.Seen = strings.Join(seen, "; ")
	return ev, nil
}

// firstOf is the first of some times.
func (t *Target) firstOf(times map[string]time.Time) time.Time {
	first := t.now()
	for _, at := range times {
		if at.Before(first) {
			first = at
		}
	}
	return first
}

// lateToAsk says whether a kubelet that rotates, started at a time, would have asked
// by now: after 90 % of its certificate's life, or at its start where that was over,
// which takes up to 5 s. inFile says whether rotation is off in its configuration file.
func lateToAsk(ctx context.Context, n Node, started, now time.Time) (late, inFile bool, err error) {
	out, err := n.script(ctx, nil, "grep -q '^rotateCertificates: false' "+kubeletConfig+" && echo off || echo on\n"+
		"sed -n '/BEGIN CERT/,/END CERT/p' "+timeline.CurrentCertificate)
	if err != nil {
		return false, false, fmt.Errorf("looking at the configuration of %s: %w", n.Name, err)
	}
	setting, text, _ := strings.Cut(out, "\n")
	c := map[string]string{}
	observe.DescribeCertificate([]byte(text), c)
	from, err1 := time.Parse(time.RFC3339, c["notBefore"])
	to, err2 := time.Parse(time.RFC3339, c["notAfter"])
	if err1 != nil || err2 != nil {
		return false, setting == "off", nil
	}
	deadline := from.Add(to.Sub(from) * 9 / 10)
	if started.After(deadline) {
		deadline = started
	}
	return now.After(deadline.Add(startTime)), setting == "off", nil
}

// rotates asks a running kubelet whether it rotates its certificate.
func rotates(ctx context.Context, t *Target, node string) (bool, error) {
	data, err := t.Client.Raw(ctx, "/api/v1/nodes/"+node+"/proxy/configz")
	if err != nil {
		return false, fmt.Errorf("asking the kubelet of %s for its configuration: %w", node, err)
	}
	var page struct {
		Config struct {
			RotateCertificates *bool `json:"rotateCertificates"`
		} `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(data, &page); err != nil {
		return false, fmt.Errorf("asking the kubelet of %s for its configuration: %w", node, err)
	}
	return page.Config.RotateCertificates != nil && *page.Config.RotateCertificates, nil
}
