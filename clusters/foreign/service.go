package foreign

import (
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Service is what a registry knows of one service, in no particular order.
type Service struct {
	// Key identifies the service within its registry, and names it in explanations: "orders", "PAY_GROUP@@orders". What comes from the registry
	// has been through KeyPart, so that keys, with or without the ID of an instance after a slash, can be told apart.
	Key string
	// Name is what host names begin with, and Suffix what they end with after a dot, both as the registry spells
	// them: "orders" and "PAY_GROUP.prod.nacos".
	Name, Suffix string
	Instances    []Instance
	LeftOut      []model.LeftOut // what the registry's own rules refused
	Revision     string          // of the registry; "" if it has none
	Created      time.Time       // zero if the registry does not know
}

// KeyPart gives a name as a part of a key: without slashes, and so that no two names become one.
func KeyPart(name string) string {
	if !strings.ContainsAny(name, "%/") {
		return name
	}
	return strings.ReplaceAll(strings.ReplaceAll(name, "%", "%25"), "/", "%2F")
}

// Instance is a running instance of a service.
type Instance struct {
	ID      string // unique within the service, stable over changes of the rest
	Address string // an IP, or a DNS name, which is resolved
	Port    uint16 // 0: it has none, and is left out
	// Ports are further ones, by name; of an instance that has them each is a port of its service, and Port is no other.
	Ports        []NamedPort
	Alternatives []Alternative // at most one for a network
	Protocol     string        // the registry's own word, "" if it has none: that in Metadata, else that of the mapping
	Weight       float64       // relative; 0 takes no traffic. Registries without weights say 1
	Health       model.Health
	Disabled     bool              // taken out of service by an operator: left out
	Cluster      string            // Nacos' clusterName or Consul's datacenter, for the mapping of localities
	Locality     model.Locality    // as the registry itself has it; parts that are empty come from Metadata, then from the mapping
	Metadata     map[string]string // becomes the labels
	Node         string
}

// NamedPort is one of an instance's several ports.
type NamedPort struct {
	Name     string
	Port     uint16
	Protocol string // as Instance.Protocol
}
