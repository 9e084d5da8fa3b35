package file

import (
	"strconv"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// excluded lists the locality settings that have no effect beside others: shares for places leave no
// place to fail over to.
func excluded(data []byte, m *meshconfig.MeshConfig) []kube.Fault {
	l := m.GetLocalityLbSetting()
	if len(l.GetDistribute()) == 0 {
		return nil
	}
	var out []kube.Fault
	for _, f := range []struct {
		name string
		set  bool
	}{{"failover", len(l.Failover) > 0}, {"failoverPriority", len(l.FailoverPriority) > 0}} {
		if f.set {
			out = append(out, kube.Fault{Line: fieldLine(data, f.name), Reason: strconv.Quote(f.name) +
				` has no effect beside "distribute", which sets every place's share; remove one of the two`})
		}
	}
	return out
}
