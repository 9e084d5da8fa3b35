package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestRender(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"render-endpoints": "testdata/offline/mesh --proxy web-1.shop --type eds -o json",
		"render-imagine":   "testdata/offline/mesh --proxy sidecar~10.9.9.9~new-1.bank~bank.svc.cluster.local --type eds",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := command(t, append([]string{"render"}, strings.Fields(args)...)...)
			if got.code != exitOK || got.stderr != "" {
				t.Fatalf("exit code %d: %s", got.code, got.stderr)
			}
			compare(t, name+".golden", got.stdout)
		})
	}
}

// What foreign registries may have is not there, and what depends on it is rendered all the same.
func TestRenderWithoutForeignRegistries(t *testing.T) {
	t.Parallel()
	got := command(t, "render", "testdata/offline-foreign", "--proxy", "any.shop", "--label", "app=web", "--type", "cds", "-o", "json")
	if got.code != exitOK || got.stderr != "" || !strings.Contains(got.stdout, "outbound|80||checkout.global") || strings.Contains(got.stdout, ".nacos") {
		t.Errorf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}
}

// TestRenderFormatsAgree: both formats have all types, and say the same.
func TestRenderFormatsAgree(t *testing.T) {
	t.Parallel()
	asJSON := command(t, "render", "testdata/offline/mesh", "--proxy", "web-1", "-o", "json")
	asYAML := command(t, "render", "testdata/offline/mesh", "--proxy", "web-1")
	var list []any
	if err := json.Unmarshal([]byte(asJSON.stdout), &list); err != nil {
		t.Fatal(err, asJSON.stderr)
	}
	docs := strings.Split(asYAML.stdout, "--- # ")[1:]
	if len(docs) != len(list) {
		t.Fatalf("%d resources and %d documents", len(list), len(docs))
	}
	seen := map[string]bool{}
	for i, d := range docs {
		head, body, _ := strings.Cut(d, "\n")
		typ, _, _ := strings.Cut(head, " ")
		seen[typ] = true
		got, err := yaml.YAMLToJSON([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(encoded(list[i])) {
			t.Errorf("%s differs", head)
		}
	}
	for _, typ := range []string{"cds", "eds", "lds", "rds", "vhds"} {
		if !seen[typ] {
			t.Errorf("there are no %s", typ)
		}
	}
}

func TestRenderOfANodeFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "node.yaml")
	text := "id: sidecar~10.10.0.4~web-1.shop~shop.svc.cluster.local\ncluster: web\nmetadata: {CLUSTER_ID: Kubernetes, NAMESPACE: shop}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	by := command(t, "render", "testdata/offline/mesh", "--node", file, "--type", "rds")
	as := command(t, "render", "testdata/offline/mesh", "--proxy", "web-1.shop", "--type", "rds")
	if by.code != exitOK || by.stdout != as.stdout {
		t.Errorf("exit code %d: %s%s", by.code, by.stderr, by.stdout)
	}
	meta := command(t, "render", "testdata/offline/mesh", "--proxy", "web-1.shop", "--type", "lds", "--metadata", "INTERCEPTION_MODE=NONE", "-o", "json")
	if meta.code != exitOK || strings.Contains(meta.stdout, `"virtualOutbound"`) {
		t.Errorf("metadata has no effect: exit code %d: %s", meta.code, meta.stderr)
	}
}

func TestRenderRefuses(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"":                                    {exitUsage, "name a folder"},
		"testdata/offline/mesh":               {exitUsage, "--proxy"},
		"testdata/nothing --proxy a.b":        {exitUsage, "no such file"},
		"testdata/offline/mesh --proxy a.b":   {exitNotFound, "no workload"},
		"testdata/offline --proxy web-1.shop": {exitUsage, "ambiguous"},
		"testdata/offline/mesh --proxy web-1.shop --type xds":             {exitUsage, "--type xds"},
		"testdata/offline/mesh --proxy web-1.shop -o table":               {exitUsage, "-o table"},
		"testdata/offline/mesh --proxy a.b --label a=b --ip 1.2.3":        {exitUsage, "no address"},
		"testdata/offline/mesh --node testdata/nothing":                   {exitUsage, "--node"},
		"testdata/offline/mesh --node testdata/offline/wrong/routes.yaml": {exitUsage, "--node"},
		"testdata/offline/mesh --node /dev/null":                          {exitUsage, "with id and metadata"},
		"testdata/offline/mesh --diff -":                                  {exitUsage, "--diff -"},
		"testdata/offline/mesh --diff testdata/offline/mesh -o yaml":      {exitUsage, "want text or json"},
		"testdata/offline/mesh --proxy a.b --label a/b/c=x":               {exitUsage, "--label"},
		"testdata/offline/mesh --proxy a.b --label a=x*y":                 {exitUsage, "--label"},
		"testdata/offline/mesh --proxy a.b --label =x":                    {exitUsage, "--label"},
		"testdata/offline/mesh --proxy web-1.shop --metadata LABELS=x":    {exitUsage, "use --label"},
		"testdata/offline/mesh --proxy web-1.shop --metadata =x":          {exitUsage, "--metadata"},
		"testdata/offline/mesh --diff testdata/nothing":                   {exitUsage, "--diff"},
		"testdata/offline/mesh --diff testdata/offline/mesh -o sarif":     {exitUsage, "-o sarif"},
	} {
		got := command(t, append([]string{"render"}, strings.Fields(args)...)...)
		if got.code != want.code || !strings.Contains(got.stderr, want.says) {
			t.Errorf("render %s: exit code %d: %s", args, got.code, got.stderr)
		}
	}
}

// TestRenderWithoutClusters: a workload can't be imagined in no cluster.
func TestRenderWithoutClusters(t *testing.T) {
	t.Parallel()
	got := command(t, "render", t.TempDir(), "--proxy", "a.b", "--label", "x=y")
	if got.code != exitUsage || !strings.Contains(got.stderr, "name one with --cluster") {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
}

// TestRenderDiff compares what proxies are sent; the exit codes are those of diff.
func TestRenderDiff(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		args string
		code int
	}{
		"render-diff":       {"testdata/offline/mesh --diff testdata/offline/changed", exitFailure},
		"render-diff-json":  {"testdata/offline/mesh --diff testdata/offline/changed --proxy web-1.shop -o json", exitFailure},
		"render-diff-gone":  {"testdata/offline/mesh --diff testdata/offline/mesh/services.yaml --proxy web-1.shop --type cds,vhds", exitFailure},
		"render-diff-equal": {"testdata/offline/mesh --diff testdata/offline/mesh", exitOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := command(t, append([]string{"render"}, strings.Fields(x.args)...)...)
			if got.code != x.code {
				t.Errorf("exit code %d: %s", got.code, got.stderr)
			}
			compare(t, name+".golden", got.stdout+got.stderr)
		})
	}
}

// TestRenderImagines: a repository without workloads has proxies all the same.
func TestRenderImagines(t *testing.T) {
	t.Parallel()
	o := offlineOptions{domain: "cluster.local", systemNamespace: "istio-system", timeout: patience}
	o.kube.configFrom = fromPrimary
	read, err := o.load(t.Context(), []string{"testdata/offline-gateway"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range imagine(read) {
		got = append(got, p.node.Id)
	}
	want := []string{
		"sidecar~192.0.2.1~any.edge~edge.svc.cluster.local", "sidecar~192.0.2.1~any.shop~shop.svc.cluster.local",
		"router~192.0.2.1~gateway-public.edge~edge.svc.cluster.local",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRenderInline: virtual hosts are in their tables, or next to them, as the hub's flag says.
func TestRenderInline(t *testing.T) {
	t.Parallel()
	for flag, hosts := range map[string]int{"--vhds=true": 2, "--vhds=false": 0} {
		got := command(t, "render", "testdata/offline/mesh", "--proxy", "web-1.shop", "--type", "vhds", "-o", "json", flag)
		var list []any
		if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || len(list) != hosts {
			t.Errorf("%s: %d virtual hosts, %v", flag, len(list), err)
		}
	}
}

func TestDiffValues(t *testing.T) {
	t.Parallel()
	value := func(s string) (v any) {
		if err := json.Unmarshal([]byte(s), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, x := range []struct{ before, after, want string }{
		{`{"a":1}`, `{"a":1}`, ``},
		{`{"a":1}`, `{"a":2,"b":true}`, `a: 1 -> 2|b: none -> true`},
		{`{"l":[1,2]}`, `{"l":[1,3,4]}`, `l[1]: 2 -> 3|l[2]: none -> 4`},
		{`{"l":[{"name":"x","v":1},{"name":"y"}]}`, `{"l":[{"name":"y"},{"name":"x","v":2}]}`, `l[x].v: 1 -> 2|l (order): ["x","y"] -> ["y","x"]`},
		{`{"l":[{"name":"x"}]}`, `{"l":[{"name":"z"}]}`, `l[x]: {"name":"x"} -> none|l[z]: none -> {"name":"z"}`},
		{`{"l":[{"name":"x"},{"name":"x"}]}`, `{"l":[{"name":"x"}]}`, `l[1]: {"name":"x"} -> none`},
		{`{"a":{"b":1}}`, `{"a":3}`, `a: {"b":1} -> 3`},
	} {
		var got []string
		for _, f := range diffValues("", value(x.before), value(x.after)) {
			got = append(got, f.Path+": "+valueText(f.Before)+" -> "+valueText(f.After))
		}
		if s := strings.Join(got, "|"); s != x.want {
			t.Errorf("%s, %s: %s, want %s", x.before, x.after, s, x.want)
		}
	}
}

// TestRenderDiffOfAGateway: what a change of routes does to a gateway is told without a workload of it.
func TestRenderDiffOfAGateway(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/offline-gateway/all.yaml")
	if err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), "/cart", "/basket", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	got := command(t, "render", "testdata/offline-gateway", "--diff", changed, "-o", "json")
	var groups []diffGroup
	if err := json.Unmarshal([]byte(got.stdout), &groups); err != nil || got.code != exitFailure {
		t.Fatal(err, got.code, got.stderr)
	}
	if len(groups) != 1 || !slices.Equal(groups[0].Proxies, []string{"gateway-public.edge in Kubernetes"}) || !strings.Contains(got.stdout, "/basket") {
		t.Errorf("%s", got.stdout)
	}
	route := command(t, "route", "explain", "--dir", "testdata/offline-gateway", "--proxy", "gateway-public.edge", "--label", "istio=ingressgateway", "GET", "http://shop.example.com/cart/1")
	if route.code != exitOK || !strings.Contains(route.stdout, "outbound|80||web.shop.svc.cluster.local") || !strings.Contains(route.stdout, "virtual-service/shop/public") {
		t.Errorf("exit code %d: %s%s", route.code, route.stdout, route.stderr)
	}
}

const (
	goodRoute    = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: r, namespace: shop}\nspec: {hosts: [ratings.shop.svc.cluster.local], http: [{route: [{destination: {host: ratings}}], timeout: 7s, retries: {attempts: 2, retryOn: 5xx}}]}\n"
	goodService  = "apiVersion: v1\nkind: Service\nmetadata: {name: ratings, namespace: shop}\nspec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}\n"
	otherService = "apiVersion: v1\nkind: Service\nmetadata: {name: other, namespace: shop}\nspec: {clusterIP: 10.0.0.2, ports: [{name: http, port: 80}]}\n"
)

// TestRenderDiffKeepsWhatAHubKeeps: a mistake in what is compared shows as what a running hub makes of it, and is told.
func TestRenderDiffKeepsWhatAHubKeeps(t *testing.T) {
	t.Parallel()
	badRoute := strings.Replace(goodRoute, "5xx", "5xxx", 1)
	unreadable := goodRoute + " x: : y\n"
	for name, x := range map[string]struct {
		before, after map[string]string
		code          int
		says          string
		changes       []string // without their proxies
	}{
		"refused":    {map[string]string{"a.yaml": goodRoute}, map[string]string{"a.yaml": badRoute}, exitUsage, "1 object is refused", nil},
		"unreadable": {map[string]string{"a.yaml": goodRoute}, map[string]string{"a.yaml": unreadable}, exitUsage, "1 file can't be read", nil},
		"moved":      {map[string]string{"a.yaml": goodRoute}, map[string]string{"b.yaml": badRoute}, exitUsage, "1 object is refused", nil},
		"new": {map[string]string{}, map[string]string{"a.yaml": badRoute, "b.yaml": otherService, "c.yaml": "{x: : y"}, exitUsage,
			"1 object is refused and 1 file can't be read", []string{"added other", "added other"}},
		"mended":   {map[string]string{"a.yaml": badRoute}, map[string]string{"a.yaml": goodRoute}, exitFailure, "before: 1 object is refused", []string{"changed ratings"}},
		"settings": {map[string]string{"mesh.yaml": "outboundTrafficPolicy: {mode: REGISTRY_ONLY}"}, map[string]string{"mesh.yaml": "outboundTrafficPolicy: : x"}, exitUsage, "1 file can't be read", nil},
		"deleted":  {map[string]string{"a.yaml": goodRoute}, map[string]string{}, exitFailure, "would be sent", []string{"changed ratings"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var dirs []string
			for _, files := range []map[string]string{x.before, x.after} {
				dir := t.TempDir()
				dirs = append(dirs, dir)
				files["services.yaml"] = goodService
				for f, text := range files {
					if err := os.WriteFile(filepath.Join(dir, f), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			got := command(t, "render", dirs[0], "--diff", dirs[1], "--type", "cds,vhds", "-o", "json")
			var groups []diffGroup
			if err := json.Unmarshal([]byte(got.stdout), &groups); err != nil {
				t.Fatal(err, got.stderr)
			}
			var changes []string
			for _, g := range groups {
				for _, c := range g.Changes {
					name := "ratings"
					if strings.Contains(c.Name, "other") {
						name = "other"
					}
					changes = append(changes, c.Change+" "+name)
				}
			}
			if got.code != x.code || !strings.Contains(got.stderr, x.says) || !slices.Equal(changes, x.changes) {
				t.Errorf("exit code %d: %s%s", got.code, got.stderr, got.stdout)
			}
			if name == "deleted" && strings.Contains(got.stderr, "see 'isthmus check'") {
				t.Errorf("nothing is wrong: %s", got.stderr)
			}
		})
	}
}

// A file that is compared with a file is its next version, whatever both are called.
func TestRenderDiffOfTwoFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	was, is := filepath.Join(dir, "was.yaml"), filepath.Join(dir, "is.yml")
	for file, text := range map[string]string{was: goodService + "---\n" + goodRoute, is: goodService + "---\n" + goodRoute + " x: : y\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := command(t, "render", was, "--diff", is)
	if got.code != exitUsage || got.stdout != "" || !strings.Contains(got.stderr, "0 of 1 proxies") || !strings.Contains(got.stderr, "1 file can't be read: see 'isthmus check'") {
		t.Errorf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}
}

// TestRenderTellsWhatIsRefused: of one state too, whatever is printed.
func TestRenderTellsWhatIsRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(file, []byte(goodService+"---\n"+strings.Replace(goodRoute, "5xx", "5xxx", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"render " + file + " --proxy any.shop --label a=b --type vhds", "route explain --dir " + file + " --proxy any.shop --label a=b GET http://ratings/"} {
		got := command(t, strings.Fields(args)...)
		if got.code != exitUsage || !strings.Contains(got.stdout, "ratings.shop") || !strings.Contains(got.stderr, "1 object is refused: see 'isthmus check'") {
			t.Errorf("%s: exit code %d: %s%s", args, got.code, got.stderr, got.stdout)
		}
	}
}
