package xdstest

import (
	"fmt"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// Dangling lists the clusters that listeners and routes of a proxy name and that it does not have:
// Envoy would reset connections and answer 503. State is by type and name, as Envoy.State gives it; a
// proxy without any cluster has not asked for them.
func Dangling(state map[string]map[string]string) ([]string, error) {
	if len(state[gen.ClusterURL]) == 0 {
		return nil, nil
	}
	var out []string
	for url, m := range map[string]proto.Message{
		gen.ListenerURL: &listenerv3.Listener{}, gen.RouteURL: &routev3.RouteConfiguration{}, gen.VirtualHostURL: &routev3.VirtualHost{},
	} {
		for name, body := range state[url] {
			if err := proto.Unmarshal([]byte(body), m); err != nil {
				return nil, fmt.Errorf("%s %s: %w", url, name, err)
			}
			err := clustersIn(m.ProtoReflect(), func(c string) {
				if _, ok := state[gen.ClusterURL][c]; !ok {
					out = append(out, fmt.Sprintf("%s names cluster %s", name, c))
				}
			})
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", url, name, err)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// clustersIn yields the clusters that a message names, at any depth.
func clustersIn(m protoreflect.Message, yield func(string)) (err error) {
	if a, ok := m.Interface().(*anypb.Any); ok {
		inner, err := a.UnmarshalNew()
		if err != nil {
			return err
		}
		m = inner.ProtoReflect()
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
		case f.Kind() == protoreflect.StringKind && f.Name() == "cluster" && !f.IsList():
			yield(v.String())
		case f.Kind() != protoreflect.MessageKind:
		case f.IsList():
			for i := range v.List().Len() {
				if err = clustersIn(v.List().Get(i).Message(), yield); err != nil {
					return false
				}
			}
		default:
			err = clustersIn(v.Message(), yield)
		}
		return err == nil
	})
	return err
}
