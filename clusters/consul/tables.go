package consul

import "context"

// A scope's tables are its checks and its nodes. They are followed while there are services that are not watched: what changes in
// them names the services that must be read again. All checks together are long, and tell which instances there are; those
// that fail are few, and are told of at once.

// tableChange is what has changed in a table.
type tableChange struct {
	of       *scopeState
	table    int
	services map[string]bool // by name
	nodes    map[string]bool // all services on these
	err      error
}

// The tables.
const (
	tableChecks = iota
	tableCritical
	tableWarning
	tableNodes
	tables
)

// tablePaths are where they are read.
var tablePaths = [tables]string{"/v1/health/state/any", "/v1/health/state/critical", "/v1/health/state/warning", "/v1/catalog/nodes"}

// restful is how much longer than making sense of a table took it is not looked at again: at most a tenth of the time goes into it.
const restful = 9

// follow follows a table until ctx ends.
func (r *run) follow(ctx context.Context, s *scopeState, table int) {
	read := r.checks()
	if table == tableNodes {
		read = r.nodes()
	}
	var index uint64
	failures := 0
	for bucket := r.opts.Timing.bucket(); bucket.Wait(ctx) == nil; {
		q := query{path: tablePaths[table], params: s.params(), index: index, known: index, wait: r.opts.Timing.Wait}
		a, change, err := read(ctx, q)
		if err != nil {
			r.send(ctx, tableChange{of: s, table: table, err: err})
			index = 0
			pause(ctx, r.opts.Timing.backoff(failures), nil)
			failures++
			continue
		}
		failures = 0
		if change != nil {
			change.of, change.table = s, table
			r.send(ctx, *change)
		}
		index = next(index, a.index)
		pause(ctx, restful*a.took, nil)
	}
}

// checkKey names a check of a cluster.
type checkKey struct{ node, id string }

// checks gives a reader of checks, which tells what is other than at the last time.
func (r *run) checks() func(context.Context, query) (answer, *tableChange, error) {
	var last map[checkKey]check
	return func(ctx context.Context, q query) (answer, *tableChange, error) {
		var rows []check
		a, err := r.client.get(ctx, q, &rows)
		if err != nil || a.same {
			return a, nil, err
		}
		now := make(map[checkKey]check, len(rows))
		for _, c := range rows {
			now[checkKey{c.Node, c.CheckID}] = c
		}
		change := diff(last, now, noteCheck)
		last = now
		return a, change, nil
	}
}

func noteCheck(out *tableChange, c check) {
	if c.ServiceName != "" {
		out.services[c.ServiceName] = true
	} else {
		out.nodes[c.Node] = true
	}
}

// nodes is the same for nodes.
func (r *run) nodes() func(context.Context, query) (answer, *tableChange, error) {
	var last map[string]nodeRow
	return func(ctx context.Context, q query) (answer, *tableChange, error) {
		var rows []nodeRow
		a, err := r.client.get(ctx, q, &rows)
		if err != nil || a.same {
			return a, nil, err
		}
		now := make(map[string]nodeRow, len(rows))
		for _, n := range rows {
			now[n.Node] = n
		}
		change := diff(last, now, func(out *tableChange, n nodeRow) { out.nodes[n.Node] = true })
		last = now
		return a, change, nil
	}
}

// diff notes the rows that came, went or changed. All of the first table are as new: it gives a change without names, which
// makes the owner read everything.
func diff[K, R comparable](last, now map[K]R, note func(*tableChange, R)) *tableChange {
	out := &tableChange{services: map[string]bool{}, nodes: map[string]bool{}}
	if last == nil {
		out.services, out.nodes = nil, nil
		return out
	}
	for k, row := range now {
		if old, had := last[k]; !had || old != row {
			note(out, row)
			if had {
				note(out, old) // a check may have become another service's
			}
		}
	}
	for k, row := range last {
		if _, has := now[k]; !has {
			note(out, row)
		}
	}
	return out
}
