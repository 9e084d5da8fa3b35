// Package secrets finds the credentials of remote clusters and makes them safe to use: kubeconfigs in
// labelled Secrets, as Istio users have them, or in files.
//
// A source tells the whole set of its claims each time anything in it changes; what that means for the
// clusters is decided elsewhere.
package secrets

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Claim is one cluster that a source has a credential for.
type Claim struct {
	Cluster string    // "" if the source does not even tell that; ValidCluster may refuse it
	Source  string    // where it is from: "Secret istio-system/remote-east", or a file's path
	Created time.Time // of the Secret, or when the file was first seen; of several claims to one cluster the oldest wins
	Hash    string    // of the credential: equal hashes mean that nothing changed
	// Config is shared by all claims of one hash and must not be changed: copy it with rest.CopyConfig.
	Config *rest.Config
	// Expires is when the credential ends, as far as it says so itself: zero if unknown.
	Expires time.Time
	// Err says why the credential can't be used (then Config is nil). It names the field at fault and never
	// holds any part of a credential.
	Err error
}

// Compare orders claims by age, then source, then cluster: of two to one cluster the first wins.
func (c *Claim) Compare(o *Claim) int {
	return cmp.Or(c.Created.Compare(o.Created), strings.Compare(c.Source, o.Source), strings.Compare(c.Cluster, o.Cluster))
}

// ValidCluster reports whether a string can name a cluster: up to 63 letters, digits, '-', '_' and '.',
// with no '-' at an end and no '.' at the last place.
func ValidCluster(s string) bool {
	if len(s) == 0 || len(s) > 63 || strings.HasPrefix(s, "-") || strings.HasSuffix(s, "-") || strings.HasSuffix(s, ".") {
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.')
	})
}

// Hash identifies a credential.
func Hash(kubeconfig []byte) string {
	sum := sha256.Sum256(kubeconfig)
	return hex.EncodeToString(sum[:])
}
