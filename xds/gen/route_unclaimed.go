package gen

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"sync"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// A host of a VirtualService that is no service's is a virtual host of its own, as with Istio: at port 80, and at the ports of
// the services that the VirtualService is for besides. Which hosts are, each proxy has its own answer to: those of which it
// sees a service with the port are that service's, and a pattern that stands for such services stands for no others.

// unclaimedHost is such a host, or a pattern of hosts.
type unclaimedHost struct {
	host    string
	address bool
	routes  routeKey
}

// findUnclaimed finds them, each once: the oldest VirtualService that says something of the port counts.
func (t *table) findUnclaimed() {
	if t.class.Type != Sidecar {
		return
	}
	seen := map[string]bool{}
	for _, vs := range routesBeside(t.view) {
		if !vs.Export.Includes(t.class.Namespace) || !importsRoute(t.class.Scope, vs, t.view.Number) {
			continue
		}
		hosts, served := t.split(vs)
		if !served && t.view.Number != pushcontext.RoutedPort {
			continue
		}
		k := routeKeyOf(vs, t.class)
		if len(hosts) == 0 || !k.applies(t.view.Number) {
			continue
		}
		for _, h := range hosts {
			if headerText(h) && !seen[canonical(h)] {
				seen[canonical(h)] = true
				t.unclaimed = append(t.unclaimed, unclaimedHost{host: h, routes: k, address: hostAddress(h)})
			}
		}
	}
}

// split gives the hosts of a VirtualService that are no service's in the table, and whether it is for services there.
func (t *table) split(vs *pushcontext.VirtualService) (hosts []string, served bool) {
	for _, h := range vs.Hosts {
		if !strings.HasPrefix(h, "*") {
			i, claimed := t.named(h)
			served = served || claimed && t.routed(i)
			if !claimed {
				hosts = append(hosts, h)
			}
			continue
		}
		claimed := false
		for i := range t.placed.services {
			s := t.placed.services[i].shape
			if !pushcontext.HostMatches(h, strings.ToLower(s.Key.Host)) {
				continue
			}
			claimed = true
			if served = served || t.routed(i) && virtualServiceFor(s, t.class, t.view.Number) == vs; served {
				break
			}
		}
		if !claimed && h != everyHost {
			hosts = append(hosts, h)
		}
	}
	return hosts, served
}

// everyHost is for gateways only: the mesh says what is to become of unknown hosts.
const everyHost = "*"

// routesBeside gives the VirtualServices that may have hosts of no service at a port, oldest first.
func routesBeside(v *pushcontext.PortView) []*pushcontext.VirtualService {
	if v.Number == pushcontext.RoutedPort {
		return v.Routes
	}
	return v.Derived().Do(pushcontext.MemoKey{Generator: memoBeside}, func() any {
		var out []*pushcontext.VirtualService
		known := map[*pushcontext.VirtualService]bool{}
		for _, s := range v.Services {
			for _, vs := range s.VirtualServices {
				if len(vs.Hosts) > 1 && len(vs.Spec.GetHttp()) > 0 && !known[vs] {
					known[vs] = true
					out = append(out, vs)
				}
			}
		}
		slices.SortFunc(out, func(a, b *pushcontext.VirtualService) int {
			return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Source.Object.Name, b.Source.Object.Name))
		})
		return out
	}).([]*pushcontext.VirtualService)
}

// hostAddress reports whether a host is an address, as it stands in a Host header or bare.
func hostAddress(h string) bool {
	_, err := netip.ParseAddr(strings.Trim(h, "[]"))
	return err == nil
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
