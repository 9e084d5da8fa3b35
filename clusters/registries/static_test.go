package registries_test

import (
	"fmt"
	"slices"
	"testing"
)

// endpoints are the addresses of all services that are served.
func (w *world) endpoints() (out []string) {
	for v := range w.hub.Current().Services() {
		for _, p := range v.Endpoints {
			for _, l := range p.Localities {
				for _, e := range l.Endpoints {
					out = append(out, e.Addr.String())
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// TestStaticServiceChanges: the addresses of a static service change with its declaration, at no moment of which it is not served, and
// it goes with that.
func TestStaticServiceChanges(t *testing.T) {
	inWorld(t, func(w *world) {
		mark := 0
		for _, c := range []struct{ domain, want string }{
			{"10.9.0.4:7001", "[10.9.0.4:7001]"}, {"10.9.0.5:7001,10.9.0.6:7001", "[10.9.0.5:7001 10.9.0.6:7001]"},
			{"10.9.0.5:7001,nonsense", "[10.9.0.5:7001]"}, {"10.9.0.4:7001", "[10.9.0.4:7001]"},
		} {
			w.declare(row(t, fmt.Sprintf(`{kind: McpBridge, metadata: {name: default}, spec: {registries: [{type: static, name: billing, domain: %q, port: 80}]}}`, c.domain)))
			w.want("billing.static")
			if got := fmt.Sprint(w.endpoints()); got != c.want {
				t.Errorf("%s: %s, want %s", c.domain, got, c.want)
			}
			if mark == 0 {
				mark = len(w.hosts)
			}
		}
		w.always(mark, "billing.static")
		w.declare()
		w.want()
	})
}
