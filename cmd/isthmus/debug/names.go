package debug

import (
	"net/http"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// names is what host names stand for to a proxy that answers DNS queries, in the form of Istio's page: {"table": {HOST: …}}.
func (h *handler) names(r *http.Request) (any, error) {
	p, err := h.findProxy(r)
	if err != nil {
		return nil, err
	}
	pc, err := h.snapshot()
	if err != nil {
		return nil, err
	}
	class, reader, err := h.Proxies.Audience(p.ConnectionID)
	if err != nil {
		return nil, err
	}
	var out struct {
		Table map[string]gen.NameInfo `json:"table"`
	}
	v, _ := pc.View(pushcontext.ViewKey{Kind: pushcontext.ViewNames}, &reader)
	if names, ok := v.(*pushcontext.NamesView); ok {
		out.Table = gen.ReadNameTable(names, class)
	}
	return out, nil
}
