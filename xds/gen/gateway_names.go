package gen

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"

	networking "istio.io/api/networking/v1alpha3"
)

// Names of what routers have of Gateways. Those of listeners differ from those of a service port's listeners, which
// are made from other views.
const (
	gatewayListenerPrefix = "gateway_"
	plainTablePrefix      = "http."
	secureTablePrefix     = "https."
)

// gatewayListener is "gateway_<bind>_<port>".
func gatewayListener(at socket, c Class) string {
	bind := at.bind
	if bind == "" {
		bind = c.bind().String()
	}
	return gatewayListenerPrefix + bind + "_" + itoa(at.port)
}

// tableOf is "http.<target port>[.<bind>]", which HTTP servers of a socket share, or
// "https.<port>.<port name>.<gateway>.<namespace>[.<bind>]" of one that ends TLS.
func tableOf(s *routerServer, at socket) string {
	bind := ""
	if at.bind != "" {
		bind = "." + at.bind
	}
	switch {
	case s.shares == sharesHosts:
		return plainTablePrefix + itoa(at.port) + bind
	case s.protocol == model.ProtocolHTTPS && !passesThrough(s.Spec.Tls):
		return secureTablePrefix + strings.Join([]string{itoa(s.number), s.Spec.Port.Name, s.Gateway, s.Namespace}, ".") + bind
	}
	return ""
}

func passesThrough(t *networking.ServerTLSSettings) bool {
	return t.GetMode() == networking.ServerTLSSettings_PASSTHROUGH || t.GetMode() == networking.ServerTLSSettings_AUTO_PASSTHROUGH
}

// gatewayTable reports whether a name is of that form, and not of a service's own table ("<host>:<port>").
func gatewayTable(name string) bool {
	if rest, ok := strings.CutPrefix(name, plainTablePrefix); ok {
		num, bind, bound := strings.Cut(rest, ".")
		return serverPort(num, pipe(bind)) && (!bound || binds(bind))
	}
	rest, ok := strings.CutPrefix(name, secureTablePrefix)
	if !ok {
		return false
	}
	num, rest, _ := strings.Cut(rest, ".")
	atPath := strings.Contains(rest, ".unix://")
	if !serverPort(num, atPath) || strings.Count(rest, ".") < 2 {
		return false
	}
	return !strings.Contains(rest, ":") || atPath || binds(rest[strings.LastIndexByte(rest, '.')+1:])
}

// serverPort reports whether a text is the port of a server, which may be 0 where it binds to a path.
func serverPort(num string, atPath bool) bool {
	_, ok := parsePort(num)
	return ok || atPath && num == "0"
}

func binds(s string) bool {
	if pipe(s) {
		return true
	}
	a, err := netip.ParseAddr(s)
	return err == nil && a.Zone() == ""
}

// routerSummary has the labels that tell routers apart: those that Gateways select by and routes look at.
type routerSummary struct{ sources }

func routersOf(v *pushcontext.GatewaysView) *routerSummary {
	return v.Derived().Do(pushcontext.MemoKey{Generator: memoRouters}, func() any {
		out := &routerSummary{}
		out.name(slices.Values(v.Labels))
		for _, s := range v.Servers {
			for _, vs := range s.Bound {
				out.name(slices.Values(sourcesOf(vs).labels))
			}
		}
		return out
	}).(*routerSummary)
}

// narrow drops of a class what makes no difference to what it has of Gateways; a sidecar has nothing. The namespace stays, also
// while all VirtualServices are for everybody: or the first that is not would have everything sent anew.
func (r *routerSummary) narrow(c Class) Class {
	if c.Type != Router {
		return Class{Type: c.Type}
	}
	c.Labels, c.ExposeServices = c.Labels.Only(r.labels), false
	return c
}

// scope is equal for views that tell routers apart by the same labels.
func (r *routerSummary) scope() string { return strings.Join(r.labels, labelEnd) }
