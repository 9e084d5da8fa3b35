package validate

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func httpRoutes(c *checker, s *networking.VirtualService) {
	names := once[string]{}
	var before []earlierMatch
	all := "" // the route that leaves nothing for those behind it
	for i, h := range s.Http {
		at := c.item("http", i)
		if h == nil {
			at.refuse(CodeRequired, "the route is empty")
			continue
		}
		if h.Name != "" && names[h.Name] {
			at.at("name").warn(CodeDuplicate, "another route is called %q too: statistics and logs can't tell them apart", h.Name)
		}
		names[h.Name] = true
		httpRoute(at, h, len(s.Hosts) > 0)
		if all != "" {
			at.warn(CodeUnreachable, "%s takes all requests before it: move it up, or give that one a match", all)
			continue
		}
		before = shadowed(at, h, before)
		if matchesAll(h) {
			all = at.path
		}
	}
}

func httpRoute(c *checker, h *networking.HTTPRoute, root bool) {
	action(c, h, root)
	for i, m := range h.Match {
		httpMatch(c.item("match", i), m)
	}
	httpDestinations(c, h.Route)
	redirect(c.at("redirect"), h.Redirect)
	directResponse(c.at("directResponse"), h.DirectResponse)
	rewrite(c.at("rewrite"), h.Rewrite)
	mirrors(c, h)
	c.at("timeout").duration(h.Timeout, time.Millisecond)
	retries(c.at("retries"), h.Retries)
	fault(c.at("fault"), h.Fault)
	cors(c.at("corsPolicy"), h.CorsPolicy)
	headers(c.at("headers"), h.Headers)
}

// action checks that a route does one thing.
func action(c *checker, h *networking.HTTPRoute, root bool) {
	set := map[string]bool{
		"route": len(h.Route) > 0, "redirect": h.Redirect != nil, "directResponse": h.DirectResponse != nil, "delegate": h.Delegate != nil && root,
	}
	var does []string
	for _, k := range sorted(set) {
		if set[k] {
			does = append(does, k)
		}
	}
	switch {
	case len(does) == 0 && h.Delegate == nil:
		c.refuse(CodeRequired, "the route does nothing: give it one of route, redirect, directResponse and delegate")
		return
	case len(does) > 1:
		c.refuse(CodeExclusive, "%s exclude each other: keep one of them", strings.Join(does, " and "))
	}
	if h.Delegate != nil {
		d := c.at("delegate")
		d.unless(h.Delegate.Name != "", CodeRequired, "it names no VirtualService")
		for _, x := range []struct {
			field string
			set   bool
		}{{"fault", h.Fault != nil}, {"mirror", h.Mirror != nil || len(h.Mirrors) > 0}, {"rewrite", h.Rewrite != nil}, {"timeout", h.Timeout != nil}, {"retries", h.Retries != nil}, {"corsPolicy", h.CorsPolicy != nil}, {"headers", h.Headers != nil}} {
			if x.set {
				c.at(x.field).warn(CodeIneffective, "a route that delegates passes it on only where the delegate's own route says nothing")
			}
		}
	}
	if h.Redirect != nil || h.DirectResponse != nil {
		c.unless(h.Rewrite == nil, CodeExclusive, "rewrite goes with route only: a redirect or directResponse sends nothing on")
		c.unless(h.Fault == nil, CodeExclusive, "fault goes with route only: a redirect or directResponse sends nothing on")
	}
	oneAuthority(c, h)
	if h.Redirect.GetPrefixRewrite() != "" {
		for i, m := range h.Match {
			_, prefix := m.GetUri().GetMatchType().(*networking.StringMatch_Prefix)
			c.item("match", i).at("uri").unless(m.GetUri() == nil || prefix, CodeExclusive, "a redirect with prefixRewrite needs matches by prefix")
		}
	}
}

// oneAuthority refuses to set the authority twice.
func oneAuthority(c *checker, h *networking.HTTPRoute) {
	n := 0
	if h.Rewrite.GetAuthority() != "" {
		n++
	}
	for _, values := range []map[string]string{h.Headers.GetRequest().GetSet(), h.Headers.GetRequest().GetAdd()} {
		for k, v := range values {
			if isAuthority(k) && (n > 0 || v != "") {
				n++
			}
		}
	}
	c.unless(n <= 1, CodeExclusive, "the authority is set more than once, by rewrite or headers: keep one of them")
}

func isAuthority(header string) bool {
	return strings.EqualFold(header, ":authority") || strings.EqualFold(header, "host")
}

func httpDestinations(c *checker, list []*networking.HTTPRouteDestination) {
	weights := make([]int32, len(list))
	for i, d := range list {
		at := c.item("route", i)
		if d == nil {
			at.refuse(CodeRequired, "the destination is empty")
			continue
		}
		destination(at.at("destination"), d.Destination)
		headers(at.at("headers"), d.Headers)
		weights[i] = d.Weight
	}
	weigh(c, weights)
}

// weigh checks that destinations get something.
func weigh(c *checker, weights []int32) {
	sum := int64(0)
	for i, w := range weights {
		c.item("route", i).at("weight").unless(w >= 0, CodeWeight, "%d is negative", w)
		sum += int64(max(w, 0))
	}
	if len(weights) > 1 {
		c.at("route").unless(sum > 0, CodeWeight, "all weights are 0: give the destinations weights")
	}
	c.at("route").unless(sum <= 1<<31-1, CodeWeight, "the weights are too large together")
}

func destination(c *checker, d *networking.Destination) {
	if d == nil {
		c.refuse(CodeRequired, "it names no host")
		return
	}
	if strings.HasPrefix(d.Host, "*") {
		c.at("host").unless(d.Host != "*" && isPattern(d.Host), CodeHost, "%q is not a DNS name", d.Host)
	} else {
		c.at("host").fqdn(d.Host)
	}
	if d.Subset != "" {
		c.at("subset").name(d.Subset)
	}
	if d.Port != nil {
		c.at("port.number").port(d.Port.Number)
	}
}

func httpMatch(c *checker, m *networking.HTTPMatchRequest) {
	if m == nil {
		c.refuse(CodeRequired, "the match is empty: leave it out to match everything")
		return
	}
	if m.Uri.GetPrefix() != "" || !isPrefixMatch(m.Uri) { // an empty one is one of all paths
		stringMatch(c.at("uri"), m.Uri)
	}
	impossible(c, m)
	stringMatch(c.at("scheme"), m.Scheme)
	stringMatch(c.at("method"), m.Method)
	stringMatch(c.at("authority"), m.Authority)
	for _, k := range sorted(m.Headers) {
		at := c.at("headers[" + k + "]")
		at.matched(k)
		stringMatch(at, m.Headers[k])
	}
	for _, k := range sorted(m.WithoutHeaders) {
		at := c.at("withoutHeaders[" + k + "]")
		at.matched(k)
		if m.WithoutHeaders[k].GetRegex() != "*" { // it is there
			stringMatch(at, m.WithoutHeaders[k])
		}
	}
	for _, k := range sorted(m.QueryParams) {
		at := c.at("queryParams[" + k + "]")
		at.unless(k != "", CodeRequired, "it names no parameter")
		if len(k) > longestParameter {
			at.warn(CodeIneffective, "no request matches it: proxies know names of parameters of at most %d bytes", longestParameter)
		}
		stringMatch(at, m.QueryParams[k])
	}
	c.at("port").optionalPort(m.Port)
	c.at("sourceLabels").labels(m.SourceLabels)
	gatewayNames(c, "gateways", m.Gateways)
	if m.SourceNamespace != "" {
		c.at("sourceNamespace").name(m.SourceNamespace)
	}
}

// longestParameter is the longest name of a query parameter that Envoy matches by.
const longestParameter = 1024

func isPrefixMatch(m *networking.StringMatch) bool {
	_, ok := m.GetMatchType().(*networking.StringMatch_Prefix)
	return ok
}

// stringMatch checks a match of text. Without a kind it matches whatever is there.
func stringMatch(c *checker, m *networking.StringMatch) {
	switch x := m.GetMatchType().(type) {
	case *networking.StringMatch_Prefix:
		c.unless(x.Prefix != "", CodeRequired, "the prefix is empty: leave the match out, or write what it begins with")
	case *networking.StringMatch_Regex:
		if c.unless(x.Regex != "", CodeRequired, "the regular expression is empty") {
			c.regex(x.Regex)
		}
	}
}

func redirect(c *checker, r *networking.HTTPRedirect) {
	if r == nil {
		return
	}
	c.unless(r.Uri != "" || r.Authority != "" || r.RedirectPort != nil || r.Scheme != "" || r.PrefixRewrite != "", CodeRequired, "it changes nothing: give it uri, authority, port or scheme")
	if r.RedirectCode != 0 {
		c.at("redirectCode").unless(slices.Contains([]uint32{301, 302, 303, 307, 308}, r.RedirectCode), CodeStatus, "%d is not the code of a redirect: it is one of 301, 302, 303, 307 and 308", r.RedirectCode)
	}
	c.at("scheme").unless(r.Scheme == "" || r.Scheme == "http" || r.Scheme == "https", CodeProtocol, "%q is neither http nor https", r.Scheme)
	if p, ok := r.RedirectPort.(*networking.HTTPRedirect_Port); ok {
		c.at("port").optionalPort(p.Port)
	}
	c.unless(r.Uri == "" || r.PrefixRewrite == "", CodeExclusive, "uri and prefixRewrite exclude each other: keep one of them")
}

func directResponse(c *checker, r *networking.HTTPDirectResponse) {
	if r == nil {
		return
	}
	c.at("status").unless(r.Status >= 200 && r.Status <= 599, CodeStatus, "%d is not a status code: it is between 200 and 599", r.Status)
	size := len(r.Body.GetString_())
	if b := r.Body.GetBytes(); b != nil {
		size = len(b)
	}
	const largest = 1 << 20
	if r.Body != nil {
		c.at("body").unless(size <= largest, CodeRange, "%d bytes are too many: at most %d", size, largest)
	}
}

func rewrite(c *checker, r *networking.HTTPRewrite) {
	if r == nil {
		return
	}
	c.unless(r.Uri != "" || r.Authority != "" || r.UriRegexRewrite != nil, CodeRequired, "it changes nothing: give it uri, authority or uriRegexRewrite")
	c.unless(r.Uri == "" || r.UriRegexRewrite == nil, CodeExclusive, "uri and uriRegexRewrite exclude each other: keep one of them")
	if x := r.UriRegexRewrite; x != nil {
		at := c.at("uriRegexRewrite")
		at.unless(x.Match != "" && x.Rewrite != "", CodeRequired, "match and rewrite are both needed")
		at.at("match").regex(x.Match)
	}
}

func mirrors(c *checker, h *networking.HTTPRoute) {
	c.unless(h.Mirror == nil || len(h.Mirrors) == 0, CodeExclusive, "mirror and mirrors exclude each other: keep mirrors")
	if h.Mirror != nil {
		destination(c.at("mirror"), h.Mirror)
	}
	//lint:ignore SA1019 objects may still have it
	if old := h.MirrorPercent; old != nil {
		c.at("mirrorPercent").percent(float64(old.Value))
	}
	if h.MirrorPercentage != nil {
		c.at("mirrorPercentage").percent(h.MirrorPercentage.Value)
	}
	for i, m := range h.Mirrors {
		at := c.item("mirrors", i)
		destination(at.at("destination"), m.GetDestination())
		if m.GetPercentage() != nil {
			at.at("percentage").percent(m.Percentage.Value)
		}
	}
}

// retryOn are the conditions that Envoy's router knows, for HTTP and gRPC.
var retryOn = []string{
	"5xx", "gateway-error", "reset", "reset-before-request", "connect-failure", "envoy-ratelimited", "retriable-4xx", "refused-stream", "retriable-status-codes",
	"retriable-headers", "http3-post-connect-failure", "cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable",
}

func retries(c *checker, r *networking.HTTPRetry) {
	if r == nil {
		return
	}
	c.at("attempts").atLeast(int64(r.Attempts), 0)
	switch {
	case r.Attempts != 0:
	case r.PerTryTimeout != nil, r.RetryOn != "", r.RetryRemoteLocalities != nil:
		c.refuse(CodeIneffective, "attempts is 0, so nothing is tried again: leave the rest out, or set attempts")
	case r.Backoff != nil:
		c.at("backoff").warn(CodeIneffective, "attempts is 0, so nothing is tried again: leave it out, or set attempts")
	}
	c.at("perTryTimeout").duration(r.PerTryTimeout, time.Millisecond)
	c.at("backoff").duration(r.Backoff, time.Millisecond)
	if r.RetryOn == "" {
		return
	}
	for on := range strings.SplitSeq(r.RetryOn, ",") {
		if n, err := strconv.Atoi(on); err == nil && http.StatusText(n) != "" {
			continue
		}
		c.at("retryOn").unless(slices.Contains(retryOn, on), CodeValue, "%q is not a condition on which a request is tried again: they are %s", on, strings.Join(retryOn, ", "))
	}
}

func fault(c *checker, f *networking.HTTPFaultInjection) {
	if f == nil {
		return
	}
	c.unless(f.Delay != nil || f.Abort != nil, CodeRequired, "it has neither delay nor abort")
	if d := f.Delay; d != nil {
		at := c.at("delay")
		switch x := d.HttpDelayType.(type) {
		case *networking.HTTPFaultInjection_Delay_FixedDelay:
			at.at("fixedDelay").duration(x.FixedDelay, time.Millisecond)
		case *networking.HTTPFaultInjection_Delay_ExponentialDelay:
			at.at("exponentialDelay").refuse(CodeIneffective, "exponential delays can't be served: use fixedDelay")
		default:
			at.warn(CodeRequired, "it has no fixedDelay, so nothing is delayed")
		}
		faultShare(at, d.Percentage)
	}
	if a := f.Abort; a != nil {
		at := c.at("abort")
		switch x := a.ErrorType.(type) {
		case *networking.HTTPFaultInjection_Abort_HttpStatus:
			at.at("httpStatus").unless(x.HttpStatus >= 200 && x.HttpStatus <= 599, CodeStatus, "%d is not a status code: it is between 200 and 599", x.HttpStatus)
		case *networking.HTTPFaultInjection_Abort_GrpcStatus:
			var code codes.Code
			err := code.UnmarshalJSON([]byte(`"` + x.GrpcStatus + `"`))
			at.at("grpcStatus").unless(err == nil && grpcName.MatchString(x.GrpcStatus), CodeStatus, "%q is not the name of a gRPC status", x.GrpcStatus)
		case *networking.HTTPFaultInjection_Abort_Http2Error:
			at.at("http2Error").refuse(CodeIneffective, "errors of HTTP/2 can't be injected: use httpStatus")
		default:
			at.warn(CodeRequired, "it has neither httpStatus nor grpcStatus, so nothing is aborted")
		}
		faultShare(at, a.Percentage)
	}
}

func faultShare(c *checker, p *networking.Percent) {
	if p != nil {
		c.at("percentage").percent(p.Value)
		c.at("percentage").unless(p.Value == 0 || p.Value >= 0.0001, CodeRange, "%v is too small: the least is 0.0001", p.Value)
	}
}

// grpcName is what names of statuses look like; a number is read as one, too.
var grpcName = regexp.MustCompile(`^[A-Z_]+$`)

func cors(c *checker, p *networking.CorsPolicy) {
	if p == nil {
		return
	}
	for i, o := range p.AllowOrigins {
		at := c.item("allowOrigins", i)
		at.unless(o.GetExact()+o.GetPrefix()+o.GetRegex() != "", CodeRequired, "it has none of exact, prefix and regex")
		stringMatch(at, o)
	}
	for i, m := range p.AllowMethods {
		c.item("allowMethods", i).unless(m == "*" || slices.Contains(methods(), m), CodeValue, "%q is not a method of HTTP", m)
	}
	for _, l := range []struct {
		field string
		names []string
	}{{"allowHeaders", p.AllowHeaders}, {"exposeHeaders", p.ExposeHeaders}} {
		for i, h := range l.names {
			if h != "*" && c.item(l.field, i).unless(!strings.HasPrefix(h, ":"), CodeHeader, "%q is not the name of a header", h) {
				c.item(l.field, i).header(h)
			}
		}
	}
	c.at("maxAge").duration(p.MaxAge, time.Millisecond)
	if p.MaxAge != nil && p.MaxAge.Nanos != 0 {
		c.at("maxAge").refuse(CodeDuration, "it is a number of whole seconds")
	}
}

// settable checks the name of a header that is set or removed: of those that HTTP/2 itself has, the authority of a request may be.
func (c *checker) settable(name string, authority bool) {
	own := strings.HasPrefix(name, ":") || strings.EqualFold(name, "host")
	if c.unless(!own || authority && isAuthority(name), CodeHeader, "%q can't be changed", name) {
		c.header(name)
	}
}

// balanced is a value whose percent signs are doubled or around something.
var balanced = regexp.MustCompile(`^([^%]|%%|%[^%(]+(\([^)]*\) *)?%)*$`)

func headers(c *checker, h *networking.Headers) {
	for _, x := range []struct {
		field string
		ops   *networking.Headers_HeaderOperations
	}{{"request", h.GetRequest()}, {"response", h.GetResponse()}} {
		at := c.at(x.field)
		for _, m := range []struct {
			field  string
			values map[string]string
		}{{"set", x.ops.GetSet()}, {"add", x.ops.GetAdd()}} {
			for _, k := range sorted(m.values) {
				f := at.at(m.field + "[" + k + "]")
				f.settable(k, x.field == "request")
				f.unless(!strings.ContainsAny(m.values[k], "\r\n\x00"), CodeHeader, "the value has a line break in it")
				switch v := m.values[k]; {
				case !balanced.MatchString(v):
					f.refuse(CodeHeader, "a %% is left over: write %%%% for a percent sign")
				case !model.ValidHeaderFormat(v):
					f.warn(CodeHeader, "a %% begins no command of the substitution format that proxies know, so the whole value is sent as it is: write %%%% for a percent sign")
				}
			}
		}
		for i, k := range x.ops.GetRemove() {
			f := at.item("remove", i)
			f.settable(k, false)
		}
	}
}
