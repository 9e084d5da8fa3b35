package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// readyLimit bounds every start.
const readyLimit = 2 * time.Minute

// stage is everything that the demo runs.
type stage struct {
	dir      string // holds the copy of the example and the hub's log
	clusters string // the copy
	hub      *envoytest.Hub
	services catalog
	backends []*envoytest.Backend
	proxies  []*proxy
	loopback *envoytest.Loopback
	closers  []func() error // in order of start
}

// proxy is an Envoy that serves on a loopback address.
type proxy struct {
	*envoytest.Envoy
	label   string
	options bootstrap.Options
	place   [2]byte // the last two bytes of its address
}

// addr is where the proxy listens for a service port.
func (p *proxy) addr(port uint16) string { return netip.AddrPortFrom(p.options.IP, port).String() }

// setUp starts everything. What was started before an error is in the stage, to
// be closed.
func setUp(ctx context.Context, o options, out io.Writer) (*stage, error) {
	s := &stage{}
	for _, step := range []func(context.Context, options, io.Writer) error{
		s.copyExample, s.startHub, s.startBackends, s.startProxies,
	} {
		if err := step(ctx, o, out); err != nil {
			return s, err
		}
	}
	return s, nil
}

// close stops everything, last started first.
func (s *stage) close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	return errors.Join(errs...)
}

func (s *stage) onClose(f func() error) { s.closers = append(s.closers, f) }

func (s *stage) copyExample(_ context.Context, o options, out io.Writer) (err error) {
	if s.loopback, err = envoytest.ClaimLoopback(0); err != nil {
		return err
	}
	s.onClose(s.loopback.Close)
	if s.dir, err = os.MkdirTemp("", "isthmus-demo-"); err != nil {
		return err
	}
	s.onClose(func() error { return os.RemoveAll(s.dir) })
	s.clusters = filepath.Join(s.dir, filepath.Base(o.example))
	if err := copyClusters(s.clusters, o.example, s.loopback.Prefix); err != nil {
		return fmt.Errorf("copy the example: %w", err)
	}
	say(out, "clusters", "%s, a copy of %s", s.clusters, o.example)
	return nil
}

// copyClusters copies a folder of YAML. The example's addresses, all in
// 127.0.0.0/16, move to the block, so that two demos can run side by side.
func copyClusters(to, from string, block netip.Prefix) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	ip := block.Addr().As4()
	prefix := fmt.Sprintf("%d.%d.", ip[0], ip[1])
	return filepath.WalkDir(to, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, []byte(strings.ReplaceAll(string(text), "127.0.", prefix)), 0o644)
	})
}

func (s *stage) startHub(ctx context.Context, o options, out io.Writer) error {
	log := filepath.Join(s.dir, "hub.log")
	var err error
	for range hubTries {
		if s.hub, err = s.launchHub(ctx, o, log); err == nil || !strings.Contains(err.Error(), taken) {
			break
		}
	}
	if err != nil {
		return err
	}
	s.onClose(s.hub.Stop)
	say(out, "hub", "%s, log in %s", s.hub.GRPC, log)
	return nil
}

// A port that was free may be taken before the hub has it.
const (
	hubTries = 5
	taken    = "address already in use"
)

func (s *stage) launchHub(ctx context.Context, o options, log string) (*envoytest.Hub, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(log); err != nil { // of an earlier try, whose error is not this one's
		return nil, err
	}
	return envoytest.LaunchHub(ctx, envoytest.HubOptions{
		Binary: o.hub, Dir: s.clusters, GRPC: ports[0], HTTP: ports[1], Monitoring: ports[2], Log: log,
		Args: []string{"--cluster-id", "east"}, // registries are declared there
	})
}

// freePorts are addresses that nothing listens on.
func freePorts(n int) ([]string, error) {
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		out = append(out, l.Addr().String())
	}
	return out, nil
}

// startBackends serves every endpoint that the hub lists: the example says
// where they are, and of which cluster.
func (s *stage) startBackends(ctx context.Context, _ options, out io.Writer) error {
	var err error
	if s.services, err = readCatalog(ctx, s.hub); err != nil {
		return err
	}
	var names []string
	for _, e := range s.services.endpoints() {
		b, err := envoytest.Serve(envoytest.BackendOptions{Kind: e.kind, Addr: e.addr, Name: e.name, Cluster: e.cluster})
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("%w (do backends of the quick start still run, or another example's? 'ss -ltnp' tells)", err)
		}
		if err != nil {
			return err
		}
		s.onClose(b.Close)
		s.backends = append(s.backends, b)
		names = append(names, b.Name)
	}
	if len(names) == 0 {
		return errors.New("the example has no endpoints to serve")
	}
	say(out, "backends", "%s", strings.Join(names, ", "))
	return nil
}

// cast are the proxies: a sidecar beside each client of the example, and a
// gateway that is in no zone, so that it prefers none.
func cast() []*proxy {
	return []*proxy{
		{label: "client in east", options: bootstrap.Options{
			Type: bootstrap.Sidecar, ID: "client-east.demo", Cluster: "east", Locality: "eu-east/eu-east-a",
		}, place: [2]byte{1, 1}},
		{label: "client in west", options: bootstrap.Options{
			Type: bootstrap.Sidecar, ID: "client-west.demo", Cluster: "west", Locality: "eu-west/eu-west-a",
		}, place: [2]byte{2, 1}},
		{label: "gateway", options: bootstrap.Options{
			Type: bootstrap.Router, ID: "gateway.demo", Cluster: "east", Expose: true,
		}, place: [2]byte{3, 1}},
	}
}

func (s *stage) startProxies(ctx context.Context, _ options, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for _, p := range cast() {
		p.options.IP = s.loopback.Addr(p.place[0], p.place[1])
		p.options.Hub, p.options.Interception = s.hub.GRPC, bootstrap.None
		text, err := bootstrap.JSON(p.options)
		if err != nil {
			return err
		}
		if p.Envoy, err = envoytest.Launch(ctx, envoytest.Options{Name: p.label, Bootstrap: text}); err != nil {
			return err
		}
		s.onClose(p.Close)
		s.proxies = append(s.proxies, p)
	}
	return s.waitProxies(ctx, out)
}

func (s *stage) waitProxies(ctx context.Context, out io.Writer) error {
	var wait sync.WaitGroup
	errs := make([]error, len(s.proxies))
	for i, p := range s.proxies {
		wait.Go(func() {
			if err := p.waitServing(ctx); err != nil {
				errs[i] = fmt.Errorf("%s: %w", p.label, err)
			}
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, p := range s.proxies {
		say(out, p.label, "Envoy on %s", p.options.IP)
	}
	return nil
}

// waitServing waits until the proxy is ready with all that it was sent.
func (p *proxy) waitServing(ctx context.Context) error {
	if err := p.WaitReady(ctx); err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	rejected, err := p.Rejected(ctx)
	if err == nil && len(rejected) > 0 {
		err = fmt.Errorf("it can't use what it was sent; does another program listen on one of its ports? the end of its log:\n%s", p.Log())
	}
	return err
}

func say(out io.Writer, what, format string, args ...any) {
	fmt.Fprintf(out, "  %-16s %s\n", what, fmt.Sprintf(format, args...))
}
