package nacos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/conformance"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// real is the server that tests share, each with namespaces of its own. Who kills one starts another.
var real struct {
	once        sync.Once
	server      *env.Nacos
	dir         string
	err         error
	namespaces  atomic.Int32
	registrants atomic.Int32
}

func sharedNacos(t testing.TB) *env.Nacos {
	t.Helper()
	if testing.Short() {
		t.Skip("a real Nacos takes 10 s to start")
	}
	real.once.Do(func() {
		if real.dir, real.err = os.MkdirTemp("", "isthmus-nacos-"); real.err == nil {
			real.server, real.err = env.NewNacos(context.Background(), real.dir, env.NacosOptions{})
		}
	})
	if real.err != nil {
		t.Fatal(real.err)
	}
	return real.server
}

// stopShared is called after all tests.
func stopShared() {
	if real.server != nil {
		real.server.Close()
	}
	if real.dir != "" {
		_ = os.RemoveAll(real.dir) // in the folder for temporary files
	}
}

// registrant registers instances that are there as long as it is connected. Its instances of a service are replaced together.
type registrant struct {
	t  testing.TB
	s  *session
	id int32 // instances of different registrants differ
}

func newRegistrant(t testing.TB, at *env.Nacos, password string) *registrant {
	t.Helper()
	to, err := parseServer(at.Host, 0)
	if err != nil {
		t.Fatal(err)
	}
	access := foreign.Access{Password: password}
	if password != "" {
		access.Username = "nacos"
	}
	d := dialer{auth: newAuth(access, httpClient(nil), "/nacos", false, defaultTiming, time.Now), pace: rate.NewLimiter(rate.Inf, 1), timing: defaultTiming, metrics: &metrics{}}
	d.timing.request = patience // of a busy machine
	s, err := d.dial(context.Background(), to)
	if err != nil {
		t.Fatal(err)
	}
	s.work.Go(func() { // nobody is told of what it is told
		for {
			select {
			case <-s.events:
			case <-s.ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() { s.close(errors.New("the end of the test")) })
	return &registrant{t, s, real.registrants.Add(1)}
}

// set makes the instances of a service what it has; nil takes all away.
func (r *registrant) set(n serviceName, hosts []instance) {
	r.t.Helper()
	if err := r.try(n, hosts); err != nil {
		r.t.Fatal(err)
	}
}

func (r *registrant) try(n serviceName, hosts []instance) error {
	if len(hosts) == 0 {
		return r.s.call(r.s.ctx, "InstanceRequest", n.group, n.name, struct {
			request
			Type     string   `json:"type"`
			Instance instance `json:"instance"`
		}{n.request(), "deregisterInstance", host("10.0.0.1:1")}, nil)
	}
	for i := range hosts {
		hosts[i].ID = "" // the server gives one
	}
	return r.s.call(r.s.ctx, "BatchInstanceRequest", n.group, n.name, struct {
		request
		Type      string     `json:"type"`
		Instances []instance `json:"instances"`
	}{n.request(), "batchRegisterInstance", hosts}, nil)
}

// newNamespace makes a namespace of a test's own.
func newNamespace(t testing.TB, at *env.Nacos) string {
	t.Helper()
	id := fmt.Sprint("test-", real.namespaces.Add(1))
	if err := at.CreateNamespace(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

// realSpec reads namespaces of a real server.
func realSpec(at *env.Nacos, namespaces ...string) api.RegistrySpec {
	return api.RegistrySpec{
		Provider: api.Nacos, Addresses: []string{at.Host},
		Nacos:  &api.NacosSpec{Namespaces: namespaces, DiscoveryInterval: &metav1.Duration{Duration: 200 * time.Millisecond}},
		Limits: &api.Limits{RequestsPerSecond: 10_000},
	}.Effective("ns")
}

// realSource is a namespace of a real server.
type realSource struct {
	*registrant
	*relay    // on the way of registries
	at        *env.Nacos
	namespace string
	cluster   model.ClusterID
	spec      api.RegistrySpec
	now       conformance.World
}

func TestConformanceReal(t *testing.T) {
	at := sharedNacos(t)
	conformance.Run(t, conformance.Harness{New: func(t *testing.T, cluster model.ClusterID) conformance.Source {
		s := &realSource{registrant: newRegistrant(t, at, ""), at: at, namespace: newNamespace(t, at), cluster: cluster, now: conformance.World{}}
		s.relay = newRelay(t, s.s.server.grpcAddr())
		s.spec = realSpec(at, s.namespace)
		s.spec.Addresses = []string{"127.0.0.1"}
		_, s.spec.Nacos.GRPCPort = split(t, s.relay.addr)
		return s
	}})
}

func (s *realSource) Registry() model.Registry {
	r, err := quickly(Options{Name: s.cluster, Spec: s.spec})
	if err != nil {
		s.registrant.t.Fatal(err)
	}
	return r
}

func (s *realSource) Set(w conformance.World) {
	t := s.registrant.t
	t.Helper()
	for name := range s.now {
		if _, ok := w[name]; !ok {
			s.set(serviceName{s.namespace, defaultGroup, name}, nil)
			if err := s.at.DeleteService(t.Context(), s.namespace, "", name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, svc := range w {
		if text, _ := json.Marshal(svc); string(text) != s.text(name) {
			s.set(serviceName{s.namespace, defaultGroup, name}, hosts(svc))
		}
	}
	s.now = maps.Clone(w)
}

func (s *realSource) text(name string) string {
	svc, ok := s.now[name]
	if !ok {
		return ""
	}
	text, _ := json.Marshal(svc)
	return string(text)
}
