package aggregate_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

func alternative(ip string, port uint16) *model.Alternatives {
	return &model.Alternatives{{Network: "dmz", IP: netip.MustParseAddr(ip), Port: port, Name: "wan"}}
}

// inDMZ is where proxies on the network dmz dial the only endpoint of a port.
func inDMZ(v *pushcontext.ServiceView, port string) string {
	if e := v.Port(port)[0].Endpoints[0]; e.Alternatives != nil {
		return fmt.Sprint(e.Addr, " ", e.Alternatives.For("dmz").Addr(""))
	}
	return ""
}

// TestAlternativesChange: another address for other networks is a change of endpoints, the same one is none.
func TestAlternativesChange(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		row := func(a *model.Alternatives) *model.Endpoints {
			e := slice(c1, "a", "s", "10.0.0.1")
			e.Endpoints[0].Alternatives = a
			return e
		}
		first := row(alternative("192.0.2.1", 80))
		r := registry(c1, service(c1, "a"), first)
		h.Attach(r)
		h.start()
		pc := h.quiet()
		r.Put(keyOf(first), row(alternative("192.0.2.1", 80)))
		if now := h.quiet(); now.Version != pc.Version {
			t.Error("the same address made a version")
		}
		for a, want := range map[*model.Alternatives]string{alternative("192.0.2.2", 80): "10.0.0.1:8080 192.0.2.2:80", nil: "", alternative("192.0.2.1", 81): "10.0.0.1:8080 192.0.2.1:81"} {
			r.Put(keyOf(first), row(a))
			h.quiet()
			if got := inDMZ(h.service("a"), "http"); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	})
}

// TestAlternativesOfWorkloads: what is selected has them too. Their port stands for the port of the instance.
func TestAlternativesOfWorkloads(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	for name, c := range map[string]struct {
		ports map[string]uint16
		at    *model.Alternatives
		want  string // at port 80 of the service, whose target is 8080
	}{
		"without":           {map[string]uint16{"http": 8080}, nil, ""},
		"of the port":       {map[string]uint16{"http": 8080}, alternative("192.0.2.1", 80), "10.0.0.1:8080 192.0.2.1:80"},
		"of all":            {map[string]uint16{"http": 8080}, alternative("192.0.2.1", 0), "10.0.0.1:8080 192.0.2.1:8080"},
		"of another port":   {map[string]uint16{"tcp": 9000}, alternative("192.0.2.1", 90), "10.0.0.1:8080 192.0.2.1:8080"},
		"of none that says": {nil, alternative("192.0.2.1", 90), "10.0.0.1:8080 192.0.2.1:8080"},
	} {
		w := workload(c1, model.KindInstance, "i", "10.0.0.1", appX)
		w.Ports, w.Alternatives = c.ports, c.at
		v := rebuilt(t, "se", entry(c1, "se", selecting(appX), withPorts(model.Port{Name: "http", Number: 80, TargetPort: 8080, Protocol: model.ProtocolHTTP})), w)
		if got := inDMZ(v, "http"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if w.Alternatives != nil && (*w.Alternatives)[0].Port != (*c.at)[0].Port {
			t.Errorf("%s: the row was changed", name)
		}
	}
}
