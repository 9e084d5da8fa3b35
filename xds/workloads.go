package xds

import (
	"net/netip"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/xds/wire"
)

// Workloads is told of proxies that ask to be registered as workloads: of WorkloadGroups, or as WorkloadEntries
// that are there already. Of one stream its methods are called one after the other, beginning with Connected
// and ending with Disconnected; of several at the same time. They must not block, and keep nothing that they are
// given but the Workload.
type Workloads interface {
	// Connected: the proxy introduced itself. A proxy that comes again may do so before its old stream ends.
	Connected(w *Workload)
	// Disconnected: the stream has ended, whatever the reason.
	Disconnected(w *Workload)
	// Health: the workload's own health check changed its mind (istio.v1.HealthInformation). The message, of a
	// bounded length, says why it is not healthy.
	Health(w *Workload, healthy bool, message string)
}

// Workload is what a proxy says of the workload that it is beside. It is immutable, and one for each stream, so
// that pointers tell streams of one proxy apart.
type Workload struct {
	Proxy          string // node id
	Group          string // name of its WorkloadGroup (node metadata AUTO_REGISTER_GROUP); "" if it has an Entry
	Entry          string // name of its WorkloadEntry (node metadata WORKLOAD_ENTRY)
	Cluster        model.ClusterID
	Namespace      string
	ServiceAccount string // name, as it says
	Network        string
	Locality       model.Locality
	Labels         model.Labels
	Addresses      []netip.Addr // the one of its id first
}

// registration reads whether a proxy asks to be registered.
func (m metadata) registration(id *identity) error {
	w := &Workload{}
	for key, to := range map[string]*string{"AUTO_REGISTER_GROUP": &w.Group, "WORKLOAD_ENTRY": &w.Entry, "SERVICE_ACCOUNT": &w.ServiceAccount} {
		if err := m.name(key, to); err != nil {
			return err
		}
	}
	if w.Group != "" || w.Entry != "" {
		id.workload = w
	}
	return nil
}

// complete adds what is read elsewhere in the node.
func (w *Workload) complete(id *identity) {
	c := &id.class
	w.Proxy, w.Cluster, w.Namespace, w.Network, w.Labels, w.Locality = id.id, c.Cluster, c.Namespace, c.Network, id.labels, c.Locality
	for _, k := range id.instances {
		w.Addresses = append(w.Addresses, k.IP)
	}
}

// registered gives who is to be told of the stream's workload; nil if nobody is.
func (st *stream) registered() Workloads {
	if st.id == nil || st.id.workload == nil {
		return nil
	}
	return st.s.opt.Workloads
}

func (st *stream) arrived() {
	if o := st.registered(); o != nil {
		st.told = true
		o.Connected(st.id.workload)
	}
}

func (st *stream) gone() error {
	if st.told {
		st.registered().Disconnected(st.id.workload)
	}
	return nil
}

// health passes a report on: an error in it is the reason why the workload is not healthy.
func (st *stream) health(r *wire.Request) error {
	if !st.told {
		return nil // a report that comes before the proxy has introduced itself, or of one that is no such workload
	}
	message := ""
	if r.Fault != nil {
		message = clip(r.Fault.Message, maxMessage)
	}
	st.registered().Health(st.id.workload, r.Fault == nil, message)
	return nil
}
