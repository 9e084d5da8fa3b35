package nacos

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/dns"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// The order of notifications counts, and not the clock of the server that made them.
func TestSkewedClocks(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	clock := int64(1 << 40)
	f.faults.skew = func() int64 { clock -= 1000; return clock }
	f.set(public("a"), []instance{host("10.0.0.1:80")})
	out := start(t, Options{Spec: f.spec()})
	for i := range 5 {
		f.set(public("a"), []instance{host(fmt.Sprintf("10.0.1.%d:80", i))})
		out.awaitServices(fmt.Sprintf("DEFAULT_GROUP@@a: 10.0.1.%d:80 healthy", i))
	}
}

// What a service was when it was subscribed to does not replace a notification that came before that answer.
func TestNotificationsOvertakeAnswers(t *testing.T) {
	t.Parallel()
	w, pub := bareWatcher()
	w.discover(public("a"))
	s := w.services[public("a")]
	w.homes.add(public("a"), 10, func(serviceName) bool { return true })
	info := func(addr string, at int64) *serviceInfo {
		return &serviceInfo{Hosts: []instance{host(addr)}, LastRefTime: at}
	}
	s.asked = 1
	w.pushed(serviceName{group: defaultGroup, name: "a"}, info("10.0.0.2:80", 7), time.Time{})
	w.subscribed(s, 1, info("10.0.0.1:80", 6), nil)
	if got := s.info.Hosts[0].IP; got != "10.0.0.2" {
		t.Errorf("an older answer was taken: %s", got)
	}
	w.subscribed(s, 1, info("10.0.0.3:80", 8), nil)
	if got := s.info.Hosts[0].IP; got != "10.0.0.3" {
		t.Errorf("a newer answer was not taken: %s", got)
	}
	w.fresh(s, 5, info("10.0.0.4:80", 1))
	w.fresh(s, 4, info("10.0.0.5:80", 0))
	if got := s.info.Hosts[0].IP; got != "10.0.0.4" {
		t.Errorf("the answer to an earlier question was taken: %s", got)
	}
	_ = pub
}

// Nacos does not say which namespace a notification is about.
func TestSameNameInSeveralNamespaces(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	spec := f.spec(func(s *api.RegistrySpec) {
		s.Nacos.Namespaces, s.Nacos.Groups = []string{"", "prod", "prod"}, []string{"DEFAULT_GROUP", "PAY"}
		s.Nacos.NamespaceNames = map[string]string{"prod": "production"}
	})
	names := []serviceName{public("a"), {"prod", "DEFAULT_GROUP", "a"}, {"prod", "PAY", "a"}, {"prod", "PAY", "only"}}
	for i, n := range names {
		f.set(n, []instance{host(fmt.Sprintf("10.0.0.%d:80", i))})
	}
	out := start(t, Options{Spec: spec})
	for i, n := range names {
		f.set(n, []instance{host(fmt.Sprintf("10.0.1.%d:80", i))})
	}
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.1.0:80 healthy", "prod/DEFAULT_GROUP@@a: 10.0.1.1:80 healthy", "prod/PAY@@a: 10.0.1.2:80 healthy", "prod/PAY@@only: 10.0.1.3:80 healthy")
	out.await("the name of a namespace is in the host", func() bool {
		for _, o := range out.rows {
			if s, ok := o.(*model.Service); ok && strings.EqualFold(s.Host, "only.pay.production.nacos") {
				return true
			}
		}
		return false
	})
	f.await("each is listed", func() bool { return f.calls[classList] >= 4 })
}

// The server asks to go to another one.
func TestReset(t *testing.T) {
	t.Parallel()
	f, other := newFake(t), newFake(t)
	f.set(public("a"), []instance{host("10.0.0.1:80")})
	out := start(t, Options{Spec: f.spec()})
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy")
	h, p := split(t, other.addr)
	f.tell(classReset, map[string]any{"serverIp": h, "serverPort": fmt.Sprint(p)})
	f.await("it connects again", func() bool { return f.calls[classServerCheck] >= 2 })
	other.await("a server that is none of ours is not asked", func() bool { return len(other.calls) == 0 })
	f.await("the request is acknowledged", func() bool { return f.acks["ConnectResetResponse"] == 1 })
	f.set(public("a"), []instance{host("10.0.0.2:80")})
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.2:80 healthy")
}

// Every notice is acknowledged, also one that is not known or can't be read: the server takes who does not answer for dead.
func TestNoticesAreAcknowledged(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.set(public("a"), []instance{host("10.0.0.1:80")})
	out := start(t, Options{Spec: f.spec()})
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy")
	f.tell("ClientDetectionRequest", map[string]any{"requestId": "7"})
	f.tell("SomethingNewRequest", map[string]any{})
	f.tell(classNotify, []int{1})
	f.tell(classNotify, map[string]any{"serviceInfo": map[string]any{"name": "nobody"}})
	f.set(public("a"), []instance{host("10.0.0.2:80")})
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.2:80 healthy")
	f.await("all are acknowledged", func() bool {
		return f.acks["ClientDetectionResponse"] == 1 && f.acks["SomethingNewResponse"] == 1 && f.acks["NotifySubscriberResponse"] == 3
	})
	f.await("over one connection", func() bool { return f.calls[classServerCheck] == 1 })
}

// An instance that can't be read is told of, and the others are served.
func TestUnreadableInstance(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.set(public("a"), []instance{host("10.0.0.1:80")})
	out := start(t, Options{Spec: f.spec()})
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy")
	f.tell(classNotify, map[string]any{"serviceInfo": map[string]any{"name": "DEFAULT_GROUP@@a", "hosts": []any{host("10.0.0.2:80"), map[string]any{"ip": "10.0.0.3", "weight": "NaN"}}}})
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.2:80 healthy")
	out.await("it is told of", func() bool {
		for _, o := range out.rows {
			if e, ok := o.(*model.Endpoints); ok && len(e.LeftOut) == 1 && e.LeftOut[0].Reason == model.ReasonInvalid {
				return true
			}
		}
		return false
	})
}

// Where a server can't tell of names, or not of so many, lists do.
func TestNoFuzzyWatch(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*faults){
		"not told":           func(x *faults) { x.noAck = true },
		"not able":           func(x *faults) { x.fuzzy = false },
		"too many patterns":  func(x *faults) { x.fuzzy, x.fuzzyCode = true, errorFuzzyPatterns },
		"too many services":  func(x *faults) { x.fuzzy, x.fuzzyCode = true, errorFuzzyServices },
		"registered in time": func(x *faults) { x.register = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			set(&f.faults)
			out := start(t, Options{Spec: f.spec()})
			out.awaitState(model.StateLive)
			for i := range 3 {
				f.set(public(fmt.Sprint(i)), []instance{host("10.0.0.1:80")})
				out.await("it is found", func() bool { return len(out.services()) == i+1 })
			}
			f.set(public("0"), nil)
			out.await("it is gone", func() bool { return len(out.services()) == 2 })
		})
	}
}

// A group that may not be read does not keep the others back; if no group may be, it is the credentials that are named.
func TestDenied(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	both := func(s *api.RegistrySpec) { s.Nacos.Groups = []string{"DEFAULT_GROUP", "SECRET"} }
	f.set(public("a"), []instance{host("10.0.0.1:80")})
	f.set(serviceName{publicNamespace, "SECRET", "b"}, []instance{host("10.0.0.2:80")})
	deny := func(group string) func(string, request) int {
		return func(class string, n request) int {
			if class == classList && (n.Group == group || group == "") {
				return errorNoRight
			}
			return 0
		}
	}
	f.faults.answer = deny("")
	out := start(t, Options{Spec: f.spec(both)})
	out.await("the credentials are named", func() bool {
		return out.status.State == model.StateSyncing && strings.Contains(out.status.Err, "the credentials are not accepted")
	})
	f.change(func(x *faults) { x.answer = deny("SECRET") })
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy")
	out.awaitState(model.StateLive)
	out.awaitProblem("namespace public, group SECRET", "403")
	f.change(func(x *faults) { x.answer = deny("") })
	out.await("nothing may be read any more", func() bool {
		return out.status.State == model.StateStale && strings.Contains(out.status.Err, "the credentials are not accepted")
	})
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy")
	f.change(func(x *faults) { x.answer = nil })
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy", "SECRET@@b: 10.0.0.2:80 healthy")
	out.await("all is well", func() bool {
		return out.status.State == model.StateLive && out.status.Err == "" && len(out.status.Problems) == 0
	})
}

// A server whose connection lives, but that answers nothing more, is left. What was known stays.
func TestSilentServerIsLeft(t *testing.T) {
	t.Parallel()
	for _, class := range []string{classHealthCheck, classList} {
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.set(public("a"), []instance{host("10.0.0.1:80")})
			out := start(t, Options{Spec: f.spec()}, func(q *timing) { q.request = 200 * time.Millisecond })
			out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy")
			never := make(chan struct{})
			f.change(func(x *faults) {
				x.block = func(c string, _ request) <-chan struct{} {
					if c == class {
						return never
					}
					return nil
				}
			})
			out.awaitState(model.StateStale)
			out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy")
			f.change(func(x *faults) { x.block = nil })
			out.awaitState(model.StateLive)
			f.set(public("a"), []instance{host("10.0.0.2:80")})
			out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.2:80 healthy")
		})
	}
}

// Of several servers the next one is asked when one is gone.
func TestFailover(t *testing.T) {
	t.Parallel()
	a, b := newFake(t), newFake(t)
	for _, f := range []*fake{a, b} {
		f.set(public("a"), []instance{host("10.0.0.1:80")})
	}
	// One gRPC port holds for all servers, so they differ in address.
	_, port := split(t, a.addr)
	b.down()
	b.addr = fmt.Sprint("127.0.0.2:", port)
	b.up()
	spec := a.spec(func(s *api.RegistrySpec) { s.Addresses = []string{"127.0.0.1", "127.0.0.2"} })
	out := start(t, Options{Spec: spec})
	for range 2 {
		for _, f := range []*fake{a, b} {
			f.down()
			out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy")
			out.awaitState(model.StateLive)
			f.up()
		}
	}
}

// An address server says where servers are, and that one is no more.
func TestAddressServer(t *testing.T) {
	t.Parallel()
	a, b := newFake(t), newFake(t)
	a.set(public("a"), []instance{host("10.0.0.1:80")})
	_, port := split(t, a.addr)
	b.down()
	b.addr = fmt.Sprint("127.0.0.2:", port)
	b.up()
	b.set(public("a"), []instance{host("10.0.0.2:80")})
	a.faults.list = "127.0.0.1 \n127.0.0,1\n"
	out := start(t, Options{Spec: a.spec(func(s *api.RegistrySpec) {
		s.Addresses, s.Nacos.AddressServer = nil, "http://"+a.httpAddr+"/serverlist"
	})})
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy")
	a.change(func(x *faults) { x.list = "" }) // says nothing: nothing changes
	a.change(func(x *faults) { x.list = "127.0.0.2:8848" })
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.2:80 healthy")
	out.awaitState(model.StateLive)
}

// What the limits say holds for names that are left out too.
func TestMaxServices(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	for _, n := range []string{"a", "b", "c", "d"} {
		f.set(public(n), []instance{host("10.0.0.1:80")})
	}
	out := start(t, Options{Spec: f.spec(func(s *api.RegistrySpec) { s.Limits.MaxServices = 2 })})
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy", "DEFAULT_GROUP@@b: 10.0.0.1:80 healthy")
	out.awaitProblem("services", "2 services are left out")
	f.set(public("a"), nil)
	out.awaitServices("DEFAULT_GROUP@@b: 10.0.0.1:80 healthy", "DEFAULT_GROUP@@c: 10.0.0.1:80 healthy")
	f.set(public("d"), nil)
	out.await("no problem", func() bool { return len(out.status.Problems) == 0 })
}

// No more requests are open at once than the limit says.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	for i := range 20 {
		f.set(public(fmt.Sprint(i)), []instance{host("10.0.0.1:80")})
	}
	var open, most atomic.Int32
	gate := make(chan struct{})
	var once sync.Once
	f.faults.block = func(class string, _ request) <-chan struct{} {
		if class != classSubscribe {
			return nil
		}
		n := open.Add(1)
		most.Store(max(most.Load(), n))
		if n >= 3 {
			once.Do(func() { close(gate) })
		}
		done := make(chan struct{})
		go func() {
			<-gate
			open.Add(-1)
			close(done)
		}()
		return done
	}
	out := start(t, Options{Spec: f.spec(func(s *api.RegistrySpec) { s.Limits.Concurrency = 3 })})
	out.await("all services", func() bool { return len(out.services()) == 20 })
	if n := most.Load(); n > 3 {
		t.Errorf("%d requests at once", n)
	}
}

// What is no service of this registry is not one of the mesh.
func TestWhatIsNoService(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	echo := func(h *instance) { h.Metadata = map[string]string{echoKey: echoValue} }
	f.set(public("echo"), []instance{host("10.0.0.1:80", echo)})
	f.set(public("half"), []instance{host("10.0.0.1:80", echo), host("10.0.0.2:80")})
	f.set(public("consumers:com.acme.Pay:1.0:"), []instance{host("10.0.0.1:80")})
	f.set(public("  "), []instance{host("10.0.0.1:80")})
	f.set(public("providers:com.acme.Pay:1.0:"), []instance{host("10.0.0.1:80")})
	f.set(public("other"), []instance{host("10.0.0.1:80")})
	out := start(t, Options{Spec: f.spec(func(s *api.RegistrySpec) { s.Services = &api.ServiceFilter{Exclude: []string{"oth*"}} })})
	out.awaitServices("DEFAULT_GROUP@@half: 10.0.0.2:80 healthy", "DEFAULT_GROUP@@providers:com.acme.Pay:1.0:: 10.0.0.1:80 healthy")
	f.set(public("half"), []instance{host("10.0.0.1:80", echo)})
	out.awaitServices("DEFAULT_GROUP@@providers:com.acme.Pay:1.0:: 10.0.0.1:80 healthy")
	f.await("what is filtered is not asked for", func() bool { return f.calls[classSubscribe] == 3 })
}

// A server that says that all are healthy, since too few are, is believed only if the spec says so.
func TestProtectThreshold(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.set(public("a"), []instance{host("10.0.0.1:80", func(h *instance) { h.Healthy = false })})
	for policy, want := range map[string]string{"ignore": "unhealthy", "honour": "healthy"} {
		reg := prometheus.NewRegistry()
		out := start(t, Options{Metrics: foreign.NewMetrics(reg), Spec: f.spec(func(s *api.RegistrySpec) { s.Nacos.ProtectThreshold = policy })})
		out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 " + want)
		if n := series(t, reg, "isthmus_registry_protected_services"); n != 1 {
			t.Errorf("%s: %d series of protected services", policy, n)
		}
	}
}

type resolver map[string]string

func (r resolver) Lookup(_ context.Context, name string, f dns.Family) (dns.Answer, error) {
	a, err := netip.ParseAddr(r[name])
	if err != nil {
		return dns.Answer{}, errors.New("no such name")
	}
	if f != dns.IPv4 {
		return dns.Answer{TTL: time.Hour}, nil
	}
	return dns.Answer{Addrs: []netip.Addr{a}, TTL: time.Hour}, nil
}

func TestHostNamedInstances(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.set(public("a"), []instance{host("10.0.0.1:80"), host("pay-1.example.com:81")})
	out := start(t, Options{Spec: f.spec(), Resolver: resolver{"pay-1.example.com": "10.0.0.7"}})
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy, 10.0.0.7:81 healthy")
}

// bareWatcher is one without session.
func bareWatcher() (*watcher, *published) {
	pub := &published{services: map[string]foreign.Service{}}
	o := Options{Name: "trade", Spec: api.RegistrySpec{Provider: api.Nacos, Addresses: []string{"10.0.0.1"}}.Effective("ns")}
	s := newSettings(o)
	s.timing = quick
	w := newWatcher(s, pub, &metrics{now: time.Now})
	w.homes = homes{}
	return w, pub
}

// published is what a watcher has published.
type published struct {
	services map[string]foreign.Service
	replaced int
	status   model.Status
}

func (p *published) Replace(all []foreign.Service) {
	clear(p.services)
	p.Put(all...)
	p.replaced++
}

func (p *published) Put(all ...foreign.Service) {
	for _, s := range all {
		p.services[s.Key] = s
	}
}

func (p *published) Delete(keys ...string) {
	for _, k := range keys {
		delete(p.services, k)
	}
}

func (p *published) Status(s model.Status) { p.status = s }
