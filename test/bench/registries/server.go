package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/test/env"
)

// server is a registry's server with services "svc-N".
type server interface {
	Close()
	// registry is the object that declares it to the hub.
	registry(o options) string
	// set registers instance n of a service, or changes its address.
	set(ctx context.Context, service, n int, address string) error
}

var servers = map[string]func(context.Context, string, options) (server, error){
	"consul": func(ctx context.Context, dir string, o options) (server, error) {
		c, err := env.NewConsul(ctx, dir, env.ConsulOptions{Config: map[string]any{"use_streaming_backend": o.streaming, "limits": map[string]any{"http_max_conns_per_client": max(200, 2*o.concurrency)}}})
		return consul{c, &sync.Map{}}, err
	},
	"nacos": func(ctx context.Context, dir string, _ options) (server, error) {
		n, err := env.NewNacos(ctx, dir, env.NacosOptions{})
		if err != nil {
			return nil, err
		}
		// It would find that nobody listens at the addresses, and tell of each.
		check := url.Values{"entry": {"check"}, "value": {"false"}, "debug": {"false"}}
		return nacos{n, &sync.Map{}}, n.Do(ctx, http.MethodPut, "/v3/admin/ns/ops/switches", check, nil)
	},
}

// fill registers everything, several at a time.
func fill(ctx context.Context, s server, o options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan int)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for i := range work {
				for n := range o.instances {
					if err := s.set(ctx, i, n, fmt.Sprintf("10.%d.%d.%d", 100+n, i/250, i%250)); err != nil {
						cancel(err)
					}
				}
			}
		})
	}
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for i := 0; i < o.services && ctx.Err() == nil; {
		select {
		case work <- i:
			i++
		case <-tick.C:
			say("  %d of %d services registered", i, o.services)
		case <-ctx.Done():
		}
	}
	close(work)
	workers.Wait()
	return context.Cause(ctx)
}

type consul struct {
	*env.Consul
	*sync.Map // "service/n" to the id of the instance there is
}

func (c consul) registry(o options) string {
	more := fmt.Sprintf(", limits: {concurrency: %d}", o.concurrency)
	if o.interval > 0 {
		more += fmt.Sprintf(", consul: {refreshInterval: %v}", o.interval)
	}
	return fmt.Sprintf("apiVersion: isthmus.io/v1alpha1\nkind: Registry\nmetadata: {name: bench, namespace: istio-system}\nspec: {provider: consul, addresses: ['%s']%s}\n", c.URL, more)
}

// set registers another instance, with a check as agents have them, in place of the one that there was.
func (c consul) set(ctx context.Context, service, n int, address string) error {
	name, node := fmt.Sprint("svc-", service), fmt.Sprint("vm-", n)
	id := name + "-" + address
	err := c.Do(ctx, http.MethodPut, "/v1/catalog/register", map[string]any{
		"Node": node, "Address": fmt.Sprint("10.99.0.", n),
		"Service": map[string]any{"ID": id, "Service": name, "Port": 8080, "Address": address},
		"Check":   map[string]any{"CheckID": "service:" + id, "Name": "alive", "ServiceID": id, "Status": "passing"},
	}, nil)
	old, had := c.Swap(fmt.Sprint(service, "/", n), id)
	if err != nil || !had || old == id {
		return err
	}
	return c.Do(ctx, http.MethodPut, "/v1/catalog/deregister", map[string]any{"Node": node, "ServiceID": old}, nil)
}

type nacos struct {
	*env.Nacos
	*sync.Map // "service/n" to the address of the instance there is
}

func (n nacos) registry(o options) string {
	more := ""
	if o.interval > 0 {
		more = fmt.Sprintf(", nacos: {discoveryInterval: %v}", o.interval)
	}
	return fmt.Sprintf("apiVersion: isthmus.io/v1alpha1\nkind: Registry\nmetadata: {name: bench, namespace: istio-system}\nspec: {provider: nacos, addresses: ['%s']%s}\n", n.Host, more)
}

// set registers another persistent instance in place of the one that there was.
func (n nacos) set(ctx context.Context, service, i int, address string) error {
	instance := env.NacosInstance{Service: fmt.Sprint("svc-", service), IP: address, Port: 8080, Weight: 1}
	err := n.Register(ctx, instance)
	old, had := n.Swap(fmt.Sprint(service, "/", i), address)
	if err != nil || !had || old == address {
		return err
	}
	instance.IP = old.(string)
	return n.Deregister(ctx, instance)
}
