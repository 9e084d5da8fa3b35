package gen_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// weighed are endpoints with what their registries say that they weigh: pods nothing, WorkloadEntries and Consul whole
// numbers, Nacos fractions. Where, if anywhere, says which are behind the gateway of another network.
func weighed(r *rand.Rand, somewhere ...string) (es []*model.Endpoint) {
	for i := range 1 + r.IntN(12) {
		cluster, w := "c1", 0.0
		switch r.IntN(4) {
		case 1:
			cluster, w = "dc", float64(1+r.IntN(10))
		case 2:
			cluster, w = "n", float64(1+r.IntN(1000))/100
		case 3:
			cluster, w = "vms", float64(1+r.IntN(math.MaxUint32))
		}
		es = append(es, ep(cluster, "http", fmt.Sprintf("10.0.0.%d:80", 1+i), weight(w), at(pick(r, "", "r1/z1", "r2/z1")), network(pick(r, somewhere...)), mtls))
	}
	return es
}

func declared(e *model.Endpoint) float64 {
	if e.Weight == 0 {
		return 1
	}
	return e.Weight
}

// sharesOf gives the share of the requests that each address gets, of a priority whose endpoints are all healthy, and checks that it
// is the same whether Envoy picks a locality first or not.
func sharesOf(t *testing.T, v *pushcontext.ServiceView, c gen.Class) map[string]float64 {
	t.Helper()
	out, total := map[string]float64{}, 0.0
	a := assigned(t, v, c)
	checkWeights(t, a)
	for _, l := range a.Endpoints {
		sum := uint32(0)
		for _, e := range l.LbEndpoints {
			w := e.LoadBalancingWeight.GetValue()
			sock := e.GetEndpoint().Address.GetSocketAddress()
			out[fmt.Sprintf("%s:%d", sock.GetAddress(), sock.GetPortValue())], sum, total = float64(w), sum+w, total+float64(w)
		}
		if sum != l.LoadBalancingWeight.GetValue() {
			t.Errorf("%v weighs %d, and its endpoints %d", l.Locality, l.LoadBalancingWeight.GetValue(), sum)
		}
	}
	for k := range out {
		out[k] /= total
	}
	return out
}

func sameShares(want, got map[string]float64) bool {
	for k, w := range want {
		if math.Abs(got[k]-w) > 1e-7 {
			return false
		}
	}
	return len(want) == len(got)
}

// A weight means the same whichever registry says it: shares of endpoints, and of gateways that stand for some, are in the ratio
// of what is declared.
func TestWeightsMeanTheSameInAllRegistries(t *testing.T) {
	t.Parallel()
	gateways := func(m *settings) {
		m.gateways = []pushcontext.Gateway{gateway("n2", "", "1.1.1.1:15443"), gateway("n2", "", "1.1.1.2:15443"), gateway("n3", "", "1.1.1.3:15443")}
	}
	behind := map[string][]string{"n2": {"1.1.1.1:15443", "1.1.1.2:15443"}, "n3": {"1.1.1.3:15443"}}
	class := sidecar("c1", "shop", onNetwork("n1"), certified)
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 9))
		es := weighed(r, "n1", "n1", "n2", "n3")
		total, want := 0.0, map[string]float64{}
		for _, e := range es {
			total += declared(e)
		}
		for _, e := range es {
			at := append([]string{}, behind[e.Network]...)
			if len(at) == 0 {
				at = []string{e.Addr.String()}
			}
			for _, a := range at {
				want[a] += declared(e) / total / float64(len(at))
			}
		}
		got := sharesOf(t, cart(es...).view(newMesh(gateways)), class)
		if !sameShares(want, got) {
			t.Fatalf("seed %d:\nwant %v\ngot  %v", seed, want, got)
		}
	}
}

// Within a source that has a share of its own, endpoints are in the ratio of what is declared.
func TestWeightsWithinAShare(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 10))
		es, sums := weighed(r, ""), [2]float64{}
		for _, e := range es {
			e.Part = uint16(1 + r.IntN(2))
			sums[e.Part-1] += declared(e)
		}
		want, shares := map[string]float64{}, [2]float64{0.25, 0.75}
		if sums[0] == 0 || sums[1] == 0 {
			shares = [2]float64{1, 1}
		}
		for _, e := range es {
			want[e.Addr.String()] = shares[e.Part-1] * declared(e) / sums[e.Part-1]
		}
		got := sharesOf(t, global(pushcontext.FederateWeighted, []uint32{1, 3}, es...).view(newMesh()), sidecar("c1", "shop"))
		if !sameShares(want, got) {
			t.Fatalf("seed %d:\nwant %v\ngot  %v", seed, want, got)
		}
	}
}

// Hundredths are counted where there are any, so that what has none is sent as it always was.
func TestWeightsWithAndWithoutFractions(t *testing.T) {
	t.Parallel()
	pod, entry := ep("c1", "http", "10.0.0.1:80"), ep("c1", "http", "10.0.0.2:80", weight(3))
	half, other := ep("n", "http", "10.0.0.3:80", weight(0.5)), ep("n", "metrics", "10.0.0.3:90", weight(0.5))
	for _, c := range []selectCase{
		{name: "whole", mesh: newMesh(), svc: cart(pod, entry), class: sidecar("c1", "shop"), want: []string{"p0  w=4: 10.0.0.1:80*1 10.0.0.2:80*3"}},
		{name: "a fraction", mesh: newMesh(), svc: cart(pod, entry, half), class: sidecar("c1", "shop"), want: []string{"p0  w=450: 10.0.0.1:80*100 10.0.0.2:80*300 10.0.0.3:80*50"}},
		{name: "a fraction behind another port", mesh: newMesh(), svc: cart(pod, entry, other), class: sidecar("c1", "shop"), want: []string{"p0  w=4: 10.0.0.1:80*1 10.0.0.2:80*3"}},
	} {
		t.Run(c.name, c.run)
	}
}
