package gen_test

import (
	"fmt"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// What a proxy's agent was told goes before the mesh's defaultConfig as a whole, at gateways and at sidecars, on one view.
func TestProxySettingsOfTheProxyItself(t *testing.T) {
	t.Parallel()
	m := newMesh(func(m *settings) {
		m.Config.EnableTracing = true
		m.Config.DefaultConfig = &meshconfig.ProxyConfig{GatewayTopology: &meshconfig.Topology{NumTrustedProxies: 3}, Tracing: &meshconfig.Tracing{Sampling: 7}}
	})
	gateway := gatewaysView(m, gatewayOf("a", httpServer(80, "*")))
	port := portView(80, m, svc{host: cartHost, ports: []model.Port{httpPort(80)}})
	for want, own := range map[string]*meshconfig.ProxyConfig{
		"hops 3 sampling 7": nil, "hops 0 sampling 1": {},
		"hops 2 sampling 20": {GatewayTopology: &meshconfig.Topology{NumTrustedProxies: 2}, Tracing: &meshconfig.Tracing{Sampling: 20}},
	} {
		told := func(c *gen.Class) {
			if own != nil {
				c.Tuning.Own = gen.NewProxySettings(own)
			}
		}
		managed := managerOf(t, decode(t, build(t, gen.Listeners{}, gateway, edge(told))[0]).(*listenerv3.Listener).FilterChains[0])
		traced := managerOf(t, decode(t, build(t, gen.Listeners{}, port, sidecar("c1", "shop", told))[0]).(*listenerv3.Listener).FilterChains[0])
		if got := fmt.Sprintf("hops %d sampling %v", managed.GetXffNumTrustedHops(), traced.GetTracing().GetRandomSampling().GetValue()); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
