package kube

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// clusterSetDomain is the domain of services that the Multi-Cluster Services API exports.
const clusterSetDomain = "clusterset.local"

// clusterSetRow is what the keys of rows for clusterset.local end with.
const clusterSetRow = "/clusterset"

// ExportFacts are what conversion needs of a ServiceExport.
type ExportFacts struct {
	Created time.Time // of several exports of one service the oldest settles conflicts
}

// ImportFacts are what conversion needs of a ServiceImport.
type ImportFacts struct {
	IPs []netip.Addr // the addresses of the service in this member
}

func exportFacts(e *mcsv1beta1.ServiceExport) *ExportFacts {
	return &ExportFacts{Created: e.CreationTimestamp.Time}
}

func importFacts(i *mcsv1beta1.ServiceImport) *ImportFacts {
	f := &ImportFacts{}
	for _, s := range i.Spec.IPs {
		if ip, err := parseIP(s); err == nil {
			f.IPs = append(f.IPs, ip)
		}
	}
	return f
}

func clusterSetHost(namespace, name string) string {
	return name + "." + namespace + ".svc." + clusterSetDomain
}

// exported reports whether the Service of that name is exported.
func (c *Converter) exported(namespace, name string, look Lookup) bool {
	if !c.MCS || look.Export(namespace, name) == nil {
		return false
	}
	s := look.Service(namespace, name)
	return s != nil && !s.ExternalName
}

// clusterSet keeps a Service that is not exported to its own member, and makes a second row of one that
// is: the same service by its name in clusterset.local, with the addresses that its import has here.
func (c *Converter) clusterSet(o Object, svc *model.Service, look Lookup, res *Result) {
	if !c.MCS {
		return
	}
	export := look.Export(svc.Namespace, svc.Name)
	if export == nil || svc.Resolution == model.DNSLB {
		svc.ClusterLocal = true
		return
	}
	set := *svc
	set.Host, set.ClusterSet = clusterSetHost(svc.Namespace, svc.Name), true
	set.Addresses, set.Exposed, set.Created = nil, nil, export.Created
	if i := look.Import(svc.Namespace, svc.Name); i != nil && set.Resolution != model.Passthrough {
		set.Addresses = fullLength(i.IPs)
	}
	res.row(o.Ref.String()+clusterSetRow, &set)
}

func fullLength(ips []netip.Addr) []netip.Prefix {
	var out []netip.Prefix
	for _, ip := range ips {
		out = append(out, netip.PrefixFrom(ip, ip.BitLen()))
	}
	return out
}

// clusterSetEndpoints repeats the endpoints of an exported service for its name in clusterset.local.
func (c *Converter) clusterSetEndpoints(o Object, row *model.Endpoints, service string, look Lookup, res *Result) {
	if !c.exported(row.Namespace, service, look) {
		return
	}
	set := *row
	set.Host, set.Endpoints = clusterSetHost(row.Namespace, service), make([]model.Endpoint, len(row.Endpoints))
	for i, ep := range row.Endpoints {
		ep.Source = &set.Source
		set.Endpoints[i] = ep
	}
	res.row(o.Ref.String()+clusterSetRow, &set)
}

// serviceExport makes no rows; it says why it has no effect.
func (c *Converter) serviceExport(o Object, look Lookup) (res Result) {
	if !c.MCS {
		return c.other(o)
	}
	switch s := look.Service(o.Ref.Namespace, o.Ref.Name); {
	case s == nil:
		res.problem("it has no effect: there is no Service of this name")
	case s.ExternalName:
		res.problem("it has no effect: a Service of type ExternalName can't be exported")
	}
	return res
}

// serviceImport makes the row by which this member knows a service that other members export, unless it
// exports the service itself, whose row has the addresses then. An import that has no addresses yet makes
// none.
func (c *Converter) serviceImport(o Object, i *mcsv1beta1.ServiceImport, look Lookup) (res Result) {
	if !c.MCS {
		return c.other(o)
	}
	for _, s := range i.Spec.IPs {
		if _, err := parseIP(s); err != nil {
			res.problem("address %q is left out: %v", clip(s), err)
		}
	}
	svc := &model.Service{
		Host: clusterSetHost(o.Ref.Namespace, o.Ref.Name), Namespace: o.Ref.Namespace, Name: o.Ref.Name,
		Ports: servicePorts(importPorts(i.Spec.Ports), &res), ClusterSet: true, NodeLocal: nodeLocal(i.Spec.InternalTrafficPolicy),
		Labels: model.Labels(i.Labels), Created: i.CreationTimestamp.Time, Source: c.source(o),
	}
	switch i.Spec.Type {
	case mcsv1beta1.Headless:
		svc.Resolution = model.Passthrough
	case mcsv1beta1.ClusterSetIP:
		svc.Addresses = fullLength(importFacts(i).IPs)
	default:
		res.problem("type %q is not known: use ClusterSetIP or Headless", clip(string(i.Spec.Type)))
		return res
	}
	if word := i.Spec.TrafficDistribution; word != nil {
		svc.Traffic = trafficWord(*word, &res)
	}
	if c.exported(o.Ref.Namespace, o.Ref.Name, look) || i.Spec.Type == mcsv1beta1.ClusterSetIP && len(svc.Addresses) == 0 {
		return res
	}
	res.row(o.Ref.String(), svc)
	return res
}

func importPorts(ports []mcsv1beta1.ServicePort) []corev1.ServicePort {
	var out []corev1.ServicePort
	for _, p := range ports {
		out = append(out, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port})
	}
	return out
}
