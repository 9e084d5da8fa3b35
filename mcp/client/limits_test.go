package client_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/mcp"
	"github.com/isthmus-mesh/isthmus/mcp/client"
	"github.com/isthmus-mesh/isthmus/mcp/mcptest"
)

// A server that dies each time once it has said everything is read again more and more slowly, and not twice in a second.
func TestServerThatDiesIsReadMoreSlowly(t *testing.T) {
	t.Parallel()
	play(t, shop, func(t *testing.T, s *stage) {
		s.state(model.StateLive)
		first := 0
		for _, r := range s.server.Requests() {
			if r.Nonce == "" {
				first++
			}
		}
		s.server.Misbehave(func(f *mcptest.Faults) { f.DropAfter = first })
		s.server.Drop()
		synctest.Wait()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		streams := map[int]bool{}
		for _, r := range s.server.Requests() {
			streams[r.Stream] = true
		}
		if n := len(streams); n < 10 || n > 25 {
			t.Errorf("%d streams in 10 minutes, want about 20", n)
		}
		s.host("pay.example.com", "10.1.0.1")
		s.server.Misbehave(func(f *mcptest.Faults) { f.DropAfter = 0 })
		time.Sleep(2 * time.Minute)
		s.state(model.StateLive)
		began := time.Now()
		s.server.Drop() // after it has been well for some time it is read again at once
		s.state(model.StateStale)
		s.state(model.StateLive)
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("%v until it was read again", d)
		}
	})
}

// A kind that is there under an older version only, which the server does not answer for after a restart: what was known stays.
func TestOlderVersionIsNotAnswered(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, o *client.Options) {
		shop(t, s, o)
		s.Misbehave(func(f *mcptest.Faults) { f.Unknown = map[string]bool{seURL: true} })
	}, func(t *testing.T, s *stage) {
		s.state(model.StateLive)
		s.server.Down()
		s.server.Misbehave(func(f *mcptest.Faults) { f.Mute = map[string]bool{seBeta: true} })
		s.server.Up()
		s.problem("ServiceEntry", "the server does not answer for this kind: what was known of it stays")
		s.await("it is told first", func() bool { return len(s.status.Problems) > 0 && s.status.Problems[0].Broad })
		s.state(model.StateLive)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		s.host("pay.example.com", "10.1.0.1")
		s.server.Delete("ServiceEntry", "shop/pay.example.com")
		s.server.Misbehave(func(f *mcptest.Faults) { f.Mute = nil })
		s.noHost("pay.example.com")
		s.host("web.example.com", "10.1.0.3")
		s.noProblems()
	})
}

// With so many objects that a server would not take their names in one request, all is asked for anew after a reconnect, and what was
// deleted meanwhile goes.
func TestTooMuchToSay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := mcptest.Start(t)
		s.HashVersions()
		o := client.Options{Name: "up", Addresses: []string{"a:1"}, Dial: s.Dial, Limits: client.Limits{RequestBytes: 100}}
		shop(t, s, &o)
		r := run(t, o)
		r.state(model.StateLive)
		s.Down()
		s.Delete("ServiceEntry", "shop/mail.example.com")
		s.Up()
		r.noHost("mail.example.com")
		r.host("pay.example.com", "10.1.0.1")
		r.state(model.StateLive)
		for _, q := range s.Requests() {
			if q.Stream == 2 && q.TypeURL == seURL && q.Nonce == "" && len(q.Initial) > 0 {
				t.Errorf("initial_resource_versions %v", q.Initial)
			}
		}
		if r.puts != 2 {
			t.Errorf("%d rows were put, want the two that have gone", r.puts)
		}
		s.Set("ServiceEntry", se("new", "10.1.0.4")) // what comes later is not all there is
		r.host("new.example.com", "10.1.0.4")
		r.host("pay.example.com", "10.1.0.1")
		r.stop()
	})
}

// What a server says is bounded, and does not steer the terminal of who reads it.
func TestWhatServersSayIsHarmless(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, o *client.Options) {
		o.Log = slog.New(slog.DiscardHandler)
		s.Set("ServiceEntry", se("pay", "10.1.0.1"))
		odd := se("odd", "10.1.0.1")
		odd.Name = "\x1b[2Jodd\x00" + strings.Repeat("x", 10_000)
		body, err := mcp.Encode(odd)
		if err != nil {
			t.Fatal(err)
		}
		s.Misbehave(func(f *mcptest.Faults) {
			f.Raw = map[string][]mcptest.Raw{"ServiceEntry": {{Name: "shop/" + odd.Name, Body: body}}}
		})
	}, func(t *testing.T, s *stage) {
		check := func(text string) {
			t.Helper()
			if len(text) > 2000 || strings.ContainsAny(text, "\x1b\x00\n") {
				t.Errorf("%d bytes: %.200q", len(text), text)
			}
		}
		s.host("pay.example.com", "10.1.0.1")
		s.problem("ServiceEntry/shop/\uFFFD[2Jodd\uFFFDxxx", "metadata.name")
		s.server.Misbehave(func(f *mcptest.Faults) {
			f.Deny = status.Error(codes.PermissionDenied, "\x1b]0;owned\x07\x00"+strings.Repeat("y", 4000))
		})
		s.server.Drop()
		s.await("its words", func() bool { return strings.Contains(s.status.Err, "]0;owned\uFFFD") })
		check(s.status.Err)
		for _, p := range s.status.Problems {
			check(p.Item)
			check(p.Reason)
		}
	})
}

// A server that takes the stream and says nothing is told as such, though there is no other to try.
func TestSilentServerIsTold(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *mcptest.Server, o *client.Options) {
		shop(t, s, o)
		s.Misbehave(func(f *mcptest.Faults) { f.Paused = true })
	}, func(t *testing.T, s *stage) {
		s.await("it is told", func() bool {
			return s.status.State == model.StateSyncing && strings.Contains(s.status.Err, "a:1: it does not answer")
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		s.server.Misbehave(func(f *mcptest.Faults) { f.Paused = false })
		s.state(model.StateLive)
		if n := s.server.Streams(); n != 1 || s.status.Err != "" {
			t.Errorf("%d streams, %+v", n, s.status)
		}
	})
}
