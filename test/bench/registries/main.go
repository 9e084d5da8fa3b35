// Command registries measures how changes in a real Consul or Nacos reach proxies. It starts the server, fills it with services,
// runs the hub on it as a process of its own, connects proxies, changes instances one by one and then many a second, and prints how
// long a change took from the call that made it until every proxy had it, and what the hub costs while nothing happens.
//
//	registries [-provider consul,nacos] [-services 5000] [-instances 4] [-proxies 10] [-changes 100] …
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

type options struct {
	providers           string
	services, instances int
	proxies, changes    int
	churn, concurrency  int
	settle, idle        time.Duration
	interval            time.Duration
	streaming           bool
}

func main() {
	var o options
	flag.StringVar(&o.providers, "provider", "consul,nacos", "the registries to measure, with a comma between them")
	flag.IntVar(&o.services, "services", 5000, "services in the registry")
	flag.IntVar(&o.instances, "instances", 4, "instances of each")
	flag.IntVar(&o.proxies, "proxies", 10, "proxies, each subscribed to everything")
	flag.IntVar(&o.changes, "changes", 100, "changes that are timed, at rest and again under churn")
	flag.IntVar(&o.churn, "churn", 20, "other changes per second, under churn")
	flag.IntVar(&o.concurrency, "concurrency", 96, "limits.concurrency of the registry: how many requests may wait for an answer of Consul; its server allows twice as many connections")
	flag.BoolVar(&o.streaming, "streaming", true, "whether the Consul server answers blocking queries from its streaming backend, as it does by default")
	flag.DurationVar(&o.settle, "settle", time.Minute, "how long to wait after the first sync before anything is measured")
	flag.DurationVar(&o.idle, "idle", 20*time.Second, "how long nothing happens while the hub's use of the processor is counted")
	flag.DurationVar(&o.interval, "interval", 0, "refreshInterval or discoveryInterval of the registry; its default if 0")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(envoytest.WithHub(ctx, func() int {
		for name := range strings.SplitSeq(o.providers, ",") {
			if err := measure(ctx, name, o); err != nil {
				fmt.Fprintln(os.Stderr, "registries:", err)
				return 1
			}
		}
		return 0
	}))
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// measure starts everything, and prints a table.
func measure(ctx context.Context, name string, o options) (err error) {
	dir, err := os.MkdirTemp("", "isthmus-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	start, ok := servers[name]
	if !ok {
		return fmt.Errorf("there is no registry %q to measure: use consul, nacos or both", name)
	}
	say("%s: starting the server", name)
	s, err := start(ctx, dir, o)
	if err != nil {
		return err
	}
	defer s.Close()
	began := time.Now()
	if err := fill(ctx, s, o); err != nil {
		return err
	}
	say("%s: %d services with %d instances registered in %v", name, o.services, o.instances, time.Since(began).Round(time.Second))
	h, err := startHub(ctx, dir, s, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	return report(ctx, name, h, s, o)
}

func report(ctx context.Context, name string, h *hub, s server, o options) error {
	fmt.Printf("| %s, %d services × %d | |\n|---|---|\n", name, o.services, o.instances)
	line := func(what, format string, v ...any) { fmt.Printf("| %s | %s |\n", what, fmt.Sprintf(format, v...)) }
	line("first sync: all services known", "%.1f s", h.synced.Seconds())
	after, err := h.usage(ctx, o.settle)
	if err != nil {
		return err
	}
	line(fmt.Sprintf("in the %v after it: CPU of the hub", o.settle), "%.2f %%", 100*after.busy)
	quiet, err := h.usage(ctx, o.idle)
	if err != nil {
		return err
	}
	line(fmt.Sprintf("at rest for %v: CPU of the hub", o.idle), "%.2f %%", 100*quiet.busy)
	line("at rest: goroutines, RSS of the hub", "%d, %.0f MiB", quiet.goroutines, quiet.rss)
	for _, churn := range []int{0, o.churn} {
		d, err := h.changes(ctx, s, o, churn)
		if err != nil {
			return err
		}
		slices.Sort(d)
		what := "an endpoint change, at rest"
		if churn > 0 {
			what = fmt.Sprintf("an endpoint change, with %d others per second", churn)
		}
		line(what+": from the call until the last proxy has it, p50 / p99 / max", "%.0f / %.0f / %.0f ms", ms(quantile(d, .5)), ms(quantile(d, .99)), ms(d[len(d)-1]))
	}
	busy, err := h.usage(ctx, time.Second)
	if err != nil {
		return err
	}
	line("at the end: goroutines, RSS of the hub", "%d, %.0f MiB", busy.goroutines, busy.rss)
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// quantile of sorted values.
func quantile(d []time.Duration, q float64) time.Duration {
	return d[min(int(q*float64(len(d))), len(d)-1)]
}
