package xds_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

const steps = 300

// numbered is a service whose one endpoint tells in which commit it was set.
func numbered(host string, n int) xdstest.Service {
	return svc(host, 0, fmt.Sprintf("10.1.%d.%d", n/250, n%250))
}

func numberOf(t *testing.T, body []byte) int {
	t.Helper()
	var a endpointv3.ClusterLoadAssignment
	if err := proto.Unmarshal(body, &a); err != nil {
		t.Error(err)
	}
	if len(a.Endpoints) == 0 {
		return 0
	}
	ip := a.Endpoints[0].LbEndpoints[0].GetEndpoint().GetAddress().GetSocketAddress().GetAddress()
	var hi, lo int
	if _, err := fmt.Sscanf(ip, "10.1.%d.%d", &hi, &lo); err != nil {
		t.Error(err)
	}
	return hi*250 + lo
}

// monotone reads a delta stream at its own pace and checks that neither the version of responses nor
// the content of any resource goes back.
type monotone struct {
	*testing.T
	pace    *rand.Rand
	p       *xdstest.Pipe
	version uint64
	content map[string]int
}

func (m *monotone) run() {
	for {
		r := &discoveryv3.DeltaDiscoveryResponse{}
		if m.p.Recv(r) != nil {
			return
		}
		v, err := strconv.ParseUint(r.SystemVersionInfo, 10, 64)
		if err != nil || v < m.version {
			m.Errorf("version %q after %d: %v", r.SystemVersionInfo, m.version, err)
		}
		m.version = v
		for _, x := range r.Resources {
			n := numberOf(m.T, x.Resource.Value)
			if n < m.content[x.Name] {
				m.Errorf("%s went back from %d to %d", x.Name, m.content[x.Name], n)
			}
			m.content[x.Name] = n
		}
		time.Sleep(time.Duration(m.pace.IntN(20)) * time.Millisecond) // a stall, now and then
		_ = m.p.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
	}
}

// TestI5VersionsOfAStreamNeverGoBack: whatever the pace of commits and of clients, versions and contents
// that one stream sees only ever go forward, and end with the newest.
func TestI5VersionsOfAStreamNeverGoBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		names := []string{foo, bar}
		var streams []*monotone
		var running sync.WaitGroup
		for i := range 20 {
			m := &monotone{T: t, pace: rand.New(rand.NewPCG(uint64(i), 5)), p: r.pipe(wire.Delta), content: map[string]int{}}
			r.check(m.p.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node(i), TypeUrl: gen.EndpointURL, ResourceNamesSubscribe: names}))
			streams = append(streams, m)
			running.Go(m.run)
		}
		pace := rand.New(rand.NewPCG(1, 1))
		for n := 1; n <= steps; n++ {
			r.mesh.Set(numbered([]string{"foo.x", "bar.x"}[n%2], n))
			if pace.IntN(3) == 0 {
				time.Sleep(time.Duration(pace.IntN(10)) * time.Millisecond)
			}
		}
		time.Sleep(time.Second)
		for _, m := range streams {
			m.p.Close()
		}
		running.Wait()
		for i, m := range streams {
			if m.version != r.mesh.Hub.Current().Version || m.content[foo] != steps || m.content[bar] != steps-1 {
				t.Errorf("stream %d ends at version %d with %v", i, m.version, m.content)
			}
		}
	})
}

// TestI8DeadReader: a proxy that never reads costs one response and one snapshot, however much changes
// meanwhile, and loses its stream.
func TestI8DeadReader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.mesh.Set(numbered("foo.x", 0))
		p := r.pipe(wire.Delta)
		r.check(p.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.EndpointURL, ResourceNamesSubscribe: []string{foo}}))
		start := time.Now()
		var old []weak.Pointer[pushcontext.PushContext]
		var views []weak.Pointer[pushcontext.ServiceView]
		for n := range steps {
			r.mesh.Set(numbered("foo.x", n))
			pc := r.mesh.Hub.Current()
			old, views = append(old, weak.Make(pc)), append(views, weak.Make(pc.Host("foo.x").Services[0]))
			synctest.Wait()
		}
		runtime.GC()
		alive := 0
		for i := range old {
			if old[i].Value() != nil || views[i].Value() != nil {
				alive++
			}
		}
		if alive > 4 { // the newest, the one that is being sent, and what the newest was made from
			t.Errorf("%d snapshots are kept for a proxy that reads nothing", alive)
		}
		if err := p.Err(); status.Code(err) != codes.DeadlineExceeded || time.Since(start) > 20*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		synctest.Wait()
		if left := r.server.Proxies(); len(left) != 0 {
			t.Errorf("still there: %+v", left)
		}
	})
}
