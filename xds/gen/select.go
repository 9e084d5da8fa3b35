package gen

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Verdict says what a class of proxies is told of one endpoint.
type Verdict struct {
	Endpoint *model.Endpoint
	Sent     bool
	Priority uint32       // 0 is best; when Sent
	Weight   uint32       // as sent; through gateways, what it adds to all of them together
	Health   model.Health // as sent
	Gateways []model.Addr // where it is dialled instead of its own address
	// Alternative is where it is dialled itself instead of at its own address, as the proxy is on another network; nil if it is not.
	Alternative *model.Alternative
	Reason      model.Reason // why it is left out
	Detail      string       // one sentence more, "" if the reason says it all
}

// LeftOut gives the verdict as a candidate that is not served.
func (v Verdict) LeftOut() model.LeftOut {
	l := model.LeftOut{Addr: v.Endpoint.Addr, Port: v.Endpoint.PortName, Reason: v.Reason, Detail: v.Detail}
	if v.Endpoint.Source != nil {
		l.Source = *v.Endpoint.Source
	}
	return l
}

// ExplainEndpoints says of every endpoint behind a service port whether proxies of the class are sent
// it, and if not, why. Candidates that nobody is sent are in the view's LeftOut.
func ExplainEndpoints(view *pushcontext.ServiceView, c Class, port model.Port) []Verdict {
	return selectEndpoints(candidatesOf(view, destinationOf(view.Shape, port, c)), c).verdicts
}

// RuleFor gives the DestinationRule in force for a class, nil if there is none.
func RuleFor(s *pushcontext.ShapeView, c Class) *pushcontext.DestinationPolicy { return inForce(s, c) }

// SubsetsWith lists the subsets of a DestinationRule that an endpoint is in, in the rule's order.
func SubsetsWith(p *pushcontext.DestinationPolicy, e *model.Endpoint) []string {
	var out []string
	for _, x := range subsetsOf(p).all {
		if hasLabels(e, x.Labels) {
			out = append(out, x.Name)
		}
	}
	return out
}

// candidates are the endpoints behind a destination.
type candidates struct {
	destination
	demoted    []model.ShardKey
	localities []pushcontext.LocalityEndpoints
	networks   pushcontext.Networks
	twins      bool // several members may list one address
}

func candidatesOf(v *pushcontext.ServiceView, d destination) candidates {
	if d.shape.Resolution.IsDNS() {
		return inlineCandidates(d)
	}
	return candidates{destination: d, demoted: v.Demoted, localities: endpointsIn(v, v.Endpoints, d), networks: v.Networks, twins: hasTwins(v)}
}

func inlineCandidates(d destination) candidates {
	return candidates{destination: d, localities: endpointsIn(d.shape, d.shape.Inline, d), networks: d.shape.Networks, twins: hasInlineTwins(d.shape)}
}

// selection is what a class of proxies is sent of a service port.
type selection struct {
	groups   []*group  // by priority, then locality
	verdicts []Verdict // one for each candidate, in order
}

// group holds the endpoints of one locality at one priority.
type group struct {
	priority uint32
	locality model.Locality
	part     uint16 // number of the source whose all hosts are, if sources are kept apart
	weight   uint32
	hosts    []host // direct ones by address, then gateways
}

// host is one address to send: an endpoint, or a gateway that stands for some.
type host struct {
	endpoint    *model.Endpoint    // nil for a gateway
	alternative *model.Alternative // where the endpoint is dialled instead of at its own address
	gateway     pushcontext.Gateway
	verdict     int // of the endpoint
	weight      uint64
	health      model.Health
	dropped     bool // its address is sent elsewhere
	// second is the address of the same workload's endpoint of the other family, which is sent along; nil if there is none.
	second        *model.Addr
	secondVerdict int
}

// addr is where it is dialled.
func (h *host) addr() model.Addr {
	switch {
	case h.endpoint == nil:
		return gatewayAddr(h.gateway)
	case h.alternative != nil:
		return h.alternative.Addr(h.endpoint.Addr.Cluster)
	}
	return h.endpoint.Addr
}

// Offsets that keep one kind of priority behind another until compaction.
const (
	placeless  = 1 << 16 // endpoints of unknown locality under a distribution
	sourceStep = 1 << 20 // endpoints of a source of a FederatedService, for each before it
	demotion   = 1 << 28 // endpoints of a shard that has been stale for long
)

// selector makes one selection.
type selector struct {
	candidates
	class     Class
	mesh      *pushcontext.MeshView
	policy    policy
	prefer    []preference
	tls       tlsMode
	multi     bool
	mixed     bool   // there are endpoints of both address families
	scale     uint64 // makes weights whole, and those that gateways share divisible
	entrances map[entranceKey]entrance
	shares    map[string]uint32
	patterns  []string // keys of shares, most specific first
	groups    map[groupKey]*group
	out       []Verdict
}

type groupKey struct {
	priority uint32
	locality model.Locality
	part     uint16
}

// selectEndpoints is the one place that decides what a proxy is sent: resources and explanations are
// both made from it. Every candidate gets a verdict.
func selectEndpoints(in candidates, c Class) selection {
	s := &selector{candidates: in, class: c, mesh: in.shape.Mesh, policy: makePolicy(in.shape, in.rule),
		tls: in.secured(), groups: map[groupKey]*group{}, scale: unit(in.localities), mixed: mixed(in.localities)}
	s.prefer, s.shares = s.policy.preferences(c), s.policy.shares(c.Locality)
	s.patterns = patternsBySpecificity(s.shares)
	if s.multi = s.mesh.MultiNetwork(); s.multi {
		s.entrances, s.scale = map[entranceKey]entrance{}, s.scale*s.weightScale()
	}
	n := 0
	for _, l := range in.localities {
		n += len(l.Endpoints)
	}
	s.out = make([]Verdict, 0, n)
	for _, l := range in.localities {
		for _, e := range l.Endpoints {
			s.consider(e)
		}
	}
	return s.finish()
}

func (s *selector) consider(e *model.Endpoint) {
	v := Verdict{Endpoint: e}
	v.Reason, v.Detail = s.refuse(e)
	var gateways []pushcontext.Gateway
	switch v.Alternative = s.alternative(e); {
	case v.Reason != "":
		v.Alternative = nil
	case v.Alternative != nil:
		v.Detail = fmt.Sprintf("dialled at %s, its address %s, as the proxy is on network %s", v.Alternative.Addr(""), v.Alternative.Name, s.class.Network)
	case s.remote(e):
		gateways, v.Reason, v.Detail = s.gateways(e)
	default:
		v.Reason = s.undialable(e)
	}
	if v.Reason == "" {
		v.Sent, v.Health, v.Priority = true, e.Health, s.priority(e)
		s.place(e, gateways, &v)
	}
	s.out = append(s.out, v)
}

// refuse gives the reasons that hold whatever way the endpoint is dialled.
func (s *selector) refuse(e *model.Endpoint) (model.Reason, string) {
	switch {
	case s.shape.Key.Cluster != "" && e.Addr.Cluster != s.class.Cluster:
		return model.ReasonClusterLocal, ""
	case s.shape.NodeLocal && (e.Node != s.class.Node || e.Addr.Cluster != s.class.Cluster): // clusters name their nodes alike
		return model.ReasonNodeLocal, fmt.Sprintf("the proxy runs on node %q of %s, the endpoint on %q of %s", s.class.Node, s.class.Cluster, e.Node, e.Addr.Cluster)
	case !s.class.asksFor(e.Network):
		return model.ReasonNetworkView, "the proxy asks for the endpoints of " + s.class.NetworkView + " only, the endpoint is on " + e.Network
	case s.tls == tlsMutual && !s.class.ClientTLS.Complete():
		return model.ReasonNoMTLS, nameOf(s.policy.rule) + " sets TLS mode ISTIO_MUTUAL, and " + noCertificate
	case s.wrongKind(e):
		return model.ReasonWrongKind, "a " + s.shape.Resolution.String() + " service can't have " + e.Addr.String()
	case e.Health == model.Terminating:
		return model.ReasonTerminating, ""
	case e.Health == model.Draining && !s.shape.Persistent:
		return model.ReasonDraining, ""
	case e.Health == model.Unhealthy && !s.policy.sendUnhealthy:
		return model.ReasonUnready, "outlier detection with minHealthPercent counts only ready endpoints"
	case s.shares != nil && e.Locality != (model.Locality{}) && s.share(e.Locality) == 0:
		return model.ReasonLocalityWeight, s.policy.author() + "'s locality distribution gives " + e.Locality.String() + " no share"
	}
	return "", ""
}

// undialable gives the reasons against dialling the endpoint itself. The family counts only where the
// service has endpoints of both: else there is nothing better, and the network may translate.
func (s *selector) undialable(e *model.Endpoint) model.Reason {
	switch {
	case !e.Addr.Dialable():
		return model.ReasonNoAddress
	case s.mixed && e.Addr.Host == "" && !s.class.speaks(e.Addr.AddrPort.Addr()):
		return model.ReasonIPFamily
	}
	return ""
}

// maxSocketPath is the longest path of a unix socket.
const maxSocketPath = 107

// wrongKind reports an address that would make Envoy refuse all of the service's endpoints: it looks
// names up only for DNS clusters, and those take no sockets; an address with a zone means something on
// one host only.
func (s *selector) wrongKind(e *model.Endpoint) bool {
	if e.Addr.Host == "" {
		return e.Addr.AddrPort.Addr().Zone() != ""
	}
	path, socket := strings.CutPrefix(e.Addr.Host, "unix://")
	if socket && (path == "" || len(path) > maxSocketPath) {
		return true
	}
	return s.shape.Resolution.IsDNS() == socket
}

// alternative is where the proxy dials an endpoint of another network itself, if the endpoint has an address for that which the proxy
// can dial; nil if it has none. An unnamed network is another one than any that has a name.
func (s *selector) alternative(e *model.Endpoint) *model.Alternative {
	if e.Alternatives == nil || s.class.Network == e.Network || s.shape.Resolution == model.Passthrough && s.class.intercepts() {
		return nil
	}
	if a := e.Alternatives.For(s.class.Network); a != nil && s.class.speaks(a.IP) {
		return a
	}
	return nil
}

// remote reports whether the endpoint is entered through its network's gateways. A proxy without a
// network is in none, so it cannot be in the endpoint's.
func (s *selector) remote(e *model.Endpoint) bool {
	return s.multi && e.Network != "" && e.Network != s.class.Network && s.mesh.HasGateway(e.Network)
}

func (s *selector) priority(e *model.Endpoint) uint32 {
	p := s.policy.priority(s.class, s.prefer, e) + s.behind(e)
	if s.shares != nil && e.Locality == (model.Locality{}) && s.share(e.Locality) == 0 {
		p += placeless
	}
	if e.Source != nil && e.Source.Shard.Cluster != s.class.Cluster && slices.Contains(s.demoted, e.Source.Shard) {
		p += demotion
	}
	return p
}

func (s *selector) place(e *model.Endpoint, gateways []pushcontext.Gateway, v *Verdict) {
	k := s.groupOf(e, v.Priority)
	g := s.groups[k]
	if g == nil {
		g = &group{priority: k.priority, locality: k.locality, part: k.part}
		s.groups[k] = g
	}
	weight := s.weight(e)
	if len(gateways) == 0 {
		g.hosts = append(g.hosts, host{endpoint: e, alternative: v.Alternative, verdict: len(s.out), weight: weight, health: e.Health})
		return
	}
	share := max(weight/uint64(len(gateways)), 1)
	v.Weight = clip(share * uint64(len(gateways)))
	for _, gw := range gateways {
		v.Gateways = append(v.Gateways, gatewayAddr(gw))
		g.through(gw, share)
	}
}

// heaviest is the most that an endpoint weighs before the sums are made to fit: a million of them add up to no more than 64 bits.
const heaviest = 1 << 44

// unit is what makes the weights of all endpoints whole: hundredths count if any has a fraction.
func unit(list []pushcontext.LocalityEndpoints) uint64 {
	for _, l := range list {
		for _, e := range l.Endpoints {
			if e.Weight != math.Trunc(e.Weight) {
				return 100
			}
		}
	}
	return 1
}

func (s *selector) weight(e *model.Endpoint) uint64 {
	return max(uint64(min(math.Round(cmp.Or(e.Weight, 1)*float64(s.scale)), heaviest)), 1)
}

// through adds weight to a gateway of the group.
func (g *group) through(gw pushcontext.Gateway, weight uint64) {
	for i := range g.hosts {
		if g.hosts[i].endpoint == nil && g.hosts[i].gateway == gw {
			g.hosts[i].weight += weight
			return
		}
	}
	g.hosts = append(g.hosts, host{gateway: gw, weight: weight, health: model.Healthy})
}

func (s *selector) finish() selection {
	out := selection{verdicts: s.out}
	for _, g := range s.groups {
		slices.SortStableFunc(g.hosts, compareHosts)
		out.groups = append(out.groups, g)
	}
	apart := s.policy.apart
	if apart {
		out.level()
	}
	slices.SortFunc(out.groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), a.locality.Compare(b.locality), cmp.Compare(a.part, b.part))
	})
	if s.multi || s.twins {
		out.unique(s.class, apart)
	}
	if s.mixed && s.class.IPv4 && s.class.IPv6 && !s.shape.Resolution.IsDNS() {
		out.pair()
	}
	if apart {
		if out.balance(s.shape.Federation); s.multi {
			out.unique(s.class, false)
		}
	}
	out.compact()
	out.weigh()
	if s.shares != nil {
		s.distribute(out.groups)
	}
	return out
}

func compareHosts(a, b host) int {
	switch {
	case a.endpoint != nil && b.endpoint != nil:
		return cmp.Or(a.addr().Compare(b.addr()), a.endpoint.Addr.Compare(b.endpoint.Addr))
	case a.endpoint != nil:
		return -1
	case b.endpoint != nil:
		return 1
	}
	return cmp.Or(cmp.Compare(a.gateway.Network, b.gateway.Network), gatewayAddr(a.gateway).Compare(gatewayAddr(b.gateway)),
		cmp.Compare(a.gateway.Cluster, b.gateway.Cluster))
}

// maxPriority is the highest that Envoy takes.
const maxPriority = 128

// compact renumbers the priorities from 0 without gaps, as Envoy demands.
func (o *selection) compact() {
	rank := map[uint32]uint32{}
	for _, g := range o.groups {
		if _, ok := rank[g.priority]; !ok {
			rank[g.priority] = min(uint32(len(rank)), maxPriority)
		}
		g.priority = rank[g.priority]
	}
	for i := range o.verdicts {
		if v := &o.verdicts[i]; v.Sent {
			v.Priority = rank[v.Priority]
		}
	}
}

// weigh gives each group the sum of its weights. Within one priority all weights together must stay
// within 32 bits, so larger ones are scaled down.
func (o *selection) weigh() {
	for start := 0; start < len(o.groups); {
		end := start
		total, n := uint64(0), uint64(0)
		for ; end < len(o.groups) && o.groups[end].priority == o.groups[start].priority; end++ {
			for i := range o.groups[end].hosts {
				total, n = total+o.groups[end].hosts[i].weight, n+1
			}
		}
		divisor := uint64(1)
		if total > math.MaxUint32 {
			divisor = total/(math.MaxUint32-n) + 1
		}
		for _, g := range o.groups[start:end] {
			o.sum(g, divisor)
		}
		start = end
	}
}

func (o *selection) sum(g *group, divisor uint64) {
	sum := uint64(0)
	for i := range g.hosts {
		h := &g.hosts[i]
		h.weight = max(h.weight/divisor, 1)
		sum += h.weight
		if h.endpoint != nil {
			o.verdicts[h.verdict].Weight = clip(h.weight)
		}
		if h.second != nil {
			o.verdicts[h.secondVerdict].Weight = clip(h.weight)
		}
	}
	g.weight = clip(sum)
}

func clip(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }
