package oracle_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
	"github.com/isthmus-mesh/isthmus/xds/evaluate"
)

// The ports of ingress listeners. One is also a port of services, whose listener has to make room.
var ingressPorts = []int{9300, 9301, servicePorts[1]}

// The ports of the workload.
var workloadPorts = []int{9401, 9402}

// ingresses is a configuration of a Sidecar's ingress listeners: the workload's port by port.
type ingresses struct {
	config *config // the marker
	to     map[int]int
	spec   object
}

func (g *generator) ingresses(number int, own string) *ingresses {
	x := &ingresses{config: &config{number: number, at: g.at}, to: map[int]int{}}
	all := list{}
	for _, p := range ingressPorts {
		if g.chance(50) {
			continue
		}
		x.to[p] = pick(g, workloadPorts...)
		l := object{"port": object{"number": p, "name": fmt.Sprint("p-", p), "protocol": pick(g, "HTTP", "TCP")}, "defaultEndpoint": fmt.Sprintf("0.0.0.0:%d", x.to[p])}
		if g.chance(30) {
			l["bind"] = own
		}
		all = append(all, l)
	}
	x.spec = object{"egress": list{object{"hosts": list{"./*"}}}}
	if len(all) > 0 {
		x.spec["ingress"] = all
	}
	return x
}

func (x *ingresses) yaml() string {
	return written(append(x.config.marker(), istio("Sidecar", namespace, "default", 0, x.spec)))
}

// TestIngressAgrees: what comes to an ingress listener of a Sidecar goes to the workload's port that it names, and nothing else
// comes to the workload; a listener for services at the port comes back when the other goes.
func TestIngressAgrees(t *testing.T) {
	t.Parallel()
	n := *seed
	if n == 0 {
		n = rand.Uint64()
	}
	t.Logf("-seed %d", n)
	w := newWorld(t, false)
	g := &generator{Rand: rand.New(rand.NewPCG(n, 2)), at: w.at}
	own := w.lo.Addr(1, 1)
	var backends []string
	for _, p := range workloadPorts {
		backends = append(backends, fmt.Sprintf("%s:%d", own, p))
	}
	w.backends(backends)
	for i := range *rounds {
		x := g.ingresses(i, own.String())
		if i == 0 {
			w.start(x.yaml(), false)
		} else {
			w.apply(x.yaml())
		}
		w.settle(x.config, servicePorts[0])
		e := w.evaluator()
		for _, p := range ingressPorts {
			w.compareIngress(e, x, p, own)
		}
	}
	w.accepted()
}

func (w *world) compareIngress(e *evaluate.Config, x *ingresses, port int, own netip.Addr) {
	w.t.Helper()
	want := e.Evaluate(evaluate.Request{Destination: netip.AddrPortFrom(own, uint16(port)), Method: "GET", Authority: markerHost, Path: "/"})
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	err := envoytest.PollEvery(ctx, quick, func() error {
		got, err := w.askAnew(ask{host: markerHost, port: port, method: "GET", path: "/"}, "ingress")
		to, served := x.to[port]
		switch {
		case served && (err != nil || got.backend != fmt.Sprintf("%s:%d", own, to) || len(want.Clusters) != 1 || want.Clusters[0].Cluster != fmt.Sprintf("inbound|%d||", port)):
			return fmt.Errorf("it should go to port %d: %+v, %w", to, got, err)
		case !served && port == servicePorts[1] && (err != nil || got.body != fmt.Sprint(x.config.number) || want.Kind != evaluate.Direct):
			return fmt.Errorf("it is for services: %+v, %w", got, err)
		case !served && port != servicePorts[1] && (err == nil || want.Kind == evaluate.ToCluster):
			return fmt.Errorf("nobody should answer: %+v", got)
		}
		return nil
	})
	if err != nil {
		w.t.Fatalf("port %d: %v\nthe evaluator: %s\nthe configuration:\n%s", port, err, text(want), x.yaml())
	}
}
