package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"rsc.io/script"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
)

// viewVerbs print what the debug endpoints say.
func viewVerbs(w *world) map[string]script.Cmd {
	return map[string]script.Cmd{
		"service": verb("host", "print the merged definitions of a host, with conflicts", 1,
			func(_ *script.State, a []string) (string, error) { return w.explain(a, definition) }),
		"endpoints": verb("host [proxy]", "print every candidate endpoint of a host, used or not, for all proxies or one", 1,
			func(_ *script.State, a []string) (string, error) { return w.explain(a, candidates) }),
		"sources": verb("host", "print what came of each source of a FederatedService's host: healthy/all endpoints, and why none", 1,
			func(_ *script.State, a []string) (string, error) { return w.explain(a, sources) }),
		"metric": verb("regexp", "print the series whose name or labels match", 1, func(_ *script.State, a []string) (string, error) { return w.metric(a[0]) }),
		"status": verb("", "print the state of every member", 0, func(*script.State, []string) (string, error) { return w.status() }),
	}
}

// ask calls a debug endpoint as the command line would.
func (w *world) ask(path string, query url.Values, into any) error {
	h := debug.New(debug.Options{
		Snapshot: w.hub.Current, Between: w.hub.Between, ConfigCluster: configCluster, Proxies: proxies{w: w},
		Shards: w.shards,
		Ready: func() error {
			if !w.controller.Ready() {
				return errors.New("not ready")
			}
			return nil
		},
	})
	r := httptest.NewRequest("GET", path+"?"+query.Encode(), nil)
	r.RemoteAddr = "127.0.0.1:1"
	r.Host = "127.0.0.1"
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	if rec.Code != http.StatusOK {
		return fmt.Errorf("%s: %d %s", path, rec.Code, strings.TrimSpace(rec.Body.String()))
	}
	return json.Unmarshal(rec.Body.Bytes(), into)
}

func (w *world) explain(args []string, lines func(debug.Explanation) []string) (string, error) {
	if w.hub.Current() == nil || w.hub.Current().Host(args[0]) == nil {
		return "no such host\n", nil
	}
	q := url.Values{"host": {args[0]}}
	if len(args) > 1 {
		q.Set("proxyID", args[1])
	}
	var answer []debug.Explanation
	if err := w.ask("/debug/servicez", q, &answer); err != nil {
		return "", err
	}
	var out []string
	for _, x := range answer {
		out = append(out, lines(x)...)
	}
	return text(out), nil
}

func definition(x debug.Explanation) []string {
	s := x.Service
	name := s.Namespace + "/" + s.Hostname
	if s.ClusterLocal != "" {
		name += "@" + s.ClusterLocal
	}
	line := name + " " + s.Resolution
	for _, p := range s.Ports {
		line += fmt.Sprintf(" %d/%s", p.Port, p.Protocol)
	}
	out := []string{line}
	for _, c := range slices.Sorted(maps.Keys(s.Addresses)) {
		out = append(out, name+" vip "+c+" "+strings.Join(s.Addresses[c], ","))
	}
	for _, c := range x.Conflicts {
		out = append(out, fmt.Sprintf("%s conflict %s: %s %s over %s %s: %s", name, c.Field,
			c.Winner.Shard, c.Winner.Object, c.Loser.Shard, c.Loser.Object, c.Detail))
	}
	return out
}

// candidates gives "ADDRESS CLUSTER PORT HEALTH …" for endpoints in use and "ADDRESS CLUSTER PORT
// left-out REASON" for the others.
func candidates(x debug.Explanation) []string {
	var out []string
	if x.Reason != "" {
		out = append(out, "unseen "+x.Reason)
	}
	for _, e := range x.Endpoints {
		fields := []string{e.Address, e.Cluster, e.Port}
		if e.Reason != "" {
			fields = append(fields, "left-out", e.Reason)
		} else {
			fields = append(fields, e.Health)
			add := func(name, v string) {
				if v != "" {
					fields = append(fields, name+"="+v)
				}
			}
			add("locality", e.Locality)
			add("network", e.Network)
			add("via", e.Via)
			if e.Priority != nil && *e.Priority > 0 {
				add("priority", fmt.Sprint(*e.Priority))
			}
			if e.Weight != 0 && e.Weight != 1 {
				add("weight", fmt.Sprint(e.Weight))
			}
		}
		fields = append(fields, "from="+e.Source.Shard+":"+e.Source.Object)
		out = append(out, strings.Join(fields, " "))
	}
	return out
}

// sources gives "NAME HEALTHY/ALL REASON".
func sources(x debug.Explanation) (out []string) {
	if x.Federation == nil {
		return nil
	}
	for _, s := range x.Federation.Sources {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %d/%d %s", s.Name, s.Healthy, s.Endpoints, s.Reason)))
	}
	return out
}

func (w *world) status() (string, error) {
	var clusters []debug.Cluster
	if w.hub.Current() == nil {
		return "nothing committed\n", nil
	}
	if err := w.ask("/debug/clusterz", nil, &clusters); err != nil {
		return "", err
	}
	var out []string
	for _, c := range clusters {
		if c.Provider == string(model.ProviderMesh) || c.Provider == string(model.ProviderDNS) && len(c.Problems) == 0 {
			continue
		}
		out = append(out, contact(c.Provider+"/"+c.ID, c.SyncStatus, c.State, c.Error, c.Replacement))
	}
	var registries []debug.Registry
	if err := w.ask("/debug/registries", nil, &registries); err != nil {
		return "", err
	}
	for _, r := range registries {
		sync := map[bool]string{true: "synced", false: "syncing"}[r.Synced]
		if r.State == string(model.StateTimeout) {
			sync = "timeout"
		}
		out = append(out, contact(r.Provider+"/"+r.Name, sync, r.State, r.Reason, r.Replacement))
	}
	return text(out), nil
}

// contact is what is known of a member's contact with its source.
func contact(member, sync, state, fault, replacement string) string {
	line := member + " " + sync + " " + state
	if fault != "" {
		line += " error=" + fault
	}
	if replacement != "" {
		line += " replacement=" + replacement
	}
	return line
}

// metric gives 'name{label="value",…} value' of counters and gauges.
func (w *world) metric(pattern string) (string, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return "", err
	}
	families, err := w.metrics.Gather()
	if err != nil {
		return "", err
	}
	var out []string
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			line := fmt.Sprintf("%s{%s}", f.GetName(), strings.Join(labels, ","))
			if re.MatchString(line) && m.Histogram == nil && m.Summary == nil {
				out = append(out, fmt.Sprintf("%s %g", line, m.GetCounter().GetValue()+m.GetGauge().GetValue()))
			}
		}
	}
	return text(out), nil
}
