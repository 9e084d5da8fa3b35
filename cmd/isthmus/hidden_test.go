package main

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
)

const sentinel = "s3ntinel"

// hiddenFiles write a password down in every kind of address that people write.
func hiddenFiles() map[string]string {
	registry := func(name, spec string) string {
		return "apiVersion: isthmus.io/v1alpha1\nkind: Registry\nmetadata: {name: " + name + ", namespace: istio-system}\nspec: {" + strings.ReplaceAll(spec, "PW", "user:"+sentinel) + "}\n"
	}
	return map[string]string{
		"east/services.yaml": serviceYAML("east", "10.1.0.1"),
		"east/url.yaml":      registry("url", `provider: consul, addresses: ["http://PW@127.0.0.1:1", "http://PW@127.0.0.1:1"]`),
		"east/host.yaml":     registry("host", `provider: nacos, addresses: ["PW@127.0.0.1:1"]`),
		"east/scheme.yaml":   registry("scheme", `provider: nacos, addresses: ["PW@ftp://127.0.0.1:1"]`),
		"east/slash.yaml":    registry("slash", `provider: mcp, addresses: ["xds://user:x/`+sentinel+`@127.0.0.1:1"]`),
		"east/servers.yaml":  registry("servers", `provider: nacos, addresses: [], nacos: {addressServer: "http://PW@127.0.0.1:1/list"}`),
		"east/query.yaml":    registry("query", `provider: consul, addresses: ["127.0.0.1:1?token=PW", "http://127.0.0.1:1/#PW"]`),
		"east/asked.yaml":    registry("asked", `provider: nacos, addresses: ["127.0.0.1:1"], nacos: {addressServer: "http://127.0.0.1:1/list?accessKey=`+sentinel+`"}`),
		"east/bridge.yaml": strings.ReplaceAll(`
apiVersion: networking.higress.io/v1
kind: McpBridge
metadata: {name: default, namespace: istio-system}
spec:
  registries:
  - {type: static, name: billing, domain: "10.9.0.4:7001,PW@10.9.0.5:80", port: 80}
  - {type: nacos2, name: domain, domain: "PW@127.0.0.1", port: 1}
  - {type: nacos2, name: servers, nacosAddressServer: "http://PW@127.0.0.1:1"}
  - {type: nacos2, name: plain, nacosAddressServer: "PW@127.0.0.1:1", mcpServerBaseUrl: "https://PW@mcp.example.com/"}
  - {type: consul, name: query, domain: "127.0.0.1?token=PW", port: 1}
  - {type: consul, name: scheme, domain: "http://PW@127.0.0.1", port: 1}
  - {type: eureka, name: eureka, domain: "PW@127.0.0.1", port: 1, metadata: {url: "https://PW@example.com"}}
`, "PW", "user:"+sentinel),
		"east/filter.yaml": `
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: odd, namespace: istio-system}
spec:
  configPatches:
  - applyTo: CLUSTER
    patch: {operation: ADD, value: {name: odd, alt_stat_name: "https://user:` + sentinel + `@example.com"}}
`,
		"mesh.yaml": `
configSources: [{address: "xds://user:` + sentinel + `@127.0.0.1:1"}, {address: "user:` + sentinel + `@127.0.0.1:1"}]
caCertificates: [{spiffeBundleUrl: "https://user:` + sentinel + `@127.0.0.1:1"}]
`,
	}
}

// TestAddressesAreShownWithoutPasswords: what is written down in an address, where it does not belong, is shown nowhere: on no debug page, in no log, by
// no command.
func TestAddressesAreShownWithoutPasswords(t *testing.T) {
	t.Parallel()
	files := hiddenFiles()
	r := startHub(t, files, "--cluster-id", "east", "--sync-timeout", "1s", "--registry-secrets-dir", t.TempDir())
	r.untilReady(t)
	r.log.until(t, "the bridge's findings", func() bool {
		_, text := get(t, r.url+"/debug/findings")
		return strings.Contains(text, "registries[2].nacosAddressServer")
	})
	texts := map[string]string{"the log": r.log.String()}
	for _, p := range debug.Paths() {
		_, texts[p.Pattern] = get(t, r.url+p.Pattern)
	}
	_, texts["servicez"] = get(t, r.url+"/debug/servicez?host=billing.static&namespace=istio-system")
	for _, args := range []string{
		"registry list -o wide", "registry list -o json", "registry explain billing", "registry explain servers", "registry explain asked", "registry explain asked -o json", "cluster list -o wide", "findings", "findings -o json", "service explain billing.static",
	} {
		got := command(t, append(strings.Fields(args), "--hub", r.url)...)
		texts[args] = got.stdout + got.stderr
	}
	checked := command(t, "check", r.dir)
	texts["check"] = checked.stdout + checked.stderr
	upstream := command(t, "serve", "--mcp-upstream", "xds://user:"+sentinel+"@127.0.0.1:1")
	texts["--mcp-upstream"] = upstream.stdout + upstream.stderr
	for where, text := range texts {
		for line := range strings.SplitSeq(text, "\n") {
			if strings.Contains(line, sentinel) {
				t.Errorf("%s tells the password: %s", where, line)
			}
		}
	}
	for where, want := range map[string][]string{
		"/debug/registries": {"http://127.0.0.1:1/list?…"},
		"/debug/configz":    {"http://…@127.0.0.1:1", "https://…@mcp.example.com", "https://…@example.com"},
		"/debug/mesh":       {"xds://…@127.0.0.1:1"},
		"/debug/findings": {
			"\"url\"", "\"host\"", "\"scheme\"", "\"slash\"", "registries[0].domain", "registries[1].domain", "registries[3].nacosAddressServer", "\"query\"", "registries[4].domain", "user or a password",
		},
		"check":          {"Registry", "user or a password"},
		"--mcp-upstream": {"is not HOST:PORT"},
	} {
		for _, text := range want {
			if !strings.Contains(texts[where], text) {
				t.Errorf("%s has no %q:\n%s", where, text, texts[where])
			}
		}
	}
}

// oddSecrets are Secrets for registries, most of them of no use, with a sentinel in all that they hold.
func oddSecrets(t *testing.T) map[string]map[string]string {
	t.Helper()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authorityDER(t)}))
	file := filepath.Join(t.TempDir(), sentinel+".pem")
	if err := os.WriteFile(file, []byte(ca), 0o600); err != nil {
		t.Fatal(err)
	}
	odd := "-----BEGIN " + sentinel + "-----\nAAAA\n-----END " + sentinel + "-----\n"
	out := map[string]map[string]string{
		"file":    {"ca.crt": file, "tls.crt": file, "tls.key": file},
		"garbage": {"ca.crt": sentinel, "tls.crt": sentinel, "tls.key": sentinel},
		"block":   {"ca.crt": odd, "tls.crt": odd, "tls.key": odd},
		"pair":    {"ca.crt": "# " + sentinel + "\n" + ca, "tls.crt": sentinel + "\n" + ca, "tls.key": odd + ca},
		"bag":     {"ca.crt": "Bag Attributes\n    friendlyName: " + sentinel + "\n" + ca},
	}
	for _, data := range out {
		data["token"] = sentinel + "\x01" + sentinel // which no header may hold
		data["username"], data["password"] = sentinel, sentinel+"\n"+sentinel
		data["accessKey"], data["secretKey"] = sentinel, sentinel
	}
	return out
}

// authorityDER is the certificate of an authority.
func authorityDER(t *testing.T) []byte {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	return s.Certificate().Raw
}

// TestContentOfSecretsIsShownNowhere: whatever is wrong with what a Secret holds, none of it is shown, or taken for the name of a file.
func TestContentOfSecretsIsShownNowhere(t *testing.T) {
	t.Parallel()
	dir, files := t.TempDir(), map[string]string{"east/services.yaml": serviceYAML("east", "10.1.0.1")}
	var names []string
	for kind, data := range oddSecrets(t) {
		if err := os.Mkdir(filepath.Join(dir, kind), 0o700); err != nil {
			t.Fatal(err)
		}
		for k, v := range data {
			if err := os.WriteFile(filepath.Join(dir, kind, k), []byte(v), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, provider := range []string{"consul", "nacos", "mcp"} {
			name, mode := provider+"-"+kind, "MUTUAL"
			if kind == "bag" {
				mode = "SIMPLE"
			}
			names = append(names, name)
			files["east/"+name+".yaml"] = strings.Replace(registryYAML(name, closedPort(t), ", credentials: {secretName: "+kind+"}, tls: {secretName: "+kind+", mode: "+mode+"}"), "provider: consul", "provider: "+provider, 1)
		}
	}
	r := startHub(t, files, "--cluster-id", "east", "--sync-timeout", "1s", "--registry-secrets-dir", dir)
	r.untilReady(t)
	for _, name := range names {
		r.log.until(t, "why "+name+" can't be read", func() bool {
			why := registryOf(t, r, name).Reason
			return why != "" && !strings.Contains(why, "has not been read yet")
		})
	}
	texts := map[string]string{"the log": r.log.String()}
	for _, p := range debug.Paths() {
		_, texts[p.Pattern] = get(t, r.url+p.Pattern)
	}
	for _, args := range []string{"registry list -o wide", "registry list -o json", "registry explain mcp-file", "findings"} {
		got := command(t, append(strings.Fields(args), "--hub", r.url)...)
		texts[args] = got.stdout + got.stderr
	}
	for where, text := range texts {
		for line := range strings.SplitSeq(text, "\n") {
			if strings.Contains(line, sentinel) {
				t.Errorf("%s tells what a Secret holds: %s", where, line)
			}
		}
	}
	for name, want := range map[string]string{
		"mcp-file": "there is no certificate in what is given", "mcp-pair": "it and its key can't be read", "mcp-bag": "connection refused",
		"consul-file": "hold no certificate", "consul-pair": "are no certificate with its key", "nacos-pair": "don't belong together", "nacos-file": "can't be read",
	} {
		if why := registryOf(t, r, name).Reason; !strings.Contains(why, want) {
			t.Errorf("%s: %q, want %q", name, why, want)
		}
	}
}
