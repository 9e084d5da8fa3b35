package registries

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// Codes of findings about declarations together. They are stable.
const (
	CodeNotInForce = "NotInForce" // the object declares nothing where it is, or as it is called
	CodeTaken      = "NameTaken"  // another declaration has the name
)

// MostRegistries is how many declarations are in force at once.
const MostRegistries = 256

// Scope says which objects count.
type Scope struct {
	SystemNamespace string
	ConfigCluster   model.ClusterID           // any if empty
	Reserved        map[model.ShardKey]string // keys that are not to be had, and what has them
}

// Declared is one registry that is declared. Spec or Static is set.
type Declared struct {
	Key     model.ShardKey
	Spec    *api.RegistrySpec // with all defaults
	Static  *api.StaticService
	From    model.Source // the object
	Field   string       // of it: "registries[1]"; "" for the whole object
	Created time.Time

	namespace string
	plain     foreign.Access // credentials that stand in the object
}

// Finding is something about an object that its author should know.
type Finding struct {
	model.Finding
	Source model.Source
}

// Counts reports whether a row may declare registries, be it in force or not.
func Counts(c *model.Config) bool {
	return c != nil && (c.Kind == model.ConfigRegistry || c.Kind == model.ConfigMcpBridge)
}

// Read gives the declarations in force, the oldest first, and what is to be said of objects that are not, or not all of which is.
func Read(rows []*model.Config, s Scope) (out []Declared, findings []Finding) {
	r := reader{Scope: s}
	for _, c := range rows {
		if Counts(c) && c.Spec != nil {
			r.object(c)
		}
	}
	slices.SortStableFunc(r.found, func(a, b Declared) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(b.From.Object.Kind, a.From.Object.Kind), strings.Compare(a.From.Object.String(), b.From.Object.String()),
			a.From.Shard.Compare(b.From.Shard))
	})
	return r.unique(), r.findings
}

type reader struct {
	Scope
	found    []Declared
	findings []Finding
}

func (r *reader) tell(of model.Source, code, field, format string, args ...any) {
	r.findings = append(r.findings, Finding{Source: of, Finding: model.Finding{
		Code: code, Severity: model.SeverityWarning, Object: of.Object, Field: field, Message: fmt.Sprintf(format, args...),
	}})
}

func (r *reader) object(c *model.Config) {
	switch {
	case c.Source.Shard.Provider.Foreign() || r.ConfigCluster != "" && c.Source.Shard.Cluster != r.ConfigCluster:
		r.tell(c.Source, CodeNotInForce, "", "it declares nothing here: registries are declared in the config cluster")
		return
	case c.Namespace != r.SystemNamespace:
		r.tell(c.Source, CodeNotInForce, "", "it declares nothing here: registries are declared in the namespace %s", r.SystemNamespace)
		return
	}
	switch spec := c.Spec.(type) {
	case *api.RegistrySpec:
		effective := spec.Effective(c.Namespace)
		r.add(c, string(spec.Provider), c.Name, Declared{Spec: &effective})
	case *api.McpBridgeSpec:
		r.bridge(c, spec)
	}
}

func (r *reader) bridge(c *model.Config, spec *api.McpBridgeSpec) {
	if c.Name != api.McpBridgeName {
		r.tell(c.Source, CodeNotInForce, "", "it declares nothing: the McpBridge that counts is called %q", api.McpBridgeName)
		return
	}
	seen := map[string]bool{}
	for i := range spec.Registries {
		item := &spec.Registries[i]
		if seen[item.Key()] {
			continue // which its own findings say
		}
		seen[item.Key()] = true
		b := item.Bridge()
		d := Declared{Static: b.Static, Field: fmt.Sprintf("registries[%d]", i), plain: foreign.Access{AccessKey: string(b.AccessKey), SecretKey: string(b.SecretKey)}}
		switch {
		case b.Spec != nil:
			effective := b.Spec.Effective(c.Namespace)
			d.Spec = &effective
			r.add(c, string(effective.Provider), b.Name, d)
		case b.Static != nil && b.Static.DNS:
			r.add(c, string(model.ProviderStaticDNS), b.Name, d)
		case b.Static != nil:
			r.add(c, string(model.ProviderStatic), b.Name, d)
		}
	}
}

func (r *reader) add(c *model.Config, provider, name string, d Declared) {
	if len(name) > 63 {
		r.tell(c.Source, CodeNotInForce, "", "its name is the registry's, which may have 63 characters")
		return
	}
	d.Key = model.ShardKey{Provider: model.ProviderID(provider), Cluster: model.ClusterID(name)}
	d.From, d.Created, d.namespace = c.Source, c.Created, c.Namespace
	r.found = append(r.found, d)
}

// unique leaves one declaration for each key, the first, and as many as there may be.
func (r *reader) unique() (out []Declared) {
	holder := map[model.ShardKey]Declared{}
	for _, d := range r.found {
		switch h, taken := holder[d.Key]; {
		case r.Reserved[d.Key] != "":
			r.tell(d.From, CodeTaken, d.Field, "it is not in force: %s names a registry %s", r.Reserved[d.Key], d.Key)
		case taken:
			where := h.where()
			if h.From.Shard != d.From.Shard {
				where += " of " + h.From.Shard.String()
			}
			r.tell(d.From, CodeTaken, d.Field, "it is not in force: the registry %s is declared by %s, which was there before", d.Key, where)
		case len(out) >= MostRegistries:
			r.tell(d.From, CodeNotInForce, d.Field, "it is not in force: there are %d registries, which is the most there may be", MostRegistries)
		default:
			holder[d.Key] = d
			out = append(out, d)
		}
	}
	return out
}

// where names what declares the registry.
func (d *Declared) where() string {
	return strings.TrimSpace(d.From.Object.String() + " " + d.Field)
}
