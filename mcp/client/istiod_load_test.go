package client_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/mcp/client"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// load changes objects in an API server, and knows what there is.
type load struct {
	t       *testing.T
	cluster *env.Cluster
	rng     *rand.Rand
	objects map[string]int // what each says, by "kind/name"
	changes int
}

const lasting = 8 // objects of each kind that change and stay

// step makes, changes or deletes an object; the first of each kind are never deleted.
func (l *load) step() {
	l.t.Helper()
	kind, n := []string{"ServiceEntry", "VirtualService", "DestinationRule"}[l.rng.IntN(3)], l.rng.IntN(5*lasting)
	if l.rng.IntN(2) == 0 && n >= lasting {
		l.delete(kind, n)
		return
	}
	l.set(kind, n, 1+l.rng.IntN(1000))
}

func (l *load) set(kind string, n, says int) {
	l.t.Helper()
	l.cluster.Apply(l.t, loaded(kind, n, says))
	l.objects[fmt.Sprintf("%s/load-%d", kind, n)], l.changes = says, l.changes+1
}

func (l *load) delete(kind string, n int) {
	l.t.Helper()
	l.cluster.Delete(l.t, loaded(kind, n, 1))
	delete(l.objects, fmt.Sprintf("%s/load-%d", kind, n))
	l.changes++
}

// loaded is an object that says a number.
func loaded(kind string, n, says int) string {
	name := fmt.Sprintf("load-%d", n)
	spec := map[string]string{
		"ServiceEntry": fmt.Sprintf("{hosts: [%s.example.com], location: MESH_INTERNAL, resolution: STATIC, ports: [{name: http, number: 80, protocol: HTTP}], endpoints: [{address: %s}]}",
			name, netip.AddrFrom4([4]byte{10, 7, byte(says >> 8), byte(says)})),
		"VirtualService":  fmt.Sprintf("{hosts: [%[1]s.example.com], http: [{route: [{destination: {host: %[1]s.example.com}}], timeout: %[2]ds}]}", name, says),
		"DestinationRule": fmt.Sprintf("{host: %s.example.com, trafficPolicy: {connectionPool: {tcp: {maxConnections: %d}}}}", name, says),
	}[kind]
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: %s\nmetadata: {name: %s, namespace: shop}\nspec: %s\n", kind, name, spec)
}

// wants are the lines that told is to give.
func (l *load) wants() (out []string) {
	for k, says := range l.objects {
		out = append(out, fmt.Sprint(k, " ", says))
	}
	slices.Sort(out)
	return out
}

// told is what rows say of the objects; the sink is locked.
func (r *running) told() (out []string) {
	for _, o := range r.rows {
		switch o := o.(type) {
		case *model.Endpoints:
			name := strings.TrimSuffix(o.Host, ".example.com")
			for _, e := range o.Endpoints {
				ip := e.Addr.AddrPort.Addr().As4()
				out = append(out, fmt.Sprintf("ServiceEntry/%s %d", name, int(ip[2])<<8|int(ip[3])))
			}
		case *model.Config:
			switch spec := o.Spec.(type) {
			case *networking.VirtualService:
				out = append(out, fmt.Sprintf("%s/%s %d", o.Kind, o.Name, spec.Http[0].Timeout.Seconds))
			case *networking.DestinationRule:
				out = append(out, fmt.Sprintf("%s/%s %d", o.Kind, o.Name, spec.TrafficPolicy.ConnectionPool.Tcp.MaxConnections))
			}
		}
	}
	slices.Sort(out)
	return out
}

// settled waits until rows say what the API server has.
func (r *running) settled(l *load) {
	r.t.Helper()
	want := l.wants()
	r.await("what the API server has", func() bool { return r.replaces > 0 && slices.Equal(r.told(), want) })
}

// lastingOnly is a registry of which objects that stay must not go: neither by an event, nor by another full truth.
type lastingOnly struct {
	model.Registry
	t *testing.T
}

func (l lastingOnly) Run(ctx context.Context, out model.Sink) error {
	return l.Registry.Run(ctx, &lastingSink{Sink: out, t: l.t})
}

type lastingSink struct {
	model.Sink
	t    *testing.T
	full int
}

func (s *lastingSink) Replace(full *model.ShardState) {
	if s.full++; s.full > 1 {
		s.t.Errorf("the full truth is given %d times", s.full)
	}
	s.Sink.Replace(full)
}

func (s *lastingSink) Put(evs ...model.Event) {
	for _, ev := range evs {
		eps, _ := ev.Obj.(*model.Endpoints)
		if lasts(ev.Row) && (ev.Obj == nil || eps != nil && len(eps.Endpoints) == 0) {
			s.t.Errorf("%v goes, though its object is there", ev.Row)
		}
	}
	s.Sink.Put(evs...)
}

// lasts reports whether a row is of an object that stays.
func lasts(row model.RowKey) bool {
	for n := range lasting {
		name := fmt.Sprintf("load-%d", n)
		if slices.ContainsFunc(strings.Split(row.Key, "/"), func(part string) bool { return part == name || part == name+".example.com" }) {
			return true
		}
	}
	return false
}

// TestIncident76RealIstiodKilledUnderLoad: an istiod is killed and restarted while objects come, change and go, before, meanwhile and after. What
// stays is never gone, and in the end what is known is what the API server has: nothing is lost, and nothing that was deleted is there again.
func TestIncident76RealIstiodKilledUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an API server and an istiod")
	}
	seed := uint64(time.Now().UnixNano())
	t.Log("seed ", seed)
	l := &load{t: t, cluster: servers.Take(t, 1)[0], rng: rand.New(rand.NewPCG(seed, 0)), objects: map[string]int{}}
	for n := range lasting {
		for _, kind := range []string{"ServiceEntry", "VirtualService", "DestinationRule"} {
			l.set(kind, n, n+1)
		}
	}
	i := l.cluster.Istiod(t)
	var all []*running
	for _, plain := range []bool{false, true} {
		o := client.Options{Name: "upstream", Addresses: []string{i.Address}, NoDelta: plain, Timing: client.Timing{Retry: 20 * time.Millisecond, RetryMax: time.Second}}
		all = append(all, runRegistry(t, lastingOnly{client.New(o), t}))
	}
	for _, r := range all {
		r.settled(l)
		r.await("rows of what stays", func() bool {
			n := 0
			for row := range r.rows {
				if lasts(row) {
					n++
				}
			}
			return n >= 4*lasting // services and endpoints, and configuration of two kinds
		})
	}
	for range 3 {
		for range 40 {
			l.step()
		}
		i.Stop() // with changes on their way
		for range 40 {
			l.step()
		}
		started := make(chan struct{})
		go func() {
			defer close(started)
			i.Start(t)
		}()
		for starting := true; starting; {
			l.step()
			select {
			case <-started:
				starting = false
			default:
			}
		}
		if t.Failed() {
			return
		}
	}
	for _, r := range all {
		r.settled(l)
		r.state(model.StateLive)
	}
	t.Log(l.changes, " changes")
}
