package kube

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Labels and annotations that conversion reads.
const (
	labelNetwork           = model.LabelNetwork
	labelCluster           = "topology.istio.io/cluster"
	labelSubzone           = "topology.istio.io/subzone"
	labelLocality          = "topology.istio.io/locality"
	labelLocalityOld       = "istio-locality"
	labelTLSMode           = "security.istio.io/tlsMode"
	labelDraining          = "istio.io/draining"
	labelPersistentSession = "istio.io/persistent-session"
	labelPersistentHeader  = "istio.io/persistent-session-header"
	labelMirroredService   = "multicluster.kubernetes.io/service-name"

	labelGatewayPort = model.LabelGatewayPort

	// labelAutoAddress of a ServiceEntry is "false" if its hosts are to have no automatic addresses.
	labelAutoAddress = "networking.istio.io/enable-autoallocate-ip"

	annotationTraffic      = "networking.istio.io/traffic-distribution"
	annotationExportTo     = "networking.istio.io/exportTo"
	annotationCanonicalSAs = "alpha.istio.io/canonical-serviceaccounts"
	annotationKubeSAs      = "alpha.istio.io/kubernetes-serviceaccounts"
	annotationNodeSelector = "traffic.istio.io/nodeSelector"
	annotationHealthChecks = "proxy.istio.io/health-checks-enabled"
)

// Converter turns objects of one member into rows.
type Converter struct {
	Shard           model.ShardKey
	DomainSuffix    string // "cluster.local" if empty
	TrustDomain     string // where the member names none itself; "cluster.local" if empty
	SystemNamespace string // whose network label is the member's; "istio-system" if empty
	Revision        string // of Istio, whose ConfigMap is "istio-<revision>"; "istio" if empty or "default"
	// MCS follows the Multi-Cluster Services API: a Service is known to its own member only, unless a
	// ServiceExport of its name exports it.
	MCS bool
	// ConfigCluster says that the member is the config cluster: Gateways of the class istio-remote, which
	// stand for gateways elsewhere, count there only, and TrustDomain is that of its own settings already,
	// which are the mesh's.
	ConfigCluster bool
}

// Result is what one object became: its rows, none deleted, and what is wrong with it. An object
// with problems may still have rows, made of what is right. One that is refused has none.
type Result struct {
	Rows     []model.Event
	Problems []string        // sentences
	Findings []model.Finding // errors first
	Refused  bool            // it is not in force
}

func (r *Result) row(key string, o model.Object) {
	r.Rows = append(r.Rows, model.Event{Row: model.RowKey{Kind: o.RowKind(), Key: key}, Obj: o})
}

// maxReasons is how much is told of one object.
const maxReasons = 32

func (r *Result) problem(format string, args ...any) {
	switch n := len(r.Problems); {
	case n < maxReasons:
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	case n == maxReasons:
		r.Problems = append(r.Problems, "more is wrong with it, which is not told")
	}
}

// Convert makes the rows of one object. A panic while converting becomes a problem, so that one odd
// object costs that object only.
func (c *Converter) Convert(o Object, look Lookup) (res Result) {
	spec, checked := specOf(o.Value)
	defer func() {
		switch p := recover(); {
		case p == nil:
		case checked:
			res = Result{Findings: []model.Finding{refusal(o, codeFailed, fmt.Sprintf("conversion failed: %v", p))}, Refused: true}
		default:
			res = Result{Problems: []string{fmt.Sprintf("conversion failed: %v", p)}}
		}
	}()
	if !checked {
		return c.convert(o, look)
	}
	findings, refused := c.findings(o, spec)
	if refused {
		return Result{Findings: findings, Refused: true}
	}
	res = c.convert(o, look)
	c.note(o, findings, &res)
	return res
}

func (c *Converter) convert(o Object, look Lookup) Result {
	switch v := o.Value.(type) {
	case *corev1.Service:
		return c.service(o, v, look)
	case *corev1.Pod:
		return c.pod(o, v, look)
	case *ServiceEntry:
		return c.serviceEntry(o, v, look)
	case *WorkloadEntry:
		return c.workloadEntry(o, v, look)
	case *gatewayv1.Gateway:
		return c.kubernetesGateway(o, v)
	case *mcsv1beta1.ServiceExport:
		return c.serviceExport(o, look)
	case *mcsv1beta1.ServiceImport:
		return c.serviceImport(o, v, look)
	case *corev1.ConfigMap:
		return c.configMap(v)
	case *Config:
		return c.config(o, v)
	case *Declared:
		return c.declared(o, v)
	case *Other:
		return c.other(o)
	}
	if s := slice(o); s != nil {
		return c.slice(o, s, look)
	}
	return Result{}
}

func (c *Converter) other(o Object) (res Result) {
	res.row(o.Ref.String(), c.notServed(o, o.Ref.Kind))
	return res
}

// notServed is the row of an object that nothing uses.
func (c *Converter) notServed(o Object, kind string) *model.Config {
	row := c.configRow(o, kind)
	row.NotServed = true
	return row
}

func (c *Converter) source(o Object) model.Source {
	return model.Source{Shard: c.Shard, Object: o.Ref, Revision: o.Revision, Time: o.Time}
}

func (c *Converter) withDefaults() *Converter {
	d := *c
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&d.DomainSuffix, "cluster.local")
	def(&d.TrustDomain, "cluster.local")
	def(&d.SystemNamespace, "istio-system")
	return &d
}

func (c *Converter) host(namespace, name string) string {
	return name + "." + namespace + ".svc." + c.DomainSuffix
}

func (c *Converter) spiffe(namespace, account string, look Lookup) string {
	domain := c.TrustDomain
	if own := look.TrustDomain(); own != "" && !c.ConfigCluster {
		domain = own
	}
	return "spiffe://" + domain + "/ns/" + namespace + "/sa/" + account
}

// network is a label's network, else the member's.
func (c *Converter) network(l model.Labels, look Lookup) string {
	if n := l[labelNetwork]; n != "" {
		return n
	}
	if ns := look.Namespace(c.SystemNamespace); ns != nil {
		return ns.Network
	}
	return ""
}

// labelled is the locality that an object's labels state. In the old label dots stand for slashes.
func labelled(l model.Labels) (model.Locality, bool) {
	for _, key := range []string{labelLocality, labelLocalityOld} {
		if s := l[key]; s != "" {
			if !strings.Contains(s, "/") {
				s = strings.ReplaceAll(s, ".", "/")
			}
			return model.ParseLocality(s), true
		}
	}
	return model.Locality{}, false
}

// locality is the place that labels state, else the node's.
func (c *Converter) locality(l model.Labels, node string, look Lookup) model.Locality {
	if loc, ok := labelled(l); ok || node == "" {
		return loc
	}
	if n := look.Node(node); n != nil {
		return n.Locality
	}
	return model.Locality{}
}

// augmented adds to a copy of l what subset selectors may name: place, member, node, and the network
// unless l has one.
func (c *Converter) augmented(l model.Labels, loc model.Locality, node, network string) model.Labels {
	out := make(model.Labels, len(l)+6)
	maps.Copy(out, l)
	set := func(k, v string) {
		if v != "" {
			out[k] = v
		}
	}
	set(corev1.LabelTopologyRegion, loc.Region)
	set(corev1.LabelTopologyZone, loc.Zone)
	set(labelSubzone, loc.Subzone)
	set(labelCluster, string(c.Shard.Cluster))
	set(corev1.LabelHostname, node)
	if out[labelNetwork] == "" {
		set(labelNetwork, network)
	}
	return out
}

// tlsMode reads the label; anything but "istio" is plaintext.
func tlsMode(l model.Labels) string {
	if l[labelTLSMode] == model.TLSIstio {
		return model.TLSIstio
	}
	return model.TLSDisabled
}

func portNumber(n int64) (uint16, bool) { return uint16(n), n >= 1 && n <= 65535 }

// parseIP reads an address that an endpoint or service can have.
func parseIP(s string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("not an IP address")
	}
	if ip = ip.Unmap(); ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "" {
		return netip.Addr{}, errNoUnicast
	}
	return ip, nil
}
