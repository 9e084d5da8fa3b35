package world

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Fleet describes the proxies of a mesh: sidecars beside replicas of its services, spread over a
// number of classes. Proxies of one member and namespace are one class.
type Fleet struct {
	Classes    int
	Extensions int // how many extensions a node lists; a stock Envoy lists 516
}

// Proxy is one sidecar.
type Proxy struct {
	Class   string
	Network string
	Node    *corev3.Node
}

// Proxies gives n sidecars from number first on.
func (s Spec) Proxies(f Fleet, first, n int) []Proxy {
	ext := extensions(f.Extensions)
	ps := make([]Proxy, n)
	for k := range ps {
		ps[k] = s.proxy(f.Classes, first+k, ext)
	}
	return ps
}

func (s Spec) proxy(classes, i int, ext []*corev3.Extension) Proxy {
	class, turn := i%classes, i/classes
	perNamespace := max(1, s.Services/s.Namespaces)
	svc := class%s.Namespaces + s.Namespaces*(turn%perNamespace)
	m, r := s.Homes(svc)[class%s.Spread], turn/perNamespace%s.PerMember
	ns, name, ip := s.Namespace(svc), fmt.Sprintf("%s-%d", s.pod(svc, r), i), s.address(svc, m, r).String()
	md, err := structpb.NewStruct(map[string]any{
		"CLUSTER_ID": string(s.Member(m)), "NAMESPACE": ns, "NETWORK": s.Network(m), "ISTIO_VERSION": "1.31.0", "MESH_ID": "cluster.local",
		"INSTANCE_IPS": ip, "NAME": name, "LABELS": map[string]any{"app": s.Name(svc)}, "SERVICE_ACCOUNT": s.Name(svc), "INTERCEPTION_MODE": "REDIRECT",
		"NODE_NAME": s.node(svc, m, r),
	})
	if err != nil {
		panic(err) // the values above are of kinds that a Struct holds
	}
	if s.Networks > 0 { // or it would have no business with gateways
		for _, file := range []string{"CERT_CHAIN", "KEY", "ROOT_CERT"} {
			md.Fields["TLS_CLIENT_"+file] = structpb.NewStringValue("/etc/certs/" + file + ".pem")
		}
	}
	l := s.Locality(m, r)
	return Proxy{Class: string(s.Member(m)) + "/" + ns, Network: s.Network(m), Node: &corev3.Node{
		Id: fmt.Sprintf("sidecar~%s~%s.%s~%s.svc.cluster.local", ip, name, ns, ns), Cluster: s.Name(svc) + "." + ns, Metadata: md,
		Locality: &corev3.Locality{Region: l.Region, Zone: l.Zone}, UserAgentName: "envoy", Extensions: ext,
	}}
}

// extensions are as long as those that an Envoy lists.
func extensions(n int) []*corev3.Extension {
	out := make([]*corev3.Extension, n)
	for i := range out {
		out[i] = &corev3.Extension{
			Name: fmt.Sprintf("envoy.filters.http.example_%03d", i), Category: "envoy.filters.http",
			TypeUrls: []string{fmt.Sprintf("envoy.extensions.filters.http.example_%03d.v3.Example", i)},
		}
	}
	return out
}
