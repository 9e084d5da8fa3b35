package v1alpha1

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Validate gives what is wrong with the spec, in the order of its fields.
func (s *RegistrySpec) Validate() []Fault {
	c := newChecker()
	if s.Provider == "" {
		c.at("provider").refuse(codeRequired, "it is missing: consul, nacos or mcp")
	} else {
		c.at("provider").word(string(s.Provider), string(Consul), string(Nacos), string(MCP))
	}
	s.parts(c)
	s.addresses(c)
	if s.Credentials != nil {
		at := c.at("credentials.secretName")
		if at.unless(s.Credentials.SecretName != "", codeRequired, "it is missing") {
			at.object(s.Credentials.SecretName)
		}
	}
	s.tls(c.at("tls"))
	s.token(c.at("credentials"))
	s.Consul.check(c.at("consul"))
	s.tagged(c.at("consul"))
	s.Nacos.check(c.at("nacos"))
	if f := s.Services; f != nil {
		c.at("services").patterns("include", f.Include)
		c.at("services").patterns("exclude", f.Exclude)
	}
	if h := s.Hosts; h != nil {
		c.at("hosts.mode").word(string(h.Mode), string(NamingDNS), string(NamingHigress))
		c.at("hosts.suffix").unless(h.Suffix == "" || isDNS(h.Suffix), codeHost, "%q is not the end of a DNS name", clipped(h.Suffix))
	}
	s.Ports.check(c.at("ports"))
	s.Locality.check(c.at("locality"))
	c.at("network").unless(labelValue.MatchString(s.Network), codeName, "%q is not the name of a network: letters, digits, '-', '_' and '.', at most 63", clipped(s.Network))
	c.at("namespace").unless(s.Namespace == "" || label.MatchString(s.Namespace), codeName, "%q is not a namespace", clipped(s.Namespace))
	c.exportTo(s.ExportTo)
	if h := s.Health; h != nil {
		c.at("health.warning").word(h.Warning, "healthy", "unhealthy")
	}
	s.Empty.check(c.at("empty"))
	c.at("staleAfter").duration(s.StaleAfter, time.Second)
	if l := s.Limits; l != nil {
		c.at("limits.requestsPerSecond").within(int64(l.RequestsPerSecond), 1, 10_000)
		c.at("limits.concurrency").within(int64(l.Concurrency), 1, 10_000)
		c.at("limits.maxServices").within(int64(l.MaxServices), 1, 1_000_000)
	}
	return *c.found
}

// patterns checks a list of patterns as path.Match has them.
func (c checker) patterns(field string, list []string) {
	c.texts(field, list)
	for i, p := range list {
		if _, err := path.Match(p, ""); err != nil {
			c.item(field, i).refuse(CodeValue, "%q is not a pattern: \"*\" stands for anything, \"?\" for one character", clipped(p))
		}
	}
}

// parts checks that there is none of another provider.
func (s *RegistrySpec) parts(c checker) {
	for _, p := range []struct {
		of  Provider
		set bool
	}{{Consul, s.Consul != nil}, {Nacos, s.Nacos != nil}, {MCP, s.MCP != nil}} {
		if p.set && p.of != s.Provider {
			c.at(string(p.of)).refuse(codeExclusive, "the provider is %q: this is for registries of %s", clipped(string(s.Provider)), p.of)
		}
	}
}

// schemes are those that addresses may have, by provider, and whether TLS is meant.
var schemes = map[Provider]map[string]bool{
	Consul: {"http": false, "https": true},
	Nacos:  {"http": false, "https": true},
	MCP:    {"xds": false, "xdss": true, "tcp": false, "grpc": false, "grpcs": true, "tls": true},
}

func (s *RegistrySpec) addresses(c checker) {
	byServer := s.Nacos != nil && s.Nacos.AddressServer != ""
	c.at("addresses").unless(len(s.Addresses) > 0 || byServer, codeRequired, "it is missing: where the servers are, as host:port")
	c.at("addresses").unless(len(s.Addresses) <= mostAddresses, codeRange, "there are %d: at most %d", len(s.Addresses), mostAddresses)
	c.texts("addresses", s.Addresses)
	for i, a := range s.Addresses[:min(len(s.Addresses), mostAddresses)] {
		at := c.item("addresses", i)
		encrypted := at.address(a, schemes[s.Provider])
		if encrypted && s.TLS != nil && s.TLS.Mode == TLSDisabled {
			at.refuse(codeTLS, "the scheme asks for TLS, which tls.mode disables")
		}
	}
}

// address checks host:port or a URL, and reports whether its scheme means TLS. What is quoted of it holds no credential.
func (c checker) address(a string, schemes map[string]bool) (encrypted bool) {
	if strings.TrimSpace(a) == "" {
		return false // told
	}
	scheme, rest, hasScheme := strings.Cut(a, "://")
	if !hasScheme {
		c.hostPort(a, true)
		return false
	}
	encrypted, known := schemes[scheme]
	if schemes != nil && !known {
		c.refuse(codeAddress, "%q is none of the schemes that this provider has: %s", clipped(scheme), strings.Join(slices.Sorted(maps.Keys(schemes)), ", "))
		return false
	}
	if strings.Contains(rest, "@") {
		c.refuse(codeAddress, "it has a user or a password: put these into the Secret that credentials.secretName names")
		return encrypted
	}
	needsPort := scheme != "http" && scheme != "https" // others have no usual one
	u, err := url.Parse(a)
	switch {
	case err != nil:
		c.hostPort(strings.TrimSuffix(rest, "/"), needsPort)
	case u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		c.refuse(codeAddress, "only scheme, host and port belong here")
	default:
		c.hostPort(u.Host, needsPort)
	}
	return encrypted
}

// hostPort checks the two, or the host alone if the port may be left out.
func (c checker) hostPort(s string, needsPort bool) {
	if strings.Contains(s, "@") {
		c.refuse(codeAddress, "it is not host:port: users and passwords belong into the Secret that credentials.secretName names")
		return
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
		if !c.host(host) || !c.unless(s != host || !strings.Contains(s, ":"), codeAddress, "an IPv6 address is in brackets, as in \"[%s]:8500\"", clipped(s)) {
			return
		}
		c.unless(!needsPort, codeAddress, "%q has no port: write host:port", clipped(s))
		return
	}
	if !c.host(host) {
		return
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		c.refuse(codePort, "%q is not a port: it is between 1 and 65535", clipped(port))
	}
}

// host checks an IP address or a DNS name.
func (c checker) host(s string) bool {
	if ip, err := netip.ParseAddr(s); err == nil {
		return c.unless(ip.Zone() == "" && !ip.IsUnspecified() && !ip.IsMulticast(), codeAddress, "%q can't be dialled", clipped(s))
	}
	return c.unless(isDNS(s), codeAddress, "%q is neither an IP address nor a DNS name", clipped(s))
}

func (s *RegistrySpec) tls(c checker) {
	t := s.TLS
	if t == nil {
		return
	}
	if c.at("mode").unless(t.Mode != "", codeRequired, "it is missing: %s, %s or %s", TLSDisabled, TLSSimple, TLSMutual) {
		c.at("mode").word(string(t.Mode), string(TLSDisabled), string(TLSSimple), string(TLSMutual))
	}
	c.at("secretName").secret(t.SecretName)
	c.at("secretName").unless(t.Mode != TLSMutual || t.SecretName != "", codeRequired, "%s needs the Secret with tls.crt and tls.key", TLSMutual)
	c.at("serverName").unless(t.ServerName == "" || isDNS(t.ServerName) || isIP(t.ServerName), codeHost, "%q is not a DNS name", clipped(t.ServerName))
	if t.InsecureSkipVerify {
		c.at("insecureSkipVerify").add(Warning, codeTLS, "whoever is in between can read the credentials and change all that is read")
	}
}

// token refuses one that would be sent in the clear. Servers of configuration are the only ones for which there is no setting without: who
// reads their token may read the whole configuration.
func (s *RegistrySpec) token(c checker) {
	encrypted := s.TLS != nil && s.TLS.Mode != TLSDisabled
	for _, a := range s.Addresses {
		scheme, _, _ := strings.Cut(a, "://")
		encrypted = encrypted || s.TLS == nil && schemes[MCP][scheme]
	}
	c.unless(s.Provider != MCP || s.Credentials == nil || encrypted, codeTLS,
		"a token needs TLS, or it would be sent in the clear: set tls.mode to %s, or leave out the credentials", TLSSimple)
}

func isIP(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// consulKinds are the kinds of services, besides typical ones.
var consulKinds = []string{"connect-proxy", "mesh-gateway", "terminating-gateway", "ingress-gateway", "api-gateway", "typical"}

func (s *ConsulSpec) check(c checker) {
	if s == nil {
		return
	}
	c.texts("datacenters", s.Datacenters)
	for i, dc := range s.Datacenters {
		c.item("datacenters", i).unless(dc == "" || dnsLabel.MatchString(dc), codeName, "%q is not a datacenter: letters, digits, '-' and '_'", clipped(dc))
	}
	c.texts("namespaces", s.Namespaces)
	c.texts("peers", s.Peers)
	c.texts("tags", s.Tags)
	for i, k := range s.Kinds {
		c.item("kinds", i).word(k, consulKinds...)
	}
	c.at("consistency").word(s.Consistency, "default", "stale", "consistent")
	c.at("maxStale").duration(s.MaxStale, time.Millisecond)
	c.at("refreshInterval").duration(s.RefreshInterval, time.Second)
}

// Names as Nacos takes them, unless it is told not to check. They are ids of namespaces, of which names for people are another thing.
var (
	nacosNamespace = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	nacosGroup     = regexp.MustCompile(`^[a-zA-Z0-9_:.-]{1,128}$`)
)

// nacosName checks the name of a group or a namespace. A server whose checks are turned off, or that is older than they are, takes almost anything.
func (c checker) nacosName(name string, rule *regexp.Regexp, words string) {
	switch {
	case strings.TrimSpace(name) == "": // told
	case strings.Contains(name, "@@"):
		c.refuse(codeName, "%q has \"@@\", which parts the namespace, the group and the service in Nacos' own names", clipped(name))
	case strings.ContainsFunc(name, unicode.IsControl), !utf8.ValidString(name):
		c.refuse(codeName, "%q has control characters", clipped(name))
	case !rule.MatchString(name):
		c.add(Warning, codeName, "Nacos refuses %q, unless its own nacos.core.param.check.enabled is false: %s", clipped(name), words)
	}
}

// mostTagged bounds the entries of taggedAddresses.
const mostTagged = 64

// tagged checks which addresses are dialled.
func (s *RegistrySpec) tagged(c checker) {
	if s.Consul == nil {
		return
	}
	c.at("taggedAddress").tag(s.Consul.TaggedAddress)
	all := s.Consul.TaggedAddresses
	at := c.at("taggedAddresses")
	at.unless(len(all) <= mostTagged, codeRange, "there are %d: at most %d", len(all), mostTagged)
	for _, network := range slices.Sorted(maps.Keys(all))[:min(len(all), mostTagged)] {
		of := c.at("taggedAddresses[" + clipped(network) + "]")
		of.unless(network == "*" || network != "" && labelValue.MatchString(network), codeName,
			"%q is not the name of a network: letters, digits, '-', '_' and '.', at most 63, or \"*\" for any other", clipped(network))
		of.unless(all[network] != "", codeRequired, "it names no address")
		of.tag(all[network])
		if network == s.Network && network != "" {
			of.add(Warning, codeIneffective, "it is the registry's own network: taggedAddress says what is dialled there")
		}
	}
}

// tag checks the name of an address, which may be left out.
func (c checker) tag(s string) {
	c.unless(s == strings.TrimSpace(s) && len(s) <= 128, CodeValue, "%q is not the name of an address, as \"lan\" and \"wan\" are", clipped(s))
	c.unless(s != "virtual" && s != "consul-virtual", CodeValue, "the address %q can be dialled in Consul's own mesh only", s)
}

func (s *NacosSpec) check(c checker) {
	if s == nil {
		return
	}
	c.texts("namespaces", s.Namespaces)
	c.texts("groups", s.Groups)
	for i, ns := range s.Namespaces {
		c.item("namespaces", i).nacosName(ns, nacosNamespace, "letters, digits, '-' and '_', at most 64")
	}
	for i, g := range s.Groups {
		c.item("groups", i).nacosName(g, nacosGroup, "letters, digits, '-', '_', ':' and '.', at most 128")
	}
	for _, id := range slices.Sorted(maps.Keys(s.NamespaceNames)) {
		c.at("namespaceNames").unless(s.NamespaceNames[id] != "", codeRequired, "the name of %q is empty", clipped(id))
		if !slices.Contains(s.Namespaces, id) && !(id == "public" && len(s.Namespaces) == 0) {
			c.at("namespaceNames").add(Warning, codeIneffective, "%q is none of the namespaces that are read", clipped(id))
		}
	}
	if s.AddressServer != "" {
		u, err := url.Parse(s.AddressServer)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.ContainsAny(s.AddressServer, "@#"+hidden) {
			c.at("addressServer").refuse(codeAddress, "it is not a URL like http://host:8080/nacos/serverlist, without user")
		} else {
			c.at("addressServer").hostPort(u.Host, false)
		}
	}
	c.at("discoveryInterval").duration(s.DiscoveryInterval, time.Second)
	c.at("contextPath").unless(s.ContextPath == "" || strings.HasPrefix(s.ContextPath, "/") && !strings.ContainsAny(s.ContextPath, "?#"), CodeValue, "%q is not a path: it begins with \"/\"", clipped(s.ContextPath))
	c.at("protectThreshold").word(s.ProtectThreshold, "ignore", "honour")
}

func (p *PortMapping) check(c checker) {
	if p == nil {
		return
	}
	c.at("protocol").protocol(p.Protocol)
	seen := map[string]bool{}
	for i, s := range p.Services {
		at := c.item("services", i)
		host := strings.ToLower(s.Host)
		at.at("host").unless(host != "", codeRequired, "it is missing")
		at.at("host").unless(!seen[host] || host == "", codeDuplicate, "%q is there twice: hosts are compared without regard to case", clipped(s.Host))
		seen[host] = true
		at.at("protocol").protocol(s.Protocol)
		at.unless(s.Port != 0 || s.Protocol != "", codeRequired, "it says neither a port nor a protocol")
	}
}

func (l *Locality) check(c checker) {
	if l == nil {
		return
	}
	if l.Default != "" {
		c.at("default").locality(l.Default)
	}
	for _, m := range []struct {
		field string
		of    map[string]string
	}{{"clusters", l.Clusters}, {"datacenters", l.Datacenters}} {
		for _, k := range slices.Sorted(maps.Keys(m.of)) {
			c.at(m.field + "[" + clipped(k) + "]").locality(m.of[k])
		}
	}
}

func (e *EmptyPolicy) check(c checker) {
	if e == nil {
		return
	}
	c.at("mode").word(string(e.Mode), string(EmptyImmediate), string(EmptyHold), string(EmptyProtect))
	c.at("duration").duration(e.Duration, time.Second)
	if e.Percent != nil {
		c.at("percent").unless(*e.Percent >= 0 && *e.Percent <= 100, codeRange, "%d is not between 0 and 100", *e.Percent)
	}
	if e.Mode == EmptyImmediate && e.Duration != nil {
		c.at("duration").add(Warning, codeIneffective, "nothing is held: the mode is immediate")
	}
	if e.Percent != nil && cmp.Or(e.Mode, EmptyProtect) != EmptyProtect {
		c.at("percent").add(Warning, codeIneffective, "it is for the mode protect")
	}
}
