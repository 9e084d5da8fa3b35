package envoy_test

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// churnServices is how many names the edits use.
const churnServices = 10

// port is often that of the steady service.
func (c *churn) port() uint16 { return uint16(8000 + c.IntN(3)) }

func (c *churn) service(n int, cluster string) []any {
	vip := fmt.Sprintf("10.96.1.%d", 1+c.IntN(churnServices))
	if c.IntN(5) == 0 {
		vip = ""
	}
	s := service(fmt.Sprintf("s%d", n), vip, pick(c.Rand, "http", "http2", "grpc", "tcp", "tls", "https", ""), c.port())
	if c.IntN(3) == 0 {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: pick(c.Rand, "http-2", "tcp-2", "x"), Port: 8003})
	}
	if d := pick(c.Rand, "", "PreferClose", "PreferSameNode"); d != "" {
		s.Spec.TrafficDistribution = &d
	}
	if c.IntN(8) == 0 {
		local := corev1.ServiceInternalTrafficPolicyLocal
		s.Spec.InternalTrafficPolicy = &local
	}
	if to := pick(c.Rand, "", "", "", ".", "~", "elsewhere", "*"); to != "" {
		s.Annotations = map[string]string{"networking.istio.io/exportTo": to}
	}
	if c.IntN(10) == 0 {
		s.Spec.Type, s.Spec.ClusterIP, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "", "localhost"
		return []any{s}
	}
	s.Spec.Selector = map[string]string{"app": s.Name}
	out := []any{s}
	// Some addresses are listed by both clusters.
	for i, b := range c.backends[pick(c.Rand, cluster, "east")][:c.IntN(4)] {
		name := fmt.Sprintf("s%d-%d", n, i)
		ep := endpoint{addr: b.Addr, notReady: c.IntN(4) == 0}
		if c.IntN(2) == 0 {
			ep.pod = name
			labels := map[string]string{"app": s.Name}
			if c.IntN(2) == 0 && b.Name != steady {
				labels["security.istio.io/tlsMode"] = "istio" // may be reached through a gateway
			}
			out = append(out, pod(name, ip(b), pick(c.Rand, "", "europe.z1", "america.z2"), labels))
		}
		out = append(out, slicesOf(s, ep))
	}
	return out
}

// workload is a WorkloadEntry that services and entries may select.
func (c *churn) workload(n int, cluster string) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: s%d, namespace: %s}
spec:
  address: %s
  locality: %q
  weight: %d
  labels: {app: s%d}`, n, namespace, ip(pick(c.Rand, c.backends[cluster]...)),
		pick(c.Rand, "", "europe/z1", "america/z2"), c.IntN(3), c.IntN(churnServices))
}

func (c *churn) entry(n int, cluster string) string {
	host := fmt.Sprintf("s%d.example", n)
	switch c.IntN(5) {
	case 0:
		return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: s%d, namespace: %s}
spec:
  hosts: [%q, %q]
  resolution: NONE
  addresses: %s
  ports: [{number: %d, name: p, protocol: %s}]`, n, namespace, host, pick(c.Rand, "*.wild.example", "*.example", "x.wild.example"),
			pick(c.Rand, "[]", "[10.97.0.0/16]", "[10.97.0.0/24, 10.98.0.1]", "[10.98.0.1]"), c.port(), pick(c.Rand, "HTTP", "TCP", "TLS", `""`))
	case 1, 2:
		return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: s%d, namespace: %s}
spec:
  hosts: [%q]
  resolution: %s
  location: MESH_INTERNAL
  ports: [{number: %d, name: p, protocol: %s, targetPort: 9000}]
  workloadSelector: {labels: {app: s%d}}`, n, namespace, pick(c.Rand, host, host, fmt.Sprintf("s%d.%s.svc.cluster.local", n, namespace)),
			pick(c.Rand, "STATIC", "STATIC", "DNS"), c.port(), pick(c.Rand, "HTTP", "TCP", "GRPC", `""`), c.IntN(churnServices))
	}
	return entry(host, c.port(), pick(c.Rand, "STATIC", "DNS", "DNS_ROUND_ROBIN"), ip(pick(c.Rand, c.backends[cluster]...)), 9000)
}

// settings is a MeshConfig under which the steady service is served.
func (c *churn) settings() string {
	var lines []string
	for _, choices := range [][]string{
		{"outboundTrafficPolicy: {mode: ALLOW_ANY}", "outboundTrafficPolicy: {mode: REGISTRY_ONLY}"},
		{"connectTimeout: 5s", "connectTimeout: 6s", "connectTimeout: 7s", ""},
		{"defaultTrafficPolicy: {outlierDetection: {consecutive5xxErrors: 1000}}", "defaultTrafficPolicy: {outlierDetection: {minHealthPercent: 10}}", "", ""},
		{"localityLbSetting: {failover: [{from: europe, to: america}]}", "localityLbSetting: {failoverPriority: [topology.istio.io/network, topology.kubernetes.io/region]}",
			`localityLbSetting: {distribute: [{from: europe/*, to: {"europe/*": 80, "america/*": 20}}]}`, "", ""},
		{"protocolDetectionTimeout: 1s", ""},
		{"accessLogFile: /dev/null", ""},
		{"tcpKeepalive: {time: 10s}", ""},
		{fmt.Sprintf("serviceSettings: [{settings: {clusterLocal: true}, hosts: [%q]}]", host(fmt.Sprintf("s%d", c.IntN(churnServices)))), "", ""},
	} {
		lines = append(lines, pick(c.Rand, choices...))
	}
	return strings.Join(lines, "\n")
}

// networks may put cluster west on a network of its own, behind a gateway.
func (c *churn) networks() string {
	return pick(c.Rand,
		"networks: {}",
		"networks: {far: {endpoints: [{fromRegistry: west}], gateways: [{address: 127.0.0.1, port: 15443}]}}",
		"networks: {far: {endpoints: [{fromRegistry: west}]}}")
}

// policies say how workloads are called, and where routers forward mutual TLS;
// the steady service is called in cleartext under each.
func (c *churn) policies() []any {
	var out []any
	for range c.IntN(3) {
		out = append(out, fmt.Sprintf(`
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: %s, namespace: %s}
spec: {mtls: {mode: %s}}`, fmt.Sprintf("p%d", c.IntN(3)), pick(c.Rand, namespace, "istio-system"), pick(c.Rand, "STRICT", "DISABLE", "PERMISSIVE")))
	}
	for n := range c.IntN(4) {
		out = append(out, fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: r%d, namespace: %s}
spec: {host: s%d, trafficPolicy: {tls: {mode: %s}}}`, n, namespace, c.IntN(churnServices), pick(c.Rand, "DISABLE", "ISTIO_MUTUAL", "SIMPLE", "MUTUAL")))
	}
	for n := range c.IntN(3) {
		out = append(out, fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: g%d, namespace: %s}
spec:
  selector: {istio: eastwestgateway}
  servers: [{port: {number: %d, name: tls, protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}, hosts: [%q]}]`, n, namespace,
			pick(c.Rand, 15443, 8001), pick(c.Rand, "*", "*.local", "shop/s1.shop.svc.cluster.local")))
	}
	return out
}
