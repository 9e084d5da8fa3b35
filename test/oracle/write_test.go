package oracle_test

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// object is a document of YAML.
type object = map[string]any

type list = []any

// addresses say where versions of services are.
type addresses func(s *service, version int) string

// yaml writes a configuration. Each VirtualService is a minute younger than the one before.
func (c *config) yaml() string {
	var docs []object
	for _, s := range c.services {
		docs = append(docs, s.objects(c.at)...)
	}
	return written(append(docs, c.marker()...)) + c.routing()
}

// names lists the services.
func (c *config) names() string {
	var out []string
	for _, s := range c.services {
		out = append(out, s.host())
	}
	return "# services " + strings.Join(out, ", ") + "\n"
}

// routing writes all but the services.
func (c *config) routing() string {
	var docs []object
	for _, s := range services() {
		if subsets := c.subsets[s.host()]; subsets != nil {
			docs = append(docs, destinationRule(s, subsets))
		}
	}
	if c.servers != nil {
		docs = append(docs, istio("Gateway", namespace, gatewayName, 0, object{"selector": object{"app": "client"}, "servers": c.serverObjects()}))
	}
	for i, v := range c.virtual {
		docs = append(docs, c.bound(v.object(i)))
		for _, r := range v.rules {
			if r.delegate != nil {
				docs = append(docs, r.delegate.object(i))
			}
		}
	}
	if c.imports != nil {
		hosts := list{namespace + "/" + markerHost}
		for _, h := range c.imports {
			hosts = append(hosts, h)
		}
		docs = append(docs, istio("Sidecar", namespace, "default", 0, object{"egress": list{object{"hosts": hosts}}}))
	}
	return written(docs)
}

func written(docs []object) string {
	var b strings.Builder
	for _, d := range docs {
		text, err := yaml.Marshal(d)
		if err != nil {
			panic(err) // maps of plain values
		}
		b.WriteString("---\n" + string(text))
	}
	return b.String()
}

func meta(ns, name string, age int) object {
	return object{"namespace": ns, "name": name, "creationTimestamp": fmt.Sprintf("2026-01-01T00:%02d:00Z", age)}
}

func istio(kind, ns, name string, age int, spec object) object {
	return object{"apiVersion": "networking.istio.io/v1", "kind": kind, "metadata": meta(ns, name, age), "spec": spec}
}

// markerHost answers with the number of the configuration, and markerPath there is served by another endpoint each time: who is
// told so has all the rest too, of which endpoints may come apart.
const (
	markerHost = "marker.test"
	markerPath = "/endpoint"
)

// marker is the service of that host. Configurations have one version each.
func marker() *service {
	return &service{name: markerHost, ns: namespace, entry: true, versions: 2, number: 9}
}

// markerEndpoint is where it is served at a service port.
func (c *config) markerEndpoint(port int) string {
	return fmt.Sprintf("%s:%d", c.at(marker(), c.number%2), targetPort(port))
}

// gatewayName is the Gateway of configurations for a router.
const gatewayName = "public"

// bound attaches a VirtualService to the Gateway, if the configuration has one.
func (c *config) bound(virtualService object) object {
	if c.servers != nil {
		virtualService["spec"].(object)["gateways"] = list{gatewayName}
	}
	return virtualService
}

func (c *config) serverObjects() (out list) {
	for _, p := range servicePorts {
		out = append(out, object{"port": object{"number": p, "name": fmt.Sprintf("http-%d", p), "protocol": "HTTP"}, "hosts": c.servers})
	}
	return out
}

func (c *config) marker() []object {
	answer := object{"directResponse": object{"status": 200, "body": object{"string": fmt.Sprint(c.number)}}}
	pass := object{"match": list{object{"uri": object{"exact": markerPath}}}, "route": list{object{"destination": object{"host": markerHost}}}}
	return []object{
		istio("ServiceEntry", namespace, "marker", 0, object{"hosts": list{markerHost}, "location": "MESH_INTERNAL", "resolution": "STATIC",
			"ports": entryPorts(), "endpoints": list{object{"address": c.at(marker(), c.number%2)}}}),
		c.bound(istio("VirtualService", namespace, "marker", 0, object{"hosts": list{markerHost}, "http": list{pass, answer}})),
	}
}

func entryPorts() (out list) {
	for _, p := range servicePorts {
		out = append(out, object{"number": p, "name": fmt.Sprintf("http-%d", p), "protocol": "HTTP", "targetPort": targetPort(p)})
	}
	return out
}

func labels(s *service, version int) object {
	return object{"app": s.plain(), "version": fmt.Sprintf("v%d", version)}
}

func (s *service) objects(at addresses) (out []object) {
	if s.entry {
		var endpoints list
		for v := range s.versions {
			endpoints = append(endpoints, object{"address": at(s, v), "labels": labels(s, v)})
		}
		return []object{istio("ServiceEntry", s.ns, "entry-"+strings.ReplaceAll(s.plain(), ".", "-"), 0, object{
			"hosts": list{s.name}, "location": "MESH_INTERNAL", "resolution": "STATIC", "ports": entryPorts(), "endpoints": endpoints})}
	}
	var ports, slicePorts, endpoints list
	for _, p := range servicePorts {
		name := fmt.Sprintf("http-%d", p)
		ports = append(ports, object{"name": name, "port": p, "targetPort": targetPort(p)})
		slicePorts = append(slicePorts, object{"name": name, "port": targetPort(p)})
	}
	for v := range s.versions {
		pod := fmt.Sprintf("%s-v%d", s.name, v)
		m := meta(s.ns, pod, 0)
		m["labels"] = labels(s, v)
		out = append(out, object{"apiVersion": "v1", "kind": "Pod", "metadata": m, "status": object{"podIP": at(s, v)}})
		endpoints = append(endpoints, object{"addresses": list{at(s, v)}, "conditions": object{"ready": true},
			"targetRef": object{"kind": "Pod", "name": pod, "namespace": s.ns}})
	}
	slice := meta(s.ns, s.name+"-1", 0)
	slice["labels"] = object{"kubernetes.io/service-name": s.name}
	return append(out,
		object{"apiVersion": "v1", "kind": "Service", "metadata": meta(s.ns, s.name, 0), "spec": object{"clusterIP": s.address(), "ports": ports}},
		object{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": slice, "addressType": "IPv4", "ports": slicePorts, "endpoints": endpoints})
}

func destinationRule(s *service, subsets map[string]int) object {
	var out list
	for _, name := range sorted(subsets) {
		l := object{}
		switch v := subsets[name]; {
		case v > 0:
			l = object{"version": fmt.Sprintf("v%d", v-1)}
		case v < 0:
			l = object{"version": "none"}
		}
		out = append(out, object{"name": name, "labels": l})
	}
	return istio("DestinationRule", s.ns, "rule-"+strings.ReplaceAll(s.plain(), ".", "-"), 0, object{"host": s.host(), "subsets": out})
}

func sorted[V any](m map[string]V) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func (v *virtualService) object(age int) object {
	var rules list
	for _, r := range v.rules {
		rules = append(rules, r.object())
	}
	spec := object{"http": rules}
	if len(v.hosts) > 0 {
		spec["hosts"] = v.hosts
	}
	return istio("VirtualService", v.ns, v.name, age, spec)
}

func (r *rule) object() object {
	out := object{}
	var matches list
	for _, m := range r.matches {
		matches = append(matches, m.object())
	}
	if matches != nil {
		out["match"] = matches
	}
	var routes list
	for _, d := range r.routes {
		to := object{"host": d.host}
		if d.subset != "" {
			to["subset"] = d.subset
		}
		if d.port > 0 {
			to["port"] = object{"number": d.port}
		}
		routes = append(routes, object{"destination": to, "weight": d.weight})
	}
	if routes != nil {
		out["route"] = routes
	}
	if x := r.redirect; x != nil {
		out["redirect"] = set(object{}, "uri", x.uri, "authority", x.authority, "scheme", x.scheme, "redirectCode", x.code, "port", x.port)
	}
	if r.direct > 0 {
		out["directResponse"] = object{"status": r.direct}
	}
	if x := r.rewrite; x != nil {
		out["rewrite"] = set(object{}, "uri", x.uri, "authority", x.authority)
	}
	if r.abort > 0 {
		out["fault"] = object{"abort": object{"httpStatus": r.abort, "percentage": object{"value": 100}}}
	}
	if d := r.delegate; d != nil {
		out["delegate"] = object{"name": d.name, "namespace": d.ns}
	}
	return out
}

// set adds what is not empty.
func set(o object, pairs ...any) object {
	for i := 0; i < len(pairs); i += 2 {
		if v := pairs[i+1]; v != "" && v != 0 {
			o[pairs[i].(string)] = v
		}
	}
	return o
}

func (m *match) object() object {
	out := set(object{}, "port", m.port)
	if m.pathKind != "" {
		out["uri"] = object{m.pathKind: m.path}
	}
	if m.fold {
		out["ignoreUriCase"] = true
	}
	if m.header != "" {
		value := object{}
		if m.kind != "" {
			value[m.kind] = m.value
		}
		out["headers"] = object{m.header: value}
	}
	if m.without != "" {
		out["withoutHeaders"] = object{m.without: object{}}
	}
	if m.method != "" {
		out["method"] = object{"exact": m.method}
	}
	if m.query != "" {
		out["queryParams"] = object{m.query: object{"exact": m.queryIs}}
	}
	if m.authority != "" {
		out["authority"] = object{"prefix": m.authority}
	}
	return out
}
