package kube_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// dump gives the rows and problems of a store in readable, stable form, without revisions.
func dump(s *kube.Store) string {
	var b strings.Builder
	rows := rowsOf(s)
	for _, k := range slices.Sorted(maps.Keys(rows)) {
		b.WriteString(rows[k])
		b.WriteString("\n")
	}
	var problems []string
	for ref, ps := range s.Problems() {
		for _, p := range ps {
			problems = append(problems, fmt.Sprintf("problem %s: %s", ref, p))
		}
	}
	slices.Sort(problems)
	for _, p := range problems {
		b.WriteString(p + "\n")
	}
	return b.String()
}

func rowsOf(s *kube.Store) map[string]string {
	out := map[string]string{}
	for k, o := range s.State().Rows() {
		out[k.Kind.String()+" "+k.Key] = dumpRow(k, o)
	}
	return out
}

func dumpRow(k model.RowKey, o model.Object) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", k.Kind, k.Key)
	switch v := o.(type) {
	case *model.Endpoints:
		fmt.Fprintf(&b, "  Host: %s\n  Namespace: %s\n", v.Host, v.Namespace)
		for _, e := range v.Endpoints {
			fmt.Fprintf(&b, "  - %s\n", flat(e))
		}
		for _, l := range v.LeftOut {
			fmt.Fprintf(&b, "  x %s\n", flat(l))
		}
	default:
		for _, f := range fields(o) {
			fmt.Fprintf(&b, "  %s: %s\n", f[0], f[1])
		}
	}
	return b.String()
}

func flat(v any) string {
	var out []string
	for _, f := range fields(v) {
		out = append(out, f[0]+"="+f[1])
	}
	return strings.Join(out, " ")
}

// fields lists what is set, but for sources.
func fields(v any) [][2]string {
	var out [][2]string
	rv := reflect.Indirect(reflect.ValueOf(v))
	for i := range rv.NumField() {
		name, f := rv.Type().Field(i).Name, rv.Field(i)
		if name == "Source" || f.IsZero() || f.Kind() == reflect.Slice && f.Len() == 0 {
			continue
		}
		if f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct && name == "Ports" {
			for j := range f.Len() {
				out = append(out, [2]string{"Port", flat(f.Index(j).Interface())})
			}
			continue
		}
		out = append(out, [2]string{name, value(f.Interface())})
	}
	return out
}

// value prints a message as JSON without the spaces that its marshaller varies.
func value(v any) string {
	if g, ok := v.(*model.NetworkGateway); ok {
		return flat(g)
	}
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Sprintf("%+v", v)
	}
	var b bytes.Buffer
	js, err := protojson.Marshal(m)
	if err == nil {
		err = json.Compact(&b, js)
	}
	if err != nil {
		return err.Error()
	}
	return b.String()
}
