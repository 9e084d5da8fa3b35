package kube

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
)

// FuzzExplain: of what the loose decoder takes nothing is said to be wrong, and of what the strict one takes nothing is unknown or
// too much.
func FuzzExplain(f *testing.F) {
	for _, js := range []string{
		`{"hosts":["a"],"http":[{"timeout":"1h","match":[{"uri":{"exact":"/a"},"port":80,"headers":{"x":{"regex":"y"}}}],"mirrorPercentage":{"value":"1.5"}}]}`,
		`{"host":"a","trafficPolicy":{"loadBalancer":{"simple":2,"warmupDurationSecs":"1s"},"outlierDetection":{"consecutive5xxErrors":"5"},"connectionPool":{"http":{"useClientProtocol":true}}}}`,
		`{"connectTimeout":5,"enableTracing":"true","defaultConfig":{"concurrency":1.5},"pathNormalization":{"normalization":"NONE"}}`,
		`{"http":null,"hosts":{},"exportTo":[null,1]}`, `[]`, `1`, ``,
	} {
		f.Add([]byte(js))
	}
	f.Fuzz(func(t *testing.T, js []byte) {
		for _, m := range []message{&networking.VirtualService{}, &networking.DestinationRule{}, &meshconfig.MeshConfig{}} {
			e := explain(js, m.ProtoReflect().Descriptor())
			strict := protojson.Unmarshal(js, m)
			if strict == nil && len(e.exclusive)+len(e.unknown) > 0 {
				t.Fatalf("%T %s is taken, and %+v", m, js, e)
			}
			proto.Reset(m)
			if json.Valid(js) && m.UnmarshalJSON(js) == nil && len(e.wrong) > 0 {
				t.Fatalf("%T %s is taken loosely, and %+v", m, js, e.wrong)
			}
		}
	})
}
