package consul

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

var testShard = model.ShardKey{Provider: model.ProviderConsul, Cluster: "legacy"}

func converterOf(more ...func(*api.RegistrySpec)) *converter {
	s := spec(more...)
	return newConverter(testShard, &s, scope{}, false, "dc1")
}

func decode(t testing.TB, text string) (in entries) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		t.Fatal(err)
	}
	return in
}

// An answer as Consul 1.14 gives it, with most of what may be in it.
const full = `[{
	"Node": {"ID": "40e4a748", "Node": "web-1", "Address": "10.1.10.12", "Datacenter": "dc1",
		"TaggedAddresses": {"lan": "10.1.10.12", "wan": "198.51.100.12"}, "Meta": {"region": "r-node", "zone": "z-node", "protocol": "tcp"},
		"CreateIndex": 5, "ModifyIndex": 9},
	"Service": {"Kind": "", "ID": "web-a", "Service": "web", "Tags": ["primary", "track=stable", "owner|shop", "protocol=tcp"], "Address": "10.1.10.22",
		"TaggedAddresses": {"lan": {"address": "10.1.10.23", "port": 8001}, "wan": {"address": "198.51.100.22", "port": 80}, "virtual": {"address": "240.0.0.1", "port": 0}},
		"Meta": {"version": "3", "protocol": "grpc", "zone": "z-service"}, "Port": 8000, "Weights": {"Passing": 10, "Warning": 1}, "EnableTagOverride": false,
		"Proxy": {"Mode": "", "MeshGateway": {}, "Expose": {}}, "Connect": {}, "PeerName": "", "CreateIndex": 10, "ModifyIndex": 12},
	"Checks": [{"Node": "web-1", "CheckID": "serfHealth", "Name": "Serf Health Status", "Status": "passing", "ServiceID": "", "ServiceName": "", "ServiceTags": []},
		{"Node": "web-1", "CheckID": "service:web-a", "Status": "warning", "Output": "slow", "ServiceID": "web-a", "ServiceName": "web"}]}]`

func TestFullInstance(t *testing.T) {
	t.Parallel()
	in := decode(t, full)
	got, taken := converterOf().service("web", in)
	want := foreign.Service{Key: "web", Name: "web", Suffix: "dc1.consul", Instances: []foreign.Instance{{
		ID: "web-1/web-a", Address: "10.1.10.23", Port: 8001, Weight: 1, Health: model.Healthy, Cluster: "dc1", Node: "web-1",
		Locality: model.Locality{Region: "r-node", Zone: "z-service"},
		Metadata: map[string]string{"tag/primary": "true", "track": "stable", "owner": "shop", "version": "3", "protocol": "grpc", "zone": "z-service"},
	}}}
	if d := cmp.Diff(want, got); d != "" || !taken {
		t.Errorf("taken %v (-want +got):\n%s", taken, d)
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	e := decode(t, full).list[0]
	bare, remote := e, e
	bare.Service.Address, bare.Service.TaggedAddresses = "", nil
	remote.Service.TaggedAddresses = map[string]taggedAddress{"wan": {Address: "198.51.100.22"}}
	for _, tc := range []struct {
		e    entry
		tag  string
		want string
	}{
		{e, "lan", "10.1.10.23 8001"}, {e, "wan", "198.51.100.22 80"}, {e, "other", "10.1.10.22 8000"},
		{bare, "lan", "10.1.10.12 8000"}, {bare, "wan", "198.51.100.12 8000"}, {bare, "other", "10.1.10.12 8000"},
		{remote, "lan", "10.1.10.22 8000"}, {remote, "wan", "198.51.100.22 8000"},
	} {
		host, port := address(&tc.e, tc.tag)
		if got := fmt.Sprint(host, " ", port); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.tag, got, tc.want)
		}
	}
}

func TestHealthOfChecks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]health{
		"": passing, "a=passing": passing, "a=passing b=warning": warning, "a=warning b=critical": critical, "a=critical b=passing": critical,
		"a=odd": critical, "a=": critical, "_node_maintenance=critical": maintenance, "_service_maintenance:web=passing": maintenance,
		"a=passing _service_maintenance:web=critical b=critical": maintenance,
	} {
		var checks []check
		for _, f := range strings.Fields(text) {
			id, status, _ := strings.Cut(f, "=")
			checks = append(checks, check{CheckID: id, Status: status})
		}
		if got := aggregate(checks); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// What is not routed to, and why: nothing is left out without a word.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*entry)
		want   string
	}{
		"socket":  {func(e *entry) { e.Service.SocketPath = "/run/web.sock" }, "10.0.0.1:80 WrongKind: it listens on a socket of its machine"},
		"connect": {func(e *entry) { e.Service.Connect.Native = true }, "10.0.0.1:80 WrongKind: it takes connections of Consul's own mesh only"},
		"port":    {func(e *entry) { e.Service.Port = 70000 }, "10.0.0.1:0 Invalid: 70000 is not a port"},
		"nowhere": {func(e *entry) { e.Node.Address = "" }, ":80 NoAddress: neither the instance nor its node has an address"},
	} {
		got, taken := converterOf().service("a", entries{list: []entry{at("10.0.0.1", tc.change)}})
		if len(got.LeftOut) != 1 || len(got.Instances) != 0 || !taken {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		l := got.LeftOut[0]
		if text := fmt.Sprintf("%s %s: %s", l.Addr, l.Reason, l.Detail); text != tc.want || l.Addr.Cluster != "legacy" || l.Source.Shard != testShard {
			t.Errorf("%s: %s, %+v", name, text, l)
		}
	}
	got, _ := converterOf().service("a", entries{bad: 2})
	if len(got.LeftOut) != 1 || got.LeftOut[0].Detail != "2 of its instances can't be read" {
		t.Errorf("%+v", got.LeftOut)
	}
}

// Kinds and tags decide which instances are taken; a service of which none is, though it has some, is none.
func TestKindsAndTags(t *testing.T) {
	t.Parallel()
	kind := func(k string) func(*entry) { return func(e *entry) { e.Service.Kind = k } }
	tags := func(t ...string) func(*entry) { return func(e *entry) { e.Service.Tags = t } }
	for _, tc := range []struct {
		name   string
		change func(*api.RegistrySpec)
		in     []entry
		want   string // addresses, or "none" if it is no service
	}{
		{"proxy", nil, []entry{at("10.0.0.1", kind("connect-proxy"))}, "none"},
		{"gateway beside", nil, []entry{at("10.0.0.1", kind("mesh-gateway")), at("10.0.0.2")}, "10.0.0.2"},
		{"proxy that is asked for", func(s *api.RegistrySpec) { s.Consul = &api.ConsulSpec{Kinds: []string{"connect-proxy"}} },
			[]entry{at("10.0.0.1", kind("connect-proxy")), at("10.0.0.2")}, "10.0.0.1 10.0.0.2"},
		{"typical", nil, []entry{at("10.0.0.1", kind("typical"))}, "10.0.0.1"},
		{"tags", func(s *api.RegistrySpec) { s.Consul = &api.ConsulSpec{Tags: []string{"Mesh", "v2"}} },
			[]entry{at("10.0.0.1", tags("mesh", "V2", "x")), at("10.0.0.2", tags("mesh")), at("10.0.0.3")}, "10.0.0.1"},
		{"no tags", func(s *api.RegistrySpec) { s.Consul = &api.ConsulSpec{Tags: []string{"mesh"}} }, []entry{at("10.0.0.1")}, "none"},
		{"empty", nil, nil, ""},
	} {
		change := tc.change
		if change == nil {
			change = func(*api.RegistrySpec) {}
		}
		s, taken := converterOf(change).service("a", entries{list: tc.in})
		var got []string
		for _, i := range s.Instances {
			got = append(got, i.Address)
		}
		text := strings.Join(got, " ")
		if !taken {
			text = "none"
		}
		if text != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, text, tc.want)
		}
	}
}

// Each of several ports is one of the service, with its own protocol: what is said of it by name, what its name says, and else
// what is said of all.
func TestSeveralPorts(t *testing.T) {
	in := decode(t, `[{"Node": {"Node": "n", "Address": "10.0.0.1"}, "Service": {"ID": "a", "Port": 0, "Meta": {"protocol": "http2", "protocol-admin": "tcp"},
		"Ports": [{"Name": "main", "Port": 8080, "Default": true}, {"Name": "grpc-api", "Port": 9090}, {"Name": "admin", "Port": 9901}, {"Name": "odd", "Port": 99999}]}}]`)
	s, _ := converterOf().service("a", in)
	want := []foreign.NamedPort{{Name: "main", Port: 8080}, {Name: "grpc-api", Port: 9090, Protocol: "grpc"}, {Name: "admin", Port: 9901, Protocol: "tcp"}, {Name: "odd"}}
	if d := cmp.Diff(want, s.Instances[0].Ports); d != "" {
		t.Error(d)
	}
	inBubble(t, scripted(), func(w *world) {
		w.set("a", in.list...)
		w.want("a.dc1.consul [9901/admin 9090/grpc-api 8080/main]: -10.0.0.1:0 Invalid; 10.0.0.1:8080 healthy 1; 10.0.0.1:9090 healthy 1; 10.0.0.1:9901 healthy 1")
	})
}

func TestLocality(t *testing.T) {
	t.Parallel()
	e := func(own, of *locality, meta, nodeMeta map[string]string) entry {
		return at("10.0.0.1", func(e *entry) {
			e.Service.Locality, e.Node.Locality, e.Service.Meta, e.Node.Meta = own, of, meta, nodeMeta
		})
	}
	for _, tc := range []struct {
		e    entry
		want string
	}{
		{e(&locality{"r1", "z1"}, &locality{"r2", "z2"}, map[string]string{"region": "r3"}, nil), "r1/z1"},
		{e(nil, &locality{"r2", "z2"}, map[string]string{"region": "r3"}, nil), "r2/z2"},
		{e(nil, nil, map[string]string{"region": "r3", "subzone": "s"}, map[string]string{"region": "r4", "zone": "z4"}), "r3/z4/s"},
		{e(nil, nil, nil, map[string]string{"region": "r4"}), "r4"},
		{e(nil, nil, nil, nil), ""},
	} {
		if got := converterOf().locality(&tc.e).String(); got != tc.want {
			t.Errorf("%s, want %s", got, tc.want)
		}
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		spec api.ConsulSpec
		want []string // name | parameters | suffix
	}{
		{api.ConsulSpec{}, []string{"||own.consul"}},
		{api.ConsulSpec{Datacenters: []string{"dc1", "dc2"}}, []string{"dc1|dc=dc1|dc1.consul", "dc2|dc=dc2|dc2.consul"}},
		{api.ConsulSpec{Namespaces: []string{"default", "team"}, Partition: "p", Datacenters: []string{"dc1"}}, []string{
			"dc1/partition:p/namespace:default|dc=dc1&ns=default&partition=p|p.ap.dc1.consul",
			"dc1/partition:p/namespace:team|dc=dc1&ns=team&partition=p|team.ns.p.ap.dc1.consul",
		}},
		{api.ConsulSpec{Peers: []string{"east"}}, []string{"||own.consul", "peer:east|peer=east|east.peer.consul"}},
	} {
		var got []string
		for _, s := range scopes(&tc.spec) {
			params, err := url.QueryUnescape(s.params().Encode())
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, s.String()+"|"+params+"|"+s.suffix("own"))
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Error(d)
		}
	}
}

// One instance that can't be read does not take the others with it.
func TestOneBadInstance(t *testing.T) {
	t.Parallel()
	in := decode(t, `[{"Node": {"Node": "n1", "Address": "10.0.0.1"}, "Service": {"ID": "a", "Port": "80"}}, {"Node": {"Node": "n2", "Address": "10.0.0.2"}, "Service": {"ID": "a", "Port": 80}}, 5, null]`)
	if in.bad != 2 || len(in.list) != 2 || in.list[0].Node.Node != "n2" {
		t.Errorf("%+v", in)
	}
	var none entries
	for _, text := range []string{`{}`, `5`, `"x"`} {
		if err := json.Unmarshal([]byte(text), &none); err == nil {
			t.Errorf("%s is no error", text)
		}
	}
}

func TestImportedServices(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`[{"Service": "a", "SourcePeer": "east"}]`, `{"Partition": "default", "ImportedServices": [{"Service": "a", "SourcePeer": "east"}]}`} {
		var got importedServices
		if err := json.Unmarshal([]byte(text), &got); err != nil || len(got) != 1 || got[0] != (imported{"a", "east"}) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	if err := json.Unmarshal([]byte(`5`), new(importedServices)); err == nil {
		t.Error("5 is no error")
	}
}

// Whatever a server says, converting it neither fails nor depends on the order.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte(`[{"Service": {"Port": -1, "Weights": null, "Tags": null, "Ports": [{}]}}, {}, null, []]`))
	f.Add([]byte(`[{"Service": {"Tags": ["=", "|", "a=", "=b"], "Meta": {"": ""}, "Weights": {"Passing": -5}}}]`))
	c := converterOf(func(s *api.RegistrySpec) { s.Consul = &api.ConsulSpec{Kinds: []string{"connect-proxy"}} })
	f.Fuzz(func(t *testing.T, text []byte) {
		var in entries
		if json.Unmarshal(text, &in) != nil {
			return
		}
		out, _ := c.service("a", in)
		if len(out.Instances)+len(out.LeftOut) > len(in.list)+1 {
			t.Errorf("%d instances of %d", len(out.Instances), len(in.list))
		}
		s := newSink()
		foreign.NewPublisher(foreign.Options{Shard: testShard, Spec: *c.spec}, s).Replace([]foreign.Service{out})
		turned := entries{list: slices.Clone(in.list), bad: in.bad}
		slices.Reverse(turned.list)
		again := newSink()
		swapped, _ := c.service("a", turned)
		foreign.NewPublisher(foreign.Options{Shard: testShard, Spec: *c.spec}, again).Replace([]foreign.Service{swapped})
		ids := map[string]int{}
		for _, i := range out.Instances {
			ids[i.ID]++
		}
		for _, n := range ids {
			if n > 1 {
				return // which of two of one name counts is the registry's mistake
			}
		}
		if s.content() != again.content() {
			t.Errorf("in order:\n%s\nreversed:\n%s", s.content(), again.content())
		}
	})
}

// Lists, tables and headers are parsed without fault too.
func FuzzLists(f *testing.F) {
	f.Add([]byte(`{"web": ["a", "b"], "db": null}`), "5", "10")
	f.Add([]byte(`[{"Service": "a"}]`), "18446744073709551616", "-1")
	f.Fuzz(func(t *testing.T, text []byte, index, contact string) {
		var names map[string][]string
		var checks []check
		var nodes []nodeRow
		var services importedServices
		for _, v := range []any{&names, &checks, &nodes, &services, &peering{}} {
			_ = json.Unmarshal(text, v) // must not panic
		}
		h := map[string][]string{"X-Consul-Index": {index}, "X-Consul-Lastcontact": {contact}}
		c := &client{consistency: "stale"}
		if _, err := c.doubt("s", h); err == nil && contact != "" && strings.HasPrefix(contact, "-") {
			t.Errorf("%q is believed", contact)
		}
		if a := read(h); a.index != 0 && next(a.index, a.index) != a.index {
			t.Errorf("index %q", index)
		}
	})
}
