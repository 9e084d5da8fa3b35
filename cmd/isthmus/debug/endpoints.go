package debug

import (
	"net/http"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// endpoints has the shape of istiod's endpointShardz: host, then namespace, then shards.
func (h *handler) endpoints(r *http.Request) (any, error) {
	pc, err := h.snapshot()
	if err != nil {
		return nil, err
	}
	out := map[string]map[string]*Shards{}
	if r.URL.Query().Get("host") != "" {
		services, err := findServices(pc, r)
		if err != nil {
			return nil, err
		}
		for _, v := range services {
			addShards(out, v)
		}
		return out, nil
	}
	for v := range pc.Services() {
		addShards(out, v)
	}
	return out, nil
}

func addShards(out map[string]map[string]*Shards, v *pushcontext.ServiceView) {
	key := v.Shape.Key
	if out[key.Host] == nil {
		out[key.Host] = map[string]*Shards{}
	}
	s := out[key.Host][key.Namespace]
	if s == nil {
		s = &Shards{Shards: map[string][]ShardEndpoint{}, ServiceAccounts: []string{}}
		out[key.Host][key.Namespace] = s
	}
	s.ServiceAccounts = append(s.ServiceAccounts, v.Shape.ServiceAccounts...)
	for _, e := range all(v) {
		shard := e.Source.Shard.String()
		s.Shards[shard] = append(s.Shards[shard], shardEndpoint(e))
	}
}

func shardEndpoint(e *model.Endpoint) ShardEndpoint {
	out := ShardEndpoint{
		Address: e.Addr.Host, EndpointPort: e.Addr.AddrPort.Port(), ServicePortName: e.PortName, Labels: e.Labels,
		ServiceAccount: e.ServiceAccount, Network: e.Network, LbWeight: e.Weight, TLSMode: e.TLSMode,
		Locality:     ShardLocality{Label: e.Locality.String(), ClusterID: string(e.Addr.Cluster)},
		WorkloadName: e.Workload.Name, Namespace: e.Workload.Namespace, HealthStatus: e.Health.String(), NodeName: e.Node, Alternatives: alternatives(e),
	}
	if ip := e.Addr.AddrPort.Addr(); ip.IsValid() {
		out.Address = ip.String()
	}
	return out
}
