package xds

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/xds/wire"
)

// What a client says is kept, logged and counted only up to these limits, in bytes where nothing else
// is said. Proxies stay far below them.
const (
	maxNode      = 1 << 20 // an encoded node
	maxNodeID    = 1 << 10 // its id
	maxLabels    = 256     // how many of its workload's labels are looked at
	maxLabel     = 320     // one of them, key or value; Kubernetes allows 317
	maxNetworks  = 64      // that it asks for the endpoints of
	maxNodeValue = 256     // what metadata or locality call a cluster, network, namespace, node …; DNS names have 253
	maxAddresses = 16      // of one proxy, the one of its id included; further ones are ignored
	maxVersion   = 64      // ISTIO_VERSION; what is beyond is cut off
	maxName      = 1 << 10 // a resource name
	maxBlame     = 1 << 20 // the part of a refusal's message that is searched for the names at fault
	maxMessage   = 2 << 10 // the part of a refusal's message that is kept and logged
	maxQuoted    = 128     // a client's text in an error
	maxRostered  = 8 << 20 // names in rosters
	maxVersions  = 32      // series of pilot_xds
	maxRefusals  = 1 << 9  // series of pilot_xds_*_reject, for each type
	otherLabel   = "other" // what is beyond a bound of series
	labelLength  = 32      // a version in pilot_xds
)

// clip cuts a client's text.
func clip(s string, n int) string {
	if len(s) <= n {
		return strings.ToValidUTF8(s, "?")
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// excessive refuses a request that names more than a stream may subscribe, or names that are too long,
// before anything of it is kept.
func (st *stream) excessive(r *wire.Request) error {
	for _, l := range []*wire.List{&r.Names, &r.Subscribe, &r.Unsubscribe, &r.InitialVersions} {
		if l.Count > st.s.opt.MaxNames {
			return status.Errorf(codes.ResourceExhausted, "a request has %d names of type %s; the limit is %d", l.Count, clip(r.TypeURL, maxQuoted), st.s.opt.MaxNames)
		}
		most := maxName
		if l == &r.InitialVersions {
			most = 2 * maxName // names with their versions
		}
		if n := l.Longest(); n > most {
			return invalid("a name of type %s has %d bytes; the limit is %d", clip(r.TypeURL, maxQuoted), n, most)
		}
	}
	return nil
}

// versionLabel is what a proxy says that its version is, if it looks like one.
func versionLabel(v string) string {
	if len(v) > labelLength || strings.Trim(v, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz.+-_") != "" {
		return otherLabel
	}
	return v
}
