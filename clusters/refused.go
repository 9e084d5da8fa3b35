package clusters

import (
	"context"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// refused is the registry of a cluster that has no usable credential: it never syncs.
type refused struct {
	key   model.ShardKey
	state model.State // timeout: nobody should wait for it; syncing: that may change at any moment
	why   string
}

// Key implements model.Registry.
func (r *refused) Key() model.ShardKey { return r.key }

// Run implements model.Registry.
func (r *refused) Run(ctx context.Context, out model.Sink) error {
	out.Status(model.Status{State: r.state, Err: r.why})
	<-ctx.Done()
	return ctx.Err()
}
