package main

import (
	"crypto/rand"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/time/rate"
	networking "istio.io/api/networking/v1alpha3"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
	"github.com/isthmus-mesh/isthmus/clusters/workloadgroup"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds"
)

// registration makes workloads of proxies that name a WorkloadGroup (--auto-registration): WorkloadEntries in the config
// cluster, or of the hub alone if there is none with an API server.
type registration struct {
	keeper *workloadgroup.Keeper
	rows   *workloadgroup.Registry // of a hub without an API server; nil otherwise
	find   func() *pushcontext.PushContext

	cluster model.ClusterID // in which workloads are registered
	log     *slog.Logger

	mu      sync.Mutex
	proxies map[*xds.Workload]*workloadgroup.Proxy // guarded by mu: of open streams

	groups []*model.Config // owned by who publishes
}

func newRegistration(o *serveOptions, snapshot func() *pushcontext.PushContext, inForce func() map[model.ClusterID]*rest.Config, replica string, log *slog.Logger) *registration {
	r := &registration{find: snapshot, cluster: model.ClusterID(o.clusterID), log: log, proxies: map[*xds.Workload]*workloadgroup.Proxy{}}
	var entries workloadgroup.Entries
	perSecond := rate.Inf // rows of the hub cost nothing
	if o.kube.hasPrimary() {
		perSecond = 0 // the default
		entries = workloadgroup.NewObjects(func() *rest.Config { return inForce()[r.cluster] }, o.systemNamespace)
	} else {
		r.rows = workloadgroup.NewRegistry(model.ClusterID(o.clusterID), kube.Converter{
			DomainSuffix: o.domain, TrustDomain: o.trustDomain, SystemNamespace: o.systemNamespace, MCS: o.kube.mcs, ConfigCluster: true,
		})
		entries = r.rows
	}
	r.keeper = workloadgroup.New(workloadgroup.Options{Entries: entries, Controller: replica, Group: r.group, Grace: orAtOnce(o.registrationGrace), Rate: perSecond, Log: log})
	return r
}

// replicaName is another for each process.
func replicaName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "hub"
	}
	host, _, _ = strings.Cut(strings.ToLower(host), ".")
	if host = strings.Trim(host, "-"); len(host) > 40 {
		host = strings.Trim(host[:40], "-")
	}
	return host + "-" + strings.ToLower(rand.Text()[:6])
}

// group gives a WorkloadGroup as the snapshot has it.
func (r *registration) group(namespace, name string) *networking.WorkloadGroup {
	pc := r.find()
	if pc == nil {
		return nil
	}
	for _, c := range pc.Configs {
		if c.Kind == model.ConfigWorkloadGroup && c.Namespace == namespace && c.Name == name && !c.NotServed {
			if g, ok := c.Spec.(*networking.WorkloadGroup); ok {
				return g
			}
		}
	}
	return nil
}

// published looks for changed groups. It is called with one snapshot after the other.
func (r *registration) published(pc *pushcontext.PushContext) {
	var groups []*model.Config
	for _, c := range pc.Configs {
		if c.Kind == model.ConfigWorkloadGroup {
			groups = append(groups, c)
		}
	}
	if !slices.Equal(groups, r.groups) {
		r.groups = groups
		r.keeper.GroupsChanged()
	}
}

// Connected implements xds.Workloads.
func (r *registration) Connected(w *xds.Workload) {
	if w.Cluster != r.cluster { // its address may be another's there
		r.log.Warn("a workload is not registered: its proxy is of another cluster", "proxy", w.Proxy, "cluster", w.Cluster, "want", r.cluster)
		return
	}
	p := &workloadgroup.Proxy{
		ID: w.Proxy, Group: w.Group, Entry: w.Entry, Namespace: w.Namespace, Network: w.Network, Locality: w.Locality, Labels: w.Labels, Addresses: w.Addresses,
	}
	r.mu.Lock()
	r.proxies[w] = p
	r.mu.Unlock()
	r.keeper.Connected(p)
}

// Disconnected implements xds.Workloads.
func (r *registration) Disconnected(w *xds.Workload) {
	r.mu.Lock()
	p := r.proxies[w]
	delete(r.proxies, w)
	r.mu.Unlock()
	if p != nil {
		r.keeper.Disconnected(p)
	}
}

// Health implements xds.Workloads.
func (r *registration) Health(w *xds.Workload, healthy bool, message string) {
	r.mu.Lock()
	p := r.proxies[w]
	r.mu.Unlock()
	if p != nil {
		r.keeper.Health(p, healthy, message)
	}
}
