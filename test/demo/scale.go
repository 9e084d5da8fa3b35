package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// lookEvery is the pause between two looks at what an Envoy has.
const lookEvery = time.Millisecond

// scaleAway takes one backend of a service away under traffic: it edits the
// file that lists it, waits until the last proxy has dropped it, and stops it.
func (s *stage) scaleAway(ctx context.Context, out io.Writer, service, name string) error {
	svc, err := s.services.service(service)
	if err != nil {
		return err
	}
	backend, err := s.backend(name)
	if err != nil {
		return err
	}
	client := (*envoytest.Namespace)(nil).HTTPClient()
	traffic := envoytest.RunTraffic(ctx, 2, func(ctx context.Context) error {
		_, err := request(ctx, client, s.proxies[0], svc)
		return err
	})
	defer traffic.Stop()
	if err := traffic.Wait(ctx, fewRequests); err != nil {
		return err
	}
	start := time.Now()
	file, err := dropEndpoint(filepath.Join(s.clusters, backend.Cluster), addrOf(backend))
	if err != nil {
		return err
	}
	say(out, "edited", "%s: %s is no endpoint of %s any more", file, addrOf(backend), service)
	if err := s.watchDrop(ctx, out, start, outbound(svc), backend.Addr); err != nil {
		return err
	}
	if err := backend.Close(); err != nil {
		return err
	}
	say(out, "stopped", "the backend %s", name)
	if err := traffic.Wait(ctx, fewRequests); err != nil {
		return err
	}
	report := traffic.Stop()
	say(out, "meanwhile", "%d requests by the %s, %d failed", report.OK+report.Failed, s.proxies[0].label, report.Failed)
	if report.Failed > 0 {
		return fmt.Errorf("%d requests failed while a backend was taken away: %w", report.Failed, report.First)
	}
	return nil
}

func (s *stage) backend(name string) (*envoytest.Backend, error) {
	for _, b := range s.backends {
		if b.Name == name {
			return b, nil
		}
	}
	return nil, fmt.Errorf("the example has no backend %s", name)
}

func addrOf(b *envoytest.Backend) string { return netip.MustParseAddrPort(b.Addr).Addr().String() }

// outbound is the name of the Envoy cluster of a service's first port.
func outbound(svc debug.Service) string {
	return fmt.Sprintf("outbound|%d||%s", svc.Ports[0].Port, svc.Hostname)
}

// failOver reports the rest of a service's endpoints in one cluster as not
// ready, and waits until the proxy there has taken note.
func (s *stage) failOver(ctx context.Context, out io.Writer, service, name string) error {
	svc, err := s.services.service(service)
	if err != nil {
		return err
	}
	backend, err := s.backend(name)
	if err != nil {
		return err
	}
	start := time.Now()
	file, err := sicken(filepath.Join(s.clusters, backend.Cluster), addrOf(backend))
	if err != nil {
		return err
	}
	say(out, "edited", "%s: %s is not ready", file, addrOf(backend))
	return s.watch(ctx, out, start, "avoids it", func(p *proxy) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			h, err := p.host(ctx, outbound(svc), backend.Addr)
			return h != nil && h.GetHealthStatus().GetEdsHealthStatus() == corev3.HealthStatus_UNHEALTHY, err
		}
	})
}

// watchDrop waits until no proxy has the address.
func (s *stage) watchDrop(ctx context.Context, out io.Writer, start time.Time, cluster, addr string) error {
	return s.watch(ctx, out, start, "has dropped it", func(p *proxy) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			h, err := p.host(ctx, cluster, addr)
			return h == nil, err
		}
	})
}

// watch waits until it is so at every proxy, and prints how long after start
// that was.
func (s *stage) watch(ctx context.Context, out io.Writer, start time.Time, what string, so func(*proxy) func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	took := make([]time.Duration, len(s.proxies))
	errs := make([]error, len(s.proxies))
	var wait sync.WaitGroup
	for i, p := range s.proxies {
		wait.Go(func() {
			errs[i] = until(ctx, so(p))
			took[i] = time.Since(start)
		})
	}
	wait.Wait()
	for i, p := range s.proxies {
		if errs[i] == nil {
			say(out, p.label, "%s after %d ms", what, took[i].Milliseconds())
			continue
		}
		errs[i] = fmt.Errorf("%s: %w", p.label, errs[i])
	}
	return errors.Join(errs...)
}

// until looks again and again until it is so.
func until(ctx context.Context, so func(context.Context) (bool, error)) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		yes, err := so(ctx)
		if err == nil && yes {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the change does not arrive: %w", ctx.Err()), err)
		case <-tick.C:
		}
	}
}

// host is what the proxy has of an endpoint, nil if nothing.
func (p *proxy) host(ctx context.Context, cluster, addr string) (*adminv3.HostStatus, error) {
	clusters, err := p.Clusters(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range clusters {
		if c.GetName() != cluster {
			continue
		}
		for _, h := range c.GetHostStatuses() {
			a := h.GetAddress().GetSocketAddress()
			if addr == fmt.Sprintf("%s:%d", a.GetAddress(), a.GetPortValue()) {
				return h, nil
			}
		}
	}
	return nil, nil
}
