package gen_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// world is a mesh of several networks and one service, in the plainest form.
type world struct {
	gateways  []pushcontext.Gateway
	endpoints []*model.Endpoint
	proxy     gen.Class
	tls       *networking.ClientTLSSettings // of a DestinationRule
	minHealth int32
	failover  map[string]string // by region, nil without outlier detection
	prefer    []string          // failoverPriority
	subset    map[string]string // labels of the endpoints that are asked for
}

// naive decides about each endpoint by itself, from the text of the contract and without any of the
// selector's parts. It gives "p<priority> <locality> <address>" with weight.
func (w *world) naive() map[string]uint64 {
	type sent struct {
		priority int
		locality string
		addr     string
		gateway  bool
	}
	weights := map[sent]uint64{}
	scale := w.scale()
	if slices.ContainsFunc(w.endpoints, func(e *model.Endpoint) bool { return w.inSubset(e) && e.Weight == 0.25 }) {
		scale *= 100
	}
	for _, e := range w.endpoints {
		if !w.inSubset(e) || !w.visible(e) || e.Health == model.Terminating || e.Health == model.Draining || e.Health == model.Unhealthy && w.minHealth > 0 {
			continue
		}
		if w.tls != nil && w.tls.Mode == networking.ClientTLSSettings_ISTIO_MUTUAL && w.proxy.ClientTLS.Key == "" {
			continue // or it would be called in cleartext
		}
		weight := uint64(e.Weight * float64(scale))
		if e.Weight == 0 {
			weight = scale
		}
		to := sent{priority: w.priority(e), locality: e.Locality.String()}
		if to.addr = w.alternative(e); to.addr != "" {
			weights[to] += weight
			continue
		}
		entries := w.of(func(g pushcontext.Gateway) bool { return g.Network == e.Network })
		if e.Network == "" || e.Network == w.proxy.Network || len(entries) == 0 {
			if e.Addr.Dialable() {
				to.addr = e.Addr.String()
				weights[to] += weight
			}
			continue
		}
		if e.Health != model.Healthy || !w.mutual(e) {
			continue
		}
		usable := w.usable(e.Network, e.Addr.Cluster)
		for _, g := range usable {
			to.addr, to.gateway = g.Addr.String(), true
			weights[to] += weight / uint64(len(usable))
		}
	}
	// An address is sent once: in the best priority, there in the first locality with all its weight.
	best := map[string]sent{}
	for s := range weights {
		if b, ok := best[s.addr]; !ok || s.priority < b.priority || s.priority == b.priority && s.locality < b.locality {
			best[s.addr] = s
		}
	}
	rank := map[int]int{}
	for _, b := range best {
		rank[b.priority] = 0
	}
	for p := range rank {
		for q := range rank {
			if q < p {
				rank[p]++
			}
		}
	}
	out := map[string]uint64{}
	for s, weight := range weights {
		if b := best[s.addr]; s.priority == b.priority {
			out[fmt.Sprintf("p%d %s %s", rank[b.priority], b.locality, b.addr)] += weight
		}
	}
	return out
}

// alternative is the endpoint's address for the proxy's network, else the one for all others, if the proxy speaks its family; "" if it
// has none, or the proxy is on the same network, or on none.
func (w *world) alternative(e *model.Endpoint) (addr string) {
	if e.Alternatives == nil || w.proxy.Network == "" || w.proxy.Network == e.Network {
		return ""
	}
	for _, network := range []string{"*", w.proxy.Network} {
		for _, a := range *e.Alternatives {
			if a.Network == network {
				if addr = netip.AddrPortFrom(a.IP, a.Port).String(); a.IP.Is4() && !w.proxy.IPv4 || a.IP.Is6() && !w.proxy.IPv6 {
					addr = ""
				}
			}
		}
	}
	return addr
}

func (w *world) of(keep func(pushcontext.Gateway) bool) (out []pushcontext.Gateway) {
	for _, g := range w.gateways {
		if keep(g) {
			out = append(out, g)
		}
	}
	return out
}

// dialled are gateways with an address of a family that the proxy speaks.
func (w *world) dialled(g pushcontext.Gateway) bool {
	return g.Addr.IsValid() && (g.Addr.Addr().Is4() && w.proxy.IPv4 || g.Addr.Addr().Is6() && w.proxy.IPv6)
}

// usable: those of (network, cluster) first, else all of the network; of these, those of the proxy's families.
func (w *world) usable(network string, cluster model.ClusterID) []pushcontext.Gateway {
	own := w.of(func(g pushcontext.Gateway) bool {
		return g.Network == network && g.Cluster == cluster && g.Addr.IsValid()
	})
	if len(own) == 0 {
		own = w.of(func(g pushcontext.Gateway) bool { return g.Network == network && g.Addr.IsValid() })
	}
	return slices.DeleteFunc(own, func(g pushcontext.Gateway) bool { return !w.dialled(g) })
}

// scale is the least number that each count of gateways of a network, and of a member in a network,
// divides. Networks on which the service has no endpoints do not count.
func (w *world) scale() uint64 {
	var counts []int
	for _, g := range w.gateways {
		if !slices.ContainsFunc(w.endpoints, func(e *model.Endpoint) bool { return e.Network == g.Network }) || !w.dialled(g) {
			continue
		}
		same := w.of(func(x pushcontext.Gateway) bool { return x.Network == g.Network && w.dialled(x) })
		counts = append(counts, len(same))
		if g.Cluster != "" {
			counts = append(counts, len(w.of(func(x pushcontext.Gateway) bool {
				return x.Network == g.Network && x.Cluster == g.Cluster && w.dialled(x)
			})))
		}
	}
	for n := 1; ; n++ {
		if !slices.ContainsFunc(counts, func(c int) bool { return n%c != 0 }) {
			return uint64(n)
		}
	}
}

func (w *world) visible(e *model.Endpoint) bool {
	return w.proxy.NetworkView == "" || e.Network == "" || slices.Contains(strings.Split(w.proxy.NetworkView, ","), e.Network)
}

// inSubset compares labels one by one; those of a place are what is known of it.
func (w *world) inSubset(e *model.Endpoint) bool {
	for k, v := range w.subset {
		have := map[string]string{"tier": e.Labels["tier"], "topology.istio.io/network": e.Network, "topology.istio.io/cluster": string(e.Addr.Cluster),
			"topology.kubernetes.io/region": e.Locality.Region, "topology.kubernetes.io/zone": e.Locality.Zone}[k]
		if have != v {
			return false
		}
	}
	return true
}

func (w *world) mutual(e *model.Endpoint) bool {
	if w.proxy.ClientTLS.Key == "" {
		return false
	}
	if w.tls != nil {
		return w.tls.Mode == networking.ClientTLSSettings_ISTIO_MUTUAL
	}
	return e.TLSMode == "istio" && e.MTLS != model.MTLSDisabled
}

// priority composes failoverPriority with region failover, which then has to be asked for.
func (w *world) priority(e *model.Endpoint) int {
	switch {
	case w.failover == nil:
		return 0
	case len(w.prefer) == 0:
		return w.byRegion(e)
	case len(w.failover) == 0:
		return w.byLabel(e)
	}
	return 5*w.byLabel(e) + w.byRegion(e)
}

// byLabel is the number of labels after the first mismatch, that one included; a first label that is the
// network only moves the rest behind.
func (w *world) byLabel(e *model.Endpoint) int {
	proxy := map[string]string{"topology.istio.io/network": w.proxy.Network, "topology.istio.io/cluster": string(w.proxy.Cluster),
		"topology.kubernetes.io/zone": w.proxy.Locality.Zone, "tier": w.proxy.Labels.Value("tier")}
	to := map[string]string{"topology.istio.io/network": e.Network, "topology.istio.io/cluster": string(e.Addr.Cluster),
		"topology.kubernetes.io/zone": e.Locality.Zone, "tier": e.Labels["tier"]}
	shift := 0
	for i, l := range w.prefer {
		key, value, fixed := strings.Cut(l, "=")
		if !fixed {
			value = proxy[key]
		}
		if value == to[key] {
			continue
		}
		if i > 0 || key != "topology.istio.io/network" {
			return shift + len(w.prefer) - i
		}
		shift = len(w.prefer)
	}
	return shift
}

func (w *world) byRegion(e *model.Endpoint) int {
	at, to := w.proxy.Locality, e.Locality
	switch {
	case at == model.Locality{}, at == to:
		return 0
	case at.Region == to.Region && at.Zone == to.Zone:
		return 1
	case at.Region == to.Region:
		return 2
	}
	if target, ok := w.failover[at.Region]; ok && target != to.Region {
		return 4
	}
	return 3
}

func randomWorld(r *rand.Rand) *world {
	w := &world{proxy: sidecar(pick(r, "c1", "c2"), "shop", inZone(pick(r, "", "r1/z1", "r1/z2", "r2/z1/s1")))}
	w.proxy.Network = pick(r, "", "n1", "n2", "n3")
	w.proxy.NetworkView = pick(r, "", "", "", "", "n1,n2", "n1", "n9")
	w.proxy.IPv4, w.proxy.IPv6 = true, r.IntN(2) == 0
	if r.IntN(4) == 0 {
		w.proxy.IPv4, w.proxy.IPv6 = false, true
	}
	if r.IntN(8) > 0 {
		certified(&w.proxy)
	}
	if r.IntN(6) == 0 {
		w.tls = &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_TLSmode(r.IntN(4))}
	}
	w.minHealth = pick[int32](r, 0, 0, 50)
	if r.IntN(2) == 0 {
		w.failover = map[string]string{}
		if r.IntN(2) == 0 {
			w.failover["r1"] = "r2"
		}
		w.prefer = pick(r, nil, nil, []string{"topology.istio.io/network", "tier"}, []string{"tier=gold", "topology.kubernetes.io/zone"},
			[]string{"tier", "topology.istio.io/network", "topology.istio.io/cluster"}, []string{"topology.istio.io/network=n2", "tier=gold"})
	}
	w.proxy.Labels = gen.NewLabels(pick(r, nil, model.Labels{"tier": "gold"}, model.Labels{"tier": "silver"}))
	w.subset = pick(r, nil, map[string]string{"tier": "gold"}, map[string]string{"tier": "silver", "topology.istio.io/cluster": "c2"}, map[string]string{"topology.istio.io/network": "n2"},
		map[string]string{"topology.kubernetes.io/region": "r1", "topology.kubernetes.io/zone": "z1"}, map[string]string{"tier": "none"})
	for i := range 1 + r.IntN(8) {
		g := pushcontext.Gateway{Network: pick(r, "n2", "n3", "n4"), Cluster: pick[model.ClusterID](r, "", "c2", "c3")}
		switch r.IntN(5) {
		case 0:
			g.Host, g.Addr = "gw.example", netip.AddrPortFrom(netip.Addr{}, 15443)
		case 1:
			g.Addr = netip.MustParseAddrPort(fmt.Sprintf("[2001:db8::%d]:15443", i+1))
		default:
			g.Addr = netip.MustParseAddrPort(fmt.Sprintf("192.0.2.%d:15443", i+1))
		}
		w.gateways = append(w.gateways, g)
	}
	fractions := pick(r, []float64{0, 1, 2, 7}, []float64{0, 0.25, 1, 7})
	for i := range r.IntN(14) {
		addr := fmt.Sprintf("10.0.0.%d:80", i+1)
		if r.IntN(8) == 0 {
			addr = ":80"
		}
		e := ep(pick(r, "c1", "c2", "c3", "c4"), "http", addr, weight(pick(r, fractions...)), at(pick(r, "", "r1/z1", "r1/z2", "r2/z1", "r2/z1/s1", "r3")),
			network(pick(r, "", "n1", "n2", "n2", "n3", "n4")), health(pick(r, model.Healthy, model.Healthy, model.Healthy, model.Unhealthy, model.Draining, model.Terminating)), workload(fmt.Sprint(i)))
		if r.IntN(4) > 0 {
			mtls(e)
		}
		e.Labels = pick(r, nil, model.Labels{"tier": "gold"}, model.Labels{"tier": "silver"})
		e.MTLS = pick(r, model.MTLSPermissive, model.MTLSPermissive, model.MTLSStrict, model.MTLSDisabled)
		if r.IntN(3) == 0 {
			e.Alternatives = randomAlternatives(r, i+1)
		}
		w.endpoints = append(w.endpoints, e)
	}
	return w
}

// randomAlternatives are those of the nth endpoint.
func randomAlternatives(r *rand.Rand, n int) *model.Alternatives {
	var out model.Alternatives
	for i, network := range []string{"n1", "n2", "n3", "*"} {
		if r.IntN(2) == 0 {
			continue
		}
		ip := pick(r, fmt.Sprintf("198.51.%d.%d", i, n), fmt.Sprintf("198.51.%d.%d", i, n), fmt.Sprintf("2001:db8:%d::%d", i+1, n))
		out = append(out, model.Alternative{Network: network, IP: netip.MustParseAddr(ip), Port: pick[uint16](r, 80, 8080), Name: "wan"})
	}
	return &out
}

// view is the world as the merge gives it.
func (w *world) view() *pushcontext.ServiceView {
	p := &networking.TrafficPolicy{Tls: w.tls}
	locality := &localitySetting{FailoverPriority: w.prefer}
	for from, to := range w.failover {
		locality.Failover = append(locality.Failover, &networking.LocalityLoadBalancerSetting_Failover{From: from, To: to})
	}
	p.LoadBalancer = &networking.LoadBalancerSettings{LocalityLbSetting: locality}
	if w.failover != nil || w.minHealth > 0 {
		p.OutlierDetection = &networking.OutlierDetection{MinHealthPercent: w.minHealth}
	}
	if w.failover == nil { // outlier detection, if any, is for minHealth alone
		locality.Enabled = wrapperspb.Bool(false)
	}
	rule := destination("shop", "r", p)
	rule.Spec.Subsets = []*networking.Subset{{Name: "other", Labels: map[string]string{"tier": "gold"}}, {Name: "asked", Labels: w.subset}}
	return underRules(cart(w.endpoints...), rule).view(newMesh(func(m *settings) { m.gateways = w.gateways }))
}

// TestSelectEqualsNaiveOracle: whatever the networks, gateways, alternatives, families, localities, modes of mutual
// TLS and subsets, what is sent is what the plain reading of the rules gives, to the last weight.
func TestSelectEqualsNaiveOracle(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(2, 71))
	through, mixed, divided, elsewhere := 0, 0, 0, 0
	for i := range 4_000 {
		w := randomWorld(rnd)
		all := assignmentsOf(t, w.view(), w.proxy)
		check := func(name string) map[string]uint64 {
			got := sentOf(all[name])
			if d := cmp.Diff(w.naive(), got); d != "" {
				t.Fatalf("case %d, %s: proxy on %q (view %q, %v/%v), DestinationRule %v, subset %v, gateways %v\n(-naive +got):\n%s", i, name, w.proxy.Network, w.proxy.NetworkView, w.proxy.IPv4, w.proxy.IPv6, w.tls, w.subset, w.gateways, d)
			}
			return got
		}
		if len(check("outbound|80|asked|cart.shop.svc.cluster.local")) > 0 && w.subset != nil {
			divided++
		}
		w.subset = nil
		got := check("outbound|80||cart.shop.svc.cluster.local")
		if strings.Contains(fmt.Sprint(got), "198.51.") {
			elsewhere++
		}
		if strings.Contains(fmt.Sprint(got), ":15443") {
			through++
			if strings.Contains(fmt.Sprint(got), "10.0.0.") {
				mixed++
			}
		}
	}
	if through < 600 || mixed < 400 || divided < 600 || elsewhere < 600 {
		t.Errorf("only %d cases go through gateways, %d of them also to endpoints, %d are of subsets, %d have alternatives: the test says little", through, mixed, divided, elsewhere)
	}
}

func sentOf(a *endpointv3.ClusterLoadAssignment) map[string]uint64 {
	out := map[string]uint64{}
	for _, l := range a.Endpoints {
		at := model.Locality{Region: l.Locality.Region, Zone: l.Locality.Zone, Subzone: l.Locality.SubZone}
		for _, e := range l.LbEndpoints {
			sock := e.GetEndpoint().Address.GetSocketAddress()
			ip := netip.AddrPortFrom(netip.MustParseAddr(sock.Address), uint16(sock.GetPortValue()))
			out[fmt.Sprintf("p%d %s %s", l.Priority, at, ip)] += uint64(e.LoadBalancingWeight.GetValue())
		}
	}
	return out
}
