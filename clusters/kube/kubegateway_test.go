package kube_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

func networkGateway(labels, class string) string {
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: demo, labels: {%s}}
spec: {gatewayClassName: %s, listeners: [{name: a, port: 15443, protocol: TLS, tls: {mode: Passthrough}}]}
status: {addresses: [{value: 192.0.2.1}]}`, labels, class)
}

func gatewayKind(t *testing.T, s *kube.Store) string {
	t.Helper()
	return row[*model.Config](t, s, "KubernetesGateway/demo/gw").Kind
}

// A Gateway whose network label is taken off, or whose class becomes one that counts elsewhere, is no gateway
// of that network from then on. Istio keeps the old addresses until the Gateway is deleted with its label.
func TestNetworkGatewayIsGoneWithItsLabel(t *testing.T) {
	t.Parallel()
	const label = "topology.istio.io/network: n1"
	for name, change := range map[string]string{
		"label off":   networkGateway("", "istio"),
		"other class": networkGateway(label, "istio-remote"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := load(t, networkGateway(label, "istio"))
			if got := gatewayKind(t, s); got != model.ConfigNetworkGateway {
				t.Fatal(got)
			}
			if d := cmp.Diff([]string{"config KubernetesGateway/demo/gw"}, keysOf(s.Apply(objects(t, change), nil))); d != "" {
				t.Error(d)
			}
			if c := row[*model.Config](t, s, "KubernetesGateway/demo/gw"); c.Kind == model.ConfigNetworkGateway || c.Spec != nil || !c.NotServed {
				t.Errorf("still there: %+v", c)
			}
			s.Apply(objects(t, networkGateway(label, "istio")), nil)
			if got := gatewayKind(t, s); got != model.ConfigNetworkGateway {
				t.Error("not back:", got)
			}
			s.Delete(model.ObjectKey{Kind: kube.KindKubernetesGateway, Namespace: "demo", Name: "gw"})
			if n := s.State().Len(); n != 0 {
				t.Errorf("%d rows left", n)
			}
		})
	}
}

// Gateways of the class istio-remote count in the config cluster only.
func TestNetworkGatewayRemoteClass(t *testing.T) {
	t.Parallel()
	for _, config := range []bool{false, true} {
		s := kube.NewStore(kube.Converter{Shard: shard, ConfigCluster: config})
		s.Apply(objects(t, networkGateway("topology.istio.io/network: n1", "istio-remote")), nil)
		if got := gatewayKind(t, s) == model.ConfigNetworkGateway; got != config {
			t.Errorf("config cluster %v: counts %v", config, got)
		}
	}
}

// Incident 61: a gateway that has no address, or has lost its addresses, is still the gateway of its network:
// without it, what is there would be dialled directly.
func TestIncident61NetworkGatewayWithoutAddress(t *testing.T) {
	t.Parallel()
	const label = "topology.istio.io/network: n1"
	s := load(t, networkGateway(label, "istio"))
	s.Apply(objects(t, strings.Replace(networkGateway(label, "istio"), "{value: 192.0.2.1}", "", 1)), nil)
	spec, ok := row[*model.Config](t, s, "KubernetesGateway/demo/gw").Spec.(*model.NetworkGateway)
	if !ok || spec.Network != "n1" || len(spec.Addrs) != 0 {
		t.Errorf("got %+v", spec)
	}
	if ps := s.Problems()[model.ObjectKey{Kind: kube.KindKubernetesGateway, Namespace: "demo", Name: "gw"}]; len(ps) != 1 {
		t.Errorf("problems %q", ps)
	}
}

// The Gateway of the Gateway API and that of networking.istio.io with one name are two objects.
func TestGatewaysOfTwoGroups(t *testing.T) {
	t.Parallel()
	s := load(t, networkGateway("topology.istio.io/network: n1", "istio")+"\n---\n"+
		"apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: gw, namespace: demo}\nspec: {servers: [{port: {number: 15443, name: tls, protocol: TLS}, hosts: [\"*\"], tls: {mode: AUTO_PASSTHROUGH}}]}")
	if got := gatewayKind(t, s); got != model.ConfigNetworkGateway {
		t.Error(got)
	}
	if got := row[*model.Config](t, s, "Gateway/demo/gw").Kind; got != model.ConfigGateway {
		t.Error(got)
	}
}

// FuzzNetworkGateway: no value that a Gateway can hold makes conversion fail, or an address that can't be dialled.
func FuzzNetworkGateway(f *testing.F) {
	f.Add("n1", "15443", "IPAddress", "192.0.2.1", int32(15443), "TLS", "auto-passthrough")
	f.Add("n1", "x", "Hostname", "gw.example.", int32(0), "HTTP", "")
	f.Fuzz(func(t *testing.T, network, port, addressType, address string, listener int32, protocol, option string) {
		at := gatewayv1.AddressType(addressType)
		g := &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{Listeners: []gatewayv1.Listener{{Port: gatewayv1.PortNumber(listener), Protocol: gatewayv1.ProtocolType(protocol),
			TLS: &gatewayv1.ListenerTLSConfig{Options: map[gatewayv1.AnnotationKey]gatewayv1.AnnotationValue{"gateway.istio.io/listener-protocol": gatewayv1.AnnotationValue(option)}}}}},
			Status: gatewayv1.GatewayStatus{Addresses: []gatewayv1.GatewayStatusAddress{{Type: &at, Value: address}, {Value: address}}}}
		g.Name, g.Labels = "gw", map[string]string{"topology.istio.io/network": network, "networking.istio.io/gatewayPort": port}
		o, _ := kube.NewObject("", g)
		s := newStore()
		s.Set(o)
		noPanics(t, s)
		for _, r := range s.State().Rows() {
			gw, ok := r.(*model.Config).Spec.(*model.NetworkGateway)
			if !ok {
				continue
			}
			if gw.Network == "" {
				t.Fatalf("row %+v", gw)
			}
			for _, a := range gw.Addrs {
				if a.Port == 0 || a.IP.IsValid() == (a.Host != "") || strings.ContainsAny(a.Host, " /:") {
					t.Fatalf("address %+v", a)
				}
			}
		}
	})
}
