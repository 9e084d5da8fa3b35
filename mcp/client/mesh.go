package client

import (
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

var (
	meshRef = model.ObjectKey{Kind: model.ConfigMesh, Name: "mesh"}
	meshRow = model.RowKey{Kind: model.RowConfig, Key: meshRef.String()}
)

// takeMesh reads the mesh-wide settings. Those in force stay when there are none in the response: a server has them or never
// had, and to have none any more would change the whole mesh.
func (r *run) takeMesh(f *feed, m *message) (t taken) {
	clear(f.faults)
	for _, res := range m.resources {
		s, err := r.settings(res)
		if err != "" {
			t.refuse(f, meshRef.Name, meshRef.Name+": "+err)
			continue
		}
		if r.mesh != nil && r.mesh.Source.Revision == s.Revision {
			continue
		}
		r.mesh = s.Row(meshRef.Name, time.Time{}, model.Source{Shard: r.key, Object: meshRef, Revision: s.Revision, Time: time.Now()})
		t.changed = true
		if r.synced {
			r.out.Put(model.Event{Row: meshRow, Obj: r.mesh})
		}
	}
	return t
}

// settings decodes and checks settings as if they had been read from a file.
func (r *run) settings(res resource) (s *kube.MeshSettings, wrong string) {
	cfg := &meshconfig.MeshConfig{}
	if got := res.body.MessageName(); got != cfg.ProtoReflect().Descriptor().FullName() || proto.Unmarshal(res.body.Value, cfg) != nil {
		return nil, "it is not a MeshConfig"
	}
	js, err := protojson.Marshal(cfg)
	if err != nil {
		return nil, "it can't be read"
	}
	s, faults, _ := kube.ParseMesh(model.ConfigMesh, js)
	switch {
	case len(faults) > 0:
		return nil, faults[0].Reason
	case s == nil:
		return nil, "it is empty"
	}
	return s, ""
}
