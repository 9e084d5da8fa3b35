package envoydump

import (
	"fmt"

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
		PathSeparatedPrefix string `json:"path_separated_prefix"`
	} `json:"match"`
	Route struct {
		Cluster       string `json:"cluster"`
		ClusterHeader string `json:"cluster_header"`
	} `json:"route"`
	Redirect       *struct{} `json:"redirect"`
	DirectResponse *struct {
		Status int `json:"status"`
	} `json:"direct_response"`
}

func (r route) match() string {
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
	case r.DirectResponse != nil:
		return fmt.Sprintf("response:%d", r.DirectResponse.Status)
	case r.Redirect != nil:
		return "redirect"
	}
	return ""
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
