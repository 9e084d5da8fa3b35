package debug

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/holdback"
	"github.com/isthmus-mesh/isthmus/clusters/registries"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Registry is a foreign registry: an element of /debug/registries.
type Registry struct {
	Provider    string     `json:"provider"`
	Name        string     `json:"name"`
	State       string     `json:"state"` // see model.State; or Refused: it can't be read as it is declared
	Since       time.Time  `json:"since,omitzero"`
	Reason      string     `json:"reason,omitempty"`      // why there is no contact, or why it can't be read
	Replacement string     `json:"replacement,omitempty"` // why what is declared now has not taken over
	Synced      bool       `json:"synced"`                // it has delivered everything once
	SyncedAt    time.Time  `json:"syncedAt,omitzero"`
	LastEvent   time.Time  `json:"lastEvent,omitzero"`
	Services    int        `json:"services"`
	Workloads   int        `json:"workloads"`
	Endpoints   int        `json:"endpoints"`            // that proxies may be sent
	HeldBack    int        `json:"heldBack"`             // services, and objects of configuration, that are served as they were
	Problems    []Problem  `json:"problems,omitempty"`   // as the status has them; of one that is asked for by name, all that is held back too
	DeclaredBy  *Declaring `json:"declaredBy,omitempty"` // nil if flags or the mesh's settings name it
	Secrets     []string   `json:"secrets,omitempty"`    // that it needs
	// Effective are the settings in force, defaults and all, of what is declared now; Static those of a service whose addresses are declared.
	Effective *api.RegistrySpec  `json:"effective,omitempty"`
	Static    *api.StaticService `json:"static,omitempty"`
}

// Declaring is the object, or the part of it, that declares a registry.
type Declaring struct {
	Source Source `json:"source"`
	Field  string `json:"field,omitempty"`
}

func (h *handler) registries(r *http.Request) (any, error) {
	out := Registries(h.Shards(), h.Snapshot(), h.declared(), h.held)
	q := r.URL.Query()
	if q.Get("name") == "" {
		return out, nil
	}
	out = slices.DeleteFunc(out, func(x Registry) bool { return !passes(q.Get("name"), x.Name) || !passes(q.Get("provider"), x.Provider) })
	if len(out) == 0 {
		return nil, notFound("there is no registry %s", q.Get("name"))
	}
	for i := range out {
		out[i].tellAll(h.held)
	}
	return out, nil
}

// held is what a registry holds back.
func (h *handler) held(k model.ShardKey) holdback.Held {
	if h.HeldBack == nil {
		return holdback.Held{}
	}
	return h.HeldBack(k)
}

// tellAll has the problems name all that is held back, of which a status names some.
func (x *Registry) tellAll(held func(model.ShardKey) holdback.Held) {
	all := held(model.ShardKey{Provider: model.ProviderID(x.Provider), Cluster: model.ClusterID(x.Name)}).Problems()
	if len(all) == 0 {
		return
	}
	x.Problems = slices.DeleteFunc(x.Problems, func(p Problem) bool { return p.Held })
	for _, p := range all {
		x.Problems = append(x.Problems, Problem(p))
	}
}

func (h *handler) declared() []registries.Info {
	if h.Declared == nil {
		return nil
	}
	return h.Declared()
}

// Registries shows the foreign ones, by name and provider. The snapshot may be nil, and held too.
func Registries(shards []pushcontext.ShardInfo, pc *pushcontext.PushContext, declared []registries.Info, held func(model.ShardKey) holdback.Held) []Registry {
	by := map[model.ShardKey]registries.Info{}
	for _, d := range declared {
		by[d.Key] = d
	}
	out := []Registry{}
	if !slices.ContainsFunc(shards, func(s pushcontext.ShardInfo) bool { return s.Key.Provider.Foreign() }) {
		return out
	}
	endpoints := endpointsOf(pc)
	for _, s := range shards {
		if !s.Key.Provider.Foreign() {
			continue
		}
		x := registry(s)
		x.Endpoints = endpoints[s.Key]
		if held != nil {
			x.HeldBack = held(s.Key).Count
		}
		if d, ok := by[s.Key]; ok {
			x.declare(d)
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b Registry) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Provider, b.Provider))
	})
	return out
}

// endpointsOf counts those of each foreign registry. Those of a FederatedService are its sources' again.
func endpointsOf(pc *pushcontext.PushContext) map[model.ShardKey]int {
	out := map[model.ShardKey]int{}
	if pc == nil {
		return out
	}
	for v := range pc.Services() {
		if v.Shape.Federation != nil {
			continue
		}
		for _, e := range all(v) {
			if e.Source != nil && e.Source.Shard.Provider.Foreign() {
				out[e.Source.Shard]++
			}
		}
	}
	return out
}

func registry(s pushcontext.ShardInfo) Registry {
	c := cluster(s)
	return Registry{
		Provider: c.Provider, Name: c.ID, State: c.State, Since: c.Since, Reason: c.Error, Replacement: c.Replacement, Synced: s.Synced, SyncedAt: c.SyncedAt,
		LastEvent: c.LastEvent, Services: s.Rows[model.RowService], Workloads: s.Rows[model.RowWorkload], Problems: c.Problems,
	}
}

// declare adds what is known of the declaration.
func (x *Registry) declare(d registries.Info) {
	x.DeclaredBy, x.Secrets = &Declaring{source(d.From), d.Field}, d.Secrets
	x.Effective, x.Static = d.Effective, d.Static
	if d.Refused != "" && !x.Synced {
		x.Reason = d.Refused
		if x.State == string(model.StateTimeout) {
			x.State = Refused
		}
	}
}
