package kube

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// recorder is the store as conversion sees it, noting what is looked up.
type recorder struct {
	*Store
	seen map[fact]struct{}
}

func (r *recorder) note(kind, namespace, n string) name {
	k := name{namespace, n}
	r.seen[fact{kind: kind, name: k}] = struct{}{}
	return k
}

func (r *recorder) Service(namespace, n string) *ServiceFacts {
	return r.services[r.note(KindService, namespace, n)]
}

func (r *recorder) Pod(namespace, n string) *PodFacts {
	return r.pods[r.note(KindPod, namespace, n)]
}

func (r *recorder) Node(n string) *NodeFacts {
	return r.nodes[r.note(KindNode, "", n).name]
}

func (r *recorder) Namespace(n string) *NamespaceFacts {
	return r.namespaces[r.note(KindNamespace, "", n).name]
}

func (r *recorder) PodsByIP(namespace string, ip netip.Addr) []*PodFacts {
	r.seen[fact{name: name{namespace: namespace}, ip: ip}] = struct{}{}
	pods := r.podsByIP[podAt{namespace, ip}]
	out := make([]*PodFacts, 0, len(pods))
	for _, n := range slices.Sorted(maps.Keys(pods)) {
		out = append(out, pods[n])
	}
	return out
}

func (r *recorder) Export(namespace, n string) *ExportFacts {
	return r.exports[r.note(KindServiceExport, namespace, n)]
}

func (r *recorder) Import(namespace, n string) *ImportFacts {
	return r.imports[r.note(KindServiceImport, namespace, n)]
}

func (r *recorder) NodeAddresses(selector model.Labels) []netip.Addr {
	at := pairOf(selector)
	r.note(factNodes, at.key, at.value)
	return r.nodeIndex.addresses(at, selector)
}

// TrustDomain is not noted: nearly every object depends on it, so that a change converts all of them.
func (r *recorder) TrustDomain() string { return r.trust.domain() }

// refSet is a set of objects. Most have one member, so the first few need no map.
type refSet struct {
	few  []model.ObjectKey
	many map[model.ObjectKey]struct{}
}

const fewRefs = 8

func (r *refSet) add(ref model.ObjectKey) {
	switch {
	case r.many != nil:
		r.many[ref] = struct{}{}
	case slices.Contains(r.few, ref):
	case len(r.few) < fewRefs:
		r.few = append(r.few, ref)
	default:
		r.many = map[model.ObjectKey]struct{}{ref: {}}
		r.addTo(r.many)
		r.few = nil
	}
}

// remove reports whether the set is empty now. It is safe on a nil set.
func (r *refSet) remove(ref model.ObjectKey) (empty bool) {
	if r == nil {
		return true
	}
	if r.many != nil {
		delete(r.many, ref)
		return len(r.many) == 0
	}
	if i := slices.Index(r.few, ref); i >= 0 {
		r.few = slices.Delete(r.few, i, i+1)
	}
	return len(r.few) == 0
}

func (r *refSet) addTo(set map[model.ObjectKey]struct{}) {
	for _, ref := range r.few {
		set[ref] = struct{}{}
	}
	if r.many != nil {
		maps.Copy(set, r.many)
	}
}
