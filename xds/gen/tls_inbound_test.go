package gen_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// chain writes what a chain takes and what it makes of it.
func chain(t testing.TB, f *listenerv3.FilterChain) string {
	t.Helper()
	m := f.GetFilterChainMatch()
	out := fmt.Sprintf("%d %s %s -> %s", m.GetDestinationPort().GetValue(), m.GetTransportProtocol(), strings.Join(m.GetApplicationProtocols(), ","), proxied(t, f))
	if f.TransportSocket != nil {
		d := &tlsv3.DownstreamTlsContext{}
		if err := f.TransportSocket.GetTypedConfig().UnmarshalTo(d); err != nil {
			t.Fatal(err)
		}
		if !d.RequireClientCertificate.GetValue() || d.CommonTlsContext.GetValidationContext().GetTrustedCa() == nil {
			t.Errorf("%s: callers are not verified", f.Name)
		}
		out += " mtls:" + strings.Join(d.CommonTlsContext.AlpnProtocols, ",")
	}
	return out
}

func inboundChains(t testing.TB, c gen.Class, targets ...pushcontext.Target) ([]string, *listenerv3.Listener) {
	t.Helper()
	v := &pushcontext.TargetsView{Mesh: newMesh().MeshView, Targets: targets}
	l := decode(t, build(t, gen.Listeners{}, v, c)[0]).(*listenerv3.Listener)
	var out []string
	for _, f := range l.FilterChains[1:] {
		out = append(out, chain(t, f))
	}
	return out, l
}

func TestInboundModes(t *testing.T) {
	t.Parallel()
	const (
		mesh, meshHTTP, mine = "istio-peer-exchange,istio", "istio-http/1.0,istio-http/1.1,istio-h2", "inbound|8000||"
		all, http, auto      = mesh + "," + meshHTTP, "mtls:h2,http/1.1", "http/1.1,h2c"
	)
	for name, c := range map[string]struct {
		protocol model.Protocol
		mode     model.MTLS
		files    bool
		want     []string
	}{
		"http":           {model.ProtocolHTTP, model.MTLSPermissive, true, []string{"8000 tls " + all + " -> http " + http, "8000   -> http"}},
		"http strict":    {model.ProtocolHTTP, model.MTLSStrict, true, []string{"8000 tls  -> http " + http}},
		"http disabled":  {model.ProtocolHTTP, model.MTLSDisabled, true, []string{"8000   -> http"}},
		"http bare":      {model.ProtocolHTTP, model.MTLSPermissive, false, []string{"8000   -> http"}},
		"bare, disabled": {model.ProtocolTCP, model.MTLSDisabled, false, []string{"8000   -> " + mine}},
		"bare, strict":   {model.ProtocolHTTP, model.MTLSStrict, false, []string{"8000   -> BlackHoleCluster"}},
		"tcp": {model.ProtocolTCP, model.MTLSPermissive, true, []string{
			"8000 tls " + all + " -> " + mine + " " + http, "8000 tls  -> " + mine, "8000   -> " + mine}},
		"tcp strict": {model.ProtocolTCP, model.MTLSStrict, true, []string{"8000 tls  -> " + mine + " " + http}},
		"auto": {model.ProtocolUnknown, model.MTLSPermissive, true, []string{
			"8000 tls " + meshHTTP + " -> http " + http, "8000 tls " + mesh + " -> " + mine + " " + http, "8000 tls  -> " + mine,
			"8000 raw_buffer " + auto + " -> http", "8000 raw_buffer  -> " + mine, "8000   -> " + mine}},
		"auto strict": {model.ProtocolUnknown, model.MTLSStrict, true, []string{
			"8000 tls " + meshHTTP + " -> http " + http, "8000 tls  -> " + mine + " " + http}},
		"auto disabled": {model.ProtocolUnknown, model.MTLSDisabled, true, []string{
			"8000 raw_buffer " + auto + " -> http", "8000 raw_buffer  -> " + mine, "8000   -> " + mine}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			class := sidecar("c1", "shop")
			if c.files {
				secured(&class)
			}
			got, l := inboundChains(t, class, pushcontext.Target{Host: "a", Port: 80, Protocol: c.protocol, Endpoint: 8000, MTLS: c.mode})
			got = slices.DeleteFunc(got, func(s string) bool { return strings.HasPrefix(s, "0 ") })
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			// Where only the server may speak first, nothing is waited for.
			waits := l.ListenerFilters[1].FilterDisabled == nil
			if want := c.protocol.Sniffed() || c.files && c.mode != model.MTLSDisabled; waits != want {
				t.Errorf("the TLS inspector is on: %v, want %v", waits, want)
			}
		})
	}
}

// Ports of no service take what PeerAuthentication says of the workload.
func TestOtherInboundPorts(t *testing.T) {
	t.Parallel()
	const (
		mesh, meshHTTP = "istio-peer-exchange,istio", "istio-http/1.0,istio-http/1.1,istio-h2"
		pass, http     = "InboundPassthroughCluster", "mtls:h2,http/1.1"
	)
	target := func(own, others model.MTLS) []pushcontext.Target {
		return []pushcontext.Target{{Host: "a", Port: 80, Protocol: model.ProtocolHTTP, Endpoint: 1, MTLS: own, OtherMTLS: others}}
	}
	permissive := []string{
		"0 tls " + meshHTTP + " -> http " + http, "0 tls " + mesh + " -> " + pass + " " + http, "0 tls  -> " + pass,
		"0 raw_buffer http/1.1,h2c -> http", "0 raw_buffer  -> " + pass, "0   -> " + pass}
	for name, c := range map[string]struct {
		targets []pushcontext.Target
		want    []string
	}{
		"no service": {nil, permissive},
		"strict":     {target(model.MTLSDisabled, model.MTLSStrict), []string{"0 tls " + meshHTTP + " -> http " + http, "0 tls  -> " + pass + " " + http}},
		"permissive": {target(model.MTLSStrict, model.MTLSPermissive), permissive},
		"disabled":   {target(model.MTLSStrict, model.MTLSDisabled), permissive[3:]},
	} {
		got, _ := inboundChains(t, sidecar("c1", "shop", secured), c.targets...)
		got = slices.DeleteFunc(got, func(s string) bool { return !strings.HasPrefix(s, "0 ") })
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
}
