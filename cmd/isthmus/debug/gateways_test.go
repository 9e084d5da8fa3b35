package debug_test

import (
	"net/http"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug/debugtest"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// atEdge are the proxies of debugtest, of which the gateway is a router with a label.
type atEdge struct{ *connected }

type connected = debugtest.Proxies

func (p atEdge) Audience(connection string) (gen.Class, pushcontext.Reader, error) {
	c, r, err := p.connected.Audience(connection)
	c.Type, c.Labels, c.GatewayPorts = gen.Router, gen.NewLabels(model.Labels{"app": "gw"}), "80:8080"
	return c, r, err
}

// TestGatewaysOfARouter: each server of the Gateways that select it, with its place or the reason why it has none.
func TestGatewaysOfARouter(t *testing.T) {
	t.Parallel()
	o := options()
	mesh := o.Snapshot().Mesh
	server := func(name, app, protocol string, bound ...*pushcontext.VirtualService) *pushcontext.GatewayServer {
		return &pushcontext.GatewayServer{Namespace: "edge", Gateway: name, Selector: model.Labels{"app": app}, Mesh: mesh, Bound: bound, Hosts: []pushcontext.GatewayHost{{Host: "*"}},
			Source: model.Source{Shard: model.ShardKey{Cluster: "east"}}, Spec: &networking.Server{Port: &networking.Port{Number: 80, Protocol: protocol, Name: "p"}, Hosts: []string{"*"}}}
	}
	routes := &pushcontext.VirtualService{Export: pushcontext.Export{Public: true}, Spec: &networking.VirtualService{}}
	routes.Source.Object = model.ObjectKey{Kind: "VirtualService", Namespace: "shop", Name: "web"}
	pc := *o.Snapshot()
	pc.Gateways = &pushcontext.GatewaysView{Mesh: mesh, Labels: []string{"app"}, Servers: []*pushcontext.GatewayServer{
		server("public", "gw", "HTTP", routes), server("elsewhere", "other", "HTTP"), server("rival", "gw", "TCP")}}
	o.Snapshot, o.Proxies = func() *pushcontext.PushContext { return &pc }, atEdge{debugtest.Connected(nil)}
	w := serve(o, local("/debug/gateways?proxyID=gateway-1.edge"))
	if w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body)
	}
	compare(t, "gateways", w.Body.Bytes())
	if none := serve(options(), local("/debug/gateways?proxyID=gateway-1.edge")); none.Code != http.StatusOK || none.Body.String() != "[]\n" {
		t.Errorf("without Gateways: %d %s", none.Code, none.Body)
	}
	if bad := serve(options(), local("/debug/gateways")); bad.Code != http.StatusBadRequest {
		t.Errorf("without a proxy: %d %s", bad.Code, bad.Body)
	}
}
