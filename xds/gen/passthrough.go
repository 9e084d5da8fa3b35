package gen

import (
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// maxPassthrough is how many AUTO_PASSTHROUGH servers of a mesh are served, the oldest first.
const maxPassthrough = 64

// Selecting says which of the mesh's AUTO_PASSTHROUGH servers select a router with the labels: bit i
// stands for server i.
func Selecting(m *pushcontext.MeshView, router model.Labels) (servers uint64) {
	for i, s := range m.AutoPassthrough {
		if i < maxPassthrough && (len(s.Selector) == 0 || router.Matches(s.Selector)) {
			servers |= 1 << i
		}
	}
	return servers
}
