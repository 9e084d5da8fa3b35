package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/xds/evaluate"
)

// reached is where a connection to a host goes.
type reached struct {
	addr  netip.Addr
	port  uint16
	host  string   // the service's, "" if none has the host
	ports []uint16 // of the service
}

// listensAt is where a sidecar that intercepts nothing listens for its application: its own address if only the machine reaches
// that, else the loopback address.
func listensAt(own netip.Addr) netip.Addr {
	switch {
	case own.IsLoopback():
		return own
	case own.Is6():
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// portNote says that a service has no such port, "" if it has or there is no service.
func (r reached) portNote(asked uint16) string {
	if r.host == "" || slices.Contains(r.ports, asked) {
		return ""
	}
	if len(r.ports) == 0 {
		return r.host + " has no ports"
	}
	return fmt.Sprintf("%s has no port %d; its ports: %s", r.host, asked, numbers(r.ports))
}

func numbers[T uint16 | uint32](list []T) string {
	var out []string
	for _, n := range list {
		out = append(out, fmt.Sprint(n))
	}
	return strings.Join(out, ", ")
}

// demanded adds the step that says why a workload takes no cleartext.
func demanded(s proxySource, r *evaluate.Request, x *evaluate.Result) {
	if x.Kind != evaluate.Closed && x.Fails != evaluate.BlackHole {
		return
	}
	by, strict := s.strict(r.Destination)
	// Where connections to a port of the workload end in nothing, that is why.
	hole := x.Fails == evaluate.BlackHole && !slices.ContainsFunc(x.Steps, func(s evaluate.Step) bool { return s.Name == "virtualInbound-blackhole" })
	if !strict && !hole {
		return
	}
	step := evaluate.Step{What: "mutual TLS", Why: "a PeerAuthentication demands it (mode STRICT)"}
	if by != nil {
		step.Why = "PeerAuthentication " + by.Namespace + "/" + by.Name + " demands it (mode STRICT)"
		step.Config = []string{"peer-authentication/" + by.Namespace + "/" + by.Name}
	}
	if hole {
		step.Why += ", and the proxy has no certificates for it: isthmus bootstrap --cert-chain --key --root-cert, or node metadata " +
			"TLS_SERVER_CERT_CHAIN, TLS_SERVER_KEY, TLS_SERVER_ROOT_CERT"
	} else {
		step.Why += ", and the client does not speak it"
	}
	x.Steps = append(x.Steps, step)
}

func serverText(s debug.GatewayServer) string {
	return fmt.Sprintf("Gateway %s, server %d (port %d, hosts %s)", s.Gateway, s.Server, s.Port, strings.Join(s.Hosts, ", "))
}

// maxServerNotes bounds how many servers are told of.
const maxServerNotes = 8

// serverNotes say which servers of Gateways a router does not serve at the port that is asked for, and why, and where there are
// others if there is none.
func serverNotes(all []debug.GatewayServer, ports ...uint16) (out []string) {
	var others []uint32
	here := false
	for _, s := range all {
		at := slices.Contains(ports, uint16(s.Port))
		here = here || at
		switch {
		case !at:
			others = append(others, s.Port)
		case len(out) == maxServerNotes:
		case s.Reason != "":
			out = append(out, serverText(s)+" is not served: "+s.Reason)
		case len(s.Routes) == 0:
			out = append(out, serverText(s)+" has no routes: no VirtualService is bound to it")
		}
	}
	slices.Sort(others)
	switch {
	case len(all) == 0:
		out = append(out, "no Gateway selects the router")
	case !here:
		out = append(out, fmt.Sprintf("no Gateway that selects the router has a server at port %d; its servers are at %s", ports[0], numbers(slices.Compact(others))))
	}
	return out
}
