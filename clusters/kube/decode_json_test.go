package kube_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

func TestDecodeJSON(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		in, ref  string
		warnings []string
		err      string
	}{
		"rule":            {in: `{"apiVersion":"networking.istio.io/v1","kind":"DestinationRule","metadata":{"name":"a","namespace":"b","resourceVersion":"7"},"spec":{"host":"x"}}`, ref: "DestinationRule/b/a"},
		"istio's gateway": {in: `{"apiVersion":"networking.istio.io/v1beta1","kind":"Gateway","metadata":{"name":"a","namespace":"b","resourceVersion":"7"},"spec":{}}`, ref: "Gateway/b/a"},
		"k8s gateway":     {in: `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway","metadata":{"name":"a","namespace":"b","resourceVersion":"7"},"spec":{"gatewayClassName":"c","listeners":[]}}`, ref: "KubernetesGateway/b/a"},
		"other":           {in: `{"apiVersion":"networking.istio.io/v1","kind":"EnvoyFilter","metadata":{"name":"a","namespace":"b","resourceVersion":"7"},"spec":{"odd":1}}`, ref: "EnvoyFilter/b/a"},
		"unknown field":   {in: `{"apiVersion":"networking.istio.io/v1","kind":"DestinationRule","metadata":{"name":"a","namespace":"b","resourceVersion":"7"},"spec":{"host":"x","hots":"y"}}`, ref: "DestinationRule/b/a"},
		"unknown mode":    {in: `{"apiVersion":"networking.istio.io/v1","kind":"DestinationRule","metadata":{"name":"a","namespace":"b"},"spec":{"host":"x","trafficPolicy":{"tls":{"mode":"MAGIC"}}}}`, err: `DestinationRule: trafficPolicy.tls.mode: "MAGIC" is none of DISABLE, SIMPLE, MUTUAL, ISTIO_MUTUAL`},
		"wrong type":      {in: `{"apiVersion":"multicluster.x-k8s.io/v1alpha1","kind":"ServiceImport","metadata":{"name":"a","namespace":"b"},"spec":{"ips":"x"}}`, err: "ServiceImport: spec.ips: want a list, not a text"},
		"a secret":        {in: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","namespace":"b"}}`, err: "not one object of a kind that concerns the mesh"},
		"a list":          {in: `{"apiVersion":"v1","kind":"List","items":[]}`, err: "not one object of a kind that concerns the mesh"},
		"no JSON":         {in: `{`, err: "unexpected end of JSON input"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, warnings, err := kube.DecodeJSON([]byte(tt.in))
			if err != nil || tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if o.Ref.String() != tt.ref || o.Revision != "7" {
				t.Errorf("got %s@%s", o.Ref, o.Revision)
			}
			if d := cmp.Diff(tt.warnings, warnings); d != "" {
				t.Error(d)
			}
		})
	}
}

// An object of an API server has its own revision and time.
func TestDecodeJSONRevision(t *testing.T) {
	t.Parallel()
	o, _, err := kube.DecodeJSON([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b","resourceVersion":"42","creationTimestamp":"2026-01-02T03:04:05Z"}}`))
	if err != nil || o.Revision != "42" || !o.Time.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("%+v, %v", o, err)
	}
}

// FuzzDecodeJSON: no input panics, in decoding or conversion, whatever the options.
func FuzzDecodeJSON(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, doc := range strings.Split(string(data), "\n---\n") {
			js, err := yaml.YAMLToJSON([]byte(doc))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(js)
		}
	}
	f.Fuzz(func(t *testing.T, js []byte) {
		o, _, err := kube.DecodeJSON(js)
		if err != nil {
			if strings.Contains(err.Error(), "can't be read:") {
				t.Fatal("panic:", err)
			}
			return
		}
		for seed := range uint64(4) {
			s := kube.NewStore(converter(seed))
			s.Set(o)
			noPanics(t, s)
			s.Delete(o.Ref)
			if n := s.State().Len(); n != 0 {
				t.Fatalf("%d rows left", n)
			}
		}
	})
}
