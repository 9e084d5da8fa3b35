// Package secrets finds the credentials of remote clusters and makes them safe to use: kubeconfigs in
// labelled Secrets, as Istio users have them, or in files.
//
// A source tells the whole set of its claims each time anything in it changes; what that means for the
// clusters is decided elsewhere.
package secrets

import (
	"time"

	"k8s.io/client-go/rest"
)

// Claim is one cluster that a source has a credential for.
type Claim struct {
	Cluster string
	Source  string    // where it is from: "Secret istio-system/remote-east", or a file's path
	Created time.Time // of the Secret, or the file's modification; of several claims to one cluster the oldest wins
	Hash    string    // of the credential: equal hashes mean that nothing changed
	Config  *rest.Config
	// Err says why the credential can't be used (then Config is nil). It names the field at fault and never
	// holds any part of a credential.
	Err error
}
