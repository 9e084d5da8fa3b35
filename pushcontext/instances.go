package pushcontext

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// statement is what the endpoints of one service, or a workload itself, say of a workload address.
type statement struct {
	service  model.ServiceKey // zero for a workload
	workload string           // see Place.By; "" for a service
	locality model.Locality
	network  string
}

// backing is a statement with what the service makes the workload serve.
type backing struct {
	statement
	targets []Target
}

// sharedTargets counts the instances of a TargetsView, so that the last one takes it along.
type sharedTargets struct {
	view *TargetsView
	refs int
}

func (s *step) setInstances(key model.ServiceKey, old, next *ServiceView) {
	var only map[model.InstanceKey]struct{}
	if old != nil && next != nil && sameTargets(old.Shape, next.Shape) {
		only = movedWorkloads(old, next)
	}
	before, after := old.served(only), next.served(only)
	for k := range before {
		if _, still := after[k]; !still {
			s.said[k] = append(s.said[k], said{key, nil})
		}
	}
	for k, in := range after {
		if was := before[k]; was == nil || was.statement != in.statement || !slices.Equal(was.targets, in.targets) {
			s.said[k] = append(s.said[k], said{key, in})
		}
	}
}

// sameTargets reports whether an endpoint of either form of a service makes its workload serve the same.
func sameTargets(a, b *ShapeView) bool {
	return a == b || a.Federation == b.Federation && a.Name == b.Name && a.OwnPorts == b.OwnPorts && slices.Equal(a.Ports, b.Ports) &&
		!slices.ContainsFunc(a.Ports, func(p model.Port) bool { return a.ownPool(p) != b.ownPool(p) })
}

// movedWorkloads gives the addresses of which two views of one service say different things, given
// that the targets are the same: few, even if the service is large.
func movedWorkloads(old, next *ServiceView) map[model.InstanceKey]struct{} {
	moved := map[model.InstanceKey]struct{}{}
	add := func(e *model.Endpoint) {
		if !next.Shape.borrowed(e) {
			moved[instanceKey(e)] = struct{}{}
		}
	}
	group := func(l LocalityEndpoints) {
		for _, e := range l.Endpoints {
			add(e)
		}
	}
	for _, p := range old.Shape.Ports {
		walkBoth(old.Port(p.Name), next.Port(p.Name),
			func(a, b LocalityEndpoints) int { return a.Locality.Compare(b.Locality) }, group,
			func(a, b LocalityEndpoints) {
				walkBoth(a.Endpoints, b.Endpoints, func(a, b *model.Endpoint) int { return a.Addr.Compare(b.Addr) }, add,
					func(a, b *model.Endpoint) {
						switch {
						case a.Part != b.Part: // one may be another service's
							moved[instanceKey(a)] = struct{}{}
						case a.Network != b.Network || a.MTLS != b.MTLS || a.OtherMTLS != b.OtherMTLS:
							add(a)
						}
					})
			})
	}
	return moved
}

// walkBoth walks two sorted lists side by side.
func walkBoth[T any](a, b []T, compare func(T, T) int, one func(T), both func(T, T)) {
	for len(a) > 0 && len(b) > 0 {
		switch c := compare(a[0], b[0]); {
		case c < 0:
			one(a[0])
			a = a[1:]
		case c > 0:
			one(b[0])
			b = b[1:]
		default:
			both(a[0], b[0])
			a, b = a[1:], b[1:]
		}
	}
	for _, x := range a {
		one(x)
	}
	for _, x := range b {
		one(x)
	}
}

func instanceKey(e *model.Endpoint) model.InstanceKey {
	return model.InstanceKey{Cluster: e.Addr.Cluster, IP: e.Addr.AddrPort.Addr()}
}

// served gives the workload addresses behind a service: all, or those of only.
func (v *ServiceView) served(only map[model.InstanceKey]struct{}) map[model.InstanceKey]*backing {
	if v == nil {
		return nil
	}
	out := make(map[model.InstanceKey]*backing, len(only))
	for _, port := range v.Shape.Ports {
		for _, l := range v.Port(port.Name) {
			for _, e := range l.Endpoints {
				k := instanceKey(e)
				if _, wanted := only[k]; !k.IP.IsValid() || (only != nil && !wanted) || v.Shape.borrowed(e) {
					continue
				}
				in := out[k]
				if in == nil {
					in = &backing{statement: statement{v.Shape.Key, "", e.Locality, e.Network}, targets: make([]Target, 0, len(v.Shape.Ports))}
					out[k] = in
				}
				if t := target(v.Shape, port, e); !slices.ContainsFunc(in.targets, t.sameSocket) {
					in.targets = append(in.targets, t)
				}
			}
		}
	}
	return out
}

func target(s *ShapeView, port model.Port, e *model.Endpoint) Target {
	return Target{
		Cluster: s.Key.Cluster, Host: s.Key.Host, Namespace: s.Key.Namespace, Name: s.Name,
		Port: port.Number, PortName: port.Name, Protocol: port.Protocol, Endpoint: e.Addr.AddrPort.Port(), MTLS: e.MTLS, OtherMTLS: e.OtherMTLS,
		Pool: s.ownPool(port), OwnPort: s.OwnPorts,
	}
}

// ownPool is the connection pool that the rule for the service's own namespace has for a port: it holds at the
// receiver too.
func (s *ShapeView) ownPool(port model.Port) *networking.ConnectionPoolSettings {
	if len(s.Policies) == 0 {
		return nil
	}
	p := s.Policy(s.Key.Namespace)
	if p == nil {
		return nil
	}
	t := p.Spec.GetTrafficPolicy()
	for _, l := range t.GetPortLevelSettings() {
		if l.GetPort().GetNumber() == uint32(port.Number) {
			return l.ConnectionPool
		}
	}
	return t.GetConnectionPool()
}

// sameSocket reports whether both are one port of the service at one of the workload: networks may use the same
// addresses.
func (t *Target) sameSocket(o Target) bool {
	return t.Port == o.Port && t.PortName == o.PortName && t.Endpoint == o.Endpoint
}

func (t *Target) service() model.ServiceKey {
	return model.ServiceKey{Host: t.Host, Namespace: t.Namespace, Cluster: t.Cluster}
}

// without gives a copy of a list without some of it; mostly nothing is left.
func without[T any](list []T, drop func(*T) bool) (out []T) {
	for i := range list {
		if !drop(&list[i]) {
			out = append(out, list[i])
		}
	}
	return out
}

// said is what one service newly says of an address; nil takes back what it said before.
type said struct {
	service model.ServiceKey
	in      *backing
}

func (s said) compare(k model.ServiceKey) int { return s.service.Compare(k) }

// setInstance replaces what some services say of an address. All of a commit do so at once: thousands of services may have the same address.
func (s *step) setInstance(k model.InstanceKey, list []said) {
	slices.SortFunc(list, func(a, b said) int { return a.compare(b.service) })
	anew := func(of model.ServiceKey) bool {
		_, found := slices.BinarySearchFunc(list, of, said.compare)
		return found
	}
	var statements []statement
	var targets []Target
	old, _ := s.instances.get(k)
	if old != nil {
		statements = without(old.statements, func(x *statement) bool { return x.workload == "" && anew(x.service) })
		targets = without(old.Targets.Targets, func(t *Target) bool { return anew(t.service()) })
	}
	for _, x := range list {
		if x.in != nil {
			statements, targets = append(statements, x.in.statement), append(targets, x.in.targets...)
		}
	}
	slices.SortFunc(statements, compareStatements)
	slices.SortFunc(targets, compareTargets)
	s.swapInstance(k, old, statements, slices.Compact(targets))
}

// compareStatements puts services first.
func compareStatements(a, b statement) int {
	if (a.workload == "") != (b.workload == "") {
		return strings.Compare(a.workload, b.workload)
	}
	return cmp.Or(a.service.Compare(b.service), strings.Compare(a.workload, b.workload))
}

// place sets or takes back what a workload says of its address.
func (s *step) place(p Place) {
	old, _ := s.instances.get(p.Instance)
	if old.says(&p) {
		return
	}
	var statements []statement
	var targets []Target
	if old != nil {
		targets = old.Targets.Targets
		statements = without(old.statements, func(x *statement) bool { return x.workload == p.By })
	}
	if !p.Gone {
		statements = append(statements, statement{workload: p.By, locality: p.Locality, network: p.Network})
		slices.SortFunc(statements, compareStatements)
	}
	s.swapInstance(p.Instance, old, statements, targets)
}

// says reports whether a place is known already, or that it is gone.
func (v *InstanceView) says(p *Place) bool {
	if v == nil {
		return p.Gone
	}
	i := slices.IndexFunc(v.statements, func(x statement) bool { return x.workload == p.By })
	if i < 0 {
		return p.Gone
	}
	return !p.Gone && v.statements[i].locality == p.Locality && v.statements[i].network == p.Network
}

func (s *step) swapInstance(k model.InstanceKey, old *InstanceView, statements []statement, targets []Target) {
	if len(statements) == 0 {
		s.instances.delete(k)
	} else {
		s.instances.set(k, &InstanceView{
			Key: k, Targets: s.share(targets), Locality: statements[0].locality, Network: statements[0].network, Rev: s.version, statements: statements,
		})
	}
	if old != nil {
		s.release(old.Targets)
	}
	s.moved = append(s.moved, k)
}

func compareTargets(a, b Target) int {
	return cmp.Or(
		cmp.Compare(a.Endpoint, b.Endpoint),
		strings.Compare(a.Host, b.Host),
		strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(string(a.Cluster), string(b.Cluster)),
		cmp.Compare(a.Port, b.Port),
		strings.Compare(a.PortName, b.PortName),
		cmp.Compare(a.MTLS, b.MTLS),
		cmp.Compare(a.OtherMTLS, b.OtherMTLS),
	)
}

// share gives the one view of equal targets.
func (s *step) share(ts []Target) *TargetsView {
	if len(ts) == 0 {
		return s.base.noTargets
	}
	s.buf = appendTargets(s.buf[:0], ts)
	e := s.targets[string(s.buf)]
	if e == nil {
		e = &sharedTargets{view: &TargetsView{Targets: ts, Mesh: s.base.Mesh, key: string(s.buf)}}
		e.view.stamp(s.version)
		s.targets[e.view.key] = e
	}
	e.refs++
	return e.view
}

func (s *step) release(v *TargetsView) {
	if len(v.Targets) == 0 {
		return
	}
	e := s.targets[v.key]
	if e.refs--; e.refs == 0 {
		delete(s.targets, v.key)
	}
}

// appendTargets encodes every field, so that only equal targets have equal bytes.
func appendTargets(b []byte, ts []Target) []byte {
	for i := range ts {
		t := &ts[i]
		for _, x := range [...]string{string(t.Cluster), t.Host, t.Namespace, t.Name, t.PortName} {
			b = append(binary.AppendUvarint(b, uint64(len(x))), x...)
		}
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(append(b, byte(t.Protocol), byte(t.MTLS), byte(t.OtherMTLS)), t.Port), t.Endpoint)
		own := byte(0)
		if t.OwnPort {
			own = 1
		}
		b = appendPool(append(b, own), t.Pool)
	}
	return b
}

func appendPool(b []byte, p *networking.ConnectionPoolSettings) []byte {
	if p == nil {
		return append(b, 0)
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
	if err != nil { // it holds no text that could be wrong
		panic("pushcontext: " + err.Error())
	}
	return append(binary.AppendUvarint(append(b, 1), uint64(len(text))), text...)
}
