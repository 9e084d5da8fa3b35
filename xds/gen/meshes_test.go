package gen_test

import (
	"net/netip"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// certified proxies have what they need to call others with mutual TLS.
func certified(c *gen.Class) {
	c.ClientTLS = gen.TLSFiles{Chain: "/etc/certs/cert-chain.pem", Key: "/etc/certs/key.pem", Root: "/etc/certs/root-cert.pem"}
}

// onNetwork places a proxy that is certified, as it must be to get out of its network.
func onNetwork(n string) func(*gen.Class) {
	return func(c *gen.Class) {
		certified(c)
		c.Network = n
	}
}

func gateway(network, cluster, addr string) pushcontext.Gateway {
	g := pushcontext.Gateway{Network: network, Cluster: model.ClusterID(cluster)}
	if a, err := netip.ParseAddrPort(addr); err == nil {
		g.Addr = a
	} else {
		g.Host = addr
	}
	return g
}

// twoNetworks has three gateways into n2, two of them of member c2, and one into n3 that is not
// resolved.
func twoNetworks(m *settings) {
	m.gateways = []pushcontext.Gateway{
		gateway("n2", "", "192.0.2.1:15443"), gateway("n2", "c2", "192.0.2.2:15443"), gateway("n2", "c2", "192.0.2.3:15443"),
		gateway("n3", "c3", "gw.example"),
	}
}

func multiNetwork() svc {
	return svc{host: "cart.shop.svc.cluster.local", ports: []model.Port{httpPort(80)}, vips: map[model.ClusterID][]string{"c1": {"10.0.0.1"}},
		endpoints: []*model.Endpoint{
			ep("c1", "http", "10.1.0.1:8080", network("n1"), at("r1/z1")),
			ep("c2", "http", "10.1.0.1:8080", network("n2"), at("r2/z1"), mtls),
			ep("c2", "http", "10.1.0.2:8080", network("n2"), at("r2/z1"), mtls, weight(2)),
			ep("c2", "http", "10.1.0.3:8080", network("n2"), at("r2/z1")),
			ep("c2", "http", "10.1.0.4:8080", network("n2"), at("r2/z1"), mtls, health(model.Unhealthy)),
			ep("c4", "http", "10.1.0.5:8080", network("n2"), at("r2/z2"), mtls),
			ep("c3", "http", "10.1.0.6:8080", network("n3"), mtls),
			ep("c5", "http", "10.1.0.7:8080", network("n5")),
		}}
}

func failover(m *settings) {
	m.Config.DefaultTrafficPolicy = &meshconfig.MeshConfig_DefaultTrafficPolicy{OutlierDetection: &networking.OutlierDetection{
		Consecutive_5XxErrors: wrapperspb.UInt32(3), Interval: durationpb.New(time.Second), BaseEjectionTime: durationpb.New(time.Minute), MaxEjectionPercent: 50}}
}

func tuned(m *settings) {
	failover(m)
	m.Config.ConnectTimeout = durationpb.New(2 * time.Second)
	m.Config.TcpKeepalive = &networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive{Probes: 3, Time: durationpb.New(time.Minute), Interval: durationpb.New(10 * time.Second)}
	m.Config.DnsRefreshRate = durationpb.New(5 * time.Second)
	m.Config.AccessLogFile = "/dev/stdout"
	m.Config.AccessLogEncoding = meshconfig.MeshConfig_JSON
	m.Config.OutboundClusterStatName = "%SERVICE%_%SERVICE_PORT%"
	m.Config.InboundClusterStatName = "%SERVICE_FQDN%_%SERVICE_PORT_NAME%"
	m.Config.ProxyListenPort, m.Config.ProxyInboundListenPort = 16001, 16006
	m.Config.LocalityLbSetting = &networking.LocalityLoadBalancerSetting{Failover: []*networking.LocalityLoadBalancerSetting_Failover{{From: "r1", To: "r2"}}}
	m.Config.DefaultHttpRetryPolicy = &networking.HTTPRetry{Attempts: 5, PerTryTimeout: durationpb.New(time.Second), RetryOn: "5xx"}
	m.Config.DefaultTrafficPolicy.ConnectionPool = &networking.ConnectionPoolSettings{
		Tcp: &networking.ConnectionPoolSettings_TCPSettings{MaxConnections: 100}, Http: &networking.ConnectionPoolSettings_HTTPSettings{Http2MaxRequests: 50}}
	m.Config.PathNormalization = &meshconfig.MeshConfig_ProxyPathNormalization{Normalization: meshconfig.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES}
}

// conflicting has services that compete for the same listeners on port 5000.
func conflicting() []svc {
	c1 := func(v ...string) map[model.ClusterID][]string { return map[model.ClusterID][]string{"c1": v} }
	tls := func(n uint16) model.Port { return model.Port{Name: "tls", Number: n, Protocol: model.ProtocolTLS} }
	return []svc{
		{host: "old.example.com", ns: "a", age: 9, ports: []model.Port{tcpPort(5000)}, vips: c1("10.0.1.1"), resolution: model.Passthrough},
		{host: "new.example.com", ns: "a", age: 1, ports: []model.Port{tcpPort(5000)}, vips: c1("10.0.1.1", "10.0.1.2")},
		{host: "web.example.com", ns: "a", age: 3, ports: []model.Port{httpPort(5000)}, vips: c1("10.0.1.3")},
		{host: "late.example.com", ns: "a", age: 2, ports: []model.Port{autoPort(5000)}, vips: c1("10.0.1.3")},
		{host: "plain.example.com", ns: "a", age: 5, ports: []model.Port{tcpPort(5000)}},
		{host: "plain2.example.com", ns: "a", age: 4, ports: []model.Port{tcpPort(5000)}},
		{host: "range.example.com", ns: "a", age: 8, ports: []model.Port{tcpPort(5000)}, vips: c1("10.7.0.0/16"), resolution: model.Passthrough},
		{host: "range2.example.com", ns: "a", age: 7, ports: []model.Port{autoPort(5000)}, vips: c1("10.7.0.0/16", "10.8.0.0/16"), resolution: model.Passthrough},
		{host: "tls.example.com", ns: "a", ports: []model.Port{tls(5000)}},
		{host: "*.wild.example.com", ns: "a", ports: []model.Port{tls(5000)}},
		{host: "zero.example.com", ns: "a", ports: []model.Port{tcpPort(5001)}, vips: c1("0.0.0.0")},
		{host: "cart.shop", ns: "a", age: 2, ports: []model.Port{httpPort(5000)}},
		{host: "cart.shop.svc.cluster.local", age: 1, ports: []model.Port{httpPort(5000)}, vips: c1("10.0.1.9")},
		{host: "WEB.example.com", ns: "b", ports: []model.Port{httpPort(5000)}},
		{host: "10.0.1.10", ns: "b", ports: []model.Port{httpPort(5000)}, vips: c1("10.0.1.10")},
	}
}

// hostile has settings that Envoy would refuse if they were passed on.
func hostile(m *settings) {
	failover(m)
	m.Config.ConnectTimeout = durationpb.New(0)
	m.Config.DnsRefreshRate = durationpb.New(0)
	m.Config.ProtocolDetectionTimeout = durationpb.New(-time.Second)
	m.Config.ProxyListenPort, m.Config.ProxyInboundListenPort = -1, 70000
	m.Config.DefaultTrafficPolicy.OutlierDetection.Interval = durationpb.New(0)
	m.Config.DefaultTrafficPolicy.OutlierDetection.BaseEjectionTime = durationpb.New(-1)
	m.Config.DefaultTrafficPolicy.OutlierDetection.MaxEjectionPercent = 300
	m.Config.DefaultTrafficPolicy.OutlierDetection.MinHealthPercent = 300
	m.Config.DefaultTrafficPolicy.ConnectionPool = &networking.ConnectionPoolSettings{Tcp: &networking.ConnectionPoolSettings_TCPSettings{ConnectTimeout: durationpb.New(0)}}
	m.Config.DefaultHttpRetryPolicy = &networking.HTTPRetry{Attempts: 1, PerTryTimeout: durationpb.New(-time.Second)}
	m.Config.AccessLogFile, m.Config.AccessLogFormat = "/dev/null", "%START_TIME%\n"
}

// odd has services that Envoy would refuse if they were passed on as they are.
func odd() []svc {
	tls := model.Port{Name: "tls", Number: 443, Protocol: model.ProtocolTLS}
	return []svc{
		{host: "static.example", ns: "a", ports: []model.Port{httpPort(80)}, endpoints: []*model.Endpoint{
			ep("c1", "http", "name.example:80"), ep("c1", "http", "unix:///tmp/s"), ep("c1", "http", "10.0.0.1:80"), ep("c2", "http", "10.0.0.1:80"),
			ep("c1", "http", "unix://"), ep("c1", "http", "unix:///tmp/"+strings.Repeat("long", 40)), ep("c1", "http", "[fe80::1%eth0]:80")}},
		{host: "a\nb.example", ns: "a", ports: []model.Port{httpPort(80)}}, {host: "a b.example", ns: "a", ports: []model.Port{httpPort(80)}},
		{host: "headless.a.svc.cluster.local", ports: []model.Port{tcpPort(90)}, resolution: model.Passthrough, inline: []*model.Endpoint{ep("c1", "tcp", "[fe80::1%eth0]:90")}},
		{host: "dns.example", ns: "a", ports: []model.Port{httpPort(80)}, resolution: model.DNSLB, inline: []*model.Endpoint{
			ep("c1", "http", "unix:///tmp/s"), ep("c1", "http", "name.example:80"), ep("c1", "http", "10.0.0.1:80")}},
		{host: "logical.example", ns: "a", ports: []model.Port{httpPort(80)}, resolution: model.DNSRoundRobin, inline: []*model.Endpoint{
			ep("c1", "http", "unix:///tmp/s"), ep("c1", "http", "name.example:80")}},
		{host: "*part.example", ns: "a", ports: []model.Port{tls}}, {host: "*", ns: "a", ports: []model.Port{tls}}, {host: "*.tls.example", ns: "a", ports: []model.Port{tls}},
		{host: "TLS.example", ns: "a", ports: []model.Port{tls}}, {host: "tls.example", ns: "a", ports: []model.Port{tls}}, {host: "tls.example.", ns: "a", ports: []model.Port{tls}},
	}
}
