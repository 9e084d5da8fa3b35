package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// listeners are the hub's open ports; nil = off.
type listeners struct {
	grpc, http, monitoring net.Listener
}

// listen opens every port before anything starts, so that a taken port is the first thing said.
func listen(ctx context.Context, o *serveOptions) (ls listeners, err error) {
	defer func() {
		if err != nil {
			ls.close()
		}
	}()
	if ls.grpc, err = listenOn(ctx, "grpc-addr", o.grpcAddr); err != nil {
		return ls, err
	}
	if ls.http, err = listenOn(ctx, "http-addr", o.httpAddr); err != nil {
		return ls, err
	}
	ls.monitoring, err = listenOn(ctx, "monitoring-addr", o.monitoringAddr)
	return ls, err
}

func listenOn(ctx context.Context, flag, addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("can't listen for --%s; choose another address with --%s HOST:PORT, or switch it off with --%s '': %w", flag, flag, flag, err)
	}
	return l, nil
}

func (ls listeners) addresses() addresses {
	at := func(l net.Listener) string {
		if l == nil {
			return ""
		}
		return l.Addr().String()
	}
	return addresses{grpc: at(ls.grpc), http: at(ls.http), monitoring: at(ls.monitoring)}
}

func (ls listeners) close() {
	for _, l := range []net.Listener{ls.grpc, ls.http, ls.monitoring} {
		if l != nil {
			l.Close()
		}
	}
}

// serveHTTP serves until ctx ends, then lets requests in flight finish.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler, grace time.Duration, log *slog.Logger) error {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if s.Shutdown(bounded) != nil {
		s.Close() // a profile or trace may run for long
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
