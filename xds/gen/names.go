package gen

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Fixed resource names.
const (
	blackHoleCluster          = "BlackHoleCluster"
	passthroughCluster        = "PassthroughCluster"
	inboundPassthroughCluster = "InboundPassthroughCluster"
	localCluster              = "local_cluster" // a static cluster of proxies with self-discovery
	virtualOutbound           = "virtualOutbound"
	virtualInbound            = "virtualInbound"
	routerRoutePrefix         = "exposed."
)

// outboundName is the cluster (and endpoint assignment) of a service port.
func outboundName(port uint16, host string) string { return subsetName(port, "", host) }

// subsetName is the cluster (and endpoint assignment) of a subset of a service port; "" is the port itself.
func subsetName(port uint16, subset, host string) string {
	return "outbound|" + strconv.Itoa(int(port)) + "|" + subset + "|" + host
}

// passthroughPrefix starts the names of passthrough clusters. Server names hold no "|".
const passthroughPrefix = "outbound_."

// passthroughName is the cluster (and endpoint assignment) of a service port, or of a subset of it, at a router
// that forwards mutual TLS by server name, and that server name.
func passthroughName(port uint16, subset, host string) string {
	return passthroughPrefix + strconv.Itoa(int(port)) + "_." + subset + "_." + host
}

func isPassthrough(name string) bool { return strings.HasPrefix(name, passthroughPrefix) }

// inboundName is the cluster, and the route name, of a port of the workload itself.
func inboundName(port uint16) string { return "inbound|" + strconv.Itoa(int(port)) + "||" }

// listenerName is "<bind>_<port>".
func listenerName(bind netip.Addr, port uint16) string {
	return bind.String() + "_" + strconv.Itoa(int(port))
}

// sniffedRoute is the route table of one service whose protocol is detected.
func sniffedRoute(host string, port uint16) string { return host + ":" + strconv.Itoa(int(port)) }

// routerRoute is a router's table for a service port.
func routerRoute(port uint16) string { return routerRoutePrefix + strconv.Itoa(int(port)) }

// sharedRoute is the table of all hosts of a port.
func sharedRoute(c Class, port uint16) string {
	if c.Type == Router {
		return routerRoute(port)
	}
	return itoa(port)
}

// parsePort reads a canonical decimal port number from 1 to 65535.
func parsePort(s string) (uint16, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '0' || s[0] == '+' {
		return 0, false
	}
	return uint16(n), true
}

// clusterName is a parsed name of an outbound cluster.
type clusterName struct {
	host   string
	subset string // "" for the port itself
	port   uint16
}

// parseOutbound reads "outbound|<port>|<subset>|<host>" or "outbound_.<port>_.<subset>_.<host>".
func parseOutbound(name string) (clusterName, bool) {
	rest, separator := strings.TrimPrefix(name, passthroughPrefix), "_."
	if len(rest) == len(name) {
		var ok bool
		if rest, ok = strings.CutPrefix(name, "outbound|"); !ok {
			return clusterName{}, false
		}
		separator = "|"
	}
	num, rest, _ := strings.Cut(rest, separator)
	subset, host, ok := strings.Cut(rest, separator)
	if !ok || host == "" || strings.ContainsRune(host, '|') || subset != "" && !namesSubset(subset) {
		return clusterName{}, false
	}
	port, ok := parsePort(num)
	return clusterName{host, subset, port}, ok
}

// namesSubset reports whether a subset of the name can be told from others by the names of its clusters.
func namesSubset(name string) bool {
	return name != "" && !strings.Contains(name, "|") && !strings.Contains(name, "_.")
}

// parseInbound reads "inbound|<port>||".
func parseInbound(name string) (uint16, bool) {
	rest, ok := strings.CutPrefix(name, "inbound|")
	if !ok {
		return 0, false
	}
	num, ok := strings.CutSuffix(rest, "||")
	if !ok {
		return 0, false
	}
	return parsePort(num)
}

// parseListener reads "<ip>_<port>".
func parseListener(name string) (bind netip.Addr, port uint16, ok bool) {
	i := strings.LastIndexByte(name, '_')
	if i < 0 {
		return netip.Addr{}, 0, false
	}
	bind, err := netip.ParseAddr(name[:i])
	if err != nil || bind.String() != name[:i] {
		return netip.Addr{}, 0, false
	}
	port, ok = parsePort(name[i+1:])
	return bind, port, ok
}

// routeName is a parsed route table name.
type routeName struct {
	Port uint16
	Host string // of a sniffed service's own table
}

// parseRoute reads "<port>", "<host>:<port>" or "exposed.<port>".
func parseRoute(name string) (routeName, bool) {
	if port, ok := parsePort(name); ok {
		return routeName{Port: port}, true
	}
	if rest, ok := strings.CutPrefix(name, routerRoutePrefix); ok {
		if port, ok := parsePort(rest); ok {
			return routeName{Port: port}, true
		}
	}
	i := strings.LastIndexByte(name, ':')
	if i <= 0 {
		return routeName{}, false
	}
	port, ok := parsePort(name[i+1:])
	return routeName{Port: port, Host: name[:i]}, ok
}

// servedPort gives the service port of the number that a proxy can serve. Kubernetes allows a UDP
// and a TCP port of one number; there is no UDP proxying.
func servedPort(s *pushcontext.ShapeView, number uint16) (model.Port, bool) {
	for _, p := range s.Ports {
		if p.Number == number && p.Protocol != model.ProtocolUDP {
			return p, true
		}
	}
	return model.Port{}, false
}

// servedPorts are the ports of a service that a proxy can serve, each number once.
func servedPorts(s *pushcontext.ShapeView) []model.Port {
	var out []model.Port
	for i, p := range s.Ports {
		if q, ok := servedPort(s, p.Number); ok && q == p && !seenBefore(s.Ports[:i], q) {
			out = append(out, p)
		}
	}
	return out
}

func seenBefore(ports []model.Port, p model.Port) bool {
	for _, q := range ports {
		if q == p {
			return true
		}
	}
	return false
}

// portProtocol reads the protocol of a port in Sidecars and Gateways; what is unknown is detected.
func portProtocol(name string) model.Protocol {
	var p model.Protocol
	if name == "" || p.UnmarshalText([]byte(strings.ToLower(name))) != nil {
		return model.ProtocolUnknown
	}
	return p
}
