package pushcontext

import (
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// A reader's peers are the endpoints of the first service that its workload serves, as they are in each version.
func TestPeers(t *testing.T) {
	t.Parallel()
	b, v1, specs := start()
	a, bs := specs["a"], specs["b"]
	at := func(addr string) *Reader {
		return &Reader{Instances: []model.InstanceKey{{Cluster: "c1", IP: ip(addr)}}}
	}
	key, k := ViewKey{Kind: ViewPeers}, MemoKey{Class: 1}
	peers := func(pc *PushContext, r *Reader) (*PeersView, uint64) {
		v, rev := pc.View(key, r)
		if v == nil {
			return nil, rev
		}
		return v.(*PeersView), rev
	}
	if p, _ := peers(v1, at("10.0.0.9")); p != nil {
		t.Error("a workload that serves nothing has peers")
	}
	first, rev := peers(v1, at("10.0.0.1"))
	if first == nil || first.Shape.Key != a.key || len(first.Endpoints) != 1 || rev != 1 || first.Revision() != 1 {
		t.Fatalf("%+v since %d", first, rev)
	}
	first.Derived().Do(k, func() any { return "one" })

	bs.endpoints = append(bs.endpoints, specEndpoint{"10.0.0.4", "c1", "", ""})
	v2, _ := put(b, bs.view(v1.Service(bs.key).Shape))
	if p, rev := peers(v2, at("10.0.0.1")); p != first || rev != 1 {
		t.Error("another service changed, and the peers with it")
	}

	a.endpoints = append(a.endpoints, specEndpoint{"10.0.0.3", "c1", "", ""})
	v3, d := put(b, a.view(v1.Service(a.key).Shape))
	p, rev := peers(v3, at("10.0.0.1"))
	if rev != 3 || len(p.Endpoints[0].Localities[0].Endpoints) != 2 || p.Derived().Before(k) != "one" || v3.SameSince(key, at("10.0.0.1")) != 1 {
		t.Errorf("endpoints changed: %+v since %d", p, rev)
	}
	if got := slices.Collect(d.Keys(ViewPeers, at("10.0.0.1"))); !slices.Equal(got, []ViewKey{key}) {
		t.Errorf("the delta names %v", got)
	}
	if p, rev := peers(v3, at("10.0.0.3")); rev != 3 || p.Revision() != 3 || v3.SameSince(key, at("10.0.0.3")) != 3 {
		t.Errorf("the new instance: since %d", rev)
	}

	v4, _ := b.Commit(Commit{Quiet: []*ServiceView{a.view(v3.Service(a.key).Shape)}})
	if q, rev := peers(v4, at("10.0.0.1")); rev != 3 || q == p || q.Derived().Before(k) != "one" {
		t.Error("nothing that is sent changed: the peers did")
	}

	v5, _ := b.Commit(Commit{Services: []Change{{Key: a.key}}})
	if p, _ := peers(v5, at("10.0.0.1")); p != nil {
		t.Error("the service is gone, its peers are not")
	}
}
