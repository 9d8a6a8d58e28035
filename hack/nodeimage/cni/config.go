package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
)

const (
	// configFile is where the container runtime looks for the CNI
	// configuration; a node is not Ready before it is there.
	configFile = "/etc/cni/net.d/10-flatline.conflist"

	// leaseDir is where host-local keeps the addresses in use. It is gone
	// after a restart of the node, and so are all pods that had one.
	leaseDir = "/run/cni-ipam-state"
)

// The configuration types hold what is used here of the CNI specification and
// of the ptp, host-local and portmap plugins.
type (
	configList struct {
		CNIVersion string `json:"cniVersion"`
		Name       string `json:"name"`
		Plugins    []any  `json:"plugins"`
	}
	ptpPlugin struct {
		Type   string    `json:"type"`
		IPMasq bool      `json:"ipMasq"`
		MTU    int       `json:"mtu,omitempty"`
		IPAM   hostLocal `json:"ipam"`
	}
	hostLocal struct {
		Type    string      `json:"type"`
		DataDir string      `json:"dataDir"`
		Ranges  [][]ipRange `json:"ranges"`
		Routes  []ipRoute   `json:"routes"`
	}
	ipRange struct {
		Subnet netip.Prefix `json:"subnet"`
	}
	ipRoute struct {
		Dst netip.Prefix `json:"dst"`
	}
	portmapPlugin struct {
		Type         string          `json:"type"`
		Capabilities map[string]bool `json:"capabilities"`
	}
)

// syncConfig writes the CNI configuration if it is not there or not right. A
// node without a pod CIDR keeps what it has.
func syncConfig(want network) error {
	if len(want.subnets) == 0 {
		return nil
	}
	mtu, err := mtuOf(want.address)
	if err != nil {
		return err
	}
	data, err := config(want.subnets, mtu)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(configFile); err == nil && bytes.Equal(old, data) {
		return nil
	}
	// The runtime watches the folder: it must never see half a file. It does
	// not read names that start with a dot.
	tmp := filepath.Join(filepath.Dir(configFile), ".flatline.tmp")
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return fmt.Errorf("failed to write the CNI configuration: %w", err)
	}
	if err := os.Rename(tmp, configFile); err != nil {
		return fmt.Errorf("failed to write the CNI configuration: %w", err)
	}
	slog.Info("wrote the CNI configuration", "file", configFile, "subnets", want.subnets, "mtu", mtu)
	return nil
}

// config returns the CNI configuration for pods with an address in each of the
// subnets and with the given MTU (0: the plugin's own choice).
func config(subnets []netip.Prefix, mtu int) ([]byte, error) {
	ipam := hostLocal{Type: "host-local", DataDir: leaseDir}
	for _, subnet := range subnets {
		everywhere := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if subnet.Addr().Is6() {
			everywhere = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		ipam.Ranges = append(ipam.Ranges, []ipRange{{Subnet: subnet}})
		ipam.Routes = append(ipam.Routes, ipRoute{Dst: everywhere})
	}
	data, err := json.MarshalIndent(configList{
		CNIVersion: "1.0.0",
		Name:       "flatline",
		Plugins: []any{
			// Masquerading is done in one rule for the node instead, because
			// the plugin would hide a pod's address from pods of other nodes.
			ptpPlugin{Type: "ptp", MTU: mtu, IPAM: ipam},
			portmapPlugin{Type: "portmap", Capabilities: map[string]bool{"portMappings": true}},
		},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("failed to encode the CNI configuration: %w", err)
	}
	return append(data, '\n'), nil
}

// mtuOf returns the MTU of the interface that has the address, 0 if none has.
func mtuOf(address netip.Addr) (int, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return 0, fmt.Errorf("failed to list interfaces: %w", err)
	}
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil {
			continue // an interface that has just gone
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == address {
				return i.MTU, nil
			}
		}
	}
	return 0, nil
}
