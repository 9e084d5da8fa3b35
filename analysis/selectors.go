package analysis

import (
	"fmt"
	"slices"

	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"
	telemetry "istio.io/api/telemetry/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// choice is an object that is for some workloads only.
type choice struct {
	from      *model.Config
	field     string
	namespace string // of the workloads; "" for any
	labels    model.Labels
	severity  model.Severity
	idle      string // what it means that there are none
}

// choiceOf gives what an object selects; false if it is for all workloads of a namespace, or for none. Of workloads without a Service
// nothing is known, which those may well be that call others, and routers on machines; those that are called have one.
func choiceOf(c *model.Config, root string) (x choice, ok bool) {
	x = choice{from: c, namespace: c.Namespace, severity: model.SeverityInfo, idle: "it holds for none of them"}
	switch spec := c.Spec.(type) {
	case *networking.Gateway:
		x.field, x.namespace, x.labels, x.idle = "selector", "", spec.Selector, "no router serves it, unless one without a Service has them"
	case *networking.Sidecar:
		x.field, x.labels = "workloadSelector", spec.GetWorkloadSelector().GetLabels()
	case *networking.DestinationRule:
		x.field, x.labels = "workloadSelector", spec.GetWorkloadSelector().GetMatchLabels()
	case *telemetry.Telemetry:
		x.field, x.labels = "selector", spec.GetSelector().GetMatchLabels()
	case *security.PeerAuthentication:
		x.field, x.labels, x.severity = "selector", spec.GetSelector().GetMatchLabels(), model.SeverityWarning
	}
	if c.Namespace == root {
		x.namespace = ""
	}
	return x, len(x.labels) > 0 && !c.NotServed
}

// crowd is what is looked for among the workloads of a namespace.
type crowd struct {
	seen    bool                            // some workload is known
	choices map[string]map[string][]*choice // of which nothing is found yet, by one of their labels
}

// selectors tells of objects for workloads that are not there. Where no workload is known at all, as of configuration alone, nothing is
// to be told.
func (a *analysis) selectors() {
	all, crowds := a.choices()
	if len(all) == 0 {
		return
	}
	for s := range a.pc.Services() {
		for _, p := range slices.Concat(s.Endpoints, s.Shape.Inline) {
			for _, l := range p.Localities {
				for _, e := range l.Endpoints {
					crowds[""].meet(e.Labels)
					namespace := e.Workload.Namespace
					if namespace == "" {
						namespace = s.Shape.Key.Namespace
					}
					crowds[namespace].meet(e.Labels)
				}
			}
		}
	}
	for _, x := range all {
		if c := crowds[x.namespace]; c.seen && slices.Contains(c.of(x), x) {
			a.add(x.from.Source, model.Finding{Code: CodeNoWorkload, Severity: x.severity, Field: x.field,
				Message: fmt.Sprintf("no workload of a service has the labels %s, so %s: mend them, or label workloads so", labelsText(x.labels), x.idle)})
		}
	}
}

// choices gives all that select, and what to look for in each namespace; "" is the mesh.
func (a *analysis) choices() (all []*choice, crowds map[string]*crowd) {
	root := ""
	if a.pc.Mesh != nil {
		root = a.pc.Mesh.Config.GetRootNamespace()
	}
	crowds = map[string]*crowd{"": {}}
	for _, c := range a.pc.Configs {
		x, ok := choiceOf(c, root)
		if !ok {
			continue
		}
		if c.Kind == model.ConfigPeerAuthentication && c.Namespace == root {
			a.add(c.Source, model.Finding{Code: CodeIneffective, Severity: model.SeverityWarning, Field: x.field,
				Message: "with a selector it does nothing in the root namespace, as in Istio: leave the selector out to have it hold in the mesh, or put it into the namespace of the workloads"})
			continue
		}
		all = append(all, &x)
		if crowds[x.namespace] == nil {
			crowds[x.namespace] = &crowd{}
		}
		crowds[x.namespace].want(&x)
	}
	return all, crowds
}

// pivot is the label that a choice is found by.
func (x *choice) pivot() (key, value string) {
	for k := range x.labels {
		if key == "" || k < key {
			key = k
		}
	}
	return key, x.labels[key]
}

func (c *crowd) want(x *choice) {
	key, value := x.pivot()
	if c.choices == nil {
		c.choices = map[string]map[string][]*choice{}
	}
	if c.choices[key] == nil {
		c.choices[key] = map[string][]*choice{}
	}
	c.choices[key][value] = append(c.choices[key][value], x)
}

// of gives those with the choice's pivot of which nothing is found.
func (c *crowd) of(x *choice) []*choice {
	key, value := x.pivot()
	return c.choices[key][value]
}

// meet takes account of a workload. What selects it is looked for no more.
func (c *crowd) meet(labels model.Labels) {
	if c == nil {
		return
	}
	c.seen = true
	for key, values := range c.choices {
		if list := values[labels[key]]; len(list) > 0 {
			values[labels[key]] = slices.DeleteFunc(list, func(x *choice) bool { return labels.Matches(x.labels) })
		}
	}
}
