package envoytest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	// ProxyUID is the user whose traffic Intercept leaves alone.
	ProxyUID = 1337
	// OutboundPort and InboundPort are where Intercept sends connections.
	OutboundPort = 15001
	InboundPort  = 15006
)

// idPrefix starts the names of all interfaces and namespaces made here; the
// process id follows, then a random part. The kernel allows 15 bytes.
const idPrefix = "it"

// interception is the nftables rule set of a workload: all TCP that does not
// come from the proxy goes to the outbound port, all TCP from outside to the
// inbound port, but for the proxy's own admin, health and metrics ports.
const interception = `
table ip mesh {
	chain out {
		type nat hook output priority -100; policy accept;
		meta skuid 1337 return
		ip daddr 127.0.0.0/8 return
		meta l4proto tcp redirect to :15001
	}
	chain in {
		type nat hook prerouting priority -100; policy accept;
		iifname != "eth0" return
		tcp dport { 15000, 15006, 15020, 15021, 15090 } return
		meta l4proto tcp redirect to :15006
	}
}
`

// Network is a bridge with network namespaces on it, like pods on a node. The
// process can reach them, and they it, at Host.
type Network struct {
	// Read-only after Build.
	Subnet     netip.Prefix // a /24
	Host       netip.Addr   // the bridge's own address, their default route
	namespaces []*Namespace
	id         string
}

// RequireRoot skips the test, saying why, unless it may build networks: root,
// and the commands ip and nft.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: network namespaces need root")
	}
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: needs %s (packages iproute2 and nftables): %v", tool, err)
		}
	}
}

// NewNetwork builds a network with one namespace per name for the length of a
// test. It skips the test where networks cannot be built.
func NewNetwork(t testing.TB, names ...string) *Network {
	t.Helper()
	RequireRoot(t)
	n, err := Build(t.Context(), names...)
	if forbidden(err) {
		t.Skipf("skipped: this machine does not allow network namespaces: %v", err)
	}
	if err != nil {
		t.Fatalf("build network: %v", err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close network: %v", err)
		}
	})
	return n
}

// forbidden reports whether err comes from a container or kernel that lacks
// what networks need, not from a mistake.
func forbidden(err error) bool {
	if err == nil {
		return false
	}
	for _, reason := range []string{"Operation not permitted", "Operation not supported", "Unknown device type", "Permission denied"} {
		if strings.Contains(err.Error(), reason) {
			return true
		}
	}
	return false
}

// Namespace is the namespace of that name; nil if there is none.
func (n *Network) Namespace(name string) *Namespace {
	for _, ns := range n.namespaces {
		if ns.Name == name {
			return ns
		}
	}
	return nil
}

// Build makes a network until Close. It first removes what processes that no
// longer run have left behind.
func Build(ctx context.Context, names ...string) (*Network, error) {
	unlock, err := lockNetworks()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := sweep(ctx); err != nil {
		return nil, err
	}
	subnet, err := freeSubnet()
	if err != nil {
		return nil, err
	}
	n := &Network{
		Subnet: subnet,
		Host:   subnet.Addr().Next(),
		id:     fmt.Sprintf("%s%d-%s", idPrefix, os.Getpid(), strings.ToLower(rand.Text()[:4])),
	}
	if err := n.build(ctx, names); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Network) build(ctx context.Context, names []string) error {
	bridge := n.id
	for _, args := range []string{
		"link add " + bridge + " type bridge",
		fmt.Sprintf("addr add %s/%d dev %s", n.Host, n.Subnet.Bits(), bridge),
		"link set " + bridge + " up",
	} {
		if err := ip(ctx, args); err != nil {
			return err
		}
	}
	addr := n.Host
	for i, name := range names {
		addr = addr.Next()
		ns := &Namespace{Name: name, Addr: addr, id: fmt.Sprintf("%s%c", n.id, 'a'+i)}
		if err := n.add(ctx, ns); err != nil {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	return nil
}

// add makes one namespace and plugs it into the bridge.
func (n *Network) add(ctx context.Context, ns *Namespace) error {
	if err := ip(ctx, "netns add "+ns.id); err != nil {
		return err
	}
	n.namespaces = append(n.namespaces, ns)
	for _, args := range []string{
		"link add " + ns.id + " type veth peer name eth0 netns " + ns.id,
		"link set " + ns.id + " master " + n.id + " up",
		"-n " + ns.id + " link set lo up",
		fmt.Sprintf("-n %s addr add %s/%d dev eth0", ns.id, ns.Addr, n.Subnet.Bits()),
		"-n " + ns.id + " link set eth0 up",
		fmt.Sprintf("-n %s route add default via %s", ns.id, n.Host),
	} {
		if err := ip(ctx, args); err != nil {
			return err
		}
	}
	return nil
}

// Close removes the namespaces and the bridge. Processes still inside keep
// their namespace alive, cut off from all others: stop them first.
func (n *Network) Close() error {
	ctx := context.Background()
	var errs []error
	for _, ns := range n.namespaces {
		errs = append(errs, ip(ctx, "netns del "+ns.id))
		// The veth pair goes with its namespace, but only when the last socket
		// inside is gone; its outer end is wanted gone now.
		_ = ip(ctx, "link del "+ns.id)
	}
	n.namespaces = nil
	if _, err := net.InterfaceByName(n.id); err == nil {
		errs = append(errs, ip(ctx, "link del "+n.id))
	}
	return errors.Join(errs...)
}

// Intercept redirects the namespace's TCP to an Envoy at OutboundPort and
// InboundPort, but for the traffic of ProxyUID, as a sidecar's start-up does.
func (n *Namespace) Intercept(ctx context.Context) error {
	return n.Run(ctx, interception, "nft", "-f", "-")
}

// lockNetworks serialises the choice of subnets and names over all processes.
func lockNetworks() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "isthmus-networks.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return func() { f.Close() }, nil
}

// freeSubnet is a /24 of the range set aside for benchmarks of network devices
// (RFC 2544), which real networks do not use, that no interface of this machine
// has.
func freeSubnet() (netip.Prefix, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Prefix{}, err
	}
	var taken []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			taken = append(taken, p)
		}
	}
	return pickSubnet(taken)
}

func pickSubnet(taken []netip.Prefix) (netip.Prefix, error) {
	for i := range 512 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, byte(18 + i/256), byte(i % 256), 0}), 24)
		if !overlaps(p, taken) {
			return p, nil
		}
	}
	return netip.Prefix{}, errors.New("no free subnet in 198.18.0.0/15")
}

func overlaps(p netip.Prefix, others []netip.Prefix) bool {
	for _, o := range others {
		if p.Overlaps(o) {
			return true
		}
	}
	return false
}

// sweep removes namespaces and interfaces whose process is gone.
func sweep(ctx context.Context) error {
	entries, err := os.ReadDir("/var/run/netns")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if abandoned(e.Name()) {
			// Another process may be sweeping it without this lock's folder.
			_ = ip(ctx, "netns del "+e.Name())
		}
	}
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, l := range links {
		if abandoned(l.Name) {
			_ = ip(ctx, "link del "+l.Name)
		}
	}
	return nil
}

// abandoned reports whether a name was made here by a process that is gone.
func abandoned(name string) bool {
	rest, ours := strings.CutPrefix(name, idPrefix)
	text, _, dashed := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(text)
	if !ours || !dashed || err != nil {
		return false
	}
	return errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// ip runs the ip command with space-separated arguments.
func ip(ctx context.Context, args string) error {
	return (*Namespace)(nil).Run(ctx, "", "ip", strings.Fields(args)...)
}
