package v1alpha1

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	mostSources = 64 // of a FederatedService
	mostPorts   = 64
)

// Validate gives what is wrong with the spec, in the order of its fields.
func (s *FederatedServiceSpec) Validate() []Fault {
	c := newChecker()
	if c.at("host").unless(s.Host != "", codeRequired, "it is missing") {
		c.at("host").unless(isDNS(s.Host), codeHost, "%q is not a DNS name", clipped(s.Host))
	}
	names := s.ports(c)
	c.at("policy").word(string(s.Policy), string(FederateUnion), string(FederateFailover), string(FederateWeighted))
	s.sources(c, names)
	s.alike(c)
	c.exportTo(s.ExportTo)
	return *c.found
}

// alike checks that each port has one protocol, since proxies have one pool of connections for all its sources: what sources say of
// it is the port's own protocol, or, if that is left out, what the first of them says. TCP is whatever clients speak.
func (s *FederatedServiceSpec) alike(c checker) {
	for _, p := range s.Ports {
		own, by := strings.ToLower(p.Protocol), "the port"
		for i, src := range s.Sources {
			word := strings.ToLower(src.Ports[p.Name].Protocol)
			if own == "" && word != "" {
				own, by = word, fmt.Sprintf("sources[%d]", i)
			}
			a, b := protocols[own], protocols[word]
			fits := a == b || a == "" || b == "" || a == "TCP" && b != "UDP" && p.Protocol != ""
			c.item("sources", i).at("ports["+clipped(p.Name)+"].protocol").unless(fits, codeProtocol,
				"it is %s (%s), and that of %s is %s (%s): proxies speak to all sources of a port alike; give the service a port for each of the two, or make two FederatedServices", word, b, by, own, a)
		}
	}
}

// ports checks the ports, and gives their names.
func (s *FederatedServiceSpec) ports(c checker) map[string]bool {
	names, numbers := map[string]bool{}, map[uint16]bool{}
	c.at("ports").unless(len(s.Ports) > 0, codeRequired, "there is none")
	c.at("ports").unless(len(s.Ports) <= mostPorts, codeRange, "there are %d: at most %d", len(s.Ports), mostPorts)
	for i, p := range s.Ports {
		at := c.item("ports", i)
		at.at("name").unless(label.MatchString(p.Name), codeName, "%q is not the name of a port: lower-case letters, digits and '-', at most 63", clipped(p.Name))
		at.at("name").unless(!names[p.Name], codeDuplicate, "%q is there twice", clipped(p.Name))
		at.at("number").unless(p.Number != 0, codePort, "it is between 1 and 65535")
		at.at("number").unless(!numbers[p.Number] || p.Number == 0, codeDuplicate, "%d is there twice", p.Number)
		at.at("protocol").protocol(p.Protocol)
		names[p.Name], numbers[p.Number] = true, true
	}
	return names
}

func (s *FederatedServiceSpec) sources(c checker, ports map[string]bool) {
	c.at("sources").unless(len(s.Sources) > 0, codeRequired, "there is none")
	c.at("sources").unless(len(s.Sources) <= mostSources, codeRange, "there are %d: at most %d", len(s.Sources), mostSources)
	names, shares := map[string]bool{}, uint64(0)
	for i, src := range s.Sources {
		at := c.item("sources", i)
		src.check(at, ports)
		if name := cmp.Or(src.Name, src.Host); name != "" {
			at.at("name").unless(!names[name], codeDuplicate, "two sources are called %q: give them names", clipped(name))
			names[name] = true
		}
		if shares++; src.Weight != nil {
			shares += uint64(*src.Weight) - 1
		}
		if src.Weight != nil && s.Policy != FederateWeighted {
			at.at("weight").add(Warning, codeIneffective, "it is for the policy weighted")
		}
		if src.Priority != nil && s.Policy != FederateFailover {
			at.at("priority").add(Warning, codeIneffective, "it is for the policy failover")
		}
	}
	if s.Policy == FederateWeighted && len(s.Sources) > 0 {
		c.at("sources").unless(shares > 0, codeWeight, "the weights are 0 in all: nobody gets traffic")
	}
}

func (s *FederatedSource) check(c checker, ports map[string]bool) {
	switch {
	case s.Host == "" && len(s.Selector) == 0:
		c.refuse(codeRequired, "it has neither host nor selector")
	case s.Host != "" && len(s.Selector) > 0:
		c.refuse(codeExclusive, "it has host and selector: one of the two")
	case s.Host == "":
		c.at("name").unless(s.Name != "", codeRequired, "a selector needs a name to be told by")
	default:
		c.at("host").unless(isDNS(s.Host), codeHost, "%q is not a DNS name", clipped(s.Host))
	}
	c.at("namespace").unless(s.Namespace == "" || label.MatchString(s.Namespace), codeName, "%q is not a namespace", clipped(s.Namespace))
	for _, k := range slices.Sorted(maps.Keys(s.Selector)) {
		c.at("selector").unless(labelKey.MatchString(k) && labelValue.MatchString(s.Selector[k]), codeLabels, "%q is not a label", clipped(k+"="+s.Selector[k]))
	}
	for i, r := range s.Registries {
		provider, name, ok := strings.Cut(r, "/")
		c.item("registries", i).unless(ok && provider != "" && name != "", CodeValue, "%q is not provider/name, of which the name may be \"*\"", clipped(r))
	}
	c.texts("clusters", s.Clusters)
	for _, k := range slices.Sorted(maps.Keys(s.Ports)) {
		at := c.at("ports[" + clipped(k) + "]")
		at.unless(ports[k], codeName, "the service has no port of this name")
		p := s.Ports[k]
		at.unless(p.Name == "" || p.Number == 0, codePort, "write either a name or a number")
		at.unless(p != SourcePort{}, codePort, "it says nothing: write a name, a number or a protocol")
		at.at("protocol").protocol(p.Protocol)
	}
	if s.Weight != nil {
		c.at("weight").unless(*s.Weight <= 1_000_000, codeRange, "%d is not between 0 and 1000000", *s.Weight)
	}
	if s.Priority != nil {
		c.at("priority").unless(*s.Priority < 128, codeRange, "%d is not between 0 and 127", *s.Priority)
	}
}
