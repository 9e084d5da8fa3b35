package consul

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/test/env"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

func instanceOf(service, address string) registered {
	return registered{node: "n-" + address, id: service, address: address, port: 8080, passing: 1, warning: 1, status: "passing"}
}

// Datacenters that know each other are read through one of their servers; equal names in two are two services.
func TestRealDatacenters(t *testing.T) {
	t.Parallel()
	ports := map[string]any{"http": 8500, "dns": -1, "grpc": -1, "grpc_tls": -1, "serf_wan": 8302}
	one := env.StartConsul(t, env.ConsulOptions{Config: map[string]any{"ports": ports}})
	two := env.StartConsul(t, env.ConsulOptions{Datacenter: "dc2", Config: map[string]any{
		"ports": ports, "retry_join_wan": []string{strings.TrimSuffix(one.Host, ":8500") + ":8302"}, "retry_interval_wan": "1s",
	}})
	instanceOf("web", "10.1.0.1").register(t, one, "web")
	instanceOf("web", "10.2.0.1").register(t, two, "web")
	instanceOf("db", "10.2.0.2").register(t, two, "db")
	both := follow(t, at8500(one.URL, func(s *api.RegistrySpec) { s.Consul = &api.ConsulSpec{Datacenters: []string{"dc1", "dc2"}} }))
	own := follow(t, at8500(two.URL))
	both.awaitContent(t, "db.dc2.consul [8080/http]: 10.2.0.2:8080 healthy 1\nweb.dc1.consul [8080/http]: 10.1.0.1:8080 healthy 1\nweb.dc2.consul [8080/http]: 10.2.0.1:8080 healthy 1")
	own.awaitContent(t, "db.dc2.consul [8080/http]: 10.2.0.2:8080 healthy 1\nweb.dc2.consul [8080/http]: 10.2.0.1:8080 healthy 1")
	both.awaitState(t, "live")
	two.Kill()
	both.await(t, "the problem of dc2", func() bool { return strings.HasPrefix(both.problems(), "dc2: what is known of it stays as it was: ") })
	both.awaitState(t, "live")
	instanceOf("web", "10.1.0.2").register(t, one, "web")
	both.awaitContent(t, "db.dc2.consul [8080/http]: 10.2.0.2:8080 healthy 1\nweb.dc1.consul [8080/http]: 10.1.0.1:8080 healthy 1; 10.1.0.2:8080 healthy 1\nweb.dc2.consul [8080/http]: 10.2.0.1:8080 healthy 1")
}

// What a peer exports is read where it is imported.
func TestRealPeer(t *testing.T) {
	t.Parallel()
	config := func() map[string]any {
		return map[string]any{
			"ports":   map[string]any{"http": 8500, "dns": -1, "grpc": 8502, "grpc_tls": 8503, "serf_wan": -1},
			"connect": map[string]any{"enabled": true}, "peering": map[string]any{"enabled": true},
		}
	}
	here := env.StartConsul(t, env.ConsulOptions{Config: config()})
	there := env.StartConsul(t, env.ConsulOptions{Datacenter: "east", Config: config()})
	instanceOf("local", "10.1.0.1").register(t, here, "local")
	instanceOf("web", "10.2.0.1").register(t, there, "web")
	instanceOf("secret", "10.2.0.2").register(t, there, "secret")
	there.Put(t, "/v1/config", map[string]any{"Kind": "exported-services", "Name": "default", "Services": []any{
		map[string]any{"Name": "web", "Consumers": []any{map[string]any{"Peer": "west"}}},
	}}, nil)
	var token struct{ PeeringToken string }
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := envoytest.Poll(ctx, func() error { // its certificate comes some time after the server
		if err := there.Do(ctx, http.MethodPost, "/v1/peering/token", map[string]any{"PeerName": "west"}, &token); err != nil {
			return err
		}
		return here.Do(ctx, http.MethodPost, "/v1/peering/establish", map[string]any{"PeerName": "east", "PeeringToken": token.PeeringToken}, nil)
	}); err != nil {
		t.Fatal(err)
	}
	var all []*sink
	for _, most := range []int32{128, 1} {
		s := follow(t, at8500(here.URL, func(s *api.RegistrySpec) {
			s.Consul = &api.ConsulSpec{Peers: []string{"east"}, RefreshInterval: &metav1.Duration{Duration: time.Second}}
			s.Limits.Concurrency = most
		}))
		s.awaitContent(t, "local.dc1.consul [8080/http]: 10.1.0.1:8080 healthy 1\nweb.east.peer.consul [8080/http]: 10.2.0.1:8080 healthy 1")
		r := instanceOf("web", "10.2.0.1")
		r.status = "critical"
		r.check(t, there)
		s.awaitContent(t, "local.dc1.consul [8080/http]: 10.1.0.1:8080 healthy 1\nweb.east.peer.consul [8080/http]: 10.2.0.1:8080 unhealthy 1")
		r.status = "passing"
		r.check(t, there)
		s.awaitContent(t, "local.dc1.consul [8080/http]: 10.1.0.1:8080 healthy 1\nweb.east.peer.consul [8080/http]: 10.2.0.1:8080 healthy 1")
		s.awaitState(t, "live")
		all = append(all, s)
	}
	there.Kill() // what was imported is still there
	instanceOf("local", "10.1.0.2").register(t, here, "local")
	for _, s := range all {
		s.awaitContent(t, "local.dc1.consul [8080/http]: 10.1.0.1:8080 healthy 1; 10.1.0.2:8080 healthy 1\nweb.east.peer.consul [8080/http]: 10.2.0.1:8080 healthy 1")
		s.awaitState(t, "live")
	}
}
