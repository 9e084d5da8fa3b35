package gen

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// pack encodes a message of ours into an Any. It panics on text that is not UTF-8, which costs the
// one resource that holds it.
func pack(m proto.Message) *anypb.Any {
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		panic("gen: " + err.Error())
	}
	return a
}

type wrapperBool = wrapperspb.BoolValue

func u32(n uint32) *wrapperspb.UInt32Value { return wrapperspb.UInt32(n) }
func yes() *wrapperspb.BoolValue           { return wrapperspb.Bool(true) }
func no() *wrapperspb.BoolValue            { return wrapperspb.Bool(false) }
func zero() *durationpb.Duration           { return &durationpb.Duration{} }

// longest is about the longest duration that Envoy takes, in seconds: it counts nanoseconds.
const longest = 9e9

// holds reports whether a duration is one that Envoy takes.
func holds(d *durationpb.Duration) bool {
	return d != nil && d.IsValid() && d.Seconds <= longest && d.Seconds >= -longest
}

// atLeast gives d, or the default if d is unset or below the least that Envoy takes: one bad setting
// of the mesh must not have every resource refused.
func atLeast(least time.Duration, d *durationpb.Duration, def time.Duration) *durationpb.Duration {
	if !holds(d) || d.AsDuration() < least {
		return durationpb.New(def)
	}
	return d
}

// positive gives d if Envoy takes it where it must be above 0, else nil, which means Envoy's default.
func positive(d *durationpb.Duration) *durationpb.Duration {
	if !holds(d) || d.AsDuration() <= 0 {
		return nil
	}
	return d
}

// ads is the configuration source of everything that a proxy subscribes to: the stream it is on. The
// fetch has no timeout: a proxy waits for its data rather than serve half of it.
func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		ResourceApiVersion:    corev3.ApiVersion_V3,
		InitialFetchTimeout:   zero(),
	}
}

func socketAddress(host string, port uint16) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)}}}}
}

// address is an endpoint's address in Envoy's terms.
func address(a model.Addr) *corev3.Address {
	switch path, isPipe := strings.CutPrefix(a.Host, "unix://"); {
	case isPipe:
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
	case a.Host != "":
		return socketAddress(a.Host, a.AddrPort.Port())
	}
	return socketAddress(a.AddrPort.Addr().String(), a.AddrPort.Port())
}

func cidr(p netip.Prefix) *corev3.CidrRange {
	return &corev3.CidrRange{AddressPrefix: p.Masked().Addr().String(), PrefixLen: u32(uint32(p.Bits()))}
}

func stringValue(s string) *structpb.Value { return structpb.NewStringValue(s) }

func structOf(fields map[string]*structpb.Value) *structpb.Struct {
	return &structpb.Struct{Fields: fields}
}

// serviceRef names one service in metadata.
type serviceRef struct{ host, name, namespace string }

// serviceMetadata is what tells telemetry which services a cluster stands for.
func serviceMetadata(refs ...serviceRef) *corev3.Metadata {
	list := make([]*structpb.Value, len(refs))
	for i, r := range refs {
		list[i] = structpb.NewStructValue(structOf(map[string]*structpb.Value{
			"host": stringValue(r.host), "name": stringValue(r.name), "namespace": stringValue(r.namespace)}))
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
		"istio": structOf(map[string]*structpb.Value{"services": structpb.NewListValue(&structpb.ListValue{Values: list})}),
	}}
}

// wildcard is the any-address of the class's first family.
func (c Class) wildcard() netip.Addr {
	if c.IPv6 && !c.IPv4 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// bind is where a proxy without interception listens: a sidecar for its own workload, a router for all.
func (c Class) bind() netip.Addr {
	switch {
	case c.Bind.IsLoopback():
		return c.Bind
	case c.Type == Router:
		return c.wildcard()
	}
	return c.loopback()
}

// loopback is where only the proxy's own workload reaches it.
func (c Class) loopback() netip.Addr {
	switch {
	case c.Bind.IsLoopback():
		return c.Bind
	case c.IPv6 && !c.IPv4:
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// speaks reports whether the class has the address's family. A proxy that states none is taken as IPv4.
func (c Class) speaks(a netip.Addr) bool {
	if a.Is4() || a.Is4In6() {
		return c.IPv4 || !c.IPv6
	}
	return c.IPv6
}

// silent reports whether the proxy listens nowhere: it is a router that nothing has told to.
func (c Class) silent() bool { return c.Type == Router && !c.ExposeServices }

// intercepts reports whether traffic reaches the proxy with its original destination.
func (c Class) intercepts() bool { return c.Type == Sidecar && c.Interception != InterceptNone }

// portOr gives a mesh setting's port, or the default if it is unset or no port.
func portOr(n int32, def uint16) uint16 {
	if n <= 0 || n > 65535 {
		return def
	}
	return uint16(n)
}

// outboundListenPort is where intercepted connections of the workload arrive.
func outboundListenPort(m *pushcontext.MeshView) uint16 {
	return portOr(m.Config.GetProxyListenPort(), 15001)
}

// inboundListenPort is where intercepted connections to the workload arrive.
func inboundListenPort(m *pushcontext.MeshView) uint16 {
	return portOr(m.Config.GetProxyInboundListenPort(), 15006)
}

func itoa(n uint16) string { return strconv.Itoa(int(n)) }
