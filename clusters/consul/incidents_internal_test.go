package consul

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/dns"
)

// Both ways to read services: each has its watch, or none has.
func bothWays(t *testing.T, test func(*testing.T, Options)) {
	t.Helper()
	t.Parallel()
	for name, most := range map[string]int32{"watched": 128, "on demand": 1} {
		t.Run(name, func(t *testing.T) {
			test(t, scripted(func(s *api.RegistrySpec) { s.Limits.Concurrency = most }))
		})
	}
}

// Incident 19: instances that all fail their checks are unhealthy, and not the last healthy set for ever.
func TestIncident19AllInstancesCritical(t *testing.T) {
	bothWays(t, func(t *testing.T, o Options) {
		inBubble(t, o, func(w *world) {
			w.set("a", at("10.0.0.1"), at("10.0.0.2"))
			w.want("a.dc1.consul [80/http]: 10.0.0.1:80 healthy 1; 10.0.0.2:80 healthy 1")
			w.setHealth("a", at("10.0.0.1", checked("critical")), at("10.0.0.2", checked("critical")))
			w.want("a.dc1.consul [80/http]: 10.0.0.1:80 unhealthy 1; 10.0.0.2:80 unhealthy 1")
			w.setHealth("a", at("10.0.0.1"), at("10.0.0.2", checked("critical")))
			w.want("a.dc1.consul [80/http]: 10.0.0.1:80 healthy 1; 10.0.0.2:80 unhealthy 1")
		})
	})
}

// Incident 20: what can't be built says so before anything of it runs, and names no credential; so what is to be replaced
// stays in force.
func TestIncident20BadConfigurationIsNoRegistry(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Options){
		"address":        func(o *Options) { o.Spec.Addresses = []string{"http://me:secret-token@consul.test:8500"} },
		"scheme":         func(o *Options) { o.Spec.Addresses = []string{"ftp://consul.test:8500"} },
		"no address":     func(o *Options) { o.Spec.Addresses = nil },
		"authorities":    func(o *Options) { o.Access.CA = []byte("secret-token") },
		"no key":         func(o *Options) { o.Spec.TLS = &api.TLS{Mode: api.TLSMutual} },
		"virtual":        func(o *Options) { o.Spec.Consul.TaggedAddress = "virtual" },
		"not effective":  func(o *Options) { o.Spec.Consul = nil },
		"address parses": func(o *Options) { o.Spec.Addresses = []string{"consul.test:80%zz"} },
	} {
		o := scripted()
		change(&o)
		if r, err := New(o); err == nil || r != nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}

// Incident 21: a server that wakes watches many times a second with what they know costs a bounded number of requests, and no row.
func TestIncident21FloodOfEqualAnswers(t *testing.T) {
	inBubble(t, scripted(), func(w *world) {
		w.set("a", at("10.0.0.1"))
		w.want("a.dc1.consul [80/http]: 10.0.0.1:80 healthy 1")
		told, asked := w.told(), w.count("/v1/health/service/a")
		ctx, stop := context.WithCancel(w.t.Context())
		var flood sync.WaitGroup
		flood.Go(func() {
			for ctx.Err() == nil {
				w.do(func() { w.index++; w.indexes["a"] = w.index })
				pause(ctx, 5*time.Millisecond, nil)
			}
		})
		w.want("a.dc1.consul [80/http]: 10.0.0.1:80 healthy 1")
		time.Sleep(55 * time.Second)
		stop()
		flood.Wait()
		synctest.Wait()
		if n := w.count("/v1/health/service/a") - asked; n < 50 || n > 60+2*burst || w.told() != told {
			w.t.Errorf("%d requests in a minute, rows told %d times", n, w.told()-told)
		}
		w.set("a", at("10.0.0.2")) // it is still heard
		w.want("a.dc1.consul [80/http]: 10.0.0.2:80 healthy 1")
	})
}

// Incident 23: a service that has gone is not asked for, though a query for it would never block; its first new instance is
// noticed.
func TestIncident23NoWatchOfWhatIsGone(t *testing.T) {
	inBubble(t, scripted(), func(w *world) {
		w.set("a", at("10.0.0.1"))
		w.set("b", at("10.0.0.9"))
		w.want("a.dc1.consul [80/http]: 10.0.0.1:80 healthy 1", "b.dc1.consul [80/http]: 10.0.0.9:80 healthy 1")
		w.remove("a")
		w.want("b.dc1.consul [80/http]: 10.0.0.9:80 healthy 1")
		asked := w.count("/v1/health/service/a")
		for range 60 {
			w.set("b", at("10.0.0.9"))
			time.Sleep(time.Second)
		}
		if n := w.count("/v1/health/service/a"); n != asked {
			w.t.Errorf("asked %d times for what is gone", n-asked)
		}
		w.set("a", at("10.0.0.2"))
		w.want("a.dc1.consul [80/http]: 10.0.0.2:80 healthy 1", "b.dc1.consul [80/http]: 10.0.0.9:80 healthy 1")
	})
}

// Incident 24: an instance without address has that of its node; without that it is left out and told of.
func TestIncident24AddressOfTheNode(t *testing.T) {
	inBubble(t, scripted(), func(w *world) {
		own := func(e *entry) { e.Service.Address = "10.9.0.1" }
		nowhere := func(e *entry) { e.Node.Address = "" }
		w.set("a", at("10.0.0.1"), at("10.0.0.2", own), at("10.0.0.3", nowhere))
		w.want("a.dc1.consul [80/http]: -:80 NoAddress; 10.0.0.1:80 healthy 1; 10.9.0.1:80 healthy 1")
	})
}

// Incident 25: the checks of an instance's node count too.
func TestIncident25NodeCheckIsCritical(t *testing.T) {
	bothWays(t, func(t *testing.T, o Options) {
		inBubble(t, o, func(w *world) {
			w.set("a", at("10.0.0.1", func(e *entry) { e.Checks = append(e.Checks, check{CheckID: "node:serf", Status: "passing"}) }))
			w.want("a.dc1.consul [80/http]: 10.0.0.1:80 healthy 1")
			w.setHealth("a", at("10.0.0.1", func(e *entry) { e.Checks = append(e.Checks, check{CheckID: "node:serf", Status: "critical"}) }))
			w.want("a.dc1.consul [80/http]: 10.0.0.1:80 unhealthy 1")
		})
	})
}

// Incident 26: a warning means the same however an instance is read.
func TestIncident26OneRuleForWarning(t *testing.T) {
	bothWays(t, func(t *testing.T, o Options) {
		for setting, want := range map[string]string{"healthy": "10.0.0.1:80 healthy 3", "unhealthy": "10.0.0.1:80 unhealthy 5"} {
			t.Run(setting, func(t *testing.T) {
				o := o
				o.Spec.Health = &api.Health{Warning: setting}
				inBubble(t, o, func(w *world) {
					e := at("10.0.0.1", checked("warning"), func(e *entry) { e.Service.Weights = &weights{Passing: 5, Warning: 3} })
					w.set("a", e)
					w.want("a.dc1.consul [80/http]: " + want)
					for range 5 { // however it is told
						w.setHealth("a", e)
						w.want("a.dc1.consul [80/http]: " + want)
						w.set("a", e)
						w.want("a.dc1.consul [80/http]: " + want)
					}
				})
			})
		}
	})
}

// Incident 27: a service that is listed without instances stays, and is followed.
func TestIncident27EmptyIsNotGone(t *testing.T) {
	bothWays(t, func(t *testing.T, o Options) {
		inBubble(t, o, func(w *world) {
			w.set("a", at("10.0.0.1"))
			w.want("a.dc1.consul [80/http]: 10.0.0.1:80 healthy 1")
			w.set("a")
			w.after(time.Minute, "a.dc1.consul [80/http]:")
			w.set("a", at("10.0.0.1"))
			w.after(31*time.Second, "a.dc1.consul [80/http]: 10.0.0.1:80 healthy 1")
		})
	})
}

// names is a resolver of one address for all.
type names struct {
	mu  sync.Mutex
	ip  string
	err error
}

// Lookup implements dns.Resolver.
func (n *names) Lookup(_ context.Context, _ string, f dns.Family) (dns.Answer, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f != dns.IPv4 || n.err != nil {
		return dns.Answer{TTL: dns.MinTTL}, n.err
	}
	return dns.Answer{Addrs: []netip.Addr{netip.MustParseAddr(n.ip)}, TTL: dns.MinTTL}, nil
}

// Incident 28: an instance with a DNS name keeps its last addresses while the name can't be resolved.
func TestIncident28NameIsNotResolvedOnce(t *testing.T) {
	o, n := scripted(), &names{ip: "10.0.0.1"}
	o.Resolver = n
	inBubble(t, o, func(w *world) {
		w.set("a", at("db.internal"))
		w.want("a.dc1.consul [80/http]: 10.0.0.1:80 healthy 1")
		n.mu.Lock()
		n.err = errors.New("SERVFAIL")
		n.mu.Unlock()
		w.after(10*time.Minute, "a.dc1.consul [80/http]: 10.0.0.1:80 healthy 1")
		if !strings.Contains(w.problems(), "db.internal") {
			w.t.Errorf("problems %q", w.problems())
		}
		n.mu.Lock()
		n.ip, n.err = "10.0.0.2", nil
		n.mu.Unlock()
		w.after(2*time.Minute, "a.dc1.consul [80/http]: 10.0.0.2:80 healthy 1")
	})
}

// Incident 29: services of one node have each their protocol; what the node says of one is not theirs.
func TestIncident29ProtocolOfTheService(t *testing.T) {
	inBubble(t, scripted(), func(w *world) {
		said := func(meta map[string]string, tags ...string) entry {
			return at("10.0.0.1", func(e *entry) {
				e.Node.Meta, e.Service.Meta, e.Service.Tags = map[string]string{"protocol": "tcp"}, meta, tags
			})
		}
		w.set("by-meta", said(map[string]string{"protocol": "grpc"}))
		w.set("by-tag", said(nil, "v1", "protocol=http2"))
		w.set("by-tag-2", said(nil, "protocol|tcp"))
		w.set("plain", said(nil))
		w.want("by-meta.dc1.consul [80/grpc]: 10.0.0.1:80 healthy 1", "by-tag-2.dc1.consul [80/tcp]: 10.0.0.1:80 healthy 1",
			"by-tag.dc1.consul [80/http2]: 10.0.0.1:80 healthy 1", "plain.dc1.consul [80/http]: 10.0.0.1:80 healthy 1")
	})
}

// Incident 31: what does not change costs next to nothing.
func TestIncident31IdleServicesCostNothing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		most int32
		want int // requests in an hour
	}{
		{512, 300*61 + 120}, // each watch waits for a minute, the list for half of one
		{128, (107+tables)*61 + 120 + 61},
	} {
		t.Run(fmt.Sprint(tc.most, " at once"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				for i := range 300 {
					f.set(fmt.Sprintf("s%03d", i), at(fmt.Sprintf("10.0.%d.%d", i/100, i%100)))
				}
				w := start(t, scripted(func(s *api.RegistrySpec) { s.Limits.Concurrency = tc.most }), f)
				time.Sleep(2 * time.Minute)
				asked, told := w.count(""), w.told()
				time.Sleep(time.Hour)
				if n := w.count("") - asked; n > tc.want {
					t.Errorf("%d requests in an hour, want %d at most", n, tc.want)
				}
				told, content := w.told()-told, w.content()
				w.end()
				if told != 0 || strings.Count(content, "\n") != 299 || w.most > int(tc.most) {
					t.Errorf("told %d times, %d at once", told, w.most)
				}
			})
		})
	}
}

// refuse answers requests of a path with a status.
func refuse(prefix string, code int, text string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		if strings.HasPrefix(r.URL.Path, prefix) {
			return respond(code, text, 0, nil), nil
		}
		return nil, nil
	}
}
