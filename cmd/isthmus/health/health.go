// Package health counts what is questionable about the mesh in force, under the names that Istio's
// dashboards read: services without endpoints, definitions that get in each other's way, pods that
// nobody knows. Everything is computed from the published snapshot, so the numbers are those of one
// version and need no bookkeeping beside it.
package health

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// check is one number about a snapshot.
type check struct {
	name, help string
	count      func(*pushcontext.PushContext) int
}

// checks are the numbers that depend on the snapshot alone.
func checks() []check {
	return []check{
		{"pilot_virt_services", "VirtualServices known.", virtualServices},
		{"pilot_eds_no_instances", "Service ports without any endpoint, of services whose endpoints are pushed.", emptyPorts},
		{"pilot_dns_cluster_without_endpoints", "Service ports without any name to resolve, of services found by DNS.", emptyNames},
		{"pilot_endpoint_not_ready", "Endpoints that are not ready.", notReady},
		{"endpoint_no_pod", "Endpoints of services that are left out because their pod is not known.", withoutPod},
		{"pilot_k8s_endpoints_pending_pod", "Addresses that are left out until their pod is known.", pendingPods},
		{"pilot_duplicate_envoy_clusters", "Service ports that a definition of the same host and port hides from some proxy.", hiddenClusters},
		{"pilot_conflict_inbound_listener", "Workload ports that services give protocols of different kinds.", inboundConflicts},
		{"pilot_conflict_outbound_listener_tcp_over_current_tcp", "TCP service ports whose place an older service has for some proxy.", outboundConflicts},
	}
}

// Collector gives the numbers. All fields are read-only once it is registered.
type Collector struct {
	Snapshot func() *pushcontext.PushContext
	Shards   func() []pushcontext.ShardInfo
	Sidecars func() []pushcontext.Reader // that are connected
	Classes  func() []gen.Class          // of connected proxies

	newest atomic.Pointer[result]
	left   atomic.Pointer[leftOut]
}

// result is the numbers of one version, in the order of checks.
type result struct {
	version uint64
	counts  []int
}

func desc(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }

func rejected() *prometheus.Desc {
	return desc("pilot_total_rejected_configs", "Items of the clusters' configuration that can't be used, now, and servers of Gateways that some router can't serve.")
}

func leftOutDesc() *prometheus.Desc {
	return prometheus.NewDesc("isthmus_endpoints_left_out",
		"Endpoints by service port that no proxy, or not every connected proxy that sees the service, is sent.", []string{"reason"}, nil)
}

func unserving() []*prometheus.Desc {
	const help = "Connected sidecars at addresses that back no service."
	return []*prometheus.Desc{desc("pilot_no_ip", help), desc("pilot_k8s_proxies_with_no_service_targets", help)}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, k := range checks() {
		ch <- desc(k.name, k.help)
	}
	ch <- rejected()
	ch <- leftOutDesc()
	for _, d := range unserving() {
		ch <- d
	}
}

// Collect implements prometheus.Collector. Before the first snapshot there is nothing to tell.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	pc := c.Snapshot()
	if pc == nil {
		return
	}
	gauge := func(d *prometheus.Desc, n int) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	counts := c.counts(pc)
	for i, k := range checks() {
		gauge(desc(k.name, k.help), counts[i])
	}
	problems := 0
	for _, s := range c.Shards() {
		problems += model.CountProblems(s.Status.Problems)
	}
	gauge(rejected(), problems+c.droppedServers(pc))
	for reason, n := range c.leftOut(pc) {
		ch <- prometheus.MustNewConstMetric(leftOutDesc(), prometheus.GaugeValue, float64(n), string(reason))
	}
	idle := c.unserving(pc)
	for _, d := range unserving() {
		gauge(d, idle)
	}
}

// counts computes a version's numbers once. Two scrapes at a time may both do so, which harms nobody.
func (c *Collector) counts(pc *pushcontext.PushContext) []int {
	if r := c.newest.Load(); r != nil && r.version == pc.Version {
		return r.counts
	}
	r := &result{version: pc.Version}
	for _, k := range checks() {
		r.counts = append(r.counts, k.count(pc))
	}
	c.newest.Store(r)
	return r.counts
}

// droppedServers counts servers of Gateways that some connected router that they select does not serve, though they have routes.
func (c *Collector) droppedServers(pc *pushcontext.PushContext) int {
	dropped := map[*pushcontext.GatewayServer]bool{}
	for _, class := range c.Classes() {
		if class.Type != gen.Router || pc.Gateways == nil {
			continue
		}
		for _, v := range gen.ExplainGateways(pc.Gateways, class) {
			if v.Reason != "" && !v.Idle {
				dropped[v.Server] = true
			}
		}
	}
	return len(dropped)
}

func (c *Collector) unserving(pc *pushcontext.PushContext) int {
	n := 0
	for _, r := range c.Sidecars() {
		if pc.Instance(r.Instances...) == nil {
			n++
		}
	}
	return n
}
