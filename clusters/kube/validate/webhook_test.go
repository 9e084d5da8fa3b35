package validate_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube/validate"
)

// verdict is what test/tools/istiod/verdicts says of an object.
type verdict struct{ Errors, Warnings []string }

// judged gives what the webhook makes of objects of a kind, in their order.
func judged(t *testing.T, tool, kind string, list []proto.Message) (out []verdict) {
	t.Helper()
	var in bytes.Buffer
	for _, o := range list {
		spec, err := protojson.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		line, err := json.Marshal(map[string]any{"kind": kind, "namespace": "shop", "name": "x", "spec": json.RawMessage(spec)})
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(line, '\n'))
	}
	cmd := exec.CommandContext(t.Context(), tool)
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	answer, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(answer))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var v verdict
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	if len(out) != len(list) {
		t.Fatalf("%d verdicts of %d objects", len(out), len(list))
	}
	return out
}

var (
	places  = regexp.MustCompile(`\[[^\]]*\]`)
	details = regexp.MustCompile(`(?s)(: |\[|, ERROR|\(line).*|"[^"]*"|'[^']*'|\d+|\S+ is not an? (valid )?|name [^()]* (is not a|invalid)|\(\pL*\)`)
)

// difference is one kind of disagreement, as the table of those that are meant has it.
func differences(found []model.Finding, v verdict) (out []string) {
	var errs []string
	for _, f := range found {
		if f.Severity == model.SeverityError {
			errs = append(errs, "refused here: "+places.ReplaceAllString(f.Field, "[]")+" "+f.Code)
		}
	}
	switch {
	case len(errs) > 0 && len(v.Errors) == 0:
		return errs
	case len(errs) == 0 && len(v.Errors) > 0:
		for _, e := range v.Errors {
			out = append(out, "refused there: "+details.ReplaceAllString(e, "_"))
		}
	case len(found) == 0 && len(v.Warnings) > 0:
		for _, w := range v.Warnings {
			out = append(out, "warned of there: "+details.ReplaceAllString(w, "_"))
		}
	}
	return out
}

// most is how many objects of a kind are looked at, of up to eight times as many that there would be.
const most = 6000

// TestWebhook holds the rules to those of Istio's admission webhook: what Istio's admission webhook would refuse is refused, what it would warn of is told, and nothing else is refused.
// Differences that are meant are in a table.
func TestWebhook(t *testing.T) {
	t.Parallel()
	tool := os.Getenv("ISTHMUS_VERDICTS")
	if tool == "" {
		t.Skip("ISTHMUS_VERDICTS does not name the program of test/tools/istiod/verdicts: Istio's webhook is not asked here")
	}
	for kind := range specs {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, 2))
			var list []proto.Message
			for _, o := range objects(t, kind) {
				if list = append(list, o.spec); o.key.Name == "nothing-wrong" {
					list = append(list, mutants(o.spec, 2000, r)...)
				}
			}
			for _, text := range valid[kind] {
				spec := specs[kind]()
				if err := yaml.Unmarshal([]byte(text), spec); err != nil {
					t.Fatal(err)
				}
				list = append(list, mutants(spec, 500, r)...)
			}
			r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			list = list[:min(len(list), most)]
			disagree(t, kind, list, judged(t, tool, kind, list))
			t.Logf("%d objects", len(list))
		})
	}
}

func disagree(t *testing.T, kind string, list []proto.Message, verdicts []verdict) {
	t.Helper()
	example, used := map[string]string{}, map[*regexp.Regexp]bool{}
	for i, o := range list {
		for _, d := range differences(validate.Object(model.ObjectKey{Kind: kind, Namespace: "shop", Name: "x"}, o), verdicts[i]) {
			d = kind + " " + d
			at := slices.IndexFunc(table, func(m meant) bool { return m.difference.MatchString(d) })
			switch {
			case at >= 0:
				used[table[at].difference] = true
			case example[d] == "":
				example[d] = strings.Join(strings.Fields(protojson.Format(o)), " ")
			}
		}
	}
	for _, d := range slices.Sorted(maps.Keys(example)) {
		t.Errorf("%s\n%s", d, example[d])
	}
	if len(list) == most {
		return // those not looked at may have a difference that the others have not
	}
	for _, m := range table {
		if of, _, _ := strings.Cut(m.difference.String(), " "); of == "^"+kind && !used[m.difference] {
			t.Errorf("there is no such difference any more: %s", m.difference)
		}
	}
}

// valid are objects in which less stands together than in those of testdata.
var valid = map[string][]string{
	"VirtualService": {
		"{hosts: [a.example], http: [{route: [{destination: {host: a.example}}]}]}",
		"{hosts: ['*.a.example', b.example], gateways: [shop/gw], http: [{match: [{uri: {prefix: /}}], redirect: {authority: x}}, {directResponse: {status: 200}}]}",
		"{hosts: ['*'], gateways: [gw], tls: [{match: [{sniHosts: [a.example]}], route: [{destination: {host: a.example}}]}], tcp: [{match: [{port: 80}], route: [{destination: {host: a}, weight: 1}, {destination: {host: b}, weight: 1}]}]}",
		"{http: [{route: [{destination: {host: a.example}}], mirror: {host: b}, timeout: 1s}]}",
		"{hosts: [a.example], http: [{delegate: {name: x}}, {route: [{destination: {host: a.example}}]}]}",
	},
	"DestinationRule": {
		"{host: a, trafficPolicy: {connectionPool: {http: {http1MaxPendingRequests: 1}}}}",
		"{host: a, trafficPolicy: {tls: {mode: SIMPLE}}}", "{host: a, trafficPolicy: {tls: {mode: MUTUAL, credentialName: x}}}",
		"{host: a, exportTo: [.], workloadSelector: {matchLabels: {app: a}}, trafficPolicy: {tunnel: {targetHost: a.example, targetPort: 80}}}",
		"{host: a, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true, ringHash: {minimumRingSize: 5}}}}}",
		"{host: a, trafficPolicy: {portLevelSettings: [{port: {number: 80}, tls: {mode: DISABLE}}], outlierDetection: {interval: 1s}}}",
	},
	"Gateway": {
		"{servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}",
		"{servers: [{port: {name: http, protocol: HTTP}, bind: 'unix:///x', hosts: [a.example]}]}",
		"{servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: ['*'], tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}}]}",
		"{servers: [{port: {number: 443, name: tls, protocol: TLS}, hosts: ['*'], tls: {mode: PASSTHROUGH}}]}",
	},
	"ServiceEntry": {
		"{hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}",
		"{hosts: [a.example], addresses: [10.0.0.1], ports: [{number: 80, name: tcp, protocol: TCP}], resolution: STATIC, endpoints: [{address: 10.1.1.1}]}",
		"{hosts: [a.example, '*.b.example'], ports: [{number: 80, name: http, protocol: HTTP}, {number: 443, name: tls, protocol: TLS}], resolution: NONE}",
		"{hosts: ['*.b.example'], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DYNAMIC_DNS, location: MESH_EXTERNAL}",
		"{hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS_ROUND_ROBIN, endpoints: [{address: b.example, ports: {http: 81}}]}",
		"{hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, workloadSelector: {labels: {app: a}}}",
		"{hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 'unix:///x'}]}",
	},
	"Sidecar": {
		"{egress: [{hosts: ['./*']}]}", "{outboundTrafficPolicy: {mode: REGISTRY_ONLY}}",
		"{ingress: [{port: {number: 443, protocol: HTTPS, name: https}, tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}}]}",
		"{egress: [{port: {protocol: HTTP}, bind: 'unix:///x', hosts: ['./*']}]}",
	},
	"WorkloadEntry": {"{address: a.example}", "{address: 'unix:///x'}", "{network: west}"},
	"WorkloadGroup": {"{template: {}}", "{template: {}, probe: {tcpSocket: {port: 80}}}"},
	"ProxyConfig":   {"{concurrency: 1}"},
	"Telemetry":     {"{tracing: [{customTags: {a: {literal: {value: x}}}}]}", "{metrics: [{overrides: [{match: {customMetric: x}}]}]}"},
}

// meant is a difference that is meant, and why.
type meant struct {
	difference *regexp.Regexp
	why        string
}

var table = func() (out []meant) {
	for _, row := range [][2]string{
		{`^\w+ refused there: (domain _|hosts must be FQDN .* domain _) \(label _ invalid\)`, "names of services in registries such as Nacos and Consul may have a '_'"},
		{`^DestinationRule refused there: tunnel target host`, "the same"},
		{`^(ServiceEntry|WorkloadEntry) refused there: endpoint address _ is not a valid FQDN`, "the same"},
		{`^\w+ refused here: .*tcpKeepalive\.(time|interval) InvalidDuration`, "the kernel counts in seconds, and refuses 0"},
		{`^\w+ refused here: .*verifyCertificate(Hash|Spki)\[\] InvalidTLS`, "Envoy refuses a listener with an empty hash"},
		{`^Gateway refused here: servers\[\]\.tls\.minProtocolVersion InvalidTLS`, "no version is left, so that every connection would fail"},

		{`^DestinationRule refused here: .*loadBalancer\.consistentHash\.(httpHeaderName|httpQueryParameterName|httpCookie\.ttl)`, "Envoy refuses routes with such a hash"},
		{`^DestinationRule refused here: .*inimumRingSize OutOfRange`, "Envoy refuses clusters with a larger ring"},
		{`^DestinationRule refused here: .*(warmupDurationSecs|budgetInterval) InvalidDuration`, "Envoy refuses durations that are negative or longer than there are"},
		{`^DestinationRule refused here: .*(retryBudget\.percent|warmup\.minimumPercent|failurePercentageThreshold) OutOfRange`, "Envoy refuses what is no percentage"},
		{`^DestinationRule refused here: .*outlierDetectionHttpErrorCodes\[\] InvalidStatusCode`, "Envoy refuses what is no status code"},
		{`^DestinationRule refused here: .*zoneAwareLbSetting\.minClusterSize OutOfRange`, "as in MeshConfig, it is at least 1"},
		{`^DestinationRule refused here: .*localityLbSetting\.distribute(\[\]\.from)? InvalidLocality`, "a place has three parts, a '*' stands for a whole one, and '*' covers all other places wherever it is in the list"},
		{`^DestinationRule refused here: .*(failover\[\] Required|failoverPriority\[\] InvalidLabels)`, "what says nothing of a place or label would not do what it seems to"},
		{`^DestinationRule refused here: .*portLevelSettings\[\]\.port\.number (Duplicate|InvalidPort)`, "settings of a port that can't be, and two for one port"},
		{`^DestinationRule warned of there: outlier detection policy must be provided for failover`, "zone-aware failover needs none here"},

		{`^(VirtualService|ServiceEntry|DestinationRule) refused here: (hosts\[\]|host) InvalidHost`, "a host that is a number is read as an address"},
		{`^VirtualService refused here: .*(destination|mirror|sniHosts\[\])(\.host)? InvalidHost`, "the same"},
		{`^ServiceEntry warned of there: partial wildcard _ not allowed`, "such hosts are served; that TLS does not tell them is warned of"},
		{`^VirtualService refused here: (\w+\[\]\.match\[\]\.)?gateways\[\] InvalidName`, "the webhook looks at no name behind one without namespace"},
		{`^VirtualService refused here: http\[\] Exclusive`, "a route that delegates does nothing else"},
		{`^VirtualService refused here: http\[\]\.delegate Required`, "there is nothing without name"},
		{`^VirtualService refused here: .*headers\.(request|response)\.(add|set|remove)\S* InvalidHeader`, "Envoy refuses routes with such a header"},
		{`^VirtualService refused here: http\[\]\.(match\[\]\.(headers|withoutHeaders)|corsPolicy\.(allowHeaders|exposeHeaders))\[\] InvalidHeader`, "a ',' is in no name of a header, nor a '@' that begins no claim"},
		{`^VirtualService refused here: http\[\]\.match\[\]\.queryParams\[\] Required`, "Envoy refuses routes with such a match"},
		{`^VirtualService refused here: .*(directResponse\.status|httpStatus|redirectCode) InvalidStatusCode`, "Envoy refuses a status of 600, and knows five of redirects"},
		{`^VirtualService refused here: \w+\[\]\.route InvalidWeight`, "Envoy refuses weights that are larger than an uint32 together"},
		{`^VirtualService warned of there: virtualService rule .* not used \(`, "a route that delegates takes what its delegate takes"},

		{`^ServiceEntry refused here: subjectAltNames\[\] Required`, "nothing has an empty name"},
		{`^(ServiceEntry|WorkloadEntry) refused here: (endpoints\[\]\.)?address InvalidAddress`, "0.0.0.0 and :: are nobody's address"},
		{`^ServiceEntry warned of there: addresses are required`, "automatic addresses are a matter of the hub"},
		{`^(ServiceEntry|WorkloadEntry) warned of there: address is unset with network`, "it is reached through the network's gateways, as it is meant"},
		{`^WorkloadGroup refused here: template\.(labels|ports\[\]) Invalid`, "the WorkloadEntries that are made of it would be refused"},
		{`^WorkloadGroup refused there: unknown health check method .*Grpc`, "the API has it, and what the agent probes is not the hub's concern"},

		{`^Telemetry refused there: must be a valid CEL expression`, "a warning: the log or tag is left out, and what is said besides is in force"},
		{`^Telemetry refused there: (targetRef|only one of targetRefs)`, "a warning: waypoints are not served, so there is nothing that could be chosen"},
		{`^Telemetry warned of there: multiple tracing`, "entries are laid over each other in their order"},
	} {
		out = append(out, meant{regexp.MustCompile(row[0]), row[1]})
	}
	return out
}()
