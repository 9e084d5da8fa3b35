package oracle_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/file"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/evaluate"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

const (
	clusterID = "c1"
	namespace = "shop"
	limit     = 60 * time.Second     // for whatever must happen in the end
	quick     = 2 * time.Millisecond // between two looks at what takes an Envoy some milliseconds
)

// objects is a registry whose objects are replaced as a whole.
type objects struct {
	next chan []kube.Object
}

func (o *objects) Key() model.ShardKey {
	return model.ShardKey{Provider: model.ProviderKubernetes, Cluster: clusterID}
}

// Run implements model.Registry.
func (o *objects) Run(ctx context.Context, out model.Sink) error {
	store := kube.NewStore(kube.Converter{Shard: o.Key(), ConfigCluster: true})
	have := map[model.ObjectKey]string{}
	synced := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case list := <-o.next:
			var set []kube.Object
			var del []model.ObjectKey
			keep := map[model.ObjectKey]bool{}
			for _, x := range list {
				keep[x.Ref] = true
				if have[x.Ref] != x.Revision {
					set, have[x.Ref] = append(set, x), x.Revision
				}
			}
			for ref := range have {
				if !keep[ref] {
					del = append(del, ref)
					delete(have, ref)
				}
			}
			events := store.Apply(set, del)
			if synced {
				out.Put(events...)
			} else {
				synced = true
				out.Replace(store.State())
				out.Status(model.Status{State: model.StateLive})
			}
		}
	}
}

// world is a hub within the test, an Envoy, and backends that say who they are.
type world struct {
	t       testing.TB
	lo      *envoytest.Loopback
	objects *objects
	hub     *pushcontext.Hub
	server  *xds.Server
	envoy   *envoytest.Envoy
	boot    bootstrap.Options
	client  *http.Client
	log     *accessLog
}

// newWorld runs a hub for the length of a test, as yet without configuration.
func newWorld(t testing.TB, inline bool) *world {
	t.Helper()
	w := &world{t: t, lo: envoytest.StartLoopback(t), objects: &objects{next: make(chan []kube.Object, 1)}}
	w.client = &http.Client{
		Transport:     &http.Transport{DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       limit,
	}
	t.Cleanup(w.client.CloseIdleConnections)
	w.log = &accessLog{path: filepath.Join(t.TempDir(), "access.log"), clusters: map[string]string{}}
	w.runHub(inline)
	w.backends(w.endpoints(marker()))
	return w
}

// at is where a version of a service is.
func (w *world) at(s *service, version int) string {
	return w.lo.Addr(byte(10+s.number), byte(version+1)).String()
}

// start runs the Envoy with a first configuration.
func (w *world) start(first string, router bool) {
	w.t.Helper()
	w.apply(first)
	w.boot = bootstrap.Options{
		ID: "client." + namespace, IP: w.lo.Addr(1, 1), Cluster: clusterID, Hub: w.serve(), Interception: bootstrap.None,
		Labels: map[string]string{"app": "client"},
	}
	if router {
		w.boot.Type = bootstrap.Router
	}
	text, err := bootstrap.JSON(w.boot)
	if err != nil {
		w.t.Fatal(err)
	}
	w.envoy = envoytest.Start(w.t, envoytest.Options{Bootstrap: text, Args: []string{"--file-flush-interval-msec", "2", "--drain-time-s", "1"}})
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	if err := w.envoy.WaitReady(ctx); err != nil {
		w.t.Fatalf("the Envoy is not ready: %v\n%s", err, w.envoy.Log())
	}
}

// meshSettings close what no service has, so that nothing leaves the test, and log which cluster each request went to.
func (w *world) meshSettings() string {
	return fmt.Sprintf("outboundTrafficPolicy: {mode: REGISTRY_ONLY}\naccessLogFile: %s\naccessLogFormat: |\n  %%REQ(X-ORACLE)%% %%UPSTREAM_CLUSTER_RAW%%\n", w.log.path)
}

func (w *world) runHub(inline bool) {
	log := slog.New(slog.DiscardHandler)
	var controller *aggregate.Controller
	w.server = xds.NewServer(xds.Options{Generators: gen.All(), Log: log, InlineHosts: inline, Ready: func() bool { return controller.Ready() }})
	w.hub = pushcontext.NewHub(w.server.Notify)
	w.server.UseHub(w.hub)
	controller = aggregate.New(aggregate.Options{
		Hub: w.hub, Log: log, ConfigCluster: clusterID, EndpointQuiet: 1, EndpointMax: 1, ShapeQuiet: 1, ShapeMax: 1,
	})
	mesh := filepath.Join(w.t.TempDir(), "mesh.yaml")
	if err := os.WriteFile(mesh, []byte(w.meshSettings()), 0o600); err != nil {
		w.t.Fatal(err)
	}
	controller.Attach(w.objects)
	controller.Attach(file.NewMeshFiles(file.Options{Cluster: clusterID, Log: log}, mesh, ""))
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = controller.Run(ctx) })
	w.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// serve makes the hub reachable.
func (w *world) serve() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	rpc := grpc.NewServer(w.server.GRPCServerOptions()...)
	w.server.Register(rpc)
	var running sync.WaitGroup
	running.Go(func() { _ = rpc.Serve(l) })
	w.t.Cleanup(func() {
		rpc.Stop()
		running.Wait()
	})
	return l.Addr().String()
}

// apply replaces all objects.
func (w *world) apply(text string) {
	c := kube.Decode([]byte(text), time.Time{})
	if len(c.Faults) > 0 {
		w.t.Fatalf("%v in\n%s", c.Faults, text)
	}
	var list []kube.Object
	for _, it := range c.Items {
		list = append(list, it.Object)
	}
	w.objects.next <- list
}

// backends serve at addresses, and say at which they were asked.
func (w *world) backends(addrs []string) {
	s := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		at := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		rw.Header().Set("X-Backend", at.String())
		rw.Header().Set("X-Path", r.RequestURI)
		rw.Header().Set("X-Authority", r.Host)
	})}
	var running sync.WaitGroup
	for _, a := range addrs {
		l, err := net.Listen("tcp", a)
		if err != nil {
			w.t.Fatal(err)
		}
		running.Go(func() { _ = s.Serve(l) })
	}
	w.t.Cleanup(func() {
		s.Close()
		running.Wait()
	})
}

// evaluator reads what the Envoy is sent.
func (w *world) evaluator() *evaluate.Config {
	b, err := bootstrap.Build(w.boot)
	if err != nil {
		w.t.Fatal(err)
	}
	list, err := w.server.Render(b.Node)
	if err != nil {
		w.t.Fatal(err)
	}
	c := evaluate.New()
	for _, r := range list {
		if err := c.Add(decode(w.t, r)); err != nil {
			w.t.Fatal(err)
		}
	}
	return c
}

// soon waits for what an Envoy does in the next moment.
func (w *world) soon(what string, cond func() error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	if err := envoytest.PollEvery(ctx, quick, cond); err != nil {
		w.t.Fatalf("waiting for %s: %v", what, err)
	}
}

// accessLog follows the file that says which cluster a request went to.
type accessLog struct {
	path     string
	read     int64
	clusters map[string]string // by number of the request
}

// cluster gives the cluster that a request was sent to; false if it is not in the log yet.
func (l *accessLog) cluster(id string) (string, bool) {
	if c, ok := l.clusters[id]; ok {
		return c, true
	}
	f, err := os.Open(l.path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	if _, err := f.Seek(l.read, 0); err != nil {
		return "", false
	}
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadString('\n')
		if err != nil { // not all of it is written yet
			break
		}
		l.read += int64(len(line))
		if id, cluster, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			l.clusters[id] = cluster
		}
	}
	c, ok := l.clusters[id]
	return c, ok
}
