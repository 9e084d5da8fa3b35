package validate

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// mostClusters is how many clusters one object may make for a proxy: each host has one for each port.
const mostClusters = 1 << 16

func serviceEntry(c *checker, s *networking.ServiceEntry) {
	c.exportTo(s.ExportTo, true)
	if len(s.Hosts) == 0 {
		c.at("hosts").refuse(CodeRequired, "it has no hosts")
	}
	seen := once[string]{}
	for i, h := range s.Hosts {
		at := c.item("hosts", i)
		if at.unless(isPattern(h) && h != "*", CodeHost, "%q is not a host: write a DNS name or \"*.suffix\"", h) {
			seen.note(at, strings.ToLower(h), CodeDuplicate, "host")
			if !strings.Contains(h, ".") {
				at.warn(CodeHost, "%q has no domain: sidecars may take it for a Service of their own namespace", h)
			}
			if isPartial(h) && len(s.Addresses) == 0 && slices.ContainsFunc(s.Ports, func(p *networking.ServicePort) bool { return model.Opening(p.GetProtocol(), false) == "TLS" }) {
				at.warn(CodeIneffective, "proxies match server names by whole labels: connections of TLS are not told by this one; write \"*.suffix\"")
			}
		}
	}
	cidr := addresses(c, s.Addresses)
	if n := len(s.Hosts) * len(s.Ports); n > mostClusters {
		c.refuse(CodeRange, "%d hosts with %d ports each make %d clusters for every proxy, at most %d: share the hosts out to several ServiceEntries", len(s.Hosts), len(s.Ports), n, mostClusters)
	}
	names, all := servicePorts(c, s)
	if s.WorkloadSelector != nil {
		c.at("workloadSelector.labels").selects(s.WorkloadSelector.Labels)
		c.at("workloadSelector.labels").selector(s.WorkloadSelector.Labels)
		c.unless(len(s.Endpoints) == 0, CodeExclusive, "endpoints and workloadSelector exclude each other: keep one of them")
	}
	resolution(c, s, cidr)
	if s.Resolution != networking.ServiceEntry_NONE && len(s.Hosts) > 1 {
		for i, p := range s.Ports {
			if model.Opening(p.GetProtocol(), false) == "TCP" {
				c.item("ports", i).refuse(CodeProtocol, "what is neither HTTP nor TLS does not tell the hosts apart: give each host a ServiceEntry of its own")
				break
			}
		}
	}
	for i, e := range s.Endpoints {
		at := c.item("endpoints", i)
		workload(at, e, s.Resolution == networking.ServiceEntry_DNS || s.Resolution == networking.ServiceEntry_DNS_ROUND_ROBIN)
		for _, p := range sorted(e.GetPorts()) {
			at.at("ports["+p+"]").unless(names[p], CodePort, "%q is none of the entry's ports: they are %s", p, strings.Join(all, ", "))
		}
	}
	for i, n := range s.SubjectAltNames {
		c.item("subjectAltNames", i).unless(n != "", CodeRequired, "the name is empty")
	}
}

// addresses reports whether there is a range among the addresses.
func addresses(c *checker, list []string) (ranges bool) {
	seen := once[string]{}
	for i, a := range list {
		at := c.item("addresses", i)
		if !at.unless(isAddress(a) || isPrefix(a), CodeAddress, "%q is neither an address nor a range", a) {
			continue
		}
		seen.note(at, a, CodeDuplicate, "address")
		if p, err := netip.ParsePrefix(a); err == nil && !p.IsSingleIP() {
			ranges = true
		}
	}
	return ranges
}

func servicePorts(c *checker, s *networking.ServiceEntry) (names map[string]bool, list []string) {
	if len(s.Ports) == 0 {
		c.at("ports").warn(CodeRequired, "it has no ports, so nothing is reached by it")
	}
	names, numbers := map[string]bool{}, once[uint32]{}
	for i, p := range s.Ports {
		at := c.item("ports", i)
		if at.at("number").port(p.GetNumber()) {
			numbers.check(at.at("number"), p.Number, CodePort, "port")
		}
		if at.at("name").unless(p.GetName() != "", CodeRequired, "the port has no name") {
			at.at("name").name(p.Name)
			once[string](names).check(at.at("name"), p.Name, CodePort, "the name")
			list = append(list, p.Name)
		}
		if p.GetProtocol() != "" {
			at.at("protocol").protocol(p.Protocol)
		}
		at.at("targetPort").optionalPort(p.GetTargetPort())
	}
	return names, list
}

// resolution checks what goes with the way in which endpoints are found.
func resolution(c *checker, s *networking.ServiceEntry, cidr bool) {
	at := c.at("resolution")
	wildcard := ""
	for _, h := range s.Hosts {
		if strings.HasPrefix(h, "*") {
			wildcard = h
		}
	}
	switch s.Resolution {
	case networking.ServiceEntry_NONE:
		at.unless(len(s.Endpoints) == 0, CodeExclusive, "NONE sends connections where they go: leave endpoints out, or use STATIC or DNS")
		if s.WorkloadSelector != nil {
			at.warn(CodeExclusive, "NONE sends connections where they go: leave workloadSelector out, or use STATIC or DNS")
		}
	case networking.ServiceEntry_STATIC:
		if len(s.Endpoints) == 0 && s.WorkloadSelector == nil {
			at.warn(CodeRequired, "STATIC without endpoints and without a workloadSelector reaches nothing")
		}
		for i, e := range s.Endpoints {
			a, at := e.GetAddress(), c.item("endpoints", i).at("address")
			at.unless(a == "" || isAddress(a) || isUnix(a), CodeAddress, "%q is not an address: use resolution DNS for names", a)
			at.unless(!isUnix(a) || len(s.Ports) == 1, CodePort, "a unix domain socket serves one port: the entry has %d", len(s.Ports))
		}
	case networking.ServiceEntry_DNS, networking.ServiceEntry_DNS_ROUND_ROBIN:
		if len(s.Endpoints) == 0 {
			at.unless(wildcard == "", CodeHost, "%q can't be resolved: give the entry endpoints, or use NONE", wildcard)
		}
		at.unless(s.Resolution == networking.ServiceEntry_DNS || len(s.Endpoints) <= 1, CodeExclusive, "DNS_ROUND_ROBIN has one endpoint at most")
		for i, e := range s.Endpoints {
			a := e.GetAddress()
			c.item("endpoints", i).at("address").unless(isAddress(a) || isFQDN(a), CodeAddress, "%q is neither an address nor a DNS name: use resolution STATIC for unix domain sockets", a)
		}
		c.at("addresses").unless(!cidr, CodeAddress, "a range goes with resolution NONE or STATIC only")
	case networking.ServiceEntry_DYNAMIC_DNS:
		for i, h := range s.Hosts {
			c.item("hosts", i).unless(strings.HasPrefix(h, "*"), CodeHost, "DYNAMIC_DNS is for wildcard hosts: use DNS for this one")
		}
		c.at("addresses").unless(len(s.Addresses) == 0, CodeExclusive, "DYNAMIC_DNS takes the host of the request: leave addresses out")
		for i, p := range s.Ports {
			c.item("ports", i).at("protocol").unless(slices.Contains([]string{"HTTP", "HTTP2", "GRPC", "TLS"}, strings.ToUpper(p.GetProtocol())), CodeProtocol, "DYNAMIC_DNS is for HTTP, HTTP2, GRPC and TLS")
		}
		at.unless(len(s.Endpoints) == 0, CodeExclusive, "DYNAMIC_DNS takes the host of the request: leave endpoints out")
		if s.WorkloadSelector != nil {
			at.warn(CodeIneffective, "DYNAMIC_DNS takes the host of the request: leave workloadSelector out")
		}
	}
}

func workloadEntry(c *checker, w *networking.WorkloadEntry) { workload(c, w, true) }

// workload checks an endpoint or a WorkloadEntry. Names are addresses only where something resolves them.
func workload(c *checker, w *networking.WorkloadEntry, names bool) {
	if w == nil {
		c.refuse(CodeRequired, "the endpoint is empty")
		return
	}
	at := c.at("address")
	switch {
	case w.Address == "":
		at.unless(w.Network != "", CodeRequired, "it has neither address nor network")
	case isUnix(w.Address):
		at.unixPath(w.Address)
		c.at("ports").unless(len(w.Ports) == 0, CodePort, "a unix domain socket has no ports")
	case !isAddress(w.Address):
		if names {
			at.unless(isFQDN(w.Address), CodeAddress, "%q is neither an address nor a DNS name", w.Address)
		}
	default:
		a, _ := netip.ParseAddr(w.Address)
		at.unless(!a.IsUnspecified(), CodeAddress, "%s is nobody's address", a)
	}
	for _, k := range sorted(w.Ports) {
		c.at("ports[" + k + "]").name(k)
		c.at("ports[" + k + "]").port(w.Ports[k])
	}
	c.at("labels").labels(w.Labels)
}

func workloadGroup(c *checker, g *networking.WorkloadGroup) {
	if g.Template == nil {
		c.at("template").refuse(CodeRequired, "it has no template")
	} else {
		if g.Template.Address != "" {
			c.at("template.address").warn(CodeIneffective, "each workload has its own address: leave it out")
		}
		c.at("template.labels").labels(g.Template.Labels)
		for _, k := range sorted(g.Template.Ports) {
			c.at("template.ports[" + k + "]").port(g.Template.Ports[k])
		}
	}
	c.at("metadata.labels").labels(g.GetMetadata().GetLabels())
	if g.Probe != nil {
		probe(c.at("probe"), g.Probe)
	}
}

var probeHeader = regexp.MustCompile(`^[-A-Za-z0-9]+$`)

func probe(c *checker, p *networking.ReadinessProbe) {
	for _, n := range []struct {
		field string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds}, {"timeoutSeconds", p.TimeoutSeconds}, {"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold}, {"failureThreshold", p.FailureThreshold},
	} {
		c.at(n.field).atLeast(int64(n.value), 0)
	}
	switch m := p.HealthCheckMethod.(type) {
	case nil:
		c.refuse(CodeRequired, "it says not how to look: give it one of httpGet, tcpSocket, exec and grpc")
	case *networking.ReadinessProbe_HttpGet:
		at := c.at("httpGet")
		at.at("port").port(m.HttpGet.GetPort())
		at.at("scheme").unless(slices.Contains([]string{"", "HTTP", "HTTPS"}, m.HttpGet.GetScheme()), CodeProtocol, "%q is neither HTTP nor HTTPS", m.HttpGet.GetScheme())
		for i, h := range m.HttpGet.GetHttpHeaders() {
			at.item("httpHeaders", i).unless(probeHeader.MatchString(h.GetName()), CodeHeader, "%q is not the name of a header that a probe may have: letters, digits and '-'", h.GetName())
		}
	case *networking.ReadinessProbe_TcpSocket:
		c.at("tcpSocket.port").port(m.TcpSocket.GetPort())
	case *networking.ReadinessProbe_Grpc:
		c.at("grpc.port").port(m.Grpc.GetPort())
	case *networking.ReadinessProbe_Exec:
		c.at("exec.command").unless(len(m.Exec.GetCommand()) > 0, CodeRequired, "it has no command")
	}
}
