package debug

import (
	"encoding/json"
	"net/http"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

func (h *handler) mesh(*http.Request) (any, error) {
	pc, err := h.snapshot()
	if err != nil {
		return nil, err
	}
	return protoJSON(pc.Mesh.Config)
}

func protoJSON(m proto.Message) (json.RawMessage, error) {
	return protojson.MarshalOptions{Multiline: true, Indent: "  "}.Marshal(m)
}

func (h *handler) networks(*http.Request) (any, error) {
	pc, err := h.snapshot()
	if err != nil {
		return nil, err
	}
	out := []Gateway{}
	for _, n := range pc.Networks {
		for _, g := range n.Gateways {
			v := Gateway{
				Network: g.Network, Cluster: string(g.Cluster), Addr: g.Host, Port: g.Addr.Port(), HBONEPort: g.HBONEPort,
				Host: g.Host, Usable: g.Usable(false), Source: g.Source,
			}
			if g.Addr.IsValid() {
				v.Addr = g.Addr.Addr().String()
			}
			out = append(out, v)
		}
	}
	return out, nil
}

func (h *handler) configs(r *http.Request) (any, error) {
	pc, err := h.snapshot()
	if err != nil {
		return nil, err
	}
	kind := r.URL.Query().Get("kind")
	out := []Config{}
	for _, c := range pc.Configs {
		if kind != "" && c.Kind != kind {
			continue
		}
		v := Config{Kind: c.Kind, Namespace: c.Namespace, Name: c.Name, Served: !c.NotServed, NotServedFields: c.NotServedFields,
			Refused: c.Refused, Source: source(c.Source), Spec: c.Spec}
		for _, f := range c.Findings {
			v.Findings = append(v.Findings, Finding{Severity: f.Severity.String(), Code: f.Code, Field: f.Field, Message: f.Message})
		}
		for _, x := range pc.Conflicts {
			if concerns(x, c.Source) {
				v.Conflicts = append(v.Conflicts, Conflict{Field: x.Field, Winner: source(x.Winner), Loser: source(x.Loser), Detail: x.Detail})
			}
		}
		if m, ok := c.Spec.(proto.Message); ok {
			if v.Spec, err = protoJSON(m); err != nil {
				return nil, err
			}
		}
		out = append(out, v)
	}
	return out, nil
}

// concerns reports whether a conflict is about the object of a source.
func concerns(x pushcontext.Conflict, s model.Source) bool {
	is := func(o model.Source) bool { return o.Shard == s.Shard && o.Object == s.Object }
	return is(x.Winner) || is(x.Loser)
}

func (h *handler) pushStatus(*http.Request) (any, error) {
	pc, err := h.snapshot()
	if err != nil {
		return nil, err
	}
	out := PushStatus{Version: pc.Version, Time: pc.Time, Configs: len(pc.Configs), Conflicts: len(pc.Conflicts)}
	for v := range pc.Services() {
		out.Services++
		out.LeftOut += len(v.LeftOut)
		out.Conflicts += len(v.Shape.Conflicts)
		for range all(v) {
			out.Endpoints++
		}
	}
	out.Failures = h.Proxies.Failures()
	if d, ok := h.Between(pc.Version-1, pc.Version); ok {
		out.Last = delta(d)
	}
	return out, nil
}

func delta(d *pushcontext.Delta) *Delta {
	return &Delta{Reasons: d.Reasons, Endpoints: d.Endpoints, Shape: d.Shape, Mesh: d.Mesh}
}
