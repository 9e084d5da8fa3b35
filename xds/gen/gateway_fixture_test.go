package gen_test

import (
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// gatewayOf makes the servers of a Gateway that selects all routers.
func gatewayOf(name string, servers ...*networking.Server) []*pushcontext.GatewayServer {
	var out []*pushcontext.GatewayServer
	for i, s := range servers {
		g := &pushcontext.GatewayServer{Namespace: "istio-system", Gateway: name, Created: epoch, Index: i, Spec: s,
			Source: model.Source{Object: model.ObjectKey{Kind: "Gateway", Namespace: "istio-system", Name: name}}}
		for _, h := range s.Hosts {
			ns, host, ok := strings.Cut(h, "/")
			if !ok {
				ns, host = "*", h
			}
			g.Hosts = append(g.Hosts, pushcontext.GatewayHost{Namespace: ns, Host: host})
		}
		out = append(out, g)
	}
	return out
}

// selecting has servers be for some routers only.
func selecting(labels model.Labels, servers []*pushcontext.GatewayServer) []*pushcontext.GatewayServer {
	for _, s := range servers {
		s.Selector = labels
	}
	return servers
}

// join puts Gateways behind one another, the oldest first.
func join(lists ...[]*pushcontext.GatewayServer) []*pushcontext.GatewayServer {
	return slices.Concat(lists...)
}

// gatewaysView holds servers, each with the VirtualServices that name its Gateway.
func gatewaysView(m *settings, servers []*pushcontext.GatewayServer, routes ...*pushcontext.VirtualService) *pushcontext.GatewaysView {
	v := &pushcontext.GatewaysView{Servers: servers, Mesh: m.MeshView}
	for _, s := range servers {
		s.Mesh = m.MeshView
		for k := range s.Selector {
			if !slices.Contains(v.Labels, k) {
				v.Labels = append(v.Labels, k)
			}
		}
		for _, x := range routes {
			if x.Bound(s.Name()) && slices.ContainsFunc(s.Hosts, func(h pushcontext.GatewayHost) bool { return h.Admits(x) }) {
				s.Bound = append(s.Bound, x)
			}
		}
	}
	slices.Sort(v.Labels)
	return v
}

// bound gives the servers their VirtualServices.
func bound(m *settings, servers []*pushcontext.GatewayServer, routes ...*pushcontext.VirtualService) []*pushcontext.GatewayServer {
	return gatewaysView(m, servers, routes...).Servers
}

// forwardingServers are the servers of Gateways that a mesh's AUTO_PASSTHROUGH servers are made from; each selects the routers
// that it selects there.
func forwardingServers(m *settings) []*pushcontext.GatewayServer {
	var out []*pushcontext.GatewayServer
	for _, a := range m.AutoPassthrough {
		for i, h := range a.Hosts {
			if rest, ok := strings.CutPrefix(h, "./"); ok {
				a.Hosts = slices.Clone(a.Hosts)
				a.Hosts[i] = a.Namespace + "/" + rest
			}
		}
		s := &networking.Server{Port: &networking.Port{Number: uint32(a.Port), Name: "tls", Protocol: "TLS"}, Hosts: a.Hosts,
			Tls: &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_AUTO_PASSTHROUGH}}
		out = append(out, selecting(a.Selector, gatewayOf("eastwest", s))...)
	}
	return out
}

func server(port uint32, protocol string, hosts ...string) *networking.Server {
	return &networking.Server{Port: &networking.Port{Number: port, Name: strings.ToLower(protocol), Protocol: protocol}, Hosts: hosts}
}

func httpServer(port uint32, hosts ...string) *networking.Server {
	return server(port, "HTTP", hosts...)
}

func tlsServer(port uint32, t *networking.ServerTLSSettings, hosts ...string) *networking.Server {
	s := server(port, "HTTPS", hosts...)
	s.Tls = t
	return s
}

// portNamed gives the server's port another name.
func portNamed(name string, s *networking.Server) *networking.Server {
	s.Port.Name = name
	return s
}

func fileTLS() *networking.ServerTLSSettings {
	return &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_SIMPLE,
		ServerCertificate: "/etc/certs/cert-chain.pem", PrivateKey: "/etc/certs/key.pem"}
}

func tlsOf(mode networking.ServerTLSSettings_TLSmode) *networking.ServerTLSSettings {
	t := fileTLS()
	t.Mode, t.CaCertificates = mode, "/etc/certs/root-cert.pem"
	return t
}

func through() *networking.ServerTLSSettings {
	return &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_PASSTHROUGH}
}

// routedTo is a VirtualService of a Gateway; rules are YAML.
func routedTo(name, gateway, hosts, rules string) *pushcontext.VirtualService {
	raw, err := yaml.YAMLToJSON([]byte("hosts: [" + hosts + "]\ngateways: [" + gateway + "]\n" + rules))
	spec := &networking.VirtualService{}
	if err == nil {
		err = spec.UnmarshalJSON(raw)
	}
	if err != nil {
		panic(err)
	}
	return &pushcontext.VirtualService{Namespace: "shop", Created: epoch, Hosts: spec.Hosts, Gateways: spec.Gateways, Spec: spec, Export: pushcontext.Export{Public: true},
		Source: model.Source{Object: model.ObjectKey{Kind: "VirtualService", Namespace: "shop", Name: name}}}
}
