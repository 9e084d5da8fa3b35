// Package bootstrap makes the configuration that an Envoy starts with: who it is and where its hub
// listens. Everything else comes from the hub over ADS.
package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"sigs.k8s.io/yaml"
)

// The proxy types that a hub serves.
const (
	Sidecar = "sidecar"
	Router  = "router"
)

// The ways in which traffic reaches a sidecar (node metadata INTERCEPTION_MODE).
const (
	Redirect = "REDIRECT"
	TProxy   = "TPROXY"
	None     = "NONE"
)

// Options describe one proxy.
type Options struct {
	Type           string     // Sidecar or Router; "" is Sidecar
	ID             string     // "POD.NAMESPACE", required
	Namespace      string     // "" is the namespace part of ID
	IP             netip.Addr // the workload's address, required
	Cluster        string     // member that the proxy runs in, required
	Network        string
	Hub            string // "HOST:PORT" of the hub's --grpc-addr, required
	DomainSuffix   string // "" is "cluster.local"
	Interception   string // Redirect, TProxy or None; "" is Redirect. Sidecars only
	Locality       string // "region/zone/subzone", parts optional
	ServiceAccount string
	Node           string // Kubernetes node name
	Labels         map[string]string
	// CertChain, Key and RootCert are PEM files on the proxy's machine with which it speaks mutual TLS, as
	// client and as server: all of them or none.
	CertChain, Key, RootCert string
	AdminPort                uint16 // on 127.0.0.1; 0 = no admin interface
	Expose                   bool   // routers: listen on every TCP service port without Gateway configuration
	SotW                     bool   // state-of-the-world ADS instead of delta
	// SelfDiscovery has the hub tell the proxy its peers, from which Envoy works out how much traffic to keep in its
	// zone. Sidecars with a Locality only.
	SelfDiscovery bool
	Workload      string // name of the Deployment or other owner, which peers have in common
	// Metadata is more of the node's metadata, such as AUTO_REGISTER_GROUP; what other options say can't be in it.
	Metadata map[string]string
}

func (o *Options) complete() error {
	pod, ns, ok := strings.Cut(o.ID, ".")
	if !ok || pod == "" || ns == "" || strings.ContainsAny(o.ID, "~ ") {
		return fmt.Errorf("id %q is not POD.NAMESPACE", o.ID)
	}
	set := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	set(&o.Type, Sidecar)
	set(&o.Namespace, ns[strings.LastIndex(ns, ".")+1:])
	set(&o.DomainSuffix, "cluster.local")
	set(&o.Interception, Redirect)
	return o.check()
}

func (o *Options) check() error {
	switch {
	case o.Type != Sidecar && o.Type != Router:
		return fmt.Errorf("type %q is neither %q nor %q", o.Type, Sidecar, Router)
	case o.Interception != Redirect && o.Interception != TProxy && o.Interception != None:
		return fmt.Errorf("interception %q is none of %s, %s, %s", o.Interception, Redirect, TProxy, None)
	case !o.IP.IsValid():
		return errors.New("the proxy's ip is missing")
	case o.IP.Zone() != "":
		return fmt.Errorf("ip %s: an address with a zone means nothing elsewhere", o.IP)
	case strings.ContainsAny(o.Namespace+o.DomainSuffix, "~ "):
		return fmt.Errorf("namespace %q or domain %q holds a character that a name can't have", o.Namespace, o.DomainSuffix)
	case o.Cluster == "":
		return errors.New("the proxy's cluster is missing")
	case (o.CertChain == "") != (o.Key == "") || (o.Key == "") != (o.RootCert == ""):
		return errors.New("mutual TLS needs all of a certificate chain, its key and a root certificate")
	case o.SelfDiscovery && (o.Type != Sidecar || o.Locality == ""):
		return fmt.Errorf("only a %s with a locality can use self-discovery", Sidecar)
	case o.Expose && o.Type != Router:
		return fmt.Errorf("only a %s can expose services", Router)
	}
	return nil
}

// Build makes the bootstrap. Errors name the option at fault.
func Build(o Options) (*bootstrapv3.Bootstrap, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	hub, err := hubCluster(o.Hub)
	if err != nil {
		return nil, err
	}
	node, err := o.node()
	if err != nil {
		return nil, err
	}
	b := &bootstrapv3.Bootstrap{
		Node:             node,
		DynamicResources: o.dynamic(),
		StaticResources:  &bootstrapv3.Bootstrap_StaticResources{Clusters: hub},
	}
	if o.SelfDiscovery {
		b.ClusterManager = &bootstrapv3.ClusterManager{LocalClusterName: localName}
		b.StaticResources.Clusters = append(hub, localCluster())
	}
	if o.AdminPort != 0 {
		b.Admin = &bootstrapv3.Admin{Address: socketAddress("127.0.0.1", o.AdminPort)}
	}
	return b, b.ValidateAll()
}

// JSON is the bootstrap as indented JSON, its fields named as in Envoy's documentation.
func JSON(o Options) ([]byte, error) {
	b, err := Build(o)
	if err != nil {
		return nil, err
	}
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(b)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = json.Indent(&out, raw, "", "  ") // protojson's own spacing varies from build to build
	out.WriteByte('\n')
	return out.Bytes(), err
}

// YAML is the bootstrap as YAML.
func YAML(o Options) ([]byte, error) {
	out, err := JSON(o)
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(out)
}

// node identifies the proxy as Istio's agent does.
func (o *Options) node() (*corev3.Node, error) {
	all := o.metadata()
	for _, k := range slices.Sorted(maps.Keys(o.Metadata)) {
		switch _, said := all[k]; {
		case k == "":
			return nil, errors.New("metadata has no key")
		case said || slices.Contains([]string{"LABELS", "PROXY_CONFIG"}, k):
			return nil, fmt.Errorf("metadata %s: it is no text, or another option says it", k)
		}
		all[k] = o.Metadata[k]
	}
	meta, err := structpb.NewStruct(all)
	if err != nil {
		return nil, fmt.Errorf("node metadata: %w", err)
	}
	n := &corev3.Node{
		Id:       strings.Join([]string{o.Type, o.IP.String(), o.ID, o.Namespace + ".svc." + o.DomainSuffix}, "~"),
		Cluster:  o.ID,
		Metadata: meta,
	}
	if o.Locality != "" {
		p := append(strings.SplitN(o.Locality, "/", 3), "", "")
		n.Locality = &corev3.Locality{Region: p[0], Zone: p[1], SubZone: p[2]}
	}
	return n, nil
}

func (o *Options) metadata() map[string]any {
	m := map[string]any{"CLUSTER_ID": o.Cluster, "NAMESPACE": o.Namespace, "INSTANCE_IPS": o.IP.String()}
	for k, v := range map[string]string{
		"NETWORK": o.Network, "SERVICE_ACCOUNT": o.ServiceAccount, "NODE_NAME": o.Node, "WORKLOAD_NAME": o.Workload,
		"TLS_CLIENT_CERT_CHAIN": o.CertChain, "TLS_CLIENT_KEY": o.Key, "TLS_CLIENT_ROOT_CERT": o.RootCert,
		"TLS_SERVER_CERT_CHAIN": o.CertChain, "TLS_SERVER_KEY": o.Key, "TLS_SERVER_ROOT_CERT": o.RootCert,
	} {
		if v != "" {
			m[k] = v
		}
	}
	if o.Type == Sidecar {
		m["INTERCEPTION_MODE"] = o.Interception
	}
	if o.SelfDiscovery {
		m["ENABLE_SELF_DISCOVERY"] = "true"
	}
	if o.Expose {
		m["ISTHMUS_EXPOSE_SERVICES"] = "true"
	}
	if len(o.Labels) > 0 {
		labels := map[string]any{}
		for k, v := range o.Labels {
			labels[k] = v
		}
		m["LABELS"] = labels
	}
	return m
}

func (o *Options) dynamic() *bootstrapv3.Bootstrap_DynamicResources {
	api := corev3.ApiConfigSource_DELTA_GRPC
	if o.SotW {
		api = corev3.ApiConfigSource_GRPC
	}
	ads := func() *corev3.ConfigSource {
		return &corev3.ConfigSource{
			ResourceApiVersion:    corev3.ApiVersion_V3,
			InitialFetchTimeout:   durationpb.New(0), // wait for the hub rather than start without configuration
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		}
	}
	return &bootstrapv3.Bootstrap_DynamicResources{
		CdsConfig: ads(),
		LdsConfig: ads(),
		AdsConfig: &corev3.ApiConfigSource{
			ApiType:                   api,
			TransportApiVersion:       corev3.ApiVersion_V3,
			SetNodeOnFirstMessageOnly: true, // a node lists every extension: some 60 KB per message otherwise
			GrpcServices:              []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: hubService()}}},
		},
	}
}

// hubService bounds the back-off: Envoy's own grows to 30 s, so proxies would notice a restarted hub late.
func hubService() *corev3.GrpcService_EnvoyGrpc {
	return &corev3.GrpcService_EnvoyGrpc{
		ClusterName: hubName,
		RetryPolicy: &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
			BaseInterval: durationpb.New(200 * time.Millisecond),
			MaxInterval:  durationpb.New(2 * time.Second),
		}},
	}
}

func socketAddress(host string, port uint16) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}

// splitHub reads "HOST:PORT".
func splitHub(hub string) (string, uint16, error) {
	host, p, err := net.SplitHostPort(hub)
	if err != nil || host == "" {
		return "", 0, fmt.Errorf("hub %q is not HOST:PORT", hub)
	}
	port, err := strconv.ParseUint(p, 10, 16)
	if err != nil || port == 0 {
		return "", 0, fmt.Errorf("hub %q: port %q is not a number from 1 to 65535", hub, p)
	}
	return host, uint16(port), nil
}
