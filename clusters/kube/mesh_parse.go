package kube

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube/validate"
)

// MeshSettings are mesh-wide settings of one kind.
type MeshSettings struct {
	Kind     string        // model.ConfigMesh or model.ConfigNetworks
	Message  proto.Message // the one that [model.Config] names for the kind
	Revision string        // a hash of the content
}

// Row is the row of the settings in force.
func (s *MeshSettings) Row(name string, created time.Time, src model.Source) *model.Config {
	ref := model.ObjectKey{Kind: s.Kind, Name: name}
	row := &model.Config{Kind: s.Kind, Name: name, Spec: s.Message, Created: created, Source: src}
	for _, f := range notServedFields(s.Kind, s.Message.ProtoReflect()) {
		row.Findings = append(row.Findings, f.finding(ref))
		row.NotServedFields = append(row.NotServedFields, f.Field)
	}
	if m, ok := s.Message.(*meshconfig.MeshConfig); ok {
		row.Findings = append(row.Findings, validate.Mesh(ref, m)...)
	}
	return row
}

// ParseMesh reads settings of a kind from YAML: the settings themselves, or a ConfigMap that has them
// under "mesh" or "meshNetworks". It gives nil if there are none. With faults the settings are not to be
// used; warnings tell what has no effect.
func ParseMesh(kind string, data []byte) (s *MeshSettings, faults, warnings []Fault) {
	defer func() {
		if r := recover(); r != nil {
			s, faults, warnings = nil, []Fault{{Line: 1, Reason: "can't be read"}}, nil
		}
	}()
	js, line, err := unwrap(data, kind)
	if err != nil {
		l, reason := yamlError(err)
		return nil, []Fault{{Line: line + max(l, 1), Reason: reason}}, nil
	}
	if js == nil {
		return nil, nil, nil
	}
	m, faults, warnings := decodeMesh(kind, js, data, line)
	if len(faults) > 0 {
		return nil, faults, warnings
	}
	sum := sha256.Sum256(js)
	return &MeshSettings{Kind: kind, Message: m, Revision: hex.EncodeToString(sum[:6])}, nil, warnings
}

// decodeMesh decodes and checks settings; data is the text that lines are looked up in.
func decodeMesh(kind string, js, data []byte, line int) (_ proto.Message, faults, warnings []Fault) {
	var m message = &meshconfig.MeshConfig{}
	if kind == model.ConfigNetworks {
		m = &meshconfig.MeshNetworks{}
	}
	odd, err := unmarshal(js, m)
	if err != nil {
		for _, f := range misfitsOf(err) {
			faults = append(faults, Fault{Line: max(OnlyLine(data, lastName(f.Field)), line, 1), Reason: told(f)})
		}
		if len(faults) == 0 {
			reason, field := Reason(err)
			faults = []Fault{{Line: max(OnlyLine(data, field), line, 1), Reason: reason}}
		}
		return nil, faults, nil
	}
	for _, f := range odd {
		if fault := (Fault{Line: fieldLine(data, lastName(f.Field)), Reason: told(f)}); refuses(f) {
			faults = append(faults, fault)
		} else {
			warnings = append(warnings, fault)
		}
	}
	if len(faults) > 0 {
		return nil, faults, warnings
	}
	var doubtful []Fault
	switch m := m.(type) {
	case *meshconfig.MeshNetworks:
		faults, doubtful = unreachable(data, m)
	case *meshconfig.MeshConfig:
		hideUsers(m)
		faults, doubtful = unusable(data, m), slices.Concat(excluded(data, m), unread(data, m), unknownTLS(data, m))
	}
	return m, faults, append(warnings, doubtful...)
}

// settingsKey is the key of a ConfigMap that has the settings of a kind.
func settingsKey(kind string) string {
	if kind == model.ConfigNetworks {
		return "meshNetworks"
	}
	return meshKey
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
	key := settingsKey(kind)
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

// fieldLine finds the line of a field, 1 if it can't.
func fieldLine(data []byte, field string) int {
	for i, l := range strings.Split(string(data), "\n") {
		if strings.HasPrefix(strings.TrimLeft(l, " \t-\""), field+":") {
			return i + 1
		}
	}
	return 1
}
