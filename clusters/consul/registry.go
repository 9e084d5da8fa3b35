package consul

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/dns"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// Options configure a Registry.
type Options struct {
	Name     model.ClusterID  // of the registry: it is a member of this name
	Spec     api.RegistrySpec // with defaults, as Effective gives it
	Access   foreign.Access   // Token, and CA, Cert and Key for TLS
	Resolver dns.Resolver     // of instances that have DNS names; that of the machine if nil
	Metrics  *foreign.Metrics // may be nil
	Log      *slog.Logger     // discards if nil
	Before   *Memory          // shared with registries that this one replaces, or that replace it, and are declared alike; may be nil
	Timing   Timing
}

// Timing says how long things take. Zero fields have the default.
type Timing struct {
	// Wait is how long a blocking query waits for a change of a service; 1 min. For as long an agent does not notice that nobody
	// waits for it any more, and counts its connection.
	Wait     time.Duration
	Spacing  time.Duration // between answers of one query, once a few have come at once; 1 s
	RetryMin time.Duration // after a failure, doubled with each that follows; 1 s
	RetryMax time.Duration // 30 s
}

func (t Timing) withDefaults() Timing {
	t.Wait = cmp.Or(t.Wait, time.Minute)
	t.Spacing = cmp.Or(t.Spacing, time.Second)
	t.RetryMin = cmp.Or(t.RetryMin, time.Second)
	t.RetryMax = cmp.Or(t.RetryMax, 30*time.Second)
	return t
}

// maxReaders bounds the requests at once for services that are not watched, of all scopes.
const maxReaders = 16

// Registry is the registry of one Consul cluster.
//
// It is synced once every service has been read, or is known not to be readable. From then on the list of services alone
// decides which there are: one that is listed without instances is a service without endpoints, and one that is
// not listed is gone. What the token may not see, and what a server says that has lost its leader, is
// never taken as gone: what was known stays, and the status says why.
type Registry struct {
	key     model.ShardKey
	opts    Options
	client  *client
	scopes  []scope
	filter  foreign.Filter
	most    int // requests that wait at once
	readers int // requests at once for services of one scope that are not watched
}

// New makes a registry. What it gives as errors can't be mended by trying again, and names no credential.
func New(o Options) (*Registry, error) {
	if o.Spec.Consul == nil || o.Spec.Limits == nil || o.Spec.Consul.MaxStale == nil {
		return nil, errors.New("consul: the spec is not an effective one")
	}
	for _, t := range append(slices.Sorted(maps.Values(o.Spec.Consul.TaggedAddresses)), o.Spec.Consul.TaggedAddress) {
		if t == "virtual" || t == "consul-virtual" {
			return nil, fmt.Errorf("consul: the tagged address %q can be dialled in Consul's own mesh only", t)
		}
	}
	o.Timing = o.Timing.withDefaults()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Registry{
		key: model.ShardKey{Provider: model.ProviderConsul, Cluster: o.Name}, opts: o,
		scopes: scopes(o.Spec.Consul), filter: foreign.NewFilter(o.Spec.Services),
	}
	n := len(r.scopes)
	follows := (1 + tables) * n // each scope's list and tables
	r.most = max(int(o.Spec.Limits.Concurrency), follows+n)
	r.readers = max(min(r.most/8, maxReaders, r.most-follows)/n, 1)
	var err error
	r.client, err = newClient(&o.Spec, o.Access, o.Metrics, r.key.String(), r.most)
	if err != nil {
		return nil, fmt.Errorf("consul: %w", err)
	}
	return r, nil
}

// Key implements model.Registry.
func (r *Registry) Key() model.ShardKey { return r.key }

// Run implements model.Registry.
func (r *Registry) Run(ctx context.Context, out model.Sink) error {
	defer r.client.close()
	return newRun(r, out).loop(ctx)
}

// takes reports whether a service of the name, whose instances together have the tags, may be one to be read.
func (r *Registry) takes(name string, tags []string, c *converter) bool {
	if name == serviceOfServers && (r.opts.Spec.Services == nil || !slices.Contains(r.opts.Spec.Services.Include, name)) {
		return false
	}
	return name != "" && r.filter.Takes(name) && (tags == nil || c.tagged(tags))
}
