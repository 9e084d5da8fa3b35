package main

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug/debugtest"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

const explainOffline = "route explain --dir testdata/offline/mesh --proxy ratings-1.shop "

func TestRouteExplain(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"route-weights":  "GET http://reviews/x",
		"route-header":   "--header user=jason GET http://reviews.shop/",
		"route-redirect": "GET http://reviews/old",
		"route-tcp":      "--tcp ratings:3306",
		"route-unknown":  "GET http://example.com/",
		"route-inbound":  "--inbound GET http://ratings/",
		"route-host":     "--header Host=reviews.shop GET http://10.96.0.1/%2e%2e/reviews/./0",
		"route-proxy":    "--metadata HTTP_PROXY_PORT=15007 --to 127.0.0.1:15007 --header user=jason GET http://reviews.shop:80/",
		"route-forward":  "--metadata HTTP_PROXY_PORT=15007 --to 127.0.0.1:15007 GET http://example.com:81/",
		"route-json":     "--header user=jason POST http://reviews:80/a?b=c -o json",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := command(t, strings.Fields(explainOffline+args)...)
			if got.code != exitOK || got.stderr != "" {
				t.Fatalf("exit code %d: %s", got.code, got.stderr)
			}
			compare(t, name+".golden", got.stdout)
		})
	}
}

// dumpOf renders what a proxy is sent, as a hub dumps it.
func dumpOf(t *testing.T, dir, proxy string) []byte {
	t.Helper()
	o := offlineOptions{domain: "cluster.local", systemNamespace: "istio-system", timeout: patience}
	o.kube.configFrom = fromPrimary
	read, err := o.load(t.Context(), []string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := (&proxyOptions{proxy: proxy}).find(read)
	if err != nil {
		t.Fatal(err)
	}
	list, err := p.render(read)
	if err != nil {
		t.Fatal(err)
	}
	clusters, endpoints, listeners, routes := &adminv3.ClustersConfigDump{}, &adminv3.EndpointsConfigDump{}, &adminv3.ListenersConfigDump{}, &adminv3.RoutesConfigDump{}
	for _, r := range list {
		body := &anypb.Any{TypeUrl: r.TypeURL, Value: r.Body}
		switch r.TypeURL {
		case gen.ClusterURL:
			clusters.DynamicActiveClusters = append(clusters.DynamicActiveClusters, &adminv3.ClustersConfigDump_DynamicCluster{Cluster: body})
		case gen.EndpointURL:
			endpoints.DynamicEndpointConfigs = append(endpoints.DynamicEndpointConfigs, &adminv3.EndpointsConfigDump_DynamicEndpointConfig{EndpointConfig: body})
		case gen.ListenerURL:
			listeners.DynamicListeners = append(listeners.DynamicListeners, &adminv3.ListenersConfigDump_DynamicListener{
				ActiveState: &adminv3.ListenersConfigDump_DynamicListenerState{Listener: body}})
		case gen.RouteURL:
			routes.DynamicRouteConfigs = append(routes.DynamicRouteConfigs, &adminv3.RoutesConfigDump_DynamicRouteConfig{RouteConfig: body})
		}
	}
	d := &adminv3.ConfigDump{}
	for _, m := range []proto.Message{clusters, endpoints, listeners, routes} {
		section, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		d.Configs = append(d.Configs, section)
	}
	raw, err := protojson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestRouteExplainAsksAHub: the same is said of a connected proxy; services and addresses are those of the hub.
func TestRouteExplainAsksAHub(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(debug.New(debugtest.Options(debugtest.Connected(dumpOf(t, "testdata/offline/mesh", "web-1.shop")))))
	t.Cleanup(s.Close)
	got := command(t, "route", "explain", "--proxy", "web-1.shop", "--cluster", "west", "--header", "user=jason", "GET", "http://reviews/", "--hub", s.URL, "-o", "json")
	var e routeExplanation
	if err := json.Unmarshal([]byte(got.stdout), &e); err != nil {
		t.Fatalf("exit code %d: %s", got.code, got.stderr)
	}
	if e.Destination != "10.2.0.10:80" || e.Result != "cluster" || len(e.Clusters) != 1 || e.Clusters[0].Cluster != "outbound|80|v2|reviews.shop.svc.cluster.local" {
		t.Errorf("%s", got.stdout)
	}
	if !slices.ContainsFunc(e.Steps, func(s routeStep) bool {
		return s.Step == "route" && slices.Equal(s.Config, []string{"virtual-service/shop/reviews"})
	}) {
		t.Errorf("%+v", e.Steps)
	}
	if got := command(t, "route", "explain", "--proxy", "nobody.shop", "GET", "http://reviews/", "--hub", s.URL); got.code != exitNotFound {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
}

func TestRouteExplainRefuses(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"route explain GET http://a/":                                             {exitUsage, "--proxy"},
		explainOffline + "GET":                                                    {exitUsage, "METHOD and URL"},
		explainOffline + "--tcp a:1 b":                                            {exitUsage, "HOST:PORT"},
		explainOffline + "--tcp a":                                                {exitUsage, "--tcp"},
		explainOffline + "GET ftp://a/":                                           {exitUsage, "want a URL"},
		explainOffline + "GET http://a:99999/":                                    {exitUsage, ""},
		explainOffline + "GET http://a --to b":                                    {exitUsage, "--to b"},
		explainOffline + "GET http://a --from b":                                  {exitUsage, "--from b"},
		explainOffline + "G(T http://a/":                                          {exitUsage, "no method"},
		explainOffline + "GET http://a/ --header a(b=c":                           {exitUsage, "--header"},
		"route explain --dir testdata/nothing --proxy a.b GET http://a/":          {exitUsage, "no such file"},
		explainOffline + "GET http://a -o sarif":                                  {exitUsage, "-o sarif"},
		"route explain --dir testdata/offline/mesh --proxy no.shop GET http://a/": {exitNotFound, "no workload"},
		"route explain --proxy a.b GET http://a/ --hub http://127.0.0.1:1":        {exitFailure, "no hub answers"},
	} {
		got := command(t, strings.Fields(args)...)
		if got.code != want.code || !strings.Contains(got.stderr, want.says) {
			t.Errorf("%s: exit code %d: %s", args, got.code, got.stderr)
		}
	}
}
