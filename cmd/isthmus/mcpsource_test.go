package main

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/anypb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/mcp"
	"github.com/isthmus-mesh/isthmus/mcp/mcptest"
)

func TestParseUpstream(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"xds://istiod.istio-system:15010": "istiod.istio-system-15010 [istiod.istio-system:15010]",
		"prod=xds://a:1,[::1]:2":          "prod [a:1 [::1]:2]",
		"xds://[fd00::1]:15010":           "fd00--1--15010 [[fd00::1]:15010]",
		"p=xds://a:1?tls":                 "p [a:1] tls {CA:[] Cert:[] Key:[] CAFile: CertFile: KeyFile: ServerName: SubjectAltNames:[] Insecure:false}",
		"p=xds://a:1?ca=ca.pem&cert=c.pem&key=k.pem&sni=istiod&token=t": "p [a:1] tls {CA:[] Cert:[] Key:[] CAFile:ca.pem CertFile:c.pem KeyFile:k.pem ServerName:istiod SubjectAltNames:[] Insecure:false} token t",
		"p=xds://a:1?protocol=sotw":                                     "p [a:1] sotw",
		"a:1":                                                           "error: want xds://HOST:PORT",
		"k8s://":                                                        "error: want xds://HOST:PORT",
		"xds://":                                                        `error: "" is not HOST:PORT`,
		"p=xds://[fd00::1]:1/":                                          "p [[fd00::1]:1]",
		"xds://fd00::1:15010":                                           `error: "fd00::1:15010" is not HOST:PORT`,
		"xds://a:http":                                                  `error: "a:http" is not HOST:PORT`,
		"xds://a:70000":                                                 `error: "a:70000" is not HOST:PORT`,
		"xds://a:1,b":                                                   `error: "b" is not HOST:PORT`,
		"-x=xds://a:1":                                                  `error: "-x" can't be its name (letters, digits, '-', '_' and '.', 63 at most, no '-' at an end)`,
		"nonsense xds://a:1":                                            `error: "nonsense " can't be its name (letters, digits, '-', '_' and '.', 63 at most, no '-' at an end)`,
		"xds://a:1?cert=c":                                              "error: cert and key go together",
		"xds://a:1?protocol=grpc":                                       "error: protocol=grpc: want delta or sotw",
		"xds://a:1?user=me":                                             `error: there is no option "user": want tls, ca, cert, key, sni, token or protocol`,
		"xds://a:1?%zz":                                                 `error: options: invalid URL escape "%zz"`,
		"xds://" + strings.Repeat("a", 80) + ":1": strings.Repeat("a", 63) + " [" + strings.Repeat("a", 80) + ":1]",
	} {
		u, err := parseUpstream(value)
		got := fmt.Sprintf("%s %v", u.Name, u.Addresses)
		if u.TLS != nil {
			got += fmt.Sprintf(" tls %+v", *u.TLS)
		}
		if u.TokenFile != "" {
			got += " token " + u.TokenFile
		}
		if u.NoDelta {
			got += " sotw"
		}
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", value, got, want)
		}
	}
}

func FuzzParseUpstream(f *testing.F) {
	f.Add("p=xds://a:1,b:2?ca=x&token=y")
	f.Fuzz(func(t *testing.T, s string) {
		u, err := parseUpstream(s)
		if err == nil && (u.Name == "" && strings.ContainsAny(u.Addresses[0], "abc") || len(u.Addresses) == 0) {
			t.Errorf("%q: %+v", s, u)
		}
	})
}

func TestUpstreamFlagsAreChecked(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"--mcp-upstream a:1": "--mcp-upstream a:1: want xds://HOST:PORT",
		"--mcp-upstream p=xds://a:1 --mcp-upstream p=xds://b:1": "another one is called p",
	} {
		got := command(t, append([]string{"serve"}, strings.Fields(flags)...)...)
		if got.code != exitUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: exit code %d, %s; want %q", flags, got.code, got.stderr, want)
		}
	}
}

// sources of the mesh's settings, as those in force change.
func TestConfigSourcesAreFollowed(t *testing.T) {
	t.Parallel()
	o := &serveOptions{}
	serveCommand(o)
	o.dir, o.mcp.upstreams = t.TempDir(), []string{"flag=xds://flag:1"}
	if err := o.check(); err != nil {
		t.Fatal(err)
	}
	n := &notes{}
	life := &settings{Lifecycle: n}
	registerer := prometheus.NewRegistry()
	s := newMCPSource(sourceDeps{opts: o, life: life, log: slog.New(slog.DiscardHandler), registerer: registerer, held: newHeldBack(registerer)})
	if err := s.Scan(); err != nil {
		t.Fatal(err)
	}
	n.want(t) // the settings are waited for
	life.use(nil)
	n.want(t, "attach mcp/flag")
	source := func(address string) *meshconfig.ConfigSource { return &meshconfig.ConfigSource{Address: address} }
	m := &meshconfig.MeshConfig{ConfigSources: []*meshconfig.ConfigSource{source("xds://hub:2"), source("k8s://"), source("fs:///etc/x")}}
	life.use(m)
	n.want(t, "attach mcp/hub-2")
	life.use(m)
	n.want(t)
	m = &meshconfig.MeshConfig{ConfigSources: []*meshconfig.ConfigSource{source("xds://hub:2")}}
	m.ConfigSources[0].TlsSettings = &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, CaCertificates: "ca.pem", Sni: "hub"}
	life.use(m)
	n.want(t, "attach mcp/hub-2") // a replacement
	m.ConfigSources = nil
	life.use(&meshconfig.MeshConfig{})
	n.want(t, "detach mcp/hub-2")
	life.use(&meshconfig.MeshConfig{TrustDomain: "mesh.test"})
	n.want(t, "attach mcp/flag") // identities are in another trust domain
}

func mcpEntry(t *testing.T, host, address string) mcp.Resource {
	t.Helper()
	body, err := anypb.New(&networking.ServiceEntry{
		Hosts: []string{host}, Resolution: networking.ServiceEntry_STATIC, Location: networking.ServiceEntry_MESH_INTERNAL,
		Ports:     []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
		Endpoints: []*networking.WorkloadEntry{{Address: address}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return mcp.Resource{Namespace: "shop", Name: strings.ReplaceAll(host, ".", "-"), Body: body}
}

// hosts waits until the hub has exactly these services.
func (r *running) hosts(t *testing.T, want ...string) {
	t.Helper()
	r.log.until(t, "services "+strings.Join(want, " "), func() bool {
		var got []string
		for _, s := range ask[[]debug.Service](t, r, "service list") {
			got = append(got, s.Hostname)
		}
		return strings.Join(got, " ") == strings.Join(want, " ")
	})
}

// A hub whose only source is an MCP server.
func TestServeFromMCPServerAlone(t *testing.T) {
	t.Parallel()
	up, at := mcptest.Listen(t)
	up.Set("ServiceEntry", mcpEntry(t, "pay.example.com", "10.1.0.1"))
	r := (&running{dir: t.TempDir(), log: newLogbook()}).start(t, "--mcp-upstream", "prod=xds://"+at)
	r.hosts(t, "pay.example.com")
	up.Set("ServiceEntry", mcpEntry(t, "mail.example.com", "10.1.0.2"))
	r.hosts(t, "mail.example.com", "pay.example.com")
	r.log.until(t, "a server that is read", func() bool {
		list := ask[[]debug.Registry](t, r, "registry list")
		return len(list) == 1 && list[0].State == "live" && list[0].Services == 2 && list[0].Endpoints == 2
	})
	if list := ask[[]debug.Registry](t, r, "registry list"); list[0].Provider != "mcp" || list[0].Name != "prod" {
		t.Errorf("registries %+v", list)
	}
}

// The server is found in the settings, beside a folder of clusters.
func TestServeFromConfigSource(t *testing.T) {
	t.Parallel()
	up, at := mcptest.Listen(t)
	up.Set("ServiceEntry", mcpEntry(t, "pay.example.com", "10.1.0.1"))
	r := startHub(t, map[string]string{"mesh.yaml": "configSources: [{address: 'xds://" + at + "'}, {address: 'k8s://'}]\n"})
	r.hosts(t, "pay.example.com")
	r.log.until(t, "k8s:// is told", func() bool { return strings.Contains(r.log.String(), "k8s://") })
	r.write(t, "mesh.yaml", "{}\n")
	r.hosts(t)
}

// With --state-dir what a server said outlives the hub.
func TestMCPServerIsKept(t *testing.T) {
	t.Parallel()
	up, at := mcptest.Listen(t)
	up.Set("ServiceEntry", mcpEntry(t, "pay.example.com", "10.1.0.1"))
	state := t.TempDir()
	flags := []string{"--mcp-upstream", "prod=xds://" + at, "--state-dir", state}
	r := (&running{dir: t.TempDir(), log: newLogbook()}).start(t, flags...)
	r.hosts(t, "pay.example.com")
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	up.Down()
	r = (&running{dir: t.TempDir(), log: newLogbook()}).start(t, flags...)
	r.hosts(t, "pay.example.com")
}

// The program reads a real istiod, named in the mesh's settings, and keeps what it said while it is away.
func TestServeFromRealIstiod(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs an API server and an istiod")
	}
	c := servers.Take(t, 1)[0]
	entry := func(name string) string {
		return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: shop}
spec:
  hosts: [%[1]s.example.com]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{name: http, number: 80, protocol: HTTP}]
  endpoints: [{address: 10.1.0.1}]
`, name)
	}
	c.Apply(t, entry("pay"), entry("mail"))
	i := c.Istiod(t)
	r := startHub(t, map[string]string{"mesh.yaml": "configSources: [{address: 'xds://" + i.Address + "'}]\n"})
	r.hosts(t, "mail.example.com", "pay.example.com")
	i.Stop()
	r.log.until(t, "it is stale", func() bool {
		list := ask[[]debug.Registry](t, r, "registry list")
		return len(list) == 1 && list[0].State == "stale"
	})
	r.hosts(t, "mail.example.com", "pay.example.com")
	c.Delete(t, entry("mail"))
	i.Start(t)
	held := func() int { return ask[[]debug.Registry](t, r, "registry list")[0].HeldBack }
	r.log.until(t, "mail is held back", func() bool { return held() == 1 })
	r.hosts(t, "pay.example.com") // within a minute
	r.log.until(t, "nothing is held back", func() bool { return held() == 0 })
}

// holds waits until a registry holds so much back, and gives it.
func (r *running) holds(t *testing.T, name string, n int) (x debug.Registry) {
	t.Helper()
	r.log.until(t, fmt.Sprint(name, " holds ", n, " back"), func() bool { x = registryOf(t, r, name); return x.HeldBack == n && len(x.Problems) == n })
	return x
}

// Incident 76: a server that restarts empty takes nothing away, and what is held back for it shows wherever somebody looks.
func TestIncident76HeldBackShows(t *testing.T) {
	t.Parallel()
	up, at := mcptest.Listen(t)
	up.Set("ServiceEntry", mcpEntry(t, "pay.example.com", "10.1.0.1"))
	body, err := anypb.New(&networking.VirtualService{Hosts: []string{"pay.example.com"}, Http: []*networking.HTTPRoute{{
		Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: "pay.example.com"}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	up.Set("VirtualService", mcp.Resource{Namespace: "shop", Name: "pay", Body: body})
	state := t.TempDir()
	flags := []string{"--mcp-upstream", "prod=xds://" + at, "--state-dir", state}
	r := (&running{dir: t.TempDir(), log: newLogbook()}).start(t, flags...)
	r.hosts(t, "pay.example.com")
	up.Misbehave(func(f *mcptest.Faults) { f.Empty = true })
	up.Drop()
	check := func(r *running) {
		t.Helper()
		items := []string{}
		for _, p := range r.holds(t, "prod", 2).Problems {
			items = append(items, p.Item)
		}
		if want := "ServiceEntry/shop/pay-example-com/pay.example.com VirtualService/shop/pay"; strings.Join(items, " ") != want {
			t.Errorf("%s, want %s", items, want)
		}
		if _, metrics := get(t, "http://"+r.monitoring+"/metrics"); !strings.Contains(metrics, `isthmus_registry_held_back{registry="mcp/prod"} 2`) {
			t.Error("the metric does not say so")
		}
		if got := command(t, "registry", "explain", "prod", "--hub", r.url); !strings.Contains(got.stdout, "2 services and objects") {
			t.Errorf("%s", got.stdout)
		}
		if got := command(t, "service", "explain", "pay.example.com", "--hub", r.url); !strings.Contains(got.stdout, "of its 1 endpoints 0 are left") {
			t.Errorf("%s", got.stdout)
		}
		r.hosts(t, "pay.example.com")
	}
	check(r)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r = (&running{dir: t.TempDir(), log: newLogbook()}).start(t, flags...) // while the server is empty still
	check(r)
	up.Misbehave(func(f *mcptest.Faults) { f.Empty = false })
	up.Push("ServiceEntry")
	up.Push("VirtualService")
	r.holds(t, "prod", 0)
}

// A server that is declared has the policy that its Registry says, for configuration too.
func TestDeclaredMCPServerHoldsBack(t *testing.T) {
	t.Parallel()
	for policy, held := range map[string]int{"{mode: hold, duration: 1h}": 1, "{mode: immediate}": 0} {
		up, at := mcptest.Listen(t)
		up.Set("ServiceEntry", mcpEntry(t, "pay.example.com", "10.1.0.1"), mcpEntry(t, "mail.example.com", "10.1.0.2"))
		r := startHub(t, map[string]string{
			"east/a.yaml": strings.Replace(registryYAML("a", "xds://"+at, ", empty: "+policy), "provider: consul", "provider: mcp", 1),
		}, "--cluster-id", "east")
		r.hosts(t, "mail.example.com", "pay.example.com")
		up.Delete("ServiceEntry", "shop/mail-example-com")
		if held == 0 {
			r.hosts(t, "pay.example.com")
		}
		if x := r.holds(t, "a", held); held > 0 && x.Problems[0].Item != "ServiceEntry/shop/mail-example-com/mail.example.com" {
			t.Errorf("%+v", x.Problems)
		}
	}
}
