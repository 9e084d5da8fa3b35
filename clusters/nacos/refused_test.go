package nacos

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// bad is a scope that a server does not list.
var bad = scope{"other", "BAD"}

// withBad reads bad, and the usual group.
func withBad(s *api.RegistrySpec) {
	s.Nacos.Namespaces, s.Nacos.Groups = []string{"public", bad.namespace}, []string{"DEFAULT_GROUP", bad.group}
}

// about gives a code to one class of requests about bad, or about everything if all.
func about(class string, code int, all bool) func(string, request) int {
	return func(c string, n request) int {
		if c == class && (all || scope{n.Namespace, n.Group} == bad) {
			return code
		}
		return 0
	}
}

// A group that the server does not list, for whatever reason, holds up no other: it is named, and tried again.
func TestRefusedGroup(t *testing.T) {
	t.Parallel()
	for _, code := range []int{errorParameter, errorNoRight, errorNotFound, 500} {
		for _, fuzzy := range []bool{false, true} {
			t.Run(fmt.Sprint(code, " fuzzy=", fuzzy), func(t *testing.T) {
				t.Parallel()
				f := newFake(t)
				f.set(public("a"), []instance{host("10.0.0.1:80")})
				f.set(serviceName{bad.namespace, bad.group, "b"}, []instance{host("10.0.0.2:80")})
				f.faults.answer, f.faults.fuzzy = about(classList, code, false), fuzzy
				out := start(t, Options{Spec: f.spec(withBad)})
				out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy")
				out.await("live, and the group is named with what the server says", func() bool {
					p := out.status.Problems
					return out.status.State == model.StateLive && out.status.Err == "" &&
						len(p) == 1 && p[0].Item == bad.String() && strings.HasSuffix(p[0].Reason, fmt.Sprintf("the server says %d: no", code))
				})
				f.set(public("c"), []instance{host("10.0.0.3:80")})
				out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy", "DEFAULT_GROUP@@c: 10.0.0.3:80 healthy")
				f.change(func(x *faults) { x.answer = nil })
				out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy", "DEFAULT_GROUP@@c: 10.0.0.3:80 healthy", "other/BAD@@b: 10.0.0.2:80 healthy")
				out.await("no problem is left", func() bool { return len(out.status.Problems) == 0 })
			})
		}
	}
}

// If nothing can be listed the registry is not live, and says nothing of services: that would be that there are none.
func TestAllGroupsRefused(t *testing.T) {
	t.Parallel()
	for _, code := range []int{errorParameter, 500} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.set(public("a"), []instance{host("10.0.0.1:80")})
			f.faults.answer = about(classList, code, true)
			out := start(t, Options{Spec: f.spec(withBad)})
			refused := func(state model.State) func() bool {
				return func() bool {
					return out.status.State == state && len(out.status.Problems) == 4 &&
						strings.HasPrefix(out.status.Err, "no services can be listed: ") && strings.HasSuffix(out.status.Err, fmt.Sprintf("%d: no", code))
				}
			}
			out.await("it is refused", refused(model.StateSyncing))
			f.await("it is tried again", func() bool { return f.calls[classList] > 8*unreadTries })
			out.await("nothing is said of services", func() bool { return out.replaced == 0 })
			f.change(func(x *faults) { x.answer = nil })
			out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy")
			out.await("it is live", func() bool {
				return out.status.State == model.StateLive && out.status.Err == "" && len(out.status.Problems) == 0
			})
			f.change(func(x *faults) { x.answer = about(classList, code, true) })
			out.await("it is stale", refused(model.StateStale))
			out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy")
			f.await("over one connection", func() bool { return f.calls[classServerCheck] == 1 })
		})
	}
}

// A group whose list gets no answer does not take the session from the others.
func TestSilentGroup(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.set(public("a"), []instance{host("10.0.0.1:80")})
	f.faults.fuzzy = true // the other lists are asked for once, and then no request is answered for a long time
	never := make(chan struct{})
	f.faults.block = func(class string, n request) <-chan struct{} {
		if class == classList && (scope{n.Namespace, n.Group} == bad) {
			return never
		}
		return nil
	}
	out := start(t, Options{Spec: f.spec(withBad)}, func(q *timing) { q.request, q.beat = 50*time.Millisecond, patience })
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy")
	out.awaitState(model.StateLive)
	out.awaitProblem(bad.String(), "deadline")
	f.await("it is tried again", func() bool { return f.calls[classList] > 3+unreadTries+2*maxTimeouts })
	f.await("over one connection", func() bool { return f.calls[classServerCheck] == 1 })
	out.await("it has been live all the time", func() bool { return slices.Equal(out.states, []model.State{model.StateSyncing, model.StateLive}) })
}

// A service that the server lists and does not take the name of holds up no other.
func TestRefusedService(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.set(public("a"), []instance{host("10.0.0.1:80")})
	f.set(serviceName{bad.namespace, bad.group, "支付"}, []instance{host("10.0.0.2:80")})
	f.faults.answer = about(classSubscribe, errorParameter, false)
	out := start(t, Options{Spec: f.spec(withBad)})
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy")
	out.awaitProblem("other/BAD@@支付", "it can't be read: SubscribeService: the server says 400: no")
	f.change(func(x *faults) { x.answer = nil })
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy", "other/BAD@@支付: 10.0.0.2:80 healthy")
}

// What will be refused again is asked seldom, and what may be granted, or may pass, soon.
func TestPauses(t *testing.T) {
	t.Parallel()
	w, _ := bareWatcher()
	w.timing, w.backoff = defaultTiming, func(n int) time.Duration { return time.Duration(n) }
	refusal := func(code int) error { return fmt.Errorf("x: %w", &serverError{class: classList, code: code}) }
	for _, err := range []error{refusal(errorParameter), refusal(errorNotFound), fmt.Errorf("%w: 7", errTooLarge)} {
		if got := w.pause(3, err); got < defaultTiming.refused {
			t.Errorf("%v: again after %s", err, got)
		}
	}
	for _, err := range []error{refusal(errorNoRight), refusal(500), errors.New("x"), errPartial} {
		if got := w.pause(3, err); got != 3 {
			t.Errorf("%v: again after %s", err, got)
		}
	}
}

// What a real server says of names that it does not take. That which it takes of the others is served.
func TestRealRefusedGroup(t *testing.T) {
	at := sharedNacos(t)
	t.Parallel()
	namespace := newNamespace(t, at)
	writer := newRegistrant(t, at, "")
	writer.set(serviceName{namespace, defaultGroup, "a"}, []instance{host("10.0.0.1:80")})
	spec := realSpec(at, namespace, "no/namespace")
	spec.Nacos.Groups = []string{defaultGroup, "no group"}
	out := start(t, Options{Spec: spec})
	out.awaitServices(namespace + "/DEFAULT_GROUP@@a: 10.0.0.1:80 healthy")
	out.awaitState(model.StateLive)
	out.awaitProblem(scope{namespace, "no group"}.String(), "Param 'group' is illegal")
	out.awaitProblem(scope{"no/namespace", defaultGroup}.String(), "Param 'namespaceId/tenant' is illegal")

	spec.Nacos.Namespaces, spec.Nacos.Groups = []string{namespace}, []string{"no group"}
	none := start(t, Options{Name: "none", Spec: spec})
	none.await("it says so", func() bool {
		return none.status.State == model.StateSyncing && strings.HasPrefix(none.status.Err, "no services can be listed: ") && none.replaced == 0
	})
}

// Validation knows which names a server takes: it warns of what the server refuses, and of nothing else.
func TestRealNames(t *testing.T) {
	at := sharedNacos(t)
	t.Parallel()
	s := newRegistrant(t, at, "").s
	for _, c := range []string{"a", "A.b-c_d:9", "a b", "a/b", "a@b", "a%b", "a>>b", "a*", "支付", "^", "a,b", strings.Repeat("g", 64), strings.Repeat("g", 65), strings.Repeat("g", 128), strings.Repeat("g", 129)} {
		for field, sc := range map[string]scope{"nacos.groups[0]": {"public", c}, "nacos.namespaces[0]": {c, "G"}} {
			_, err := s.list(s.ctx, sc)
			var refusal *serverError
			if err != nil && (!errors.As(err, &refusal) || refusal.code != errorParameter) {
				t.Fatalf("%+v: %v", sc, err)
			}
			spec := api.RegistrySpec{Provider: api.Nacos, Addresses: []string{"a:1"}, Nacos: &api.NacosSpec{Namespaces: []string{sc.namespace}, Groups: []string{sc.group}}}
			warned := slices.ContainsFunc(spec.Validate(), func(f api.Fault) bool { return f.Field == field })
			if warned != (err != nil) {
				t.Errorf("%s %.20q: warned %v, and the server says %v", field, c, warned, err)
			}
		}
	}
}
