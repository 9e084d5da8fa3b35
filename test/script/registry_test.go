package script

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"
	"rsc.io/script"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
)

// registry is one instance of a registry under the script's control. Its objects are converted as
// those of a real member. An instance that has been ended goes on writing: nobody must listen.
type registry struct {
	*memory.Registry
	store *kube.Store
	mcs   bool // the Multi-Cluster Services API is on
}

func newRegistry(key model.ShardKey) *registry {
	r := &registry{Registry: memory.New(key)}
	r.store = r.newStore()
	return r
}

func (r *registry) newStore() *kube.Store {
	return kube.NewStore(kube.Converter{Shard: r.Key(), MCS: r.mcs})
}

func (r *registry) replace(objects []kube.Object) {
	r.store = r.newStore()
	r.store.Apply(objects, nil)
	r.Replace(r.store.State())
	if r.Started() > 0 && r.Running() == 0 {
		r.LateReplace(r.store.State())
	}
}

func (r *registry) apply(set []kube.Object, del []model.ObjectKey) {
	events := r.store.Apply(set, del)
	for _, e := range events {
		if e.Obj == nil {
			r.Delete(e.Row)
		} else {
			r.Put(e.Row.Key, e.Obj)
		}
	}
	if r.Started() > 0 && r.Running() == 0 {
		r.Late(events...)
	}
}

// cut loses contact: what happens from now on is only reported after restore.
func (r *registry) cut(why string) {
	r.Hang(true)
	r.Status(model.Status{State: model.StateStale, Since: time.Now(), Err: why})
}

func (r *registry) running() string {
	if r.Running() > 0 {
		return "running"
	}
	return "stopped"
}

// shardKey reads "cluster" or "provider/cluster".
func shardKey(s string) model.ShardKey {
	provider, cluster, ok := strings.Cut(s, "/")
	if !ok {
		provider, cluster = string(model.ProviderKubernetes), s
	}
	return model.ShardKey{Provider: model.ProviderID(provider), Cluster: model.ClusterID(cluster)}
}

// instance finds a registry: the newest of its key, or the nth as "cluster@n".
func (w *world) instance(s string) (*registry, error) {
	name, number, numbered := strings.Cut(s, "@")
	all := w.instances[shardKey(name)]
	n := len(all)
	if numbered {
		n, _ = strconv.Atoi(number)
	}
	if n < 1 || n > len(all) {
		return nil, fmt.Errorf("no instance %q", s)
	}
	return all[n-1], nil
}

// attach adds an instance; without files it can't list its objects yet.
func (w *world) attach(s *script.State, name string, files []string) error {
	r := newRegistry(shardKey(name))
	r.mcs = w.mcs
	objects, err := read(s, files)
	if err != nil {
		return err
	}
	if len(files) > 0 {
		r.replace(objects)
	}
	w.instances[r.Key()] = append(w.instances[r.Key()], r)
	w.controller.Attach(r)
	w.settle()
	return nil
}

// read decodes files of objects; a file that is not wholly readable is an error of the scenario.
func read(s *script.State, files []string) ([]kube.Object, error) {
	var out []kube.Object
	for _, f := range files {
		data, err := readFile(s, f)
		if err != nil {
			return nil, err
		}
		c := kube.Decode(data, time.Now())
		for _, fault := range slices.Concat(c.Faults, c.Warnings) {
			return nil, fmt.Errorf("%s:%d: %s", f, fault.Line, fault.Reason)
		}
		for _, it := range c.Items {
			out = append(out, it.Object)
		}
	}
	return out, nil
}

// setMesh changes the mesh-wide settings: a MeshConfig or MeshNetworks in YAML.
func (w *world) setMesh(s *script.State, kind, file string) error {
	data, err := readFile(s, file)
	if err != nil {
		return err
	}
	return w.putMesh(kind, data)
}

func (w *world) putMesh(kind string, data []byte) error {
	js, err := yaml.YAMLToJSON(data)
	if err != nil {
		return err
	}
	spec := map[string]proto.Message{model.ConfigMesh: &meshconfig.MeshConfig{}, model.ConfigNetworks: &meshconfig.MeshNetworks{}}[kind]
	if spec == nil {
		return errors.New("want MeshConfig or MeshNetworks")
	}
	if err := protojson.Unmarshal(js, spec); err != nil {
		return err
	}
	key := model.ShardKey{Provider: model.ProviderMesh}
	source := model.Source{Shard: key, Object: model.ObjectKey{Kind: kind, Name: "default"}}
	w.mesh[kind] = &model.Config{Kind: kind, Name: "default", Spec: spec, Source: source}
	w.attachMesh()
	return nil
}

// attachMesh makes the mesh-wide settings known.
func (w *world) attachMesh() {
	b := model.NewShardBuilder()
	for k, c := range w.mesh {
		b.Add(k, c)
	}
	r := newRegistry(model.ShardKey{Provider: model.ProviderMesh})
	r.Replace(b.Build())
	w.controller.Attach(r)
	w.settle()
}
