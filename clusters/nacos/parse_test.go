package nacos

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/time/rate"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

func TestParseServer(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]server{
		"nacos":                           {host: "nacos", http: 8848, grpc: 9848},
		"nacos.example.com:80":            {host: "nacos.example.com", http: 80, grpc: 1080},
		"10.0.0.1":                        {host: "10.0.0.1", http: 8848, grpc: 9848},
		"[::1]:8848":                      {host: "::1", http: 8848, grpc: 9848},
		"[::1]":                           {host: "::1", http: 8848, grpc: 9848},
		"http://nacos:8848/nacos":         {host: "nacos", http: 8848, grpc: 9848},
		"https://nacos_0.nacos_headless.": {secure: true, host: "nacos_0.nacos_headless.", http: 8848, grpc: 9848},
		"tls://nacos:1":                   {secure: true, host: "nacos", http: 1, grpc: 1001},
		"grpc://1nacos:64535":             {host: "1nacos", http: 64535, grpc: 65535},
	} {
		if got, err := parseServer(address, 0); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", address, got, err, want)
		}
	}
	if got, err := parseServer("nacos:65000", 7); err != nil || got.grpc != 7 {
		t.Errorf("a port of gRPC that is given: %+v, %v", got, err)
	}
}

func FuzzParseServer(f *testing.F) {
	for _, s := range []string{"nacos", "[::1]:80", "https://a.b:1/x", "127.0.0,1", "::", "[", "]:1", "://"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseServer(text, 0)
		if err != nil {
			return
		}
		again, err := parseServer(s.String(), 0)
		if again.secure = s.secure; err != nil || again != s {
			t.Errorf("%q is %+v, which is %+v (%v)", text, s, again, err)
		}
	})
}

func TestNotificationNames(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]serviceName{
		`{"serviceInfo":{"name":"a","groupName":"G"}}`:                                   {"", "G", "a"},
		`{"serviceInfo":{"name":"G@@a","groupName":"G"}}`:                                {"", "G", "a"},
		`{"serviceInfo":{"name":"G@@a"}}`:                                                {"", "G", "a"},
		`{"serviceInfo":{"name":"x@@a","groupName":"G"}}`:                                {"", "G", "x@@a"},
		`{"namespace":"n","groupName":"G","serviceName":"a","serviceInfo":{"hosts":[]}}`: {"n", "G", "a"},
		`{"serverPort":7,"serverIp":"x"}`:                                                {},
	} {
		var n notice
		if err := json.Unmarshal([]byte(text), &n); err != nil {
			t.Fatal(err)
		}
		if got := n.about(); got != want {
			t.Errorf("%s is about %+v, want %+v", text, got, want)
		}
	}
	for key, want := range map[string]serviceName{"public@@G@@a": public2("G", "a"), "@@G@@a@@b": public2("G", "a@@b"), "p@@G@@a": {"p", "G", "a"}} {
		if got, ok := parseServiceKey(key); !ok || got != want {
			t.Errorf("%s is %+v, want %+v", key, got, want)
		}
	}
	for _, key := range []string{"", "a", "a@@b", "@@@@", "n@@@@a"} {
		if got, ok := parseServiceKey(key); ok {
			t.Errorf("%s is %+v", key, got)
		}
	}
}

func public2(group, name string) serviceName { return serviceName{publicNamespace, group, name} }

func TestHomes(t *testing.T) {
	t.Parallel()
	h := homes{}
	there := func(serviceName) bool { return false }
	h.add(serviceName{"a", "G", "x"}, 2, there)
	h.add(serviceName{"b", "G", "x"}, 2, there)
	h.add(serviceName{"b", "G", "x"}, 2, there)
	if got := h.of(serviceName{"", "G", "x"}); !slices.Equal(got, []serviceName{{"a", "G", "x"}, {"b", "G", "x"}}) {
		t.Errorf("a notification is about %v", got)
	}
	if got := h.of(serviceName{"b", "G", "x"}); len(got) != 1 {
		t.Errorf("one that says its namespace is about %v", got)
	}
	h.add(serviceName{"a", "G", "y"}, 2, there)
	h.add(serviceName{"a", "G", "z"}, 2, func(n serviceName) bool { return n.name == "z" })
	if len(h) != 1 {
		t.Errorf("names that went stay: %v", h)
	}
}

func TestPayload(t *testing.T) {
	t.Parallel()
	for _, p := range []payload{
		{},
		{class: "A", headers: map[string]string{"a": "b", "": "", "c": ""}, body: []byte(`{"x":1}`)},
	} {
		var got payload
		if err := got.unmarshal(p.marshal()); err != nil || got.class != p.class || !maps.Equal(got.headers, p.headers) || string(got.body) != string(p.body) {
			t.Errorf("%+v comes back as %+v (%v)", p, got, err)
		}
	}
	// As protoc's encoder writes Payload{metadata: {type: "HealthCheckResponse"}, body: {value: "{}"}}, with fields that are not known.
	wire := "\x12\x15\x1a\x13HealthCheckResponse\x1a\x0a\x0a\x04type\x12\x02{}\x08\x07\x22\x01z"
	var got payload
	if err := got.unmarshal([]byte(wire)); err != nil || got.class != "HealthCheckResponse" || string(got.body) != "{}" {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzPayload(f *testing.F) {
	f.Add((&payload{class: "A", headers: map[string]string{"a": "b"}, body: []byte("{}")}).marshal())
	f.Add([]byte("\x12\x15\x1a\x13HealthCheckResponse\x1a\x04\x12\x02{}\x08\x07"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var p, again payload
		if p.unmarshal(text) != nil {
			return
		}
		if err := again.unmarshal(p.marshal()); err != nil || again.class != p.class || !maps.Equal(again.headers, p.headers) || string(again.body) != string(p.body) {
			t.Errorf("%+v comes back as %+v (%v)", p, again, err)
		}
	})
}

// FuzzNotice gives a watcher what a server may say.
func FuzzNotice(f *testing.F) {
	f.Add([]byte(`{"serviceInfo":{"name":"a","groupName":"DEFAULT_GROUP","hosts":[{"ip":"10.0.0.1","port":80,"weight":1,"enabled":true,"metadata":{"a":null}},{"port":"x"},null]}}`))
	f.Add([]byte(`{"contexts":[{"serviceKey":"public@@DEFAULT_GROUP@@b","changedType":"ADD_SERVICE"}],"abilityTable":{"fuzzyWatch":true}}`))
	f.Add([]byte(`{"serviceInfo":{"name":"a","groupName":"DEFAULT_GROUP","reachProtectionThreshold":true,"hosts":[{"port":70000,"weight":-1,"metadata":{"register-resource":"mcp-bridge"}}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var n notice
		if json.Unmarshal(text, &n) != nil {
			return
		}
		w, pub := bareWatcher()
		w.discover(public("a"))
		w.homes.add(public("a"), 10, func(serviceName) bool { return true })
		w.published = true
		w.pushed(n.about(), n.Info, time.Time{})
		w.named(n.Contexts)
		w.able(n.Abilities)
		w.flush()
		for key, s := range pub.services {
			for _, i := range s.Instances {
				if !(i.Weight >= 0) || key == "" {
					t.Errorf("%s: %+v", key, i)
				}
			}
		}
	})
}

func TestConvert(t *testing.T) {
	t.Parallel()
	n := naming{shard: model.ShardKey{Provider: model.ProviderNacos, Cluster: "trade"}, home: "ns", namespaces: map[string]string{"p": "prod"}}
	var info serviceInfo
	// As a server of version 3.1 sends it.
	text := `{"name":"orders","groupName":"PAY_GROUP","clusters":"","cacheMillis":10000,"hosts":[{"instanceId":"10.9.9.1#9090#zone-a#PAY_GROUP@@orders","ip":"10.9.9.1","port":9090,"weight":2.5,
		"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"zone-a","serviceName":"PAY_GROUP@@orders","metadata":{"_weird,key":"a=b;c","protocol":"grpc"},"instanceHeartBeatInterval":5000},
		{"instanceId":"","ip":"10.9.9.2","port":70000,"weight":-1,"healthy":false,"enabled":false,"clusterName":"c","metadata":null}],"lastRefTime":1795957062144,"checksum":"","allIPs":false,"reachProtectionThreshold":false}`
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		t.Fatal(err)
	}
	got, ok := n.convert(serviceName{"p", "PAY_GROUP", "orders"}, &info)
	if !ok || got.Key != "p/PAY_GROUP@@orders" || got.Name != "orders" || got.Suffix != "PAY_GROUP.prod.nacos" || len(got.Instances) != 2 {
		t.Fatalf("%+v", got)
	}
	a, b := got.Instances[0], got.Instances[1]
	if a.ID == "" || a.Address != "10.9.9.1" || a.Port != 9090 || a.Weight != 2.5 || a.Health != model.Healthy || a.Disabled || a.Cluster != "zone-a" || a.Metadata["_weird,key"] != "a=b;c" {
		t.Errorf("the first is %+v", a)
	}
	if b.ID != "10.9.9.2#70000#c" || b.Port != 0 || b.Weight != 0 || b.Health != model.Unhealthy || !b.Disabled {
		t.Errorf("the second is %+v", b)
	}
	if got, _ := n.convert(public("a"), &serviceInfo{}); got.Suffix != "DEFAULT_GROUP.public.nacos" || got.Key != "DEFAULT_GROUP@@a" {
		t.Errorf("%+v", got)
	}
}

func TestSameInfo(t *testing.T) {
	t.Parallel()
	info := func(h ...instance) *serviceInfo { return &serviceInfo{Hosts: h} }
	a, b := host("10.0.0.1:80"), host("10.0.0.2:80")
	heavy, bad := host("10.0.0.1:80", func(h *instance) { h.Weight = 2 }), instance{unreadable: true}
	if !sameInfo(info(a, heavy, bad, bad), info(bad, heavy, bad, a)) {
		t.Error("an instance that is there twice is a difference")
	}
	if !sameInfo(info(a, b), info(b, a)) || !sameInfo(info(), info()) {
		t.Error("order is a difference")
	}
	for name, mod := range map[string]func(*instance){
		"weight": func(h *instance) { h.Weight = 2 }, "health": func(h *instance) { h.Healthy = false }, "enabled": func(h *instance) { h.Enabled = false },
		"metadata": func(h *instance) { h.Metadata = map[string]string{"a": ""} }, "cluster": func(h *instance) { h.Cluster = "x" }, "port": func(h *instance) { h.Port = 1 },
	} {
		if sameInfo(info(a), info(host("10.0.0.1:80", mod))) {
			t.Errorf("another %s is no difference", name)
		}
	}
	if sameInfo(info(a), info(a, b)) || sameInfo(info(a, a), info(a, b)) || sameInfo(nil, info()) || sameInfo(info(a), &serviceInfo{Hosts: []instance{a}, Protected: true}) {
		t.Error("another number of instances, or protection, is no difference")
	}
}

func TestParseToken(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1)
	for text, want := range map[string]token{
		`{"accessToken":"a","tokenTtl":60,"globalAdmin":true}`: {"a", now, now.Add(time.Minute)},
		`{"code":0,"data":{"accessToken":"a","tokenTtl":60}}`:  {"a", now, now.Add(time.Minute)},
		`{"accessToken":"a"}`:                                {"a", now, now.Add(defaultTokenLife)},
		`{"accessToken":"a","tokenTtl":-5}`:                  {"a", now, now.Add(defaultTokenLife)},
		`{"accessToken":"a","tokenTtl":9223372036854775807}`: {"a", now, now.Add(defaultTokenLife)},
	} {
		if got, err := parseToken([]byte(text), now); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "{}", "[]", `{"accessToken":7}`, "secret"} {
		if _, err := parseToken([]byte(text), now); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, mod := range map[string]func(*api.RegistrySpec){
		"no servers":              func(s *api.RegistrySpec) { s.Addresses = nil },
		"another provider":        func(s *api.RegistrySpec) { s.Nacos = nil },
		"an address server":       func(s *api.RegistrySpec) { s.Nacos.AddressServer = "file:///etc/passwd" },
		"one with a user":         func(s *api.RegistrySpec) { s.Nacos.AddressServer = "http://a:b@c/" },
		"a port that is too high": func(s *api.RegistrySpec) { s.Addresses = []string{"a:65000"} },
	} {
		spec := api.RegistrySpec{Provider: api.Nacos, Addresses: []string{"10.0.0.1"}}.Effective("ns")
		mod(&spec)
		if _, err := New(Options{Name: "x", Spec: spec}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestRing(t *testing.T) {
	t.Parallel()
	servers, err := parseServers([]string{"a", "b:1", "c"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := newRing(servers, 0)
	seen := map[server]int{}
	for range 6 {
		s, _ := r.next()
		seen[s]++
	}
	for _, s := range servers {
		if seen[s] != 2 {
			t.Errorf("%s came %d times of 2", s, seen[s])
		}
	}
	r.prefer(&resetError{host: "b", port: "1"})
	if s, _ := r.next(); s.host != "b" {
		t.Errorf("after b was preferred comes %s", s)
	}
	for _, stranger := range []*resetError{{}, {host: "evil", port: "8848"}, {host: "b", port: "2"}, {host: "%", port: "x"}} {
		r.prefer(stranger)
	}
	if diff := cmp.Diff(r.len(), 3); diff != "" {
		t.Error(diff)
	}
	if _, ok := newRing(nil, 0).next(); ok {
		t.Error("an empty ring gives a server")
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	spec := api.RegistrySpec{Provider: api.Nacos, Addresses: []string{"10.0.0.1"}, Limits: &api.Limits{RequestsPerSecond: 40, Concurrency: -1}}
	s := newSettings(Options{Name: "x", Spec: spec.Effective("ns")})
	if s.rate != 40 || s.verifyPause != 50*time.Millisecond || s.concurrency != 1 {
		t.Errorf("%v requests a second, %v between verifications, %d at once", s.rate, s.verifyPause, s.concurrency)
	}
	spec.Limits.RequestsPerSecond = -1
	if s := newSettings(Options{Name: "x", Spec: spec.Effective("ns")}); s.rate != rate.Inf || s.verifyPause != 0 {
		t.Errorf("%v requests a second, %v between verifications, where there is no limit", s.rate, s.verifyPause)
	}
	for name, want := range map[string]bool{"a": true, "": false, " \t": false, "consumers:a": false, "providers:a": true, strings.Repeat("a", 513): false} {
		if realService(name) != want {
			t.Errorf("%.20q is taken for a service: %v", name, !want)
		}
	}
}

// A round verifies every service once, and leaves half of the requests to others.
func TestRounds(t *testing.T) {
	t.Parallel()
	w, _ := bareWatcher()
	for i := range 10 {
		w.discover(public(fmt.Sprint(i)))
	}
	w.todo = newQueue()
	w.verifyPause = 3 * time.Second
	w.missed()
	now := w.clock()
	for range 10 {
		w.step(now)
	}
	for range 10 {
		if task, ok := w.todo.next(); !ok || task.kind != verify {
			t.Fatalf("the next task is %+v, %v", task, ok)
		}
	}
	if _, more := w.todo.next(); more {
		t.Error("a service is verified twice")
	}
	if w.round.next.Sub(now) < 3*time.Second {
		t.Errorf("the next one is verified after %v", w.round.next.Sub(now))
	}
	w.step(now)
	if len(w.round.rest) != 9 || w.round.batch != 1 || w.round.over != w.timing.reconcile {
		t.Errorf("the next round is %+v", w.round)
	}
}

// Many services are verified some at a time.
func TestRoundsInBatches(t *testing.T) {
	t.Parallel()
	w, _ := bareWatcher()
	w.verifyPause, w.timing.settle = 0, 10*time.Second
	for i := range 999 {
		w.discover(public(fmt.Sprint(i)))
	}
	w.todo = newQueue()
	w.missed()
	w.step(w.clock())
	if n := len(w.todo.lists[verify]); n != 25 || w.round.pause != 250*time.Millisecond {
		t.Errorf("%d services every %v, want 25 every 250ms", n, w.round.pause)
	}
	for range 40 {
		w.step(w.clock())
	}
	if n := len(w.todo.waiting); n != 999 {
		t.Errorf("%d services of 999 are verified", n)
	}
}

func TestAgenda(t *testing.T) {
	t.Parallel()
	var a agenda
	at := time.UnixMilli(1000)
	x, y := task{kind: subscribe, service: public("x")}, task{kind: subscribe, service: public("y")}
	a.add(x, at.Add(2*time.Second))
	a.add(y, at.Add(time.Second))
	a.add(x, at.Add(3*time.Second)) // it has an earlier time
	if !a.first.Equal(at.Add(time.Second)) || a.due(at) != nil {
		t.Errorf("something is due before %v", a.first)
	}
	if got := a.due(at.Add(time.Second)); len(got) != 1 || got[0] != y {
		t.Errorf("due is %v", got)
	}
	a.drop(public("x"))
	if got := a.due(at.Add(time.Hour)); len(got) != 0 || !a.first.IsZero() {
		t.Errorf("due is %v, and more at %v", got, a.first)
	}
}
