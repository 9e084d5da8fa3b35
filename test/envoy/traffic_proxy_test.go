package envoy_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// byProxy asks the HTTP proxy at a port of the client's own machine, as programs do that are told of one.
func (w *roads) byProxy(port uint16, to string) (reply, error) {
	client := w.client.HTTPClient()
	client.Transport.(*http.Transport).Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	return answer(client.Get(to))
}

// httpProxies: a client that knows of nothing but an HTTP proxy reaches services at any of their ports, hosts of VirtualServices,
// and what is unknown where the mesh lets it.
func (w *roads) httpProxies(t *testing.T) {
	const meshPort, ownPort = 15007, 3128
	until := func(port uint16, url, what string, wanted func(reply) bool) (got reply) {
		t.Helper()
		envoytest.Eventually(t, limit, what, func() (err error) {
			if got, err = w.byProxy(port, url); err == nil && !wanted(got) {
				err = fmt.Errorf("got %+v", got)
			}
			return err
		})
		return got
	}
	known := func(r reply) bool { return r.Name == "v1" || r.Name == "v2" }
	w.serves(t, "proxied", "http", 80, webPort)
	w.serves(t, "proxied-too", "http", 8088, webPort, versions("proxied-too", ""), routes("proxied-too", `
http:
- match: [{uri: {prefix: /forbidden}}]
  directResponse: {status: 403}
- rewrite: {uri: /v2/}
  match: [{uri: {prefix: /}}]
  route: [{destination: {host: HOST, subset: v2}}]`))
	w.write(t, "east/beside.yaml", object("VirtualService", "beside", "hosts: [beside.example]\nhttp: [{route: [{destination: {host: "+host("proxied")+"}}]}]"))
	outside := "http://" + podPort(w.outside, 80) + "/"

	w.write(t, "mesh.yaml", registryOnly+fmt.Sprintf("\nproxyHttpPort: %d", meshPort))
	got := until(meshPort, "http://"+host("proxied")+"/a?b=c", "a service", known)
	if got.Path != "/a?b=c" || got.Host != host("proxied") {
		t.Errorf("the service sees %s%s", got.Host, got.Path)
	}
	until(meshPort, "http://"+host("proxied")+":80/", "a service with its port", known)
	got = until(meshPort, "http://"+host("proxied-too")+":8088/x", "a service at another port, as its routes say", named("v2"))
	if got.Path != "/v2/x" {
		t.Errorf("the service sees %s", got.Path)
	}
	until(meshPort, "http://"+host("proxied-too")+":8088/forbidden", "what a route refuses", status(403))
	until(meshPort, "http://beside.example/", "a host that VirtualServices alone have", known)
	until(meshPort, "http://"+host("proxied-too")+":8081/", "a port that the service does not have to be refused", status(502))
	until(meshPort, outside, "what is not known to be refused", status(502))

	w.write(t, "mesh.yaml", fmt.Sprintf("outboundTrafficPolicy: {mode: ALLOW_ANY}\nproxyHttpPort: %d", meshPort))
	got = until(meshPort, outside+"y", "what is not known to be let through", named("outside"))
	if got.Path != "/y" {
		t.Errorf("what is not known sees %s", got.Path)
	}
	if got, err := w.byProxy(meshPort, "http://"+host("proxied")+"/"); err != nil || !known(got) {
		t.Errorf("a service that is known: got %+v, %v", got, err)
	}

	w.write(t, "east/proxied-sidecar.yaml", object("Sidecar", "default", fmt.Sprintf(`
egress:
- port: {number: %d, name: proxy, protocol: HTTP_PROXY}
  bind: 127.0.0.1
  captureMode: NONE
  hosts: ["./%s"]
- hosts: ["*/*"]
outboundTrafficPolicy: {mode: REGISTRY_ONLY}`, ownPort, host("proxied-too"))))
	until(ownPort, "http://"+host("proxied-too")+":8088/x", "a service that the Sidecar's HTTP proxy imports", named("v2"))
	until(ownPort, "http://"+host("proxied")+"/", "a service that it does not import to be refused", status(502))
	until(meshPort, "http://"+host("proxied")+"/", "a service by the mesh's HTTP proxy", known)
	until(meshPort, outside, "what is not known to be refused, as the Sidecar has it", status(502))

	w.remove(t, "east/proxied-sidecar.yaml")
	w.remove(t, "east/beside.yaml")
	w.write(t, "mesh.yaml", registryOnly)
	envoytest.Eventually(t, limit, "nothing to listen there any more", func() error {
		_, err := w.byProxy(meshPort, "http://"+host("proxied")+"/")
		return mustFail("an answer", err)
	})
}
