package consul

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/time/rate"

	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// burst is how many answers of a blocking query may come at once before Timing.Spacing parts them.
const burst = 3

// next gives the index to wait for: what an answer said, or none if it has gone back, as it does when a server's state is
// restored; then the next answer comes at once. An index of 0 is none, and would never wait.
func next(sent, got uint64) uint64 {
	switch {
	case got == 0:
		return 1
	case got < sent:
		return 0
	}
	return got
}

// pause waits for a while, for the end of ctx or for a kick.
func pause(ctx context.Context, d time.Duration, kick <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-kick:
	case <-ctx.Done():
	}
}

// backoff is how long to wait after so many failures, at random from the half of it on.
func (t Timing) backoff(failures int) time.Duration {
	d := min(t.RetryMin<<min(failures, 16), t.RetryMax)
	return d/2 + rand.N(d/2+1)
}

func (t Timing) bucket() *rate.Limiter { return rate.NewLimiter(rate.Every(t.Spacing), burst) }

// send gives the owner an event.
func (r *run) send(ctx context.Context, e event) {
	select {
	case r.events <- e:
	case <-ctx.Done():
	}
}

// reading is what a request for a service has brought.
type reading struct {
	of    *service
	value *foreign.Service // nil: it has instances, and none is taken
	nodes []string         // of its instances
	answer
	empty    bool // it has no instance
	onDemand bool // not by its watcher
	err      error
	at       time.Time
}

// read asks for a service; an index makes it wait for a change of what had that one.
func (r *run) read(ctx context.Context, s *service, index, known uint64) reading {
	var in entries
	out := reading{of: s}
	params := s.scope.params()
	// What is sorted by distance is not answered by the agent's streaming backend, which in a cluster of thousands of services tells
	// of a change most of a second late.
	params.Set("near", "_agent")
	out.answer, out.err = r.client.get(ctx, query{
		path: "/v1/health/service/" + url.PathEscape(s.name), params: params, index: index, wait: r.opts.Timing.Wait, known: known,
	}, &in)
	out.at = time.Now()
	if out.err != nil || out.same {
		return out
	}
	out.empty = len(in.list)+in.bad == 0
	// Who shows no token is not told that results are filtered.
	out.filtered = out.filtered || out.empty && out.deny && r.client.token == ""
	if v, taken := s.scope.convert.service(s.name, in); taken {
		out.value = &v
	}
	for i := range in.list {
		out.nodes = append(out.nodes, in.list[i].Node.Node)
	}
	return out
}

// watch follows a service, from an index on, until ctx ends.
func (r *run) watch(ctx context.Context, s *service, index uint64) {
	known := index
	failures := 0
	for bucket := r.opts.Timing.bucket(); bucket.Wait(ctx) == nil; {
		got := r.read(ctx, s, index, known)
		r.send(ctx, got)
		if got.err != nil {
			index, known = 0, 0
			pause(ctx, r.opts.Timing.backoff(failures), s.kick)
			failures++
			continue
		}
		failures, index = 0, next(index, got.index)
		known = got.believed(index)
	}
}

// believed is the index of which nothing more needs to be said; of what may not be complete there is none.
func (a answer) believed(index uint64) uint64 {
	if a.filtered {
		return 0
	}
	return index
}

// listed is what a list of services has brought: names, with the tags of their instances if these are known.
type listed struct {
	of    *scopeState
	names map[string][]string
	answer
	err error
}

// list follows the list of services of a scope.
func (r *run) list(ctx context.Context, s *scopeState) {
	var index, known uint64
	failures := 0
	for bucket := r.opts.Timing.bucket(); bucket.Wait(ctx) == nil; {
		got := r.names(ctx, s, index, known)
		r.send(ctx, got)
		switch {
		case got.err != nil:
			index, known = 0, 0
			pause(ctx, r.opts.Timing.backoff(failures), nil)
			failures++
			continue
		case got.index == 0: // it can't be waited for
			pause(ctx, r.refresh(), nil)
		default:
			index = next(index, got.index)
		}
		failures, known = 0, got.believed(index)
	}
}

func (r *run) refresh() time.Duration { return r.opts.Spec.Consul.RefreshInterval.Duration }

func (r *run) names(ctx context.Context, s *scopeState, index, known uint64) listed {
	if s.peer != "" {
		return r.exports(ctx, s)
	}
	out := listed{of: s}
	out.answer, out.err = r.client.get(ctx, query{
		path: "/v1/catalog/services", params: s.params(), index: index, wait: min(r.refresh(), r.opts.Timing.Wait), known: known,
	}, &out.names)
	if _, servers := out.names[serviceOfServers]; !servers && !out.same && out.deny && r.client.token == "" {
		out.filtered = true // who shows no token is not told so
	}
	return out
}

// exports are the names of what a peer exports to the cluster. They can't be waited for.
func (r *run) exports(ctx context.Context, s *scopeState) listed {
	out := listed{of: s, names: map[string][]string{}}
	var all importedServices
	v := s.params()
	v.Del("peer")
	out.answer, out.err = r.client.get(ctx, query{path: "/v1/imported-services", params: v}, &all)
	for _, i := range all {
		if i.SourcePeer == s.peer {
			out.names[i.Service] = nil
		}
	}
	if status(out.err) == http.StatusNotFound { // before Consul 1.20
		var p peering
		out.answer, out.err = r.client.get(ctx, query{path: "/v1/peering/" + url.PathEscape(s.peer), params: v}, &p)
		for _, name := range p.StreamStatus.ImportedServices {
			out.names[name] = nil
		}
	}
	out.index = 0
	return out
}

// datacenter asks what the agent's own datacenter is called.
func (r *run) datacenter(ctx context.Context) (string, error) {
	var all []string
	if _, err := r.client.get(ctx, query{path: "/v1/catalog/datacenters"}, &all); err != nil {
		return "", err
	}
	if len(all) == 1 {
		return all[0], nil
	}
	var self struct{ Config struct{ Datacenter string } }
	_, err := r.client.get(ctx, query{path: "/v1/agent/self"}, &self)
	if err == nil && self.Config.Datacenter == "" {
		err = errBody
	}
	if err != nil {
		return "", fmt.Errorf("there are %d datacenters, and which is the agent's own can't be told, so consul.datacenters must name it: %w", len(all), err)
	}
	return self.Config.Datacenter, nil
}
