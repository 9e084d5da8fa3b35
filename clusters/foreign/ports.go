package foreign

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// listening is one port of an instance: which of its service it backs, and where it is dialled.
type listening struct {
	port     string // name of the service port
	protocol model.Protocol
	number   uint16
	why      string // why it can't back one; "" if it can
	unknown  string // the word for a protocol that there is none for
}

// listeningOf are the ports of an instance. One without any has an entry that says so.
func listeningOf(c *converter, host string, i *Instance) []listening {
	if len(i.Ports) == 0 {
		l := c.listening("", i.Port, i.Protocol, host, i)
		if i.Port == 0 {
			l.why = "the instance has no port"
		}
		return []listening{l}
	}
	out := make([]listening, 0, len(i.Ports))
	for _, p := range i.Ports {
		l := c.listening(p.Name, p.Port, cmp.Or(p.Protocol, i.Protocol), host, i)
		if p.Port == 0 {
			l.why = "the instance has no number for its port " + p.Name
		}
		out = append(out, l)
	}
	return out
}

// listening tells the protocol: what the port or the instance says, then what is said of the service, then that of the spec.
func (c *converter) listening(name string, number uint16, word, host string, i *Instance) listening {
	given := c.ports[strings.ToLower(host)]
	word = strings.ToLower(cmp.Or(word, i.Metadata[c.spec.Ports.ProtocolKey], given.Protocol, c.spec.Ports.Protocol))
	l := listening{number: number}
	var known bool
	if l.protocol, known = model.RegistryProtocol(word); !known {
		l.protocol, l.unknown = model.ProtocolTCP, word
	}
	l.port = cmp.Or(name, l.protocol.String())
	return l
}

// mostPortProblems bounds how many ports that are left out are told of one service.
const mostPortProblems = 5

// chosenPorts are a service's ports, and what they are made of.
type chosenPorts struct {
	*converter
	host    string
	ports   []model.Port
	problem string
}

// choosePorts gives a service a port for each name that its instances' ports have. Its number is the one that is mapped, or the
// most frequent, and of those the lowest, so that neither their order nor one instance among many counts.
func (c *converter) choosePorts(s Service, last []model.Port) chosenPorts {
	p := chosenPorts{converter: c, host: c.host(s)}
	counts := map[string]map[uint16]int{}
	protocols := map[string]model.Protocol{}
	var problems []string
	for _, i := range byID(s.Instances) {
		for _, l := range listeningOf(c, p.host, i) {
			if l.unknown != "" && len(problems) == 0 {
				problems = append(problems, fmt.Sprintf("the protocol %q is unknown: it is served as TCP", l.unknown))
			}
			if l.why != "" {
				continue
			}
			if counts[l.port] == nil {
				counts[l.port], protocols[l.port] = map[uint16]int{}, l.protocol
			}
			counts[l.port][l.number]++
		}
	}
	given := cmp.Or(c.ports[strings.ToLower(p.host)].Port, c.spec.Ports.Default)
	taken, mixed := map[uint16]string{}, false
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		number := cmp.Or(given, frequent(counts[name]))
		if taken[number] != "" { // further ports can't have the number that was given: theirs is as the instances have it
			number = frequent(counts[name])
		}
		if other := taken[number]; other != "" {
			lost := 0
			for _, n := range counts[name] {
				lost += n
			}
			problems = append(problems, fmt.Sprintf("its port %s, of %s, is left out: it has the number of %s, %d", name, instances(lost), other, number))
			mixed = mixed || name == protocols[name].String() && other == protocols[other].String()
			continue
		}
		taken[number] = name
		p.ports = append(p.ports, model.Port{Name: name, Number: number, Protocol: protocols[name]})
	}
	if more := len(problems) - mostPortProblems; more > 0 {
		problems = append(problems[:mostPortProblems], fmt.Sprintf("%d more ports are left out", more))
	}
	if mixed {
		problems = append(problems, fmt.Sprintf("instances of one port need one protocol: correct %q in what they say of themselves, or set ports.protocolKey to a word that they do not use, and the protocol in ports.services", c.spec.Ports.ProtocolKey))
	}
	p.problem = sentences(problems...)
	switch {
	case len(p.ports) > 0:
	case len(last) > 0:
		p.ports = last
	case given != 0:
		l := c.listening("", given, "", p.host, &Instance{})
		p.ports = []model.Port{{Name: l.port, Number: given, Protocol: l.protocol}}
	}
	return p
}

func instances(n int) string {
	if n == 1 {
		return "1 instance"
	}
	return fmt.Sprint(n, " instances")
}

// frequent is the number that counts most, the lowest of those.
func frequent(counts map[uint16]int) (best uint16) {
	for n, c := range counts {
		if d := cmp.Or(c-counts[best], int(best)-int(n)); best == 0 || d > 0 {
			best = n
		}
	}
	return best
}

// of are the ports of an instance, each with the port of the service that it backs.
func (p chosenPorts) of(i *Instance) []listening {
	out := listeningOf(p.converter, p.host, i)
	for n := range out {
		l := &out[n]
		at := slices.IndexFunc(p.ports, func(q model.Port) bool { return q.Name == l.port })
		switch {
		case l.why != "":
		case at < 0:
			l.why = "the service has no port " + l.port
		case p.ports[at].Protocol != l.protocol:
			l.why = fmt.Sprintf("its port %s has the protocol %s, that of the service %s", l.port, l.protocol, p.ports[at].Protocol)
		}
	}
	return out
}
