package evaluate

import (
	"net/netip"
	"strings"
)

// Protocol is what a client speaks on a connection.
type Protocol uint8

// The protocols.
const (
	HTTP1 Protocol = iota
	HTTP2
	TCP // bytes that no HTTP is found in
)

// Request is what a client does: it opens a connection, and on it may make a request.
type Request struct {
	Destination netip.AddrPort // where the client connects to
	Source      netip.AddrPort // the client's own address; may be left out
	Inbound     bool           // the connection is to the proxy's own workload
	Protocol    Protocol       // inside of TLS, if there is TLS
	TLS         bool
	ServerName  string   // of TLS (SNI)
	ALPN        []string // of TLS, in the client's order

	Method    string // "GET" if empty
	Scheme    string // "http" or, over TLS, "https" if empty
	Authority string // the Host header
	Path      string // with the query; "/" if empty
	Headers   map[string]string

	asked string // the path as it was sent
}

// withDefaults fills in what a client would.
func (r Request) withDefaults() Request {
	if r.Method == "" {
		r.Method = "GET"
	}
	if r.Scheme == "" {
		r.Scheme = "http"
		if r.TLS {
			r.Scheme = "https"
		}
	}
	if r.Path == "" {
		r.Path = "/"
	}
	r.asked = r.Path
	headers := make(map[string]string, len(r.Headers)+4)
	for k, v := range r.Headers {
		headers[strings.ToLower(k)] = strings.Trim(v, " \t") // as on the wire
	}
	headers[":method"], headers[":scheme"], headers[":authority"], headers[":path"] = r.Method, r.Scheme, r.Authority, r.Path
	r.Headers = headers
	return r
}

// Kind is what becomes of a request.
type Kind string

// The kinds.
const (
	ToCluster   Kind = "cluster"        // it goes to one of Clusters
	Redirect    Kind = "redirect"       // it is answered with Status and Location
	Direct      Kind = "direct"         // it is answered with Status
	NoRoute     Kind = "no route"       // it is answered with 404
	Closed      Kind = "closed"         // the connection is closed: nothing takes it
	NoListener  Kind = "no listener"    // nothing listens there
	Undecidable Kind = "not known here" // what decides is not in the resources
)

// Failure is what a client sees of requests, or of a connection, that could not be sent on.
type Failure string

// The failures; "" is none.
const (
	Unavailable Failure = "unavailable" // requests are answered with 503
	Cut         Failure = "closed"      // the connection is closed
	BlackHole   Failure = "black hole"  // likewise, and it is meant: the cluster is the one that takes what is to go nowhere
)

// Step is one decision on the way.
type Step struct {
	What   string   // "listener", "filter chain", "virtual host", "route", "cluster"
	Name   string   // of the resource, or of the part of one
	Why    string   // what matched
	Config []string // configuration objects that it is from, as the resource says: "virtual-service/shop/reviews"
}

// Share is a cluster and how much of the requests goes to it.
type Share struct {
	Cluster   string
	Percent   float64
	Missing   bool // the proxy was sent no such cluster
	Fails     Failure
	Endpoints []Endpoint
}

// Endpoint is one that a cluster has.
type Endpoint struct {
	Address  string // "10.0.0.1:80", a name and a port, or a path
	Locality string // "region/zone/subzone"
	Priority uint32
	Weight   uint32 // within its locality
	Health   string // "HEALTHY" …, as Envoy says it
}

// Result is what becomes of a request, and why.
type Result struct {
	Kind     Kind
	Steps    []Step
	Clusters []Share // of ToCluster, in the order of the route
	Fails    Failure // of ToCluster: what becomes of all requests, if none can be sent on
	Status   int     // of Redirect, Direct and NoRoute
	Location string  // of Redirect
	// What the upstream sees, where it differs from the request.
	Path, Authority string
	Timeout         string // of the route; "" for none
	Faults          []string
	Mirrors         []string // clusters that get a copy

	answers bool // the proxy speaks HTTP, so it answers what it can't send on
}

func (r *Result) step(what, name, why string, config ...string) {
	r.Steps = append(r.Steps, Step{What: what, Name: name, Why: why, Config: config})
}
