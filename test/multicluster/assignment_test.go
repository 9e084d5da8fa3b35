package multicluster_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
)

// assignment is the endpoints of a cluster, sorted.
type assignment []endpoint

type endpoint struct {
	address  string // "ip:port"
	priority uint32
	weight   uint32 // its own times that of its locality, 1 if unset
	share    uint32 // of its locality; a cluster that weighs localities sends nothing to one with 0
	locality string
	health   corev3.HealthStatus
}

func (a assignment) addresses() (out []string) {
	for _, e := range a {
		out = append(out, e.address)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// at is the endpoint at an address; the zero value if there is none.
func (a assignment) at(address string) endpoint {
	for _, e := range a {
		if e.address == address {
			return e
		}
	}
	return endpoint{}
}

func decodeAssignment(body []byte) (out assignment, err error) {
	var a endpointv3.ClusterLoadAssignment
	if err := proto.Unmarshal(body, &a); err != nil {
		return nil, err
	}
	for _, g := range a.Endpoints {
		l := g.GetLocality()
		place := strings.TrimRight(strings.Join([]string{l.GetRegion(), l.GetZone(), l.GetSubZone()}, "/"), "/")
		for _, e := range g.LbEndpoints {
			sock := e.GetEndpoint().GetAddress().GetSocketAddress()
			out = append(out, endpoint{
				address:  fmt.Sprintf("%s:%d", sock.GetAddress(), sock.GetPortValue()),
				priority: g.Priority, locality: place, health: e.HealthStatus, share: g.LoadBalancingWeight.GetValue(),
				weight: weight(e.LoadBalancingWeight.GetValue()) * weight(g.LoadBalancingWeight.GetValue()),
			})
		}
	}
	slices.SortFunc(out, func(a, b endpoint) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.address, b.address))
	})
	return out, nil
}

func weight(w uint32) uint32 { return max(w, 1) }
