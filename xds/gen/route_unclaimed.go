package gen

import (
	"net/netip"
	"strings"
	"sync"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// unclaimedHost is a host of a VirtualService that no service has, or a pattern of hosts.
type unclaimedHost struct {
	host    string
	address bool
	routes  routeKey
}

// unclaimedHosts are those that the class has routes for, each once: the oldest VirtualService counts.
func unclaimedHosts(v *pushcontext.PortView, c Class) []unclaimedHost {
	if len(v.Unclaimed) == 0 || c.Type != Sidecar {
		return nil
	}
	var out []unclaimedHost
	seen := map[string]bool{}
	for _, u := range v.Unclaimed {
		vs := u.VirtualService
		if !vs.Export.Includes(c.Namespace) || !importsRoute(c.Scope, vs, v.Number) {
			continue
		}
		k := routeKeyOf(vs, c)
		for _, h := range u.Hosts {
			if !headerText(h) || seen[canonical(h)] {
				continue
			}
			seen[canonical(h)] = true
			if k.applies(v.Number) {
				x := unclaimedHost{host: h, routes: k}
				x.address = hostAddress(h)
				out = append(out, x)
			}
		}
	}
	return out
}

// hostAddress reports whether a host is an address, as it stands in a Host header or bare.
func hostAddress(h string) bool {
	_, err := netip.ParseAddr(strings.Trim(h, "[]"))
	return err == nil
}

// everyHost is the host of rules for all hosts that no other rule is for. Its virtual host is part of the table also
// where others come one by one: it takes the place of the table's own, and Envoy refuses two of them.
const everyHost = "*"

// ruleForRest gives what a VirtualService in force says of every host; nil if there is none.
func ruleForRest(v *pushcontext.PortView, c Class) *routev3.VirtualHost {
	for _, u := range unclaimedHosts(v, c) {
		if u.host == everyHost {
			return u.virtualHost(v)
		}
	}
	return nil
}

// unclaimedCache keeps the encoded virtual hosts of one VirtualService.
type unclaimedCache struct {
	mu    sync.Mutex
	mesh  *pushcontext.MeshView   // guarded by mu; the settings that the hosts were made under
	bytes map[unclaimedKey][]byte // guarded by mu
}

// unclaimedKey is all that such a virtual host depends on beside the settings of the mesh.
type unclaimedKey struct {
	host   string
	port   uint16
	routes routeKey
}

func (u *unclaimedCache) get(k unclaimedKey, m *pushcontext.MeshView) []byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mesh != m {
		return nil
	}
	return u.bytes[k]
}

func (u *unclaimedCache) put(k unclaimedKey, m *pushcontext.MeshView, b []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mesh != m {
		u.mesh, u.bytes = m, map[unclaimedKey][]byte{}
	}
	u.bytes[k] = b
}

// encoded gives the virtual host with its field tag.
func (u *unclaimedHost) encoded(v *pushcontext.PortView) ([]byte, error) {
	cache := u.routes.service.Derived().Do(pushcontext.MemoKey{Generator: memoForeign},
		func() any { return &unclaimedCache{} }).(*unclaimedCache)
	k := unclaimedKey{u.host, v.Number, u.routes}
	if b := cache.get(k, v.Mesh); b != nil {
		return b, nil
	}
	b, err := taggedHost(u.virtualHost(v))
	if err == nil {
		cache.put(k, v.Mesh, b)
	}
	return b, err
}

func (u *unclaimedHost) virtualHost(v *pushcontext.PortView) *routev3.VirtualHost {
	routes, _ := u.routes.routes(v.Number, v.Mesh)
	domains := []string{u.host}
	if !strings.HasPrefix(u.host, "*") && !strings.HasSuffix(u.host, ".") && !u.address {
		domains = append(domains, u.host+".")
	}
	return &routev3.VirtualHost{Name: sniffedRoute(u.host, v.Number), Domains: domains, IncludeRequestAttemptCount: true, Routes: routes}
}
