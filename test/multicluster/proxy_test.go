package multicluster_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isthmus-mesh/isthmus/test/env"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// proxy is a client that behaves as Envoy, and remembers every assignment that it
// was sent.
type proxy struct {
	*xdstest.Envoy
	m    *mesh
	past *past
}

// proxy connects a sidecar, named POD.NAMESPACE. Settings are "key=value": cluster,
// ip, network, locality ("region/zone/subzone"), type, protocol ("delta" or "sotw"),
// and metadata in capitals. It has the certificates that mutual TLS takes, unless tls
// is "off".
func (m *mesh) proxy(name string, settings ...string) *proxy {
	m.Helper()
	n, err := node(name, settings)
	if err != nil {
		m.Fatal(err)
	}
	protocol := wire.Delta
	if slices.Contains(settings, "protocol=sotw") {
		protocol = wire.SotW
	}
	p := &proxy{m: m, past: newPast()}
	p.Envoy = xdstest.NewEnvoy(protocol, n, func() (xdstest.Stream, error) {
		conn, err := grpc.NewClient("passthrough:///"+m.hub.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		s, err := xdstest.Open(context.Background(), conn, protocol)
		if err != nil {
			return nil, err
		}
		return &listening{Stream: s, past: p.past}, nil
	})
	m.eventually("a stream of "+name, p.Connect)
	m.Cleanup(func() {
		p.Disconnect()
		for _, v := range p.Violations() {
			m.Errorf("proxy %s: %s", name, v)
		}
	})
	return p
}

// proxies are clients of both protocols.
type proxies []*proxy

// both connects two sidecars that differ in their protocol.
func (m *mesh) both(name string, settings ...string) proxies {
	m.Helper()
	return proxies{
		m.proxy(name, settings...),
		m.proxy("sotw-"+name, append([]string{"ip=10.250.9.1", "protocol=sotw"}, settings...)...),
	}
}

func (ps proxies) has(service string, addresses ...string) {
	for _, p := range ps {
		p.m.Helper()
		p.has(service, addresses...)
	}
}

func (ps proxies) lacks(service string) {
	for _, p := range ps {
		p.m.Helper()
		p.lacks(service)
	}
}

func (ps proxies) forget() {
	for _, p := range ps {
		p.past.forget()
	}
}

func (ps proxies) always(service string, addresses ...string) {
	for _, p := range ps {
		p.m.Helper()
		p.always(service, addresses...)
	}
}

func (ps proxies) never(service, address string) {
	for _, p := range ps {
		p.m.Helper()
		p.never(service, address)
	}
}

func (ps proxies) kept(ids ...string) {
	for _, p := range ps {
		p.m.Helper()
		p.kept(ids...)
	}
}

func node(name string, settings []string) (*corev3.Node, error) {
	set := map[string]string{"cluster": primary, "ip": "10.250.0.1", "type": "sidecar", "protocol": ""}
	meta := map[string]any{}
	for _, s := range settings {
		k, v, ok := strings.Cut(s, "=")
		switch {
		case !ok:
			return nil, fmt.Errorf("%q is not key=value", s)
		case k == strings.ToUpper(k):
			meta[k] = v
		default:
			set[k] = v
		}
	}
	_, ns, ok := strings.Cut(name, ".")
	if !ok {
		return nil, fmt.Errorf("%q is not POD.NAMESPACE", name)
	}
	meta["CLUSTER_ID"], meta["NAMESPACE"] = set["cluster"], ns
	if meta["INSTANCE_IPS"] == nil {
		meta["INSTANCE_IPS"] = set["ip"]
	}
	if set["network"] != "" {
		meta["NETWORK"] = set["network"]
	}
	if set["tls"] != "off" {
		for _, file := range []string{"CERT_CHAIN", "KEY", "ROOT_CERT"} {
			meta["TLS_CLIENT_"+file], meta["TLS_SERVER_"+file] = "/certs/"+file, "/certs/"+file
		}
	}
	fields, err := structpb.NewStruct(meta)
	n := &corev3.Node{Id: fmt.Sprintf("%s~%s~%s~%s.svc.cluster.local", set["type"], set["ip"], name, ns), Metadata: fields}
	if l := strings.Split(set["locality"]+"//", "/"); l[0] != "" {
		n.Locality = &corev3.Locality{Region: l[0], Zone: l[1], SubZone: l[2]}
	}
	return n, err
}

// outbound is the name of the cluster of a service, "name.namespace", at port 80; or
// "name.namespace:port".
func outbound(service string) string {
	service, port, ok := strings.Cut(service, ":")
	if !ok {
		port = "80"
	}
	if strings.Count(service, ".") == 1 && !strings.HasSuffix(service, ".mesh") {
		service += ".svc.cluster.local"
	}
	return fmt.Sprintf("outbound|%s||%s", port, service)
}

// clusters are the names of outbound clusters that the proxy has.
func (p *proxy) clusters() (names []string) {
	for n := range p.State()[gen.ClusterURL] {
		if strings.HasPrefix(n, "outbound|") {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}

// cluster is the configuration of a service's cluster.
func (p *proxy) cluster(service string) (*clusterv3.Cluster, error) {
	body, ok := p.State()[gen.ClusterURL][outbound(service)]
	if !ok {
		return nil, fmt.Errorf("there is no cluster %s among %q", outbound(service), p.clusters())
	}
	c := &clusterv3.Cluster{}
	return c, proto.Unmarshal([]byte(body), c)
}

// endpoints are those of a service, as the proxy has them now.
func (p *proxy) endpoints(service string) (assignment, error) {
	state := p.State()
	name := outbound(service)
	if _, ok := state[gen.ClusterURL][name]; !ok {
		return nil, fmt.Errorf("there is no cluster %s among %q", name, p.clusters())
	}
	body, ok := state[gen.EndpointURL][name]
	if !ok {
		return nil, fmt.Errorf("there are no endpoints of %s", name)
	}
	return decodeAssignment([]byte(body))
}

// has waits until a service has exactly these endpoints, "ip:port", or "ip" for
// port 8080.
func (p *proxy) has(service string, addresses ...string) {
	p.m.Helper()
	want := make([]string, len(addresses))
	for i, a := range addresses {
		if want[i] = a; !strings.Contains(a, ":") {
			want[i] = a + ":8080"
		}
	}
	slices.Sort(want)
	p.where(service, fmt.Sprint("endpoints ", want), func(a assignment) bool { return slices.Equal(a.addresses(), want) })
}

// where waits until the endpoints of a service are as wanted.
func (p *proxy) where(service, what string, cond func(assignment) bool) (a assignment) {
	p.m.Helper()
	p.m.eventually(service+" with "+what, func() (err error) {
		if a, err = p.endpoints(service); err == nil && !cond(a) {
			err = fmt.Errorf("%+v", a)
		}
		return err
	})
	return a
}

// lacks waits until the proxy has no cluster of a service.
func (p *proxy) lacks(service string) {
	p.m.Helper()
	p.m.eventually(service+" being gone", func() error {
		if slices.Contains(p.clusters(), outbound(service)) {
			return fmt.Errorf("it is among %q", p.clusters())
		}
		return nil
	})
}

// fence waits until changes made now in each of the clusters have reached the
// proxies, and so all that went before.
func (m *mesh) fence(ids []string, proxies ...*proxy) {
	m.Helper()
	m.fences++
	for i, id := range ids {
		name := fmt.Sprintf("fence-%d-%d", m.fences, i)
		m.apply(id, env.App("fence/"+name, 80, "", fmt.Sprintf("10.255.0.%d", i+1)))
		for _, p := range proxies {
			p.where(name+".fence", "an endpoint, itself or its gateway", func(a assignment) bool { return len(a) > 0 })
		}
	}
}

// listeners are the encoded listeners by name; the names of clusters can be read in
// them as they are.
func (p *proxy) listeners() map[string]string { return p.State()[gen.ListenerURL] }
