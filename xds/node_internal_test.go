package xds

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

func nodeBytes(tb testing.TB, id string, meta map[string]any, change ...func(*corev3.Node)) []byte {
	tb.Helper()
	md, err := structpb.NewStruct(meta)
	if err != nil {
		tb.Fatal(err)
	}
	n := &corev3.Node{Id: id, Metadata: md}
	for _, f := range change {
		f(n)
	}
	b, err := proto.Marshal(n)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// How nodes ask for their listeners to be tuned.
func TestNodeTuning(t *testing.T) {
	t.Parallel()
	for idle, want := range map[string]time.Duration{"": 0, "90s": 90 * time.Second, "0s": -1, "-1s": 0, "soon": 0, "2000000h": 365 * 24 * time.Hour} {
		id, err := parseNode(nodeBytes(t, "sidecar~10.0.0.1~a.b~c", map[string]any{"IDLE_TIMEOUT": idle, "INBOUND_LISTENER_EXACT_BALANCE": "true"}), nil)
		if err != nil || id.class.Tuning != (gen.Tuning{Idle: want, BalanceInbound: true}) {
			t.Errorf("%q: %+v, %v", idle, id.class.Tuning, err)
		}
	}
	for port, want := range map[string]uint16{"": 0, "15007": 15007, "70000": 0, "-1": 0, "http": 0} {
		id, err := parseNode(nodeBytes(t, "sidecar~10.0.0.1~a.b~c", map[string]any{"HTTP_PROXY_PORT": port}), nil)
		if err != nil || id.class.Tuning != (gen.Tuning{HTTPProxy: want}) {
			t.Errorf("%q: %+v, %v", port, id.class.Tuning, err)
		}
	}
}

// What spans say of a workload is read of its labels and of the node; too much of it counts for none.
func TestNodeSpans(t *testing.T) {
	t.Parallel()
	labels := map[string]any{"service.istio.io/canonical-name": "web", "app": "other", "app.kubernetes.io/version": "v2"}
	for name, c := range map[string]struct {
		meta map[string]any
		want gen.SpanTags
	}{
		"nothing":      {nil, gen.SpanTags{Namespace: "b"}},
		"all":          {map[string]any{"LABELS": labels, "MESH_ID": "m", "CLUSTER_ID": "alias", "NAMESPACE": "n", "WORKLOAD_NAME": "w"}, gen.SpanTags{Service: "web", Revision: "v2", Mesh: "m", Namespace: "n", Cluster: "real"}},
		"the workload": {map[string]any{"WORKLOAD_NAME": "w"}, gen.SpanTags{Service: "w", Namespace: "b"}},
		"too much":     {map[string]any{"WORKLOAD_NAME": strings.Repeat("w", maxNodeValue+1), "MESH_ID": strings.Repeat("m", maxNodeValue+1)}, gen.SpanTags{Namespace: "b"}},
	} {
		id, err := parseNode(nodeBytes(t, "sidecar~10.0.0.1~a.b~c", c.meta), map[model.ClusterID]model.ClusterID{"alias": "real"})
		if err != nil || id.class.Spans != c.want {
			t.Errorf("%s: %+v, %v", name, id.class.Spans, err)
		}
	}
}

// What an agent was told of listeners is kept, if it can be read and is not too much.
func TestNodeProxyConfig(t *testing.T) {
	t.Parallel()
	topology := &meshconfig.ProxyConfig{GatewayTopology: &meshconfig.Topology{NumTrustedProxies: 2}}
	tags := map[string]any{}
	for i := range 1000 {
		tags["a-long-name-of-a-tag-"+strconv.Itoa(i)] = map[string]any{"literal": map[string]any{"value": "x"}}
	}
	for name, c := range map[string]struct {
		sent any
		want gen.ProxySettings
	}{
		"none": {nil, ""}, "a text": {"{}", ""}, "nothing of it": {map[string]any{"concurrency": 2, "unheardOf": true}, gen.NewProxySettings(nil)},
		"a topology":    {map[string]any{"gatewayTopology": map[string]any{"numTrustedProxies": 2}, "statusPort": 15020}, gen.NewProxySettings(topology)},
		"can't be read": {map[string]any{"gatewayTopology": "x"}, ""},
		"tags too many": {map[string]any{"tracing": map[string]any{"customTags": tags}}, ""},
	} {
		meta := map[string]any{}
		if c.sent != nil {
			meta["PROXY_CONFIG"] = c.sent
		}
		id, err := parseNode(nodeBytes(t, "router~10.0.0.1~a.b~c", meta), nil)
		if err != nil || id.class.Tuning.Own != c.want || id.configured != (c.sent != nil) {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
}

// FuzzNode: whatever a client sends as its node, what is made of it is small and sound, and so is the
// reason why nothing is.
func FuzzNode(f *testing.F) {
	const id = "sidecar~10.0.0.1~a.b~b.svc.cluster.local"
	f.Add(nodeBytes(f, id, map[string]any{
		"CLUSTER_ID": "alias", "NAMESPACE": "n", "NETWORK": "net", "NODE_NAME": "m", "INTERCEPTION_MODE": "NONE", "ISTIO_VERSION": "1.29",
		"INSTANCE_IPS": "10.0.0.1,::1, 10.0.0.2,", "HTTP10": "1", "IDLE_TIMEOUT": "90s", "HTTP_PROXY_PORT": "3128", "INBOUND_LISTENER_EXACT_BALANCE": "true", "ISTHMUS_EXPOSE_SERVICES": true, "PROXY_CONFIG": map[string]any{},
	}))
	f.Add(nodeBytes(f, "router~10.0.0.1~a.b~", map[string]any{
		"TLS_CLIENT_CERT_CHAIN": "/c.pem", "TLS_CLIENT_KEY": "/k.pem", "TLS_CLIENT_ROOT_CERT": "/r.pem", "TLS_SERVER_KEY": strings.Repeat("k", 300),
		"LABELS": map[string]any{"app": "gw", "n": 1, strings.Repeat("k", 400): "x"},
	}))
	f.Add(nodeBytes(f, id, map[string]any{"REQUESTED_NETWORK_VIEW": "n2, n1,,n2", "LABELS": map[string]any{"tier": "gold", "a\x00": "b"}}))
	f.Add(nodeBytes(f, id, map[string]any{"REQUESTED_NETWORK_VIEW": strings.Repeat("n", 300)}))
	f.Add(nodeBytes(f, "router~::ffff:10.0.0.1~x~", nil, func(n *corev3.Node) {
		n.Locality = &corev3.Locality{Region: "r", Zone: "z", SubZone: "s"}
		n.Extensions = []*corev3.Extension{{Name: "istio.stats"}, {Name: "istio.alpn", Disabled: true}}
	}))
	f.Add(nodeBytes(f, "sidecar~fe80::1%eth0~a.b~c", map[string]any{"INSTANCE_IPS": strings.Repeat("1.1.1.1,", 50)}))
	f.Add(nodeBytes(f, strings.Repeat("~", 2000), map[string]any{"CLUSTER_ID": strings.Repeat("c", 300)}))
	f.Add([]byte{0xff, 1, 2})
	aliases := map[model.ClusterID]model.ClusterID{"alias": "real"}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseNode(b, aliases)
		if err != nil {
			if status.Code(err) != codes.InvalidArgument || len(err.Error()) > 8*maxNodeID {
				t.Errorf("refused with %d bytes: %.200v", len(err.Error()), err)
			}
			return
		}
		c := got.class
		for _, s := range []string{string(c.Cluster), c.Network, c.Node, c.Locality.Region, c.Locality.Zone, c.Locality.Subzone,
			c.ClientTLS.Chain, c.ClientTLS.Key, c.ClientTLS.Root, c.ServerTLS.Chain, c.ServerTLS.Key, c.ServerTLS.Root} {
			if len(s) > maxNodeValue {
				t.Errorf("%d bytes are kept", len(s))
			}
		}
		for _, f := range []gen.TLSFiles{c.ClientTLS, c.ServerTLS} {
			if f != (gen.TLSFiles{}) && !f.Complete() {
				t.Errorf("half a set of files is kept: %+v", f)
			}
		}
		if view := strings.Split(c.NetworkView, ","); !slices.IsSorted(view) || len(view) > maxNetworks || len(c.NetworkView) > maxNetworks*(maxNodeValue+1) {
			t.Errorf("asks for %q", c.NetworkView)
		}
		if len(c.Labels) > maxLabels*2*(maxLabel+1) {
			t.Errorf("%d bytes of labels are kept", len(c.Labels))
		}
		for k, v := range got.labels {
			if len(k) > maxLabel || len(v) > maxLabel || len(got.labels) > maxLabels {
				t.Errorf("%d labels are kept, one of them %.400q: %.400q", len(got.labels), k, v)
			}
		}
		if len(c.Namespace) > maxNodeID || len(c.DNSDomain) > maxNodeID || len(got.id) > maxNodeID || len(got.version) > maxVersion+len("…") {
			t.Errorf("%+v", got)
		}
		if v := versionLabel(got.version); len(v) > labelLength || !utf8.ValidString(v) {
			t.Errorf("label %q", v)
		}
		if n := len(got.instances); n == 0 || n > maxAddresses || !c.IP.IsValid() || c.IP.Is4In6() || got.instances[0].IP != c.IP || !c.IPv4 && !c.IPv6 || c.Cluster == "alias" {
			t.Errorf("%+v", got)
		}
	})
}

// What a proxy asks for does not depend on the order in which it says so.
func TestNodeNetworkViewAndLabels(t *testing.T) {
	t.Parallel()
	const id = "sidecar~10.0.0.1~a.b~b.svc.cluster.local"
	for _, c := range []struct {
		meta   map[string]any
		view   string
		labels gen.Labels
		err    string
	}{
		{meta: nil},
		{meta: map[string]any{"REQUESTED_NETWORK_VIEW": " n2,n1 ,,n2"}, view: "n1,n2"},
		{meta: map[string]any{"REQUESTED_NETWORK_VIEW": ","}},
		{meta: map[string]any{"REQUESTED_NETWORK_VIEW": "n1," + strings.Repeat("n", 300)}, err: "300 bytes"},
		{meta: map[string]any{"REQUESTED_NETWORK_VIEW": strings.Repeat("n,", maxNetworks+1)}, err: "more than 64 networks"},
		{meta: map[string]any{"LABELS": map[string]any{"tier": "gold", "app": "x"}}, labels: gen.NewLabels(model.Labels{"app": "x", "tier": "gold"})},
		{meta: map[string]any{"LABELS": "tier=gold"}},
	} {
		got, err := parseNode(nodeBytes(t, id, c.meta), nil)
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v: %v", c.meta, err)
			}
		case err != nil:
			t.Errorf("%v: %v", c.meta, err)
		case got.class.NetworkView != c.view || got.class.Labels != c.labels:
			t.Errorf("%v: view %q, labels %q", c.meta, got.class.NetworkView, got.class.Labels)
		}
	}
}

// A proxy that asks for its peers says what they have in common with it.
func TestNodePeers(t *testing.T) {
	t.Parallel()
	const id = "sidecar~10.0.0.1~a.b~b.svc.cluster.local"
	for _, c := range []struct {
		meta map[string]any
		self bool
		want gen.Peers
		err  string
	}{
		{meta: map[string]any{"WORKLOAD_NAME": "web"}},
		{meta: map[string]any{"WORKLOAD_NAME": strings.Repeat("w", 300)}},
		{meta: map[string]any{"ENABLE_SELF_DISCOVERY": "false", "WORKLOAD_NAME": "web"}},
		{meta: map[string]any{"ENABLE_SELF_DISCOVERY": "true"}, self: true},
		{meta: map[string]any{"ENABLE_SELF_DISCOVERY": true, "WORKLOAD_NAME": "web", "LABELS": map[string]any{"pod-template-hash": "1a", "rollouts-pod-template-hash": "x"}}, self: true, want: gen.Peers{Workload: "web", Template: "1a"}},
		{meta: map[string]any{"ENABLE_SELF_DISCOVERY": "true", "LABELS": map[string]any{"rollouts-pod-template-hash": "7f"}}, self: true, want: gen.Peers{Template: "7f"}},
		{meta: map[string]any{"ENABLE_SELF_DISCOVERY": "true", "WORKLOAD_NAME": strings.Repeat("w", 300)}, err: "300 bytes"},
	} {
		got, err := parseNode(nodeBytes(t, id, c.meta), nil)
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v: %v", c.meta, err)
			}
		case err != nil:
			t.Errorf("%v: %v", c.meta, err)
		case got.class.SelfDiscovery != c.self || got.class.Peers != c.want:
			t.Errorf("%v: %v, %+v", c.meta, got.class.SelfDiscovery, got.class.Peers)
		}
	}
}

func TestClip(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"": "", "abcd": "abcd", "abcde": "abcd…", "abcé": "abc…", "ab\xff": "ab?", "a\xffbcd": "abc…"} {
		if got := clip(in, 4); got != want {
			t.Errorf("%q is cut to %q, want %q", in, got, want)
		}
	}
}
