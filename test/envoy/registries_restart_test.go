package envoy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/env"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// restartable is a registry's server, with services beside checkout that change all the time.
type restartable struct {
	name, suffix string // the provider, and what its hosts end with
	kill         func()
	start        func(context.Context) error
	forget       func(testing.TB)
	checkout     func(t *testing.T, there bool)
	set          func(ctx context.Context, service, ip string, there bool) error
}

func (m *trio) restartables() []restartable {
	return []restartable{
		{"nacos", ".DEFAULT-GROUP.public.nacos", m.nacos.Kill, m.nacos.Start, m.nacos.Forget, m.inNacos, func(ctx context.Context, service, ip string, there bool) error {
			i := env.NacosInstance{Service: service, IP: ip, Port: 80, Weight: 1}
			if there {
				return m.nacos.Register(ctx, i)
			}
			return m.nacos.Deregister(ctx, i)
		}},
		{"consul", ".dc1.consul", m.consul.Kill, m.consul.Start, m.consul.Forget, m.inConsul, func(ctx context.Context, service, ip string, there bool) error {
			if !there {
				return m.consul.Do(ctx, http.MethodPut, "/v1/catalog/deregister", map[string]any{"Node": "vm-2", "ServiceID": service + ip}, nil)
			}
			return m.consul.Do(ctx, http.MethodPut, "/v1/catalog/register", map[string]any{
				"Node": "vm-2", "Address": "127.0.9.9", "Service": map[string]any{"ID": service + ip, "Service": service, "Port": 80, "Address": ip},
			}, nil)
		}},
	}
}

// TestRegistriesRestartUnderTraffic: the server of each registry is killed and comes back, once with its data and once without
// any, while its services change and are called. No call fails, and in the end the hub has what the registry has: nothing is lost,
// and nothing dead is kept once the policy is another. Until then it holds everything back, for longer than the test takes.
func TestRegistriesRestartUnderTraffic(t *testing.T) {
	t.Parallel()
	m := newTrio(t, "{percent: 0, duration: 1h}")
	for _, r := range m.restartables() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			host := "checkout" + r.suffix
			ask := func(ctx context.Context) error { return m.ask(ctx, host, 9000, r.name) }
			envoytest.Eventually(t, limit, host+" to be answered", func() error { return ask(t.Context()) })
			traffic := envoytest.StartTraffic(t, 2, ask)
			calls := func(n int) {
				t.Helper()
				if err := traffic.Wait(t.Context(), n); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			var churn sync.WaitGroup
			churn.Go(func() { r.churn(ctx) })
			r.restart(t, m, func(testing.TB) {})
			m.reaches(t, r.name, "live")
			calls(50)
			r.restart(t, m, r.forget)
			m.registryHas(t, r.name, "to be known as empty", func(r debug.Registry) bool { return r.State == "live" && r.HeldBack > 0 })
			calls(50)
			r.checkout(t, true)
			cancel()
			churn.Wait()
			want := r.settle(t)
			envoytest.Eventually(t, limit, "the hub to have at least what the registry has", func() error {
				got, err := m.endpoints(t.Context(), r.suffix, slices.Collect(maps.Keys(want)))
				for s, ips := range want {
					if lacks := slices.DeleteFunc(slices.Clone(ips), func(ip string) bool { return slices.Contains(got[s], ip) }); err == nil && len(lacks) > 0 {
						err = fmt.Errorf("it lacks %v of %s", lacks, s)
					}
				}
				return err
			})
			m.write(t, "east/"+r.name+".yaml", m.declared(r.name, "{duration: 1s}"))
			envoytest.Eventually(t, limit, "the hub to have what the registry has", func() error {
				got, err := m.endpoints(t.Context(), r.suffix, slices.Collect(maps.Keys(want)))
				if d := cmp.Diff(want, got); err == nil && d != "" {
					err = fmt.Errorf("-registry +hub: %s", d)
				}
				return err
			})
			m.registryHas(t, r.name, "to hold nothing back", func(r debug.Registry) bool { return r.HeldBack == 0 })
			calls(50)
			if got := traffic.Stop(); got.Failed > 0 {
				t.Errorf("%d of %d calls failed, first %v", got.Failed, got.Failed+got.OK, got.First)
			}
		})
	}
}

// restart kills the server, waits until the hub has noticed, and starts it again.
func (r restartable) restart(t *testing.T, m *trio, between func(testing.TB)) {
	t.Helper()
	r.kill()
	m.reaches(t, r.name, "stale")
	between(t)
	if err := r.start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

const (
	changing  = 6 // services
	addresses = 4 // that each may have
)

func changingService(i int) string { return fmt.Sprint("changing-", i) }

// churn registers and deregisters instances, as far as there is a server, until ctx ends.
func (r restartable) churn(ctx context.Context) {
	for ctx.Err() == nil {
		_ = r.set(ctx, changingService(rand.IntN(changing)), fmt.Sprint("127.7.7.", rand.IntN(addresses)), rand.IntN(2) == 0)
	}
}

// settle makes the registry have an instance at every other address, and gives these by service.
func (r restartable) settle(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for i := range changing {
		for a := range addresses {
			ip := fmt.Sprint("127.7.7.", a)
			// What is not there can't be deregistered in some registries: it is registered first.
			for _, there := range []bool{true, a%2 == i%2} {
				if err := r.set(t.Context(), changingService(i), ip, there); err != nil {
					t.Fatal(err)
				}
			}
			if a%2 == i%2 {
				out[changingService(i)] = append(out[changingService(i)], ip+":80")
			}
		}
	}
	return out
}

// endpoints are those that the hub has of services, sorted.
func (m *mesh) endpoints(ctx context.Context, suffix string, services []string) (map[string][]string, error) {
	out := map[string][]string{}
	for _, s := range services {
		var shards map[string]map[string]debug.Shards
		text, err := m.hub.Get(ctx, m.hub.URL+"/debug/endpointz?"+url.Values{"host": {s + suffix}}.Encode())
		if err == nil {
			err = json.Unmarshal(text, &shards)
		}
		if err != nil {
			return nil, err
		}
		for _, byNamespace := range shards {
			for _, in := range byNamespace {
				for _, es := range in.Shards {
					for _, e := range es {
						out[s] = append(out[s], net.JoinHostPort(e.Address, strconv.Itoa(int(e.EndpointPort))))
					}
				}
			}
		}
		slices.Sort(out[s])
	}
	return out, nil
}
