package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// networked is a proxy on a network that subscribes to the endpoints of a cluster.
type networked struct {
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

func onNetwork(t *testing.T, r *running, network, cluster string) networked {
	t.Helper()
	meta, err := structpb.NewStruct(map[string]any{"CLUSTER_ID": "east", "NAMESPACE": "shop", "NETWORK": network})
	if err != nil {
		t.Fatal(err)
	}
	p := networked{adsClient(t, r.grpc)}
	node := &corev3.Node{Id: "sidecar~10.250.0.1~client-" + network + ".shop~shop.svc.cluster.local", Metadata: meta}
	if err := p.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: gen.EndpointURL, ResourceNamesSubscribe: []string{cluster}}); err != nil {
		t.Fatal(err)
	}
	return p
}

// next gives the addresses of the next response, which it ACKs.
func (p networked) next(t *testing.T) string {
	t.Helper()
	res, err := p.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range res.Resources {
		var a endpointv3.ClusterLoadAssignment
		if err := r.Resource.UnmarshalTo(&a); err != nil {
			t.Fatal(err)
		}
		for _, l := range a.Endpoints {
			for _, e := range l.LbEndpoints {
				s := e.GetEndpoint().Address.GetSocketAddress()
				out = append(out, fmt.Sprint(s.Address, ":", s.GetPortValue()))
			}
		}
	}
	if err := p.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.EndpointURL, ResponseNonce: res.Nonce}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestTaggedAddressesByNetwork: proxies on two networks dial an instance of Consul at different addresses, and everything says so.
func TestTaggedAddressesByNetwork(t *testing.T) {
	t.Parallel()
	c := newConsul(t, map[string][]string{"web": {"10.7.0.1", "10.7.0.2"}})
	c.wan = map[string]string{"10.7.0.1": "198.51.100.1"}
	r := startHub(t, map[string]string{"east/services.yaml": serviceYAML("east", "10.1.0.1"),
		"east/a.yaml": registryYAML("legacy", c.address(), ", network: home, consul: {taggedAddresses: {dmz: wan}}")}, "--cluster-id", "east")
	r.untilAddresses(t, "web.dc1.consul", "10.7.0.1:8080", "10.7.0.2:8080")
	cluster := "outbound|8080||web.dc1.consul"
	home, dmz := onNetwork(t, r, "home", cluster), onNetwork(t, r, "dmz", cluster)
	if got := home.next(t); got != "10.7.0.1:8080 10.7.0.2:8080" {
		t.Errorf("on the registry's network: %s", got)
	}
	if got := dmz.next(t); got != "10.7.0.2:8080 198.51.100.1:8080" {
		t.Errorf("on the other one: %s", got)
	}
	for args, want := range map[string][]string{
		"service explain web.dc1.consul --proxy client-dmz.shop":  {"dialled at 198.51.100.1:8080, its address wan, as the proxy is on network dmz"},
		"service explain web.dc1.consul --proxy client-home.shop": {"10.7.0.1:8080"},
		"service explain web.dc1.consul":                          {"ELSEWHERE", "dmz=198.51.100.1:8080"},
		"registry explain legacy":                                 {"taggedAddress: lan", "taggedAddresses:", "dmz: wan"},
	} {
		got := command(t, append(strings.Fields(args), "--hub", r.url)...)
		for _, w := range want {
			if !strings.Contains(got.stdout, w) {
				t.Errorf("%s: no %q in\n%s%s", args, w, got.stdout, got.stderr)
			}
		}
		if strings.HasSuffix(args, "home.shop") && strings.Contains(got.stdout, "198.51.100.1") {
			t.Errorf("%s:\n%s", args, got.stdout)
		}
	}
	if _, shards := get(t, r.url+"/debug/endpointz"); !strings.Contains(shards, `"dmz": "198.51.100.1:8080"`) {
		t.Errorf("/debug/endpointz: %s", shards)
	}
	c.set(func() { c.wan = map[string]string{"10.7.0.2": "198.51.100.2"} })
	if got := dmz.next(t); got != "10.7.0.1:8080 198.51.100.2:8080" {
		t.Errorf("after a change: %s", got)
	}
}
