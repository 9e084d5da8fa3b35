package client

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"reflect"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/clusters/kube"
	"github.com/isthmus-mesh/isthmus/mcp"
)

// item is an object as a server sent it last. Another content is another item.
type item struct {
	version string // of the resource, for the server
	hash    uint64 // of its bytes
	object  kube.Object
	skip    skip
}

// skip says why an object is left out.
type skip string

const (
	skipNot       skip = ""
	skipLoop      skip = "loop"      // this hub has passed it on
	skipRevision  skip = "revision"  // it is for another revision of Istio
	skipSynthetic skip = "synthetic" // an istiod made it of a Service
)

var skips = []skip{skipLoop, skipRevision, skipSynthetic}

const labelRevision = "istio.io/rev"

// reader makes items of resources.
type reader struct {
	hub, revision string
	seed          maphash.Seed
}

// read gives the item of a resource, the one that there is if the content is the same, and the name, which is "" if it can't
// be told of which object the resource is.
func (c *reader) read(k *kind, r resource, there map[string]*item) (name string, it *item, err error) {
	hash := maphash.Bytes(c.seed, r.body.GetValue())
	if old := there[r.name]; old != nil && old.hash == hash {
		old.version = r.version
		return r.name, old, nil
	}
	in, wrong := c.open(r)
	if in.Name == "" {
		return "", nil, wrong
	}
	name = shortened(in.Namespace + "/" + in.Name)
	old := there[name]
	if old != nil && old.hash == hash {
		return name, old, nil
	}
	o, err := object(k.Kind, in, wrong)
	if err != nil {
		return name, nil, fmt.Errorf("%.320s: %w", name, err) // no valid name is longer
	}
	it = &item{version: r.version, hash: hash, object: o, skip: c.skips(k, in, o)}
	if old != nil && old.skip == it.skip && same(old.object, o) { // maps are encoded in any order
		old.version, old.hash = it.version, it.hash
		return name, old, nil
	}
	return name, it, nil
}

// open reads the envelope. If only the name on it can be read, the resource has nothing but that.
func (c *reader) open(r resource) (in mcp.Resource, err error) {
	in, err = mcp.Decode(r.body)
	if err == nil && r.name != "" && r.name != in.Namespace+"/"+in.Name {
		err = errTwoIDs
	}
	if err != nil {
		in = mcp.Resource{}
		in.Namespace, in.Name, _ = mcp.SplitName(r.name)
	}
	return in, err
}

func (c *reader) skips(k *kind, in mcp.Resource, o kube.Object) skip {
	rev, labelled := in.Labels[labelRevision]
	switch {
	case in.Via(c.hub):
		return skipLoop
	case labelled && rev != c.revision:
		return skipRevision
	case k.Name == kube.KindServiceEntry && synthetic(o):
		return skipSynthetic
	}
	return skipNot
}

// synthetic tells the ServiceEntry that an istiod makes of a Service: called "synthetic-NAME", for the host of that Service.
func synthetic(o kube.Object) bool {
	service, ok := strings.CutPrefix(o.Ref.Name, "synthetic-")
	se, _ := o.Value.(*kube.ServiceEntry)
	return ok && se != nil && len(se.Spec.Hosts) == 1 && strings.HasPrefix(se.Spec.Hosts[0], service+"."+o.Ref.Namespace+".svc.")
}

func metaOf(r mcp.Resource) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name, ResourceVersion: r.Version, Labels: r.Labels, Annotations: r.Annotations}
	if !r.Created.IsZero() {
		m.CreationTimestamp = metav1.NewTime(r.Created)
	}
	return m
}

// object converts a resource, of which something may be wrong already. Then, and if its body can't be read, the object is a
// broken one.
func object(k mcp.Kind, r mcp.Resource, wrong error) (kube.Object, error) {
	if spec := (&structpb.Struct{}); wrong == nil && r.Body.MessageIs(spec) {
		return structured(k, r, spec)
	}
	return kube.FromMessage(k.Group, k.Name, metaOf(r), func(m proto.Message) error {
		if wrong != nil {
			return wrong
		}
		return decode(r.Body, m)
	})
}

// decode reads a body whose message may be that of another version: they are the same on the wire.
func decode(a *anypb.Any, m proto.Message) error {
	if a == nil {
		return nil
	}
	want, got := m.ProtoReflect().Descriptor().FullName(), a.MessageName()
	if got.Name() != want.Name() || !strings.HasPrefix(string(got), "istio.") {
		return fmt.Errorf("its body is a %.100q, not a %s", got, want)
	}
	if proto.Unmarshal(a.Value, m) != nil { // its error is not the same twice
		return fmt.Errorf("its body can't be read as %s", want)
	}
	return nil
}

// structured converts a resource whose spec is as in YAML.
func structured(k mcp.Kind, r mcp.Resource, spec *structpb.Struct) (kube.Object, error) {
	broken := func(err error) (kube.Object, error) {
		o, _ := kube.NewObject(k.Name, &kube.Broken{Meta: metaOf(r), Reason: err.Error()})
		return o, nil
	}
	if proto.Unmarshal(r.Body.Value, spec) != nil {
		return broken(errBody)
	}
	js, err := json.Marshal(map[string]any{
		"apiVersion": k.Group + "/" + k.Versions[0], "kind": k.Name, "metadata": metaOf(r), "spec": spec.AsMap(),
	})
	if err != nil {
		return broken(err)
	}
	o, _, err := kube.DecodeJSON(js)
	if err != nil {
		return broken(err)
	}
	return o, nil
}

// same reports whether two objects have the same content.
func same(a, b kube.Object) bool {
	if a.Ref != b.Ref || a.Revision != b.Revision {
		return false
	}
	switch x := a.Value.(type) {
	case *kube.ServiceEntry:
		y, ok := b.Value.(*kube.ServiceEntry)
		return ok && sameMeta(x.Meta, y.Meta) && proto.Equal(x.Spec, y.Spec)
	case *kube.WorkloadEntry:
		y, ok := b.Value.(*kube.WorkloadEntry)
		return ok && sameMeta(x.Meta, y.Meta) && proto.Equal(x.Spec, y.Spec)
	case *kube.Config:
		y, ok := b.Value.(*kube.Config)
		return ok && sameMeta(x.Meta, y.Meta) && proto.Equal(x.Spec, y.Spec)
	}
	return reflect.DeepEqual(a.Value, b.Value)
}

func sameMeta(a, b metav1.ObjectMeta) bool {
	return a.CreationTimestamp.Equal(&b.CreationTimestamp) && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations)
}
