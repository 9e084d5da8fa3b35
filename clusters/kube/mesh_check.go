package kube

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// excluded lists the locality settings that have no effect beside others: shares for places leave no
// place to fail over to.
func excluded(data []byte, m *meshconfig.MeshConfig) []Fault {
	l := m.GetLocalityLbSetting()
	if len(l.GetDistribute()) == 0 {
		return nil
	}
	var out []Fault
	for _, f := range []struct {
		name string
		set  bool
	}{{"failover", len(l.Failover) > 0}, {"failoverPriority", len(l.FailoverPriority) > 0}} {
		if f.set {
			out = append(out, Fault{Line: fieldLine(data, f.name), Reason: strconv.Quote(f.name) +
				` has no effect beside "distribute", which sets every place's share; remove one of the two`})
		}
	}
	return out
}

// unknownTLS lists names that proxies don't know of what TLS may use; they are left out.
func unknownTLS(data []byte, m *meshconfig.MeshConfig) (out []Fault) {
	for _, f := range []struct {
		part, field string
		list, known []string
	}{
		{"tlsDefaults", "cipherSuites", m.GetTlsDefaults().GetCipherSuites(), model.CipherSuites()},
		{"tlsDefaults", "ecdhCurves", m.GetTlsDefaults().GetEcdhCurves(), model.Curves()},
		{"meshMTLS", "cipherSuites", m.GetMeshMTLS().GetCipherSuites(), model.CipherSuites()},
	} {
		for _, name := range f.list {
			if !slices.Contains(f.known, name) {
				out = append(out, Fault{Line: valueLine(data, name), Reason: fmt.Sprintf("%s.%s: proxies don't know %.100q, so it is left out", f.part, f.field, name)})
			}
		}
	}
	return out
}

// unusable lists values that can't be in force: proxies would refuse everything that is made of them, or
// nothing would be. Limits of durations and shares are those that Istio validates MeshConfig with, or wider.
func unusable(data []byte, m *meshconfig.MeshConfig) (out []Fault) {
	bad := func(field, format string, a ...any) {
		out = append(out, Fault{Line: fieldLine(data, field), Reason: field + ": " + fmt.Sprintf(format, a...)})
	}
	ports(m, bad)
	durations(m, bad)
	for _, d := range m.GetLocalityLbSetting().GetDistribute() {
		sum := uint64(0)
		for _, share := range d.To {
			sum += uint64(share)
		}
		if sum != 100 {
			bad("distribute", "the shares from %s make %d, not 100", strconv.Quote(d.From), sum)
		}
	}
	for _, f := range m.GetZoneAwareLbSetting().GetFailover() {
		if from, to := f.GetFrom(), f.GetTo(); from == "" || to == "" || from == to || strings.ContainsAny(from+to, "/*") {
			bad("zoneAwareLbSetting", "failover from %s to %s: two regions are needed", strconv.Quote(from), strconv.Quote(to))
		}
	}
	if n := m.GetZoneAwareLbSetting().GetMinClusterSize(); n != nil && n.Value == 0 {
		bad("zoneAwareLbSetting", "minClusterSize is at least 1")
	}
	if mode := m.GetOutboundTrafficPolicy().GetMode(); meshconfig.MeshConfig_OutboundTrafficPolicy_Mode_name[int32(mode)] == "" {
		bad("outboundTrafficPolicy", "there is no mode %d", mode)
	}
	if n := m.GetPathNormalization().GetNormalization(); meshconfig.MeshConfig_ProxyPathNormalization_NormalizationType_name[int32(n)] == "" {
		bad("pathNormalization", "there is no normalization %d", n)
	}
	if t := m.GetTrustDomain(); t != "" && !trustDomains.MatchString(t) {
		bad("trustDomain", "%s has characters that no domain has", strconv.Quote(t))
	}
	if _, err := selectors(m.GetDiscoverySelectors()); err != nil {
		bad("discoverySelectors", "%v", err)
	}
	return out
}

func ports(m *meshconfig.MeshConfig, bad func(field, format string, a ...any)) {
	out, in := m.GetProxyListenPort(), m.GetProxyInboundListenPort()
	for _, f := range []struct {
		name string
		n    int32
	}{{"proxyListenPort", out}, {"proxyInboundListenPort", in}} {
		if f.n < 0 || f.n > 65535 {
			bad(f.name, "%d is not a port", f.n)
		}
	}
	if out == 0 {
		out = 15001
	}
	if in == 0 {
		in = 15006
	}
	if field := "proxyListenPort"; out == in {
		if m.GetProxyListenPort() == 0 {
			field = "proxyInboundListenPort"
		}
		bad(field, "%d is both the outbound and the inbound port of proxies", out)
	}
}

func durations(m *meshconfig.MeshConfig, bad func(field, format string, a ...any)) {
	const day = 24 * time.Hour
	for _, f := range []struct {
		name  string
		d     *durationpb.Duration
		least time.Duration
	}{
		{"connectTimeout", m.GetConnectTimeout(), time.Millisecond},
		{"protocolDetectionTimeout", m.GetProtocolDetectionTimeout(), 0},
		{"dnsRefreshRate", m.GetDnsRefreshRate(), time.Millisecond},
	} {
		if f.d != nil && (f.d.CheckValid() != nil || f.d.AsDuration() < f.least || f.d.AsDuration() > day) {
			bad(f.name, "a duration from %v to %v is needed", f.least, day)
		}
	}
}

// unreachable lists gateways and ranges of networks that can't be, and doubtful what is set aside: a member is
// in one network.
func unreachable(data []byte, m *meshconfig.MeshNetworks) (bad, doubtful []Fault) {
	owner := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(m.GetNetworks())) {
		n := m.Networks[name]
		fault := func(value, format string, a ...any) Fault {
			return Fault{Line: valueLine(data, value), Reason: "network " + name + ": " + fmt.Sprintf(format, a...)}
		}
		for _, g := range n.GetGateways() {
			if g.GetPort() < 1 || g.GetPort() > 65535 {
				bad = append(bad, fault(fmt.Sprint(g.GetPort()), "gateway port %d is not a port", g.GetPort()))
			}
			ip, err := netip.ParseAddr(g.GetAddress())
			if g.GetAddress() == "" && g.GetRegistryServiceName() == "" || err == nil && ip.IsUnspecified() {
				bad = append(bad, fault(g.GetAddress(), "gateway address %q leads nowhere", g.GetAddress()))
			}
		}
		for _, e := range n.GetEndpoints() {
			if c := e.GetFromCidr(); c != "" {
				if _, err := netip.ParsePrefix(c); err != nil {
					bad = append(bad, fault(c, "fromCidr %q is not a range of addresses", c))
				}
			}
			if r := e.GetFromRegistry(); r != "" && owner[r] != "" && owner[r] != name {
				doubtful = append(doubtful, fault(r, "the registry %s is in network %s as well", r, owner[r]))
			} else if r != "" {
				owner[r] = name
			}
		}
	}
	return bad, doubtful
}

// valueLine finds the last line that has a value, 1 if none has.
func valueLine(data []byte, value string) int {
	line := 1
	for i, l := range strings.Split(string(data), "\n") {
		if value != "" && strings.Contains(l, value) {
			line = i + 1
		}
	}
	return line
}
