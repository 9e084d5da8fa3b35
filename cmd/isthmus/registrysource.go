package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/analysis"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters"
	"github.com/isthmus-mesh/isthmus/clusters/consul"
	"github.com/isthmus-mesh/isthmus/clusters/dns"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
	"github.com/isthmus-mesh/isthmus/clusters/holdback"
	"github.com/isthmus-mesh/isthmus/clusters/lastgood"
	"github.com/isthmus-mesh/isthmus/clusters/nacos"
	"github.com/isthmus-mesh/isthmus/clusters/registries"
	"github.com/isthmus-mesh/isthmus/clusters/static"
	"github.com/isthmus-mesh/isthmus/mcp/client"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// registryOptions are the flags of serve that concern registries that are declared.
type registryOptions struct {
	secretsDir string
	off        bool // they are not read, whatever is declared
}

func (r *registryOptions) bind(f *pflag.FlagSet) {
	f.StringVar(&r.secretsDir, "registry-secrets-dir", "", "`DIR` with a folder for each Secret that a Registry or the McpBridge names, and a file in it for each key, as a volume has them (default: the Secrets are read from the config cluster)")
}

// registrySource attaches the registries that are declared in the config cluster.
type registrySource struct {
	sourceDeps // read-only, like the rest after Scan
	manager    *registries.Manager
	names      *secrets.Named // nil if there are no Secrets
	primary    chan *rest.Config
	store      *lastgood.Store // nil without --state-dir
	metrics    *foreign.Metrics
	resolver   dns.Resolver
}

// newRegistrySource gives the source. It follows what the other sources attach through the same Lifecycle.
func newRegistrySource(d sourceDeps) source {
	if d.opts.registries.off {
		return nil
	}
	s := &registrySource{sourceDeps: d, primary: make(chan *rest.Config, 1), metrics: foreign.NewMetrics(d.registerer)}
	servers, _ := d.opts.resolvers() // checked before
	s.resolver = foreign.Remember(dns.NewClient(dns.Files{}, servers...))
	o := registries.Options{
		Lifecycle: d.life.Lifecycle, Scope: d.opts.declarations(), Keep: s.keep, Forget: s.forget, Log: d.log,
		Make: map[model.ProviderID]func(registries.Plan) (model.Registry, error){
			model.ProviderConsul: s.guarded(s.consul), model.ProviderNacos: s.guarded(s.nacos),
			model.ProviderMCP: s.guarded(s.mcp), model.ProviderStatic: s.static, model.ProviderStaticDNS: s.static,
		},
	}
	if d.opts.registries.secretsDir != "" || d.opts.kube.hasPrimary() {
		s.names = secrets.NewNamed()
		o.Want = s.names.Want
	}
	s.manager = registries.NewManager(o)
	d.life.Lifecycle = registries.NewFollower(d.life.Lifecycle, s.manager)
	return s
}

// declarations says which objects declare registries.
func (o *serveOptions) declarations() registries.Scope {
	s := registries.Scope{SystemNamespace: o.systemNamespace, ConfigCluster: model.ClusterID(o.clusterID), Reserved: map[model.ShardKey]string{}}
	for _, u := range o.mcp.parsed {
		s.Reserved[model.ShardKey{Provider: model.ProviderMCP, Cluster: u.Name}] = "--mcp-upstream"
	}
	return s
}

// Scan implements source.
func (s *registrySource) Scan() error {
	dir := s.opts.kube.stateDir
	if dir == "" {
		return nil
	}
	var err error
	s.store, err = lastgood.Open(lastgood.Options{Dir: filepath.Join(dir, "registries"), After: s.opts.patience(), Log: s.log})
	if err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	return nil
}

// Members implements source.
func (s *registrySource) Members() []clusters.Member { return nil }

// Run implements source: it follows the Secrets that are needed.
func (s *registrySource) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { s.prune(ctx) })
	return s.follow(ctx)
}

// prune drops what was kept of registries that were declared when the hub ran last, and are not any more.
func (s *registrySource) prune(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-s.ready: // the config cluster has spoken, or what was kept of it
	}
	if s.store == nil {
		return
	}
	there := map[model.ShardKey]bool{}
	for _, i := range s.manager.List() {
		there[i.Key] = true
	}
	for _, k := range s.store.Shards() {
		if !there[k] {
			s.store.Forget(k)
		}
	}
}

func (s *registrySource) follow(ctx context.Context) error {
	switch {
	case s.names == nil:
		<-ctx.Done()
		return ctx.Err()
	case s.opts.registries.secretsDir != "":
		if err := secrets.FollowMounted(ctx, s.opts.registries.secretsDir, s.names, s.manager.Secret); err != nil {
			return fmt.Errorf("--registry-secrets-dir: %w", err)
		}
		return ctx.Err()
	}
	return s.followPrimary(ctx)
}

// followPrimary follows the Secrets with the newest credential of the config cluster.
func (s *registrySource) followPrimary(ctx context.Context) error {
	var cfg *rest.Config
	for {
		if cfg == nil {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case cfg = <-s.primary:
			}
		}
		term, end := context.WithCancel(ctx)
		done := make(chan struct{})
		go func(cfg *rest.Config) {
			defer close(done)
			o := secrets.NamedOptions{Namespace: s.opts.systemNamespace, Out: s.manager.Secret}
			if err := secrets.FollowNamed(term, cfg, s.names, o); err != nil {
				s.log.Error("the Secrets of registries can't be read with a new credential of the config cluster", "err", err)
			}
		}(cfg)
		select {
		case <-ctx.Done():
		case cfg = <-s.primary:
		}
		end()
		<-done
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// usePrimary takes a credential of the config cluster.
func (s *registrySource) usePrimary(cfg *rest.Config) { replace(s.primary, cfg) }

// replace puts a value into a channel of capacity 1 in place of one that nobody has taken.
func replace[T any](c chan T, v T) {
	for {
		select {
		case c <- v:
			return
		default:
		}
		select {
		case <-c:
		default:
		}
	}
}

// keep makes what a registry reports outlive the hub.
func (s *registrySource) keep(r model.Registry, of func() string, first bool) model.Registry {
	if s.store == nil || r.Key().Provider == model.ProviderStatic || r.Key().Provider == model.ProviderStaticDNS {
		return r
	}
	return s.store.Wrap(r, lastgood.Terms{Restore: first, Of: of, Aside: func() []byte {
		if given, ok := registries.Given(r).(handingOver); ok {
			return given.served.Held()
		}
		return nil
	}})
}

// forget drops what is known of a registry that was detached.
func (s *registrySource) forget(k model.ShardKey) {
	s.metrics.Forget(k.String())
	if k.Provider == model.ProviderMCP {
		s.upstreams.Forget(k.Cluster)
	}
	s.held.forget(k)
	if s.store != nil {
		s.store.Forget(k)
	}
}

// guarded gives a constructor of registries that hold removals back as their declaration says.
func (s *registrySource) guarded(make func(registries.Plan, *handover, *slog.Logger) (model.Registry, error)) func(registries.Plan) (model.Registry, error) {
	return func(p registries.Plan) (model.Registry, error) {
		h := s.handover(p)
		r, err := make(p, h, s.log.With("provider", p.Key.Provider, "cluster", p.Key.Cluster))
		if err != nil {
			return nil, err
		}
		return handingOver{s.held.wrap(r, *p.Spec.Empty, h.served), h}, nil
	}
}

// handingOver is a registry with what it leaves to the one that replaces it.
type handingOver struct {
	model.Registry
	*handover
}

// handover is what registries of one declaration leave to each other.
type handover struct {
	served *holdback.Handover
	consul *consul.Memory
	nacos  *nacos.Memory
	of     string // the identity of the declaration
}

// handover gives that of the registry in force if only credentials are others: one that is declared otherwise may have other services, and
// is believed at once.
func (s *registrySource) handover(p registries.Plan) *handover {
	of := p.Identity()
	switch old, there := p.InForce.(handingOver); {
	case !there:
		return &handover{begin(s.store, p.Key, of, *p.Spec.Empty, s.log), &consul.Memory{}, &nacos.Memory{}, of}
	case old.of != of:
		return &handover{&holdback.Handover{}, &consul.Memory{}, &nacos.Memory{}, of}
	default:
		return old.handover
	}
}

func (s *registrySource) consul(p registries.Plan, h *handover, log *slog.Logger) (model.Registry, error) {
	return consul.New(consul.Options{
		Name: p.Key.Cluster, Spec: p.Spec, Access: p.Access, Resolver: s.resolver, Before: h.consul, Metrics: s.metrics, Log: log,
	})
}

func (s *registrySource) nacos(p registries.Plan, h *handover, log *slog.Logger) (model.Registry, error) {
	return nacos.New(nacos.Options{
		Name: p.Key.Cluster, Spec: p.Spec, Access: p.Access, Resolver: s.resolver, Before: h.nacos, Metrics: s.metrics, Log: log,
	})
}

func (s *registrySource) mcp(p registries.Plan, _ *handover, _ *slog.Logger) (model.Registry, error) {
	u := upstream{Name: p.Key.Cluster, Token: p.Access.Token, TrustDomain: s.opts.trustDomain}
	encrypted := false
	for _, a := range p.Spec.Addresses {
		scheme, rest, ok := strings.Cut(a, "://")
		if !ok {
			rest = a
		}
		if encrypted = encrypted || scheme == "tls" || scheme == "xdss" || scheme == "grpcs"; rest != "" {
			u.Addresses = append(u.Addresses, strings.TrimSuffix(rest, "/"))
		}
	}
	t := cmp.Or(p.Spec.TLS, &api.TLS{})
	if t.Mode != api.TLSDisabled && (encrypted || t.Mode != "") {
		u.TLS = &client.TLS{CA: p.Access.CA, Cert: p.Access.Cert, Key: p.Access.Key, ServerName: t.ServerName, Insecure: t.InsecureSkipVerify}
	}
	if u.Token != "" && u.TLS == nil {
		return nil, errors.New("its token needs TLS: it would be sent in the clear")
	}
	u = s.opts.mcpClient(u)
	u.Metrics, u.Log, u.Revision = s.upstreams, s.log, cmp.Or(p.Spec.MCP.Revision, u.Revision)
	return client.New(u), nil
}

func (s *registrySource) static(p registries.Plan) (model.Registry, error) {
	return static.New(static.Options{Key: p.Key, Service: p.Static, Namespace: p.Namespace, From: p.From}), nil
}

// declarationFindings are those about declarations of registries together.
func (o *serveOptions) declarationFindings(pc *pushcontext.PushContext) (out []analysis.Finding) {
	declared, findings := registries.Read(pc.Configs, o.declarations())
	for _, f := range findings {
		out = append(out, analysis.Finding(f))
	}
	clusters := map[model.ClusterID]bool{}
	for _, s := range pc.Shards {
		clusters[s.Key.Cluster] = clusters[s.Key.Cluster] || !s.Key.Provider.Foreign() && !s.Key.Provider.OfHub()
	}
	named := map[model.ClusterID]model.ShardKey{}
	for _, d := range declared {
		other, called := "a cluster", clusters[d.Key.Cluster]
		if k, taken := named[d.Key.Cluster]; !called && taken {
			other, called = "the registry "+k.String(), true
		}
		if named[d.Key.Cluster] = d.Key; !called {
			continue
		}
		out = append(out, analysis.Finding{Source: d.From, Finding: model.Finding{
			Code: registries.CodeTaken, Severity: model.SeverityWarning, Object: d.From.Object, Field: d.Field,
			Message: fmt.Sprintf("%s is called %s too: the registry's instances count as if they ran in it; give the registry another name", other, d.Key.Cluster),
		}})
	}
	return out
}
