package lastgood

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

var shard = model.ShardKey{Provider: model.ProviderKubernetes, Cluster: "c1"}

// specs are one specification of each kind.
var specs = map[string]any{
	model.ConfigMesh:     &meshconfig.MeshConfig{TrustDomain: "td", ConnectTimeout: durationpb.New(time.Second)},
	model.ConfigNetworks: &meshconfig.MeshNetworks{Networks: map[string]*meshconfig.Network{"n": {Endpoints: []*meshconfig.Network_NetworkEndpoints{{Ne: &meshconfig.Network_NetworkEndpoints_FromRegistry{FromRegistry: "c1"}}}}}},
	model.ConfigDestinationRule: &networking.DestinationRule{Host: "h", TrafficPolicy: &networking.TrafficPolicy{LoadBalancer: &networking.LoadBalancerSettings{
		LbPolicy: &networking.LoadBalancerSettings_Simple{Simple: networking.LoadBalancerSettings_RANDOM}}}},
	model.ConfigPeerAuthentication: &security.PeerAuthentication{PortLevelMtls: map[uint32]*security.PeerAuthentication_MutualTLS{80: {Mode: security.PeerAuthentication_MutualTLS_STRICT}}},
	model.ConfigGateway:            &networking.Gateway{Servers: []*networking.Server{{Hosts: []string{"*"}, Port: &networking.Port{Number: 15443}}}},
	model.ConfigNetworkGateway:     &model.NetworkGateway{Network: "n", Addrs: []model.GatewayAddr{{IP: netip.MustParseAddr("10.0.0.1"), Port: 1}, {Host: "h", Port: 2}}},
	model.ConfigResolvedHost:       &model.ResolvedHost{Addrs: []netip.Addr{netip.MustParseAddr("fe80::1")}},
	"NotServed":                    nil,
}

// fill sets everything in v to something that is not zero, so that what gets lost shows.
func fill(r *rand.Rand, v reflect.Value) {
	switch v.Interface().(type) {
	case netip.Addr:
		v.Set(reflect.ValueOf(netip.AddrFrom4([4]byte{10, byte(r.Uint32()), 1, byte(1 + r.IntN(200))})))
		return
	case netip.AddrPort:
		ip := netip.AddrFrom4([4]byte{10, byte(r.Uint32()), 1, 1})
		if r.IntN(2) == 0 {
			ip = netip.Addr{} // a host name or a socket is the address
		}
		v.Set(reflect.ValueOf(netip.AddrPortFrom(ip, uint16(1+r.IntN(60000)))))
		return
	case netip.Prefix:
		v.Set(reflect.ValueOf(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(r.Uint32()), 0, 0}), 16)))
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(r.Int64N(1<<32), r.Int64N(1e9)).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("s%d<&>\"é\u2028", r.IntN(1000)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(1 + r.Uint64N(2)) // valid for every enumeration
	case reflect.Float64:
		v.SetFloat(float64(1+r.IntN(10_000)) / 100)
	case reflect.Int64:
		v.SetInt(1 + r.Int64N(100))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+r.IntN(3), 4))
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 1 + r.IntN(3) {
			key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(r, key)
			fill(r, elem)
			v.SetMapIndex(key, elem)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i))
		}
	case reflect.Interface: // Config.Spec, which is set apart
	default:
		panic("a kind of field that is not thought of here: " + v.Type().String())
	}
}

// randomRows gives rows of all kinds with every field set.
func randomRows(r *rand.Rand) map[model.RowKey]model.Object {
	rows := map[model.RowKey]model.Object{}
	add := func(name string, o model.Object) {
		fill(r, reflect.ValueOf(o).Elem())
		rows[model.RowKey{Kind: o.RowKind(), Key: name}] = o
	}
	for i := range 3 {
		add(fmt.Sprint("a/", i), &model.Service{})
		add(fmt.Sprint("b/", i), &model.Endpoints{})
		add(fmt.Sprint("c/", i), &model.Workload{})
	}
	for kind, s := range specs {
		c := &model.Config{}
		add("d/"+kind, c)
		c.Kind, c.Spec = kind, s
	}
	return rows
}

var compare = cmp.Options{protocmp.Transform(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })}

func pack(t testing.TB, rows map[model.RowKey]model.Object) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := encode(&out, header{Shard: shard, Saved: time.Unix(1e9, 0)}, rows, 1<<30); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestRoundTrip: every field of every row comes back. A field that is new in the model is set here by itself, so this
// fails if it is not kept.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rows := randomRows(rand.New(rand.NewPCG(seed, 1)))
		h, got, err := decode(bytes.NewReader(pack(t, rows)), shard, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(rows, maps.Collect(got.Rows()), compare); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
		if h.Saved.Unix() != 1e9 || h.Rows != len(rows) {
			t.Fatalf("header %+v", h)
		}
	}
}

// TestRoundTripOfNothing: neither empty rows nor no rows become something else.
func TestRoundTripOfNothing(t *testing.T) {
	t.Parallel()
	rows := map[model.RowKey]model.Object{
		{Kind: model.RowService, Key: "s"}:   &model.Service{Exposed: []model.Exposure{{Ports: map[uint16]uint16{}}, {}}},
		{Kind: model.RowEndpoints, Key: "e"}: &model.Endpoints{},
		{Kind: model.RowWorkload, Key: "w"}:  &model.Workload{},
		{Kind: model.RowConfig, Key: "c"}:    &model.Config{},
	}
	for _, rows := range []map[model.RowKey]model.Object{rows, {}} {
		_, got, err := decode(bytes.NewReader(pack(t, rows)), shard, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(rows, maps.Collect(got.Rows()), compare); diff != "" {
			t.Error(diff)
		}
	}
}

// TestEndpointsShareTheirSource: what registries share is shared again.
func TestEndpointsShareTheirSource(t *testing.T) {
	t.Parallel()
	e := &model.Endpoints{Source: model.Source{Shard: shard}}
	e.Endpoints = []model.Endpoint{{Source: &e.Source}, {}, {Source: &model.Source{Revision: "own"}}}
	key := model.RowKey{Kind: model.RowEndpoints, Key: "e"}
	_, got, err := decode(bytes.NewReader(pack(t, map[model.RowKey]model.Object{key: e})), shard, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	o, _ := got.Row(key)
	back := o.(*model.Endpoints)
	if back.Endpoints[0].Source != &back.Source || back.Endpoints[1].Source != &back.Source || back.Endpoints[2].Source.Revision != "own" {
		t.Errorf("sources %v", back.Endpoints)
	}
}

// TestUnknownSpecification: what can't be kept is an error that names the row, not a row without it.
func TestUnknownSpecification(t *testing.T) {
	t.Parallel()
	err := encode(&bytes.Buffer{}, header{}, map[model.RowKey]model.Object{{Kind: model.RowConfig, Key: "k"}: &model.Config{Spec: 7}}, 1<<30)
	if err == nil || !strings.Contains(err.Error(), "config k") {
		t.Errorf("got %v", err)
	}
}

// TestDamage: no file but a whole one is read, whatever is missing or wrong.
func TestDamage(t *testing.T) {
	t.Parallel()
	rows := randomRows(rand.New(rand.NewPCG(1, 1)))
	whole := pack(t, rows)
	read := func(b []byte, k model.ShardKey, limit int64) error {
		_, s, err := decode(bytes.NewReader(b), k, limit)
		if err != nil && s != nil {
			t.Error("rows of a damaged file")
		}
		return err
	}
	if err := read(whole, shard, 1<<30); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(whole); n += 31 {
		if read(whole[:n], shard, 1<<30) == nil {
			t.Errorf("%d bytes of %d are enough", n, len(whole))
		}
	}
	for n := 10; n < len(whole); n += 31 { // after the fields of gzip that say nothing
		b := bytes.Clone(whole)
		b[n] ^= 0x10
		// What it stands for may be the same: padding, or a reference to an equal piece of text.
		if _, got, err := decode(bytes.NewReader(b), shard, 1<<30); err == nil && !cmp.Equal(rows, maps.Collect(got.Rows()), compare) {
			t.Errorf("byte %d does not matter", n)
		}
	}
	for name, err := range map[string]error{
		"more behind":     read(append(bytes.Clone(whole), 'x'), shard, 1<<30),
		"twice":           read(append(bytes.Clone(whole), whole...), shard, 1<<30),
		"another cluster": read(whole, model.ShardKey{Provider: shard.Provider, Cluster: "c2"}, 1<<30),
		"too large":       read(whole, shard, 1000),
		"empty":           read(nil, shard, 1<<30),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestOtherVersions: what another version or program has written counts as none.
func TestOtherVersions(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"newer":        `{"Format":"isthmus last good rows","Version":2,MODEL,"Shard":"kubernetes/c1"}`,
		"older":        `{"Format":"isthmus last good rows","Version":0,MODEL,"Shard":"kubernetes/c1"}`,
		"other model":  `{"Format":"isthmus last good rows","Version":1,"Model":"0123456789abcdef","Shard":"kubernetes/c1"}`,
		"no model":     `{"Format":"isthmus last good rows","Version":1,"Shard":"kubernetes/c1"}`,
		"foreign":      `{"Format":"something","Version":1,MODEL,"Shard":"kubernetes/c1"}`,
		"no header":    `[]`,
		"rows missing": `{"Format":"isthmus last good rows","Version":1,MODEL,"Shard":"kubernetes/c1","Rows":1}`,
		"rows left":    `{"Format":"isthmus last good rows","Version":1,MODEL,"Shard":"kubernetes/c1"}{"Kind":"service"}{}`,
		"other kind":   `{"Format":"isthmus last good rows","Version":1,MODEL,"Shard":"kubernetes/c1","Rows":1}{"Kind":"x"}{}`,
		"other enum":   `{"Format":"isthmus last good rows","Version":1,MODEL,"Shard":"kubernetes/c1","Rows":1}{"Kind":"workload"}{"Health":"x"}`,
		"no message":   `{"Format":"isthmus last good rows","Version":1,MODEL,"Shard":"kubernetes/c1","Rows":1}{"Kind":"config"}{"Spec":{"Message":"no.such.Message"}}`,
	} {
		text = strings.Replace(text, "MODEL", `"Model":"`+shape()+`"`, 1)
		if _, _, err := decodeRows(strings.NewReader(text), shard); err == nil {
			t.Errorf("%s: accepted", name)
		}
		var zipped bytes.Buffer
		zip := gzip.NewWriter(&zipped)
		if _, err := zip.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := zip.Close(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := decode(&zipped, shard, 1<<30); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestAcceptedVersion: what TestOtherVersions varies is otherwise accepted.
func TestAcceptedVersion(t *testing.T) {
	t.Parallel()
	head := `{"Format":"isthmus last good rows","Version":1,"Model":"` + shape() + `","Shard":"kubernetes/c1","Rows":1}`
	if _, s, err := decodeRows(strings.NewReader(head+`{"Kind":"workload","Key":"k"}{"Health":"healthy"}`), shard); err != nil || s.Len() != 1 {
		t.Errorf("%v, err %v", s, err)
	}
}

// TestShape: any other field, at whatever depth, is another shape.
func TestShape(t *testing.T) {
	t.Parallel()
	type inner struct{ A int }
	type more struct{ A, B int }
	of := func(o any) string {
		var out strings.Builder
		describe(&out, reflect.TypeOf(o), map[reflect.Type]bool{})
		return strings.NewReplacer("more", "inner").Replace(out.String())
	}
	for _, pair := range [][2]any{
		{inner{}, more{}}, {[]inner{}, []more{}}, {map[string]*inner{}, map[string]*more{}}, {map[inner]int{}, map[more]int{}},
		{struct{ X []inner }{}, struct{ X []more }{}}, {struct{ X int }{}, struct{ X uint }{}}, {struct{ X int }{}, struct{ Y int }{}},
	} {
		if of(pair[0]) == of(pair[1]) {
			t.Errorf("%T and %T are one shape", pair[0], pair[1])
		}
	}
	first := shape()
	if again := shape(); again != first {
		t.Error("the shape depends on chance")
	}
}

// TestTooLargeToKeep: there is an end to what is written.
func TestTooLargeToKeep(t *testing.T) {
	t.Parallel()
	err := encode(&bytes.Buffer{}, header{}, randomRows(rand.New(rand.NewPCG(1, 1))), 1000)
	if !errors.Is(err, errTooLarge) {
		t.Errorf("got %v", err)
	}
}

// FuzzDecode: whatever is in a file, it is read or refused.
func FuzzDecode(f *testing.F) {
	f.Add(pack(f, randomRows(rand.New(rand.NewPCG(1, 1)))))
	f.Add(pack(f, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, s, err := decode(bytes.NewReader(data), shard, 1<<20)
		if (err == nil) != (s != nil) {
			t.Errorf("state %v, err %v", s, err)
		}
	})
}

// FuzzDecodeRows is FuzzDecode behind the checksum. What is accepted can be written again.
func FuzzDecodeRows(f *testing.F) {
	zip, err := gzip.NewReader(bytes.NewReader(pack(f, randomRows(rand.New(rand.NewPCG(2, 1))))))
	if err != nil {
		f.Fatal(err)
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(zip); err != nil {
		f.Fatal(err)
	}
	f.Add(text.Bytes())
	head := `{"Format":"isthmus last good rows","Version":1,"Model":"` + shape() + `","Shard":"kubernetes/c1","Rows":1}`
	for _, kind := range []string{"service", "endpoints", "workload", "config"} {
		f.Add([]byte(head + `{"Kind":"` + kind + `","Key":"k"}{}`))
		f.Add([]byte(head + `{"Kind":"` + kind + `","Key":"k"} null`))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, s, err := decodeRows(bytes.NewReader(data), shard)
		if err != nil {
			return
		}
		rows := maps.Collect(s.Rows())
		_, again, err := decode(bytes.NewReader(pack(t, rows)), shard, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(rows, maps.Collect(again.Rows()), compare); diff != "" {
			t.Error(diff)
		}
	})
}

// What declares registries is kept, but for credentials that stand in it.
func TestDeclarationsAreKept(t *testing.T) {
	t.Parallel()
	for _, want := range []any{
		&api.RegistrySpec{Provider: api.Consul, Addresses: []string{"a:1"}},
		&api.FederatedServiceSpec{Host: "a.b"},
		&api.McpBridgeSpec{Registries: []api.BridgedRegistry{{Type: "nacos", Name: "n", NacosSecretKey: "hush"}}},
	} {
		var file bytes.Buffer
		k := model.RowKey{Kind: model.RowConfig, Key: "k"}
		h := header{Shard: model.ShardKey{Provider: "p", Cluster: "c"}}
		if err := encode(&file, h, map[model.RowKey]model.Object{k: &model.Config{Spec: want}}, 1<<20); err != nil {
			t.Fatal(err)
		}
		_, s, err := decode(&file, h.Shard, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		o, _ := s.Row(k)
		got := o.(*model.Config).Spec
		if b, ok := want.(*api.McpBridgeSpec); ok {
			b.Registries[0].NacosSecretKey = ""
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
}
