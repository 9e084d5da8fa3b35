package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// writerServer is a process with a controller and no proxies: what the single writer can do.
type writerServer struct {
	hubServer
	published chan *pushcontext.Delta
	rounds    int // of Flood: each gives addresses that differ from the last
}

// Load builds the controller and waits for the first snapshot.
func (w *writerServer) Load(s Setup, out *Loaded) error {
	begin := time.Now()
	w.metrics, w.published = prometheus.NewRegistry(), make(chan *pushcontext.Delta, 1<<16)
	hub := pushcontext.NewHub(func(_ *pushcontext.PushContext, d *pushcontext.Delta) { w.published <- d })
	w.mesh = newMesh(s.Spec, aggregate.Options{
		Hub: hub, Registerer: w.metrics, ConfigCluster: s.Spec.Member(0), EndpointQuiet: applyTime, EndpointMax: 10 * applyTime,
	})
	if err := w.mesh.run(context.Background()); err != nil {
		return err
	}
	for len((<-w.published).Shape) == 0 {
	}
	*out = Loaded{Took: time.Since(begin)}
	return nil
}

// applyTime is how long the controller waits for the next event, so that it has taken all of a flood
// before it commits them.
const applyTime = 300 * time.Millisecond

// Flood is what the writer was asked and took. Every event changes another row.
type Flood struct {
	Events  int
	Applied time.Duration // CPU of the process until the last event was taken
	CPU     time.Duration // until all was published
	Commits int
	// CommitSeconds is the time that the commits took, by the controller's own metric.
	CommitSeconds float64
}

func (f *Flood) add(o Flood) {
	f.Events, f.CPU, f.Applied = f.Events+o.Events, f.CPU+o.CPU, f.Applied+o.Applied
	f.Commits, f.CommitSeconds = f.Commits+o.Commits, f.CommitSeconds+o.CommitSeconds
}

// Flood changes every endpoint row of so many services, all at once, and waits until all is
// published.
func (w *writerServer) Flood(services int, out *Flood) error {
	puts := w.changes(services)
	w.drain()
	var before, applied, after Usage
	if err := w.Usage(true, &before); err != nil {
		return err
	}
	for _, p := range puts {
		p.sink.Put(p.event)
	}
	if err := errors.Join(w.awaitTaken(), w.Usage(false, &applied)); err != nil {
		return err
	}
	commits := 0
	for left := services; left > 0; commits++ {
		left -= len((<-w.published).Endpoints)
	}
	if err := w.Usage(false, &after); err != nil {
		return err
	}
	*out = Flood{
		Events: len(puts), Applied: applied.CPU - before.CPU, CPU: after.CPU - before.CPU, Commits: commits,
		CommitSeconds: after.CommitSeconds - before.CommitSeconds,
	}
	return nil
}

// put is an event and where it goes.
type put struct {
	sink  model.Sink
	event model.Event
}

// changes gives rows that differ from those of the last round. The first is committed at once, since
// it comes after a rest; all others together.
func (w *writerServer) changes(services int) (puts []put) {
	w.rounds++
	for i := range services {
		for _, m := range w.mesh.spec.Homes(i) {
			puts = append(puts, put{w.mesh.members[m].sink, w.mesh.spec.Endpoints(i, m, scratch(i+w.rounds))})
		}
	}
	return puts
}

// awaitTaken waits until no event waits for the writer.
func (w *writerServer) awaitTaken() error {
	for {
		families, err := w.metrics.Gather()
		if err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
		waiting := 0.0
		for _, f := range families {
			if f.GetName() != "isthmus_mailbox_depth" {
				continue
			}
			for _, m := range f.GetMetric() {
				waiting += m.GetGauge().GetValue()
			}
		}
		if waiting == 0 {
			return nil
		}
		time.Sleep(pollEvery)
	}
}

const pollEvery = 5 * time.Millisecond

func (w *writerServer) drain() {
	for len(w.published) > 0 {
		<-w.published
	}
}
