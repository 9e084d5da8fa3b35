package file

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// Names of the files that hold mesh-wide settings.
const (
	MeshFile     = "mesh.yaml"     // Istio's MeshConfig
	NetworksFile = "networks.yaml" // Istio's MeshNetworks
)

// Mesh is the registry of the mesh-wide settings: a Config row for each of the two files that
// exists. Each is either the settings themselves, or a ConfigMap that has them under "mesh" or
// "meshNetworks". Unknown fields are problems, but the rest takes effect. Sub-folders that can't be
// members are problems too.
type Mesh struct{ opts Options }

// NewMesh gives the registry with the key mesh/<cluster>, reading the files in o.Dir.
func NewMesh(o Options) *Mesh { return &Mesh{opts: o.withDefaults()} }

// Key implements model.Registry.
func (m *Mesh) Key() model.ShardKey {
	return model.ShardKey{Provider: model.ProviderMesh, Cluster: m.opts.Cluster}
}

// Run implements model.Registry.
func (m *Mesh) Run(ctx context.Context, out model.Sink) error {
	f := m.opts.folder()
	s := &settings{opts: m.opts, folder: f, key: m.Key(), out: out, rows: map[model.RowKey]model.Object{},
		reporter: reporter{log: m.opts.Log, onProblem: m.opts.OnProblem, key: m.Key()}}
	s.tree = newTree(f.read, parseSettings)
	return run(ctx, s)
}

// settings is the state of one run, owned by its goroutine.
type settings struct {
	opts     Options
	folder   folder
	key      model.ShardKey
	out      model.Sink
	tree     *tree[*setting]
	rows     map[model.RowKey]model.Object
	reporter reporter
	synced   bool
}

// setting is the content of one file; nil if it holds nothing.
type setting struct {
	kind     string
	message  proto.Message
	revision string
	modified time.Time
}

// list lists the files with settings, and what is wrong with the members' folders beside them.
func (s *settings) list() (*listing, error) {
	l, err := s.folder.list(func(name string) bool { return name == MeshFile || name == NetworksFile }, false)
	if err != nil {
		return nil, err
	}
	_, faults, err := subfolders(s.opts.Dir)
	maps.Copy(l.faults, faults)
	return l, err
}

func (s *settings) turn(now time.Time, l *listing, touched map[string]bool) time.Time {
	changed, next := s.tree.step(now, l, s.folder.touched(touched))
	for name, p := range changed {
		ev := s.event(name, p)
		if ev.Obj == nil {
			delete(s.rows, ev.Row)
		} else {
			s.rows[ev.Row] = ev.Obj
		}
		if s.synced {
			s.out.Put(ev)
		}
	}
	if !s.synced && !s.tree.pending() {
		s.synced = true
		b := model.NewShardBuilder()
		for k, o := range s.rows {
			b.Add(k.Key, o)
		}
		s.out.Replace(b.Build())
	}
	s.report(now, l)
	return next
}

func (s *settings) event(file string, p *parsed[*setting]) model.Event {
	ref := model.ObjectKey{Kind: kindOf(file), Name: strings.TrimSuffix(file, filepath.Ext(file))}
	ev := model.Event{Row: model.RowKey{Kind: model.RowConfig, Key: ref.String()}}
	if p != nil && p.value != nil {
		ev.Obj = &model.Config{Kind: ref.Kind, Name: ref.Name, Spec: p.value.message,
			Source: model.Source{Shard: s.key, Object: ref, Revision: p.value.revision, Time: p.value.modified}}
	}
	return ev
}

func (s *settings) report(now time.Time, l *listing) {
	ps := s.tree.problems()
	for name, why := range l.faults {
		ps = append(ps, model.Problem{Item: name, Reason: why})
	}
	state := model.StateSyncing
	if s.synced {
		state = model.StateLive
	}
	if st, changed := s.reporter.report(now, state, "", ps); changed {
		s.out.Status(st)
	}
}

func (s *settings) unreadable(now time.Time, err error) {
	msg := "folder " + filepath.Base(s.opts.Dir) + " can't be read: " + reason(err)
	if st, changed := s.reporter.report(now, model.StateStale, msg, s.reporter.status.Problems); changed {
		s.out.Status(st)
	}
}

func kindOf(file string) string {
	if file == NetworksFile {
		return model.ConfigNetworks
	}
	return model.ConfigMesh
}

func parseSettings(file string, data []byte, modified time.Time) (p parsed[*setting]) {
	defer func() {
		if r := recover(); r != nil {
			p = parsed[*setting]{faults: []kube.Fault{{Line: 1, Reason: "can't be read"}}}
		}
	}()
	js, line, err := unwrap(data, kindOf(file))
	if err != nil {
		l, reason := yamlLine(err)
		p.faults = []kube.Fault{{Line: line + l, Reason: reason}}
		return p
	}
	if js == nil {
		return p
	}
	kind := kindOf(file)
	var m proto.Message = &meshconfig.MeshConfig{}
	if kind == model.ConfigNetworks {
		m = &meshconfig.MeshNetworks{}
	}
	warning, err := unmarshalLenient(js, m)
	if err != nil {
		reason, field := kube.Reason(err)
		p.faults = []kube.Fault{{Line: max(kube.OnlyLine(data, field), line, 1), Reason: reason}}
		return p
	}
	if warning != "" {
		p.warnings = []kube.Fault{{Line: fieldLine(data, warning), Reason: "unknown field " + strconv.Quote(warning) + " has no effect"}}
	}
	if nets, ok := m.(*meshconfig.MeshNetworks); ok {
		var doubtful []kube.Fault
		if p.faults, doubtful = unreachable(data, nets); len(p.faults) > 0 {
			return p
		}
		p.warnings = append(p.warnings, doubtful...)
	}
	if mesh, ok := m.(*meshconfig.MeshConfig); ok {
		if p.faults = unusable(data, mesh); len(p.faults) > 0 {
			return p
		}
		p.warnings = append(p.warnings, excluded(data, mesh)...)
	}
	sum := sha256.Sum256(js)
	p.value = &setting{kind: kind, message: m, revision: hex.EncodeToString(sum[:6]), modified: modified}
	p.keys = map[string]struct{}{kind: {}}
	return p
}

// unwrap gives the settings as JSON, nil if there are none. Line is where they start (0 for the
// first line) for errors that count from there.
func unwrap(data []byte, kind string) (js []byte, line int, err error) {
	js, err = yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, 0, err
	}
	if bytes.Equal(bytes.TrimSpace(js), []byte("null")) {
		return nil, 0, nil
	}
	var cm struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Data       map[string]string `json:"data"`
	}
	if kjson.UnmarshalCaseSensitivePreserveInts(js, &cm) != nil || cm.Kind != "ConfigMap" {
		return js, 0, nil
	}
	key := map[string]string{model.ConfigMesh: "mesh", model.ConfigNetworks: "meshNetworks"}[kind]
	text, ok := cm.Data[key]
	if !ok {
		return nil, 0, errors.New("the ConfigMap has no key " + strconv.Quote(key))
	}
	return unwrapInner(text, fieldLine(data, key))
}

func unwrapInner(text string, line int) ([]byte, int, error) {
	js, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, line, err
	}
	if bytes.Equal(bytes.TrimSpace(js), []byte("null")) {
		js = []byte("{}")
	}
	return js, line, nil
}

var (
	lineInError  = regexp.MustCompile(`line (\d+): `)
	fieldInError = regexp.MustCompile(`unknown field "([^"]*)"`)
)

func yamlLine(err error) (int, string) {
	msg := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "yaml: ")
	m := lineInError.FindStringSubmatch(msg)
	if m == nil {
		return 1, msg
	}
	n, _ := strconv.Atoi(m[1])
	return n, strings.Replace(msg, m[0], "", 1)
}

// unmarshalLenient decodes; the first unknown field is named and all of them are dropped.
func unmarshalLenient(js []byte, m proto.Message) (unknown string, err error) {
	if err = protojson.Unmarshal(js, m); err == nil {
		return "", nil
	}
	f := fieldInError.FindStringSubmatch(err.Error())
	if f == nil {
		return "", err
	}
	proto.Reset(m)
	return f[1], protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(js, m)
}

// fieldLine finds the line of a field, 1 if it can't.
func fieldLine(data []byte, field string) int {
	for i, l := range strings.Split(string(data), "\n") {
		if strings.HasPrefix(strings.TrimLeft(l, " \t-\""), field+":") {
			return i + 1
		}
	}
	return 1
}
