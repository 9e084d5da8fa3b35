package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
	"github.com/isthmus-mesh/isthmus/xds/evaluate"
)

// routeExplanation is what -o json prints.
type routeExplanation struct {
	Destination string         `json:"destination"` // "IP:PORT" that the connection goes to
	Result      string         `json:"result"`      // cluster, redirect, direct, no route, no listener; unavailable (503), closed or black hole
	Steps       []routeStep    `json:"steps"`
	Clusters    []routeCluster `json:"clusters,omitempty"`
	Status      int            `json:"status,omitempty"`
	Location    string         `json:"location,omitempty"`
	Path        string         `json:"path,omitempty"`      // as the upstream sees it, if it differs
	Authority   string         `json:"authority,omitempty"` // likewise
	Timeout     string         `json:"timeout,omitempty"`
	Faults      []string       `json:"faults,omitempty"`
	Mirrors     []string       `json:"mirrors,omitempty"`
	Notes       []string       `json:"notes,omitempty"` // what else may be the reason
}

type routeStep struct {
	Step   string   `json:"step"`
	Name   string   `json:"name,omitempty"`
	Why    string   `json:"why"`
	Config []string `json:"config,omitempty"` // "virtual-service/shop/reviews"
}

type routeCluster struct {
	Cluster   string          `json:"cluster"`
	Percent   float64         `json:"percent"`
	Missing   bool            `json:"missing,omitempty"` // the proxy has no such cluster
	Fails     string          `json:"fails,omitempty"`   // what becomes of its share: unavailable (503), closed or black hole
	Endpoints []routeEndpoint `json:"endpoints,omitempty"`
}

type routeEndpoint struct {
	Address  string `json:"address"`
	Health   string `json:"health"`
	Priority uint32 `json:"priority"`
	Weight   uint32 `json:"weight,omitempty"`
	Locality string `json:"locality,omitempty"`
}

func explanation(r *evaluate.Request, x *evaluate.Result) *routeExplanation {
	out := &routeExplanation{
		Destination: r.Destination.String(), Result: string(x.Kind), Steps: []routeStep{}, Status: x.Status, Location: x.Location, Path: x.Path,
		Authority: x.Authority, Timeout: x.Timeout, Faults: x.Faults, Mirrors: x.Mirrors,
	}
	if x.Fails != "" {
		out.Result = string(x.Fails)
	}
	if x.Fails == evaluate.Unavailable {
		out.Status = unavailable
	}
	for _, s := range x.Steps {
		out.Steps = append(out.Steps, routeStep{Step: s.What, Name: s.Name, Why: s.Why, Config: s.Config})
	}
	for _, c := range x.Clusters {
		v := routeCluster{Cluster: c.Cluster, Percent: c.Percent, Missing: c.Missing, Fails: string(c.Fails)}
		for _, e := range c.Endpoints {
			v.Endpoints = append(v.Endpoints, routeEndpoint{Address: e.Address, Health: e.Health, Priority: e.Priority, Weight: e.Weight, Locality: e.Locality})
		}
		out.Clusters = append(out.Clusters, v)
	}
	return out
}

// unavailable is the status of requests that can't be sent on.
const unavailable = 503

// writeRoute prints the steps, what becomes of the request, and the endpoints.
func writeRoute(w io.Writer, e *routeExplanation) error {
	fmt.Fprintf(w, "connection to %s\n\n", e.Destination)
	t := &output.Table{Header: []string{"STEP", "NAME", "BECAUSE", "OBJECT"}}
	for _, s := range e.Steps {
		t.Add(s.Step, s.Name, s.Why, strings.Join(s.Config, ","))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	lines := append([]string{outcome(e)}, e.Notes...)
	if _, err := fmt.Fprintf(w, "\n%s\n", strings.Join(lines, "\n")); err != nil || len(e.Clusters) == 0 {
		return err
	}
	fmt.Fprintln(w)
	t = &output.Table{Header: []string{"CLUSTER", "SHARE", "ENDPOINT", "HEALTH", "PRIORITY", "WEIGHT", "LOCALITY"}}
	for _, c := range e.Clusters {
		share := strconv.FormatFloat(c.Percent, 'f', -1, 64) + "%"
		for _, p := range c.Endpoints {
			t.Add(c.Cluster, share, p.Address, p.Health, strconv.Itoa(int(p.Priority)), strconv.Itoa(int(max(p.Weight, 1))), p.Locality)
		}
		if len(c.Endpoints) == 0 {
			t.Add(c.Cluster, share, "", "", "", "", "")
		}
	}
	return t.Write(w)
}

// outcome says in a line or some what becomes of a request.
func outcome(e *routeExplanation) string {
	var b strings.Builder
	switch evaluate.Kind(e.Result) {
	case evaluate.ToCluster:
		b.WriteString("it is sent on")
		writeLosses(&b, e)
	case evaluate.Redirect:
		fmt.Fprintf(&b, "it is answered with %d, to %s", e.Status, e.Location)
	case evaluate.Direct:
		fmt.Fprintf(&b, "it is answered with %d", e.Status)
	case evaluate.NoRoute:
		fmt.Fprintf(&b, "no route takes it: it is answered with %d", cmp.Or(e.Status, 404))
	case evaluate.Kind(evaluate.Unavailable):
		fmt.Fprintf(&b, "it fails: it is answered with %d, as there is nowhere to send it", unavailable)
	case evaluate.Closed: // or evaluate.Cut
		b.WriteString("it fails: the connection is closed")
	case evaluate.Kind(evaluate.BlackHole):
		b.WriteString("it fails: the connection is blackholed, which is to say closed")
	case evaluate.NoListener:
		b.WriteString("nothing listens there: the connection is refused")
	default:
		b.WriteString("what decides is not in the resources")
	}
	for _, x := range []struct{ what, value string }{
		{"path", e.Path}, {"authority", e.Authority}, {"timeout", e.Timeout}, {"faults", strings.Join(e.Faults, "; ")}, {"copies to", strings.Join(e.Mirrors, ", ")},
	} {
		if x.value != "" {
			fmt.Fprintf(&b, "; %s %s", x.what, x.value)
		}
	}
	return b.String()
}

// writeLosses says how many of the requests fail, if not all do.
func writeLosses(b *strings.Builder, e *routeExplanation) {
	lost := map[string]float64{}
	for _, c := range e.Clusters {
		lost[c.Fails] += c.Percent
	}
	if n := lost[string(evaluate.Unavailable)]; n > 0 {
		fmt.Fprintf(b, "; %s%% of requests are answered with %d", strconv.FormatFloat(n, 'f', -1, 64), unavailable)
	}
	if n := lost[string(evaluate.Cut)] + lost[string(evaluate.BlackHole)]; n > 0 {
		fmt.Fprintf(b, "; %s%% of connections are closed", strconv.FormatFloat(n, 'f', -1, 64))
	}
}
