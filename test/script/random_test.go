package script

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// Random histories of three members with overlapping names and addresses, watched by proxies of both
// protocols that reconnect, hold ACKs back and refuse things. Whenever all is quiet, the proxies hold
// what is generated for them (I6), and the hub knows what one that has just started with the same
// members knows (I1, I3).
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	seeds := 12
	if testing.Short() {
		seeds = 3
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { history(t, seed) })
		})
	}
}

func history(t *testing.T, seed uint64) {
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorld(ctx)
	defer w.end(cancel)
	h := &historian{w: w, r: rand.New(rand.NewPCG(seed, 5)), attached: map[string]bool{}}
	for range 25 {
		for range 1 + h.r.IntN(5) {
			if err := h.step(); err != nil {
				t.Fatal(h.fail(err))
			}
		}
		if err := errors.Join(h.rest(), h.compare(t.Context())); err != nil {
			t.Fatal(h.fail(err))
		}
	}
}

// historian makes things happen and remembers what.
type historian struct {
	w        *world
	r        *rand.Rand
	did      []string
	attached map[string]bool // members
}

func (h *historian) fail(err error) string {
	return fmt.Sprintf("%v\nafter:\n%s", err, strings.Join(h.did, "\n"))
}

func (h *historian) note(format string, args ...any) {
	h.did = append(h.did, fmt.Sprintf(format, args...))
}

func (h *historian) step() error {
	name := fmt.Sprint("c", 1+h.r.IntN(3))
	r, err := h.w.instance(name)
	attached := err == nil && h.attached[name]
	switch n := h.r.IntN(20); {
	case n < 2 && attached:
		h.note("detach %s", name)
		h.attached[name] = false
		h.w.controller.Detach(r.Key())
	case !attached || n < 3:
		h.attach(name)
	case n < 4:
		h.note("cut %s", name)
		r.cut("gone")
	case n < 6:
		return h.proxy()
	case n < 7:
		h.mesh()
		h.dns()
	case n < 8:
		h.late(name)
	case n < 9:
		h.note("fail %s", name)
		r.Fail(errors.New("watch closed"))
	case n < 10:
		d := time.Duration(h.r.IntN(400)) * time.Millisecond
		h.note("advance %s", d)
		h.w.advance(d)
	default:
		h.change(name, r)
	}
	h.w.settle()
	return nil
}

func (h *historian) attach(name string) {
	r := newRegistry(shardKey(name))
	var objects []kube.Object
	for range 3 + h.r.IntN(8) {
		objects = append(objects, h.object()...)
	}
	h.note("attach %s with %d objects", name, len(objects))
	h.attached[name] = true
	r.replace(objects)
	h.w.instances[r.Key()] = append(h.w.instances[r.Key()], r)
	h.w.controller.Attach(r)
}

func (h *historian) change(name string, r *registry) {
	for range 1 + h.r.IntN(3) {
		o := h.object()
		if h.r.IntN(4) == 0 {
			h.note("delete %s %s", name, o[0].Ref)
			r.apply(nil, []model.ObjectKey{o[0].Ref})
			continue
		}
		h.note("put %s %s", name, o[0].Ref)
		r.apply(o, nil)
	}
}

// late has an instance write that has been ended (I2).
func (h *historian) late(name string) {
	for i, r := range h.w.instances[shardKey(name)] {
		if r.Started() > 0 && r.Running() == 0 && (i < len(h.w.instances[shardKey(name)])-1 || !h.attached[name]) {
			o := h.object()
			h.note("late %s@%d %s", name, i+1, o[0].Ref)
			r.apply(o, nil)
			r.replace(o)
		}
	}
}

func (h *historian) mesh() {
	kind := []string{model.ConfigMesh, model.ConfigNetworks}[h.r.IntN(2)]
	text := map[string][]string{
		model.ConfigMesh: {"{}", `{"defaultServiceExportTo": ["."]}`,
			`{"serviceSettings": [{"settings": {"clusterLocal": true}, "hosts": ["s1.ns1.svc.cluster.local"]}]}`},
		model.ConfigNetworks: {"{}", `{"networks": {"n2": {"endpoints": [{"fromRegistry": "c2"}], "gateways": [{"address": "1.1.1.1", "port": 15443}]}}}`,
			`{"networks": {"n2": {"endpoints": [{"fromRegistry": "c2"}], "gateways": [{"address": "gw.example", "port": 15443}]}}}`},
	}[kind][h.r.IntN(3)]
	h.note("mesh %s %s", kind, text)
	if err := h.w.putMesh(kind, []byte(text)); err != nil {
		panic(err)
	}
}

// dns has a gateway's name resolved from now on, each time to something else.
func (h *historian) dns() {
	addr := fmt.Sprint("192.0.2.", h.r.IntN(3))
	h.note("dns gw.example 30s %s", addr)
	if err := h.w.resolver.answer("gw.example", []string{"30s", addr}); err != nil {
		panic(err)
	}
}

func (h *historian) proxy() error {
	name := fmt.Sprintf("p%d.ns%d", h.r.IntN(3), 1+h.r.IntN(2))
	p := h.w.proxies[name]
	if !h.w.controller.Ready() {
		return nil
	}
	switch {
	case p == nil:
		protocol := []string{"sotw", "delta"}[h.r.IntN(2)]
		at := []string{fmt.Sprint("cluster=c", 1+h.r.IntN(3)), fmt.Sprint("ip=10.0.0.", h.r.IntN(6)), "locality=r/z1", "network=" + []string{"n1", "n2", ""}[h.r.IntN(3)],
			fmt.Sprint("ENABLE_SELF_DISCOVERY=", h.r.IntN(2) == 0), fmt.Sprint("LABELS.app=s", 1+h.r.IntN(3))}
		h.note("proxy %s %s %s", name, protocol, at)
		return h.w.connect(name, protocol, at)
	case !p.connected:
		h.note("reconnect %s", name)
		return h.w.connect(name, "", nil)
	}
	switch typ := typeURL(types[h.r.IntN(len(types))]); h.r.IntN(4) {
	case 0:
		h.note("disconnect %s", name)
		p.disconnect()
	case 1:
		h.note("hold %s %s", name, typ)
		p.Hold(typ)
	case 2:
		h.note("ack %s", name)
		p.Release()
	case 3:
		h.note("nack %s %s s1", name, typ)
		p.refuses(typ, regexp.MustCompile("s1"))
	}
	return nil
}

// rest ends every disturbance and waits.
func (h *historian) rest() error {
	h.w.advance(time.Minute) // failed registries run again
	for name, attached := range h.attached {
		if r, err := h.w.instance(name); err == nil && attached {
			r.Hang(false)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.w.proxies)) {
		p := h.w.proxies[name]
		if p.connected {
			p.Release()
		}
		if len(p.refuse) > 0 { // a proxy that refused something is sent it anew only with new content
			p.accepts()
			if p.connected {
				p.disconnect()
				h.w.settle()
			}
		}
		if !p.connected {
			if err := h.w.connect(name, "", nil); err != nil {
				return err
			}
		}
	}
	h.note("rest")
	return h.w.quiet()
}

// compare starts another hub with the members as they are.
func (h *historian) compare(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	fresh := newWorld(ctx)
	defer fresh.end(cancel)
	fresh.mesh = h.w.mesh
	fresh.attachMesh()
	for name, attached := range h.attached {
		r, err := h.w.instance(name)
		if err != nil || !attached {
			continue
		}
		twin := newRegistry(r.Key())
		twin.Replace(r.State())
		fresh.controller.Attach(twin)
	}
	fresh.resolver.copy(h.w.resolver)
	fresh.start()
	fresh.advance(10 * time.Second) // longer than start-up waits for names
	is, err := h.w.knows()
	if err != nil {
		return err
	}
	want, err := fresh.knows()
	if err == nil && is != want {
		err = fmt.Errorf("the hub knows\n%s\none that has just started\n%s", is, want)
	}
	return err
}

// knows is all that can be said of services.
func (w *world) knows() (string, error) {
	var hosts []string
	for host := range w.hub.Current().Hosts() {
		hosts = append(hosts, host)
	}
	slices.Sort(hosts)
	var out strings.Builder
	for _, host := range hosts {
		d, err := w.explain([]string{host}, definition)
		if err != nil {
			return "", err
		}
		c, err := w.explain([]string{host}, candidates)
		if err != nil {
			return "", err
		}
		out.WriteString(d + c)
	}
	return out.String(), nil
}

// routes makes a VirtualService whose routes need no cluster.
func (h *historian) routes(pick func(...string) string, ns, svc string) string {
	rule := func(uri string) string {
		return "{" + pick("", "", "match: [{sourceLabels: {app: "+svc+"}}], ", "match: [{sourceNamespace: "+ns+"}], ", "match: [{port: 80}], ") + "redirect: {uri: " + uri + "}}"
	}
	return fmt.Sprintf(`{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: %s, namespace: %s}, spec: {hosts: ["%s"], exportTo: ["%s"], http: [%s, %s]}}`,
		pick("v1", "v2", "v3"), ns, pick(svc, "x.mesh", "*.mesh", "nowhere.example", "*.ns1.svc.cluster.local"), pick("*", "*", ".", "ns1"), rule(pick("/1", "/2")), rule(pick("/3", "/4")))
}

// federated makes a FederatedService of services, of workloads and of what is not there.
func (h *historian) federated(pick func(...string) string, ns, svc string) string {
	source := func(name string) string {
		return fmt.Sprintf("{name: %s, %s%s, weight: %s, priority: %s}", name, pick("host: "+svc+"."+ns+".svc.cluster.local", "host: x.mesh", "host: "+pick("s1", "s2")+".ns1.svc.cluster.local", "selector: {app: "+svc+"}"),
			pick("", "", ", clusters: [c1, c2]", ", registries: [kubernetes/c1]", ", ports: {http: {name: http}}", ", ports: {http: {protocol: HTTP}}"), pick("1", "0", "5"), pick("0", "1"))
	}
	return fmt.Sprintf(`{apiVersion: isthmus.io/v1alpha1, kind: FederatedService, metadata: {name: %s, namespace: %s}, spec: {host: %s, exportTo: ["%s"], policy: %s, ports: [{name: http, number: %s%s}], sources: [%s, %s, {name: c, host: x.mesh}]}}`,
		pick("f1", "f2"), ns, pick("one.mesh", "x.mesh", "s1.ns1.svc.cluster.local", "s2.ns2.svc.cluster.local"), pick("*", "*", "."), pick("union", "failover", "weighted"), pick("80", "90"), pick("", ", protocol: HTTP", ", protocol: TCP"), source("a"), source("b"))
}

// object makes one random object of a small world.
func (h *historian) object() []kube.Object {
	pick := func(s ...string) string { return s[h.r.IntN(len(s))] }
	ns, svc, ip := pick("ns1", "ns2"), pick("s1", "s2", "s3"), fmt.Sprint("10.0.0.", h.r.IntN(6))
	text := ""
	switch h.r.IntN(13) {
	case 11, 12:
		text = h.federated(pick, ns, svc)
	case 8:
		text = h.routes(pick, ns, svc)
	case 9:
		text = fmt.Sprintf(`{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {name: %s, namespace: %s}, spec: {%segress: [{hosts: ["%s"]}%s]%s}}`,
			pick("c1", "c2"), pick(ns, ns, "istio-system"), pick("", "workloadSelector: {labels: {app: "+svc+"}}, "), pick("./*", "ns1/*", "*/*.mesh", "*/*"),
			pick("", ", {port: {number: 80, protocol: HTTP, name: http}, hosts: [ns2/*]}"), pick("", ", outboundTrafficPolicy: {mode: REGISTRY_ONLY}"))
	case 10:
		text = fmt.Sprintf(`{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: %s, namespace: %s},
 spec: {host: "%s", %strafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: %s}}}}}`,
			pick("d1", "d2"), ns, pick(svc, "x.mesh"), pick("", "workloadSelector: {matchLabels: {app: "+svc+"}}, "), pick("x-a", "x-b"))
	case 5:
		text = fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: gw, namespace: %s, labels: {topology.istio.io/network: %s}},
 spec: {type: LoadBalancer, clusterIP: 10.96.0.9, ports: [{name: tls, port: %s}]}, status: {loadBalancer: {ingress: [{%s}]}}}`,
			ns, pick("n1", "n2", "n3"), pick("15443", "15443", "443"), pick("ip: 192.0.2.8", "ip: 192.0.2.9", "hostname: gw.example"))
	case 6:
		text = fmt.Sprintf(`{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: %s, namespace: %s},
 spec: {host: "%s", trafficPolicy: {outlierDetection: {consecutive5xxErrors: %s}, tls: {mode: %s}}}}`,
			pick("d1", "d2"), ns, pick(svc, "*.svc.cluster.local", "*.mesh", "x.mesh"), pick("1", "2"), pick("DISABLE", "ISTIO_MUTUAL"))
	case 7:
		text = fmt.Sprintf(`{apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {name: %s, namespace: %s}, spec: {%smtls: {mode: %s}}}`,
			pick("a1", "a2"), pick(ns, "istio-system"), pick("", "selector: {matchLabels: {app: "+svc+"}}, "), pick("STRICT", "DISABLE", "PERMISSIVE"))
	case 0:
		text = fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: %s, annotations: {networking.istio.io/exportTo: "%s"}},
 spec: {clusterIP: %s, selector: {app: %s}, ports: [{name: %s, port: %s, targetPort: %s}]}}`,
			svc, ns, pick("*", "*", ".", "~"), pick("None", "10.96.0.1", "10.96.0.2"), svc, pick("http", "tcp", "grpc"), pick("80", "90", "100"), pick("8080", "web"))
	case 1:
		text = fmt.Sprintf(`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: %s-%s, namespace: %s, labels: {kubernetes.io/service-name: %s}},
 addressType: IPv4, ports: [{name: %s, port: 8080}], endpoints: [{addresses: [%s], conditions: {ready: %s}%s}]}`,
			svc, pick("a", "b"), ns, svc, pick("http", "tcp", "grpc"), ip, pick("true", "true", "false"),
			pick("", ", targetRef: {kind: Pod, name: "+pick("p1", "p2")+", namespace: "+ns+"}"))
	case 2:
		text = fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s, labels: {app: %s, security.istio.io/tlsMode: %s}}, spec: {nodeName: node-1, containers: [{name: a, ports: [{name: web, containerPort: %s}]}]},
 status: {phase: Running, podIP: %s, podIPs: [{ip: %s}], conditions: [{type: Ready, status: "%s"}]}}`,
			pick("p1", "p2"), ns, svc, pick("istio", "disabled"), pick("8080", "9090"), ip, ip, pick("True", "True", "False"))
	case 3:
		text = fmt.Sprintf(`{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {name: %s, namespace: %s}, spec: {address: %s, labels: {app: %s}, ports: {web: %s}}}`,
			pick("w1", "w2"), ns, ip, svc, pick("7070", "7071"))
	case 4:
		text = fmt.Sprintf(`{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: %s, namespace: %s},
 spec: {hosts: [%s], resolution: %s, ports: [{name: http, number: %s, protocol: HTTP}], %s}}`,
			pick("e1", "e2"), ns, pick("x.mesh", "y.mesh", "s1.ns1.svc.cluster.local"), pick("STATIC", "STATIC", "DNS"), pick("80", "90"),
			pick("workloadSelector: {labels: {app: "+svc+"}}", "endpoints: [{address: "+ip+"}]"))
	}
	c := kube.Decode([]byte(text), time.Time{})
	if len(c.Faults)+len(c.Warnings) > 0 || len(c.Items) != 1 {
		panic(fmt.Sprint(text, c.Faults, c.Warnings))
	}
	return []kube.Object{c.Items[0].Object}
}
