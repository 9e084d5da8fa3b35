package client_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/holdback"
	"github.com/isthmus-mesh/isthmus/mcp/client"
	"github.com/isthmus-mesh/isthmus/mcp/mcptest"
)

// guard is the policy for what becomes empty, as servers of configuration have it by default.
func guard(r model.Registry) model.Registry {
	return holdback.Wrap(r, holdback.Options{Policy: *api.RegistrySpec{}.Effective("istio-system").Empty})
}

// shop has three services with routes.
func shop(t *testing.T, s *mcptest.Server, _ *client.Options) {
	t.Helper()
	s.Set("ServiceEntry", se("pay", "10.1.0.1"), se("mail", "10.1.0.2"), se("web", "10.1.0.3"))
	s.Set("VirtualService", vs("pay", "pay.example.com"), vs("mail", "mail.example.com"), vs("web", "web.example.com"))
}

func (s *stage) noProblems() {
	s.t.Helper()
	s.await("no problems", func() bool { return len(s.status.Problems) == 0 })
}

// Incident 76: a server restarts before it has read its own sources. Nothing goes, what comes back is not held any more, and what never
// comes back goes in the end.
func TestIncident76ServerRestartsEmpty(t *testing.T) {
	t.Parallel()
	playWrapped(t, guard, shop, func(t *testing.T, s *stage) {
		s.state(model.StateLive)
		s.server.Down()
		time.Sleep(10 * time.Minute)
		s.server.Misbehave(func(f *mcptest.Faults) { f.Empty = true })
		s.server.Up()
		s.problem("ServiceEntry/shop/pay.example.com/pay.example.com", "of its 1 endpoints 0 are left, a short time after contact was lost")
		s.problem("VirtualService/shop/pay", "it is gone, a short time after contact was lost")
		s.state(model.StateLive)
		time.Sleep(2 * time.Minute)
		s.problem("VirtualService/shop/web", "3 of the 3 objects of its kind went together")
		s.server.Delete("VirtualService", "shop/web")
		s.server.Misbehave(func(f *mcptest.Faults) { f.Empty = false }) // it has read its sources now, in which one is not any more
		s.server.Push("ServiceEntry")
		s.server.Push("VirtualService")
		s.await("one that is held", func() bool {
			return len(s.status.Problems) == 1 && s.status.Problems[0].Item == "VirtualService/shop/web"
		})
		s.host("mail.example.com", "10.1.0.2")
		s.config("VirtualService", "shop/web")
		time.Sleep(3 * time.Minute)
		s.noConfig("VirtualService", "shop/web")
		s.config("VirtualService", "shop/pay")
		s.noProblems()
	})
}

// Incident 76: what was deleted while the server was away goes within a minute of its return, and what it says new counts at once.
func TestIncident76DeletedMeanwhile(t *testing.T) {
	t.Parallel()
	playWrapped(t, guard, shop, func(t *testing.T, s *stage) {
		s.state(model.StateLive)
		s.server.Down()
		s.state(model.StateStale)
		s.server.Delete("ServiceEntry", "shop/mail.example.com")
		s.server.Delete("VirtualService", "shop/mail")
		s.server.Set("ServiceEntry", se("new", "10.1.0.4"))
		s.server.Up()
		s.state(model.StateLive)
		s.host("new.example.com", "10.1.0.4")
		s.host("mail.example.com", "10.1.0.2")
		s.problem("VirtualService/shop/mail", "a short time after contact was lost")
		time.Sleep(time.Minute)
		synctest.Wait()
		s.noHost("mail.example.com")
		s.noConfig("VirtualService", "shop/mail")
		s.host("pay.example.com", "10.1.0.1")
		s.noProblems()
	})
}

// What is deleted while the stream lasts goes in seconds, whether the server says so or its list lacks it; if most of a kind goes at once
// it is held, as a server may translate what has restarted empty itself.
func TestDeletedWhileTheStreamLasts(t *testing.T) {
	t.Parallel()
	playWrapped(t, guard, shop, func(t *testing.T, s *stage) {
		s.state(model.StateLive)
		s.server.Delete("ServiceEntry", "shop/mail.example.com")
		s.server.Delete("VirtualService", "shop/mail")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		s.noHost("mail.example.com")
		s.noConfig("VirtualService", "shop/mail")
		s.noProblems()
		s.server.Set("VirtualService", vs("a", "pay.example.com"), vs("b", "pay.example.com"))
		s.config("VirtualService", "shop/b")
		for _, name := range []string{"a", "b", "pay"} {
			s.server.Delete("VirtualService", "shop/"+name)
		}
		time.Sleep(3 * time.Second)
		s.problem("VirtualService/shop/a", "3 of the 4 objects of its kind went together")
		s.config("VirtualService", "shop/a")
		s.host("pay.example.com", "10.1.0.1")
		time.Sleep(5 * time.Minute)
		s.noConfig("VirtualService", "shop/a")
		s.config("VirtualService", "shop/web")
		s.noProblems()
	})
}

// A kind that a server no longer knows, as after an upgrade to one that has it under no version, is held like one that is empty.
func TestKindThatIsUnknownAfterARestart(t *testing.T) {
	t.Parallel()
	playWrapped(t, guard, shop, func(t *testing.T, s *stage) {
		s.state(model.StateLive)
		s.server.Down()
		s.server.Misbehave(func(f *mcptest.Faults) { f.Unknown = map[string]bool{seURL: true, seBeta: true, seAlpha: true} })
		s.server.Up()
		s.problem("ServiceEntry/shop/pay.example.com/pay.example.com", "a short time after contact was lost")
		time.Sleep(2 * time.Minute)
		s.problem("ServiceEntry/shop/pay.example.com/pay.example.com", "3 of the 3 endpoints of all services went together")
		s.host("pay.example.com", "10.1.0.1")
		s.config("VirtualService", "shop/pay")
		if n := len(s.status.Problems); n != 3 {
			t.Errorf("%+v", s.status.Problems)
		}
	})
}
