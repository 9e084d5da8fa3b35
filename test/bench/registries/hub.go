package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isthmus-mesh/isthmus/test/bench/fleet"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// patience bounds how long a change may take, and a first sync.
const patience = 3 * time.Minute

// hub is a hub process on the server, with proxies.
type hub struct {
	*envoytest.Hub
	fleet  *fleet.Fleet
	synced time.Duration // from its start until it knew all services
	unique int
}

func startHub(ctx context.Context, dir string, s server, o options) (*hub, error) {
	cluster := filepath.Join(dir, "hub", "east")
	if err := os.MkdirAll(cluster, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(cluster, "registry.yaml"), []byte(s.registry(o)), 0o600); err != nil {
		return nil, err
	}
	lo, err := envoytest.ClaimLoopback(1)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	h := &hub{}
	if h.Hub, err = envoytest.LaunchHub(ctx, envoytest.HubOptions{
		Binary: os.Getenv(envoytest.HubVar), Dir: filepath.Dir(cluster), GRPC: lo.At(0, 1, 15010), HTTP: lo.At(0, 1, 8080),
		Monitoring: lo.At(0, 1, 15014), Log: filepath.Join(dir, "hub.log"), Args: []string{"--cluster-id", "east"},
	}); err != nil {
		return nil, err
	}
	if err := h.connect(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("%w; the log of the hub: %s", err, h.Log()), h.close())
	}
	h.synced = time.Since(began)
	return h, nil
}

// connect waits until the hub knows all services, and then opens the streams.
func (h *hub) connect(ctx context.Context, o options) error {
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := envoytest.Poll(soon, func() error {
		var list []struct{ Services, Endpoints int }
		text, err := h.Get(soon, h.URL+"/debug/registries")
		if err == nil {
			err = json.Unmarshal(text, &list)
		}
		if err == nil && (len(list) != 1 || list[0].Services != o.services || list[0].Endpoints != o.services*o.instances) {
			err = fmt.Errorf("the hub knows %+v", list)
		}
		return err
	})
	if err != nil {
		return err
	}
	proxies := make([]fleet.Proxy, o.proxies)
	for i := range proxies {
		proxies[i] = fleet.Proxy{Class: "shop", Node: node(i)}
	}
	if h.fleet, err = fleet.Start(ctx, fleet.Options{Addr: h.GRPC, Delta: true, Proxies: proxies}); err != nil {
		return err
	}
	_, err = h.fleet.AwaitReady(soon)
	return err
}

func node(i int) []byte {
	md, err := structpb.NewStruct(map[string]any{"CLUSTER_ID": "east", "NAMESPACE": "shop", "ISTIO_VERSION": "1.31.0"})
	if err != nil {
		panic(err) // the values above are of kinds that a Struct holds
	}
	text, err := proto.Marshal(&corev3.Node{Id: fmt.Sprintf("sidecar~10.0.0.%d~p%d.shop~shop.svc.cluster.local", i+1, i), Metadata: md, UserAgentName: "envoy"})
	if err != nil {
		panic(err) // it is a plain message
	}
	return text
}

func (h *hub) close() error {
	if h.fleet != nil {
		h.fleet.Close()
	}
	return h.Stop()
}

// changes makes changes one after the other, beside others, and gives how long each took to be everywhere.
func (h *hub) changes(ctx context.Context, s server, o options, churn int) (took []time.Duration, err error) {
	own, cancel := context.WithCancel(ctx)
	var others sync.WaitGroup
	if churn > 0 {
		others.Go(func() { err = errors.Join(err, h.churn(own, s, o, churn)) })
	}
	for range o.changes {
		d, fault := h.change(ctx, s, rand.IntN(o.services/2)*2)
		if fault != nil {
			err = fault
			break
		}
		took = append(took, d)
	}
	cancel()
	others.Wait()
	return took, err
}

// change gives an instance of a service another address.
func (h *hub) change(ctx context.Context, s server, service int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	h.unique++
	address := fmt.Sprintf("10.2%02d.1%02d.1%02d", h.unique/10_000, h.unique/100%100, h.unique%100)
	w := h.fleet.Watch(address, fleet.EndpointURL, "")
	defer w.Stop()
	at := time.Now()
	if err := s.set(ctx, service, 0, address); err != nil {
		return 0, err
	}
	d, err := w.Await(ctx, at)
	if err != nil {
		return 0, err
	}
	return d[len(d)-1], nil
}

// churn changes other services until ctx ends.
func (h *hub) churn(ctx context.Context, s server, o options, perSecond int) error {
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			address := fmt.Sprintf("10.3.%d.%d", n/250%250, n%250)
			if err := s.set(ctx, rand.IntN(o.services/2)*2+1, 1, address); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// usage is what the hub uses.
type usage struct {
	busy       float64 // of one processor
	goroutines int
	rss        float64 // MiB
}

func (h *hub) usage(ctx context.Context, over time.Duration) (usage, error) {
	before, err := h.cpu(ctx)
	if err != nil {
		return usage{}, err
	}
	select {
	case <-time.After(over):
	case <-ctx.Done():
		return usage{}, ctx.Err()
	}
	after, err := h.cpu(ctx)
	if err != nil {
		return usage{}, err
	}
	goroutines, err := h.metric(ctx, "go_goroutines")
	if err != nil {
		return usage{}, err
	}
	rss, err := h.metric(ctx, "process_resident_memory_bytes")
	return usage{busy: (after - before) / over.Seconds(), goroutines: int(goroutines), rss: rss / (1 << 20)}, err
}

func (h *hub) cpu(ctx context.Context) (float64, error) {
	return h.metric(ctx, "process_cpu_seconds_total")
}

// metric reads one that has no labels.
func (h *hub) metric(ctx context.Context, name string) (float64, error) {
	text, err := h.Get(ctx, h.MetricsURL)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("the hub has no metric %s", name)
}
