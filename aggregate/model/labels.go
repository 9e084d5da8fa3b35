package model

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

func itoa(n uint16) string { return strconv.Itoa(int(n)) }

// What makes a Service an east-west gateway, in Istio's words: the label with the network that it leads into, and the one
// with the port that takes mutual TLS from other networks, if it is not EastWestPort. HBONE is taken at HBONEPort.
const (
	LabelNetwork     = "topology.istio.io/network"
	LabelGatewayPort = "networking.istio.io/gatewayPort"
	EastWestPort     = 15443
	HBONEPort        = 15008
)

// Labels are an object's labels. They are immutable once they belong to a row.
type Labels map[string]string

// Matches reports whether l has every pair of selector. A nil or empty selector matches nothing:
// a service without selector must not adopt workloads.
func (l Labels) Matches(selector Labels) bool {
	if len(selector) == 0 {
		return false
	}
	for k, v := range selector {
		if got, ok := l[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Equal reports whether both have the same pairs.
func (l Labels) Equal(o Labels) bool { return maps.Equal(l, o) }

// String gives "k=v,k2=v2" in key order.
func (l Labels) String() string {
	keys := slices.Sorted(maps.Keys(l))
	for i, k := range keys {
		keys[i] = k + "=" + l[k]
	}
	return strings.Join(keys, ",")
}
