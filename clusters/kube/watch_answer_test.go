package kube_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// What is no list of the kind is not an empty one, whatever its status: what is known stays, and it is said
// that contact is lost.
func TestIncident09AnyAnswerIsNoEmptyList(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ resource, text string }{
		"empty object":     {"services", `{}`},
		"health":           {"services", `{"status":"ok"}`},
		"success":          {"services", `{"kind":"Status","apiVersion":"v1","status":"Success"}`},
		"other kind":       {"services", `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"900"},"items":[]}`},
		"other version":    {"services", `{"kind":"ServiceList","apiVersion":"v2","metadata":{"resourceVersion":"900"},"items":[]}`},
		"items only":       {"services", `{"items":[]}`},
		"table":            {"services", `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"900"},"rows":[]}`},
		"no revision":      {"services", `{"kind":"ServiceList","apiVersion":"v1","metadata":{},"items":[]}`},
		"two kinds":        {"services", `{"kind":"PodList","kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"900"}}`},
		"a list":           {"services", `[]`},
		"a page":           {"services", `<html>maintenance</html>`},
		"nothing":          {"services", ``},
		"unfinished":       {"services", `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"900"},"items":[]`},
		"protobuf":         {"services", "k8s\x00"},
		"broken protobuf":  {"services", "k8s\x00\x0a\xff"},
		"custom":           {"workloadentries.networking.istio.io", `{}`},
		"custom kind":      {"workloadentries.networking.istio.io", `{"kind":"ServiceEntryList","apiVersion":"networking.istio.io/v1","metadata":{"resourceVersion":"9"},"items":[]}`},
		"custom, revision": {"workloadentries.networking.istio.io", `{"kind":"WorkloadEntryList","apiVersion":"networking.istio.io/v1","items":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAPIServer(t)
			s.define(istio, entries)
			s.apply(web)
			s.apply(entry)
			w := watch(t, kube.New(options(s)))
			w.awaitRows(append(webRows, entryRow)...)
			s.answer("list "+c.resource, says(c.text))
			s.expire()
			if c.resource == "services" {
				w.awaitErr("what", "gives as services can't be read")
				w.awaitState(model.StateStale)
			} else {
				w.awaitProblem(c.resource, "can't be read", "what was read before stays")
			}
			w.awaitRows(append(webRows, entryRow)...)
			if w.deleted() {
				t.Error("rows were deleted meanwhile")
			}
			s.answer("list "+c.resource, nil)
			w.awaitState(model.StateLive)
			w.awaitNoProblem()
		})
	}
}

// Nor is it one at the first time.
func TestAnyAnswerIsNoFirstSync(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	s.answer("list services", says(`{}`))
	w := watch(t, kube.New(options(s)))
	w.awaitErr("gives as services can't be read")
	w.mu.Lock()
	replaces := w.replaces
	w.mu.Unlock()
	if replaces > 0 {
		t.Error("it has synced without services")
	}
	s.answer("list services", nil)
	w.awaitRows(webRows...)
}

// What does not tell of kinds is no word of kinds that are gone.
func TestAnyAnswerIsNoAbsenceOfAKind(t *testing.T) {
	t.Parallel()
	for what, texts := range map[string][]string{
		"get apis": {`{}`, `{"kind":"Status","apiVersion":"v1","status":"Success"}`, `{"kind":"APIGroupList","apiVersion":"v1"}`,
			`{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`, `{"kind":"APIVersions","versions":["v1"]}`},
		"get apis/" + istio: {`{}`, `{"kind":"Status","apiVersion":"v1","status":"Success"}`, `{"kind":"APIResourceList","apiVersion":"v1"}`,
			`{"kind":"APIResourceList","groupVersion":"apps/v1","resources":[]}`},
	} {
		for _, text := range texts {
			t.Run(what+" "+text, func(t *testing.T) {
				t.Parallel()
				s := newAPIServer(t)
				s.serve(istio, entries) // and no definition says that it exists
				s.apply(entry)
				w := watch(t, kube.New(options(s)))
				w.awaitRows(entryRow)
				s.answer(what, says(text))
				looks := func() int { return s.count(func(r request) bool { return "get "+r.resource == what }) }
				before := looks()
				w.until("ten looks", func() bool { return looks() >= before+10 })
				w.awaitRows(entryRow)
				s.answer(what, nil)
				s.apply(strings.ReplaceAll(entry, "vm", "vm2"))
				w.awaitRows(entryRow, entryRow+"2")
				w.awaitNoProblem()
				if w.deleted() {
					t.Error("rows were deleted meanwhile")
				}
			})
		}
	}
}

// A kind is not taken for absent at the first look either.
func TestAnyAnswerIsNoAbsenceAtFirst(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.define(istio, entries)
	s.apply(entry)
	s.answer("get apis", says(`{}`))
	w := watch(t, kube.New(options(s)))
	w.until("three looks", func() bool { return s.count(func(r request) bool { return r.resource == "apis" }) >= 3 })
	w.mu.Lock()
	replaces := w.replaces
	w.mu.Unlock()
	if replaces > 0 {
		t.Error("it has synced without knowing what is served")
	}
	s.answer("get apis", nil)
	w.awaitRows(entryRow)
}

// An event that has no end is cut, and counted; the objects are listed again, and what was known stays.
func TestEventWithoutEnd(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	counts := prometheus.NewRegistry()
	o := options(s)
	o.Metrics = kube.NewMetrics(counts)
	w := watch(t, kube.New(o))
	w.awaitRows(webRows...)
	var sent atomic.Int64
	s.answer("watch services", func(w http.ResponseWriter, _ *http.Request) {
		_, err := io.WriteString(w, `{"type":"ADDED","object":{"kind":"Service","apiVersion":"v1","metadata":{"name":"`)
		for part := strings.Repeat("x", 1<<20); err == nil; _, err = io.WriteString(w, part) {
			if sent.Add(1) > 1000 {
				t.Error("1000 MiB of an event are read")
				return
			}
		}
	})
	lists := s.lists("services")
	w.until("three lists", func() bool { return s.lists("services") >= lists+3 })
	if n := gather(t, counts)[`isthmus_kube_failed_requests_total{cluster="c1",failure="server",type="Service"}`]; n < 2 {
		t.Errorf("%v failures counted", n)
	}
	s.answer("watch services", nil)
	s.apply(apiService)
	w.awaitRows(append([]string{"service Service/shop/api"}, webRows...)...)
	w.awaitState(model.StateLive)
	if w.deleted() {
		t.Error("rows were deleted meanwhile")
	}
}

// An object with a name that Kubernetes does not allow costs only itself, and that is said.
func TestOddNamesCostOnlyThemselves(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	for _, name := range []string{"*", "a/b", "..", "UP", "nl\n"} {
		s.set(object{"kind": "Service", "metadata": object{"name": name, "namespace": "shop"}, "spec": object{"clusterIP": "10.0.0.9", "ports": []object{{"port": 80}}}})
	}
	w := watch(t, kube.New(options(s)))
	w.awaitRows(webRows...)
	for _, item := range []string{`"*"`, `"a/b"`, `".."`, `"UP"`, `"nl\n"`} {
		w.awaitProblem(`Service/"shop"/`+item, "its name is not one that Kubernetes allows")
	}
	s.remove("services", "shop/*")
	w.await("one problem less", func() bool { return len(w.status.Problems) == 4 })
	s.set(object{"kind": "Service", "metadata": object{"name": "*", "namespace": "shop"}, "spec": object{"clusterIP": "10.0.0.9"}})
	w.awaitProblem(`Service/"shop"/"*"`, "left out")
	w.awaitRows(webRows...)
	w.awaitState(model.StateLive)
}
