package xds_test

import (
	"context"
	"fmt"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// play is a peer that sends what a fuzzer made up, a commit between every two requests, and checks
// each response.
type play struct {
	t       *testing.T
	p       wire.Protocol
	input   []byte
	mesh    *xdstest.Mesh
	started bool
	sent    int
}

func (*play) Context() context.Context { return context.Background() }

func (x *play) SendMsg(m any) error {
	b := m.(*wire.Response).Bytes()
	names := map[string]bool{}
	once := func(n string) {
		if names[n] {
			x.t.Errorf("%q is twice in one response", n)
		}
		names[n] = true
	}
	if x.p == wire.SotW {
		r := &discoveryv3.DiscoveryResponse{}
		if err := proto.Unmarshal(b, r); err != nil {
			x.t.Error(err)
		}
		for _, a := range r.Resources {
			once(xdstest.NameOf(r.TypeUrl, a.Value))
		}
		return nil
	}
	r := &discoveryv3.DeltaDiscoveryResponse{}
	if err := proto.Unmarshal(b, r); err != nil {
		x.t.Error(err)
	}
	for _, a := range r.Resources {
		once(a.Name)
	}
	for _, n := range r.RemovedResources {
		once(n)
	}
	return nil
}

func (x *play) take() int {
	if len(x.input) == 0 {
		return 0
	}
	n := x.input[0]
	x.input = x.input[1:]
	return int(n)
}

// RecvMsg makes the next request from three bytes of input.
func (x *play) RecvMsg(m any) error {
	if len(x.input) == 0 {
		return fmt.Errorf("played out")
	}
	names := []string{foo, bar, "80", "81", "*", "", "0.0.0.0_80", bh, "inbound|80||", "outbound|x|y|z"}
	urls := []string{gen.ClusterURL, gen.EndpointURL, gen.ListenerURL, gen.RouteURL, gen.VirtualHostURL, "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"}
	a, b, c := x.take(), x.take(), x.take()
	url, add, drop := urls[a%len(urls)], names[b%len(names)], names[c%len(names)]
	x.sent++
	nonce := ""
	if a > 64 {
		nonce = fmt.Sprint(x.sent - a%5)
	}
	var fault *statuspb.Status
	if a > 192 {
		fault = &statuspb.Status{Code: 13, Message: "Error adding/updating cluster(s) " + add + ": no, " + drop + ": no"}
	}
	var msg proto.Message
	if x.p == wire.Delta {
		d := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResponseNonce: nonce, ErrorDetail: fault}
		if b < 128 {
			d.ResourceNamesSubscribe = []string{add}
		}
		if c < 128 {
			d.ResourceNamesUnsubscribe = []string{drop}
		} else {
			d.InitialResourceVersions = map[string]string{drop: "1"}
		}
		if !x.started {
			d.Node = node(1)
		}
		msg = d
	} else {
		d := &discoveryv3.DiscoveryRequest{TypeUrl: url, ResponseNonce: nonce, ErrorDetail: fault}
		if b < 192 {
			d.ResourceNames = []string{add, drop}
		}
		if !x.started {
			d.Node = node(1)
		}
		msg = d
	}
	x.started = true
	switch c % 3 {
	case 0:
		x.mesh.Set(svc("foo.x", a, "10.0.0.1"))
	case 1:
		x.mesh.Delete(svc("foo.x", a))
	}
	return m.(*wire.Request).Unmarshal(encoded(msg))
}

// FuzzSubscriptions: no sequence of requests breaks the server or makes it send a name twice.
func FuzzSubscriptions(f *testing.F) {
	f.Add(false, []byte{0, 200, 0, 1, 0, 1, 66, 0, 2, 200, 4, 4, 2, 3, 5})
	f.Add(true, []byte{0, 0, 4, 1, 200, 1, 66, 0, 2, 200, 4, 4, 2, 3, 5, 67, 4, 200, 70, 1, 4})
	f.Fuzz(func(t *testing.T, delta bool, input []byte) {
		if len(input) > 300 {
			return
		}
		p := wire.SotW
		if delta {
			p = wire.Delta
		}
		s := xds.NewServer(xds.Options{Generators: xdstest.Generators(nil)})
		m := xdstest.NewMesh(s.Notify)
		s.UseHub(m.Hub)
		m.Set(svc("bar.x", 0, "10.0.0.2"))
		_ = s.Serve(p, &play{t: t, p: p, input: input, mesh: m})
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
