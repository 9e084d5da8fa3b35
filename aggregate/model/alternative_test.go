package model_test

import (
	"net/netip"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func TestAlternatives(t *testing.T) {
	t.Parallel()
	at := func(network, ip string) model.Alternative {
		return model.Alternative{Network: network, IP: netip.MustParseAddr(ip), Port: 80, Name: "wan"}
	}
	some := &model.Alternatives{at("dmz", "192.0.2.1"), at(model.AnyNetwork, "192.0.2.2"), at("lab", "192.0.2.3")}
	for network, want := range map[string]string{"dmz": "192.0.2.1:80", "lab": "192.0.2.3:80", "x": "192.0.2.2:80", "": ""} {
		got := ""
		if a := some.For(network); a != nil {
			got = a.Addr("c1").String()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", network, got, want)
		}
	}
	var none *model.Alternatives
	if named := (&model.Alternatives{at("dmz", "192.0.2.1")}); none.For("dmz") != nil || named.For("x") != nil {
		t.Error("an alternative from nowhere")
	}
	same, empty := &model.Alternatives{(*some)[0], (*some)[1], (*some)[2]}, &model.Alternatives{}
	other := &model.Alternatives{(*some)[0], (*some)[1], at("lab", "192.0.2.4")}
	if !some.Equal(same) || !none.Equal(nil) || some.Equal(other) || some.Equal(nil) || none.Equal(empty) {
		t.Error("Equal is wrong")
	}
}
