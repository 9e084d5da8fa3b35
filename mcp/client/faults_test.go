package client_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/mcp"
	"github.com/isthmus-mesh/isthmus/mcp/client"
	"github.com/isthmus-mesh/isthmus/mcp/mcptest"
)

const (
	seURL    = "networking.istio.io/v1/ServiceEntry"
	seBeta   = "networking.istio.io/v1beta1/ServiceEntry"
	seAlpha  = "networking.istio.io/v1alpha3/ServiceEntry"
	vsURL    = "networking.istio.io/v1/VirtualService"
	allTypes = 15 // at least so many are asked for
)

// stage is a client of a server, in a bubble with a clock of its own.
type stage struct {
	*running
	server *mcptest.Server
	full   bool // the server has the state of the world only
}

// play runs a scenario over each of the two protocols.
func play(t *testing.T, prepare func(*testing.T, *mcptest.Server, *client.Options), scenario func(*testing.T, *stage)) {
	t.Helper()
	playWrapped(t, func(r model.Registry) model.Registry { return r }, prepare, scenario)
}

func playWrapped(t *testing.T, wrap func(model.Registry) model.Registry, prepare func(*testing.T, *mcptest.Server, *client.Options), scenario func(*testing.T, *stage)) {
	t.Helper()
	for name, full := range map[string]bool{"delta": false, "state of the world": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := mcptest.Start(t)
				s.Misbehave(func(f *mcptest.Faults) { f.NoDelta = full })
				o := client.Options{Name: "up", Addresses: []string{"a:1"}, Dial: s.Dial, Log: slog.New(slog.DiscardHandler), Jitter: func(d time.Duration) time.Duration { return d }}
				prepare(t, s, &o)
				st := &stage{running: runRegistry(t, wrap(client.New(o))), server: s, full: full}
				scenario(t, st)
				st.stop()
			})
		})
	}
}

func se(name string, addresses ...string) mcp.Resource {
	return entry("shop", name+".example.com", 80, addresses...)
}

func vs(name string, hosts ...string) mcp.Resource {
	return resource("shop", name, &networking.VirtualService{Hosts: hosts, Http: []*networking.HTTPRoute{{
		Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: "pay.example.com"}}},
	}}})
}

// refusals are the NACKs that the server got.
func (s *stage) refusals() (out []mcptest.Request) {
	for _, r := range s.server.Requests() {
		if r.Refusal != "" {
			out = append(out, r)
		}
	}
	return out
}

// The server withholds the answer for one kind until it has read its own sources: nothing is said before.
func TestFirstAnswerWithheld(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, _ *client.Options) {
		s.Set("ServiceEntry", se("pay", "10.1.0.1"))
		s.Misbehave(func(f *mcptest.Faults) { f.Withhold = map[string]bool{"ServiceEntry": true} })
	}, func(t *testing.T, s *stage) {
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if s.replaces != 0 || s.status.State != model.StateSyncing {
			t.Errorf("%d Replaces, state %s", s.replaces, s.status.State)
		}
		s.server.Misbehave(func(f *mcptest.Faults) { f.Withhold = nil })
		s.host("pay.example.com", "10.1.0.1")
		s.state(model.StateLive)
	})
}

// A kind that is never answered for is not waited for longer than 30 s, is told, and counts when it comes after all.
func TestUnknownTypeIsNeverAnswered(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, _ *client.Options) {
		s.Set("ServiceEntry", se("pay", "10.1.0.1"))
		s.Set("VirtualService", vs("pay", "pay.example.com"))
		s.Misbehave(func(f *mcptest.Faults) { f.Withhold = map[string]bool{"VirtualService": true} })
	}, func(t *testing.T, s *stage) {
		time.Sleep(31 * time.Second)
		s.host("pay.example.com", "10.1.0.1")
		s.problem("VirtualService", "does not answer")
		s.noConfig("VirtualService", "shop/pay")
		s.server.Misbehave(func(f *mcptest.Faults) { f.Withhold = nil })
		s.config("VirtualService", "shop/pay")
		s.await("no problem any more", func() bool { return len(s.status.Problems) == 0 })
	})
}

// Incident 76: the server restarts with less, more and other things: nothing goes meanwhile, then what it says counts.
func TestIncident76ServerRestarts(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, _ *client.Options) {
		s.Set("ServiceEntry", se("pay", "10.1.0.1"), se("mail", "10.1.0.2"), se("web", "10.1.0.3"))
	}, func(t *testing.T, s *stage) {
		s.state(model.StateLive)
		s.server.Down()
		s.state(model.StateStale)
		time.Sleep(10 * time.Minute)
		s.host("mail.example.com", "10.1.0.2")
		s.server.Delete("ServiceEntry", "shop/mail.example.com")
		s.server.Set("ServiceEntry", se("pay", "10.1.0.9"), se("new", "10.1.0.4"))
		s.server.Up()
		s.state(model.StateLive)
		s.host("pay.example.com", "10.1.0.9")
		s.host("new.example.com", "10.1.0.4")
		s.host("web.example.com", "10.1.0.3")
		s.noHost("mail.example.com")
		if s.replaces != 1 {
			t.Errorf("%d Replaces, want the first one and then what differs", s.replaces)
		}
	})
}

// A server that counts its changes begins at 1 again: the same version means something else.
func TestIndexRestarts(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, _ *client.Options) {
		s.Set("ServiceEntry", se("pay", "10.1.0.1"))
	}, func(t *testing.T, s *stage) {
		s.state(model.StateLive)
		s.server.Down()
		s.server.Set("ServiceEntry", se("pay", "10.1.0.7"))
		s.server.RestartIndex()
		s.server.Up()
		s.host("pay.example.com", "10.1.0.7")
	})
}

// With versions that are hashes, only what differs is sent again after a reconnect.
func TestReconnectSaysWhatItHas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := mcptest.Start(t)
		s.HashVersions()
		s.Set("ServiceEntry", se("pay", "10.1.0.1"), se("mail", "10.1.0.2"))
		r := run(t, client.Options{Name: "up", Addresses: []string{"a:1"}, Dial: s.Dial})
		r.state(model.StateLive)
		s.Down()
		s.Delete("ServiceEntry", "shop/mail.example.com")
		s.Up()
		r.noHost("mail.example.com")
		r.host("pay.example.com", "10.1.0.1")
		for _, q := range s.Requests() {
			if q.Stream == 2 && q.TypeURL == seURL && q.Nonce == "" {
				if len(q.Initial) != 2 || !strings.HasSuffix(q.Initial["shop/pay.example.com"], "-h") {
					t.Errorf("initial_resource_versions %v", q.Initial)
				}
				return
			}
		}
		t.Error("ServiceEntries were not asked for again")
	})
}

// A stream that breaks in the middle leaves what there is, kind by kind.
func TestDropMidResponse(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, _ *client.Options) {
		s.Set("ServiceEntry", se("pay", "10.1.0.1"))
		s.Misbehave(func(f *mcptest.Faults) { f.DropAfter = 3 })
	}, func(t *testing.T, s *stage) {
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.replaces != 0 || s.status.Err == "" {
			t.Errorf("%d Replaces, status %+v", s.replaces, s.status)
		}
		s.server.Misbehave(func(f *mcptest.Faults) { f.DropAfter = 0 })
		s.host("pay.example.com", "10.1.0.1")
	})
}

// A server that accepts and closes is tried more and more slowly.
func TestAcceptThenClose(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, _ *client.Options) {
		s.Misbehave(func(f *mcptest.Faults) { f.Close = true })
	}, func(t *testing.T, s *stage) {
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		streams := map[int]bool{}
		for _, r := range s.server.Requests() {
			streams[r.Stream] = true
		}
		if n := len(streams); n < 10 || n > 25 {
			t.Errorf("%d streams in 10 minutes, want about 20", n)
		}
	})
}

// A refused object keeps its last good version, the rest is used, and the server is told why.
func TestIncident76RefusedItem(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, _ *client.Options) {
		s.Set("VirtualService", vs("pay", "pay.example.com"))
	}, func(t *testing.T, s *stage) {
		s.config("VirtualService", "shop/pay")
		bad := vs("pay", "pay.example.com")
		bad.Body, _ = anypb.New(&networking.VirtualService{Hosts: []string{"pay example com"}})
		s.server.Set("VirtualService", bad, vs("mail", "mail.example.com"))
		s.config("VirtualService", "shop/mail")
		s.problem("VirtualService/shop/pay", "last good version stays")
		s.server.Await(t, "a NACK", func(rs []mcptest.Request) bool {
			last := rs[len(rs)-1]
			return last.TypeURL == vsURL && strings.Contains(last.Refusal, "shop/pay: ") && !strings.Contains(last.Refusal, "mail")
		})
		accepted := ""
		for _, r := range s.server.Requests() {
			if r.TypeURL != vsURL || r.Nonce == "" || !s.full {
				continue
			}
			if r.Refusal != "" && (r.Version != accepted || accepted == "") {
				t.Errorf("a NACK has the version %q, accepted was %q", r.Version, accepted)
			}
			accepted = r.Version
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		row := s.object("VirtualService", "shop/pay")
		if !row.Refused || row.Spec.(*networking.VirtualService).Hosts[0] != "pay.example.com" {
			t.Errorf("row %+v", row)
		}
	})
}

// What was refused is sent again at once, for ever: the answers come more and more slowly.
func TestIncident76NACKLoop(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, _ *client.Options) {
		s.Set("VirtualService", vs("pay", "pay example com"))
		s.Misbehave(func(f *mcptest.Faults) { f.Again = true })
	}, func(t *testing.T, s *stage) {
		s.state(model.StateLive)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := len(s.refusals()); n < 8 || n > 30 {
			t.Errorf("%d NACKs in 10 minutes, want about 20", n)
		}
		s.server.Set("VirtualService", vs("pay", "pay.example.com"))
		s.await("put right", func() bool { return !s.object("VirtualService", "shop/pay").Refused })
	})
}

// Envelopes and names that can't be read cost nobody else anything; while a full list has one, nothing is taken for deleted.
func TestBadEnvelopes(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, _ *client.Options) {
		s.Set("ServiceEntry", se("pay", "10.1.0.1"), se("mail", "10.1.0.2"))
	}, func(t *testing.T, s *stage) {
		s.state(model.StateLive)
		odd, _ := mcp.Encode(mcp.Resource{Namespace: "a", Name: "b/c"})
		wrong, _ := mcp.Encode(mcp.Resource{Namespace: "shop", Name: "web.example.com", Body: &anypb.Any{TypeUrl: "type.googleapis.com/istio.networking.v1alpha3.Gateway"}})
		s.server.Misbehave(func(f *mcptest.Faults) {
			f.Raw = map[string][]mcptest.Raw{"ServiceEntry": {
				{Body: &anypb.Any{TypeUrl: "type.googleapis.com/istio.mcp.v1alpha1.Resource", Value: []byte{0xff}}},
				{Body: odd}, {Body: wrong}, {Body: nil},
			}}
		})
		s.server.Delete("ServiceEntry", "shop/mail.example.com")
		s.server.Set("ServiceEntry", se("new", "10.1.0.3"))
		s.host("new.example.com", "10.1.0.3")
		s.problem("ServiceEntry", "is not an istio.mcp.v1alpha1.Resource")
		s.problem("ServiceEntry/shop/web.example.com", `not a istio.networking.v1alpha3.ServiceEntry`)
		s.host("pay.example.com", "10.1.0.1")
		if s.full {
			s.host("mail.example.com", "10.1.0.2")
		}
		s.server.Await(t, "a NACK that tells all", func(rs []mcptest.Request) bool {
			last := rs[len(rs)-1].Refusal
			return strings.Contains(last, "is not an istio.mcp.v1alpha1.Resource") && strings.Contains(last, "shop/web.example.com")
		})
		s.server.Misbehave(func(f *mcptest.Faults) { f.Raw = nil })
		s.server.Push("ServiceEntry")
		s.noHost("mail.example.com")
	})
}

// A server that knows a kind under an old version only, and one that learns the new one and forgets the old.
func TestAliasesOfVersions(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, _ *client.Options) {
		s.Set("ServiceEntry", se("pay", "10.1.0.1"))
		s.Misbehave(func(f *mcptest.Faults) { f.Unknown = map[string]bool{seURL: true, seBeta: true} })
	}, func(t *testing.T, s *stage) {
		s.host("pay.example.com", "10.1.0.1")
		for _, unknown := range []map[string]bool{{seAlpha: true, seBeta: true}, {seURL: true, seAlpha: true}} {
			s.server.Down()
			s.server.Misbehave(func(f *mcptest.Faults) { f.Unknown = unknown })
			s.state(model.StateStale)
			s.server.Up()
			s.state(model.StateLive)
			s.host("pay.example.com", "10.1.0.1")
		}
		if s.puts != 0 {
			t.Errorf("%d rows were put, though nothing has changed", s.puts)
		}
		s.server.Delete("ServiceEntry", "shop/pay.example.com")
		s.noHost("pay.example.com")
	})
}

// A kind that becomes empty under its newest version may still be there under an older one: the server was changed for one that
// knows no other, and that could not be told at first.
func TestVersionThatBecomesEmpty(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, _ *client.Options) {
		s.Set("ServiceEntry", se("pay", "10.1.0.1"), se("mail", "10.1.0.2"))
	}, func(t *testing.T, s *stage) {
		s.state(model.StateLive)
		s.server.Down()
		s.state(model.StateStale)
		s.server.Misbehave(func(f *mcptest.Faults) {
			f.Unknown = map[string]bool{seURL: true, seBeta: true}
			f.Raw = map[string][]mcptest.Raw{"ServiceEntry": {{Body: &anypb.Any{TypeUrl: "x"}}}}
		})
		s.server.Up()
		s.state(model.StateLive)
		s.server.Misbehave(func(f *mcptest.Faults) { f.Raw = nil })
		s.server.Push("ServiceEntry")
		synctest.Wait()
		s.server.Delete("ServiceEntry", "shop/mail.example.com")
		s.noHost("mail.example.com")
		s.host("pay.example.com", "10.1.0.1")
		if s.puts != 2 { // the two rows of mail
			t.Errorf("%d rows were put, want the two that have gone", s.puts)
		}
	})
}

// What comes again as it was is nothing new, also if its maps are encoded in another order.
func TestSameContentIsNotPut(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, _ *client.Options) {
		r := se("pay", "10.1.0.1")
		r.Labels = map[string]string{"a": "1", "b": "2", "c": "3"}
		s.Set("ServiceEntry", r)
	}, func(t *testing.T, s *stage) {
		s.state(model.StateLive)
		for range 10 {
			s.server.Push("ServiceEntry")
			r := se("pay", "10.1.0.1")
			r.Labels = map[string]string{"c": "3", "b": "2", "a": "1"}
			s.server.Set("ServiceEntry", r)
			synctest.Wait()
		}
		if s.puts != 0 {
			t.Errorf("%d rows were put", s.puts)
		}
	})
}

// Objects that went through this hub, of other revisions, and made of Services are left out.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, o *client.Options) {
		o.Hub, o.Revision = "here", "canary"
		mark := func(r mcp.Resource, labels, annotations map[string]string) mcp.Resource {
			r.Labels, r.Annotations = labels, annotations
			return r
		}
		synthetic := entry("shop", "synthetic-cart", 80)
		synthetic.Body, _ = anypb.New(&networking.ServiceEntry{Hosts: []string{"cart.shop.svc.cluster.local"}, Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}}})
		s.Set("ServiceEntry",
			mark(se("looped"), nil, map[string]string{mcp.ViaAnnotation: "there, here"}),
			mark(se("foreign", "10.1.0.1"), nil, map[string]string{mcp.ViaAnnotation: "there"}),
			mark(se("stable"), map[string]string{"istio.io/rev": "default"}, nil),
			mark(se("canary", "10.1.0.2"), map[string]string{"istio.io/rev": "canary"}, nil),
			synthetic, entry("shop", "synthetic-own", 80, "10.1.0.3"))
	}, func(t *testing.T, s *stage) {
		s.host("foreign.example.com", "10.1.0.1")
		s.host("canary.example.com", "10.1.0.2")
		s.host("synthetic-own", "10.1.0.3")
		for _, host := range []string{"looped.example.com", "stable.example.com", "cart.shop.svc.cluster.local"} {
			s.noHost(host)
		}
		r := se("canary", "10.1.0.2")
		r.Labels = map[string]string{"istio.io/rev": "default"}
		s.server.Set("ServiceEntry", r) // it moves to another revision
		s.noHost("canary.example.com")
	})
}

func TestObjectsAreBounded(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, o *client.Options) {
		o.Limits.Objects = 2
		s.Set("ServiceEntry", se("a", "10.1.0.1"), se("b", "10.1.0.2"), se("c", "10.1.0.3"))
	}, func(t *testing.T, s *stage) {
		s.host("a.example.com", "10.1.0.1")
		s.host("b.example.com", "10.1.0.2")
		s.problem("ServiceEntry/shop/c.example.com", "more than 2 objects")
		s.noHost("c.example.com")
	})
}

func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, o *client.Options) {
		o.Limits.MessageBytes = 1 << 10
		for i := range 20 {
			s.Set("ServiceEntry", se(fmt.Sprint("s", i), "10.1.0.1"))
		}
	}, func(t *testing.T, s *stage) {
		s.await("it is told", func() bool { return strings.Contains(s.status.Err, "larger than max") })
	})
}

// The next address is used when the first can't be; after that the first is tried first.
func TestFailover(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, o *client.Options) {
		second := mcptest.Start(t)
		second.Set("ServiceEntry", se("pay", "10.1.0.2"))
		s.Set("ServiceEntry", se("pay", "10.1.0.1"))
		o.Addresses = []string{"a:1", "b:2"}
		o.Dial = dialer{"a:1": s, "b:2": second}.dial
	}, func(t *testing.T, s *stage) {
		s.host("pay.example.com", "10.1.0.1")
		s.server.Down()
		s.host("pay.example.com", "10.1.0.2")
		s.state(model.StateLive)
	})
}

// Of several addresses, one that says nothing at all is left.
func TestSilentServerIsLeft(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, o *client.Options) {
		second := mcptest.Start(t)
		second.Set("ServiceEntry", se("pay", "10.1.0.2"))
		s.Misbehave(func(f *mcptest.Faults) { f.Paused = true })
		o.Addresses = []string{"a:1", "b:2"}
		o.Dial = dialer{"a:1": s, "b:2": second}.dial
	}, func(t *testing.T, s *stage) {
		time.Sleep(31 * time.Second)
		s.host("pay.example.com", "10.1.0.2")
	})
}

// Mesh-wide settings: the last good ones stay.
func TestSettings(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, _ *client.Options) {
		s.SetSettings(&meshconfig.MeshConfig{TrustDomain: "up.test"})
	}, func(t *testing.T, s *stage) {
		trust := func(want string) {
			t.Helper()
			s.await("trust domain "+want, func() bool {
				c := s.object("MeshConfig", "/mesh")
				return c != nil && c.Spec.(*meshconfig.MeshConfig).TrustDomain == want
			})
		}
		trust("up.test")
		s.server.SetSettings(&meshconfig.MeshConfig{TrustDomain: "new.test"})
		trust("new.test")
		s.server.SetSettings(&networking.Gateway{})
		s.problem("MeshConfig", "not a MeshConfig")
		trust("new.test")
	})
}

// The hub's own kinds have no message: their spec is a structure.
func TestOwnKinds(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, _ *client.Options) {
		spec, err := structpb.NewStruct(map[string]any{
			"host": "pay.example.com", "ports": []any{map[string]any{"name": "http", "number": 80, "protocol": "HTTP"}},
			"sources": []any{map[string]any{"host": "pay.shop.svc.cluster.local"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Set("FederatedService", resource("shop", "pay", spec))
	}, func(t *testing.T, s *stage) {
		s.config("FederatedService", "shop/pay")
		broken, _ := structpb.NewStruct(map[string]any{"host": 3})
		s.server.Set("FederatedService", resource("shop", "pay", broken))
		s.problem("FederatedService/shop/pay", "last good version stays")
	})
}

// A server that denies is stale or syncing, with its reason, and is tried again.
func TestDenied(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, _ *client.Options) {
		s.Set("ServiceEntry", se("pay", "10.1.0.1"))
		s.Misbehave(func(f *mcptest.Faults) { f.Deny = status.Error(codes.Unauthenticated, "who are you") })
	}, func(t *testing.T, s *stage) {
		s.await("it is told", func() bool { return strings.Contains(s.status.Err, "who are you (Unauthenticated)") })
		s.server.Misbehave(func(f *mcptest.Faults) { f.Deny = nil })
		s.host("pay.example.com", "10.1.0.1")
	})
}

// How it presents itself, and that ACKs have the nonce of the response.
func TestRequests(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, o *client.Options) {
		o.Node = client.Node{Pod: "hub-1", Namespace: "mesh", IP: "10.0.0.1"}
		s.Set("ServiceEntry", se("pay", "10.1.0.1"))
	}, func(t *testing.T, s *stage) {
		s.state(model.StateLive)
		synctest.Wait()
		first, acks := map[string]bool{}, 0
		for _, r := range s.server.Requests() {
			if want := "sidecar~10.0.0.1~hub-1.mesh~mesh.svc.cluster.local"; r.Node != want {
				t.Errorf("node %q, want %q", r.Node, want)
			}
			switch {
			case r.Nonce == "" && first[r.TypeURL]:
				t.Errorf("%s was asked for twice", r.TypeURL)
			case r.Nonce == "":
				first[r.TypeURL] = true
			default:
				acks++
			}
		}
		if len(first) < allTypes || acks != len(first) {
			t.Errorf("%d types were asked for, %d responses accepted", len(first), acks)
		}
		if !first[seURL] || first[seAlpha] {
			t.Errorf("asked for %v", first)
		}
	})
}
