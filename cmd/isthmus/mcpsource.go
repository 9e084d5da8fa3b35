package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters"
	"github.com/isthmus-mesh/isthmus/clusters/file"
	"github.com/isthmus-mesh/isthmus/clusters/holdback"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
	"github.com/isthmus-mesh/isthmus/clusters/lastgood"
	"github.com/isthmus-mesh/isthmus/mcp/client"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// mcpOptions are the flags of serve that concern MCP servers.
type mcpOptions struct {
	upstreams []string
	parsed    []upstream // what upstreams say
	off       bool       // servers are not read, whatever flags and settings say
}

func (m *mcpOptions) bind(f *pflag.FlagSet) {
	f.StringArrayVar(&m.upstreams, "mcp-upstream", nil, "`[NAME=]xds://HOST:PORT[,HOST:PORT...][?OPTION=VALUE&...]` of a server of MCP (Mesh Configuration Protocol) whose configuration counts, such as an istiod; further addresses are used when those before can't be. Options: tls, ca, cert, key, sni, token, protocol. May be repeated")
}

func (m *mcpOptions) check() error {
	m.parsed = nil
	names := map[model.ClusterID]bool{}
	for _, s := range m.upstreams {
		u, err := parseUpstream(s)
		if err != nil {
			return usageError("--mcp-upstream %s: %w", api.HideUser(s), err)
		}
		if names[u.Name] {
			return usageError("--mcp-upstream %s: another one is called %s: give it a name, as in NAME=xds://HOST:PORT", s, u.Name)
		}
		names[u.Name] = true
		m.parsed = append(m.parsed, u)
	}
	return nil
}

// upstream is what tells MCP servers apart. The rest of the options is the same for all.
type upstream = client.Options

const mcpScheme = "xds://"

// parseUpstream reads the value of --mcp-upstream.
func parseUpstream(s string) (u upstream, err error) {
	at := strings.Index(s, mcpScheme)
	if at < 0 {
		return u, errors.New("want xds://HOST:PORT")
	}
	name, ok := strings.CutSuffix(s[:at], "=")
	if at > 0 && (!ok || !secrets.ValidCluster(name)) {
		return u, fmt.Errorf("%q can't be its name (letters, digits, '-', '_' and '.', 63 at most, no '-' at an end)", strings.TrimSuffix(s[:at], "="))
	}
	addresses, query, _ := strings.Cut(s[at+len(mcpScheme):], "?")
	for _, a := range strings.Split(addresses, ",") {
		a = strings.TrimSuffix(a, "/")
		host, port, err := net.SplitHostPort(a)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil || host == "" || strings.Contains(a, "@") {
			return u, fmt.Errorf("%q is not HOST:PORT", api.HideUser(a))
		}
		u.Addresses = append(u.Addresses, a)
	}
	u.Name = upstreamName(cmp.Or(name, u.Addresses[0]))
	return u, readUpstream(&u, query)
}

// upstreamName makes an id of an address.
func upstreamName(s string) model.ClusterID {
	id := []byte(s)
	for i := range id {
		if !secrets.ValidCluster("x" + string(id[i]) + "x") {
			id[i] = '-'
		}
	}
	return model.ClusterID(strings.Trim(string(id[:min(len(id), 63)]), "-."))
}

// readUpstream reads the options of a server.
func readUpstream(u *upstream, query string) error {
	options, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("options: %w", err)
	}
	tls := &client.TLS{}
	for name, values := range options {
		value := values[len(values)-1]
		switch name {
		case "tls":
		case "ca":
			tls.CAFile = value
		case "cert":
			tls.CertFile = value
		case "key":
			tls.KeyFile = value
		case "sni":
			tls.ServerName = value
		case "token":
			u.TokenFile = value
		case "protocol":
			if u.NoDelta = value == "sotw"; value != "sotw" && value != "delta" {
				return fmt.Errorf("protocol=%s: want delta or sotw", value)
			}
			continue
		default:
			return fmt.Errorf("there is no option %q: want tls, ca, cert, key, sni, token or protocol", name)
		}
		u.TLS = tls
	}
	if (tls.CertFile == "") != (tls.KeyFile == "") {
		return errors.New("cert and key go together")
	}
	return nil
}

// settingsSource is the server that a configSource of the mesh's settings is; ok is false if it is not read.
func settingsSource(c *meshconfig.ConfigSource) (u upstream, ok bool) {
	address, why := kube.SourceAddress(c)
	if why != "" {
		return u, false
	}
	u.Name, u.Addresses = upstreamName(address), []string{address}
	s := c.GetTlsSettings()
	switch s.GetMode() {
	case networking.ClientTLSSettings_SIMPLE, networking.ClientTLSSettings_MUTUAL:
		u.TLS = &client.TLS{ServerName: s.GetSni(), SubjectAltNames: s.GetSubjectAltNames(), Insecure: s.GetInsecureSkipVerify().GetValue()}
		u.TLS.CA, u.TLS.CAFile = authorities(s.GetCaCertificates())
	}
	if s.GetMode() == networking.ClientTLSSettings_MUTUAL {
		u.TLS.CertFile, u.TLS.KeyFile = s.GetClientCertificate(), s.GetPrivateKey()
	}
	return u, true
}

// authorities reads caCertificates, which is PEM or the name of a file, as for istiod. No file is called like what PEM must have.
func authorities(text string) (pem []byte, file string) {
	if strings.Contains(text, "-----BEGIN ") {
		return []byte(text), ""
	}
	return nil, text
}

// mcpSource reads MCP servers: those of --mcp-upstream, and the configSources of the mesh's settings in force.
type mcpSource struct {
	sourceDeps // read-only, like the rest after Scan
	metrics    *client.Metrics
	store      *lastgood.Store // nil without --state-dir
	settled    sync.Once       // by the mesh's settings, or without them

	mu     sync.Mutex
	news   bool                   // guarded by mu: mesh has not been looked at
	mesh   *meshconfig.MeshConfig // guarded by mu
	active bool                   // guarded by mu: somebody brings what is attached up to date, and owns what follows

	attached map[model.ClusterID]served
}

// served is a server that is attached.
type served struct {
	upstream
	before *holdback.Handover
}

// newMCPSource gives the source.
func newMCPSource(d sourceDeps) source {
	if d.opts.mcp.off {
		return nil
	}
	s := &mcpSource{sourceDeps: d, metrics: d.upstreams, attached: map[model.ClusterID]served{}}
	d.life.follow(func(m *meshconfig.MeshConfig) {
		s.settled.Do(func() {})
		s.use(m)
	})
	return s
}

// Scan implements source. Identities are in the trust domain of the mesh's settings, so these are waited for if there may be some.
func (s *mcpSource) Scan() error {
	o := s.opts
	if dir := o.kube.stateDir; dir != "" {
		var err error
		if s.store, err = lastgood.Open(lastgood.Options{Dir: filepath.Join(dir, "mcp"), After: o.patience(), Log: s.log}); err != nil {
			return fmt.Errorf("--state-dir: %w", err)
		}
	}
	switch {
	case o.dir != "" || o.kube.any():
		if o.trustDomain != "" {
			s.use(nil)
		}
	case o.kube.meshConfig != "" || o.kube.meshNetworks != "":
		s.life.Attach(file.NewMeshFiles(file.Options{Cluster: model.ClusterID(o.clusterID), Log: s.log}, o.kube.meshConfig, o.kube.meshNetworks))
	default:
		s.settle()
	}
	return nil
}

// settle reads the servers without settings, if none have come.
func (s *mcpSource) settle() { s.settled.Do(func() { s.use(nil) }) }

// Members implements source.
func (s *mcpSource) Members() []clusters.Member { return nil }

// Run implements source.
func (s *mcpSource) Run(ctx context.Context) error {
	late := time.AfterFunc(orNever(s.opts.syncTimeout), s.settle)
	defer late.Stop()
	<-ctx.Done()
	return ctx.Err()
}

// use brings what is attached up to date with settings; nil stands for none. If another goroutine is at it, that one does:
// nothing is locked while registries are attached.
func (s *mcpSource) use(m *meshconfig.MeshConfig) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mesh, s.news = m, true
	if s.active {
		return
	}
	s.active = true
	for s.news {
		s.news = false
		m := s.mesh
		s.mu.Unlock()
		s.reconcile(m)
		s.mu.Lock()
	}
	s.active = false
}

// reconcile attaches and detaches until what is attached is what is wanted.
func (s *mcpSource) reconcile(m *meshconfig.MeshConfig) {
	wanted, policy := s.wanted(m), *api.RegistrySpec{}.Effective("").Empty
	for name := range s.attached {
		if _, ok := wanted[name]; !ok {
			s.detach(name)
		}
	}
	for name, u := range wanted {
		old, known := s.attached[name]
		if known && reflect.DeepEqual(old.upstream, u) {
			continue
		}
		s.log.Info("MCP server is read", "cluster", name, "provider", model.ProviderMCP, "addresses", u.Addresses, "replacement", known)
		now := served{u, old.before}
		switch {
		case !known:
			now.before = begin(s.store, model.ShardKey{Provider: model.ProviderMCP, Cluster: name}, identityOf(u), policy, s.log)
		case !slices.Equal(old.Addresses, u.Addresses): // others may say something else, and are believed at once
			now.before = &holdback.Handover{}
		}
		s.attached[name] = now
		reg := s.held.wrap(client.New(s.complete(u)), policy, now.before)
		if s.store != nil {
			reg = s.store.Wrap(reg, lastgood.Terms{Restore: !known, Of: func() string { return identityOf(u) }, Aside: now.before.Held})
		}
		s.life.Attach(reg)
	}
}

// identityOf are what tells apart upstreams of one name that may say different things.
func identityOf(u upstream) string { return strings.Join(u.Addresses, ",") }

func (s *mcpSource) detach(name model.ClusterID) {
	delete(s.attached, name)
	key := model.ShardKey{Provider: model.ProviderMCP, Cluster: name}
	s.life.Detach(key)
	s.metrics.Forget(name)
	s.held.forget(key)
	if s.store != nil {
		s.store.Forget(key)
	}
	s.log.Info("MCP server is not among the mesh's sources any more", "cluster", name, "provider", model.ProviderMCP)
}

// wanted are the servers of the flags, and then of the settings.
func (s *mcpSource) wanted(m *meshconfig.MeshConfig) map[model.ClusterID]upstream {
	out := map[model.ClusterID]upstream{}
	all := slices.Clone(s.opts.mcp.parsed)
	for _, c := range m.GetConfigSources() {
		if u, ok := settingsSource(c); ok {
			all = append(all, u)
		}
	}
	for _, u := range all {
		if _, taken := out[u.Name]; taken {
			continue
		}
		u.TrustDomain = cmp.Or(s.opts.trustDomain, m.GetTrustDomain())
		out[u.Name] = u
	}
	return out
}

// complete adds what is the same for all servers.
func (s *mcpSource) complete(u upstream) client.Options {
	u = s.opts.mcpClient(u)
	u.Metrics, u.Log = s.metrics, s.log
	return u
}

// mcpClient adds what the hub's flags say.
func (o *serveOptions) mcpClient(u upstream) client.Options {
	u.Hub, u.Revision, u.DomainSuffix, u.SystemNamespace = o.clusterID, o.kube.revision, o.domain, o.systemNamespace
	u.ConfigCluster = string(u.Name) == o.clusterID
	u.Node.Pod, _ = os.Hostname() // only a name
	u.Node.Namespace, u.Node.IP = os.Getenv("POD_NAMESPACE"), os.Getenv("POD_IP")
	return u
}
