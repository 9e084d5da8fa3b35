package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/env"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// checkout is a service that no cluster has.
const (
	checkoutHost = "checkout.demo.svc.cluster.local"
	checkoutPort = 8010
)

// foreign is a registry beside the clusters, with one instance of checkout.
type foreign struct {
	provider, variable, source string
	start                      func(ctx context.Context, dir string) (server, error)
}

// server is one that runs.
type server interface {
	Close()
	address() string
	register(ctx context.Context, ip string, port uint16) error
	deregister(ctx context.Context, ip string, port uint16) error
}

// foreigners are the registries in the order in which checkout prefers them.
func foreigners() []foreign {
	return []foreign{
		{"nacos", env.NacosVar, "checkout.DEFAULT-GROUP.public.nacos", func(ctx context.Context, dir string) (server, error) {
			n, err := env.NewNacos(ctx, dir, env.NacosOptions{})
			return nacos{n}, err
		}},
		{"consul", env.ConsulVar, "checkout.dc1.consul", func(ctx context.Context, dir string) (server, error) {
			c, err := env.NewConsul(ctx, dir, env.ConsulOptions{})
			return consul{c}, err
		}},
	}
}

type nacos struct{ *env.Nacos }

func (n nacos) address() string { return n.Host }

func (n nacos) register(ctx context.Context, ip string, port uint16) error {
	return n.Register(ctx, env.NacosInstance{Service: "checkout", IP: ip, Port: port, Weight: 1})
}

func (n nacos) deregister(ctx context.Context, ip string, port uint16) error {
	return n.Deregister(ctx, env.NacosInstance{Service: "checkout", IP: ip, Port: port, Weight: 1})
}

type consul struct{ *env.Consul }

func (c consul) address() string { return c.URL }

func (c consul) register(ctx context.Context, ip string, port uint16) error {
	return c.Do(ctx, http.MethodPut, "/v1/catalog/register", map[string]any{
		"Node": "vm", "Address": ip, "Service": map[string]any{"ID": "checkout-1", "Service": "checkout", "Port": port},
	}, nil)
}

func (c consul) deregister(ctx context.Context, _ string, _ uint16) error {
	return c.Do(ctx, http.MethodPut, "/v1/catalog/deregister", map[string]any{"Node": "vm", "ServiceID": "checkout-1"}, nil)
}

// instance is the one backend of checkout in a registry.
type instance struct {
	server
	name, ip string
	port     uint16
}

// federate shows registries beside the clusters, those whose servers are on this machine: one service of theirs, and what happens
// when the preferred one loses it.
func (s *stage) federate(ctx context.Context, out io.Writer) error {
	var there []foreign
	for _, f := range foreigners() {
		if os.Getenv(f.variable) != "" {
			there = append(there, f)
		} else {
			say(out, f.provider, "not shown: $%s names no server; 'test/tools/setup %s' makes one", f.variable, f.provider)
		}
	}
	if len(there) == 0 {
		return nil
	}
	fmt.Fprint(out, "\nRegistries beside the clusters: checkout is in no cluster, it prefers the first of them.\n\n")
	instances, err := s.startForeigners(ctx, there, out)
	if err != nil {
		return err
	}
	for i, at := range instances {
		if i > 0 {
			gone := instances[i-1]
			if err := gone.deregister(ctx, gone.ip, gone.port); err != nil {
				return err
			}
			say(out, gone.name, "is deregistered")
		}
		took, err := s.awaitCheckout(ctx, at.name)
		if err != nil {
			return err
		}
		say(out, "client in east", "checkout is answered by %s, after %v", at.name, took.Round(time.Millisecond))
	}
	return nil
}

// startForeigners starts servers with an instance each, and declares them.
func (s *stage) startForeigners(ctx context.Context, fs []foreign, out io.Writer) ([]instance, error) {
	var instances []instance
	var registries []string
	service := fmt.Sprintf("apiVersion: isthmus.io/v1alpha1\nkind: FederatedService\nmetadata: {name: checkout, namespace: demo}\n"+
		"spec:\n  host: %s\n  ports: [{name: http, number: %d, protocol: HTTP}]\n  policy: failover\n  sources:\n", checkoutHost, checkoutPort)
	for i, f := range fs {
		dir := filepath.Join(s.dir, f.provider)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		started, err := f.start(ctx, dir)
		if err != nil {
			return nil, err
		}
		s.onClose(func() error { started.Close(); return nil })
		at := instance{server: started, name: "checkout-" + f.provider, ip: s.loopback.Addr(4, byte(i+1)).String(), port: 18010}
		b, err := envoytest.Serve(envoytest.BackendOptions{Addr: fmt.Sprint(at.ip, ":", at.port), Name: at.name, Cluster: f.provider})
		if err != nil {
			return nil, err
		}
		s.onClose(b.Close)
		if err := at.register(ctx, at.ip, at.port); err != nil {
			return nil, err
		}
		say(out, f.provider, "%s, with %s", started.address(), at.name)
		instances = append(instances, at)
		registries = append(registries, fmt.Sprintf("apiVersion: isthmus.io/v1alpha1\nkind: Registry\nmetadata: {name: demo-%s, namespace: istio-system}\n"+
			"spec: {provider: %s, addresses: ['%s']}\n", f.provider, f.provider, started.address()))
		service += "  - host: " + f.source + "\n"
	}
	file := filepath.Join(s.clusters, "east", "registries.yaml")
	say(out, "declared in", "%s", file)
	return instances, replaceFile(file, strings.Join(append(registries, service), separator))
}

// awaitCheckout asks until the backend answers, and gives how long that took.
func (s *stage) awaitCheckout(ctx context.Context, name string) (time.Duration, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	client := (*envoytest.Namespace)(nil).HTTPClient()
	svc := debug.Service{Hostname: checkoutHost, Ports: []debug.Port{{Port: checkoutPort}}}
	err := envoytest.Poll(ctx, func() error {
		a, err := request(ctx, client, s.proxies[0], svc)
		if err == nil && a.Name != name {
			err = fmt.Errorf("checkout is answered by %s, not %s", a.Name, name)
		}
		return err
	})
	return time.Since(began), err
}
