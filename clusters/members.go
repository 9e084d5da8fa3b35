package clusters

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// Member is one claim to a cluster, and what came of it.
type Member struct {
	Cluster model.ClusterID // "" if the claim does not even tell that
	Source  string
	Owner   bool   // it is the claim that counts for the cluster
	Reason  string // why it is not used: another claim has the cluster, or the credential is refused; else ""
	Warning string // what is unwise about the credential, "" if nothing is
	Trying  bool   // it owns the cluster, which is read with an earlier credential until this one has synced
	Hash    string // of the credential: see secrets.Claim
	Created time.Time
	Expires time.Time // when the credential ends; zero if unknown

	// Earlier is the credential that an owner's cluster is read with while this one is tried or refused; nil if it is
	// this one.
	Earlier *Earlier
	UID     string // of an owner's cluster; "" while it is not known
}

// Earlier is a credential that serves on until another one has proved to work.
type Earlier struct {
	Source, Hash string
	Expires      time.Time // zero if unknown
}

// ranked is a claim in its place.
type ranked struct {
	secrets.Claim
	primary bool
	owner   bool
	reason  string
}

// rank puts the claims of all sources in order, by cluster, the best first, and says which counts: the first
// of each cluster, usable or not, so that who owns a cluster does not depend on what is in the credentials.
func rank(sources map[string][]secrets.Claim, config model.ClusterID) []ranked {
	var out []ranked
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		for _, c := range sources[name] {
			out = append(out, ranked{Claim: c, primary: name == Primary})
		}
	}
	slices.SortStableFunc(out, func(a, b ranked) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), primaryFirst(a.primary, b.primary), a.Compare(&b.Claim))
	})
	var holder *ranked // of the cluster that has been come to
	for i := range out {
		r := &out[i]
		if holder != nil && holder.Cluster != r.Cluster {
			holder = nil
		}
		if r.reason = r.barred(config, holder); r.reason != "" {
			continue
		}
		r.owner, holder = true, r
		if r.Err != nil {
			r.reason = r.Err.Error()
		}
	}
	return out
}

func primaryFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// barred says why the claim does not count; "" if it does.
func (r *ranked) barred(config model.ClusterID, holder *ranked) string {
	switch {
	case !secrets.ValidCluster(r.Cluster) && r.Err != nil:
		return r.Err.Error()
	case !secrets.ValidCluster(r.Cluster):
		return "not a cluster id"
	case !r.primary && model.ClusterID(r.Cluster) == config:
		return "this is the id of the config cluster, which is read with the hub's own credential"
	case holder != nil:
		return fmt.Sprintf("the cluster is claimed by %s, which comes first", holder.Source)
	}
	return ""
}

// owners are the claims that count.
func owners(all []ranked) map[model.ClusterID]secrets.Claim {
	out := map[model.ClusterID]secrets.Claim{}
	for _, r := range all {
		if r.owner {
			out[model.ClusterID(r.Cluster)] = r.Claim
		}
	}
	return out
}

// listed is a member as it is told, and what brings it up to date at that time: registries sync by themselves.
type listed struct {
	Member
	refresh func(*Member) // nil if nothing changes
	inForce func() *made  // what the cluster is read with; nil if the claim does not own one
}

// InForce are the credentials that clusters are read with: of those that have been read. One that is tried is not among
// them.
func (m *Manager) InForce() map[model.ClusterID]*rest.Config {
	out := map[model.ClusterID]*rest.Config{}
	for _, l := range *m.members.Load() {
		if l.inForce == nil {
			continue
		}
		if x := l.inForce(); x.synced() {
			out[l.Cluster] = x.config
		}
	}
	return out
}

// Members lists all claims, by cluster, the owner first.
func (m *Manager) Members() []Member {
	list := *m.members.Load()
	out := make([]Member, len(list))
	for i, l := range list {
		if out[i] = l.Member; l.refresh != nil {
			l.refresh(&out[i])
		}
	}
	m.warnOfTwins(out)
	return out
}

// warnOfTwins says which clusters are read under another name too. It is a fault of all but the first: the config
// cluster, or the one that was claimed before the others.
func (m *Manager) warnOfTwins(members []Member) {
	order := func(a, b Member) int {
		isConfig := func(x Member) bool { return x.Cluster == m.opts.Config }
		return cmp.Or(primaryFirst(isConfig(a), isConfig(b)), a.Created.Compare(b.Created), strings.Compare(string(a.Cluster), string(b.Cluster)))
	}
	first := map[string]Member{}
	for _, x := range members {
		if f, ok := first[x.UID]; x.UID != "" && (!ok || order(x, f) < 0) {
			first[x.UID] = x
		}
	}
	for i, x := range members {
		if f := first[x.UID]; x.UID != "" && f.Cluster != x.Cluster {
			twin := fmt.Sprintf("this is the cluster %s under another name (kube-system has the same UID): its endpoints count twice; remove one of the two", f.Cluster)
			members[i].Warning = strings.TrimPrefix(x.Warning+"; "+twin, "; ")
		}
	}
}

// inForce gives what tells which registry serves a cluster; nil if none is attached.
func (m *Manager) inForce(c *secrets.Claim) func() *made {
	a := m.attached[model.ClusterID(c.Cluster)]
	if a == nil {
		return nil
	}
	current, next := a.current, a.next
	return func() *made {
		if next.synced() {
			return &next
		}
		return &current
	}
}

// refresh gives what brings the owner of a cluster up to date.
func (m *Manager) refresh(c *secrets.Claim, serving func() *made) func(*Member) {
	if serving == nil {
		return nil
	}
	trying, hash := m.trying(c), c.Hash
	return func(x *Member) {
		x.Trying = trying != nil && trying()
		inForce := serving()
		if inForce.uid != nil {
			x.UID = inForce.uid()
		}
		if old := &inForce.claim; inForce.synced() && old.Hash != hash {
			x.Earlier = &Earlier{Source: old.Source, Hash: old.Hash, Expires: old.Expires}
		}
	}
}

// trying tells whether the registry made for the claim, which owns the cluster, is still to replace another.
func (m *Manager) trying(c *secrets.Claim) func() bool {
	a := m.attached[model.ClusterID(c.Cluster)]
	switch {
	case c.Err != nil || a == nil || a.current.claim.Err != nil || a.current.isFor(*c, m.settings):
		return nil
	case a.next.isFor(*c, m.settings):
		serves := a.next.serves
		return func() bool { return serves() == nil }
	}
	return func() bool { return true } // it waits for settings
}

// publish makes the claims visible, and logs those that have just been found not to count.
func (m *Manager) publish(all []ranked) {
	type claim struct{ cluster, source string }
	before := map[claim]string{}
	for _, old := range m.Members() {
		before[claim{string(old.Cluster), old.Source}] = old.Reason
	}
	out := make([]listed, 0, len(all))
	for _, r := range all {
		l := listed{Member: Member{
			Cluster: model.ClusterID(r.Cluster), Source: r.Source, Owner: r.owner, Reason: r.reason, Warning: warning(r.Config),
			Hash: r.Hash, Created: r.Created, Expires: r.Expires,
		}}
		if r.owner {
			l.inForce = m.inForce(&r.Claim)
			l.refresh = m.refresh(&r.Claim, l.inForce)
		}
		out = append(out, l)
		if !r.owner && before[claim{r.Cluster, r.Source}] != r.reason {
			m.opts.Log.Warn("credential is not used", "cluster", r.Cluster, "source", r.Source, "reason", r.reason)
		}
	}
	m.members.Store(&out)
}

// warning says what is unwise about a credential.
func warning(cfg *rest.Config) string {
	switch {
	case cfg == nil:
		return ""
	case strings.HasPrefix(cfg.Host, "http://"):
		return "the API server is reached without TLS, and without a credential"
	case cfg.Insecure:
		return "insecure-skip-tls-verify: whoever is in between can read and change all that the hub reads"
	}
	return ""
}
