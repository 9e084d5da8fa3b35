package secrets

import (
	"crypto/x509"
	"encoding/pem"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/client-go/rest"
)

// Expiry is when the credential ends: the earlier of its token's and its certificate's end, zero if neither is
// known. A token that is read from a file is renewed there.
func Expiry(cfg *rest.Config) time.Time {
	token, cert := time.Time{}, certificateExpiry(cfg.CertData)
	if cfg.BearerTokenFile == "" {
		token = tokenExpiry(cfg.BearerToken)
	}
	if token.IsZero() || !cert.IsZero() && cert.Before(token) {
		return cert
	}
	return token
}

// tokenExpiry reads the claim exp of a JWT. The signature is the API server's business.
func tokenExpiry(token string) time.Time {
	var claims jwt.RegisteredClaims
	if _, _, err := jwt.NewParser().ParseUnverified(token, &claims); err != nil || claims.ExpiresAt == nil {
		return time.Time{}
	}
	return claims.ExpiresAt.Time
}

func certificateExpiry(data []byte) time.Time {
	block, _ := pem.Decode(data)
	if block == nil {
		return time.Time{}
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return cert.NotAfter
}
