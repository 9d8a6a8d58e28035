package main

import (
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// A network is what a node needs for its pods to reach those of other nodes.
type network struct {
	address netip.Addr                  // the node's own first InternalIP
	subnets []netip.Prefix              // where the node's own pods get their addresses from
	routes  map[netip.Prefix]netip.Addr // the pod CIDRs of the other nodes, by way of their addresses
}

// plan derives the network of the named node from all nodes. A node that has
// no pod CIDR or no address yet is left out: an update of it will follow. The
// result is good for all other nodes even if there is an error.
func plan(self string, nodes []*corev1.Node) (network, error) {
	want := network{routes: map[netip.Prefix]netip.Addr{}}
	var errs []error
	for _, node := range nodes {
		subnets, err := podCIDRs(node)
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", node.Name, err))
			continue
		}
		addresses := internalIPs(node)
		if node.Name == self {
			want.subnets = subnets
			if len(addresses) > 0 {
				want.address = addresses[0]
			}
			continue
		}
		for _, subnet := range subnets {
			for _, address := range addresses {
				if address.Is4() == subnet.Addr().Is4() {
					want.routes[subnet] = address
					break
				}
			}
		}
	}
	return want, errors.Join(errs...)
}

// podCIDRs returns the subnets of the node's pods, one per address family.
func podCIDRs(node *corev1.Node) ([]netip.Prefix, error) {
	var subnets []netip.Prefix
	for _, s := range node.Spec.PodCIDRs {
		subnet, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("failed to parse a pod CIDR: %w", err)
		}
		subnets = append(subnets, subnet.Masked())
	}
	return subnets, nil
}

// internalIPs returns the addresses at which other nodes reach the node.
func internalIPs(node *corev1.Node) []netip.Addr {
	var addresses []netip.Addr
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		if address, err := netip.ParseAddr(a.Address); err == nil {
			addresses = append(addresses, address.Unmap())
		}
	}
	return addresses
}
