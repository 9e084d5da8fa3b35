package secrets_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"sigs.k8s.io/yaml"
)

// object is a piece of YAML.
type object = map[string]any

// kubeconfig writes a kubeconfig with one context, "at", and the given fields of its cluster and user. Further
// changes are made to the whole.
func kubeconfig(t testing.TB, cluster, user object, change ...func(object)) []byte {
	t.Helper()
	if cluster["server"] == nil {
		cluster["server"] = "https://api.example:6443"
	}
	cfg := object{
		"apiVersion": "v1", "kind": "Config", "current-context": "at",
		"clusters": []any{object{"name": "east", "cluster": cluster}},
		"users":    []any{object{"name": "reader", "user": user}},
		"contexts": []any{object{"name": "at", "context": object{"cluster": "east", "user": "reader"}}},
	}
	for _, c := range change {
		c(cfg)
	}
	out, err := yaml.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func with(fields ...any) object {
	out := object{}
	for i := 0; i < len(fields); i += 2 {
		out[fields[i].(string)] = fields[i+1]
	}
	return out
}

// token is a bearer token that ends at the time, signed by nobody in particular.
func token(t testing.TB, expires time.Time) string {
	t.Helper()
	out, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{Subject: "hub", ExpiresAt: jwt.NewNumericDate(expires)}).SignedString([]byte("k"))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// pair makes a self-signed certificate and its key, in PEM.
func pair(t testing.TB, expires time.Time) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hub"}, NotAfter: expires, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})
}
