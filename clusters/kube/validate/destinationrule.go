package validate

import (
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"
)

func destinationRule(c *checker, s *networking.DestinationRule) {
	switch {
	case s.Host == "":
		c.at("host").refuse(CodeRequired, "it names no host")
	default:
		c.at("host").unless(isPattern(s.Host), CodeHost, "%q is not a host: write a DNS name or \"*.suffix\"", s.Host)
	}
	c.exportTo(s.ExportTo, false)
	if s.WorkloadSelector != nil {
		at := c.at("workloadSelector.matchLabels")
		at.selects(s.WorkloadSelector.MatchLabels)
		at.selector(s.WorkloadSelector.MatchLabels)
		c.at("exportTo").unless(len(s.ExportTo) == 0 || len(s.ExportTo) == 1 && (s.ExportTo[0] == "." || s.ExportTo[0] == c.key.Namespace), CodeExportTo, "a rule with a workloadSelector is for its own namespace: write \".\"")
	}
	trafficPolicy(c.at("trafficPolicy"), s.TrafficPolicy)
	seen := once[string]{}
	for i, sub := range s.Subsets {
		at := c.item("subsets", i)
		if !at.at("name").unless(sub.GetName() != "", CodeRequired, "the subset has no name") {
			continue
		}
		at.at("name").name(sub.Name)
		seen.check(at.at("name"), sub.Name, CodeDuplicate, "subset")
		at.at("labels").labels(sub.Labels)
		trafficPolicy(at.at("trafficPolicy"), sub.TrafficPolicy)
	}
}

// portPolicy is what the policies of all ports and of one have in common.
type portPolicy interface {
	proto.Message
	GetLoadBalancer() *networking.LoadBalancerSettings
	GetConnectionPool() *networking.ConnectionPoolSettings
	GetOutlierDetection() *networking.OutlierDetection
	GetTls() *networking.ClientTLSSettings
}

func trafficPolicy(c *checker, p *networking.TrafficPolicy) {
	if p == nil {
		return
	}
	if proto.Equal(p, &networking.TrafficPolicy{}) {
		c.refuse(CodeRequired, "it says nothing: leave it out, or give it a setting")
	}
	onePolicy(c, p)
	ports := once[uint32]{}
	for i, l := range p.PortLevelSettings {
		at := c.item("portLevelSettings", i)
		if at.at("port.number").port(l.GetPort().GetNumber()) {
			ports.check(at.at("port.number"), l.Port.Number, CodeDuplicate, "port")
		}
		at.unless(l.GetLoadBalancer() != nil || l.GetConnectionPool() != nil || l.GetOutlierDetection() != nil || l.GetTls() != nil, CodeRequired, "it says nothing about the port: give it a setting")
		onePolicy(at, l)
	}
	if t := p.Tunnel; t != nil {
		at := c.at("tunnel")
		at.at("protocol").unless(slices.Contains([]string{"", "CONNECT", "POST"}, t.Protocol), CodeProtocol, "%q is neither CONNECT nor POST", t.Protocol)
		if !isAddress(t.TargetHost) {
			at.at("targetHost").fqdn(t.TargetHost)
		}
		at.at("targetPort").port(t.TargetPort)
		at.unless(p.ProxyProtocol == nil, CodeExclusive, "tunnel and proxyProtocol exclude each other: keep one of them")
	}
	if b := p.RetryBudget; b != nil {
		if b.Percent != nil {
			c.at("retryBudget.percent").percent(b.Percent.Value)
		}
		c.at("retryBudget.budgetInterval").duration(b.BudgetInterval, 0)
	}
}

func onePolicy(c *checker, p portPolicy) {
	loadBalancer(c.at("loadBalancer"), p.GetLoadBalancer(), p.GetOutlierDetection())
	connectionPool(c.at("connectionPool"), p.GetConnectionPool())
	outlier(c.at("outlierDetection"), p.GetOutlierDetection())
	clientTLS(c.at("tls"), p.GetTls())
}

func loadBalancer(c *checker, l *networking.LoadBalancerSettings, outliers *networking.OutlierDetection) {
	if l == nil {
		return
	}
	if h := l.GetConsistentHash(); h != nil {
		consistentHash(c.at("consistentHash"), h)
	}
	if w := l.Warmup; w != nil {
		at := c.at("warmup")
		at.at("duration").unless(w.Duration != nil, CodeRequired, "it has no duration")
		at.at("duration").duration(w.Duration, time.Millisecond)
		if w.MinimumPercent != nil {
			at.at("minimumPercent").percent(w.MinimumPercent.Value)
		}
		if w.Aggression != nil {
			at.at("aggression").unless(w.Aggression.Value > 0, CodeRange, "%v is too small: it is more than 0", w.Aggression.Value)
		}
	}
	//lint:ignore SA1019 objects may still have it
	old := l.WarmupDurationSecs
	if old != nil && l.Warmup != nil {
		c.at("warmupDurationSecs").warn(CodeIneffective, "warmup goes before it: leave it out")
	}
	c.at("warmupDurationSecs").duration(old, 0)
	if (l.Warmup != nil || old != nil) && !warms(l) {
		c.at("warmup").warn(CodeIneffective, "only ROUND_ROBIN and LEAST_REQUEST warm endpoints up")
	}
	locality(c.at("localityLbSetting"), l.LocalityLbSetting, outliers)
	zoneAware(c.at("zoneAwareLbSetting"), l)
}

func warms(l *networking.LoadBalancerSettings) bool {
	switch l.GetSimple() {
	case networking.LoadBalancerSettings_RANDOM, networking.LoadBalancerSettings_PASSTHROUGH:
		return false
	}
	return l.GetConsistentHash() == nil
}

func consistentHash(c *checker, h *networking.LoadBalancerSettings_ConsistentHashLB) {
	switch k := h.HashKey.(type) {
	case nil:
		c.warn(CodeRequired, "it says not what to hash, so each request goes anywhere: give it one of httpHeaderName, httpCookie, useSourceIp and httpQueryParameterName")
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName:
		c.at("httpHeaderName").header(k.HttpHeaderName)
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpQueryParameterName:
		c.at("httpQueryParameterName").unless(k.HttpQueryParameterName != "", CodeRequired, "it names no parameter")
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpCookie:
		c.at("httpCookie.name").unless(k.HttpCookie.GetName() != "", CodeRequired, "the cookie has no name")
		c.at("httpCookie.ttl").duration(k.HttpCookie.GetTtl(), 0)
		names := once[string]{}
		for i, a := range k.HttpCookie.GetAttributes() {
			at := c.item("httpCookie.attributes", i)
			if at.unless(a.GetName() != "", CodeRequired, "the attribute has no name") {
				names.check(at, a.Name, CodeDuplicate, "attribute")
			}
		}
	}
	if m := h.GetMaglev(); m != nil {
		c.at("maglev.tableSize").unless(m.TableSize < largestTable, CodeRange, "%d is too large: it is less than %d", m.TableSize, largestTable)
		c.at("maglev.tableSize").unless(prime(m.TableSize), CodeRange, "%d is not a prime number", m.TableSize)
	}
	//lint:ignore SA1019 objects may still have it
	old := h.MinimumRingSize
	c.unless(old == 0 || h.HashAlgorithm == nil, CodeExclusive, "minimumRingSize excludes ringHash and maglev: keep one of them")
	c.at("minimumRingSize").unless(old <= largestRing, CodeRange, "%d is too large: at most %d", old, largestRing)
	size := h.GetRingHash().GetMinimumRingSize()
	c.at("ringHash.minimumRingSize").unless(size <= largestRing, CodeRange, "%d is too large: at most %d", size, largestRing)
}

const (
	largestRing  = 8 << 20 // Envoy refuses a cluster with a larger one
	largestTable = 5000011
)

// prime looks at numbers of a few millions at most.
func prime(n uint64) bool {
	if n < 1 || n > math.MaxUint32 {
		return false
	}
	for d := uint64(2); d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return true
}

func locality(c *checker, l *networking.LocalityLoadBalancerSetting, outliers *networking.OutlierDetection) {
	if l == nil {
		return
	}
	switch {
	case len(l.Distribute) > 0 && len(l.Failover) > 0:
		c.refuse(CodeExclusive, "distribute excludes failover: keep one of them")
	case len(l.Distribute) > 0 && len(l.FailoverPriority) > 0:
		c.at("failoverPriority").warn(CodeIneffective, "it has no effect beside distribute: keep one of them")
	}
	var from []string
	for i, d := range l.Distribute {
		at := c.item("distribute", i)
		from = append(from, d.GetFrom())
		at.at("from").locality(d.GetFrom())
		sum := uint64(0)
		var to []string
		for _, k := range sorted(d.GetTo()) {
			at.at("to[" + k + "]").locality(k)
			at.at("to["+k+"]").unless(d.To[k] > 0, CodeWeight, "the weight is 0: leave the locality out")
			sum += uint64(d.To[k])
			to = append(to, k)
		}
		at.at("to").unless(sum == 100, CodeWeight, "the weights make %d, not 100", sum)
		overlapping(at.at("to"), to)
	}
	overlapping(c.at("distribute"), from)
	for i, f := range l.Failover {
		c.item("failover", i).regions(f.GetFrom(), f.GetTo())
	}
	failoverPriority(c, l)
	if len(l.Failover)+len(l.FailoverPriority) > 0 && outliers == nil {
		c.warn(CodeIneffective, "without outlierDetection nothing fails over: add it to this policy")
	}
}

// regions checks two regions, of which the second serves where the first can't.
func (c *checker) regions(from, to string) {
	c.unless(from != "" && to != "", CodeRequired, "from and to are both needed")
	c.unless(from != to || from == "", CodeLocality, "it fails over to itself")
	for _, r := range []string{from, to} {
		c.unless(!strings.ContainsAny(r, "/*"), CodeLocality, "%q is not a region: failover knows regions only", r)
	}
}

// zoneAware checks balancing within the zone of a proxy, which goes before localityLbSetting.
func zoneAware(c *checker, l *networking.LoadBalancerSettings) {
	z := l.ZoneAwareLbSetting
	if z == nil {
		return
	}
	for i, f := range z.Failover {
		c.item("failover", i).regions(f.GetFrom(), f.GetTo())
	}
	for i, label := range z.FailoverPriority {
		at := c.item("failoverPriority", i)
		key, _, _ := strings.Cut(label, "=")
		at.unless(key != "", CodeLabels, "%q names no label", label)
		at.unless(!slices.Contains(placeLabels, key), CodeExclusive, "zones and regions are told apart anyway: leave %s out", key)
	}
	c.at("minClusterSize").unless(z.MinClusterSize == nil || z.MinClusterSize.Value > 0, CodeRange, "0 is too small: it is at least 1")
	c.unless(l.LocalityLbSetting == nil, CodeExclusive, "zoneAwareLbSetting and localityLbSetting exclude each other: keep one of them")
}

// locality checks "region", "region/zone", "region/zone/subzone", with "*" as the last part.
func (c *checker) locality(s string) {
	parts := strings.Split(s, "/")
	ok := s != "" && len(parts) <= 3
	for i, p := range parts {
		ok = ok && p != "" && (!strings.Contains(p, "*") || p == "*" && i == len(parts)-1)
	}
	c.unless(ok, CodeLocality, "%q is not a locality: write region/zone/subzone, the rest of which may be *", s)
}

// overlapping refuses localities of which one is part of another.
func overlapping(c *checker, list []string) {
	// What is part of a place follows it at once when they are sorted by what they cover.
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b string) int { return strings.Compare(covered(a), covered(b)) })
	for i := 1; i < len(list); i++ {
		if a, b := list[i-1], list[i]; strings.HasPrefix(covered(b), covered(a)) {
			c.refuse(CodeLocality, "%q and %q overlap", a, b)
		}
	}
}

// covered is what all localities within a place begin with.
func covered(place string) string {
	if place = strings.TrimSuffix(place, "*"); place == "" || strings.HasSuffix(place, "/") {
		return place
	}
	return place + "/"
}

// failoverPriority checks labels by which endpoints are ranked: what failover says too stands in one of them.
func failoverPriority(c *checker, l *networking.LocalityLoadBalancerSetting) {
	for i, label := range l.FailoverPriority {
		at := c.item("failoverPriority", i)
		key, _, _ := strings.Cut(label, "=")
		at.unless(key != "", CodeLabels, "%q names no label", label)
		at.unless(len(l.Failover) == 0 || !slices.Contains(placeLabels, label), CodeExclusive, "%s and failover exclude each other: keep one of them", label)
	}
}

// placeLabels are the labels of failoverPriority that say what failover says.
var placeLabels = []string{"topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.istio.io/subzone"}

func connectionPool(c *checker, p *networking.ConnectionPoolSettings) {
	if p == nil {
		return
	}
	c.unless(p.Tcp != nil || p.Http != nil, CodeRequired, "it has neither tcp nor http")
	t, h := p.Tcp, p.Http
	for _, n := range []struct {
		field string
		value int32
	}{
		{"tcp.maxConnections", t.GetMaxConnections()}, {"http.http1MaxPendingRequests", h.GetHttp1MaxPendingRequests()}, {"http.http2MaxRequests", h.GetHttp2MaxRequests()},
		{"http.maxRequestsPerConnection", h.GetMaxRequestsPerConnection()}, {"http.maxRetries", h.GetMaxRetries()}, {"http.maxConcurrentStreams", h.GetMaxConcurrentStreams()},
	} {
		c.at(n.field).atLeast(int64(n.value), 0)
	}
	for _, d := range []struct {
		field   string
		value   *durationpb.Duration
		atLeast time.Duration
	}{
		{"tcp.connectTimeout", t.GetConnectTimeout(), time.Millisecond}, {"tcp.maxConnectionDuration", t.GetMaxConnectionDuration(), time.Millisecond}, {"tcp.idleTimeout", t.GetIdleTimeout(), 0},
		{"tcp.tcpKeepalive.time", t.GetTcpKeepalive().GetTime(), time.Second}, {"tcp.tcpKeepalive.interval", t.GetTcpKeepalive().GetInterval(), time.Second},
		{"http.idleTimeout", h.GetIdleTimeout(), time.Millisecond}, {"http.http2KeepAlive.interval", h.GetHttp2KeepAlive().GetInterval(), time.Millisecond}, {"http.http2KeepAlive.timeout", h.GetHttp2KeepAlive().GetTimeout(), time.Millisecond},
	} {
		c.at(d.field).duration(d.value, d.atLeast)
	}
	keepalive(c.at("tcp.tcpKeepalive"), t.GetTcpKeepalive())
	if d := t.GetIdleTimeout().AsDuration(); d.Milliseconds() != 0 {
		c.at("tcp.idleTimeout").duration(t.IdleTimeout, time.Millisecond)
	}
	if k := h.GetHttp2KeepAlive(); k != nil {
		c.at("http.http2KeepAlive.interval").unless(k.Interval != nil, CodeRequired, "interval and timeout are both needed")
		c.at("http.http2KeepAlive.timeout").unless(k.Timeout != nil, CodeRequired, "interval and timeout are both needed")
	}
	if h.GetUseClientProtocol() {
		c.at("http").unless(h.H2UpgradePolicy != networking.ConnectionPoolSettings_HTTPSettings_UPGRADE, CodeExclusive, "useClientProtocol excludes h2UpgradePolicy UPGRADE: keep one of them")
	}
}

// keepalive warns of what Linux refuses for a connection.
func keepalive(c *checker, k *networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive) {
	const longest, most = 32767 * time.Second, 127
	for _, f := range []struct {
		field string
		bad   bool
		limit any
	}{{"time", k.GetTime().AsDuration() > longest, longest}, {"interval", k.GetInterval().AsDuration() > longest, longest}, {"probes", k.GetProbes() > most, most}} {
		if f.bad {
			c.at(f.field).warn(CodeRange, "Linux refuses it, so that no connection is made: it is at most %v", f.limit)
		}
	}
}

func outlier(c *checker, o *networking.OutlierDetection) {
	if o == nil {
		return
	}
	c.at("interval").duration(o.Interval, time.Millisecond)
	c.at("baseEjectionTime").duration(o.BaseEjectionTime, time.Millisecond)
	c.at("maxEjectionPercent").percent(float64(o.MaxEjectionPercent))
	c.at("minHealthPercent").percent(float64(o.MinHealthPercent))
	if o.FailurePercentageThreshold != nil {
		c.at("failurePercentageThreshold").percent(float64(o.FailurePercentageThreshold.Value))
	}
	if !o.SplitExternalLocalOriginErrors && o.ConsecutiveLocalOriginFailures.GetValue() > 0 {
		c.at("consecutiveLocalOriginFailures").refuse(CodeIneffective, "it needs splitExternalLocalOriginErrors: set that, or leave it out")
	}
	for i, code := range o.OutlierDetectionHttpErrorCodes {
		c.item("outlierDetectionHttpErrorCodes", i).unless(code >= 200 && code <= 599, CodeStatus, "%d is not a status code: it is between 200 and 599", code)
	}
}

func clientTLS(c *checker, t *networking.ClientTLSSettings) {
	if t == nil {
		return
	}
	files := t.ClientCertificate != "" || t.PrivateKey != "" || t.CaCertificates != ""
	ends := t.Mode == networking.ClientTLSSettings_SIMPLE || t.Mode == networking.ClientTLSSettings_MUTUAL
	switch {
	case t.CredentialName != "" && ends:
		c.unless(!files && t.CaCrl == "", CodeTLS, "credentialName and files exclude each other: keep one of them")
	case t.CredentialName != "" || t.CaCertCredentialName != "" && files:
		c.warn(CodeTLS, "credentialName and files exclude each other: keep one of them")
	}
	if t.InsecureSkipVerify.GetValue() && (t.CaCertificates != "" || len(t.SubjectAltNames) > 0 || t.CredentialName != "" && t.Mode == networking.ClientTLSSettings_SIMPLE) {
		c.at("insecureSkipVerify").unless(!ends, CodeExclusive, "nothing is verified: leave caCertificates, credentialName and subjectAltNames out")
	}
	switch t.Mode {
	case networking.ClientTLSSettings_MUTUAL:
		if t.CredentialName == "" {
			c.at("clientCertificate").unless(t.ClientCertificate != "", CodeTLS, "mode MUTUAL needs a certificate of the client")
			c.at("privateKey").unless(t.PrivateKey != "", CodeTLS, "mode MUTUAL needs the key of the client's certificate")
		}
	case networking.ClientTLSSettings_ISTIO_MUTUAL:
		if files || t.CredentialName != "" || t.CaCertCredentialName != "" || t.CaCrl != "" {
			c.warn(CodeTLS, "mode ISTIO_MUTUAL uses the mesh's own certificates: certificates, keys and credentialName do nothing")
		}
	case networking.ClientTLSSettings_SIMPLE:
		if t.ClientCertificate != "" || t.PrivateKey != "" {
			c.warn(CodeTLS, "mode SIMPLE shows no certificate: use MUTUAL, or leave clientCertificate and privateKey out")
		}
	case networking.ClientTLSSettings_DISABLE:
		if files || t.CredentialName != "" || t.Sni != "" || len(t.SubjectAltNames) > 0 {
			c.warn(CodeIneffective, "mode is DISABLE, so the rest does nothing")
		}
	}
}
