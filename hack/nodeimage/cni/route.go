package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// routeProtocol marks the routes of the agent ("ip route show proto 102"), so
// that it finds those of an earlier process and leaves all others alone.
const routeProtocol netlink.RouteProtocol = 102

// syncRoutes makes want the agent's routes: destination by gateway.
func syncRoutes(want map[netip.Prefix]netip.Addr) error {
	have, err := netlink.RouteListFiltered(netlink.FAMILY_ALL,
		&netlink.Route{Protocol: routeProtocol, Table: unix.RT_TABLE_MAIN},
		netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("failed to list routes: %w", err)
	}

	var errs []error
	done := map[netip.Prefix]bool{}
	for _, r := range have {
		dst, gateway := prefixOf(r.Dst), addrOf(r.Gw)
		if g, ok := want[dst]; ok {
			done[dst] = g == gateway
			continue
		}
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("failed to remove the route to %s: %w", dst, err))
			continue
		}
		slog.Info("removed a route", "to", dst, "via", gateway)
	}
	for dst, gateway := range want {
		if done[dst] {
			continue
		}
		r := &netlink.Route{
			Dst:      &net.IPNet{IP: dst.Addr().AsSlice(), Mask: net.CIDRMask(dst.Bits(), dst.Addr().BitLen())},
			Gw:       gateway.AsSlice(),
			Protocol: routeProtocol,
		}
		if err := netlink.RouteReplace(r); err != nil {
			errs = append(errs, fmt.Errorf("failed to set the route to %s via %s: %w", dst, gateway, err))
			continue
		}
		slog.Info("set a route", "to", dst, "via", gateway)
	}
	return errors.Join(errs...)
}

// prefixOf converts a subnet; the result of nil is no valid prefix.
func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(addrOf(n.IP), ones)
}

// addrOf converts an address; the result of nil is no valid address.
func addrOf(ip net.IP) netip.Addr {
	address, _ := netip.AddrFromSlice(ip)
	return address.Unmap()
}
