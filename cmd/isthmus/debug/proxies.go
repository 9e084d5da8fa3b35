package debug

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// Proxies is what the xDS server shows of its streams.
type Proxies interface {
	// Proxies lists the connected proxies.
	Proxies() []Proxy
	// Dump gives what the proxy of a connection is sent now, as an Envoy admin ConfigDump in JSON.
	// Types are "cds", "eds", "lds" and "rds"; none means all.
	Dump(ctx context.Context, connection string, types []string) (json.RawMessage, error)
	// Failures lists the last resources that could not be generated, oldest first.
	Failures() []Failure
	// Audience gives what the resources of the proxy of a connection depend on.
	Audience(connection string) (gen.Class, pushcontext.Reader, error)
}

// Proxy is one connected proxy: an element of /debug/connections.
type Proxy struct {
	ConnectionID string           `json:"connectionId"` // node id and a number
	NodeID       string           `json:"nodeId"`
	Name         string           `json:"proxy"` // POD.NAMESPACE
	Type         string           `json:"type"`
	Cluster      string           `json:"cluster"`
	Namespace    string           `json:"namespace,omitempty"`
	Network      string           `json:"network,omitempty"`
	Locality     string           `json:"locality,omitempty"`
	Version      string           `json:"version,omitempty"` // as the proxy says
	Address      string           `json:"address"`           // of its connection
	Protocol     string           `json:"protocol"`          // "delta" or "sotw"
	ConnectedAt  time.Time        `json:"connectedAt,omitzero"`
	Types        map[string]Watch `json:"types"` // by short name: cds, eds, lds, rds, vhds
}

// Watch is one type that a proxy subscribes to.
type Watch struct {
	Wildcard  bool      `json:"wildcard,omitempty"`
	Names     int       `json:"names"`     // subscribed by name
	Resources int       `json:"resources"` // sent and held
	Version   uint64    `json:"version"`   // snapshot that it has been brought to
	Sent      string    `json:"sent,omitempty"`
	Acked     string    `json:"acked,omitempty"`
	Status    string    `json:"status"`          // NOT-SENT, SYNCED, STALE (sent, not acknowledged) or ERROR (rejected)
	Error     string    `json:"error,omitempty"` // of the last refusal, in the proxy's words
	ErrorAt   time.Time `json:"errorAt,omitzero"`
	Rejected  []string  `json:"rejected,omitempty"` // names that it refuses; not all types of error name them
}

// SyncStatus is an element of /debug/syncz, in istiod's shape.
type SyncStatus struct {
	ClusterID     string `json:"cluster_id,omitempty"`
	ProxyID       string `json:"proxy,omitempty"`
	ProxyType     string `json:"proxy_type,omitempty"`
	IstioVersion  string `json:"istio_version,omitempty"` // as the proxy says
	ClusterSent   string `json:"cluster_sent,omitempty"`
	ClusterAcked  string `json:"cluster_acked,omitempty"`
	ListenerSent  string `json:"listener_sent,omitempty"`
	ListenerAcked string `json:"listener_acked,omitempty"`
	RouteSent     string `json:"route_sent,omitempty"`
	RouteAcked    string `json:"route_acked,omitempty"`
	EndpointSent  string `json:"endpoint_sent,omitempty"`
	EndpointAcked string `json:"endpoint_acked,omitempty"`
}

// list gives the proxies by name, cluster, connection.
func (h *handler) list() []Proxy {
	out := h.Proxies.Proxies()
	slices.SortFunc(out, func(a, b Proxy) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.ConnectionID, b.ConnectionID))
	})
	return out
}

func (h *handler) connections(*http.Request) (any, error) {
	return append([]Proxy{}, h.list()...), nil
}

func (h *handler) sync(*http.Request) (any, error) {
	out := []SyncStatus{}
	for _, p := range h.list() {
		cds, eds, lds, rds := p.Types["cds"], p.Types["eds"], p.Types["lds"], p.Types["rds"]
		out = append(out, SyncStatus{
			ClusterID: p.Cluster, ProxyID: p.Name, ProxyType: p.Type, IstioVersion: p.Version,
			ClusterSent: cds.Sent, ClusterAcked: cds.Acked, ListenerSent: lds.Sent, ListenerAcked: lds.Acked,
			RouteSent: rds.Sent, RouteAcked: rds.Acked, EndpointSent: eds.Sent, EndpointAcked: eds.Acked,
		})
	}
	return out, nil
}

// findProxy resolves ?proxyID=: a name, a node id or a connection id, and ?cluster= to tell proxies
// of one name apart. Of several connections of one proxy, which is what a reconnect looks like for a
// moment, the newest counts.
func (h *handler) findProxy(r *http.Request) (Proxy, error) {
	id, cluster := r.URL.Query().Get("proxyID"), r.URL.Query().Get("cluster")
	if id == "" {
		return Proxy{}, badRequest("proxyID is missing: ?proxyID=POD.NAMESPACE")
	}
	byNode := map[string]Proxy{}
	for _, p := range h.list() {
		if (id != p.Name && id != p.NodeID && id != p.ConnectionID) || (cluster != "" && cluster != p.Cluster) {
			continue
		}
		key := p.Cluster + " " + p.NodeID
		if old, ok := byNode[key]; !ok || p.ConnectedAt.After(old.ConnectedAt) {
			byNode[key] = p
		}
	}
	return only(id, byNode)
}

func only(id string, found map[string]Proxy) (Proxy, error) {
	var p Proxy
	names := []string{}
	for _, p = range found {
		names = append(names, p.NodeID+" in "+p.Cluster)
	}
	switch len(names) {
	case 0:
		return p, notFound("no proxy %q is connected: 'isthmus proxy list' shows those that are", id)
	case 1:
		return p, nil
	}
	slices.Sort(names)
	return p, badRequest("proxy %q is ambiguous: name the cluster too; there are %s", id, strings.Join(names, ", "))
}

func (h *handler) configDump(r *http.Request) (any, error) {
	p, err := h.findProxy(r)
	if err != nil {
		return nil, err
	}
	types, err := dumpTypes(r.URL.Query().Get("types"))
	if err != nil {
		return nil, err
	}
	return h.Proxies.Dump(r.Context(), p.ConnectionID, types)
}

func dumpTypes(list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	types := strings.Split(list, ",")
	for _, t := range types {
		if !slices.Contains([]string{"cds", "eds", "lds", "rds"}, t) {
			return nil, badRequest("type %q is none of cds, eds, lds, rds", t)
		}
	}
	return types, nil
}
