package model_test

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func TestRegistryProtocol(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]model.Protocol{
		"auto": model.ProtocolUnknown, "tri": model.ProtocolGRPC, "triple": model.ProtocolGRPC, "grpcs": model.ProtocolHTTPS, "dubbo": model.ProtocolTCP,
		"http": model.ProtocolHTTP, "grpc": model.ProtocolGRPC, "tls": model.ProtocolTLS, "mysql": model.ProtocolMySQL,
	} {
		if got, known := model.RegistryProtocol(word); got != want || !known {
			t.Errorf("%s: %v, %v", word, got, known)
		}
	}
	for _, word := range []string{"", "thrift", "HTTP"} {
		if got, known := model.RegistryProtocol(word); known || got != model.ProtocolUnknown {
			t.Errorf("%q: %v, %v", word, got, known)
		}
	}
}
