package aggregate

import (
	"cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// placeID is one workload at one address.
type placeID struct {
	at  model.InstanceKey
	row rowID
}

func placeOf(id rowID, w *model.Workload) placeID {
	return placeID{model.InstanceKey{Cluster: cmp.Or(w.Address.Cluster, id.shard.Cluster), IP: w.Address.AddrPort.Addr()}, id}
}

// moved notes where a workload is now, if that differs from where it was. Either may be nil.
func (s *state) moved(id rowID, old, next model.Object) {
	was, _ := old.(*model.Workload)
	is, _ := next.(*model.Workload)
	if was != nil && is != nil && placeOf(id, was) == placeOf(id, is) && was.Locality == is.Locality && was.Network == is.Network {
		return
	}
	if was != nil {
		s.places[placeOf(id, was)] = nil
	}
	if is != nil {
		s.places[placeOf(id, is)] = is
	}
}

// refreshPlaces gives the places that changed, all of them under new settings.
func (c *Controller) refreshPlaces(all bool) []pushcontext.Place {
	if all {
		for _, sh := range c.state.shards {
			for k, o := range sh.rows {
				if w, ok := o.(*model.Workload); ok {
					c.state.places[placeOf(rowID{sh.key, k.Key}, w)] = w
				}
			}
		}
	}
	published := c.opts.Hub.Current()
	out := make([]pushcontext.Place, 0, len(c.state.places))
	for id, w := range c.state.places {
		if p, ok := c.place(id, w); ok && (all && !p.Gone || !all && !published.Has(&p)) {
			out = append(out, p)
		}
	}
	clear(c.state.places)
	return out
}

// place describes a workload's place; one of which nothing is known is none.
func (c *Controller) place(id placeID, w *model.Workload) (pushcontext.Place, bool) {
	p := pushcontext.Place{Instance: id.at, By: id.row.shard.String() + " " + id.row.key}
	if w != nil {
		p.Locality, p.Network = w.Locality, cmp.Or(w.Network, c.mesh.network(model.Addr{Cluster: id.at.Cluster, AddrPort: w.Address.AddrPort}))
	}
	p.Gone = p.Network == "" && p.Locality == model.Locality{}
	return p, id.at.IP.IsValid()
}
