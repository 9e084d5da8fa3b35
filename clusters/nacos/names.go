package nacos

import (
	"cmp"
	"slices"
	"strings"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

const (
	publicNamespace = "public"
	defaultGroup    = "DEFAULT_GROUP"
	maxName         = 512          // as in Nacos
	consumerPrefix  = "consumers:" // what Dubbo's consumers register as
)

// serviceName is what identifies a service within Nacos.
type serviceName struct{ namespace, group, name string }

// String is the key of the service within its registry: "group@@name", or "namespace/group@@name" if the namespace is not the usual one. The
// first "@@" and the first "/" before it part it: what of these is in a namespace or a group is escaped, and so is "/" in a name.
func (n serviceName) String() string {
	key := keyPart(n.group) + serviceKeySeparator + foreign.KeyPart(n.name)
	if n.namespace == publicNamespace {
		return key
	}
	return keyPart(n.namespace) + "/" + key
}

func keyPart(s string) string { return strings.ReplaceAll(foreign.KeyPart(s), "@", "%40") }

// parseServiceKey reads "namespace@@group@@service".
func parseServiceKey(key string) (serviceName, bool) {
	parts := strings.SplitN(key, serviceKeySeparator, 3)
	if len(parts) != 3 || parts[1] == "" || parts[2] == "" {
		return serviceName{}, false
	}
	return serviceName{cmp.Or(parts[0], publicNamespace), parts[1], parts[2]}, true
}

// plainName takes the group off a name that may have it in front.
func plainName(group, name string) string {
	return strings.TrimPrefix(name, group+serviceKeySeparator)
}

// about is the service that a notification is about. Nacos leaves its namespace out, which is empty then.
func (n *notice) about() serviceName {
	group, name := n.Group, n.Service
	if n.Info != nil {
		group, name = cmp.Or(group, n.Info.Group), cmp.Or(name, n.Info.Name)
	}
	if g, rest, ok := strings.Cut(name, serviceKeySeparator); ok && (group == "" || g == group) {
		group, name = g, rest
	}
	return serviceName{n.Namespace, group, name}
}

// homes are the namespaces in which services of the same group and name were subscribed to in a session, as notifications do not
// say which one they are about.
type homes map[serviceName][]string // by a name without namespace

// add takes note of a subscription. Names that came and went are forgotten if they get many: known says which ones are there.
func (h homes) add(n serviceName, limit int, known func(serviceName) bool) {
	bare := serviceName{group: n.group, name: n.name}
	if !slices.Contains(h[bare], n.namespace) {
		h[bare] = append(h[bare], n.namespace)
	}
	if len(h) <= limit {
		return
	}
	for bare, namespaces := range h {
		if !slices.ContainsFunc(namespaces, func(ns string) bool { return known(serviceName{ns, bare.group, bare.name}) }) {
			delete(h, bare)
		}
	}
}

// of gives all that a notification may be about.
func (h homes) of(n serviceName) (out []serviceName) {
	if n.namespace != "" {
		return []serviceName{n}
	}
	for _, ns := range h[n] {
		out = append(out, serviceName{ns, n.group, n.name})
	}
	return out
}

// scope is one group of one namespace: what a list is about.
type scope struct{ namespace, group string }

func (n serviceName) scope() scope { return scope{n.namespace, n.group} }

func (s scope) String() string { return "namespace " + s.namespace + ", group " + s.group }

func (s scope) pattern() string { return s.namespace + ">>" + s.group + ">>*" }

// scopes are those of a spec.
func scopes(spec *api.NacosSpec) (out []scope) {
	seen := map[scope]bool{}
	for _, ns := range orDefault(spec.Namespaces, publicNamespace) {
		for _, group := range orDefault(spec.Groups, defaultGroup) {
			s := scope{cmp.Or(ns, publicNamespace), cmp.Or(group, defaultGroup)}
			if !seen[s] {
				out = append(out, s)
			}
			seen[s] = true
		}
	}
	return out
}

func orDefault(list []string, def string) []string {
	if len(list) == 0 {
		return []string{def}
	}
	return list
}

// realService tells services from what else is registered as one.
func realService(name string) bool {
	return strings.TrimSpace(name) != "" && len(name) <= maxName && !strings.HasPrefix(name, consumerPrefix)
}
