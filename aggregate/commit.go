package aggregate

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// parallelFrom is the number of dirty hosts from which merging is worth several goroutines.
const parallelFrom = 64

// commit publishes everything applied so far; nothing if that makes no difference. See the package
// documentation for the steps.
func (c *Controller) commit(now time.Time) {
	begin := time.Now()
	in := pushcontext.Commit{Time: now, Reasons: slices.Sorted(maps.Keys(c.reasons))}
	c.refreshBasis()
	if pc := c.opts.Hub.Current(); pc == nil || pc.Mesh != c.mesh.view {
		in.Mesh = c.mesh.view
	}
	c.refreshClusters()
	dirty := slices.Collect(maps.Keys(c.state.dirty))
	views := c.mergeAll(dirty)
	merged := time.Now()
	in.Services, in.Quiet = c.changes(dirty, views)
	in.Configs = c.refreshConfigs()
	in.Places = c.refreshPlaces(in.Mesh != nil)
	in.NoService, in.Networks, in.Conflicts = c.refreshOrphans(), c.networks.resolved, c.conflicts
	in.Gateways, in.VirtualServices, in.Scopes, in.Scoped = c.gateways.view, c.routes.all, c.scopes.published, c.scoped
	c.refreshShards()
	in.Shards = c.infos
	if len(in.Services)+len(in.Quiet)+len(in.Places) > 0 || in.Mesh != nil || c.rerouted(in) || c.infoChanged || c.state.configs && !slices.EqualFunc(c.configs, in.Configs, sameConfig) {
		c.publish(in, len(dirty), begin, merged)
	}
	c.committed(now)
}

// rerouted reports whether what routes and scopes say differs from what is published.
func (c *Controller) rerouted(in pushcontext.Commit) bool {
	published := c.opts.Hub.Current()
	return len(in.Scoped) > 0 || published == nil || published.Gateways != in.Gateways || !slices.Equal(in.VirtualServices, published.VirtualServices)
}

func (c *Controller) publish(in pushcontext.Commit, dirty int, begin, merged time.Time) {
	pc, d := c.builder.Commit(in)
	c.opts.Hub.Publish(pc, d)
	c.configs, c.infoChanged = in.Configs, false
	end := time.Now()
	c.metrics.commit(c, end.Sub(begin))
	var age time.Duration
	if !c.oldest.IsZero() {
		age = end.Sub(c.oldest)
		c.metrics.debounce.Observe(age.Seconds())
	}
	level := slog.LevelInfo
	if dirty == 0 && d.Empty() {
		level = slog.LevelDebug // the state of a registry is all that is new
	}
	c.opts.Log.Log(context.Background(), level, "commit", "version", pc.Version, "dirty", dirty, "endpoints", len(d.Endpoints), "shape", len(d.Shape),
		"mesh", d.Mesh, "reasons", strings.Join(in.Reasons, ","), "merge", merged.Sub(begin), "took", end.Sub(begin), "age", age)
}

// committed starts the next round.
func (c *Controller) committed(now time.Time) {
	cost := time.Duration(c.cost.Swap(0)) / time.Duration(runtime.GOMAXPROCS(0))
	c.debounce.commit(now, cost)
	clear(c.state.dirty)
	clear(c.reasons)
	c.state.configs, c.force, c.oldest, c.scoped = false, false, time.Time{}, nil
}

// refreshClusters lists the attached members, and marks dirty what depends on the list.
func (c *Controller) refreshClusters() {
	next := c.state.clusters()
	if slices.Equal(next, c.clusters) {
		return
	}
	c.clusters = next
	for k, h := range c.state.hosts {
		if boundNowhere(k, h.services, c.mesh) {
			c.state.mark(k)
		}
	}
}

// mergeAll merges the dirty hosts; result i belongs to host i.
func (c *Controller) mergeAll(dirty []hostKey) []merged {
	out := make([]merged, len(dirty))
	workers := runtime.GOMAXPROCS(0)
	if len(dirty) < parallelFrom || workers == 1 {
		for i, k := range dirty {
			out[i] = c.mergeHost(k)
		}
		return out
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(dirty); i = int(next.Add(1)) - 1 {
				out[i] = c.mergeHost(dirty[i])
			}
		})
	}
	wg.Wait()
	return out
}

// merged is what came of one host.
type merged struct {
	views   []*pushcontext.ServiceView
	orphans map[model.ServiceKey][]model.LeftOut // endpoints without a service
}

// mergeHost merges the services of one host. It only reads writer state. A service that can't be
// merged keeps its last good view.
func (c *Controller) mergeHost(k hostKey) (out merged) {
	h := c.state.hosts[k]
	if h == nil {
		return out
	}
	for _, in := range c.takeOver(k, partition(k, h.services, h.endpoints, &c.basis, c.clusters), c.state.lookup()) {
		if !in.defined() {
			out.orphan(in)
			continue
		}
		in.old = h.view(in.key)
		v, err := mergeContained(in)
		if err != nil {
			c.metrics.mergePanics.Inc()
			c.opts.Log.Error("service not merged, its last good state stays", "service", in.key.String(), "err", err)
		}
		if err != nil && v != nil && v.Shape.Mesh != c.mesh.view {
			v = carry(v, c.mesh.view)
		}
		if v != nil {
			out.views = append(out.views, v)
		}
	}
	return out
}

// carry gives a copy of a view that could not be merged under new settings.
func carry(v *pushcontext.ServiceView, m *pushcontext.MeshView) *pushcontext.ServiceView {
	next := &pushcontext.ServiceView{}
	copyFields(next, v)
	next.Shape = &pushcontext.ShapeView{}
	copyFields(next.Shape, v.Shape)
	next.Shape.Mesh = m
	return next
}

// copyFields copies the exported fields of a struct, those that are added later too.
func copyFields[T any](to, from *T) {
	a, b := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
	for i := range a.NumField() {
		if a.Type().Field(i).IsExported() {
			a.Field(i).Set(b.Field(i))
		}
	}
}

func mergeContained(in *mergeInput) (v *pushcontext.ServiceView, err error) {
	defer func() {
		if p := recover(); p != nil {
			v, err = in.old, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return merge(in), nil
}

func (h *hostRows) view(k model.ServiceKey) *pushcontext.ServiceView {
	for _, v := range h.views {
		if v.Shape.Key == k {
			return v
		}
	}
	return nil
}

// changes compares merged views with the published ones, remembers them, and forgets hosts of which
// nothing is left. Those that differ in nothing that a proxy is sent are quiet.
func (c *Controller) changes(dirty []hostKey, results []merged) (out []pushcontext.Change, quiet []*pushcontext.ServiceView) {
	for i, k := range dirty {
		h := c.state.hosts[k]
		if h == nil {
			continue
		}
		views := results[i].views
		for _, old := range h.views {
			if !slices.ContainsFunc(views, func(v *pushcontext.ServiceView) bool { return v.Shape.Key == old.Shape.Key }) {
				out = append(out, pushcontext.Change{Key: old.Shape.Key})
				c.metrics.conflicts.Sub(float64(conflictCount(old)))
			}
		}
		for _, v := range views {
			if old := h.view(v.Shape.Key); old != v {
				if old != nil && sameServed(old, v) {
					quiet = append(quiet, v)
				} else {
					out = append(out, pushcontext.Change{Key: v.Shape.Key, View: v})
				}
				c.metrics.conflicts.Add(float64(conflictCount(v) - conflictCount(old)))
			}
		}
		c.views += len(views) - len(h.views)
		h.views = views
		c.setOrphans(h, results[i].orphans)
		if h.empty() && c.federations.of(k) == nil {
			c.state.forget(k)
		}
	}
	return out, quiet
}

func conflictCount(v *pushcontext.ServiceView) int {
	if v == nil {
		return 0
	}
	return len(v.Shape.Conflicts)
}

// refreshConfigs lists configuration objects anew if any changed.
func (c *Controller) refreshConfigs() []*model.Config {
	if !c.state.configs {
		return c.configs
	}
	var out []*model.Config
	for _, sh := range c.state.sortedShards() {
		keys := slices.SortedFunc(maps.Keys(sh.configs), func(a, b string) int {
			x, y := sh.configs[a], sh.configs[b]
			return cmp.Or(strings.Compare(x.Kind, y.Kind), strings.Compare(x.Namespace, y.Namespace),
				strings.Compare(x.Name, y.Name), strings.Compare(a, b))
		})
		for _, k := range keys {
			out = append(out, sh.configs[k])
		}
	}
	return out
}

// sameConfig reports whether nobody who reads a snapshot could tell two rows apart.
func sameConfig(a, b *model.Config) bool { return a == b || model.SameRow(a, b) }

// markShard makes every service dirty that rows of the shard concern.
func (s *state) markShard(k model.ShardKey) {
	for rk, obj := range s.shard(k).rows {
		switch o := obj.(type) {
		case *model.Service:
			s.mark(hostKey{o.Namespace, o.Host})
		case *model.Endpoints:
			s.mark(hostKey{o.Namespace, o.Host})
		case *model.Workload:
			s.markSelecting(rowID{k, rk.Key}, o)
		}
	}
}
