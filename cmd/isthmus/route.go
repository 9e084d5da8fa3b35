package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
	"github.com/isthmus-mesh/isthmus/xds/evaluate"
)

func newRoute(now func() time.Time) *cobra.Command {
	c := &cobra.Command{Use: "route", Short: "Where requests go"}
	c.AddCommand(newRouteExplain(now))
	return c
}

// routeExplain is one run of 'isthmus route explain'.
type routeExplain struct {
	view
	offlineOptions
	proxyOptions
	dir string

	headers    map[string]string
	to, from   string
	serverName string
	alpn       []string
	tcp        bool
	http2      bool
	inbound    bool
}

func newRouteExplain(now func() time.Time) *cobra.Command {
	k := &routeExplain{}
	k.now = now
	c := &cobra.Command{
		Use:   "explain --proxy PROXY (METHOD URL | --tcp HOST:PORT)",
		Short: "Explain where a request of a proxy's application goes, and which object decided each step",
		Long: `Tell what becomes of a request: which listener takes the connection, which filter chain, virtual host and route match, to
which clusters it goes in which shares, and which endpoints these have; and which configuration object each step is from.

The request is one that the application beside the proxy makes or, with --inbound, one to it; with a gateway's proxy it is
one to the gateway. Resources are those that the hub has for a connected proxy or, with --dir or --kubeconfig, those that
'isthmus render' makes. The proxy is named as there.

The connection goes to the address that the URL's host has for the proxy, unless --to names another: where the host has
none, an address that no service has; and where the proxy listens if it intercepts nothing (INTERCEPTION_MODE NONE). It
is evaluated what routing depends on: not who may do what, and not retries.`,
		Example: `  isthmus route explain --proxy web-1.shop GET http://reviews/reviews/0
  isthmus route explain --proxy web-1.shop --header user=jason GET http://reviews.shop.svc.cluster.local/
  isthmus route explain --dir examples/two-clusters --proxy client-east.demo GET http://hello.demo:8000/
  isthmus route explain --proxy web-1.shop --tcp db.shop:3306
  isthmus route explain --proxy gateway-1.edge --to 10.0.0.7:8443 --sni shop.example.com GET https://shop.example.com/cart`,
	}
	c.Args = func(c *cobra.Command, args []string) error {
		switch want := 2; {
		case k.tcp && len(args) != 1:
			return usageError("want HOST:PORT behind --tcp")
		case !k.tcp && len(args) != want:
			return usageError("want METHOD and URL, as in 'isthmus route explain --proxy web-1.shop GET http://reviews/'")
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, args []string) error { return k.run(c, args) }
	f := c.Flags()
	f.SortFlags = false
	k.proxyOptions.bind(f)
	f.StringToStringVar(&k.headers, "header", nil, "`KEY=VALUE` of the request; may be repeated")
	f.StringVar(&k.to, "to", "", "`IP:PORT` that the connection goes to")
	f.StringVar(&k.from, "from", "", "`IP:PORT` that it comes from")
	f.StringVar(&k.serverName, "sni", "", "`NAME` in the client's TLS (default with https: the URL's host)")
	f.StringSliceVar(&k.alpn, "alpn", nil, "`PROTOCOLS` in the client's TLS")
	f.BoolVar(&k.tcp, "tcp", false, "a connection of bytes that are no HTTP")
	f.BoolVar(&k.http2, "http2", false, "the request is made over HTTP/2")
	f.BoolVar(&k.inbound, "inbound", false, "the request is one to the proxy's own workload")
	f.StringVar(&k.dir, "dir", "", "read this folder or file, `DIR`, in place of asking a hub")
	k.offlineOptions.bind(f)
	f.StringVar(&k.hub, "hub", hubDefault(), "URL of the hub's --http-addr, as seen from this machine (or $"+hubEnv+")")
	k.bindFormat(c)
	return c
}

func (k *routeExplain) run(c *cobra.Command, args []string) error {
	if err := checkFormat(k.format); err != nil {
		return err
	}
	if k.proxy == "" && k.node == "" {
		return usageError("name the proxy with --proxy")
	}
	target, request, err := k.request(args)
	if err != nil {
		return err
	}
	k.view.timeout = k.offlineOptions.timeout
	source, err := k.source(c.Context(), c.InOrStdin())
	if err != nil {
		return err
	}
	x, err := k.explain(c.Context(), source, target, request)
	if err != nil {
		return err
	}
	if k.format == output.JSON || k.format == output.YAML {
		err = output.Encode(c.OutOrStdout(), k.format, x)
	} else {
		err = writeRoute(c.OutOrStdout(), x)
	}
	if err != nil {
		return err
	}
	return source.trusted()
}

// target is a host and a port, as a URL has them.
type target struct {
	host string
	port uint16
}

// request reads the command line, all but where the connection goes.
func (k *routeExplain) request(args []string) (target, *evaluate.Request, error) {
	r := &evaluate.Request{Inbound: k.inbound, ServerName: k.serverName, TLS: k.serverName != "", ALPN: k.alpn, Headers: k.headers}
	var err error
	if k.from != "" {
		if r.Source, err = netip.ParseAddrPort(k.from); err != nil {
			return target{}, nil, usageError("--from %s: want IP:PORT", k.from)
		}
	}
	text := args[len(args)-1]
	if k.tcp {
		r.Protocol = evaluate.TCP
		text = "tcp://" + text
	} else if k.http2 {
		r.Protocol = evaluate.HTTP2
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return target{}, nil, usageError("%q is no %s", args[len(args)-1], map[bool]string{true: "HOST:PORT", false: "URL"}[k.tcp])
	}
	ports := map[string]string{"http": "80", "https": "443", "tcp": ""}
	port, known := ports[u.Scheme]
	if u.Port() != "" {
		port = u.Port()
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if !known || err != nil || n == 0 {
		return target{}, nil, usageError("%q: want a URL of http or https, or HOST:PORT with --tcp", args[len(args)-1])
	}
	if u.Scheme == "https" {
		r.TLS = true
		if r.ServerName == "" {
			r.ServerName = u.Hostname()
		}
	}
	if !k.tcp && !isToken(args[0]) {
		return target{}, nil, usageError("%q is no method of HTTP", args[0])
	}
	for _, name := range slices.Sorted(maps.Keys(k.headers)) {
		if !isToken(strings.TrimPrefix(name, ":")) || strings.ContainsAny(k.headers[name], "\r\n\x00") {
			return target{}, nil, usageError("--header %q: it is no header of HTTP", name+"="+k.headers[name])
		}
	}
	if !k.tcp {
		r.Method, r.Authority, r.Path = args[0], u.Host, u.RequestURI()
		for name, v := range k.headers { // as with curl
			if strings.EqualFold(name, "host") {
				r.Authority = v
			}
		}
	}
	return target{strings.ToLower(u.Hostname()), uint16(n)}, r, nil
}

// isToken reports whether a text is a token of HTTP, as methods and names of headers are (RFC 9110).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r|0x20 < 'a' || r|0x20 > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// explain tells what becomes of the request, once it is known where the connection goes.
func (k *routeExplain) explain(ctx context.Context, s proxySource, t target, r *evaluate.Request) (*routeExplanation, error) {
	at := s.resolve(t, k.inbound)
	r.Destination = netip.AddrPortFrom(at.addr, at.port)
	if k.to != "" {
		to, err := netip.ParseAddrPort(k.to)
		if err != nil {
			return nil, usageError("--to %s: want IP:PORT", k.to)
		}
		r.Destination = to
	}
	result := s.config().Evaluate(*r)
	if k.inbound {
		demanded(s, r, result)
	}
	x := explanation(r, result)
	if note := at.portNote(t.port); note != "" && k.to == "" {
		x.Notes = append(x.Notes, note)
	}
	if s.router() && !k.inbound && slices.Contains([]evaluate.Kind{evaluate.NoListener, evaluate.NoRoute, evaluate.Closed}, result.Kind) {
		all, err := s.gateways(ctx)
		if err != nil {
			return nil, err
		}
		x.Notes = append(x.Notes, serverNotes(all, t.port, r.Destination.Port())...)
	}
	return x, nil
}

// nowhere is the address of hosts that have none of their own: it is reserved for documentation (RFC 5737), so no service
// has it.
var nowhere = netip.AddrFrom4([4]byte{198, 51, 100, 1})

// proxySource is a proxy and what it is sent.
type proxySource interface {
	config() *evaluate.Config
	router() bool
	// resolve gives where a connection to a host goes, as the proxy sees it.
	resolve(t target, inbound bool) reached
	// strict reports whether the workload takes nothing but mutual TLS at an address, and by which PeerAuthentication; nil if that
	// is not known.
	strict(at netip.AddrPort) (by *model.ObjectKey, demanded bool)
	// gateways are the servers that select the proxy, a router.
	gateways(ctx context.Context) ([]debug.GatewayServer, error)
	// trusted is an error if not all that was read is as it is written.
	trusted() error
}

func (k *routeExplain) source(ctx context.Context, stdin io.Reader) (proxySource, error) {
	if k.dir == "" && k.kube.kubeconfig == "" {
		return k.ofHub(ctx)
	}
	var paths []string
	if k.dir != "" {
		paths = []string{k.dir}
	}
	read, err := k.load(ctx, paths, stdin)
	if err != nil {
		return nil, err
	}
	p, err := k.find(read)
	if err != nil {
		return nil, err
	}
	list, err := p.render(read)
	if err != nil {
		return nil, err
	}
	c := evaluate.New()
	for _, r := range list {
		if err := addTo(c, &anypb.Any{TypeUrl: r.TypeURL, Value: r.Body}); err != nil {
			return nil, err
		}
	}
	return &renderedProxy{read: read, proxy: p, sent: c}, nil
}

func addTo(c *evaluate.Config, body *anypb.Any) error {
	m, err := body.UnmarshalNew()
	if err != nil {
		return fmt.Errorf("read what the proxy is sent: %w", err)
	}
	return c.Add(m)
}

// dumped reads a configuration dump as a hub writes it.
func dumped(raw []byte) (*evaluate.Config, error) {
	d := &adminv3.ConfigDump{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, d); err != nil {
		return nil, fmt.Errorf("read configuration dump: %w", err)
	}
	c := evaluate.New()
	var bodies []*anypb.Any
	for _, section := range d.Configs {
		m, err := section.UnmarshalNew()
		if err != nil {
			return nil, fmt.Errorf("read configuration dump: %w", err)
		}
		switch s := m.(type) {
		case *adminv3.ClustersConfigDump:
			for _, x := range s.DynamicActiveClusters {
				bodies = append(bodies, x.Cluster)
			}
		case *adminv3.EndpointsConfigDump:
			for _, x := range s.DynamicEndpointConfigs {
				bodies = append(bodies, x.EndpointConfig)
			}
		case *adminv3.ListenersConfigDump:
			for _, x := range s.DynamicListeners {
				bodies = append(bodies, x.GetActiveState().GetListener())
			}
		case *adminv3.RoutesConfigDump:
			for _, x := range s.DynamicRouteConfigs {
				bodies = append(bodies, x.RouteConfig)
			}
		}
	}
	for _, b := range bodies {
		if err := addTo(c, b); err != nil {
			return nil, err
		}
	}
	return c, nil
}

var errNoAnswer = errors.New("the hub answers with something unexpected; is it one of this version")

func decodeAnswer[T any](raw []byte) (v T, err error) {
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return v, nil
}
