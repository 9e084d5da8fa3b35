package nacos

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/dns"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// Options configure a Registry.
type Options struct {
	Name     model.ClusterID  // of the registry
	Spec     api.RegistrySpec // with defaults, as Effective gives it
	Access   foreign.Access
	Resolver dns.Resolver     // of instances that have DNS names; that of the machine if nil
	Metrics  *foreign.Metrics // nil: none
	Before   *Memory          // shared with registries that this one replaces, or that replace it, and are declared alike; may be nil
	Log      *slog.Logger     // discards if nil
	Now      func() time.Time // time.Now if nil

	// Backoff is the pause after so many failures in a row; 0.5 s, doubled each time up to 30 s, with jitter, if nil.
	Backoff func(failures int) time.Duration
}

// timing says how long things take. Only tests have other values than these.
type timing struct {
	request   time.Duration // for an answer
	login     time.Duration // for that to a login
	relogin   time.Duration // between logins; a token that is refused sooner was no good
	poll      time.Duration // between questions whether the connection is registered
	beat      time.Duration // between signs of life
	settle    time.Duration // after a session has synced, everything is verified within another such time
	reconcile time.Duration // in which everything is verified, again and again
	notify    time.Duration // for the notification of a change that was read
	relist    time.Duration // after the notification that a service went
	refused   time.Duration // until what the server refuses, whoever asks, is asked again
	servers   time.Duration // between reads of the address server
}

var defaultTiming = timing{
	request: 5 * time.Second, login: 5 * time.Second, relogin: 5 * time.Second, poll: 20 * time.Millisecond, beat: 5 * time.Second,
	settle: 30 * time.Second, reconcile: 5 * time.Minute, notify: 10 * time.Second, relist: time.Second,
	refused: time.Minute, servers: 30 * time.Second,
}

// settings are what Options mean.
type settings struct {
	key         model.ShardKey
	scopes      []scope
	naming      naming
	filter      foreign.Filter
	interval    time.Duration // between lists of names
	maxServices int
	concurrency int
	rate        rate.Limit // requests per second
	before      *Memory
	verifyPause time.Duration // at least, between services that are verified: half the requests are left to others
	clock       func() time.Time
	backoff     func(int) time.Duration
	timing      timing
	log         *slog.Logger
}

// Registry reads the services of one Nacos. It implements model.Registry.
type Registry struct {
	settings
	opts    Options
	servers []server // those that the spec names
	tls     *tls.Config
	metrics *metrics
}

// New makes a registry. It fails if the spec can't be used, whatever the servers say.
func New(o Options) (*Registry, error) {
	spec := o.Spec.Nacos
	if spec == nil {
		return nil, errors.New("the spec is not one of Nacos")
	}
	servers, err := parseServers(o.Spec.Addresses, spec.GRPCPort)
	if err != nil {
		return nil, err
	}
	if err := addressServer(spec.AddressServer); err != nil {
		return nil, err
	}
	if len(servers) == 0 && spec.AddressServer == "" {
		return nil, errors.New("there are neither addresses nor an address server")
	}
	secure, err := tlsConfig(o.Spec.TLS, o.Access, servers)
	if err != nil {
		return nil, err
	}
	r := &Registry{opts: o, servers: servers, tls: secure, settings: newSettings(o)}
	r.metrics = &metrics{o.Metrics, r.key.String(), r.clock}
	return r, nil
}

func newSettings(o Options) settings {
	spec, limits := o.Spec.Nacos, o.Spec.Limits
	key := model.ShardKey{Provider: model.ProviderNacos, Cluster: o.Name}
	s := settings{
		key:    key,
		scopes: scopes(spec), filter: foreign.NewFilter(o.Spec.Services),
		naming:   naming{shard: key, home: o.Spec.Namespace, namespaces: spec.NamespaceNames, honour: spec.ProtectThreshold == "honour"},
		interval: spec.DiscoveryInterval.Duration, maxServices: int(limits.MaxServices),
		concurrency: max(1, int(limits.Concurrency)), rate: rate.Inf,
		before: o.Before, clock: o.Now, backoff: o.Backoff, timing: defaultTiming, log: o.Log,
	}
	if n := limits.RequestsPerSecond; n > 0 {
		s.rate, s.verifyPause = rate.Limit(n), 2*time.Second/time.Duration(n)
	}
	if s.clock == nil {
		s.clock = time.Now
	}
	if s.backoff == nil {
		s.backoff = backoff
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s
}

// backoff is the usual pause after failures.
func backoff(failures int) time.Duration {
	return jittered(min(250*time.Millisecond<<min(failures, 10), 30*time.Second))
}

// Key implements model.Registry.
func (r *Registry) Key() model.ShardKey { return r.key }

// Run implements model.Registry. It never gives up.
func (r *Registry) Run(ctx context.Context, out model.Sink) error {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	pub := foreign.NewPublisher(foreign.Options{Shard: r.key, Spec: r.opts.Spec, Resolver: r.opts.Resolver, Log: r.log, Now: r.clock}, out)
	work.Go(func() { pub.Run(ctx) })

	client := httpClient(r.tls)
	runner := &runner{
		Registry: r, watcher: newWatcher(r.settings, pub, r.metrics), http: client,
		dialer: dialer{
			auth: newAuth(r.opts.Access, client, r.opts.Spec.Nacos.ContextPath, r.tls != nil, r.timing, r.clock),
			pace: rate.NewLimiter(r.rate, max(1, int(min(r.rate, 1000))/10)), tls: r.tls, timing: r.timing, metrics: r.metrics,
		},
		ring: newRing(r.servers, r.opts.Spec.Nacos.GRPCPort),
	}
	return runner.forever(ctx)
}
