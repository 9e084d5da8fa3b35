package static_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/static"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink keeps what is delivered.
type sink struct {
	model.Sink
	state *model.ShardState
	done  func()
}

func (s *sink) Replace(full *model.ShardState) { s.state = full }
func (s *sink) Status(model.Status)            { s.done() }

// deliver runs a registry until it has delivered.
func deliver(t *testing.T, svc *api.StaticService) *model.ShardState {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out := &sink{done: cancel}
	r := static.New(static.Options{Key: model.ShardKey{Provider: model.ProviderStatic, Cluster: "billing"}, Service: svc, Namespace: "istio-system"})
	if err := r.Run(ctx, out); err != context.Canceled || r.Key().Cluster != "billing" {
		t.Fatal(err)
	}
	return out.state
}

func get[T model.Object](t *testing.T, s *model.ShardState, kind, host string) (out T) {
	t.Helper()
	o, ok := s.Row(model.RowKey{Kind: out.RowKind(), Key: kind + "/istio-system/" + host})
	if !ok {
		t.Fatalf("no %s", kind)
	}
	return o.(T)
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	s := deliver(t, &api.StaticService{Host: "billing.static", Port: 80, Protocol: "http", Addresses: []api.StaticAddress{{Host: "10.9.0.4", Port: 7001}, {Host: "fd00::4", Port: 7002}}})
	svc := get[*model.Service](t, s, "Service", "billing.static")
	if p := svc.Ports[0]; svc.Resolution != model.ClientSideLB || p.Number != 80 || p.Name != "http" || p.Protocol != model.ProtocolHTTP {
		t.Errorf("%+v", svc)
	}
	eps := get[*model.Endpoints](t, s, "Endpoints", "billing.static").Endpoints
	if len(eps) != 2 || eps[0].Addr.String() != "10.9.0.4:7001" || eps[1].Addr.String() != "[fd00::4]:7002" || eps[1].Addr.Cluster != "billing" || eps[0].PortName != "http" {
		t.Errorf("%+v", eps)
	}
	if s.Len() != 2 {
		t.Errorf("%d rows", s.Len())
	}
}

// Names are resolved by proxies, which speak TLS for clients that do not.
func TestNamesWithTLS(t *testing.T) {
	t.Parallel()
	s := deliver(t, &api.StaticService{Host: "partner.dns", DNS: true, Port: 443, Protocol: "https", TLS: true, SNI: "api.example.com", Addresses: []api.StaticAddress{{Host: "api.example.com", Port: 443}}})
	svc := get[*model.Service](t, s, "Service", "partner.dns")
	if svc.Resolution != model.DNSLB || svc.Ports[0].Protocol != model.ProtocolHTTP {
		t.Errorf("%+v", svc)
	}
	if e := get[*model.Endpoints](t, s, "Endpoints", "partner.dns").Endpoints[0]; e.Addr.String() != "api.example.com:443" {
		t.Errorf("%+v", e)
	}
	tls := get[*model.Config](t, s, "DestinationRule", "partner.dns").Spec.(*networking.DestinationRule).TrafficPolicy.Tls
	if tls.Mode != networking.ClientTLSSettings_SIMPLE || tls.Sni != "api.example.com" {
		t.Errorf("%v", tls)
	}
}

func TestProtocols(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]model.Protocol{
		"auto": model.ProtocolUnknown, "grpcs": model.ProtocolGRPC, "triple": model.ProtocolGRPC, "dubbo": model.ProtocolTCP, "tls": model.ProtocolTLS, "grpc": model.ProtocolGRPC,
	} {
		s := deliver(t, &api.StaticService{Host: "a.static", Port: 1, Protocol: word, Addresses: []api.StaticAddress{{Host: "10.0.0.1", Port: 1}}})
		if p := get[*model.Service](t, s, "Service", "a.static").Ports[0]; p.Protocol != want {
			t.Errorf("%s: %s", word, p.Protocol)
		}
	}
}
