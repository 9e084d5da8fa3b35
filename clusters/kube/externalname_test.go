package kube_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// A Service that becomes an ExternalName leads to nothing but that name, at its own port, whatever slices are
// left of it; and back.
func TestExternalNameHasNoSlices(t *testing.T) {
	t.Parallel()
	const slice = `
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: flip-1, namespace: shop, labels: {kubernetes.io/service-name: flip}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.0.1.50]}]`
	service := func(spec string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: flip, namespace: shop}\nspec: {" + spec + ", ports: [{name: http, port: 80, targetPort: 8080}]}"
	}
	own, external := service("clusterIP: 10.1.0.1"), service("type: ExternalName, externalName: example.org")
	s := load(t, own+slice)
	endpoints := func() string {
		var served, left []string
		for _, o := range s.State().Rows() {
			if row, ok := o.(*model.Endpoints); ok {
				for _, e := range row.Endpoints {
					served = append(served, fmt.Sprint(e.Addr.Host, e.Addr.AddrPort.Addr(), " ", e.Addr.AddrPort.Port()))
				}
				for _, l := range row.LeftOut {
					left = append(left, string(l.Reason)+" "+l.Addr.AddrPort.Addr().String())
				}
			}
		}
		return strings.Join(served, ", ") + "; " + strings.Join(left, ", ")
	}
	for _, step := range []struct{ service, want string }{
		{own, "10.0.1.50 8080; "}, {external, "example.orginvalid IP 80; NoService 10.0.1.50"}, {own, "10.0.1.50 8080; "},
	} {
		s.Apply(objects(t, step.service), nil)
		if got := endpoints(); got != step.want {
			t.Errorf("%q, want %q", got, step.want)
		}
	}
}

// An ExternalName says of which host it is another name, in one form however it is written.
func TestExternalNameAlias(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"type: ExternalName, externalName: Reviews.Shop.svc.cluster.local.": "reviews.shop.svc.cluster.local",
		"type: ExternalName, externalName: example.org":                     "example.org",
		"type: ExternalName, externalName: 'no name'":                       "",
		"clusterIP: 10.1.0.1, externalName: example.org":                    "",
	} {
		s := load(t, "apiVersion: v1\nkind: Service\nmetadata: {name: other, namespace: shop}\nspec: {"+spec+", ports: [{name: http, port: 80}]}")
		if svc := row[*model.Service](t, s, "Service/shop/other"); svc.AliasOf != want {
			t.Errorf("%s: alias of %q, want %q", spec, svc.AliasOf, want)
		}
	}
}
