package foreign

import (
	"context"
	"net/netip"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// Resolver looks up the addresses of a DNS name. An error means that nothing is known.
type Resolver func(ctx context.Context, name string) (addrs []netip.Addr, ttl time.Duration, err error)

// Options configure a Publisher.
type Options struct {
	Shard    model.ShardKey
	Spec     api.RegistrySpec // with defaults, as Effective gives it
	Resolver Resolver
	Now      func() time.Time // time.Now if nil
}

// Publisher turns a registry's services into rows, and puts those that differ from what it put last. It is safe for
// use by several goroutines.
type Publisher struct {
	opts Options
	out  model.Sink
}

// NewPublisher gives a publisher that has said nothing yet.
func NewPublisher(o Options, out model.Sink) *Publisher { return &Publisher{opts: o, out: out} }

// Run resolves the DNS names of instances until ctx ends.
func (p *Publisher) Run(ctx context.Context) { <-ctx.Done() }

// Replace gives the whole truth: the first sync, and every full read.
func (p *Publisher) Replace(services []Service) {}

// Put gives the complete new values of services.
func (p *Publisher) Put(services ...Service) {}

// Delete takes services away, by their keys.
func (p *Publisher) Delete(keys ...string) {}

// Status passes on what is known of the contact with the registry; the publisher adds the items that it can't use.
func (p *Publisher) Status(s model.Status) {}
