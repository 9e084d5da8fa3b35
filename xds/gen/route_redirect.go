package gen

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"
)

// maxDirectResponse is the largest body of an answer of the proxy itself, in bytes.
const maxDirectResponse = 1 << 20

// keptPath starts a path in which the part of the request's path that the match left open is kept.
const keptPath = "%PREFIX()%"

var redirectCodes = map[uint32]routev3.RedirectAction_RedirectResponseCode{
	301: routev3.RedirectAction_MOVED_PERMANENTLY,
	302: routev3.RedirectAction_FOUND,
	303: routev3.RedirectAction_SEE_OTHER,
	307: routev3.RedirectAction_TEMPORARY_REDIRECT,
	308: routev3.RedirectAction_PERMANENT_REDIRECT,
}

// redirect sends the client elsewhere. A code that Envoy does not know is 301.
func (x *routeContext) redirect(out *routev3.Route, r *networking.HTTPRedirect) {
	a := &routev3.RedirectAction{HostRedirect: r.Authority, ResponseCode: redirectCodes[r.RedirectCode]}
	prefix, kept := strings.CutPrefix(r.Uri, keptPath)
	if r.PrefixRewrite != "" {
		prefix, kept = r.PrefixRewrite, true
	}
	if kept {
		a.PathRewriteSpecifier = &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: prefix}
	} else if r.Uri != "" {
		a.PathRewriteSpecifier = &routev3.RedirectAction_PathRedirect{PathRedirect: r.Uri}
	}
	scheme := r.Scheme
	if scheme != "" {
		a.SchemeRewriteSpecifier = &routev3.RedirectAction_SchemeRedirect{SchemeRedirect: scheme}
	} else if scheme = "http"; x.tls {
		scheme = "https"
	}
	a.PortRedirect = x.redirectPort(r, scheme)
	out.Action = &routev3.Route_Redirect{Redirect: a}
}

// redirectPort is 0 where the port goes without saying.
func (x *routeContext) redirectPort(r *networking.HTTPRedirect, scheme string) uint32 {
	port := r.GetPort()
	if d, ok := r.RedirectPort.(*networking.HTTPRedirect_DerivePort); ok && d.DerivePort == networking.HTTPRedirect_FROM_REQUEST_PORT {
		port = uint32(x.port)
	}
	if port == 80 && scheme == "http" || port == 443 && scheme == "https" {
		return 0
	}
	return port
}

// directResponse has the proxy answer itself. A body that is too large is left out.
func directResponse(out *routev3.Route, r *networking.HTTPDirectResponse) {
	answer(out, r.Status)
	a := out.GetDirectResponse()
	switch b := r.GetBody().GetSpecifier().(type) {
	case *networking.HTTPBody_String_:
		if len(b.String_) <= maxDirectResponse {
			a.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: b.String_}}
		}
	case *networking.HTTPBody_Bytes:
		if len(b.Bytes) <= maxDirectResponse {
			a.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b.Bytes}}
		}
	}
}
