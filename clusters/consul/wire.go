package consul

import (
	"encoding/json"
	"errors"
)

// entry is one instance of a service, with its checks and those of its node: of health/service.
type entry struct {
	Node    node
	Service instance
	Checks  []check
}

type node struct {
	Node            string
	Address         string
	Datacenter      string
	TaggedAddresses map[string]string
	Meta            map[string]string
	Locality        *locality
}

type instance struct {
	Kind            string
	ID              string
	Service         string
	Tags            []string
	Meta            map[string]string
	Port            int
	Ports           []port // of Consul 1.22 and later
	Address         string
	SocketPath      string
	TaggedAddresses map[string]taggedAddress
	Weights         *weights
	Connect         struct{ Native bool }
	Locality        *locality
}

type port struct {
	Name string
	Port int
}

type taggedAddress struct {
	Address string
	Port    int
}

type weights struct{ Passing, Warning int }

type locality struct{ Region, Zone string }

type check struct {
	Node        string
	CheckID     string
	Status      string
	ServiceName string
}

// entries are the instances of a service. One that can't be read does not take the others with it.
type entries struct {
	list []entry
	bad  int
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *entries) UnmarshalJSON(text []byte) error {
	*e = entries{}
	var mistyped *json.UnmarshalTypeError
	if err := json.Unmarshal(text, &e.list); err == nil || !errors.As(err, &mistyped) {
		return err
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil {
		return err
	}
	*e = entries{}
	for _, p := range parts {
		var one entry
		if json.Unmarshal(p, &one) != nil {
			e.bad++
			continue
		}
		e.list = append(e.list, one)
	}
	return nil
}

// nodeRow is a node as catalog/nodes lists it.
type nodeRow struct {
	Node        string
	ModifyIndex uint64
}

// imported is a service that a peer exports to the cluster, as imported-services lists it: bare, or (Enterprise) wrapped.
type imported struct{ Service, SourcePeer string }

type importedServices []imported

// UnmarshalJSON implements json.Unmarshaler.
func (s *importedServices) UnmarshalJSON(text []byte) error {
	var bare []imported
	if json.Unmarshal(text, &bare) == nil {
		*s = bare
		return nil
	}
	var wrapped struct{ ImportedServices []imported }
	if err := json.Unmarshal(text, &wrapped); err != nil {
		return err
	}
	*s = wrapped.ImportedServices
	return nil
}

// peering is what a server that does not list imported services knows of a peer.
type peering struct {
	StreamStatus struct{ ImportedServices []string }
}
