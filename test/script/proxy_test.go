package script

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3" // so that listeners can be printed
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// proxy is a client that behaves like Envoy.
type proxy struct {
	*xdstest.Envoy
	w         *world
	name      string // POD.NAMESPACE
	node      *corev3.Node
	connected bool

	mu       sync.Mutex
	refuse   map[string]*regexp.Regexp // guarded by mu; by type URL
	received []string                  // guarded by mu; responses since the last "trace"
}

// types are the short names of resource types.
var types = []string{"cds", "eds", "lds", "rds", "vhds"}

func typeURL(short string) string {
	return map[string]string{"cds": gen.ClusterURL, "eds": gen.EndpointURL, "lds": gen.ListenerURL, "rds": gen.RouteURL, "vhds": gen.VirtualHostURL}[short]
}

// node reads "key=value" settings: cluster, ip, network, locality, type; metadata keys in capitals; labels of
// the workload as "LABELS.key=value". A proxy has certificates to call others with, as it must to get out of
// its network.
func node(name string, settings []string) (*corev3.Node, error) {
	set := map[string]string{"cluster": "c1", "ip": "10.250.0.1", "type": "sidecar"}
	meta := map[string]any{"TLS_CLIENT_CERT_CHAIN": "/etc/certs/cert-chain.pem", "TLS_CLIENT_KEY": "/etc/certs/key.pem", "TLS_CLIENT_ROOT_CERT": "/etc/certs/root-cert.pem"}
	labels := map[string]any{}
	for _, s := range settings {
		k, v, ok := strings.Cut(s, "=")
		label, ofWorkload := strings.CutPrefix(k, "LABELS.")
		switch {
		case !ok:
			return nil, fmt.Errorf("%q is not key=value", s)
		case ofWorkload:
			labels[label] = v
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
	meta["CLUSTER_ID"], meta["NAMESPACE"], meta["INSTANCE_IPS"], meta["LABELS"] = set["cluster"], ns, set["ip"], labels
	if set["network"] != "" {
		meta["NETWORK"] = set["network"]
	}
	fields, err := structpb.NewStruct(meta)
	n := &corev3.Node{Id: fmt.Sprintf("%s~%s~%s~%s.svc.cluster.local", set["type"], set["ip"], name, ns), Metadata: fields}
	if l := strings.Split(set["locality"]+"//", "/"); l[0] != "" {
		n.Locality = &corev3.Locality{Region: l[0], Zone: l[1], SubZone: l[2]}
	}
	return n, err
}

func (w *world) connect(name, protocol string, settings []string) error {
	p := w.proxies[name]
	if p == nil {
		n, err := node(name, settings)
		if err != nil {
			return err
		}
		kind, ok := map[string]wire.Protocol{"sotw": wire.SotW, "delta": wire.Delta}[protocol]
		if !ok {
			return errors.New("want sotw or delta")
		}
		p = &proxy{w: w, name: name, node: n, refuse: map[string]*regexp.Regexp{}}
		p.Envoy = xdstest.NewEnvoy(kind, n, func() (xdstest.Stream, error) {
			return xdstest.NewPipe(w.ctx, kind, func(k wire.Protocol, end *xdstest.PipeEnd) error { return w.server.Serve(k, end) }), nil
		})
		p.Fault, p.Trace = p.fault, p.note
		w.proxies[name] = p
	}
	w.start()
	if p.connected {
		return errors.New("already connected")
	}
	p.connected = true
	err := p.Connect()
	w.settle()
	return err
}

func (p *proxy) disconnect() {
	if p.connected {
		p.connected = false
		p.Disconnect()
	}
}

// fault is why the proxy refuses a resource.
func (p *proxy) fault(url, name string, _ []byte) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if re := p.refuse[url]; re != nil && re.MatchString(name) {
		return "refused by the scenario"
	}
	return ""
}

func (p *proxy) accepts() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.refuse)
}

// note keeps responses as "TYPE names removed names".
func (p *proxy) note(line string) {
	response, ok := strings.CutPrefix(line, "<- ")
	if !ok {
		return
	}
	for _, t := range types {
		if rest, ok := strings.CutPrefix(response, typeURL(t)); ok {
			_, names, _ := strings.Cut(rest, ": ")
			p.mu.Lock()
			p.received = append(p.received, t+" "+names+"\n")
			p.mu.Unlock()
		}
	}
}

func (p *proxy) trace() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := strings.Join(p.received, "")
	p.received = nil
	return out
}

func (p *proxy) refuses(url string, re *regexp.Regexp) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse[url] = re
}

// check compares what a connected proxy holds with what is generated for it, unless it refuses some.
func (p *proxy) check(pc *pushcontext.PushContext) error {
	if v := p.Violations(); len(v) > 0 {
		return fmt.Errorf("%s was sent what it must not be sent: %s", p.name, strings.Join(v, "; "))
	}
	p.mu.Lock()
	refusing := len(p.refuse) > 0
	p.mu.Unlock()
	c, err := p.w.connection(p.name)
	if err != nil || refusing || !p.connected {
		return nil
	}
	r := c.Reader()
	want, err := xdstest.Expect(pc, gen.All(), c.Class, &r)
	if err != nil {
		return err
	}
	have := p.State()
	for _, url := range slices.Sorted(maps.Keys(want)) {
		if !maps.Equal(want[url], have[url]) {
			return fmt.Errorf("%s does not hold what is generated for it: %s: %s", p.name, url, differing(want[url], have[url]))
		}
	}
	d, err := xdstest.Dangling(have)
	if len(d) > 0 {
		err = fmt.Errorf("%s has not the clusters that it sends to: %s", p.name, strings.Join(d, ", "))
	}
	return err
}

func differing(want, have map[string]string) string {
	var out []string
	for n, v := range want {
		if h, ok := have[n]; !ok {
			out = append(out, "misses "+n)
		} else if h != v {
			out = append(out, "has another "+n)
		}
	}
	for n := range have {
		if _, ok := want[n]; !ok {
			out = append(out, "still has "+n)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (w *world) connection(name string) (xds.Connection, error) {
	for _, c := range w.server.Connections() {
		if strings.Split(c.ID, "~")[2] == name {
			return c, nil
		}
	}
	return xds.Connection{}, fmt.Errorf("no stream of %s", name)
}

// holds prints the resources of a type that a proxy holds and whose names contain a text; "rds" the virtual
// hosts of route tables, whichever way it was sent them.
func (p *proxy) holds(short, part string) (string, error) {
	state, ok := p.State()[typeURL(short)]
	if !ok {
		return "", fmt.Errorf("%q is not a type", short)
	}
	var lines []string
	for name, body := range state {
		if !strings.Contains(name, part) {
			continue
		}
		more, err := details(short, name, []byte(body))
		if err != nil {
			return "", err
		}
		lines = append(lines, more...)
	}
	if short == "rds" {
		for name := range p.State()[gen.VirtualHostURL] {
			if table, host, _ := strings.Cut(name, "/"); strings.Contains(table, part) {
				lines = append(lines, table+" "+host)
			}
		}
	}
	return text(lines), nil
}

// details gives a resource's name with what scenarios care about.
func details(short, name string, body []byte) ([]string, error) {
	switch short {
	case "cds":
		var c clusterv3.Cluster
		err := proto.Unmarshal(body, &c)
		return []string{name + " " + c.GetType().String()}, err
	case "eds":
		var a endpointv3.ClusterLoadAssignment
		err := proto.Unmarshal(body, &a)
		return assignment(name, &a), err
	case "rds":
		var r routev3.RouteConfiguration
		err := proto.Unmarshal(body, &r)
		var out []string
		for _, v := range r.VirtualHosts {
			out = append(out, name+" "+v.Name)
		}
		return out, err
	case "lds":
		var l listenerv3.Listener
		err := proto.Unmarshal(body, &l)
		clusters := outbound.FindAllString(prototext.Format(&l), -1)
		slices.Sort(clusters)
		return []string{name + " " + strings.Join(slices.Compact(clusters), " ")}, err
	}
	return []string{name}, nil
}

// outbound finds the clusters that a listener names itself.
var outbound = regexp.MustCompile(`outbound\|\d+\|[^|]*\|[a-z0-9.-]+`)

// assignment gives "CLUSTER ADDRESS HEALTH [priority=N] [share=N]" for each endpoint; the share is that of
// its locality, if localities have any.
func assignment(name string, a *endpointv3.ClusterLoadAssignment) []string {
	var out []string
	for _, l := range a.Endpoints {
		for _, e := range l.LbEndpoints {
			at := e.GetEndpoint().GetAddress().GetSocketAddress()
			line := fmt.Sprintf("%s %s:%d %s", name, at.GetAddress(), at.GetPortValue(), strings.ToLower(e.HealthStatus.String()))
			if l.Priority > 0 {
				line += fmt.Sprintf(" priority=%d", l.Priority)
			}
			if share := l.GetLoadBalancingWeight().GetValue(); share > 1 {
				line += fmt.Sprintf(" share=%d", share)
			}
			out = append(out, line)
		}
	}
	if len(out) == 0 {
		out = append(out, name+" empty")
	}
	return out
}

// proxies is what the debug endpoints are shown of the server: as much as scenarios ask for.
type proxies struct {
	unasked
	w *world
}

type unasked = debug.Proxies

func (p proxies) Proxies() (out []debug.Proxy) {
	for _, c := range p.w.server.Connections() {
		out = append(out, debug.Proxy{
			ConnectionID: c.Connection, NodeID: c.ID, Name: strings.Split(c.ID, "~")[2], Cluster: string(c.Cluster), ConnectedAt: c.Connected,
		})
	}
	return out
}

func (p proxies) Audience(connection string) (gen.Class, pushcontext.Reader, error) {
	for _, c := range p.w.server.Connections() {
		if c.Connection == connection {
			return c.Class, c.Reader(), nil
		}
	}
	return gen.Class{}, pushcontext.Reader{}, fmt.Errorf("no connection %s", connection)
}
