package xdstest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
)

// Virtual hosts on their own, as Envoy 1.40 takes them: one subscription for the hosts of all tables, made with
// the first table that says so. Hosts of a table that it does not have are acknowledged, listed when it
// reconnects, and lost; a table that goes takes its hosts along, though they are listed for ever. A new
// table waits for the first update that is about it, of whatever kind. A domain that is twice in a table
// refuses the whole response.

// tableOf gives the table that a host is for.
func tableOf(host string) string {
	i := strings.LastIndexByte(host, '/')
	return host[:max(i, 0)]
}

func usesVHDS(body string) bool {
	var r routev3.RouteConfiguration
	return proto.Unmarshal([]byte(body), &r) == nil && r.GetVhds() != nil
}

// table takes a route table, new or changed.
func (e *Envoy) table(name, body string) {
	if !usesVHDS(body) {
		delete(e.unready, name)
		return
	}
	if e.protocol == wire.SotW {
		e.violation("%s: table %s has its hosts on their own, which only delta clients take", gen.RouteURL, name)
	}
	if _, old := e.types[gen.RouteURL].have[name]; !old {
		e.unready[name] = true
	}
	if !e.types[gen.VirtualHostURL].asked {
		e.first(gen.VirtualHostURL)
	}
}

// forget drops the hosts of tables that are given up.
func (e *Envoy) forget(tables []string) {
	for _, t := range tables {
		delete(e.unready, t)
	}
	maps.DeleteFunc(e.types[gen.VirtualHostURL].have, func(n, _ string) bool { return slices.Contains(tables, tableOf(n)) })
}

// hosts takes a response and gives the reason why it is refused, "" if it is not.
func (e *Envoy) hosts(items []item, removed []string) string {
	t := e.types[gen.VirtualHostURL]
	next := maps.Clone(t.have)
	tables := map[string]bool{}
	update := func(name string) bool {
		table := tableOf(name)
		if !usesVHDS(e.types[gen.RouteURL].have[table]) {
			return false
		}
		tables[table] = true
		return true
	}
	for _, n := range removed {
		update(n)
		delete(next, n)
	}
	for _, i := range items {
		if own := NameOf(gen.VirtualHostURL, []byte(i.body)); own != i.name {
			e.violation("%s: %s calls itself %s, and could not be removed", gen.VirtualHostURL, i.name, own)
		}
		if update(i.name) {
			next[i.name] = i.body
		}
	}
	for table := range tables {
		if d := twice(next, table); d != "" {
			return fmt.Sprintf("Only unique values for domains are permitted. Duplicate entry of domain %s in route %s", d, table)
		}
		delete(e.unready, table)
	}
	t.have = next
	return ""
}

// twice gives a domain that two hosts of a table have.
func twice(hosts map[string]string, table string) string {
	seen := map[string]bool{}
	for n, body := range hosts {
		if tableOf(n) != table {
			continue
		}
		var h routev3.VirtualHost
		_ = proto.Unmarshal([]byte(body), &h)
		for _, d := range h.Domains {
			if seen[d] {
				return d
			}
			seen[d] = true
		}
	}
	return ""
}

// Unready lists the route tables that wait for an update of their hosts, and whose listeners wait with them.
func (e *Envoy) Unready() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.unready))
}
