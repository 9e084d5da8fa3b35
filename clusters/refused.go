package clusters

import (
	"context"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// refused is the registry of a cluster whose credential can't be used: it never syncs.
type refused struct {
	key model.ShardKey
	why string
}

// Key implements model.Registry.
func (r *refused) Key() model.ShardKey { return r.key }

// Run implements model.Registry.
func (r *refused) Run(ctx context.Context, out model.Sink) error {
	out.Status(model.Status{State: model.StateTimeout, Err: r.why})
	<-ctx.Done()
	return ctx.Err()
}
