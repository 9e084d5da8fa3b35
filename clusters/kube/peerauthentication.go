package kube

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	security "istio.io/api/security/v1beta1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// peerAuthentication fills the row of a PeerAuthentication and reports whether there is one. Ports need a
// selector, as in Istio. A mode that is not known is as if it were not set: the next wider object counts. The system
// namespace is the mesh's root namespace unless MeshConfig.rootNamespace says otherwise.
func peerAuthentication(row *model.Config, spec *security.PeerAuthentication, system string, res *Result) bool {
	spec = proto.CloneOf(spec)
	for k := range spec.GetSelector().GetMatchLabels() {
		if k == "" {
			res.problem("it is not in force: its selector has a label without name")
			return false
		}
	}
	if row.Namespace == system && system != "" && len(spec.GetSelector().GetMatchLabels()) > 0 {
		res.problem("it has no effect while %s is the mesh's root namespace: there, objects with a selector do not count; put it into the namespace of its workloads", system)
	}
	if !knownMode(spec.Mtls) {
		res.problem("mtls is not in force: there is no mode %d", spec.Mtls.Mode)
		spec.Mtls = nil
	}
	if len(spec.PortLevelMtls) > 0 && len(spec.GetSelector().GetMatchLabels()) == 0 {
		res.problem("portLevelMtls is not in force: it needs a selector")
		spec.PortLevelMtls = nil
	}
	for _, port := range slices.Sorted(maps.Keys(spec.PortLevelMtls)) {
		mtls := spec.PortLevelMtls[port]
		if _, ok := portNumber(int64(port)); ok && knownMode(mtls) {
			continue
		}
		res.problem("portLevelMtls of port %d is not in force: the port must be 1 to 65535, and its mode known", port)
		delete(spec.PortLevelMtls, port)
	}
	row.Spec = spec
	return true
}

func knownMode(m *security.PeerAuthentication_MutualTLS) bool {
	_, known := security.PeerAuthentication_MutualTLS_Mode_name[int32(m.GetMode())]
	return known
}
