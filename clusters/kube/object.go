package kube

import (
	"strings"
	"time"

	networking "istio.io/api/networking/v1alpha3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
)

// Object is one source object. Value is a *corev1.Namespace, Node, Pod or Service, a
// *discoveryv1.EndpointSlice, or a *ServiceEntry, *WorkloadEntry or *Other of this package. It is
// immutable once it is in a [Store].
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
}

// WorkloadEntry is a networking.istio.io WorkloadEntry of any version.
type WorkloadEntry struct {
	Meta    metav1.ObjectMeta
	Spec    *networking.WorkloadEntry
	Healthy *bool // the condition "Healthy" of its status, nil if it is not there
}

// Other is an object of a kind that the mesh knows but the hub does not serve yet.
type Other struct{ Meta metav1.ObjectMeta }

// NewObject wraps an object of the Kubernetes API, a *ServiceEntry, a *WorkloadEntry, or an *Other
// of the given kind. It reports false for other types.
func NewObject(kind string, value any) (Object, bool) {
	var meta *metav1.ObjectMeta
	switch v := value.(type) {
	case *corev1.Namespace:
		kind, meta = KindNamespace, &v.ObjectMeta
	case *corev1.Node:
		kind, meta = KindNode, &v.ObjectMeta
	case *corev1.Pod:
		kind, meta = KindPod, &v.ObjectMeta
	case *corev1.Service:
		kind, meta = KindService, &v.ObjectMeta
	case *discoveryv1.EndpointSlice:
		kind, meta = KindEndpointSlice, &v.ObjectMeta
	case *ServiceEntry:
		kind, meta = KindServiceEntry, &v.Meta
	case *WorkloadEntry:
		kind, meta = KindWorkloadEntry, &v.Meta
	case *Other:
		meta = &v.Meta
	default:
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
