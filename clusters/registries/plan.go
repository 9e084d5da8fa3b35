package registries

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// Plan says what a registry is to be made with.
type Plan struct {
	Key    model.ShardKey
	Spec   api.RegistrySpec // with all defaults
	Access foreign.Access
	// InForce is what Make gave for the same key and has delivered, or else was attached first, which this one is to replace; nil if there is none.
	// Others that were to replace it, and have not, do not count.
	InForce model.Registry
	// Of a static service only:
	Static    *api.StaticService
	Namespace string
	From      model.Source
}

// desired is a registry as it is to be attached.
type desired struct {
	Declared
	access   foreign.Access
	short    *shortfall // why it can't be made
	problems []string   // that its registry has besides its own
	hash     string     // of all that it is made with
}

// plan works out what is to be attached.
func plan(declared []Declared, known map[string]*known) []desired {
	out := make([]desired, 0, len(declared))
	for _, d := range declared {
		x := desired{Declared: d}
		x.access, x.problems, x.short = d.access(known)
		x.hash = x.sum()
		out = append(out, x)
	}
	return out
}

// sum is equal for equal settings and credentials. Nobody can tell these by it.
func (d *desired) sum() string {
	h := sha256.New()
	spec, _ := json.Marshal([]any{d.Spec, d.Static, d.namespace}) // plain structs: no error
	fmt.Fprintf(h, "%d %s", len(spec), spec)
	if d.short != nil {
		fmt.Fprintf(h, " short %q", d.short.why)
		return hex.EncodeToString(h.Sum(nil))
	}
	a := d.access
	for _, s := range []string{a.Token, a.Username, a.Password, a.AccessKey, a.SecretKey, string(a.CA), string(a.Cert), string(a.Key)} {
		fmt.Fprintf(h, " %d %s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (d *desired) identity() string {
	p := d.plan()
	return p.Identity()
}

// Identity is equal for declarations that differ in credentials alone, by whatever name: what a registry said under one of them it may be taken
// to say under the other.
func (p *Plan) Identity() string {
	s := p.Spec
	s.Credentials = nil
	if s.TLS != nil {
		t := *s.TLS
		t.SecretName = ""
		s.TLS = &t
	}
	spec, _ := json.Marshal(s) // plain structs: no error
	sum := sha256.Sum256(spec)
	return hex.EncodeToString(sum[:])
}

func (d *desired) plan() Plan {
	p := Plan{Key: d.Key, Access: d.access, Static: d.Static, Namespace: d.namespace, From: d.From}
	if d.Spec != nil {
		p.Spec = *d.Spec
	}
	return p
}
