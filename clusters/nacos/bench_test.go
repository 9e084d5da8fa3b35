package nacos

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// BenchmarkReal5000 measures 5 000 services with 4 instances in a real server: the first sync, changes, and rest.
//
//	go test ./clusters/nacos -run '^$' -bench Real5000 -benchtime 1x
func BenchmarkReal5000(b *testing.B) {
	const services, changes = 5000, 200
	at := sharedNacos(b)
	w := newRegistrant(b, at, "")
	ns := newNamespace(b, at)
	name := func(i int) serviceName { return serviceName{ns, defaultGroup, fmt.Sprint("svc-", i)} }
	fill(b, w, services, name)
	reg := prometheus.NewRegistry()
	spec := realSpec(at, ns)
	spec.Limits.RequestsPerSecond = 100_000
	spec.Nacos.DiscoveryInterval.Duration = api.DefaultDiscoveryInterval
	r, err := New(Options{Name: "trade", Spec: spec, Metrics: foreign.NewMetrics(reg)})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		out := newSink(b)
		before, begun := runtime.NumGoroutine(), time.Now()
		stop := begin(r, out)
		out.await("everything", func() bool { return out.status.State == model.StateLive })
		b.ReportMetric(time.Since(begun).Seconds(), "sync-s")
		b.ReportMetric(float64(runtime.NumGoroutine()-before), "goroutines")

		took := make([]time.Duration, changes)
		for i := range took {
			n := name(rand.IntN(services))
			addr := fmt.Sprintf("10.77.%d.%d:80", i/200, 1+i%200)
			begun := time.Now()
			w.set(n, []instance{host(addr)})
			want := addr + " healthy"
			row := model.RowKey{Kind: model.RowEndpoints, Key: "Service/ns/" + n.String()}
			out.await("the change", func() bool {
				e, ok := out.rows[row].(*model.Endpoints)
				return ok && len(e.Endpoints) == 1 && e.Endpoints[0].Addr.AddrPort.String()+" healthy" == want
			})
			took[i] = time.Since(begun)
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[changes/2].Milliseconds()), "change-p50-ms")
		b.ReportMetric(float64(took[changes*99/100].Milliseconds()), "change-p99-ms")
		b.ReportMetric(notified(b, reg), "notice-to-row-mean-ms")
		b.ReportMetric(idle(10*time.Second)*100, "idle-cpu-%")
		stop()
	}
}

func fill(b *testing.B, w *registrant, services int, name func(int) serviceName) {
	b.Helper()
	var work sync.WaitGroup
	next := make(chan int)
	for range 16 {
		work.Go(func() {
			for i := range next {
				var list []instance
				for j := range 4 {
					list = append(list, host(fmt.Sprintf("10.%d.%d.%d:80", 10+j, i/250, 1+i%250), func(h *instance) { h.Metadata = map[string]string{"version": "v1", "zone": "a"} }))
				}
				if err := w.try(name(i), list); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range services {
		next <- i
	}
	close(next)
	work.Wait()
}

// notified is the mean time from a notification to its row.
func notified(b *testing.B, reg *prometheus.Registry) float64 {
	b.Helper()
	families, err := reg.Gather()
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "isthmus_registry_event_to_put_seconds" {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleSum() / float64(h.GetSampleCount()) * 1000
		}
	}
	return 0
}

// idle is the share of a processor that this process takes while nothing happens.
func idle(d time.Duration) float64 {
	used := func() time.Duration {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before, begun := used(), time.Now()
	time.Sleep(d)
	return float64(used()-before) / float64(time.Since(begun))
}
