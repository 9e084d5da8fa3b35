package model_test

import (
	"encoding/json"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// named is everything that has a text.
type named struct {
	Health     model.Health
	MTLS       model.MTLS
	Protocol   model.Protocol
	Resolution model.Resolution
	Shard      model.ShardKey
}

// TestText: what is written as text can be read again.
func TestText(t *testing.T) {
	t.Parallel()
	for i := range uint8(20) {
		in := named{
			Health: model.Health(i % 5), MTLS: model.MTLS(i % 3), Protocol: model.Protocol(i % 13), Resolution: model.Resolution(i % 5),
			Shard: model.ShardKey{Provider: model.ProviderKubernetes, Cluster: "a/b"},
		}
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out named
		if err := json.Unmarshal(text, &out); err != nil || out != in {
			t.Errorf("%s becomes %+v, %v", text, out, err)
		}
	}
	for _, text := range []string{`{"Health":"splendid"}`, `{"MTLS":""}`, `{"Protocol":"HTTP"}`, `{"Resolution":"x"}`, `{"Shard":"kubernetes"}`} {
		if err := json.Unmarshal([]byte(text), &named{}); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}
