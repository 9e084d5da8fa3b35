package evaluate

import (
	"net"
	"net/url"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// http routes a request.
func (c *Config) http(m *hcmv3.HttpConnectionManager, r *Request, out *Result) {
	if r.Protocol == TCP {
		out.Kind = Closed
		out.step("filter", m.StatPrefix, "it wants HTTP, and these bytes are none")
		return
	}
	asked := r.asked
	if !normalise(m, r) {
		out.Kind, out.Status = Direct, 400
		out.step("filter", m.StatPrefix, "it refuses the path "+asked)
		return
	}
	if r.Path != asked {
		out.step("filter", m.StatPrefix, "it reads the path as "+r.Path)
	}
	out.answers = true
	table, name := m.GetRouteConfig(), m.GetRouteConfig().GetName()
	if rds := m.GetRds(); rds != nil {
		table, name = c.routes[rds.RouteConfigName], rds.RouteConfigName
	}
	if table == nil {
		out.Kind, out.Status = NoRoute, 404
		out.step("route table", name, "the proxy was not sent it")
		return
	}
	out.step("route table", name, "the filter chain names it")
	host, why := c.virtualHost(table, r)
	if host == nil {
		out.Kind, out.Status = NoRoute, 404
		out.step("virtual host", "", "none is for "+r.Authority)
		return
	}
	out.step("virtual host", host.Name, why, configOf(host.Metadata)...)
	if host.RequireTls == routev3.VirtualHost_ALL && r.Scheme != "https" {
		out.Kind, out.Status, out.Location = Redirect, 301, "https://"+withoutPort(r.Authority, "80")+r.Path
		return
	}
	for _, route := range host.Routes {
		if matches(route.GetMatch(), r) {
			out.step("route", route.Name, routeWhy(route.Match), configOf(route.Metadata)...)
			c.act(route, r, out)
			return
		}
	}
	out.Kind, out.Status = NoRoute, 404
	out.step("route", "", "none matches")
}

// virtualHost finds the virtual host of a request: that with the very domain, else the longest "*suffix", else the
// longest "prefix*", else "*".
func (c *Config) virtualHost(table *routev3.RouteConfiguration, r *Request) (found *routev3.VirtualHost, why string) {
	host := strings.ToLower(r.Authority)
	if table.IgnorePortInHostMatching {
		host = withoutAnyPort(host)
	}
	const exact, suffix, prefix, all = 3, 2, 1, 0
	kind, length, domain := -1, -1, ""
	for _, v := range c.virtualHosts(table) {
		for _, d := range v.Domains {
			d = strings.ToLower(d)
			k, n := -1, len(d)
			switch {
			case d == host:
				k = exact
			case d == "*":
				k = all
			case strings.HasPrefix(d, "*") && len(host) >= len(d) && strings.HasSuffix(host, d[1:]):
				k = suffix
			case strings.HasSuffix(d, "*") && len(host) >= len(d) && strings.HasPrefix(host, d[:len(d)-1]):
				k = prefix
			}
			if k > kind || k == kind && k >= 0 && n > length {
				found, kind, length, domain = v, k, n, d
			}
		}
	}
	if found == nil {
		return nil, ""
	}
	return found, "domain " + domain + " is the closest to " + host
}

func withoutAnyPort(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		if strings.Contains(h, ":") {
			return "[" + h + "]"
		}
		return h
	}
	return host
}

func withoutPort(host, port string) string { return strings.TrimSuffix(host, ":"+port) }

// act does what a matched route says.
func (c *Config) act(route *routev3.Route, r *Request, out *Result) {
	if f := route.TypedPerFilterConfig["envoy.filters.http.fault"]; f != nil {
		out.Faults = faults(decode(f, &faultv3.HTTPFault{}))
	}
	switch a := route.Action.(type) {
	case *routev3.Route_Route:
		c.forward(route.Match, a.Route, r, out)
	case *routev3.Route_Redirect:
		out.Kind, out.Status = Redirect, redirectCodes[a.Redirect.ResponseCode]
		out.Location = location(route.Match, a.Redirect, r)
	case *routev3.Route_DirectResponse:
		out.Kind, out.Status = Direct, int(a.DirectResponse.Status)
	default:
		out.Kind = Undecidable
	}
}

func faults(f *faultv3.HTTPFault) (out []string) {
	share := func(p interface{ GetNumerator() uint32 }, of string) string { return uintText(p.GetNumerator()) + of }
	denominators := []string{"%", " in ten thousand", " in a million"}
	if d := f.Delay; d != nil {
		out = append(out, "delay "+d.GetFixedDelay().AsDuration().String()+", "+share(d.GetPercentage(), denominators[d.GetPercentage().GetDenominator()]))
	}
	if a := f.Abort; a != nil {
		what := "abort with " + uintText(a.GetHttpStatus())
		if g, ok := a.ErrorType.(*faultv3.FaultAbort_GrpcStatus); ok {
			what = "abort with gRPC status " + uintText(g.GrpcStatus)
		}
		out = append(out, what+", "+share(a.GetPercentage(), denominators[a.GetPercentage().GetDenominator()]))
	}
	return out
}

func (c *Config) forward(m *routev3.RouteMatch, a *routev3.RouteAction, r *Request, out *Result) {
	if p := rewritten(m, a.PrefixRewrite, a.RegexRewrite, r.Path); p != r.asked {
		out.Path = p
	}
	if h := a.GetHostRewriteLiteral(); h != "" && h != r.Authority {
		out.Authority = h
	}
	if t := a.GetTimeout(); t != nil && t.AsDuration() > 0 {
		out.Timeout = t.AsDuration().String()
	}
	for _, p := range a.RequestMirrorPolicies {
		out.Mirrors = append(out.Mirrors, p.Cluster)
	}
	switch s := a.ClusterSpecifier.(type) {
	case *routev3.RouteAction_Cluster:
		c.send(out, s.Cluster)
	case *routev3.RouteAction_ClusterHeader:
		c.send(out, r.Headers[strings.ToLower(s.ClusterHeader)])
	case *routev3.RouteAction_WeightedClusters:
		total := uint64(0)
		for _, w := range s.WeightedClusters.Clusters {
			total += uint64(w.GetWeight().GetValue())
		}
		for _, w := range s.WeightedClusters.Clusters {
			c.share(out, w.Name, uint64(w.GetWeight().GetValue()), total)
			if h := w.GetHostRewriteLiteral(); h != "" {
				out.Authority = h
			}
		}
	default:
		out.Kind = Undecidable
	}
}

var redirectCodes = map[routev3.RedirectAction_RedirectResponseCode]int{
	routev3.RedirectAction_MOVED_PERMANENTLY: 301, routev3.RedirectAction_FOUND: 302, routev3.RedirectAction_SEE_OTHER: 303,
	routev3.RedirectAction_TEMPORARY_REDIRECT: 307, routev3.RedirectAction_PERMANENT_REDIRECT: 308,
}

// location is where a redirect sends a client (RedirectAction).
func location(m *routev3.RouteMatch, a *routev3.RedirectAction, r *Request) string {
	scheme := r.Scheme
	switch s := a.SchemeRewriteSpecifier.(type) {
	case *routev3.RedirectAction_HttpsRedirect:
		if s.HttpsRedirect {
			scheme = "https"
		}
	case *routev3.RedirectAction_SchemeRedirect:
		scheme = s.SchemeRedirect
	}
	host := r.Authority
	if a.HostRedirect != "" {
		host = a.HostRedirect
	}
	defaults := map[string]string{"http": "80", "https": "443"}
	switch {
	case a.PortRedirect != 0:
		host = withoutAnyPort(host) + ":" + uintText(a.PortRedirect)
	case scheme != r.Scheme:
		host = withoutPort(host, defaults[r.Scheme])
	}
	p, query, has := strings.Cut(r.Path, "?")
	switch x := a.PathRewriteSpecifier.(type) {
	case *routev3.RedirectAction_PathRedirect:
		p = x.PathRedirect
		has = has && !strings.Contains(p, "?")
	case *routev3.RedirectAction_PrefixRewrite:
		p = rewritten(m, x.PrefixRewrite, nil, p)
	case *routev3.RedirectAction_RegexRewrite:
		p = rewritten(m, "", x.RegexRewrite, p)
	}
	if has && !a.StripQuery {
		p += "?" + query
	}
	return scheme + "://" + host + p
}

func queryOf(r *Request) url.Values {
	out := url.Values{}
	_, query, _ := strings.Cut(r.Path, "?")
	for pair := range strings.SplitSeq(query, "&") { // as it is written: nothing is decoded
		if k, v, _ := strings.Cut(pair, "="); k != "" {
			out.Add(k, v)
		}
	}
	return out
}
