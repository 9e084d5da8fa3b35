// Package static is the registry of a service whose addresses, or DNS names, stand in its declaration: what a McpBridge calls static and dns.
package static

import (
	"context"
	"net/netip"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// Options say what the service is. All are required but for Created.
type Options struct {
	Key       model.ShardKey
	Service   *api.StaticService
	Namespace string       // of the service
	From      model.Source // the declaration
	Created   time.Time    // of the declaration
}

// Registry has one service, and never changes: a declaration that does is another Registry, which takes the place of the one before
// (clusters/registries).
type Registry struct{ opts Options }

// New gives the registry.
func New(o Options) *Registry { return &Registry{opts: o} }

// Key implements model.Registry.
func (r *Registry) Key() model.ShardKey { return r.opts.Key }

// Run implements model.Registry.
func (r *Registry) Run(ctx context.Context, out model.Sink) error {
	out.Replace(r.state())
	out.Status(model.Status{State: model.StateLive})
	<-ctx.Done()
	return ctx.Err()
}

// state is the service, its endpoints, and with TLS the rule that has proxies speak it, as Higress makes them.
func (r *Registry) state() *model.ShardState {
	s := r.opts.Service
	b := model.NewShardBuilder()
	b.Add(r.key("Service"), r.service())
	b.Add(r.key("Endpoints"), r.endpoints())
	if s.TLS {
		b.Add(r.key(model.ConfigDestinationRule), &model.Config{
			Kind: model.ConfigDestinationRule, Namespace: r.opts.Namespace, Name: s.Host, Created: r.opts.Created, Source: r.source(model.ConfigDestinationRule),
			Spec: &networking.DestinationRule{
				Host:          s.Host,
				TrafficPolicy: &networking.TrafficPolicy{Tls: &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, Sni: s.SNI}},
			},
		})
	}
	return b.Build()
}

func (r *Registry) key(kind string) string {
	return model.ObjectKey{Kind: kind, Namespace: r.opts.Namespace, Name: r.opts.Service.Host}.String()
}

func (r *Registry) source(kind string) model.Source {
	return model.Source{
		Shard: r.opts.Key, Object: model.ObjectKey{Kind: kind, Namespace: r.opts.Namespace, Name: r.opts.Service.Host},
		Revision: r.opts.From.Revision, Time: r.opts.From.Time,
	}
}

func (r *Registry) service() *model.Service {
	s := r.opts.Service
	out := &model.Service{
		Host: s.Host, Namespace: r.opts.Namespace, Name: s.Host, Resolution: model.ClientSideLB, Created: r.opts.Created, Source: r.source("Service"),
		Ports: []model.Port{{Name: portName(s), Number: s.Port, Protocol: protocol(s.Protocol)}},
	}
	if s.DNS {
		out.Resolution = model.DNSLB
	}
	return out
}

// protocol is what a proxy's clients speak: with TLS it is the proxy that adds that.
func protocol(word string) model.Protocol {
	switch word {
	case "https":
		return model.ProtocolHTTP
	case "grpcs":
		return model.ProtocolGRPC
	}
	p, known := model.RegistryProtocol(word)
	if !known {
		return model.ProtocolTCP
	}
	return p
}

func portName(s *api.StaticService) string { return protocol(s.Protocol).String() }

func (r *Registry) endpoints() *model.Endpoints {
	s, source := r.opts.Service, r.source("Endpoints")
	out := &model.Endpoints{Host: s.Host, Namespace: r.opts.Namespace, Source: source}
	for _, a := range s.Addresses {
		e := model.Endpoint{PortName: portName(s), Health: model.Healthy, Source: &out.Source}
		e.Addr = model.Addr{Cluster: r.opts.Key.Cluster, Host: a.Host, AddrPort: netip.AddrPortFrom(netip.Addr{}, a.Port)}
		if ip, err := netip.ParseAddr(a.Host); err == nil && !s.DNS {
			e.Addr.Host, e.Addr.AddrPort = "", netip.AddrPortFrom(ip.Unmap(), a.Port)
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	return out
}
