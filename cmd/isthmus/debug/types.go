// Package debug shows what the hub knows, over HTTP: what each registry contributed, what it was
// merged into, and what every proxy was sent. The types in this file are the JSON that the
// endpoints answer with; the command line reads them back.
//
// Handlers read the published snapshot or ask an owner by a call; they never look into live state.
// Names and shapes follow istiod's debug endpoints where those have one, with fields added.
package debug

import (
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Cluster is one registry: an element of /debug/clusterz, which istiod's tools read as
// {id, secretName, syncStatus}. A credential whose cluster has no registry is an element too.
type Cluster struct {
	ID            string         `json:"id"`
	SecretName    string         `json:"secretName"` // "namespace/name" of the Secret with its credential; "" if it is from elsewhere, or none is needed
	SyncStatus    string         `json:"syncStatus"` // "syncing", "synced" or "timeout"
	ConfigCluster bool           `json:"configCluster,omitempty"`
	Provider      string         `json:"provider"`
	State         string         `json:"state"` // of the contact with the source: see model.State; or Refused
	Since         time.Time      `json:"since,omitzero"`
	SyncedAt      time.Time      `json:"syncedAt,omitzero"`
	LastEvent     time.Time      `json:"lastEvent,omitzero"`
	Error         string         `json:"error,omitempty"`
	Replacement   string         `json:"replacement,omitempty"`     // why a pending replacement has not taken over
	Rows          map[string]int `json:"rows"`                      // by kind: service, endpoints, workload, config
	NotServed     map[string]int `json:"notServed,omitempty"`       // accepted objects that nothing uses yet, by kind
	NotServedIn   map[string]int `json:"notServedFields,omitempty"` // objects with a field that nothing uses yet, by "Kind field"
	NoService     map[string]int `json:"noService,omitempty"`       // endpoints of services that nobody defines, by "namespace/host"
	Problems      []Problem      `json:"problems,omitempty"`
	Credential    *Credential    `json:"credential,omitempty"`
	Earlier       *Earlier       `json:"earlierCredential,omitempty"` // what the cluster is read with, while Credential is tried or refused
	NotUsed       []Credential   `json:"notUsed,omitempty"`           // other credentials of the cluster
	UID           string         `json:"uid,omitempty"`               // of the namespace kube-system; "" if unknown
}

// Refused is the state of a cluster whose only credential is refused: it is not even tried.
const Refused = "refused"

// Earlier is a credential that serves on until another one has proved to work.
type Earlier struct {
	Source  string    `json:"source"`
	Hash    string    `json:"hash,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
}

// Expires is when the credential ends that the cluster is read with; zero if it says of none.
func (c *Cluster) Expires() (t time.Time) {
	switch {
	case c.Earlier != nil:
		return c.Earlier.Expires
	case c.Credential != nil:
		return c.Credential.Expires
	}
	return t
}

// Credential is what a cluster's API server is read with. It says nothing that is secret.
type Credential struct {
	Source  string    `json:"source"`           // "Secret namespace/name", or a file's path
	Hash    string    `json:"hash,omitempty"`   // starts the SHA-256 of the kubeconfig: see ShortHash
	Reason  string    `json:"reason,omitempty"` // why it is not used
	Trying  bool      `json:"trying,omitempty"` // the cluster is read with an earlier one until this one has proved to work
	Warning string    `json:"warning,omitempty"`
	Created time.Time `json:"created,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
}

// Problem is one item of a source that keeps its last good content.
type Problem struct {
	Item   string    `json:"item"`
	Line   int       `json:"line,omitempty"` // 1-based; 0 if unknown
	Reason string    `json:"reason"`
	Since  time.Time `json:"since,omitzero"`
	Broad  bool      `json:"-"`
	Held   bool      `json:"heldBack,omitempty"` // the item is gone, and served as it was for a time
	More   int       `json:"more,omitempty"`     // it stands for so many that are not listed
}

// CountProblems is how many there are, listed or not.
func CountProblems(list []Problem) (n int) {
	for _, p := range list {
		n += model.CountProblems([]model.Problem{model.Problem(p)})
	}
	return n
}

// Source says where a fact came from.
type Source struct {
	Shard    string    `json:"shard"`  // "provider/cluster"
	Object   string    `json:"object"` // "Kind/namespace/name"
	Revision string    `json:"revision,omitempty"`
	Time     time.Time `json:"time,omitzero"`
}

// Port is a service port.
type Port struct {
	Name     string `json:"name,omitempty"`
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol"`
}

// Count is a number of endpoints of one cluster.
type Count struct {
	Healthy int `json:"healthy"`
	Total   int `json:"total"`
}

// Service is a merged service: an element of /debug/registryz.
type Service struct {
	Hostname        string              `json:"hostname"`
	Namespace       string              `json:"namespace"`
	ClusterLocal    string              `json:"clusterLocal,omitempty"` // the only cluster that knows it
	Ports           []Port              `json:"ports"`
	Addresses       map[string][]string `json:"addresses,omitempty"` // by cluster
	Resolution      string              `json:"resolution"`
	External        bool                `json:"external,omitempty"`
	ExportTo        []string            `json:"exportTo"` // "*" or namespaces
	ServiceAccounts []string            `json:"serviceAccounts,omitempty"`
	Traffic         string              `json:"trafficDistribution,omitempty"` // PreferSameZone or PreferSameNode
	NodeLocal       bool                `json:"nodeLocal,omitempty"`           // serves the proxy's own node only
	Created         time.Time           `json:"created,omitzero"`
	Version         uint64              `json:"version"`             // at which it last changed
	Endpoints       map[string]Count    `json:"endpoints,omitempty"` // by cluster
	LeftOut         int                 `json:"leftOut,omitempty"`
	Conflicts       int                 `json:"conflicts,omitempty"`
	Sources         []string            `json:"sources"` // shards that define it
}

// Contribution is one shard's definition of a service.
type Contribution struct {
	Source Source `json:"source"`
	Won    bool   `json:"won"` // its ports, resolution and policy are in force
}

// Rule is a DestinationRule in force.
type Rule struct {
	Source          Source   `json:"source"`
	Merged          []Source `json:"merged,omitempty"` // others that are one with it
	NotServedFields []string `json:"notServedFields,omitempty"`
}

// Conflict is a disagreement between two definitions.
type Conflict struct {
	Field  string `json:"field"`
	Winner Source `json:"winner"`
	Loser  Source `json:"loser"`
	Detail string `json:"detail"`
}

// Endpoint is one candidate of a service, used or not.
type Endpoint struct {
	Address  string  `json:"address"`
	Cluster  string  `json:"cluster"`
	Port     string  `json:"port,omitempty"` // service port name
	Health   string  `json:"health,omitempty"`
	Locality string  `json:"locality,omitempty"`
	Network  string  `json:"network,omitempty"`
	Weight   float64 `json:"weight,omitempty"`   // as its registry says it; for the proxy asked about, as it is sent
	Priority *uint32 `json:"priority,omitempty"` // for the proxy asked about
	Via      string  `json:"via,omitempty"`      // where it is dialled instead: a gateway's address, or its own for the proxy's network
	// Alternatives are where proxies of other networks dial it, by the name of theirs; "*" is for those without a name here.
	Alternatives   map[string]string `json:"alternatives,omitempty"`
	TLSMode        string            `json:"tlsMode,omitempty"`
	Workload       string            `json:"workload,omitempty"`
	ServiceAccount string            `json:"serviceAccount,omitempty"`
	Subsets        []string          `json:"subsets,omitempty"` // of the DestinationRule in force, that it is in
	Part           string            `json:"part,omitempty"`    // name of the source of the FederatedService that it is of
	Source         Source            `json:"source"`
	Reason         string            `json:"reason,omitempty"` // why it is left out; "" = it is used
	Detail         string            `json:"detail,omitempty"` // of the reason, or why it is dialled elsewhere, or its priority is not the best
}

// Explanation is what /debug/servicez answers for one service.
type Explanation struct {
	Service       Service        `json:"service"`
	Proxy         string         `json:"proxy,omitempty"`   // node id of the proxy asked about
	Reason        string         `json:"reason,omitempty"`  // why the proxy, or everybody, does not see the service at all
	Demoted       []string       `json:"demoted,omitempty"` // shards without contact for so long that other clusters use their endpoints last
	Stale         []Outage       `json:"stale,omitempty"`   // shards without contact that have a part in it
	Rule          *Rule          `json:"rule,omitempty"`    // DestinationRule in force for the proxy asked about, or else for the service's own namespace
	Contributions []Contribution `json:"contributions"`
	Conflicts     []Conflict     `json:"conflicts,omitempty"`
	Federation    *Federation    `json:"federation,omitempty"` // if a FederatedService makes it
	Problems      []ItemProblem  `json:"problems,omitempty"`   // of registries with the objects that it is made of
	Endpoints     []Endpoint     `json:"endpoints"`
}

// Outage is a shard whose source is out of contact.
type Outage struct {
	Shard string    `json:"shard"`
	Since time.Time `json:"since"`
}

// Shards is one namespace of one host in /debug/endpointz.
type Shards struct {
	Shards          map[string][]ShardEndpoint `json:"Shards"`
	ServiceAccounts []string                   `json:"ServiceAccounts"`
}

// ShardEndpoint is an endpoint in /debug/endpointz.
type ShardEndpoint struct {
	Address         string            `json:"Address"`
	EndpointPort    uint16            `json:"EndpointPort"`
	ServicePortName string            `json:"ServicePortName"`
	Labels          map[string]string `json:"Labels,omitempty"`
	ServiceAccount  string            `json:"ServiceAccount,omitempty"`
	Network         string            `json:"Network,omitempty"`
	Locality        ShardLocality     `json:"Locality"`
	LbWeight        float64           `json:"LbWeight,omitempty"`
	TLSMode         string            `json:"TLSMode,omitempty"`
	WorkloadName    string            `json:"WorkloadName,omitempty"`
	Namespace       string            `json:"Namespace,omitempty"`
	HealthStatus    string            `json:"HealthStatus"`
	NodeName        string            `json:"NodeName,omitempty"`
	Alternatives    map[string]string `json:"Alternatives,omitempty"` // see Endpoint
}

// ShardLocality is an endpoint's place in /debug/endpointz.
type ShardLocality struct {
	Label     string `json:"Label,omitempty"`
	ClusterID string `json:"ClusterID"`
}

// Config is a configuration object in /debug/configz.
type Config struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Served    bool   `json:"served"`
	// NotServedFields are set, and nothing uses them yet.
	NotServedFields []string  `json:"notServedFields,omitempty"`
	Refused         bool      `json:"refused,omitempty"` // as it is now it has errors: what is shown is its last version without, if any
	Findings        []Finding `json:"findings,omitempty"`
	Source          Source    `json:"source"`
	// Conflicts are with other objects, and which of the two counts.
	Conflicts []Conflict `json:"conflicts,omitempty"`
	Spec      any        `json:"spec,omitempty"`
}

// Finding is something that the author of a configuration object should know.
type Finding struct {
	Severity string `json:"severity"` // "error", "warning" or "info"
	Code     string `json:"code"`
	Field    string `json:"field,omitempty"`
	Message  string `json:"message"`
}

// Gateway is an east-west gateway in /debug/networkz. The fields with capitals are Istio's.
type Gateway struct {
	Network   string
	Cluster   string
	Addr      string // an IP address; Host while it has none
	Port      uint16 // 0 if HBONE alone is spoken
	HBONEPort uint16 // 0 if HBONE is not spoken
	Host      string `json:"host,omitempty"`   // the name that it is known by
	Usable    bool   `json:"usable"`           // false while Host has no address, and if HBONE alone is spoken
	Source    string `json:"source,omitempty"` // what names it: "provider/cluster Kind/namespace/name"
}

// PushStatus describes the newest snapshot in /debug/push_status.
type PushStatus struct {
	Version   uint64    `json:"version"`
	Time      time.Time `json:"time,omitzero"`
	Services  int       `json:"services"`
	Endpoints int       `json:"endpoints"`
	LeftOut   int       `json:"leftOut"`
	Conflicts int       `json:"conflicts"`
	Configs   int       `json:"configs"`
	Last      *Delta    `json:"last,omitempty"` // the change that made it, while it is remembered
	Failures  []Failure `json:"failures,omitempty"`
}

// Failure is a resource that could not be generated; proxies keep their last good one.
type Failure struct {
	Type  string `json:"type"` // type URL
	Name  string `json:"name,omitempty"`
	Error string `json:"error"`
}

// Delta names what a version changed.
type Delta struct {
	Reasons   []string `json:"reasons"`
	Endpoints []string `json:"endpoints,omitempty"`
	Shape     []string `json:"shape,omitempty"`
	Mesh      bool     `json:"mesh,omitempty"`
}
