package foreign

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// Alternative is another address of an instance, which proxies of another network dial.
type Alternative struct {
	Network string // of the proxies; model.AnyNetwork: of those that no other is for
	Name    string // what the registry calls it
	Address string // an IP, or a DNS name, which is resolved
	Port    uint16 // 0: that of the instance. An instance with Ports has these at each address
	Odd     string // what is wrong with it, though it is of use; "" if nothing
}

// addresses are those of an instance that others can dial, or why there are none.
func (b *endpointsBuilder) addresses(i *Instance) (addrs []netip.Addr, why string) {
	all, why := b.known(i)
	if !slices.ContainsFunc(all, func(a netip.Addr) bool { return nobodys(a) != "" }) {
		return all, why
	}
	for _, a := range all {
		if what := nobodys(a); what == "" {
			addrs = append(addrs, a)
		} else {
			why = what + ": " + b.remedy()
		}
	}
	if len(addrs) > 0 {
		why = ""
	}
	return addrs, why
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// nobodys says why an address is none that others can dial, "" if it is one. Loopback addresses are: all may run on one machine.
func nobodys(a netip.Addr) string {
	switch {
	case a.IsUnspecified():
		return a.String() + " stands for all addresses of a machine, and is none to dial"
	case a.IsLinkLocalUnicast():
		return a.String() + " means something on one link only"
	case a == broadcast:
		return a.String() + " stands for all machines of a network, and is none to dial"
	case a.IsMulticast():
		return a.String() + " is an address of a group, and not of an instance"
	}
	return ""
}

// remedy says which setting an instance has its address from.
func (c *converter) remedy() string {
	switch c.spec.Provider {
	case api.Consul:
		return "correct the address of its registration, or the advertise_addr of its agent if it registers none"
	case api.Nacos:
		return "correct the ip of its registration (spring.cloud.nacos.discovery.ip, or the network interface that the client chooses)"
	}
	return "correct the address of its registration"
}

// alternatives are those of the nth address of an instance at a port; nil if there are none. Of a name with several addresses each of the
// instance's has one.
func (b *endpointsBuilder) alternatives(i *Instance, l listening, n int) *model.Alternatives {
	var out model.Alternatives
	for _, a := range i.Alternatives {
		addrs, _ := b.addresses(&Instance{Address: a.Address})
		if len(addrs) == 0 {
			continue
		}
		port := l.number
		if len(i.Ports) == 0 {
			port = cmp.Or(a.Port, port)
		}
		out = append(out, model.Alternative{Network: a.Network, IP: addrs[n%len(addrs)], Port: port, Name: a.Name})
	}
	if out == nil {
		return nil
	}
	return &out
}

// addressFaults says what is wrong with the addresses of a service's instances, "" if nothing.
func (b *endpointsBuilder) addressFaults(instances []*Instance) string {
	out, local, other, odd := fault{what: "left out"}, fault{what: "at a loopback address"}, fault{what: "without an address for other networks"}, fault{what: "with an odd address for other networks"}
	for _, i := range instances {
		all, _ := b.known(i)
		addrs, why := b.addresses(i)
		switch {
		case i.Disabled:
		case len(addrs) > 0 && addrs[0].IsLoopback():
			local.add(i, addrs[0].String()+" is right only if all proxies run on the same machine; else "+b.remedy())
		case len(all) > 0 && len(addrs) == 0:
			out.add(i, why)
		}
		for _, a := range i.Alternatives {
			all, why := b.known(&Instance{Address: a.Address})
			_, isName := dnsName(a.Address)
			switch {
			case len(all) > 0 && nobodys(all[0]) != "":
				other.add(i, a.Name+": "+nobodys(all[0]))
			case len(all) == 0 && !isName: // names are told when they can't be resolved
				other.add(i, a.Name+": "+why)
			case a.Odd != "":
				odd.add(i, a.Name+": "+a.Odd)
			}
		}
	}
	return sentences(out.String(), local.String(), other.String(), odd.String())
}

// fault is what several instances of a service have in common. What is said of it is of the first.
type fault struct {
	what, why string
	first     string
	count     int
}

func (f *fault) add(i *Instance, why string) {
	f.count++
	f.first, f.why = cmp.Or(f.first, i.ID), cmp.Or(f.why, why)
}

// String gives a sentence, "" without instances.
func (f *fault) String() string {
	switch f.count {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("%s, %s: %s", f.what, f.first, f.why)
	}
	return fmt.Sprintf("%s, %s and %d more: %s", f.what, f.first, f.count-1, f.why)
}

// sentences joins what is wrong with one thing; some may be "".
func sentences(list ...string) string {
	return strings.Join(slices.DeleteFunc(list, func(s string) bool { return s == "" }), "; ")
}
