package envoytest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
)

func TestNetworkCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	network := NewNetwork(t, "a", "b")
	spaces := network.namespaces
	if got := present(network.id, spaces); got != 5 {
		t.Fatalf("%d of a bridge, two veths and two namespaces are there", got)
	}
	if err := network.Close(); err != nil {
		t.Error(err)
	}
	if got := present(network.id, spaces); got != 0 {
		t.Errorf("%d interfaces and namespaces are left", got)
	}
}

// present counts the bridge, veths and namespaces that exist.
func present(bridge string, spaces []*Namespace) (count int) {
	links := []string{bridge}
	for _, ns := range spaces {
		links = append(links, ns.id)
		if _, err := os.Stat(ns.path()); err == nil {
			count++
		}
	}
	for _, name := range links {
		if _, err := net.InterfaceByName(name); err == nil {
			count++
		}
	}
	return count
}

// A network whose process was killed goes when the next one is built.
func TestSweepRemovesTheAbandoned(t *testing.T) {
	t.Parallel()
	NewNetwork(t) // skips where networks cannot be built
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("%s%d-dead", idPrefix, gone.Process.Pid)
	for _, args := range []string{"link add " + id + " type bridge", "netns add " + id} {
		if err := ip(t.Context(), args); err != nil {
			t.Fatal(err)
		}
	}
	NewNetwork(t)
	if got := present(id, []*Namespace{{id: id}}); got != 0 {
		t.Errorf("%d parts of an abandoned network are left", got)
	}
}

func TestAbandoned(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		fmt.Sprintf("%s%d-x1y2", idPrefix, os.Getpid()): false, // ours, alive
		idPrefix + "4194304-x1y2":                       true,  // above the kernel's highest process id
		idPrefix + "4194304":                            false,
		idPrefix + "-x1y2":                              false,
		"eth0":                                          false,
		"br-4194304":                                    false,
	} {
		if got := abandoned(name); got != want {
			t.Errorf("abandoned(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestPickSubnet(t *testing.T) {
	t.Parallel()
	taken := func(texts ...string) (out []netip.Prefix) {
		for _, text := range texts {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	for _, tt := range []struct {
		taken []netip.Prefix
		want  string
	}{
		{nil, "198.18.0.0/24"},
		{taken("10.0.0.1/8", "fd00::1/64", "::1/128"), "198.18.0.0/24"},
		{taken("198.18.0.1/24", "198.18.1.7/32"), "198.18.2.0/24"},
		{taken("198.18.0.0/16"), "198.19.0.0/24"},
		{taken("198.18.0.0/15"), ""},
	} {
		got, err := pickSubnet(tt.taken)
		if (err != nil) != (tt.want == "") || err == nil && got.String() != tt.want {
			t.Errorf("taken %v: got %v, %v; want %q", tt.taken, got, err, tt.want)
		}
	}
}

func TestForbidden(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"ip link add x type bridge: exit status 2: RTNETLINK answers: Operation not permitted": true,
		"ip link add x type bridge: exit status 2: Error: Unknown device type.":                true,
		"ip addr add: exit status 2: RTNETLINK answers: File exists":                           false,
	} {
		if got := forbidden(errors.New(text)); got != want {
			t.Errorf("forbidden(%q) = %v, want %v", text, got, want)
		}
	}
	if forbidden(nil) {
		t.Error("no error is forbidden")
	}
}
