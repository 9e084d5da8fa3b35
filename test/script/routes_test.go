package script

import (
	"fmt"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// routes gives "TABLE HOST ROUTE…" for each virtual host with the text in its name, whichever way it came.
func (p *proxy) routes(part string) (string, error) {
	var lines []string
	add := func(table string, h *routev3.VirtualHost) {
		if !strings.Contains(h.Name, part) {
			return
		}
		words := []string{table, strings.TrimPrefix(h.Name, table+"/")}
		for _, r := range h.Routes {
			words = append(words, lead(r))
		}
		lines = append(lines, strings.Join(words, " "))
	}
	for name, body := range p.State()[gen.RouteURL] {
		var m routev3.RouteConfiguration
		if err := proto.Unmarshal([]byte(body), &m); err != nil {
			return "", err
		}
		for _, h := range m.VirtualHosts {
			add(name, h)
		}
	}
	for name, body := range p.State()[gen.VirtualHostURL] {
		var h routev3.VirtualHost
		if err := proto.Unmarshal([]byte(body), &h); err != nil {
			return "", err
		}
		table, _, _ := strings.Cut(name, "/")
		add(table, &h)
	}
	return text(lines), nil
}

// lead says where a route leads, and what of a request chooses the endpoint.
func lead(r *routev3.Route) string {
	switch {
	case r.GetRedirect() != nil:
		return r.GetRedirect().GetPathRedirect()
	case r.GetDirectResponse() != nil:
		return fmt.Sprint(r.GetDirectResponse().Status)
	}
	out := r.GetRoute().GetCluster()
	for _, h := range r.GetRoute().GetHashPolicy() {
		out += "#" + h.GetHeader().GetHeaderName()
	}
	return out
}
