package xdstest

import (
	"maps"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
)

// apply takes a response into the state and gives the message of its refusal, "" if it is accepted,
// with the bodies that are at fault.
func (e *Envoy) apply(url string, items []item, removed []string) (fault string, refused map[string]string) {
	e.received[url] += len(items)
	for _, n := range removed {
		e.forgive(url, n)
	}
	bad, reasons := e.faults(url, items)
	refused = map[string]string{}
	for _, i := range items {
		if bad[i.name] && url != gen.RouteURL && url != gen.VirtualHostURL && (len(items) == 1 || url != gen.EndpointURL) {
			refused[url+"/"+i.name] = i.body
		}
	}
	switch url {
	case gen.ClusterURL:
		e.clusters(items, removed, bad)
		return named("cluster", reasons), refused
	case gen.ListenerURL:
		e.listeners(items, removed, bad)
		return named("listener", reasons), refused
	}
	if len(bad) > 0 { // nothing of the response is applied and nobody is named
		if url == gen.EndpointURL {
			for _, i := range items { // a refused assignment ends warming
				delete(e.warming, i.name)
			}
		}
		return "Proto constraint validation failed", refused
	}
	if url == gen.VirtualHostURL {
		return e.hosts(items, removed), nil
	}
	e.leaves(url, items, removed)
	return "", nil
}

func named(what string, reasons []string) string {
	if len(reasons) == 0 {
		return ""
	}
	return "Error adding/updating " + what + "(s) " + strings.Join(reasons, ", ")
}

// faults finds what is to be refused. A cluster, listener or lone assignment that was refused and is
// sent again as it was is a violation, unless its cluster waits for it. (Route tables may change and
// change back.)
func (e *Envoy) faults(url string, items []item) (bad map[string]bool, reasons []string) {
	bad = map[string]bool{}
	if e.Fault == nil {
		return bad, nil
	}
	for _, i := range items {
		why := e.Fault(url, i.name, []byte(i.body))
		if why == "" {
			e.forgive(url, i.name)
			continue
		}
		bad[i.name] = true
		reasons = append(reasons, i.name+": "+why)
		late := url == gen.ListenerURL && time.Since(e.lastRefusal) >= patience
		if e.refused[url+"/"+i.name] == i.body && !late {
			e.violation("%s: refused content of %s was sent again", url, i.name)
		}
	}
	if len(bad) > 0 && url == gen.ListenerURL {
		e.lastRefusal = time.Now()
	}
	return bad, reasons
}

// patience is how soon a listener may be tried again as it was.
const patience = 5 * time.Second

func (e *Envoy) clusters(items []item, removed []string, bad map[string]bool) {
	t := e.types[gen.ClusterURL]
	var subscribe, unsubscribe []string
	again := false
	for _, i := range items {
		e.forgive(gen.EndpointURL, i.name) // the server can't know that it won't wait for endpoints
		if bad[i.name] || t.have[i.name] == i.body {
			continue
		}
		t.have[i.name] = i.body
		if !usesEDS(i.body) { // one that was an EDS cluster gives up its endpoints
			if e.types[gen.EndpointURL].sub[i.name] {
				unsubscribe = append(unsubscribe, i.name)
			}
			delete(e.warming, i.name)
			continue
		}
		e.warming[i.name] = true
		if e.types[gen.EndpointURL].sub[i.name] {
			again = true
		} else {
			subscribe = append(subscribe, i.name)
		}
	}
	for _, n := range removed {
		if e.types[gen.EndpointURL].sub[n] {
			unsubscribe = append(unsubscribe, n)
		}
		delete(t.have, n)
		delete(e.warming, n)
	}
	e.change(gen.EndpointURL, subscribe, unsubscribe)
	if again && len(subscribe)+len(unsubscribe) == 0 && e.protocol == wire.SotW {
		e.renew(gen.EndpointURL, nil, nil) // the same names and the old nonce: looks like an ACK
	}
}

func usesEDS(body string) bool {
	var c clusterv3.Cluster
	return proto.Unmarshal([]byte(body), &c) == nil && c.GetType() == clusterv3.Cluster_EDS
}

func (e *Envoy) listeners(items []item, removed []string, bad map[string]bool) {
	t := e.types[gen.ListenerURL]
	news := false
	for _, i := range items {
		if !bad[i.name] {
			news = news || t.have[i.name] != i.body
			t.have[i.name] = i.body
		}
	}
	for _, n := range removed {
		news = news || t.have[n] != ""
		delete(t.have, n)
	}
	for key := range maps.Clone(e.refused) { // may be tried again, for what was in its way may be gone
		if n, ok := strings.CutPrefix(key, gen.ListenerURL+"/"); ok && news {
			e.forgive(gen.ListenerURL, n)
		}
	}
	wanted := map[string]bool{}
	for _, body := range t.have {
		for _, r := range RouteNames([]byte(body)) {
			wanted[r] = true
		}
	}
	var add, drop []string
	for r := range wanted {
		if !e.types[gen.RouteURL].sub[r] {
			add = append(add, r)
		}
	}
	for r := range e.types[gen.RouteURL].sub {
		if !wanted[r] {
			drop = append(drop, r)
		}
	}
	slices.Sort(add)
	slices.Sort(drop)
	e.forget(drop)
	e.change(gen.RouteURL, add, drop)
}

// leaves takes endpoints and routes. What nobody subscribed has no effect; a removed assignment ends
// warming and keeps its endpoints.
func (e *Envoy) leaves(url string, items []item, removed []string) {
	t := e.types[url]
	for _, i := range items {
		if t.sub[i.name] {
			if url == gen.RouteURL {
				e.table(i.name, i.body)
			}
			t.have[i.name] = i.body
			if url == gen.EndpointURL {
				delete(e.warming, i.name)
			}
		}
	}
	for _, n := range removed {
		if url == gen.EndpointURL {
			e.violation("%s: %s was removed; endpoints stay", url, n)
			delete(e.warming, n)
			continue
		}
		delete(t.have, n)
	}
}

// NameOf reads the name of an encoded resource.
func NameOf(url string, body []byte) string {
	switch url {
	case gen.ClusterURL:
		m := &clusterv3.Cluster{}
		_ = proto.Unmarshal(body, m)
		return m.Name
	case gen.EndpointURL:
		m := &endpointv3.ClusterLoadAssignment{}
		_ = proto.Unmarshal(body, m)
		return m.ClusterName
	case gen.ListenerURL:
		m := &listenerv3.Listener{}
		_ = proto.Unmarshal(body, m)
		return m.Name
	case gen.RouteURL:
		m := &routev3.RouteConfiguration{}
		_ = proto.Unmarshal(body, m)
		return m.Name
	case gen.VirtualHostURL:
		m := &routev3.VirtualHost{}
		_ = proto.Unmarshal(body, m)
		return m.Name
	}
	return ""
}

// RouteNames lists the route tables that an encoded listener refers to.
func RouteNames(body []byte) (out []string) {
	l := &listenerv3.Listener{}
	if proto.Unmarshal(body, l) != nil {
		return nil
	}
	chains := l.FilterChains
	if l.DefaultFilterChain != nil {
		chains = append(chains, l.DefaultFilterChain)
	}
	for _, c := range chains {
		for _, f := range c.Filters {
			m := &hcmv3.HttpConnectionManager{}
			if any := f.GetTypedConfig(); any != nil && any.MessageIs(m) && any.UnmarshalTo(m) == nil && m.GetRds() != nil {
				out = append(out, m.GetRds().RouteConfigName)
			}
		}
	}
	return out
}
