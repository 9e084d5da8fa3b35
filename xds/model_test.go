package xds_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// TestModel is invariant I6: after random commits, refusals, delayed ACKs, stalls and reconnects, a
// client that behaves like Envoy holds what the generators make of the current snapshot.
func TestModel(t *testing.T) {
	t.Parallel()
	seeds := 60
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { runModel(t, uint64(seed)) })
		})
	}
}

const (
	badGeneration = 4        // the generation behind it and its multiples: refused clusters
	badEndpoint   = "10.6."  // refused assignments
	badHost       = "evil.x" // refused route tables
)

func isBad(generation int) bool { return generation > 0 && generation%(badGeneration+1) == 0 }

// picky refuses the contents above.
func picky(url, _ string, body []byte) string {
	switch url {
	case gen.ClusterURL:
		var c clusterv3.Cluster
		if proto.Unmarshal(body, &c) == nil && isBad(int(c.ConnectTimeout.GetSeconds()-1)) {
			return "bad: very, very bad"
		}
	case gen.EndpointURL:
		if strings.Contains(string(body), badEndpoint) {
			return "bad"
		}
	case gen.RouteURL, gen.VirtualHostURL:
		if strings.Contains(string(body), badHost) {
			return "bad"
		}
	}
	return ""
}

// A reconnecting proxy learns of clusters that changed meanwhile before it has asked for their
// endpoints, which did not change: it must be sent those too, or the clusters warm for ever.
func TestClustersChangeWhileAway(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t)
		a, b := xdstest.Service{Host: "a.x", Namespace: "x", Ports: []uint16{80}, Member: "c1", Endpoints: []string{"10.0.0.1"}},
			xdstest.Service{Host: "b.x", Namespace: "x", Ports: []uint16{80}, Member: "c1", Endpoints: []string{"10.0.0.2"}}
		r.mesh.Set(a, b)
		e := r.envoy(p, node(0))
		defer func() { e.Disconnect() }()
		r.converged(0, e)
		e.Disconnect()
		a.Generation = 1
		r.mesh.Set(a)
		if err := e.Connect(); err != nil {
			t.Fatal(err)
		}
		r.converged(0, e)
		if w := e.Warming(); len(w) > 0 {
			t.Errorf("%v still warm", w)
		}
	})
}

type modelRun struct {
	*rig
	rnd      *rand.Rand
	services map[string]xdstest.Service
	envoys   []*xdstest.Envoy
	mu       sync.Mutex
	log      []string // guarded by mu
	serial   int      // makes refused content unique, so that sending one again is a fault
}

func runModel(t *testing.T, seed uint64) {
	m := &modelRun{rig: newRig(t, func(o *xds.Options) { o.GateWait = 500 * time.Millisecond }), rnd: rand.New(rand.NewPCG(seed, 1)), services: map[string]xdstest.Service{}}
	defer func() {
		if t.Failed() {
			t.Log(strings.Join(m.log, "\n"))
		}
	}()
	for i, p := range []wire.Protocol{wire.SotW, wire.Delta} {
		e := m.envoy(p, node(i), func(e *xdstest.Envoy) {
			e.Fault = picky
			if testing.Verbose() {
				e.Trace = func(line string) { m.note("%d %s", i, line) }
			}
		})
		m.envoys = append(m.envoys, e)
		defer func() { e.Disconnect() }()
	}
	for range 40 {
		m.step()
		if m.rnd.IntN(3) == 0 {
			m.settle()
		}
	}
	m.settle()
	m.heal()
	for _, e := range m.envoys {
		e.Release()
	}
	time.Sleep(5 * time.Second) // the bubble's clock: every gate opens
	for i, e := range m.envoys {
		m.converged(i, e)
	}
}

func (m *modelRun) settle() {
	synctest.Wait()
	for _, e := range m.envoys {
		e.Settle()
	}
}

func (m *modelRun) note(format string, a ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, fmt.Sprintf(format, a...))
}

func (m *modelRun) step() {
	e := m.envoys[m.rnd.IntN(len(m.envoys))]
	switch n := m.rnd.IntN(20); {
	case n < 12:
		m.change()
	case n < 14:
		var gone []xdstest.Service
		if s, ok := m.any(); ok {
			gone = append(gone, s)
			delete(m.services, s.Host)
		}
		m.note("delete %v", gone)
		m.mesh.Delete(gone...)
	case n < 15:
		m.note("mesh")
		m.mesh.SetMesh()
	case n < 17:
		urls := []string{gen.ClusterURL, gen.EndpointURL, gen.ListenerURL, gen.RouteURL, gen.VirtualHostURL}
		u := urls[m.rnd.IntN(len(urls))]
		m.note("hold %s", u)
		e.Hold(u)
	case n < 19:
		m.note("release")
		e.Release()
	default:
		if e.Orphans() {
			return
		}
		m.note("reconnect %v", slices.Index(m.envoys, e))
		e.Disconnect()
		if m.rnd.IntN(2) == 0 {
			m.change() // meanwhile
		}
		if err := e.Connect(); err != nil {
			m.Fatal(err)
		}
	}
}

func (m *modelRun) any() (xdstest.Service, bool) {
	var hosts []string
	for h := range m.services {
		hosts = append(hosts, h)
	}
	if len(hosts) == 0 {
		return xdstest.Service{}, false
	}
	slices.Sort(hosts)
	return m.services[hosts[m.rnd.IntN(len(hosts))]], true
}

func (m *modelRun) change() {
	hosts := []string{"a.x", "b.x", "c.x", "d.x", "e.x", badHost}
	var out []xdstest.Service
	for range 1 + m.rnd.IntN(2) {
		s := xdstest.Service{Host: hosts[m.rnd.IntN(len(hosts))], Namespace: "x", Ports: []uint16{80}, Member: "c1"}
		if old, ok := m.services[s.Host]; ok {
			s = old
		}
		switch m.rnd.IntN(4) {
		case 0:
			m.serial++
			s.Generation = m.serial
		case 1:
			s.Ports = [][]uint16{{80}, {80, 81}, {82}}[m.rnd.IntN(3)]
		}
		s.Endpoints = nil
		for range m.rnd.IntN(3) {
			s.Endpoints = append(s.Endpoints, fmt.Sprintf("10.0.0.%d", m.rnd.IntN(4)+1))
		}
		if m.rnd.IntN(6) == 0 {
			m.serial++
			s.Endpoints = append(s.Endpoints, fmt.Sprintf("%s%d.%d", badEndpoint, m.serial/256, m.serial%256))
		}
		if slices.ContainsFunc(out, func(o xdstest.Service) bool { return o.Host == s.Host }) {
			continue
		}
		m.services[s.Host] = s
		out = append(out, s)
	}
	m.note("set %+v", out)
	m.mesh.Set(out...)
}

// heal makes everything acceptable.
func (m *modelRun) heal() {
	if s, ok := m.services[badHost]; ok {
		m.mesh.Delete(s)
		delete(m.services, badHost)
	}
	var out []xdstest.Service
	for h, s := range m.services {
		if isBad(s.Generation) {
			s.Generation++
		}
		s.Endpoints = slices.DeleteFunc(s.Endpoints, func(e string) bool { return strings.HasPrefix(e, badEndpoint) })
		m.services[h] = s
		out = append(out, s)
	}
	m.note("heal %+v", out)
	m.mesh.Set(out...)
}
