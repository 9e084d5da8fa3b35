package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// unread is a foreign registry that is declared, or may be, and of which nothing is known.
type unread struct {
	name string
	has  func(host string) bool // whether it may have a host in lower case, or hosts that a pattern is for
}

// missing gives the registries that are declared and have not been read; of what was read offline also those that may be declared elsewhere.
func (a *analysis) missing() (out []unread) {
	add := func(provider model.ProviderID, name string, has func(string) bool) {
		if k := (model.ShardKey{Provider: provider, Cluster: model.ClusterID(name)}); !a.read(k.String()) {
			out = append(out, unread{k.String(), has})
		}
	}
	for _, c := range a.pc.Configs {
		switch spec := c.Spec.(type) {
		case *api.RegistrySpec:
			add(model.ProviderID(spec.Provider), c.Name, namesOf(spec))
		case *api.McpBridgeSpec:
			for i := range spec.Registries {
				switch b := spec.Registries[i].Bridge(); {
				case b.Spec != nil:
					add(model.ProviderID(b.Spec.Provider), b.Name, namesOf(b.Spec))
				case b.Static != nil:
					provider := model.ProviderStatic
					if b.Static.DNS {
						provider = model.ProviderStaticDNS
					}
					add(provider, b.Name, func(host string) bool { return strings.EqualFold(host, b.Static.Host) })
				}
			}
		}
	}
	if a.offline {
		for _, p := range []api.Provider{api.Consul, api.Nacos, "static", "dns"} { // hosts end with these words
			out = append(out, unread{"a registry of the type " + string(p), namesOf(&api.RegistrySpec{Provider: p})})
		}
	}
	return out
}

// namesOf tells hosts that services of a registry may have; a server of configuration may have any.
func namesOf(s *api.RegistrySpec) func(string) bool {
	suffix := string(s.Provider)
	if s.Hosts != nil {
		suffix = cmp.Or(strings.ToLower(s.Hosts.Suffix), suffix)
	}
	return func(host string) bool { return s.Provider == api.MCP || strings.HasSuffix(host, "."+suffix) }
}

// read reports whether something is known of a registry, or of any that a pattern is for.
func (a *analysis) read(pattern string) bool {
	return slices.ContainsFunc(a.pc.Shards, func(s pushcontext.ShardInfo) bool { return s.Synced && pushcontext.RegistryMatches(pattern, s.Key) })
}

// absent says of a host that no service has what that means, and what to do; or that a registry may have it of which nothing is known.
func (a *analysis) absent(host, so string) (text string, severity model.Severity) {
	if name := a.mayBeOf(host); name != "" {
		return a.mayBe(name), model.SeverityWarning
	}
	return so, model.SeverityError
}

func (a *analysis) mayBe(of string) string {
	if a.offline {
		return fmt.Sprintf("it may be of %s, which is not read here", of)
	}
	return fmt.Sprintf("it may be of %s, which has not been read yet", of)
}

// mayBeOf gives a registry of which nothing is known and that may have the host; "" if there is none.
func (a *analysis) mayBeOf(host string) string {
	if !a.looked {
		a.looked, a.unread = true, a.missing()
	}
	host = strings.ToLower(host)
	if i := slices.IndexFunc(a.unread, func(u unread) bool { return u.has(host) }); i >= 0 {
		return a.unread[i].name
	}
	return ""
}
