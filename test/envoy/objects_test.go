package envoy_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// namespace of everything in these tests.
const namespace = "shop"

func meta(kind, version, name string) (metav1.TypeMeta, metav1.ObjectMeta) {
	return metav1.TypeMeta{Kind: kind, APIVersion: version}, metav1.ObjectMeta{Name: name, Namespace: namespace}
}

// host is the service's full name.
func host(name string) string { return name + "." + namespace + ".svc.cluster.local" }

// service has one port. The port's name says its protocol; "" is sniffed. With
// vip "" it is headless.
func service(name, vip, portName string, port uint16) *corev1.Service {
	s := &corev1.Service{}
	s.TypeMeta, s.ObjectMeta = meta("Service", "v1", name)
	s.Spec = corev1.ServiceSpec{
		ClusterIP: vip,
		Ports:     []corev1.ServicePort{{Name: portName, Port: int32(port)}},
	}
	if vip == "" {
		s.Spec.ClusterIP = corev1.ClusterIPNone
	}
	return s
}

// endpoint is a backend behind a service in one slice.
type endpoint struct {
	addr     string // "IP:PORT"
	notReady bool
	pod      string // its name; "" = an address without a pod
}

func ip(b *envoytest.Backend) string { return netip.MustParseAddrPort(b.Addr).Addr().String() }

func at(backends ...*envoytest.Backend) []endpoint {
	eps := make([]endpoint, len(backends))
	for i, b := range backends {
		eps[i].addr = b.Addr
	}
	return eps
}

// slicesOf are the EndpointSlices of a service: one for each endpoint, since a
// slice has one target port for all.
func slicesOf(s *corev1.Service, eps ...endpoint) []any {
	var out []any
	for _, ep := range eps {
		addr := netip.MustParseAddrPort(ep.addr)
		port, ready := int32(addr.Port()), !ep.notReady
		es := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
		es.TypeMeta, es.ObjectMeta = meta("EndpointSlice", "discovery.k8s.io/v1", fmt.Sprintf("%s-%s-%d", s.Name, addr.Addr(), addr.Port()))
		es.Labels = map[string]string{discoveryv1.LabelServiceName: s.Name}
		es.Ports = []discoveryv1.EndpointPort{{Name: &s.Spec.Ports[0].Name, Port: &port}}
		es.Endpoints = []discoveryv1.Endpoint{{
			Addresses:  []string{addr.Addr().String()},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		}}
		if ep.pod != "" {
			es.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: ep.pod}
		}
		out = append(out, es)
	}
	return out
}

// pod is a ready pod at an address. Its locality is "region.zone.subzone".
func pod(name, ip, locality string, labels map[string]string) *corev1.Pod {
	p := &corev1.Pod{}
	p.TypeMeta, p.ObjectMeta = meta("Pod", "v1", name)
	p.Labels = map[string]string{}
	for k, v := range labels {
		p.Labels[k] = v
	}
	if locality != "" {
		p.Labels["topology.istio.io/locality"] = locality
	}
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	return p
}

// documents is a YAML file of the objects. A string is taken as it is, a
// []any as its elements.
func documents(t testing.TB, objects ...any) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, o := range objects {
		switch o := o.(type) {
		case string:
			fmt.Fprintf(&out, "---\n%s\n", o)
		case []any:
			out.Write(documents(t, o...))
		default:
			text, err := yaml.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "---\n%s", text)
		}
	}
	return out.Bytes()
}
