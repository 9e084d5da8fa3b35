// Package clusters turns credentials of clusters into attached registries.
package clusters

import (
	"log/slog"

	meshconfig "istio.io/api/mesh/v1alpha1"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// Options configure a Manager.
type Options struct {
	Lifecycle model.Lifecycle
	// New makes the registry of a cluster. First says that the cluster has none yet: only then may it serve
	// what was persisted, for a replacement must prove that it can sync.
	New func(c model.ClusterID, cfg *rest.Config, s Settings, first bool) model.Registry
	Log *slog.Logger
}

// Settings are what the registries of all clusters are made with. When they change, every cluster is
// attached anew, which swaps its registry.
type Settings struct {
	TrustDomain        string
	DiscoverySelectors []*meshconfig.LabelSelector
}

// Member is one claim to a cluster, and what came of it.
type Member struct {
	Cluster model.ClusterID
	Source  string
	Owner   bool   // its credential is the one in force
	Reason  string // why it is not used: an older claim has the cluster, or the credential is refused; else ""
}

// Manager keeps one Kubernetes registry attached for each cluster that is claimed. Of several claims to
// a cluster the one of the primary source wins, then the oldest, then the first by source; when it
// goes, the next takes over. A changed credential is attached beside the one in force, which serves
// until the new one has synced. A refused credential never replaces one that works.
type Manager struct{ opts Options }

// NewManager gives a manager without clusters.
func NewManager(o Options) *Manager { return &Manager{opts: o} }

// Set gives the whole set of claims of one source. Claims of the source named Primary come before all others.
func (m *Manager) Set(source string, claims []secrets.Claim) {}

// Primary is the source of the config cluster's own credential.
const Primary = "primary"

// Configure gives the settings; nothing is attached before the first call.
func (m *Manager) Configure(s Settings) {}

// Members lists all claims, by cluster, the owner first.
func (m *Manager) Members() []Member { return nil }
