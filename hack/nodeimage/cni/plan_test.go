package main

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func node(name string, podCIDRs, addresses []string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: podCIDRs}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

func TestPlan(t *testing.T) {
	self := node("self", []string{"10.244.0.0/24", "fd00:244::/64"}, []string{"172.18.0.2", "fc00::2"})
	tests := map[string]struct {
		nodes  []*corev1.Node
		routes map[string]string
		fails  bool
	}{
		"alone": {
			nodes: []*corev1.Node{self},
		},
		"one family": {
			nodes:  []*corev1.Node{node("other", []string{"10.244.1.0/24"}, []string{"172.18.0.3"}), self},
			routes: map[string]string{"10.244.1.0/24": "172.18.0.3"},
		},
		"each subnet goes by way of an address of its family": {
			nodes:  []*corev1.Node{self, node("other", []string{"fd00:244:1::/64", "10.244.1.0/24"}, []string{"172.18.0.3", "fc00::3"})},
			routes: map[string]string{"10.244.1.0/24": "172.18.0.3", "fd00:244:1::/64": "fc00::3"},
		},
		"nodes that are not complete yet": {
			nodes: []*corev1.Node{self, node("no-cidr", nil, []string{"172.18.0.3"}), node("no-address", []string{"10.244.2.0/24"}, nil)},
		},
		"a bad node does not hide a good one": {
			nodes:  []*corev1.Node{self, node("bad", []string{"nonsense"}, []string{"172.18.0.3"}), node("good", []string{"10.244.2.0/24"}, []string{"172.18.0.4"})},
			routes: map[string]string{"10.244.2.0/24": "172.18.0.4"},
			fails:  true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := plan("self", test.nodes)
			if (err != nil) != test.fails {
				t.Errorf("error is %v", err)
			}
			if got.address != netip.MustParseAddr("172.18.0.2") || len(got.subnets) != 2 {
				t.Errorf("own address %s, own subnets %s", got.address, got.subnets)
			}
			routes := map[string]string{}
			for dst, gateway := range got.routes {
				routes[dst.String()] = gateway.String()
			}
			if !maps.Equal(routes, test.routes) {
				t.Errorf("routes are %v, want %v", routes, test.routes)
			}
		})
	}
}

func TestNeedsSync(t *testing.T) {
	before := node("n", []string{"10.244.0.0/24"}, []string{"172.18.0.2"})
	before.ResourceVersion = "1"
	tests := map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"resync":     {func(*corev1.Node) {}, true},
		"heartbeat":  {func(n *corev1.Node) { n.ResourceVersion = "2" }, false},
		"pod CIDR":   {func(n *corev1.Node) { n.ResourceVersion, n.Spec.PodCIDRs = "2", nil }, true},
		"other host": {func(n *corev1.Node) { n.ResourceVersion, n.Status.Addresses = "2", nil }, true},
	}
	for name, test := range tests {
		after := before.DeepCopy()
		test.change(after)
		if got := needsSync(before, after); got != test.want {
			t.Errorf("%s: needsSync is %t", name, got)
		}
	}
}

func TestConfig(t *testing.T) {
	got, err := config([]netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:244::/64")}, 1450)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
  "cniVersion": "1.0.0",
  "name": "flatline",
  "plugins": [
    {
      "type": "ptp",
      "ipMasq": false,
      "mtu": 1450,
      "ipam": {
        "type": "host-local",
        "dataDir": "/run/cni-ipam-state",
        "ranges": [
          [
            {
              "subnet": "10.244.1.0/24"
            }
          ],
          [
            {
              "subnet": "fd00:244::/64"
            }
          ]
        ],
        "routes": [
          {
            "dst": "0.0.0.0/0"
          },
          {
            "dst": "::/0"
          }
        ]
      }
    },
    {
      "type": "portmap",
      "capabilities": {
        "portMappings": true
      }
    }
  ]
}
`
	if string(got) != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestMasqueradeRules(t *testing.T) {
	got := masqueradeRules([]netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")})
	const want = `add table ip flatline-cni
delete table ip flatline-cni
table ip flatline-cni {
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr 10.244.0.0/16 ip daddr != 10.244.0.0/16 masquerade fully-random
	}
}
`
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestParsePrefixes(t *testing.T) {
	got, err := parsePrefixes("10.244.0.1/16, fd00:244::/56")
	want := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/56")}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
	if _, err := parsePrefixes(""); err == nil {
		t.Error("an empty list is no subnet")
	}
}
