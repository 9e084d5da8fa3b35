package kube

import (
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// form is what an address of a WorkloadEntry is.
type form uint8

const (
	formInvalid form = iota
	formIP
	formHost
	formSocket
	formNone // reachable through its network's gateway
)

type address struct {
	form form
	ip   netip.Addr
	host string // name or socket
}

func (a address) at(cluster model.ClusterID, port uint16) model.Addr {
	switch a.form {
	case formIP:
		return model.Addr{Cluster: cluster, AddrPort: netip.AddrPortFrom(a.ip, port)}
	case formSocket:
		return model.Addr{Cluster: cluster, Host: a.host}
	}
	return model.Addr{Cluster: cluster, Host: a.host, AddrPort: netip.AddrPortFrom(netip.Addr{}, port)}
}

const socketPrefix = "unix://"

// parseAddress tells the forms apart. An empty address needs a network.
func parseAddress(we *networking.WorkloadEntry) (address, error) {
	s := we.Address
	if rest, ok := strings.CutPrefix(s, socketPrefix); ok {
		switch {
		case !path.IsAbs(rest) && !strings.HasPrefix(rest, "@"):
			return address{}, errSocketPath
		case len(we.Ports) > 0:
			return address{}, errSocketPort
		}
		return address{form: formSocket, host: s}, nil
	}
	if s == "" {
		if we.Network == "" && we.Labels[labelNetwork] == "" {
			return address{}, errNoAddress
		}
		return address{form: formNone}, nil
	}
	if _, err := netip.ParseAddr(s); err == nil {
		ip, err := parseIP(s)
		if err != nil {
			return address{}, err
		}
		return address{form: formIP, ip: ip}, nil
	}
	if validDNS(s) != nil {
		return address{}, errAddress
	}
	return address{form: formHost, host: s}, nil
}

// entryTLSMode is the label, else "istio" for an entry with a service account.
func entryTLSMode(we *networking.WorkloadEntry) string {
	if _, ok := we.Labels[labelTLSMode]; !ok && we.ServiceAccount != "" {
		return model.TLSIstio
	}
	return tlsMode(we.Labels)
}

func entryLocality(we *networking.WorkloadEntry) model.Locality {
	if we.Locality != "" {
		return model.ParseLocality(we.Locality)
	}
	loc, _ := labelled(we.Labels)
	return loc
}

// workloadEntry makes the Workload row of a WorkloadEntry. Labels of its metadata count as labels of
// the workload and win over those of its spec.
func (c *Converter) workloadEntry(o Object, v *WorkloadEntry, look Lookup) (res Result) {
	if v.Spec == nil {
		res.problem("it has no spec")
		return res
	}
	we := mergedLabels(v)
	addr, err := parseAddress(we)
	if err != nil {
		res.problem("address %q: %v", clip(we.Address), err)
		return res
	}
	network := we.Network
	if network == "" {
		network = c.network(we.Labels, look)
	}
	loc := entryLocality(we)
	w := &model.Workload{
		Kind: model.KindWorkloadEntry, Namespace: o.Ref.Namespace, Name: o.Ref.Name,
		Labels: c.augmented(we.Labels, loc, "", network), Address: addr.at(c.Shard.Cluster, 0), Ports: entryPorts(we, &res),
		Network: network, Locality: loc, TLSMode: entryTLSMode(we), Health: entryHealth(v), Weight: float64(we.Weight), Source: c.source(o),
	}
	if we.ServiceAccount != "" {
		w.ServiceAccount = c.spiffe(o.Ref.Namespace, we.ServiceAccount, look)
	}
	res.row(o.Ref.String(), w)
	return res
}

// mergedLabels is the spec with the metadata's labels; the object itself is not touched.
func mergedLabels(v *WorkloadEntry) *networking.WorkloadEntry {
	labels := map[string]string{}
	maps.Copy(labels, v.Spec.Labels)
	maps.Copy(labels, v.Meta.Labels)
	return &networking.WorkloadEntry{
		Address: v.Spec.Address, Ports: v.Spec.Ports, Labels: labels, Network: v.Spec.Network,
		Locality: v.Spec.Locality, Weight: v.Spec.Weight, ServiceAccount: v.Spec.ServiceAccount,
	}
}

func entryPorts(we *networking.WorkloadEntry, res *Result) map[string]uint16 {
	var out map[string]uint16
	for _, name := range slices.Sorted(maps.Keys(we.Ports)) {
		n, ok := portNumber(int64(we.Ports[name]))
		if !ok {
			res.problem("port %q is left out: %d is not 1 to 65535", clip(name), we.Ports[name])
			continue
		}
		if out == nil {
			out = map[string]uint16{}
		}
		out[name] = n
	}
	return out
}

// entryHealth: an entry whose health is checked is healthy only once that was reported.
func entryHealth(v *WorkloadEntry) model.Health {
	if v.Meta.Annotations[annotationHealthChecks] == "true" && (v.Healthy == nil || !*v.Healthy) {
		return model.Unhealthy
	}
	return model.Healthy
}
