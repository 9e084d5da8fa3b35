package kube

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// The kinds of objects that become rows, or that conversion looks up.
const (
	KindNamespace     = "Namespace"
	KindNode          = "Node"
	KindPod           = "Pod"
	KindService       = "Service"
	KindEndpointSlice = "EndpointSlice"
	KindServiceEntry  = "ServiceEntry"
	KindWorkloadEntry = "WorkloadEntry"
	KindConfigMap     = "ConfigMap"

	KindDestinationRule    = model.ConfigDestinationRule
	KindPeerAuthentication = model.ConfigPeerAuthentication
	KindGateway            = model.ConfigGateway
	KindVirtualService     = model.ConfigVirtualService
	KindSidecar            = model.ConfigSidecar
	KindWorkloadGroup      = model.ConfigWorkloadGroup
	KindProxyConfig        = model.ConfigProxyConfig
	KindTelemetry          = model.ConfigTelemetry

	KindRegistry         = model.ConfigRegistry
	KindFederatedService = model.ConfigFederatedService
	KindMcpBridge        = model.ConfigMcpBridge
	// KindKubernetesGateway is the Gateway of the Kubernetes Gateway API; KindGateway is networking.istio.io's.
	KindKubernetesGateway = "KubernetesGateway"
	KindServiceExport     = "ServiceExport"
	KindServiceImport     = "ServiceImport"
)

// Object is one source object. Value is a *corev1.Namespace, Node, Pod, Service or ConfigMap, a
// *discoveryv1.EndpointSlice, a *gatewayv1.Gateway, a *mcsv1beta1.ServiceExport or ServiceImport, or a
// *ServiceEntry, *WorkloadEntry, *Config, *Declared, *Broken or *Other of this package. It is immutable once it is in a
// [Store].
type Object struct {
	Ref      model.ObjectKey // Namespace is empty for a Namespace or Node
	Revision string          // resourceVersion, or a content hash where the source has none
	Time     time.Time       // when this revision was made
	Value    any
}

// ServiceEntry is a networking.istio.io ServiceEntry of any version.
type ServiceEntry struct {
	Meta   metav1.ObjectMeta
	Spec   *networking.ServiceEntry
	Status *networking.ServiceEntryStatus // nil if there is none
	Odd    []model.Finding                // as Config has it
}

// WorkloadEntry is a networking.istio.io WorkloadEntry of any version.
type WorkloadEntry struct {
	Meta    metav1.ObjectMeta
	Spec    *networking.WorkloadEntry
	Healthy *bool           // the condition "Healthy" of its status, nil if it is not there
	Odd     []model.Finding // as Config has it
}

// Config is an object of any version of a kind of istio.io whose row is a [model.Config]. Spec is the message that
// it names for the kind.
type Config struct {
	Meta metav1.ObjectMeta
	Spec proto.Message
	// Odd is what the text of the spec has that its kind has not, in findings without Object: fields that are unknown, and are
	// left out, and fields that exclude each other, beside which Spec is empty.
	Odd []model.Finding
}

// Broken is an object whose spec can't be decoded. Its last good version stays in force.
type Broken struct {
	Meta   metav1.ObjectMeta
	Reason string
	Faults []model.Finding // the same field by field, errors without Object; nil if it is not known so well
}

// Other is an object of a kind that the mesh knows but the hub does not serve yet.
type Other struct{ Meta metav1.ObjectMeta }

// NewObject wraps an object of one of the types that [Object] names. The kind counts for a *Config, *Declared, *Broken and
// *Other; others have theirs. It reports false for other types.
func NewObject(kind string, value any) (Object, bool) {
	kind, meta := metaOf(kind, value)
	if meta == nil {
		return Object{}, false
	}
	o := Object{
		Ref:      model.ObjectKey{Kind: kind, Namespace: meta.Namespace, Name: meta.Name},
		Revision: meta.ResourceVersion, Time: meta.CreationTimestamp.Time, Value: value,
	}
	if kind == KindNamespace || kind == KindNode {
		o.Ref.Namespace = ""
	}
	return o, true
}

// metaOf gives the metadata of an object, nil if its type is not one of those that [Object] names.
func metaOf(kind string, value any) (string, *metav1.ObjectMeta) {
	switch v := value.(type) {
	case *corev1.Namespace:
		return KindNamespace, &v.ObjectMeta
	case *corev1.Node:
		return KindNode, &v.ObjectMeta
	case *corev1.Pod:
		return KindPod, &v.ObjectMeta
	case *corev1.Service:
		return KindService, &v.ObjectMeta
	case *corev1.ConfigMap:
		return KindConfigMap, &v.ObjectMeta
	case *discoveryv1.EndpointSlice:
		return KindEndpointSlice, &v.ObjectMeta
	case *gatewayv1.Gateway:
		return KindKubernetesGateway, &v.ObjectMeta
	case *mcsv1beta1.ServiceExport:
		return KindServiceExport, &v.ObjectMeta
	case *mcsv1beta1.ServiceImport:
		return KindServiceImport, &v.ObjectMeta
	case *ServiceEntry:
		if v != nil {
			return KindServiceEntry, &v.Meta
		}
	case *WorkloadEntry:
		if v != nil {
			return KindWorkloadEntry, &v.Meta
		}
	case *Config:
		if v != nil {
			return kind, &v.Meta
		}
	case *Declared:
		if v != nil {
			return kind, &v.Meta
		}
	case *Broken:
		if v != nil {
			return kind, &v.Meta
		}
	case *Other:
		if v != nil {
			return kind, &v.Meta
		}
	}
	return kind, nil
}

// list splits a comma list, dropping blanks.
func list(s string) []string {
	var out []string
	for _, x := range strings.Split(s, ",") {
		if x = strings.TrimSpace(x); x != "" {
			out = append(out, x)
		}
	}
	return out
}
