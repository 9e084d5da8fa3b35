package kube_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// saidOf gives all findings of an object of a kind of networking.istio.io with a spec, and whether it is refused.
func saidOf(t *testing.T, kind, spec string) (out []string, refused bool) {
	t.Helper()
	c := kube.Decode([]byte("apiVersion: networking.istio.io/v1\nkind: "+kind+"\nmetadata: {name: x, namespace: demo}\nspec: "+spec), time.Time{})
	s := newStore()
	for _, f := range c.Faults {
		if f.Broken == nil {
			t.Fatalf("%+v", f)
		}
		s.Set(*f.Broken)
	}
	for _, it := range c.Items {
		s.Set(it.Object)
	}
	noted, _ := s.State().Row(model.RowKey{Kind: model.RowConfig, Key: kind + "/demo/x"})
	r, ok := noted.(*model.Config)
	if !ok {
		return nil, false
	}
	for _, f := range r.Findings {
		out = append(out, fmt.Sprintf("%s %s %s: %s", f.Severity, f.Code, f.Field, f.Message))
	}
	return out, r.Refused
}

// Everything that can't be decoded is told, with its field and what could stand there; so is every field that is unknown, which
// leaves the object in force.
func TestSpecsAreExplained(t *testing.T) {
	t.Parallel()
	const names = "DISABLE, SIMPLE, MUTUAL, ISTIO_MUTUAL"
	for name, tt := range map[string]struct {
		kind, spec string
		want       []string
		refused    bool
	}{
		"unknown fields": {kind: "VirtualService", spec: "{hosts: [a.example], http: [{timeOut: 1s, reties: {}, redirect: {uri: /x, subst: 1}}]}", want: []string{
			`error UnknownField http[0].redirect.subst: unknown field "subst" has no effect`,
			`error UnknownField http[0].reties: unknown field "reties" has no effect; did you mean retries?`,
			`error UnknownField http[0].timeOut: unknown field "timeOut" has no effect; did you mean timeout?`}},
		"unknown and refused": {kind: "DestinationRule", spec: "{host: a..example, hots: b}", refused: true, want: []string{
			`error InvalidHost host: "a..example" is not a host: write a DNS name or "*.suffix"`,
			`error UnknownField hots: unknown field "hots" has no effect; did you mean host?`}},
		"unknown and undecodable": {kind: "DestinationRule", spec: "{host: 1, hots: b}", refused: true, want: []string{
			`error Unreadable host: it is a text: write "1"`,
			`error UnknownField hots: unknown field "hots" has no effect; did you mean host?`}},
		"alternatives": {kind: "DestinationRule", spec: "{host: a.example, trafficPolicy: {loadBalancer: {simple: RANDOM, consistentHash: {useSourceIp: true}}}}", refused: true, want: []string{
			"error Exclusive trafficPolicy.loadBalancer: consistentHash and simple exclude each other: write one of them"}},
		"alternatives of a match": {kind: "VirtualService", spec: "{hosts: [a.example], http: [{match: [{uri: {exact: /a, prefix: /b}}], redirect: {uri: /x}}]}", refused: true, want: []string{
			"error Exclusive http[0].match[0].uri: exact and prefix exclude each other: write one of them"}},
		"three alternatives": {kind: "VirtualService", spec: "{hosts: [a.example], http: [{match: [{headers: {h: {exact: a, prefix: b, regex: c}}}], redirect: {uri: /x}}]}", refused: true, want: []string{
			"error Exclusive http[0].match[0].headers[h]: exact and prefix exclude each other: write one of them",
			"error Exclusive http[0].match[0].headers[h]: prefix and regex exclude each other: write one of them"}},
		"an alternative that is null": {kind: "VirtualService", spec: "{hosts: [a.example], http: [{match: [{uri: {exact: /a, prefix: null}}], redirect: {uri: /x}}]}"},
		"durations": {kind: "VirtualService", spec: "{hosts: [a.example], http: [{redirect: {uri: /x}, timeout: 5, retries: {attempts: 1, perTryTimeout: 1d}, corsPolicy: {maxAge: '10'}, fault: {delay: {fixedDelay: [1s]}}}]}", refused: true, want: []string{
			`error Unreadable http[0].corsPolicy.maxAge: "10" is not a duration: write 10s`,
			"error Unreadable http[0].fault.delay.fixedDelay: it is a duration such as 10s, not a list",
			`error Unreadable http[0].retries.perTryTimeout: "1d" is not a duration: write 24h`,
			"error Unreadable http[0].timeout: 5 is not a duration: write 5s"}},
		"enums": {kind: "DestinationRule", spec: "{host: a.example, trafficPolicy: {tls: {mode: SIMPEL}, loadBalancer: {simple: ROUNDROBIN}}}", refused: true, want: []string{
			`error Unreadable trafficPolicy.loadBalancer.simple: "ROUNDROBIN" is none of UNSPECIFIED, LEAST_CONN, RANDOM, PASSTHROUGH, ROUND_ROBIN, LEAST_REQUEST; did you mean ROUND_ROBIN?`,
			`error Unreadable trafficPolicy.tls.mode: "SIMPEL" is none of ` + names + `; did you mean SIMPLE?`}},
		"a list": {kind: "VirtualService", spec: "{hosts: productpage, gateways: {a: b}, http: [{route: reviews}]}", refused: true, want: []string{
			"error Unreadable gateways: it is a list: each of its items begins with '- '",
			"error Unreadable hosts: it is a list: write [productpage]",
			"error Unreadable http[0].route: it is a list: write [reviews]"}},
		"an object": {kind: "VirtualService", spec: "{hosts: [a.example], http: [{match: [{uri: /a}], route: [{destination: reviews}], headers: [a]}]}", refused: true, want: []string{
			"error Unreadable http[0].headers: it is an object with the fields request, response, not a list",
			`error Unreadable http[0].match[0].uri: it is an object with the fields exact, prefix, regex, not "/a"`,
			`error Unreadable http[0].route[0].destination: it is an object with the fields host, subset, port, not "reviews"`}},
		"plain values": {kind: "DestinationRule", spec: "{host: yes, trafficPolicy: {tls: {insecureSkipVerify: 'true', sni: [a]}, connectionPool: {tcp: {maxConnections: 1.5}, http: {http2MaxRequests: 3000000000, useClientProtocol: maybe}}, outlierDetection: {consecutive5xxErrors: -1}}}", refused: true, want: []string{
			"error Unreadable host: it is a text: write the value in quotes",
			"error Unreadable trafficPolicy.connectionPool.http.http2MaxRequests: it is a whole number from -2147483648 to 2147483647, not 3000000000",
			`error Unreadable trafficPolicy.connectionPool.http.useClientProtocol: it is true or false, not "maybe"`,
			"error Unreadable trafficPolicy.connectionPool.tcp.maxConnections: it is a whole number from -2147483648 to 2147483647, not 1.5",
			"error Unreadable trafficPolicy.outlierDetection.consecutive5xxErrors: it is a whole number from 0 to 4294967295, not -1",
			"error Unreadable trafficPolicy.tls.insecureSkipVerify: it is true or false: write true without quotes",
			"error Unreadable trafficPolicy.tls.sni: it is a text, not a list"}},
		"no object at all": {kind: "WorkloadEntry", spec: "[]", refused: true, want: []string{
			"error Unreadable : it is an object with the fields address, ports, labels, network, locality, weight, serviceAccount, not a list"}},
		"entries": {kind: "ServiceEntry", spec: "{hosts: [a.example], ports: [{number: http, nmae: x}], resolution: dns}", refused: true, want: []string{
			`error Unreadable ports[0].number: it is a number, not "http"`,
			`error Unreadable resolution: "dns" is none of NONE, STATIC, DNS, DNS_ROUND_ROBIN, DYNAMIC_DNS; did you mean DNS?`,
			`error UnknownField ports[0].nmae: unknown field "nmae" has no effect; did you mean name?`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, refused := saidOf(t, tt.kind, tt.spec)
			if d := cmp.Diff(tt.want, got); d != "" || refused != tt.refused {
				t.Errorf("refused %v\n%s", refused, d)
			}
		})
	}
}

// Of fields that exclude each other the decoder takes one at random: what is said must not depend on it.
func TestAlternativesAreToldTheSameEachTime(t *testing.T) {
	t.Parallel()
	for range 50 {
		got, _ := saidOf(t, "DestinationRule", "{host: a..example, trafficPolicy: {loadBalancer: {simple: RANDOM, consistentHash: {httpHeaderName: ''}}}}")
		if len(got) != 1 || !strings.Contains(got[0], "Exclusive") {
			t.Fatalf("%q", got)
		}
	}
}

// What is told of an object is bounded.
func TestExplanationsAreBounded(t *testing.T) {
	t.Parallel()
	var spec strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&spec, "f%d: 1, %s%d: 2, ", i, strings.Repeat("x", 500), i)
	}
	got, _ := saidOf(t, "VirtualService", "{hosts: 1, "+spec.String()+"}")
	if len(got) != 32 || !strings.Contains(got[0], "hosts") {
		t.Errorf("%d findings, the first %q", len(got), got[0])
	}
	for _, f := range got {
		if len(f) > 1200 {
			t.Errorf("%d bytes: %.80s…", len(f), f)
		}
	}
}

// Settings of the mesh are explained as objects are, each at its line.
func TestMeshSettingsAreExplained(t *testing.T) {
	t.Parallel()
	_, faults, _ := kube.ParseMesh(model.ConfigMesh, []byte("trustDomain: td\nconnectTimeout: 5\noutboundTrafficPolicy:\n  mode: REGISTRY\nfoo: 1\n"))
	var got []string
	for _, f := range faults {
		got = append(got, fmt.Sprintf("%d %s", f.Line, f.Reason))
	}
	if d := cmp.Diff([]string{
		"2 connectTimeout: 5 is not a duration: write 5s",
		`4 outboundTrafficPolicy.mode: "REGISTRY" is none of REGISTRY_ONLY, ALLOW_ANY, ALLOW_ANY_DYNAMIC_DNS`,
		`5 foo: unknown field "foo" has no effect`,
	}, got); d != "" {
		t.Error(d)
	}
	_, faults, warnings := kube.ParseMesh(model.ConfigMesh, []byte("trustDomian: td\nfoo: 1\n"))
	if len(faults) != 0 || len(warnings) != 2 || warnings[1].Line != 1 || warnings[1].Reason != `trustDomian: unknown field "trustDomian" has no effect; did you mean trustDomain?` {
		t.Errorf("%v, %v", faults, warnings)
	}
}
