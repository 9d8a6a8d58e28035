package judge

import (
	"fmt"
	"strconv"
	"time"
)

// Timing holds the flags that rule the heartbeat, in the symbols of the
// equations.
type Timing struct {
	D time.Duration // kubelet nodeLeaseDurationSeconds
	G time.Duration // kube-controller-manager node-monitor-grace-period
	P time.Duration // kube-controller-manager node-monitor-period
	Q float64       // kube-controller-manager node-eviction-rate, nodes per second
	F time.Duration // kubelet nodeStatusUpdateFrequency: its syncs of the node's status
	R time.Duration // kubelet nodeStatusReportFrequency: its reports where nothing changes
	// Unhealthy is kube-controller-manager unhealthy-zone-threshold, a share.
	Unhealthy float64
	// Large is true for a cluster above large-cluster-size-threshold, where a
	// disrupted zone is evicted more slowly instead of not at all.
	Large bool
	// Race is true for Kubernetes 1.34 and later, where NoExecute is queued
	// before the lister has seen Ready=Unknown (kubernetes PR 120816).
	Race bool
}

// Timing reads the flags; an error names the one that is missing.
func (c *Config) Timing() (Timing, error) {
	var t Timing
	var err error
	if t.D, err = c.seconds("kubelet", "nodeLeaseDurationSeconds"); err != nil {
		return t, err
	}
	if t.G, err = c.seconds("kube-controller-manager", "node-monitor-grace-period"); err != nil {
		return t, err
	}
	if t.P, err = c.seconds("kube-controller-manager", "node-monitor-period"); err != nil {
		return t, err
	}
	if t.Q, err = strconv.ParseFloat(c.Flag("kube-controller-manager", "node-eviction-rate"), 64); err != nil || !(t.Q > 0) {
		return t, fmt.Errorf("flag node-eviction-rate of kube-controller-manager: %q is not a positive rate", c.Flag("kube-controller-manager", "node-eviction-rate"))
	}
	t.F, t.R = 10*time.Second, 5*time.Minute // Kubernetes' defaults, where the fields were not read
	for name, d := range map[string]*time.Duration{"nodeStatusUpdateFrequency": &t.F, "nodeStatusReportFrequency": &t.R} {
		if c.Flag("kubelet", name) == "" {
			continue
		}
		if *d, err = c.seconds("kubelet", name); err != nil {
			return t, err
		}
	}
	t.Unhealthy, t.Large = 0.55, len(c.Nodes) > 50 // Kubernetes' defaults, where the flags were not read
	if v, err := strconv.ParseFloat(c.Flag("kube-controller-manager", "unhealthy-zone-threshold"), 64); err == nil {
		t.Unhealthy = v
	}
	if v, err := strconv.Atoi(c.Flag("kube-controller-manager", "large-cluster-size-threshold")); err == nil {
		t.Large = len(c.Nodes) > v
	}
	var major, minor int
	if _, err := fmt.Sscanf(c.KubernetesVersion, "v%d.%d", &major, &minor); err != nil {
		return t, fmt.Errorf("kubernetesVersion %q is not of the form v1.37.2", c.KubernetesVersion)
	}
	t.Race = major > 1 || minor >= 34
	return t, nil
}

// I is the longest gap between two accepted renewals of a healthy Lease: a
// quarter of D, 4 % of jitter, and half a second for the request itself
// (component-helpers/apimachinery/lease/controller.go: JitterUntil, sliding).
func (t Timing) I() time.Duration { return t.D*26/100 + requested }

// Sync is the longest gap between two syncs of a kubelet's node status: 4 % of jitter
// (kubelet.go: JitterUntil of syncNodeStatus with nodeStatusUpdateFrequency, 0.04, sliding).
func (t Timing) Sync() time.Duration { return t.F * 104 / 100 }

// Report is the longest gap between two status reports of a kubelet that has nothing new to
// say: the first sync after nodeStatusReportFrequency (kubelet_node_status.go shouldPatchNodeStatus).
func (t Timing) Report() time.Duration {
	if t.F <= 0 {
		return t.R
	}
	return max(1, (t.R+t.F-1)/t.F) * t.Sync()
}

// requested is what the request for a renewal may take on any machine.
const requested = 500 * time.Millisecond

// Pass is the period of the node lifecycle controller's passes: the timer is
// sliding, so the time of a pass comes on top; 1 % is what was seen.
func (t Timing) Pass() time.Duration { return t.P + t.P/100 }

// Whole is the grace in whole passes: a node is given up in a pass, and the first of
// them after the grace may come so late (node_lifecycle_controller.go monitorNodeHealth:
// wait.UntilWithContext with the period).
func (t Timing) Whole() time.Duration {
	if t.P <= 0 {
		return t.G
	}
	return (t.G + t.P - 1) / t.P * t.P
}

// Flaps says why healthy nodes will flap between Ready and Unknown with these flags;
// empty where they need not. The controller hears a node by its Lease and by its status
// reports, and gives it up when both come too seldom (node_lifecycle_controller.go
// tryUpdateNodeHealth: probeTimestamp).
func (t Timing) Flaps() string {
	renew := t.D * 26 / 100
	if t.G > renew || t.R > 0 && t.G > t.Report() {
		return ""
	}
	return fmt.Sprintf("node-monitor-grace-period %s is not longer than the Lease renew interval of up to %s: healthy nodes will flap between Ready and Unknown",
		Duration(t.G), Duration(renew.Round(10*time.Millisecond)))
}

// Warnings says what in these flags will surprise.
func (t Timing) Warnings() []string {
	if why := t.Flaps(); why != "" {
		return []string{why}
	}
	return nil
}
