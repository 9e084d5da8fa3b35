package xds

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// Connection is one stream of a proxy, told apart from others of the same proxy.
type Connection struct {
	ProxyStatus
	Connection string // node id, "-" and a number that no other open stream has
}

// Reader is the proxy's place in the mesh.
func (c *Connection) Reader() pushcontext.Reader {
	return pushcontext.Reader{Cluster: c.Class.Cluster, Namespace: c.Class.Namespace, Instances: c.Instances, Scope: c.Class.Scope}
}

func (st *stream) connection() (Connection, bool) {
	p := st.status.clone()
	return Connection{ProxyStatus: p, Connection: p.ID + "-" + strconv.FormatUint(uint64(st.slot), 10)}, p.ID != ""
}

// Connections gives every stream of a proxy that has introduced itself, in no particular order.
func (s *Server) Connections() []Connection {
	var out []Connection
	for _, st := range s.all() {
		if c, ok := st.connection(); ok {
			out = append(out, c)
		}
	}
	return out
}

// ConfigDump gives what the proxy of a connection is to have of the named types ("cds" …; none means
// all that are served), in the messages in which an Envoy's admin interface answers /config_dump, so
// that the two can be compared. Resources that could not be built are left out.
func (s *Server) ConfigDump(ctx context.Context, connection string, types ...string) (*adminv3.ConfigDump, error) {
	var st *stream
	for _, x := range s.all() {
		if c, ok := x.connection(); ok && c.Connection == connection {
			st = x
		}
	}
	if st == nil {
		return nil, fmt.Errorf("connection %s: %w", connection, ErrUnknownProxy)
	}
	out := &adminv3.ConfigDump{}
	for typ, r := range s.rules {
		if len(types) > 0 && !slices.Contains(types, r.short) || r.partOf != "" || r.url == gen.NameTableURL {
			continue // Envoy shows parts in what they are parts of, and knows nothing of names
		}
		list, err := st.inspect(ctx, typ)
		if err != nil {
			return nil, err
		}
		if r.split {
			if list, err = st.joined(ctx, list); err != nil {
				return nil, err
			}
		}
		section, err := dumpSection(r.url, list)
		if err != nil {
			return nil, err
		}
		out.Configs = append(out.Configs, section)
	}
	return out, nil
}

// dumpSection makes the message in which Envoy's admin interface shows a type.
func dumpSection(url string, list []ResourceStatus) (*anypb.Any, error) {
	switch url {
	case gen.ClusterURL:
		d := &adminv3.ClustersConfigDump{}
		for r, body := range bodies(url, list) {
			d.DynamicActiveClusters = append(d.DynamicActiveClusters, &adminv3.ClustersConfigDump_DynamicCluster{
				VersionInfo: r.Version, Cluster: body, ErrorState: rejection(r), ClientStatus: clientStatus(r)})
		}
		return anypb.New(d)
	case gen.EndpointURL:
		d := &adminv3.EndpointsConfigDump{}
		for r, body := range bodies(url, list) {
			d.DynamicEndpointConfigs = append(d.DynamicEndpointConfigs, &adminv3.EndpointsConfigDump_DynamicEndpointConfig{
				VersionInfo: r.Version, EndpointConfig: body, ErrorState: rejection(r), ClientStatus: clientStatus(r)})
		}
		return anypb.New(d)
	case gen.ListenerURL:
		d := &adminv3.ListenersConfigDump{}
		for r, body := range bodies(url, list) {
			d.DynamicListeners = append(d.DynamicListeners, &adminv3.ListenersConfigDump_DynamicListener{
				Name: r.Name, ErrorState: rejection(r), ClientStatus: clientStatus(r),
				ActiveState: &adminv3.ListenersConfigDump_DynamicListenerState{VersionInfo: r.Version, Listener: body}})
		}
		return anypb.New(d)
	case gen.RouteURL:
		d := &adminv3.RoutesConfigDump{}
		for r, body := range bodies(url, list) {
			d.DynamicRouteConfigs = append(d.DynamicRouteConfigs, &adminv3.RoutesConfigDump_DynamicRouteConfig{
				VersionInfo: r.Version, RouteConfig: body, ErrorState: rejection(r), ClientStatus: clientStatus(r)})
		}
		return anypb.New(d)
	}
	return nil, fmt.Errorf("%s: %w", url, ErrUnknownType)
}

// bodies yields the resources that have one.
func bodies(url string, list []ResourceStatus) func(func(ResourceStatus, *anypb.Any) bool) {
	return func(yield func(ResourceStatus, *anypb.Any) bool) {
		for _, r := range list {
			if r.Body != nil && !yield(r, &anypb.Any{TypeUrl: url, Value: r.Body}) {
				return
			}
		}
	}
}

func clientStatus(r ResourceStatus) adminv3.ClientResourceStatus {
	switch {
	case r.Rejected:
		return adminv3.ClientResourceStatus_NACKED
	case r.Sent:
		return adminv3.ClientResourceStatus_ACKED
	}
	return adminv3.ClientResourceStatus_REQUESTED
}

func rejection(r ResourceStatus) *adminv3.UpdateFailureState {
	if !r.Rejected {
		return nil
	}
	return &adminv3.UpdateFailureState{Details: "the proxy refuses this version and keeps the one before", VersionInfo: r.Version}
}

// SyncState says in one word whether a proxy has what it was sent of a type.
type SyncState string

// The states.
const (
	SyncNotSent SyncState = "NOT-SENT"
	SyncSynced  SyncState = "SYNCED"
	SyncStale   SyncState = "STALE" // sent and not yet acknowledged
	SyncError   SyncState = "ERROR" // refused; the proxy keeps its last good one
)

// State gives the type's.
func (t *TypeStatus) State() SyncState {
	switch {
	case t.Nack != nil || len(t.Rejected) > 0:
		return SyncError
	case t.Sent.Nonce == "":
		return SyncNotSent
	case t.Sent.Nonce == t.Acked.Nonce:
		return SyncSynced
	}
	return SyncStale
}

// showRejected publishes the names that the proxy refuses, once the turn has settled which.
func (st *stream) showRejected() {
	for _, w := range st.watches {
		if w == nil || len(w.rejected) == 0 && !w.shown {
			continue
		}
		w.shown = len(w.rejected) > 0
		var names []string
		for id := range w.rejected {
			names = append(names, st.t.name(id))
		}
		slices.Sort(names)
		st.status.rejected(w, names)
	}
}

// joined gives route tables with the virtual hosts that are sent on their own.
func (st *stream) joined(ctx context.Context, tables []ResourceStatus) ([]ResourceStatus, error) {
	typ, ok := st.s.byURL[gen.VirtualHostURL]
	if !ok {
		return tables, nil
	}
	hosts, err := st.inspect(ctx, typ)
	if err != nil {
		return nil, err
	}
	at := map[string]int{}
	for i := range tables {
		at[tables[i].Name] = i
	}
	for _, h := range hosts {
		table, _, _ := strings.Cut(h.Name, "/")
		if i, ok := at[table]; ok && tables[i].Body != nil && h.Body != nil {
			b := slices.Clip(tables[i].Body) // is shared
			b = protowire.AppendTag(b, tableHosts, protowire.BytesType)
			tables[i].Body = protowire.AppendBytes(b, h.Body)
		}
	}
	return tables, nil
}

// tableHosts is the field of a RouteConfiguration with virtual hosts.
const tableHosts protowire.Number = 2
