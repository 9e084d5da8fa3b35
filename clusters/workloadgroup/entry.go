package workloadgroup

import (
	"cmp"
	"maps"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Annotations of entries that are made of groups.
const (
	AnnotationGroup        = "istio.io/autoRegistrationGroup"
	AnnotationController   = "istio.io/workloadController" // the replica that the proxy is or was connected to
	AnnotationConnected    = "istio.io/connectedAt"
	AnnotationDisconnected = "istio.io/disconnectedAt"
	annotationHealthChecks = "proxy.istio.io/health-checks-enabled"
)

// Proxy is what a proxy says of the workload that it is beside. It is immutable; pointers tell streams apart.
type Proxy struct {
	ID        string // node id
	Group     string // name of its WorkloadGroup, "" if it has an Entry
	Entry     string // name of its WorkloadEntry
	Namespace string
	Network   string
	Locality  model.Locality
	Labels    model.Labels
	Addresses []netip.Addr // the first is the workload's
}

// Key names an entry.
type Key struct{ Namespace, Name string }

// String gives "namespace/name".
func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Entry is a WorkloadEntry.
type Entry struct {
	Key
	Labels      map[string]string // of the object
	Annotations map[string]string
	Spec        *networking.WorkloadEntry
	Health      *Health // its condition; nil if there is none
	Version     string  // as Entries gave it; "" for one that is not there yet
}

// Health is what a proxy reported of its workload.
type Health struct {
	Healthy bool
	Message string // why not
}

// longestName is that of an object in Kubernetes.
const longestName = 253

// name gives the entry of a proxy: the one that it names, or one made of its group, address and network.
func (p *Proxy) name() string {
	if p.Entry != "" {
		return p.Entry
	}
	parts := []string{p.Group}
	if len(p.Addresses) > 0 {
		parts = append(parts, strings.ReplaceAll(p.Addresses[0].String(), ":", "-"))
	}
	if p.Network != "" {
		parts = append(parts, p.Network)
	}
	name := strings.Map(nameRune, strings.ToLower(strings.Join(parts, "-")))
	if len(name) > longestName {
		name = strings.TrimLeft(name[len(name)-longestName:], "-.") // the end tells entries apart
	}
	return name
}

// nameRune makes a name that Kubernetes takes of what clients say.
func nameRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
		return r
	}
	return '-'
}

func (p *Proxy) key() Key { return Key{p.Namespace, p.name()} }

// made gives the entry that a group makes for a proxy: labels of the proxy before those of the template, its network and
// locality where the template has none.
func made(group *networking.WorkloadGroup, p *Proxy, controller string, connected time.Time) *Entry {
	spec := &networking.WorkloadEntry{}
	if group.Template != nil {
		spec = proto.CloneOf(group.Template)
	}
	if len(p.Addresses) > 0 {
		spec.Address = p.Addresses[0].String()
	}
	spec.Labels = maps.Clone(spec.Labels)
	if spec.Labels == nil {
		spec.Labels = map[string]string{}
	}
	maps.Copy(spec.Labels, p.Labels)
	spec.Network = cmp.Or(p.Network, spec.Network)
	if spec.Locality == "" && p.Locality != (model.Locality{}) {
		spec.Locality = p.Locality.String()
	}
	e := &Entry{Key: p.key(), Labels: maps.Clone(group.GetMetadata().GetLabels()), Annotations: map[string]string{}, Spec: spec}
	maps.Copy(e.Annotations, group.GetMetadata().GetAnnotations())
	e.Annotations[AnnotationGroup] = p.Group
	if group.Probe != nil {
		e.Annotations[annotationHealthChecks] = "true"
	}
	e.connect(controller, connected)
	return e
}

func (e *Entry) connect(controller string, at time.Time) {
	if e.Annotations == nil {
		e.Annotations = map[string]string{}
	}
	e.Annotations[AnnotationController], e.Annotations[AnnotationConnected] = controller, at.UTC().Format(time.RFC3339Nano)
	delete(e.Annotations, AnnotationDisconnected)
}

// same reports whether nothing has to be written, the time of the connection aside.
func (e *Entry) same(o *Entry) bool {
	a, b := maps.Clone(e.Annotations), maps.Clone(o.Annotations)
	delete(a, AnnotationConnected)
	delete(b, AnnotationConnected)
	return maps.Equal(a, b) && maps.Equal(e.Labels, o.Labels) && proto.Equal(e.Spec, o.Spec) && sameHealth(e.Health, o.Health)
}

func sameHealth(a, b *Health) bool { return a == b || a != nil && b != nil && *a == *b }

func (e *Entry) clone() *Entry {
	c := *e
	c.Labels, c.Annotations, c.Spec = maps.Clone(e.Labels), maps.Clone(e.Annotations), proto.CloneOf(e.Spec)
	return &c
}

// ofGroup reports whether an entry was made of a group.
func (e *Entry) ofGroup() bool { return e.Annotations[AnnotationGroup] != "" }

// removable gives the version at which an entry may be removed; "" if it was not made of a group.
func (e *Entry) removable() string {
	if !e.ofGroup() {
		return ""
	}
	return e.Version
}

// goneSince gives when the proxy of an entry has disconnected; false while it is connected.
func (e *Entry) goneSince() (time.Time, bool) {
	at, err := time.Parse(time.RFC3339Nano, e.Annotations[AnnotationDisconnected])
	return at, err == nil
}
