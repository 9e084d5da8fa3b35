package gen

import (
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// VirtualHosts makes VHDS resources: the virtual hosts of the tables that hosts of a port share, for sidecars
// that take them one by one. A new service is then one resource, and not a table of thousands of hosts.
//
// The name of a resource, and of the virtual host in it, is "<table>/<name of the host in the table>": Envoy
// finds the table by what is before the slash, and what it is to remove by the virtual host's own name.
type VirtualHosts struct{}

// TypeURL implements Generator.
func (VirtualHosts) TypeURL() string { return VirtualHostURL }

// Kinds implements Generator.
func (VirtualHosts) Kinds() []pushcontext.ViewKind {
	return []pushcontext.ViewKind{pushcontext.ViewPort}
}

// Key implements Generator.
func (VirtualHosts) Key(name string) (pushcontext.ViewKey, bool) {
	table, _, ok := strings.Cut(name, "/")
	port, isPort := parsePort(table)
	return pushcontext.ViewKey{Kind: pushcontext.ViewPort, Port: port}, ok && isPort
}

// Whole implements Parts.
func (VirtualHosts) Whole(key pushcontext.ViewKey) string { return itoa(key.Port) }

// None implements Parts.
func (VirtualHosts) None(table string) string { return table + "/-" }

// Traits implements Generator.
func (VirtualHosts) Traits(v pushcontext.View) Traits { return Routes{}.Traits(v) }

// Narrow implements Narrower.
func (VirtualHosts) Narrow(v pushcontext.View, c Class) Class { return Routes{}.Narrow(v, c) }

// Scope implements Narrower.
func (VirtualHosts) Scope(v pushcontext.View) string { return Routes{}.Scope(v) }

// Names implements Generator.
func (VirtualHosts) Names(v pushcontext.View, c Class) []string {
	names, _, err := VirtualHosts{}.Bundle(v, c)
	if err != nil {
		panic(err) // costs this view, and what proxies have of it stays
	}
	return names
}

// Bundle implements Bundler.
func (VirtualHosts) Bundle(v pushcontext.View, c Class) (names []string, bodies [][]byte, err error) {
	p, ok := v.(*pushcontext.PortView)
	if !ok || !c.VHDS || c.Type == Router || !planOf(p, c).http {
		return nil, nil, nil
	}
	l := hostListOf(p, c)
	return l.names, l.bodies, l.err
}

// Build implements Generator.
func (VirtualHosts) Build(v pushcontext.View, c Class, name string) ([]byte, error) {
	p, ok := v.(*pushcontext.PortView)
	if !ok {
		return nil, errView(VirtualHostURL, v)
	}
	if !c.VHDS || c.Type == Router {
		return nil, errName(VirtualHostURL, name)
	}
	l := hostListOf(p, c)
	if i := slices.Index(l.names, name); i >= 0 {
		return l.bodies[i], nil
	}
	return nil, errName(VirtualHostURL, name)
}

// hostPart is one virtual host on its own.
type hostPart struct {
	name string
	body []byte
	from *byte // the first byte of what it is made from: what is shared stays where it is
}

// hostList is the virtual hosts of one table as a class of proxies sees them.
type hostList struct {
	names  []string
	bodies [][]byte
	from   []*byte // see hostPart
	err    error
}

// hostParts keeps the lists of one PortView, and those of the one before it until the next comes.
type hostParts struct {
	mu     sync.Mutex
	lists  map[Class]*hostList // guarded by mu
	before map[Class]*hostList // read-only
}

func hostListOf(v *pushcontext.PortView, c Class) *hostList {
	key := pushcontext.MemoKey{Generator: memoVirtual}
	parts := v.Derived().Do(key, func() any {
		out := &hostParts{lists: map[Class]*hostList{}}
		if old, ok := v.Derived().Before(key).(*hostParts); ok {
			out.before = old.current()
		}
		return out
	}).(*hostParts)
	parts.mu.Lock()
	l := parts.lists[c]
	parts.mu.Unlock()
	if l != nil {
		return l
	}
	l = makeHostList(v, c, parts.before[c])
	parts.mu.Lock()
	defer parts.mu.Unlock()
	parts.lists[c] = l
	return l
}

// current gives a copy of the lists, which are immutable.
func (p *hostParts) current() map[Class]*hostList {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[Class]*hostList, len(p.lists))
	for c, l := range p.lists {
		out[c] = l
	}
	return out
}

// makeHostList takes from the list before, which may be nil, what is made from the same.
func makeHostList(v *pushcontext.PortView, c Class, before *hostList) *hostList {
	hosts, _, err := encodedHosts(v, c)
	if err != nil {
		return &hostList{err: err}
	}
	l := &hostList{names: make([]string, 0, len(hosts)), bodies: make([][]byte, 0, len(hosts)), from: make([]*byte, 0, len(hosts))}
	table, at := sharedRoute(c, v.Number), 0
	for _, h := range hosts {
		if len(h) == 0 {
			continue
		}
		part, ok := before.find(&h[0], &at)
		if !ok {
			part = partOfTable(table, h)
		}
		l.names, l.bodies, l.from = append(l.names, part.name), append(l.bodies, part.body), append(l.from, part.from)
	}
	return l
}

// find looks for what is made from shared bytes, at the place where the last search ended and the next one.
func (l *hostList) find(from *byte, at *int) (hostPart, bool) {
	if l == nil {
		return hostPart{}, false
	}
	for i := *at; i < min(*at+2, len(l.from)); i++ {
		if l.from[i] == from {
			*at = i + 1
			return hostPart{name: l.names[i], body: l.bodies[i], from: from}, true
		}
	}
	return hostPart{}, false
}

// partOfTable makes a virtual host of its own from one that is encoded with its field tag, as it stands in a
// table.
func partOfTable(table string, tagged []byte) hostPart {
	_, _, n := protowire.ConsumeTag(tagged)
	body, _ := protowire.ConsumeBytes(tagged[n:])
	num, _, n := protowire.ConsumeTag(body)
	name, rest := []byte(nil), body
	if num == fieldName { // the first field, if there is one
		var m int
		name, m = protowire.ConsumeBytes(body[n:])
		rest = body[n+m:]
	}
	p := hostPart{name: table + "/" + string(name), from: &tagged[0]}
	p.body = protowire.AppendTag(make([]byte, 0, len(p.name)+len(rest)+8), fieldName, protowire.BytesType)
	p.body = append(protowire.AppendString(p.body, p.name), rest...)
	return p
}
