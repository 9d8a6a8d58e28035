package main

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
)

// syncMasquerade makes what pods send out of the pod subnets carry the address
// of their node, as nobody outside has a route back to a pod. The nft program
// replaces the agent's table in one transaction.
func syncMasquerade(ctx context.Context, podSubnets []netip.Prefix) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(masqueradeRules(podSubnets))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("failed to set the masquerade rule: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// masqueradeRules returns the nftables rules, one table for each subnet's
// family. "add" before "delete" because only an existing table can be deleted.
func masqueradeRules(podSubnets []netip.Prefix) string {
	var b strings.Builder
	for _, subnet := range podSubnets {
		family := "ip"
		if subnet.Addr().Is6() {
			family = "ip6"
		}
		fmt.Fprintf(&b, `add table %[1]s flatline-cni
delete table %[1]s flatline-cni
table %[1]s flatline-cni {
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		%[1]s saddr %[2]s %[1]s daddr != %[2]s masquerade fully-random
	}
}
`, family, subnet)
	}
	return b.String()
}
