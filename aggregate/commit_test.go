package aggregate_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
)

// What does not change keeps its pointer and its revision; a new revision of equal content makes no
// version, and the source tells the one that brought the content.
func TestEqualContentKeepsPointers(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		at := func(rev string, ips ...string) *model.Endpoints {
			e := slice(c1, "a", "s", ips...)
			e.Source.Revision = rev
			return e
		}
		svc := service(c1, "a")
		r := registry(c1, svc, at("1", "10.0.0.1", "10.0.0.2"), service(c1, "b"))
		h.Attach(r)
		h.start()
		pc := h.quiet()
		a, b := h.service("a"), h.service("b")
		again := service(c1, "a")
		again.Source.Revision = "9"
		r.Put(keyOf(again), again)
		r.Put(keyOf(svc)+"x", service(c1, "nobody", func(s *model.Service) { s.Namespace = "elsewhere" }))
		r.Delete(model.RowKey{Kind: model.RowService, Key: keyOf(svc) + "x"})
		e := at("2", "10.0.0.1", "10.0.0.2")
		r.Put(keyOf(e), e)
		if now := h.quiet(); now.Version != pc.Version || h.service("a") != a {
			t.Errorf("equal content made version %d after %d", now.Version, pc.Version)
		}
		e = at("3", "10.0.0.1", "10.0.0.3")
		r.Put(keyOf(e), e)
		h.quiet()
		now := h.service("a")
		if now.Shape != a.Shape || h.service("b") != b {
			t.Error("shape or another service has a new pointer")
		}
		eps := now.Port("http")[0].Endpoints
		if eps[0] != a.Port("http")[0].Endpoints[0] || eps[0].Source.Revision != "1" || eps[1].Source.Revision != "3" {
			t.Errorf("sources %v, %v", eps[0].Source, eps[1].Source)
		}
		if last := h.deltas[len(h.deltas)-1]; !cmp.Equal(last.Endpoints, []string{host("a")}) || len(last.Shape) != 0 {
			t.Errorf("delta %+v, want endpoints of a alone", last)
		}
	})
}

// An endpoint that moves to another slice tells its new source (incident 96).
func TestMovedEndpointTellsItsSource(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		from, to := slice(c1, "a", "x", "10.0.0.1"), slice(c1, "a", "y", "10.0.0.1")
		r := registry(c1, service(c1, "a"), from)
		h.Attach(r)
		h.start()
		h.quiet()
		r.Put(keyOf(to), to)
		r.Delete(rowOf(from))
		h.quiet()
		if e := h.service("a").Port("http")[0].Endpoints[0]; e.Source.Object.Name != "y" {
			t.Errorf("source %v, want slice y", e.Source)
		}
	})
}

// A full truth with one difference is one change.
func TestRelistIsADiff(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		rows := func(last string) *model.ShardState {
			var out []model.Object
			for i := range 50 {
				name := fmt.Sprintf("s%d", i)
				out = append(out, service(c1, name), slice(c1, name, name, "10.0.0.1"))
			}
			return state(append(out, service(c1, "x"), slice(c1, "x", "x", last))...)
		}
		r := memory.New(c1)
		r.Replace(rows("10.0.0.1"))
		h.Attach(r)
		h.start()
		from := h.quiet().Version
		r.Replace(rows("10.0.0.2"))
		pc := h.quiet()
		d, _ := h.Between(from, pc.Version)
		if diff := cmp.Diff([][]string{{host("x")}, {}}, [][]string{d.Endpoints, append([]string{}, d.Shape...)}); diff != "" {
			t.Error(diff)
		}
	})
}

func TestMeshSettingsRemergeEverything(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1, m := kube("c1"), model.ShardKey{Provider: model.ProviderMesh, Cluster: "c1"}
		h.Attach(registry(c1, service(c1, "a"), slice(c1, "a", "s", "10.0.0.1"), service(c1, "b")))
		settings := memory.New(m)
		settings.Replace(state())
		h.Attach(settings)
		h.start()
		before := h.quiet()
		row := meshRow(meshConfigWithTrustDomain("other"), model.ConfigMesh)
		settings.Put(keyOf(row), row)
		after := h.quiet()
		if after.Mesh == before.Mesh || after.Mesh.Config.TrustDomain != "other" || h.service("b").Shape.Mesh != after.Mesh {
			t.Error("settings did not reach the services")
		}
		if d := h.deltas[len(h.deltas)-1]; !d.Mesh || len(d.Shape) != 2 {
			t.Errorf("delta %+v", d)
		}
		wantAddrs(t, h, "a", "c1/10.0.0.1:8080")
		version := after.Version
		again := meshRow(meshConfigWithTrustDomain("other"), model.ConfigMesh)
		settings.Put(keyOf(again), again)
		if h.quiet().Version != version {
			t.Error("equal settings made a version")
		}
		if diff := cmp.Diff([]*model.Config{row}, after.Configs, protocmp.Transform()); diff != "" {
			t.Errorf("what is wrong with the settings can't be told of: %s", diff)
		}
	})
}

func TestConfigsAreListed(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		cfg := func(kind, name string, served bool) *model.Config {
			return &model.Config{Kind: kind, Namespace: "ns", Name: name, NotServed: !served, Source: model.Source{
				Shard: c1, Object: model.ObjectKey{Kind: kind, Namespace: "ns", Name: name},
			}}
		}
		r := registry(c1, cfg("VirtualService", "b", false), cfg("VirtualService", "a", false), cfg("Gateway", "z", true))
		h.Attach(r)
		h.start()
		pc := h.quiet()
		var got []string
		for _, c := range pc.Configs {
			got = append(got, c.Kind+"/"+c.Name)
		}
		if d := cmp.Diff([]string{"Gateway/z", "VirtualService/a", "VirtualService/b"}, got); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff(map[string]int{"VirtualService": 2}, h.shard(c1).NotServed); d != "" {
			t.Error(d)
		}
		r.Delete(rowOf(cfg("VirtualService", "b", false)))
		if pc = h.quiet(); len(pc.Configs) != 2 || h.shard(c1).NotServed["VirtualService"] != 1 {
			t.Errorf("after deletion: %v, %v", pc.Configs, h.shard(c1).NotServed)
		}
	})
}

// Incident 86: an odd row costs itself only.
func TestOddRowsAreContained(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		r := registry(c1, service(c1, "a"), slice(c1, "a", "s", "10.0.0.1"))
		h.Attach(r)
		h.start()
		h.quiet()
		var nilService *model.Service
		r.Late(
			model.Event{Row: model.RowKey{Kind: model.RowService, Key: "typed-nil"}, Obj: nilService},
			model.Event{Row: model.RowKey{Kind: model.RowService, Key: "wrong"}, Obj: slice(c1, "a", "w", "10.0.0.2")},
			model.Event{Row: model.RowKey{Kind: 77, Key: "unknown"}, Obj: service(c1, "x")},
			model.Event{Row: model.RowKey{Kind: model.RowService, Key: "bare"}, Obj: &model.Service{Host: "bare", Namespace: "ns", Name: "bare"}},
			model.Event{Row: model.RowKey{Kind: model.RowEndpoints, Key: "bare"}, Obj: &model.Endpoints{Host: "bare", Namespace: "ns", Endpoints: make([]model.Endpoint, 2)}},
			model.Event{Row: model.RowKey{Kind: model.RowWorkload, Key: "bare"}, Obj: &model.Workload{}},
			model.Event{Row: model.RowKey{Kind: model.RowConfig, Key: "bare"}, Obj: &model.Config{Kind: model.ConfigMesh}},
		)
		h.quiet()
		wantAddrs(t, h, "a", "c1/10.0.0.1:8080")
		if rows := h.shard(c1).Rows; rows != [model.RowKinds]int{2, 2, 1, 1} {
			t.Errorf("rows %v", rows)
		}
	})
}

// One log line per commit, with what an operator needs, or for debugging if nothing of it reaches a proxy; metrics
// under their names.
func TestCommitIsLoggedAndMeasured(t *testing.T) {
	var out lockedBuffer
	reg := prometheus.NewPedanticRegistry()
	o := aggregate.Options{Log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})), Registerer: reg}
	inBubble(t, o, func(h *hub) {
		c1 := kube("c1")
		r := registry(c1, service(c1, "a"))
		h.Attach(r)
		h.start()
		h.quiet()
		e := slice(c1, "a", "s", "10.0.0.1")
		r.Put(keyOf(e), e)
		h.quiet()
		r.Status(model.Status{State: model.StateStale})
		h.quiet()
		time.Sleep(time.Minute)
		lines := strings.Count(out.String(), "msg=commit")
		if want := int(h.Current().Version); lines != want || !strings.Contains(out.String(), "version=2 dirty=1 endpoints=1 shape=0") || !strings.Contains(out.String(), "reasons=endpoint") {
			t.Errorf("%d commit lines for %d versions:\n%s", lines, want, out.String())
		}
		if !strings.Contains(out.String(), "level=INFO msg=commit version=2 ") || !strings.Contains(out.String(), "level=DEBUG msg=commit version=3 dirty=0 ") {
			t.Errorf("a commit of the state of a registry alone is for debugging:\n%s", out.String())
		}
		got := gather(t, reg)
		for name, want := range map[string]float64{
			"pilot_services": 1, `pilot_inbound_updates type="eds"`: 1, `pilot_push_triggers type="endpoint"`: 1, "isthmus_scrub_drift_total": 0,
			`isthmus_shard_stale_seconds cluster="c1" provider="kubernetes"`: 63, `isthmus_mailbox_depth cluster="c1" provider="kubernetes"`: 0,
			`isthmus_shard_rows cluster="c1" kind="endpoints" provider="kubernetes"`: 1,
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("metric %s = %v (present %v), want %v", name, v, ok, want)
			}
		}
		if got["isthmus_scrub_services_total"] == 0 {
			t.Error("nothing was scrubbed in a minute")
		}
	})
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// gather reads counters and gauges as `name label="value" …`.
func gather(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += fmt.Sprintf(" %s=%q", l.GetName(), l.GetValue())
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}

// However dear pushing is, the last of a burst of changes is published soon, in few versions.
func TestBurstIsPublishedSoon(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		r := registry(c1, service(c1, "a"))
		h.Attach(r)
		h.start()
		from := h.quiet().Version
		const changes = 300
		for i := range changes {
			e := slice(c1, "a", fmt.Sprint("s", i), fmt.Sprintf("10.0.%d.%d", i/250, 1+i%250))
			r.Put(keyOf(e), e)
			h.PushCost(time.Second)
			time.Sleep(time.Millisecond)
		}
		end := time.Now()
		for len(addrs(h.service("a"), "http")) < changes {
			time.Sleep(time.Millisecond)
			if time.Since(end) > 200*time.Millisecond {
				t.Fatalf("after 200 ms %d of %d changes are published", len(addrs(h.service("a"), "http")), changes)
			}
		}
		if n := h.Current().Version - from; n > 5 {
			t.Errorf("%d versions for a burst of 300 ms", n)
		}
	})
}

// A candidate that is left out for another reason is seen by people, and by no proxy.
func TestLeftOutAloneIsQuiet(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		at := func(why model.Reason) *model.Endpoints {
			e := slice(c1, "a", "s", "10.0.0.1")
			e.LeftOut = []model.LeftOut{{Reason: why, Source: e.Source}}
			return e
		}
		r := registry(c1, service(c1, "a"), at(model.ReasonPodUnknown))
		h.Attach(r)
		h.start()
		before := h.quiet()
		was := h.service("a")
		e := at(model.ReasonInvalid)
		r.Put(keyOf(e), e)
		after := h.quiet()
		if d := h.deltas[len(h.deltas)-1]; after.Version == before.Version || !d.Empty() {
			t.Errorf("version %d after %d, delta %+v", after.Version, before.Version, d)
		}
		if now := h.service("a"); now.LeftOut[0].Reason != model.ReasonInvalid || now.Revision() != was.Revision() || was.LeftOut[0].Reason != model.ReasonPodUnknown {
			t.Errorf("left out %v at revision %d", now.LeftOut, now.Revision())
		}
	})
}
