package foreign

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

var shard = model.ShardKey{Provider: model.ProviderNacos, Cluster: "trade"}

func converterOf(s api.RegistrySpec) converter {
	if s.Hosts == nil {
		s.Hosts = &api.HostNaming{Mode: api.NamingDNS}
	}
	return newConverter(Options{Shard: shard, Spec: s.Effective("shop")})
}

// up is a healthy instance of weight 1.
func up(address string, port uint16) Instance {
	return Instance{ID: fmt.Sprint(address, ":", port), Address: address, Port: port, Weight: 1, Health: model.Healthy}
}

func with(i Instance, change func(*Instance)) Instance {
	change(&i)
	return i
}

func orders(in ...Instance) Service {
	return Service{Key: "G@@orders", Name: "orders", Suffix: "G.public.nacos", Instances: in}
}

// shown is a service's rows as lines.
func shown(c converted) (out []string) {
	for _, k := range sortedRows(c.rows) {
		switch o := c.rows[k].(type) {
		case *model.Service:
			line := "service " + o.Host
			for _, p := range o.Ports {
				line += fmt.Sprintf(" %s:%d/%s", p.Name, p.Number, p.Protocol)
			}
			out = append(out, line)
		case *model.Endpoints:
			for _, e := range o.Endpoints {
				out = append(out, fmt.Sprintf("endpoint %s %s %s weight=%v %s", e.Addr, e.PortName, e.Health, e.Weight, e.Locality))
			}
			for _, l := range o.LeftOut {
				out = append(out, fmt.Sprintf("without %s %s: %s %s", l.Addr, l.Port, l.Reason, l.Detail))
			}
		}
	}
	if c.problem != "" {
		out = append(out, "problem "+c.problem)
	}
	return out
}

func TestRows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec      api.RegistrySpec
		instances []Instance
		want      []string
	}{
		"one port": {
			instances: []Instance{up("10.0.0.1", 8080), up("10.0.0.2", 8080)},
			want: []string{"service orders.g.public.nacos http:8080/http", "endpoint 10.0.0.1:8080 http healthy weight=1 ",
				"endpoint 10.0.0.2:8080 http healthy weight=1 "},
		},
		"the most frequent port, and the lowest of those, whatever the order": {
			instances: []Instance{up("10.0.0.3", 9000), up("10.0.0.1", 8081), up("10.0.0.2", 8080)},
			want: []string{"service orders.g.public.nacos http:8080/http", "endpoint 10.0.0.1:8081 http healthy weight=1 ",
				"endpoint 10.0.0.2:8080 http healthy weight=1 ", "endpoint 10.0.0.3:9000 http healthy weight=1 "},
		},
		"protocols of instances are ports": {
			instances: []Instance{
				with(up("10.0.0.1", 20880), func(i *Instance) { i.Metadata = map[string]string{"protocol": "tri"} }),
				with(up("10.0.0.2", 8080), func(i *Instance) { i.Protocol = "http" }),
				with(up("10.0.0.3", 20881), func(i *Instance) { i.Protocol = "dubbo" }),
			},
			want: []string{"service orders.g.public.nacos grpc:20880/grpc http:8080/http tcp:20881/tcp",
				"endpoint 10.0.0.1:20880 grpc healthy weight=1 ", "endpoint 10.0.0.2:8080 http healthy weight=1 ", "endpoint 10.0.0.3:20881 tcp healthy weight=1 "},
		},
		"an unknown protocol": {
			instances: []Instance{with(up("10.0.0.1", 1), func(i *Instance) { i.Protocol = "SOAP" })},
			want: []string{"service orders.g.public.nacos tcp:1/tcp", "endpoint 10.0.0.1:1 tcp healthy weight=1 ",
				`problem the protocol "soap" is unknown: it is served as TCP`},
		},
		"a given port, of one service": {
			spec: api.RegistrySpec{Ports: &api.PortMapping{Default: 80, Services: []api.ServicePort{{Host: "ORDERS.g.public.nacos", Port: 8000, Protocol: "grpc"}}}},
			instances: []Instance{
				up("10.0.0.1", 31001), up("10.0.0.2", 31002)},
			want: []string{"service orders.g.public.nacos grpc:8000/grpc", "endpoint 10.0.0.1:31001 grpc healthy weight=1 ", "endpoint 10.0.0.2:31002 grpc healthy weight=1 "},
		},
		"named ports": {
			instances: []Instance{with(up("10.0.0.1", 0), func(i *Instance) {
				i.Ports = []NamedPort{{Name: "web", Port: 80}, {Name: "admin", Port: 9090, Protocol: "tcp"}, {Name: "none"}}
			})},
			want: []string{"service orders.g.public.nacos admin:9090/tcp web:80/http", "endpoint 10.0.0.1:80 web healthy weight=1 ", "endpoint 10.0.0.1:9090 admin healthy weight=1 ",
				"without 10.0.0.1:0 none: Invalid the instance has no number for its port none"},
		},
		"two ports with one number": {
			instances: []Instance{with(up("10.0.0.1", 80), func(i *Instance) { i.Protocol = "tcp" }), up("10.0.0.2", 80)},
			want: []string{"service orders.g.public.nacos http:80/http", "endpoint 10.0.0.2:80 http healthy weight=1 ",
				"without 10.0.0.1:80 tcp: Invalid the service has no port tcp", "problem its port tcp, of 1 instance, is left out: it has the number of http, 80; instances of one port need one protocol: correct \"protocol\" in what they say of themselves, or set ports.protocolKey to a word that they do not use, and the protocol in ports.services"},
		},
		"one number and several protocols, of which one is unknown": {
			instances: []Instance{
				with(up("10.0.0.1", 80), func(i *Instance) { i.Protocol = "grpc" }), with(up("10.0.0.2", 80), func(i *Instance) { i.Protocol = "bogus" }),
				with(up("10.0.0.3", 80), func(i *Instance) { i.Protocol = "tcp" }), with(up("10.0.0.4", 80), func(i *Instance) { i.Protocol = "https" })},
			want: []string{"service orders.g.public.nacos grpc:80/grpc", "endpoint 10.0.0.1:80 grpc healthy weight=1 ",
				"without 10.0.0.2:80 tcp: Invalid the service has no port tcp", "without 10.0.0.3:80 tcp: Invalid the service has no port tcp",
				"without 10.0.0.4:80 https: Invalid the service has no port https",
				"problem the protocol \"bogus\" is unknown: it is served as TCP; its port https, of 1 instance, is left out: it has the number of grpc, 80; its port tcp, of 2 instances, is left out: it has the number of grpc, 80; instances of one port need one protocol: correct \"protocol\" in what they say of themselves, or set ports.protocolKey to a word that they do not use, and the protocol in ports.services"},
		},
		"many ports with one number": {
			instances: []Instance{with(up("10.0.0.1", 0), func(i *Instance) {
				for n := range 8 {
					i.Ports = append(i.Ports, NamedPort{Name: fmt.Sprint("p", n), Port: 80})
				}
			})},
			want: []string{"service orders.g.public.nacos p0:80/http", "endpoint 10.0.0.1:80 p0 healthy weight=1 ",
				"without 10.0.0.1:80 p1: Invalid the service has no port p1", "without 10.0.0.1:80 p2: Invalid the service has no port p2",
				"without 10.0.0.1:80 p3: Invalid the service has no port p3", "without 10.0.0.1:80 p4: Invalid the service has no port p4",
				"without 10.0.0.1:80 p5: Invalid the service has no port p5", "without 10.0.0.1:80 p6: Invalid the service has no port p6",
				"without 10.0.0.1:80 p7: Invalid the service has no port p7",
				"problem its port p1, of 1 instance, is left out: it has the number of p0, 80; its port p2, of 1 instance, is left out: it has the number of p0, 80; its port p3, of 1 instance, is left out: it has the number of p0, 80; its port p4, of 1 instance, is left out: it has the number of p0, 80; its port p5, of 1 instance, is left out: it has the number of p0, 80; 2 more ports are left out"},
		},
		"what takes no traffic has a port all the same": {
			instances: []Instance{with(up("10.0.0.1", 80), func(i *Instance) { i.Disabled = true }), with(up("10.0.0.2", 80), func(i *Instance) { i.Weight = 0 })},
			want:      []string{"service orders.g.public.nacos http:80/http", "without 10.0.0.1:80 http: Disabled ", "without 10.0.0.2:80 http: ZeroWeight "},
		},
		"fractions": {
			instances: []Instance{with(up("10.0.0.1", 80), func(i *Instance) { i.Weight = 0.5 }), with(up("10.0.0.2", 80), func(i *Instance) { i.Weight = 0.0001 }), up("10.0.0.3", 80)},
			want: []string{"service orders.g.public.nacos http:80/http", "endpoint 10.0.0.1:80 http healthy weight=0.5 ",
				"endpoint 10.0.0.2:80 http healthy weight=0.01 ", "endpoint 10.0.0.3:80 http healthy weight=1 "},
		},
		"unhealthy is an endpoint": {
			instances: []Instance{with(up("10.0.0.1", 80), func(i *Instance) { i.Health = model.Unhealthy })},
			want:      []string{"service orders.g.public.nacos http:80/http", "endpoint 10.0.0.1:80 http unhealthy weight=1 "},
		},
		"health and weights may not count": {
			spec:      api.RegistrySpec{Health: &api.Health{Ignore: true}, Weights: &api.Weights{Ignore: true}},
			instances: []Instance{with(up("10.0.0.1", 80), func(i *Instance) { i.Health, i.Weight = model.Unhealthy, 7 })},
			want:      []string{"service orders.g.public.nacos http:80/http", "endpoint 10.0.0.1:80 http healthy weight=0 "},
		},
		"one address twice, and none": {
			instances: []Instance{up("10.0.0.1", 80), with(up("10.0.0.1", 80), func(i *Instance) { i.ID = "z" }), up("", 80)},
			want: []string{"service orders.g.public.nacos http:80/http", "endpoint 10.0.0.1:80 http healthy weight=1 ",
				"without :80 http: Invalid the instance has no address", "without 10.0.0.1:80 http: Duplicate another instance of the service has this address and port"},
		},
		"nothing known of its ports": {want: []string{"service orders.g.public.nacos"}},
		"no instance, and a given port": {
			spec: api.RegistrySpec{Ports: &api.PortMapping{Default: 80, Protocol: "grpc"}},
			want: []string{"service orders.g.public.nacos grpc:80/grpc"},
		},
		"localities": {
			spec: api.RegistrySpec{Locality: &api.Locality{Default: "eu/eu-1", Clusters: map[string]string{"B": "cn/cn-b/rack1"}, ZoneKey: "az"}},
			instances: []Instance{
				up("10.0.0.1", 80),
				with(up("10.0.0.2", 80), func(i *Instance) { i.Cluster = "B" }),
				with(up("10.0.0.3", 80), func(i *Instance) { i.Metadata = map[string]string{"region": "us", "az": "us-1"} }),
				with(up("10.0.0.4", 80), func(i *Instance) {
					i.Cluster, i.Metadata = "B", map[string]string{"az": "cn-c"}
				}),
				with(up("10.0.0.5", 80), func(i *Instance) { i.Locality = model.Locality{Region: "eu"} }),
			},
			want: []string{"service orders.g.public.nacos http:80/http", "endpoint 10.0.0.1:80 http healthy weight=1 eu/eu-1", "endpoint 10.0.0.2:80 http healthy weight=1 cn/cn-b/rack1",
				"endpoint 10.0.0.3:80 http healthy weight=1 us/us-1", "endpoint 10.0.0.4:80 http healthy weight=1 cn/cn-c", "endpoint 10.0.0.5:80 http healthy weight=1 eu/eu-1"},
		},
		"an address of IPv6, and one of IPv4 in its form": {
			instances: []Instance{up("fd00::1", 80), up("::ffff:10.0.0.9", 80)},
			want:      []string{"service orders.g.public.nacos http:80/http", "endpoint 10.0.0.9:80 http healthy weight=1 ", "endpoint [fd00::1]:80 http healthy weight=1 "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conv := converterOf(c.spec)
			got := shown(conv.rows(orders(c.instances...), nil, nil, holders{"G@@orders", "G@@orders"}, model.Source{}))
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestInstancesWithNames: an instance may have a name; it is served what the name stands for.
func TestInstancesWithNames(t *testing.T) {
	t.Parallel()
	conv := converterOf(api.RegistrySpec{})
	r := resolved{"db.internal": {netip.MustParseAddr("10.0.0.8"), netip.MustParseAddr("10.0.0.9")}, "none.internal": {}}
	got := shown(conv.rows(orders(up("DB.internal.", 80), up("none.internal", 80), up("new.internal", 80)), nil, r, holders{"G@@orders", "G@@orders"}, model.Source{}))
	want := []string{"service orders.g.public.nacos http:80/http", "endpoint 10.0.0.8:80 http healthy weight=1 ", "endpoint 10.0.0.9:80 http healthy weight=1 ",
		"without new.internal:80 http: Invalid its DNS name has not been resolved yet", "without none.internal:80 http: Invalid its DNS name has no address"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestInstancesAreWorkloads: selectors find them by their metadata.
func TestInstancesAreWorkloads(t *testing.T) {
	t.Parallel()
	conv := converterOf(api.RegistrySpec{Network: "vpc", Namespace: "pay"})
	at := time.Unix(1700000000, 0)
	i := with(up("10.0.0.1", 80), func(i *Instance) {
		i.Node, i.Metadata = "n1", map[string]string{"version": "v2", "odd key, a=b;c": "{}", strings.Repeat("k", 400): "x", "security.istio.io/tlsMode": "istio"}
	})
	out := conv.rows(orders(i, with(up("10.0.0.2", 80), func(i *Instance) { i.Disabled = true })), nil, nil, holders{"G@@orders", "G@@orders"}, model.Source{Revision: "7", Time: at})
	object := model.ObjectKey{Kind: "Instance", Namespace: "pay", Name: "G@@orders/10.0.0.1:80"}
	want := &model.Workload{
		Kind: model.KindInstance, Namespace: "pay", Name: "G@@orders/10.0.0.1:80",
		Labels:  model.Labels{"version": "v2", "odd key, a=b;c": "{}", "security.istio.io/tlsMode": "istio"},
		Address: model.Addr{Cluster: "trade", AddrPort: netip.MustParseAddrPort("10.0.0.1:0")}, Ports: map[string]uint16{"http": 80},
		Network: "vpc", TLSMode: "istio", Health: model.Healthy, Weight: 1, Node: "n1",
		Source: model.Source{Shard: shard, Object: object, Revision: "7", Time: at},
	}
	workloads := 0
	for k, o := range out.rows {
		if w, ok := o.(*model.Workload); ok {
			workloads++
			if d := cmp.Diff(want, w, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); d != "" || k.Key != object.String() {
				t.Errorf("%s: %s", k.Key, d)
			}
		}
	}
	e := out.rows[model.RowKey{Kind: model.RowEndpoints, Key: "Service/pay/G@@orders"}].(*model.Endpoints)
	if workloads != 1 || len(e.Endpoints) != 1 || e.Endpoints[0].Workload != object || e.Endpoints[0].Network != "vpc" || e.Endpoints[0].TLSMode != "istio" {
		t.Errorf("%d workloads, %+v", workloads, e)
	}
}

// TestWorkloadsOfNoWeight: what takes no traffic takes none of selectors either.
func TestWorkloadsOfNoWeight(t *testing.T) {
	t.Parallel()
	conv := converterOf(api.RegistrySpec{})
	s := orders(with(up("10.0.0.1", 80), func(i *Instance) { i.Weight = 0 }), with(up("10.0.0.2", 80), func(i *Instance) { i.Disabled = true }),
		with(up("10.0.0.3", 80), func(i *Instance) { i.Weight = 0.5 }))
	var got []string
	for _, o := range conv.rows(s, nil, nil, holders{s.Key, s.Key}, model.Source{}).rows {
		if w, ok := o.(*model.Workload); ok {
			got = append(got, fmt.Sprint(w.Address, " ", w.Weight))
		}
	}
	if want := []string{"10.0.0.3:0 0.5"}; !cmp.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestAlias: a host that is no DNS name has one that is.
func TestAlias(t *testing.T) {
	t.Parallel()
	conv := converterOf(api.RegistrySpec{Hosts: &api.HostNaming{Mode: api.NamingHigress}})
	s := orders(up("10.0.0.1", 80))
	s.Name = "my_orders"
	out := conv.rows(s, nil, nil, holders{s.Key, s.Key}, model.Source{})
	a, ok := out.rows[model.RowKey{Kind: model.RowService, Key: "Alias/shop/G@@orders"}].(*model.Service)
	if !ok || a.Host != "my-x5forders.g.public.nacos" || a.AliasOf != "my_orders.G.public.nacos" {
		t.Errorf("%+v", out.rows)
	}
}

// TestHostsThatCanNotBe: they are said, and nothing else suffers.
func TestHostsThatCanNotBe(t *testing.T) {
	t.Parallel()
	conv := converterOf(api.RegistrySpec{})
	s := orders(up("10.0.0.1", 80))
	s.Name = strings.Repeat("x", 64)
	if out := conv.rows(s, nil, nil, holders{s.Key, s.Key}, model.Source{}); len(out.rows) > 0 || !strings.Contains(out.problem, "left out") {
		t.Errorf("%+v", out)
	}
}
