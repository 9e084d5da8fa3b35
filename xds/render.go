package xds

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// Rendered is one resource as a proxy is sent it.
type Rendered struct {
	TypeURL string
	Short   string // "cds" …
	Name    string
	Body    []byte // encoded message of the type; nil if it could not be built
}

// Render gives all that a delta client with this node would be sent at present if it subscribed as Envoy does: to every
// cluster and listener, to the endpoints and route tables that these name, and to the virtual hosts of these tables. It
// takes the path that streams take. Without types it gives all of Envoy's own. Resources are in the order of types in
// which they are sent, and by name.
func (s *Server) Render(node *corev3.Node, types ...string) ([]Rendered, error) {
	pc := s.hub.Current()
	if pc == nil {
		return nil, errNotReady
	}
	id, err := s.identify(node)
	if err != nil {
		return nil, err
	}
	id.class.VHDS = id.vhds && id.class.Type == gen.Sidecar && s.virtualHosts()
	r := &rendering{s: s, pc: pc, a: id.audience(pc, s.classes), t: s.tables.join(), names: map[string][]string{}}
	defer s.tables.left(r.t)
	defer r.a.leave()
	if id.class.SelfDiscovery {
		r.add(gen.EndpointURL, selfCluster)
	}
	var out []Rendered
	for typ := range s.rules {
		url := s.rules[typ].url
		if url == gen.NameTableURL && !slices.Contains(types, url) {
			continue // an agent asks for it, not Envoy
		}
		list, err := r.list(typ) // also of what is not asked for: it says what else there is
		if err != nil {
			return nil, err
		}
		if len(types) == 0 || slices.Contains(types, url) {
			out = append(out, list...)
		}
	}
	return out, nil
}

// ClassOf gives the class that a proxy with this node is of at present.
func (s *Server) ClassOf(node *corev3.Node) (gen.Class, error) {
	pc := s.hub.Current()
	if pc == nil {
		return gen.Class{}, errNotReady
	}
	id, err := s.identify(node)
	if err != nil {
		return gen.Class{}, err
	}
	a := id.audience(pc, s.classes)
	defer a.leave()
	return a.class, nil
}

func (s *Server) identify(node *corev3.Node) (*identity, error) {
	raw, err := proto.Marshal(node)
	if err != nil {
		return nil, fmt.Errorf("encode the node: %w", err)
	}
	id, err := parseNode(raw, s.opt.ClusterAliases)
	if err != nil {
		return nil, err
	}
	return id, s.checkCluster(id)
}

// selfCluster is the cluster of its own peers that an Envoy with self-discovery has from its start.
const selfCluster = "local_cluster"

// rendering is one run of Render.
type rendering struct {
	s     *Server
	pc    *pushcontext.PushContext
	a     *audience
	t     *names
	names map[string][]string // by type, what the resources so far name of it
}

func (r *rendering) list(typ int) (out []Rendered, err error) {
	rule, g := &r.s.rules[typ], r.s.opt.Generators[typ]
	if rule.partOf != "" && !r.a.class.VHDS {
		return nil, nil
	}
	w := newWatch(typ, rule, g)
	w.wildcard = rule.wildcard
	for _, n := range r.names[rule.url] {
		if !w.wildcard {
			w.sub.Add(r.t.intern(typ, g, n))
		}
	}
	each(r.s.factory, r.t, r.pc, r.a, w, func(x *resource, _ uint32) {
		if err != nil || !r.wanted(w, x.name) {
			return
		}
		made := Rendered{TypeURL: rule.url, Short: rule.short, Name: x.name}
		if !x.failed() {
			made.Body = x.Body()
			err = r.note(rule.url, x.name, made.Body)
		}
		out = append(out, made)
	})
	slices.SortFunc(out, func(a, b Rendered) int { return strings.Compare(a.Name, b.Name) })
	return out, err
}

// wanted reports whether the proxy has what a resource is part of.
func (r *rendering) wanted(w *watch, name string) bool {
	g, ok := w.gen.(gen.Parts)
	if !ok || w.rule.partOf == "" {
		return true
	}
	key, ok := keyOf(w.gen, name)
	return ok && slices.Contains(r.names[w.rule.url], g.Whole(key))
}

var errUnreadable = errors.New("a resource can't be decoded")

// note adds what a resource names.
func (r *rendering) note(url, name string, body []byte) error {
	switch url {
	case gen.ClusterURL:
		c := &clusterv3.Cluster{}
		if err := proto.Unmarshal(body, c); err != nil {
			return fmt.Errorf("cluster %s: %w: %w", name, errUnreadable, err)
		}
		if c.GetType() == clusterv3.Cluster_EDS {
			r.add(gen.EndpointURL, endpointsName(c))
		}
	case gen.ListenerURL:
		l := &listenerv3.Listener{}
		if err := proto.Unmarshal(body, l); err != nil {
			return fmt.Errorf("listener %s: %w: %w", name, errUnreadable, err)
		}
		for _, table := range tablesOf(l) {
			r.add(gen.RouteURL, table)
		}
	case gen.RouteURL:
		r.add(gen.VirtualHostURL, name)
	}
	return nil
}

func (r *rendering) add(url, name string) {
	if !slices.Contains(r.names[url], name) {
		r.names[url] = append(r.names[url], name)
	}
}

func endpointsName(c *clusterv3.Cluster) string {
	if n := c.GetEdsClusterConfig().GetServiceName(); n != "" {
		return n
	}
	return c.Name
}

// tablesOf lists the route tables that a listener names.
func tablesOf(l *listenerv3.Listener) (out []string) {
	chains := l.FilterChains
	if l.DefaultFilterChain != nil {
		chains = append(slices.Clip(chains), l.DefaultFilterChain)
	}
	for _, c := range chains {
		for _, f := range c.Filters {
			m := &hcmv3.HttpConnectionManager{}
			if config := f.GetTypedConfig(); config.MessageIs(m) && config.UnmarshalTo(m) == nil && m.GetRds() != nil {
				out = append(out, m.GetRds().RouteConfigName)
			}
		}
	}
	return out
}
