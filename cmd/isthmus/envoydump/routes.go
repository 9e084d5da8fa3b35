package envoydump

import (
	"fmt"
	"strings"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
)

type routeConfig struct {
	Name         string `json:"name"`
	VirtualHosts []struct {
		Name    string   `json:"name"`
		Domains []string `json:"domains"`
		Routes  []route  `json:"routes"`
	} `json:"virtual_hosts"`
}

type route struct {
	Match struct {
		Prefix    string `json:"prefix"`
		Path      string `json:"path"`
		SafeRegex struct {
			Regex string `json:"regex"`
		} `json:"safe_regex"`
		PathSeparatedPrefix string      `json:"path_separated_prefix"`
		Headers             []condition `json:"headers"`
		QueryParameters     []condition `json:"query_parameters"`
	} `json:"match"`
	Route struct {
		Cluster          string `json:"cluster"`
		ClusterHeader    string `json:"cluster_header"`
		WeightedClusters struct {
			Clusters []struct {
				Name   string `json:"name"`
				Weight uint32 `json:"weight"`
			} `json:"clusters"`
		} `json:"weighted_clusters"`
	} `json:"route"`
	Redirect       *struct{} `json:"redirect"`
	DirectResponse *struct {
		Status int `json:"status"`
	} `json:"direct_response"`
}

// condition is what a header or a query parameter must be like.
type condition struct {
	Name        string `json:"name"`
	InvertMatch bool   `json:"invert_match"`
	StringMatch *struct {
		Exact     string `json:"exact"`
		Prefix    string `json:"prefix"`
		Suffix    string `json:"suffix"`
		Contains  string `json:"contains"`
		SafeRegex struct {
			Regex string `json:"regex"`
		} `json:"safe_regex"`
	} `json:"string_match"`
	PresentMatch *bool `json:"present_match"`
}

// String is "name=value", with "*" for what may be anything and "~" before a regular expression; with "!" before it, it must not
// hold.
func (c condition) String() string {
	not := ""
	if present := c.PresentMatch == nil || *c.PresentMatch; c.InvertMatch == present {
		not = "!"
	}
	m := c.StringMatch
	switch {
	case m == nil:
		return not + c.Name
	case m.SafeRegex.Regex != "":
		return not + c.Name + "=~" + m.SafeRegex.Regex
	case m.Prefix != "":
		return not + c.Name + "=" + m.Prefix + "*"
	case m.Suffix != "":
		return not + c.Name + "=*" + m.Suffix
	case m.Contains != "":
		return not + c.Name + "=*" + m.Contains + "*"
	}
	return not + c.Name + "=" + m.Exact
}

// match is the path, then what headers and query parameters must be like: "/api/* user=jason ?debug".
func (r route) match() string {
	out := r.path()
	for _, h := range r.Match.Headers {
		out += " " + h.String()
	}
	for _, q := range r.Match.QueryParameters {
		out += " ?" + q.String()
	}
	return out
}

func (r route) path() string {
	switch m := r.Match; {
	case m.Path != "":
		return m.Path
	case m.SafeRegex.Regex != "":
		return "~" + m.SafeRegex.Regex
	case m.PathSeparatedPrefix != "":
		return m.PathSeparatedPrefix + "/*"
	default:
		return m.Prefix + "*"
	}
}

func (r route) target() string {
	switch {
	case r.Route.Cluster != "":
		return r.Route.Cluster
	case r.Route.ClusterHeader != "":
		return "header:" + r.Route.ClusterHeader
	case len(r.Route.WeightedClusters.Clusters) > 0:
		return r.weights()
	case r.DirectResponse != nil:
		return fmt.Sprintf("response:%d", r.DirectResponse.Status)
	case r.Redirect != nil:
		return "redirect"
	}
	return ""
}

// weights are the clusters with their weights.
func (r route) weights() string {
	var out []string
	for _, c := range r.Route.WeightedClusters.Clusters {
		out = append(out, fmt.Sprintf("%s=%d", c.Name, c.Weight))
	}
	return strings.Join(out, ",")
}

// Routes has a row per route; of several domains it shows the first and how many more.
func (d *Dump) Routes() *output.Table {
	t := &output.Table{Header: []string{"ROUTE", "VIRTUAL-HOST", "DOMAINS", "MATCH", "TARGET"}}
	for _, s := range d.Configs {
		for _, r := range s.Routes {
			addRoutes(t, r.Config)
		}
	}
	return t
}

func addRoutes(t *output.Table, c routeConfig) {
	for _, h := range c.VirtualHosts {
		domains := ""
		if len(h.Domains) > 0 {
			domains = h.Domains[0]
		}
		if n := len(h.Domains); n > 1 {
			domains += fmt.Sprintf("(+%d)", n-1)
		}
		for _, r := range h.Routes {
			t.Add(c.Name, h.Name, domains, r.match(), r.target())
		}
	}
}
