package mcp

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	wire "istio.io/api/mcp/v1alpha1"
)

// ViaAnnotation of an object names the hubs that passed it on, by their ids and separated by commas. A hub leaves out what it
// has passed on itself, so that objects don't go round between hubs.
const ViaAnnotation = "isthmus.io/via"

// Resource is one object as it travels. Body is a message of istio.io/api, of whatever version the type URL says
// ("istio.networking.v1alpha3.ServiceEntry"), or a google.protobuf.Struct with the spec, for kinds that have no message.
type Resource struct {
	Namespace, Name     string
	Version             string // resourceVersion, or a hash of the content; "" if the server has none
	Created             time.Time
	Labels, Annotations map[string]string
	Body                *anypb.Any
}

// Decode reads an envelope. What could be read is given with an error too: an object of which only the name is known has
// Namespace and Name.
func Decode(a *anypb.Any) (Resource, error) {
	var in wire.Resource
	if a == nil || a.MessageName() != in.ProtoReflect().Descriptor().FullName() {
		return Resource{}, errEnvelope
	}
	if err := proto.Unmarshal(a.Value, &in); err != nil {
		return Resource{}, fmt.Errorf("%w: the bytes are not", errEnvelope)
	}
	m := in.GetMetadata()
	r := Resource{Version: m.GetVersion(), Labels: m.GetLabels(), Annotations: m.GetAnnotations(), Body: in.GetBody()}
	if t := m.GetCreateTime(); t.IsValid() && !t.AsTime().IsZero() {
		r.Created = t.AsTime()
	}
	var err error
	r.Namespace, r.Name, err = SplitName(m.GetName())
	return r, err
}

// SplitName reads the "namespace/name" of a resource.
func SplitName(s string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", errName
	}
	return namespace, name, nil
}

// Encode makes an envelope. Equal resources make equal bytes.
func Encode(r Resource) (*anypb.Any, error) {
	out := &wire.Resource{Metadata: &wire.Metadata{
		Name: r.Namespace + "/" + r.Name, Version: r.Version, Labels: maps.Clone(r.Labels), Annotations: maps.Clone(r.Annotations),
	}, Body: r.Body}
	if !r.Created.IsZero() {
		out.Metadata.CreateTime = timestamppb.New(r.Created)
	}
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, out, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, fmt.Errorf("encode %s/%s: %w", r.Namespace, r.Name, err)
	}
	return a, nil
}

// Via reports whether the hub with the id passed the object on.
func (r Resource) Via(hub string) bool {
	if hub == "" {
		return false
	}
	for _, id := range strings.Split(r.Annotations[ViaAnnotation], ",") {
		if strings.TrimSpace(id) == hub {
			return true
		}
	}
	return false
}
