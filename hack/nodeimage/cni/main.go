// Cni is the network agent of the node image: one pod per node that keeps pods
// of all nodes able to reach each other. From the Node objects of the cluster
// it keeps three things right on its own node:
//
//   - the CNI configuration with which the container runtime gives pods a
//     veth pair and an address out of the node's pod CIDR,
//   - one route per other node: its pod CIDRs through its InternalIP,
//   - one masquerade rule for what pods send out of the pod network.
//
// All three stay in place while the agent or the API server is away.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/client-go/rest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("the agent cannot run", "err", err)
		os.Exit(1)
	}
}

// run reads the configuration from the environment and keeps the node's
// network right until ctx ends.
func run(ctx context.Context) error {
	node := os.Getenv("NODE_NAME")
	if node == "" {
		return fmt.Errorf("NODE_NAME is not set")
	}
	podSubnets, err := parsePrefixes(os.Getenv("POD_SUBNET"))
	if err != nil {
		return fmt.Errorf("failed to parse POD_SUBNET: %w", err)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("failed to find the API server: %w", err)
	}
	// The service address of the API server works once kube-proxy runs; the
	// endpoint that kind adds to the manifest always does.
	if endpoint := os.Getenv("CONTROL_PLANE_ENDPOINT"); endpoint != "" {
		config.Host = "https://" + endpoint
	}
	a, err := newAgent(config, node, podSubnets)
	if err != nil {
		return err
	}
	return a.run(ctx)
}

// parsePrefixes parses a comma-separated list of subnets.
func parsePrefixes(list string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for s := range strings.SplitSeq(list, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil {
			return nil, err
		}
		prefixes = append(prefixes, p.Masked())
	}
	return prefixes, nil
}
