package v1alpha1_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// spec reads the YAML of a spec.
func spec[T any](t testing.TB, text string) *T {
	t.Helper()
	var out T
	if err := yaml.UnmarshalStrict([]byte(text), &out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &out
}

// lines gives faults as "level field code".
func lines(faults []api.Fault) string {
	var out []string
	for _, f := range faults {
		out = append(out, fmt.Sprintf("%s %s %s", []string{"error", "warning", "info"}[f.Level], f.Field, f.Code))
	}
	return strings.Join(out, "\n")
}

func TestRegistryIsValid(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{provider: consul, addresses: [consul.example.com:8500, "https://10.0.0.1", "[fd00::1]:8500", "https://[fd00::1]:8501/"], tls: {mode: MUTUAL, secretName: consul.tls}}`,
		`{provider: nacos, addresses: ["http://nacos:8848"], credentials: {secretName: nacos}, nacos: {namespaces: [prod-7f], namespaceNames: {prod-7f: prod}, groups: [PAY_GROUP]}}`,
		`{provider: nacos, nacos: {addressServer: "http://addresses.example.com:8080/nacos/serverlist"}, addresses: []}`,
		`{provider: mcp, addresses: ["xds://config.example.com:15010", "xds://[::1]:15010", "[fd00::1]:15010"], mcp: {revision: canary}}`,
		`{provider: nacos, addresses: ["[::1]:8848", "http://[::1]", "https://[fd00::1]:8848"], nacos: {addressServer: "http://[::1]:8080/list"}}`,
		`{provider: mcp, addresses: ["xdss://a:1"], credentials: {secretName: t}}`,
		`{provider: mcp, addresses: [a:1], tls: {mode: SIMPLE}, credentials: {secretName: t}}`,
		`{provider: consul, addresses: [consul_1:8500], locality: {default: eu-west/a, datacenters: {dc1: eu-west}}, ports: {protocol: grpc, services: [{host: a.dc1.consul, port: 80}]},
		  empty: {mode: protect, percent: 30, duration: 1m}, exportTo: [shop, .], health: {warning: unhealthy}, hosts: {mode: Higress, suffix: corp}}`,
		`{provider: consul, addresses: [a:1], network: dc, consul: {taggedAddress: lan, taggedAddresses: {dmz: wan_ipv4, "*": wan}}}`,
	} {
		if faults := spec[api.RegistrySpec](t, text).Validate(); len(faults) > 0 {
			t.Errorf("%s:\n%s", text, faults)
		}
	}
}

// TestTooManyTaggedAddresses: what grows has bounds.
func TestTooManyTaggedAddresses(t *testing.T) {
	t.Parallel()
	all := map[string]string{}
	for i := range 65 {
		all[fmt.Sprint("n", i)] = "wan"
	}
	s := api.RegistrySpec{Provider: api.Consul, Addresses: []string{"a:1"}, Consul: &api.ConsulSpec{TaggedAddresses: all}}
	if got := lines(s.Validate()); got != "error consul.taggedAddresses OutOfRange" {
		t.Error(got)
	}
}

func TestRegistryFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{provider: "", addresses: [a:1]}`:                                                                 "error provider Required",
		`{provider: eureka, addresses: [a:1]}`:                                                             "error provider InvalidValue",
		`{provider: consul, addresses: []}`:                                                                "error addresses Required",
		`{provider: consul, addresses: ["127.0.0,1:8500"]}`:                                                "error addresses[0] InvalidAddress",
		`{provider: consul, addresses: ["127.0.0.256:8500"]}`:                                              "error addresses[0] InvalidAddress",
		`{provider: consul, addresses: ["127.0.0.1"]}`:                                                     "error addresses[0] InvalidAddress",
		`{provider: consul, addresses: ["::1"]}`:                                                           "error addresses[0] InvalidAddress",
		`{provider: consul, addresses: ["http://::1"]}`:                                                    "error addresses[0] InvalidAddress",
		`{provider: nacos, addresses: ["[::1]"]}`:                                                          "error addresses[0] InvalidAddress",
		`{provider: mcp, addresses: ["xds://[::1]"]}`:                                                      "error addresses[0] InvalidAddress",
		`{provider: consul, addresses: ["0.0.0.0:8500"]}`:                                                  "error addresses[0] InvalidAddress",
		`{provider: consul, addresses: ["a:0"]}`:                                                           "error addresses[0] InvalidPort",
		`{provider: consul, addresses: ["a:70000"]}`:                                                       "error addresses[0] InvalidPort",
		`{provider: consul, addresses: ["a:x"]}`:                                                           "error addresses[0] InvalidPort",
		`{provider: consul, addresses: ["a b:1"]}`:                                                         "error addresses[0] InvalidAddress",
		`{provider: consul, addresses: [""]}`:                                                              "error addresses[0] Required",
		`{provider: consul, addresses: ["a:1", "a:1"]}`:                                                    "error addresses[1] Duplicate",
		`{provider: consul, addresses: ["ftp://a:1"]}`:                                                     "error addresses[0] InvalidAddress",
		`{provider: consul, addresses: ["http://a:1/v1"]}`:                                                 "error addresses[0] InvalidAddress",
		`{provider: consul, addresses: ["http://user:hush@a:1"]}`:                                          "error addresses[0] InvalidAddress",
		`{provider: consul, addresses: ["user:hush@a:1"]}`:                                                 "error addresses[0] InvalidAddress",
		`{provider: consul, addresses: [a:1], credentials: {secretName: ""}}`:                              "error credentials.secretName Required",
		`{provider: consul, addresses: [a:1], credentials: {secretName: A_B}}`:                             "error credentials.secretName InvalidName",
		`{provider: consul, addresses: [a:1], tls: {mode: ""}}`:                                            "error tls.mode Required",
		`{provider: consul, addresses: [a:1], tls: {mode: ISTIO}}`:                                         "error tls.mode InvalidValue",
		`{provider: consul, addresses: [a:1], tls: {mode: MUTUAL}}`:                                        "error tls.secretName Required",
		`{provider: consul, addresses: ["https://a"], tls: {mode: DISABLED}}`:                              "error addresses[0] InvalidTLS",
		`{provider: consul, addresses: [a:1], tls: {mode: SIMPLE, insecureSkipVerify: true}}`:              "warning tls.insecureSkipVerify InvalidTLS",
		`{provider: mcp, addresses: ["xds://a:1"], credentials: {secretName: t}}`:                          "error credentials InvalidTLS",
		`{provider: mcp, addresses: [a:1], tls: {mode: DISABLED}, credentials: {secretName: t}}`:           "error credentials InvalidTLS",
		`{provider: nacos, addresses: [a:1], nacos: {addressServer: "http://u:p@a:1/x"}}`:                  "error nacos.addressServer InvalidAddress",
		`{provider: nacos, addresses: [a:1], nacos: {addressServer: "http://u:p/q@a:1"}}`:                  "error nacos.addressServer InvalidAddress",
		`{provider: consul, addresses: [a:1], nacos: {}}`:                                                  "error nacos Exclusive",
		`{provider: consul, addresses: [a:1], consul: {datacenters: ["a.b"]}}`:                             "error consul.datacenters[0] InvalidName",
		`{provider: consul, addresses: [a:1], consul: {kinds: [gateway]}}`:                                 "error consul.kinds[0] InvalidValue",
		`{provider: consul, addresses: [a:1], consul: {consistency: weak}}`:                                "error consul.consistency InvalidValue",
		`{provider: consul, addresses: [a:1], consul: {taggedAddress: virtual}}`:                           "error consul.taggedAddress InvalidValue",
		`{provider: consul, addresses: [a:1], consul: {taggedAddresses: {dmz: consul-virtual}}}`:           "error consul.taggedAddresses[dmz] InvalidValue",
		`{provider: consul, addresses: [a:1], consul: {taggedAddresses: {dmz: " wan"}}}`:                   "error consul.taggedAddresses[dmz] InvalidValue",
		`{provider: consul, addresses: [a:1], consul: {taggedAddresses: {dmz: ""}}}`:                       "error consul.taggedAddresses[dmz] Required",
		`{provider: consul, addresses: [a:1], consul: {taggedAddresses: {"": wan}}}`:                       "error consul.taggedAddresses[] InvalidName",
		`{provider: consul, addresses: [a:1], consul: {taggedAddresses: {"d*": wan}}}`:                     "error consul.taggedAddresses[d*] InvalidName",
		`{provider: consul, addresses: [a:1], network: dc, consul: {taggedAddresses: {dc: wan}}}`:          "warning consul.taggedAddresses[dc] Ineffective",
		`{provider: consul, addresses: [a:1], consul: {refreshInterval: 10ms}}`:                            "error consul.refreshInterval InvalidDuration",
		`{provider: nacos, addresses: [a:1], nacos: {groups: ["a@@b"]}}`:                                   "error nacos.groups[0] InvalidName",
		`{provider: nacos, addresses: [a:1], nacos: {groups: ["PAY GROUP"]}}`:                              "warning nacos.groups[0] InvalidName",
		`{provider: nacos, addresses: [a:1], nacos: {groups: ["a\nb"]}}`:                                   "error nacos.groups[0] InvalidName",
		`{provider: nacos, addresses: [a:1], nacos: {namespaces: ["a@@b"]}}`:                               "error nacos.namespaces[0] InvalidName",
		`{provider: nacos, addresses: [a:1], nacos: {namespaces: [a.b, "a_b"]}}`:                           "warning nacos.namespaces[0] InvalidName",
		`{provider: nacos, addresses: [a:1], nacos: {namespaceNames: {x: y}}}`:                             "warning nacos.namespaceNames Ineffective",
		`{provider: nacos, addresses: [a:1], nacos: {addressServer: "a:1"}}`:                               "error nacos.addressServer InvalidAddress",
		`{provider: nacos, addresses: [a:1], nacos: {contextPath: nacos}}`:                                 "error nacos.contextPath InvalidValue",
		`{provider: nacos, addresses: [a:1], nacos: {discoveryInterval: 0s}}`:                              "error nacos.discoveryInterval InvalidDuration",
		`{provider: nacos, addresses: [a:1], services: {include: [""]}}`:                                   "error services.include[0] Required",
		`{provider: nacos, addresses: [a:1], services: {exclude: ["a[", "a*"]}}`:                           "error services.exclude[0] InvalidValue",
		`{provider: nacos, addresses: [a:1], hosts: {mode: higress}}`:                                      "error hosts.mode InvalidValue",
		`{provider: nacos, addresses: [a:1], hosts: {suffix: a..b}}`:                                       "error hosts.suffix InvalidHost",
		`{provider: nacos, addresses: [a:1], ports: {protocol: smtp}}`:                                     "error ports.protocol InvalidProtocol",
		`{provider: nacos, addresses: [a:1], ports: {services: [{host: A, port: 1}, {host: a, port: 2}]}}`: "error ports.services[1].host Duplicate",
		`{provider: nacos, addresses: [a:1], ports: {services: [{host: a}]}}`:                              "error ports.services[0] Required",
		`{provider: nacos, addresses: [a:1], locality: {default: /zone}}`:                                  "error locality.default InvalidLocality",
		`{provider: nacos, addresses: [a:1], locality: {clusters: {A: a/b/c/d}}}`:                          "error locality.clusters[A] InvalidLocality",
		`{provider: nacos, addresses: [a:1], namespace: A}`:                                                "error namespace InvalidName",
		`{provider: nacos, addresses: [a:1], network: "a b"}`:                                              "error network InvalidName",
		`{provider: nacos, addresses: [a:1], exportTo: ["*", shop]}`:                                       "error exportTo[0] InvalidExportTo",
		`{provider: nacos, addresses: [a:1], health: {warning: maybe}}`:                                    "error health.warning InvalidValue",
		`{provider: nacos, addresses: [a:1], empty: {mode: never}}`:                                        "error empty.mode InvalidValue",
		`{provider: nacos, addresses: [a:1], empty: {percent: 101}}`:                                       "error empty.percent OutOfRange",
		`{provider: nacos, addresses: [a:1], empty: {mode: hold, percent: 10}}`:                            "warning empty.percent Ineffective",
		`{provider: nacos, addresses: [a:1], empty: {mode: immediate, duration: 1m}}`:                      "warning empty.duration Ineffective",
		`{provider: nacos, addresses: [a:1], staleAfter: -1s}`:                                             "error staleAfter InvalidDuration",
		`{provider: nacos, addresses: [a:1], limits: {concurrency: -1}}`:                                   "error limits.concurrency OutOfRange",
	} {
		faults := spec[api.RegistrySpec](t, text).Validate()
		if got := lines(faults); got != want {
			t.Errorf("%s:\n%s\nwant %s", text, got, want)
		}
		for _, f := range faults {
			if strings.Contains(f.Message, "hush") {
				t.Errorf("a credential is told: %s", f)
			}
		}
	}
}

func TestFederatedServiceFaults(t *testing.T) {
	t.Parallel()
	const head = `host: checkout.shop, ports: [{name: http, number: 80}]`
	for text, want := range map[string]string{
		`{` + head + `, sources: [{host: a.b}, {name: vms, selector: {app: a}, ports: {http: {number: 1}}}]}`: "",
		`{` + head + `, policy: weighted, sources: [{host: a.b, weight: 0}, {host: a.c}]}`:                    "",
		`{host: "", ports: [], sources: []}`:                                                       "error host Required\nerror ports Required\nerror sources Required",
		`{host: "*.a", ports: [{name: A, number: 0}], sources: [{host: a.b}]}`:                     "error host InvalidHost\nerror ports[0].name InvalidName\nerror ports[0].number InvalidPort",
		`{host: a.b, ports: [{name: a, number: 1}, {name: a, number: 1}], sources: [{host: a.b}]}`: "error ports[1].name Duplicate\nerror ports[1].number Duplicate",
		`{` + head + `, policy: best, sources: [{host: a.b}]}`:                                     "error policy InvalidValue",
		`{` + head + `, sources: [{}]}`:                                                            "error sources[0] Required",
		`{` + head + `, sources: [{host: a.b, selector: {a: b}}]}`:                                 "error sources[0] Exclusive",
		`{` + head + `, sources: [{selector: {a: b}}]}`:                                            "error sources[0].name Required",
		`{` + head + `, sources: [{host: a.b}, {host: a.b}]}`:                                      "error sources[1].name Duplicate",
		`{` + head + `, sources: [{host: a.b, registries: [legacy]}]}`:                             "error sources[0].registries[0] InvalidValue",
		`{` + head + `, sources: [{host: a.b, ports: {x: {number: 1}}}]}`:                          "error sources[0].ports[x] InvalidName",
		`{` + head + `, sources: [{host: a.b, ports: {http: {}}}]}`:                                "error sources[0].ports[http] InvalidPort",
		`{` + head + `, sources: [{host: a.b, weight: 1}]}`:                                        "warning sources[0].weight Ineffective",
		`{` + head + `, policy: weighted, sources: [{host: a.b, weight: 0}]}`:                      "error sources InvalidWeight",
		`{` + head + `, policy: failover, sources: [{host: a.b, priority: 200}]}`:                  "error sources[0].priority OutOfRange",
		`{` + head + `, policy: weighted, sources: [{host: a.b, weight: 4000000000}]}`:             "error sources[0].weight OutOfRange",
		`{` + head + `, sources: [{name: x, selector: {"a b": c}}]}`:                               "error sources[0].selector InvalidLabels",
		`{` + head + `, sources: [{host: a.b, ports: {http: {name: a, number: 1}}}]}`:              "error sources[0].ports[http] InvalidPort",
		`{` + head + `, sources: [{host: a.b, ports: {http: {protocol: SOAP}}}]}`:                  "error sources[0].ports[http].protocol InvalidProtocol",
	} {
		if got := lines(spec[api.FederatedServiceSpec](t, text).Validate()); got != want {
			t.Errorf("%s:\n%s\nwant %s", text, got, want)
		}
	}
}

// All sources of a port are spoken to alike: what they are said to speak is the port's protocol, or, if it has none, the same.
func TestProtocolsOfSources(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		port  string
		words []string
		at    int // the source that is refused; -1 for none
	}{
		{"", nil, -1},
		{"", []string{"GRPC", "", "http2"}, -1},
		{"", []string{"", "HTTP", "GRPC"}, 2},
		{"", []string{"TCP", "HTTP"}, 1},
		{"", []string{"auto", "HTTP"}, -1},
		{"HTTP", []string{"http", "http_proxy", "auto"}, -1},
		{"HTTP", []string{"HTTP", "HTTP2"}, 1},
		{"HTTP", []string{"TCP"}, 0},
		{"HTTPS", []string{"HTTP"}, 0},
		{"GRPC", []string{"tri", "HTTP2"}, -1},
		{"TCP", []string{"HTTP", "GRPC", "TLS", "MySQL"}, -1},
		{"TCP", []string{"UDP"}, 0},
		{"auto", []string{"HTTP", "GRPC"}, -1},
	} {
		s := api.FederatedServiceSpec{Host: "a.b", Ports: []api.FederatedPort{{Name: "p", Number: 80, Protocol: c.port}}}
		for i, w := range c.words {
			s.Sources = append(s.Sources, api.FederatedSource{Host: fmt.Sprint("s", i), Ports: map[string]api.SourcePort{"p": {Number: 1, Protocol: w}}})
		}
		if c.words == nil {
			s.Sources = append(s.Sources, api.FederatedSource{Host: "s"})
		}
		want := ""
		if c.at >= 0 {
			want = fmt.Sprintf("error sources[%d].ports[p].protocol InvalidProtocol", c.at)
		}
		if got := lines(s.Validate()); got != want {
			t.Errorf("%q of %q: %s, want %s", c.words, c.port, got, want)
		}
	}
	s := spec[api.FederatedServiceSpec](t, `{host: a.b, ports: [{name: p, number: 80}], sources: [{host: x, ports: {p: {protocol: HTTP}}}, {host: y, ports: {p: {protocol: GRPC}}}]}`)
	const want = "it is grpc (HTTP/2), and that of sources[0] is http (HTTP/1.1): proxies speak to all sources of a port alike; give the service a port for each of the two, or make two FederatedServices"
	if got := s.Validate()[0].Message; got != want {
		t.Error(got)
	}
}

// The units, names and ports of Higress.
func TestBridge(t *testing.T) {
	t.Parallel()
	r := spec[api.BridgedRegistry](t, `{type: nacos2, name: trade, domain: nacos.trade.internal, port: 8848, nacosNamespaceId: 7f0c-prod, nacosNamespace: prod,
		nacosGroups: [DEFAULT_GROUP, PAY_GROUP], nacosRefreshInterval: "15000000000", authSecretName: trade-nacos, nacosAccessKey: id, nacosSecretKey: hush,
		vport: {default: 80, services: [{name: ledger.PAY-GROUP.prod.nacos, value: 8080}]}}`)
	got := r.Bridge()
	if len(got.Faults) > 0 || got.Static != nil || got.AccessKey != "id" || got.SecretKey != "hush" {
		t.Fatalf("%+v", got)
	}
	js, err := json.Marshal(got.Spec)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"provider":"nacos","addresses":["nacos.trade.internal:8848"],"credentials":{"secretName":"trade-nacos"},` +
		`"nacos":{"namespaces":["7f0c-prod"],"namespaceNames":{"7f0c-prod":"prod"},"groups":["DEFAULT_GROUP","PAY_GROUP"],"discoveryInterval":"15s"},` +
		`"hosts":{"mode":"Higress"},"ports":{"default":80,"services":[{"host":"ledger.PAY-GROUP.prod.nacos","port":8080}]}}`
	if string(js) != want {
		t.Errorf("%s\nwant\n%s", js, want)
	}
	whole := api.McpBridgeSpec{Registries: []api.BridgedRegistry{*r}}
	js, err = json.Marshal(whole)
	if text := fmt.Sprintf("%s %v %+v %#v", js, whole, whole, whole); err != nil || strings.Contains(text, "hush") {
		t.Errorf("a credential is told: %s", text)
	}
}

func TestBridgeDefaultsAndFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{type: consul, name: c, domain: a, port: 8500, consulDatacenter: dc1, consulServiceTag: mesh}`:                             "",
		`{type: consul, name: c, domain: "127.0.0,1", port: 8500}`:                                                                  "error domain InvalidAddress",
		`{type: consul, name: c, domain: a, port: 8500, consulNamespace: x}`:                                                        "info consulNamespace NotServed",
		`{type: consul, name: c, domain: a, port: 8500, consulRefreshInterval: 30}`:                                                 "info consulRefreshInterval InvalidDuration",
		`{type: consul, name: c, domain: a, port: 8500, proxyName: p}`:                                                              "warning proxyName NotServed",
		`{type: consul, name: c, domain: a}`:                                                                                        "error port InvalidPort\nerror domain Required",
		`{type: nacos, name: "a b", domain: a, port: 1}`:                                                                            "error name InvalidName",
		`{type: nacos3, name: n, nacosAddressServer: addresses:8080}`:                                                               "",
		`{type: nacos3, name: n, domain: a, port: 1, enableMCPServer: true}`:                                                        "info enableMCPServer NotServed",
		`{type: nacos, name: n, domain: a, port: 1, vport: {default: 70000, services: [{name: x, value: 1}, {name: X, value: 2}]}}`: "warning vport.default InvalidPort\nwarning vport.services[1] Duplicate",
		`{type: zookeeper, name: z, domain: a, port: 1}`:                                                                            "error type InvalidInBridge",
		`{type: eureka, name: z, domain: a, port: 1}`:                                                                               "error type InvalidInBridge",
		`{type: etcd, name: z, domain: a, port: 1}`:                                                                                 "error type InvalidInBridge",
		`{type: static, name: s, domain: "10.9.0.4:7001,oops,[fd00::4]:7001", port: 80}`:                                            "warning domain InvalidAddress",
		`{type: static, name: s, domain: "oops", port: 80}`:                                                                         "warning domain InvalidAddress\nerror domain InvalidAddress",
		`{type: dns, name: d, domain: "a.example.com", port: 0}`:                                                                    "error port InvalidPort",
		`{type: dns, name: d, domain: "a.example.com", port: 80, protocol: smtp}`:                                                   "error protocol InvalidProtocol",
	} {
		got := spec[api.BridgedRegistry](t, text).Bridge()
		if l := lines(got.Faults); l != want {
			t.Errorf("%s:\n%s\nwant %s", text, l, want)
		}
		if _, refused := api.Refuses(got.Faults); refused != (got.Spec == nil && got.Static == nil) {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func TestBridgedInterval(t *testing.T) {
	t.Parallel()
	for n, want := range map[api.Nanoseconds]time.Duration{0: 10 * time.Second, 30: 10 * time.Second, -1: 10 * time.Second, 15e9: 15 * time.Second, 1 << 62: 10 * time.Second} {
		r := api.BridgedRegistry{Type: "nacos", Name: "n", Domain: "a", Port: 1, NacosRefreshInterval: n}
		if got := r.Bridge().Spec.Nacos.DiscoveryInterval; *got != (metav1.Duration{Duration: want}) {
			t.Errorf("%d: %s, want %s", n, got.Duration, want)
		}
	}
}

func TestBridgedStatic(t *testing.T) {
	t.Parallel()
	got := spec[api.BridgedRegistry](t, `{type: static, name: billing, domain: "10.9.0.4:7001, nonsense,[fd00::4]:7001", port: 80}`).Bridge().Static
	if got.Host != "billing.static" || got.Port != 80 || got.TLS || fmt.Sprint(got.Addresses) != "[{10.9.0.4 7001} {fd00::4 7001}]" {
		t.Errorf("%+v", got)
	}
	got = spec[api.BridgedRegistry](t, `{type: dns, name: partner, domain: api.partner.example.com, port: 443, protocol: HTTPS}`).Bridge().Static
	if got.Host != "partner.dns" || !got.DNS || !got.TLS || got.SNI != "api.partner.example.com" || got.Addresses[0].Port != 443 {
		t.Errorf("%+v", got)
	}
}

// One item that can't be served leaves the McpBridge, and the others, in force.
func TestBridgeIsNeverRefused(t *testing.T) {
	t.Parallel()
	s := spec[api.McpBridgeSpec](t, `
registries:
- {type: consul, name: a, domain: "127.0.0,1", port: 1}
- {type: consul, name: b, domain: b, port: 1}
- {type: consul, name: b, domain: c, port: 1}
proxies: [{name: p, type: HTTP}]`)
	faults := s.Validate()
	const want = "warning registries[0].domain InvalidAddress\nwarning registries[2] Duplicate\nwarning proxies NotServed"
	if got := lines(faults); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// Whatever an object says, it is judged, and what is judged good has the parts that a registry is made of.
func FuzzValidate(f *testing.F) {
	f.Add([]byte(`{"provider":"consul","addresses":["127.0.0,1:8500","http://[::1","a:1"],"registries":[{"type":"static","name":"x","domain":"a,b:1,[::1]:2"}]}`))
	f.Add([]byte(`{"registries":[{"type":"nacos2","name":"x","domain":"[a","port":7,"nacosRefreshInterval":"9"}],"sources":[{"host":"a","ports":{"a":{"number":1}}}]}`))
	f.Fuzz(func(t *testing.T, js []byte) {
		var r api.RegistrySpec
		if json.Unmarshal(js, &r) == nil {
			if _, bad := api.Refuses(r.Validate()); !bad && len(r.Addresses) == 0 && (r.Nacos == nil || r.Nacos.AddressServer == "") {
				t.Errorf("%s: no address", js)
			}
		}
		var b api.McpBridgeSpec
		if json.Unmarshal(js, &b) == nil {
			if f, bad := api.Refuses(b.Validate()); bad {
				t.Errorf("%s: %s", js, f)
			}
		}
		var s api.FederatedServiceSpec
		if json.Unmarshal(js, &s) == nil {
			s.Validate()
		}
	})
}
