package conformance

import (
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var key = model.ShardKey{Provider: model.ProviderMemory, Cluster: "c1"}

func row(name string) (model.RowKey, *model.Service) {
	return model.RowKey{Kind: model.RowService, Key: name}, &model.Service{
		Host: name + ".test", Namespace: Namespace, Name: name, Ports: []model.Port{{Number: 80}}, Source: model.Source{Shard: key},
	}
}

func full(name string) *model.ShardState {
	_, s := row(name)
	return model.NewShardBuilder().Add(name, s).Build()
}

// The suite is worth what it catches: each kind of bad registry must be noticed.
func TestRecorderNoticesBreaches(t *testing.T) {
	t.Parallel()
	k, s := row("a")
	for _, tc := range []struct {
		name string
		do   func(*recorder)
		want string // "" = nothing
	}{
		{"good", func(r *recorder) {
			r.Replace(full("b"))
			r.Put(model.Event{Row: k, Obj: s})
			r.Put(model.Event{Row: k})
		}, ""},
		{"put before replace", func(r *recorder) { r.Put(model.Event{Row: k, Obj: s}) }, "before Replace"},
		{"nil replace", func(r *recorder) { r.Replace(nil) }, "Replace(nil)"},
		{"late put", func(r *recorder) { r.Replace(full("b")); r.returned = true; r.Put(model.Event{Row: k}) }, "after Run returned"},
		{"equal content again", func(r *recorder) { _, same := row("a"); r.Replace(full("a")); r.Put(model.Event{Row: k, Obj: same}) }, "content that it had"},
		{"wrong kind", func(r *recorder) {
			r.Replace(full("b"))
			r.Put(model.Event{Row: model.RowKey{Kind: model.RowConfig, Key: "x"}, Obj: s})
		}, "holds a service"},
		{"foreign shard", func(r *recorder) {
			_, alien := row("c")
			alien.Source.Shard.Cluster = "c2"
			r.Replace(model.NewShardBuilder().Add("c", alien).Build())
		}, "comes from memory/c2"},
		{"foreign address", func(r *recorder) {
			e := &model.Endpoints{Source: model.Source{Shard: key}, Endpoints: []model.Endpoint{{Addr: model.Addr{Cluster: "c2"}}}}
			r.Replace(model.NewShardBuilder().Add("e", e).Build())
		}, `cluster "c2"`},
		{"changed after it was passed", func(r *recorder) {
			_, own := row("d")
			r.Replace(model.NewShardBuilder().Add("d", own).Build())
			own.Ports[0].Number = 81
		}, "was changed after"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRecorder(key)
			tc.do(r)
			got := strings.Join(r.breaches(), "\n")
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("breaches %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWorldOfRows(t *testing.T) {
	t.Parallel()
	rk, s := row("a")
	e := &model.Endpoints{Host: s.Host, Namespace: Namespace}
	for _, ip := range []string{"10.0.0.2", "10.0.0.1", "10.0.0.2"} {
		e.Endpoints = append(e.Endpoints, model.Endpoint{Addr: model.Addr{AddrPort: netip.AddrPortFrom(netip.MustParseAddr(ip), 80)}})
	}
	orphan := &model.Endpoints{Host: "nobody.test", Namespace: Namespace, Endpoints: e.Endpoints}
	rows := map[model.RowKey]model.Object{rk: s, {Kind: model.RowEndpoints, Key: "1"}: e, {Kind: model.RowEndpoints, Key: "2"}: orphan}
	want := World{"a": {Port: 80, Addresses: []string{"10.0.0.1", "10.0.0.2"}}}
	if got := worldOf(rows); !got.equal(want) {
		t.Errorf("world %+v, want %+v", got, want)
	}
}
