package nacos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// runner is one run of a registry.
type runner struct {
	*Registry
	watcher *watcher
	dialer  dialer
	http    *http.Client
	ring    *ring
	failed  int // sessions in a row that did not get as far as an answer to everything
}

// forever keeps a session, with one server after the other.
func (r *runner) forever(ctx context.Context) error {
	for {
		err := r.session(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if r.watcher.live {
			r.failed = 0
		}
		r.watcher.lost(err)
		r.log.Warn("no contact with Nacos", "registry", r.key.String(), "err", err)
		var reset *resetError
		if errors.As(err, &reset) {
			r.ring.prefer(reset)
		}
		// All servers are tried before there is a pause.
		if r.failed++; r.failed >= r.ring.len() && sleep(ctx, r.backoff(r.failed-r.ring.len()+1)) != nil {
			return ctx.Err()
		}
	}
}

// session keeps one session until it ends.
func (r *runner) session(ctx context.Context) error {
	if r.ring.len() == 0 || r.failed > 0 {
		if err := r.askServers(ctx); err != nil && r.ring.len() == 0 {
			return fmt.Errorf("address server: %w", err)
		}
	}
	to, ok := r.ring.next()
	if !ok {
		return errors.New("the address server lists no server")
	}
	s, err := r.dialer.dial(ctx, to)
	if err != nil {
		return fmt.Errorf("%s: %w", to, err)
	}
	r.metrics.connected()
	if r.opts.Spec.Nacos.AddressServer != "" {
		s.work.Go(func() { r.keepServers(s) })
	}
	err = r.watcher.follow(s)
	s.close(err)
	return fmt.Errorf("%s: %w", to, err)
}

// askServers asks the address server, if there is one. If it does not say, what it said last holds.
func (r *runner) askServers(ctx context.Context) error {
	from := r.opts.Spec.Nacos.AddressServer
	if from == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.timing.login)
	defer cancel()
	list, err := askServers(ctx, r.http, from, r.opts.Spec.Nacos.GRPCPort)
	if err == nil {
		r.ring.listed(list)
	}
	return err
}

// keepServers asks the address server now and then, and ends a session with a server that it lists no more.
func (r *runner) keepServers(s *session) {
	for sleep(s.ctx, r.timing.servers) == nil {
		if err := r.askServers(s.ctx); err != nil {
			r.log.Warn("the address server does not answer", "registry", r.key.String(), "err", err)
		}
		if !r.ring.has(s.server) {
			s.end(errors.New("the address server no longer lists it"))
		}
	}
}
