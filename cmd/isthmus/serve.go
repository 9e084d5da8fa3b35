package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/secrets"
	"github.com/isthmus-mesh/isthmus/xds"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	dir            string
	kube           kubeOptions
	registries     registryOptions
	mcp            mcpOptions
	grpcAddr       string
	secureGRPCAddr string
	mcpAddr        string
	httpAddr       string
	monitoringAddr string

	clusterID       string
	aliases         map[string]string
	domain          string
	trustDomain     string
	systemNamespace string
	dnsServers      []string

	syncTimeout      time.Duration
	staleAfter       time.Duration
	endpointQuiet    time.Duration
	endpointMax      time.Duration
	configQuiet      time.Duration
	configMax        time.Duration
	maxConnectionAge time.Duration
	shutdownGrace    time.Duration

	vhds              bool
	autoRegistration  bool
	writeStatus       bool
	registrationGrace time.Duration
	maxRequestBytes   int
	encodedCacheBytes int64

	logLevel  string
	logFormat string

	earlier string // folder in place of dir that counts as read before; "" for none

	opened func(addresses)                       // told where the hub listens; may be nil
	watch  func(model.Lifecycle) model.Lifecycle // put between the sources and the controller; may be nil
}

func newServe() *cobra.Command { return serveCommand(&serveOptions{}) }

func serveCommand(o *serveOptions) *cobra.Command {
	c := &cobra.Command{
		Use:   "serve (--kubeconfig FILE | --in-cluster | --clusters-dir DIR | --dir DIR | --mcp-upstream xds://HOST:PORT)",
		Short: "Run the hub",
		Long: `Run the hub: read the clusters, merge them, and serve the result to Envoy proxies.

With --kubeconfig, or in a pod, the hub reads that cluster, the config cluster, and every remote cluster
that a Secret labelled istio/multiCluster=true in its system namespace has a kubeconfig of: 'isthmus cluster
add' writes such Secrets. --clusters-dir is a folder of kubeconfigs with the same effect. Each cluster is
read from its API server; credentials may change at any time, and the old one serves until the new one works.

--dir is a folder with mesh.yaml (Istio MeshConfig, optional), networks.yaml (MeshNetworks, optional) and one
folder per cluster with Kubernetes and Istio YAML. Changes on disk are picked up at once; a file that can't be
read keeps its last good content and shows in 'isthmus cluster list -o wide'.

--mcp-upstream reads configuration from a server of MCP (Mesh Configuration Protocol), such as an istiod, in
addition to or in place of all that; so do the configSources of the mesh's settings.

Every listen address may be empty: then that server is off. /ready on --http-addr answers 200 once every
cluster has been read or its --sync-timeout has passed; until then proxies are told to come again.`,
		Example: `  isthmus serve --kubeconfig primary.yaml --state-dir /var/lib/isthmus
  isthmus serve --in-cluster --cluster-id east
  isthmus serve --clusters-dir /etc/isthmus/clusters --mesh-config mesh.yaml
  isthmus serve --dir examples/two-clusters
  isthmus serve --in-cluster --mcp-upstream 'prod=xds://istiod.istio-system:15012?ca=ca.pem&token=token'
  isthmus serve --dir /etc/isthmus --cluster-id east --log-format json
  isthmus serve --dir DIR --grpc-addr 127.0.0.1:15010 --http-addr 127.0.0.1:8080 --monitoring-addr ''`,
		Args: none,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		o.detect(c.Flags(), os.Getenv)
		if err := o.check(); err != nil {
			return err
		}
		log, err := newLogger(c.ErrOrStderr(), o.logLevel, o.logFormat)
		if err != nil {
			return err
		}
		return serve(c.Context(), o, log)
	}
	o.bind(c)
	return c
}

func (o *serveOptions) bind(c *cobra.Command) {
	f := c.Flags()
	f.SortFlags = false
	o.kube.bind(f)
	f.StringVar(&o.dir, "dir", "", "`DIR` with one folder of YAML per cluster")
	o.mcp.bind(f)
	o.registries.bind(f)
	f.StringVar(&o.grpcAddr, "grpc-addr", ":15010", "`HOST:PORT` of xDS for proxies, plaintext")
	f.StringVar(&o.secureGRPCAddr, "secure-grpc-addr", "", "`HOST:PORT` of xDS for proxies, TLS; not available in this version")
	f.StringVar(&o.mcpAddr, "mcp-addr", "", "`HOST:PORT` of MCP (Mesh Configuration Protocol) for other hubs; not available in this version")
	f.StringVar(&o.httpAddr, "http-addr", ":8080", "`HOST:PORT` of /ready for anybody, /debug for callers on this machine")
	f.StringVar(&o.monitoringAddr, "monitoring-addr", ":15014", "`HOST:PORT` of /metrics and /version")
	f.StringVar(&o.clusterID, "cluster-id", "", "id of the config `CLUSTER`: its definitions win conflicts (default: Kubernetes if there is a config cluster, else none: the oldest definition wins)")
	f.StringToStringVar(&o.aliases, "cluster-aliases", nil, "`ALIAS=CLUSTER`: proxies that name ALIAS as their cluster are in CLUSTER; may be repeated")
	f.StringVar(&o.domain, "domain", "cluster.local", "`SUFFIX` of the names of Kubernetes services")
	f.StringVar(&o.trustDomain, "trust-domain", "", "trust `DOMAIN` of the identities of workloads in the clusters (default: trustDomain of the mesh's settings, or cluster.local)")
	f.StringVar(&o.systemNamespace, "system-namespace", "istio-system", "`NAMESPACE` of the Secrets of remote clusters and of the mesh's settings; its label topology.istio.io/network names a cluster's network")
	f.StringSliceVar(&o.dnsServers, "dns-servers", nil, "`IP:PORT,...` of the DNS servers that know the host names of gateways (default: those of /etc/resolv.conf)")
	f.DurationVar(&o.syncTimeout, "sync-timeout", 30*time.Second, "how long serving waits for each cluster at the start; 0 = for ever")
	f.DurationVar(&o.staleAfter, "stale-after", 5*time.Minute, "how long without contact until other clusters use a cluster's endpoints last; 0 = never")
	f.DurationVar(&o.endpointQuiet, "endpoint-debounce", 20*time.Millisecond, "how long endpoints must be quiet until changes are sent")
	f.DurationVar(&o.endpointMax, "endpoint-debounce-max", 200*time.Millisecond, "how long a change of endpoints waits for quiet at most")
	f.DurationVar(&o.configQuiet, "config-debounce", 100*time.Millisecond, "how long everything else must be quiet until changes are sent")
	f.DurationVar(&o.configMax, "config-debounce-max", time.Second, "how long such a change waits for quiet at most")
	f.DurationVar(&o.maxConnectionAge, "max-connection-age", 0, "how long about, until a proxy is asked to connect again; 0 = never")
	f.DurationVar(&o.shutdownGrace, "shutdown-grace", 5*time.Second, "how long streams may take to end after SIGTERM")
	f.BoolVar(&o.autoRegistration, "auto-registration", false, "make a WorkloadEntry for each proxy that names its WorkloadGroup (AUTO_REGISTER_GROUP), for as long as it is connected. Whoever reaches --grpc-addr may then add endpoints: see to it that only proxies do")
	f.DurationVar(&o.registrationGrace, "auto-registration-grace", 10*time.Second, "how long a WorkloadEntry of --auto-registration outlives the connection of its proxy")
	f.BoolVar(&o.writeStatus, "write-status", false, "write on configuration objects in API servers what the hub makes of them: the condition Accepted and validation messages. One of several replicas does, where it may")
	f.BoolVar(&o.vhds, "vhds", true, "send virtual hosts one by one to sidecars that take them so: delta clients that are Envoy 1.40 or newer")
	f.IntVar(&o.maxRequestBytes, "max-request-bytes", xds.DefaultMaxRequest, "`BYTES` of one request of a proxy at most; the default has room for 250 000 names")
	f.Int64Var(&o.encodedCacheBytes, "encoded-cache-bytes", xds.DefaultMemoBytes, "`BYTES` of encoded resources that are kept for the next proxy; what is beyond is encoded for each anew")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
}

// leastRequest has room for a first request.
const leastRequest = 64 << 10

// check refuses what can't work, before anything starts.
func (o *serveOptions) check() error {
	switch {
	case o.dir == "" && !o.kube.any() && len(o.mcp.upstreams) == 0:
		return usageError("there is nothing to serve: name the config cluster with --kubeconfig, kubeconfigs with --clusters-dir, a folder with one folder per cluster with --dir, or a server of configuration with --mcp-upstream, e.g. 'isthmus serve --dir examples/two-clusters'")
	case o.kube.stateDir != "" && o.dir != "" && within(o.kube.stateDir, o.dir):
		return usageError("--state-dir is for clusters with an API server, MCP servers and registries, and can't be in --dir, which is read")
	case o.secureGRPCAddr != "":
		return usageError("--secure-grpc-addr is not available in this version: leave it empty and use --grpc-addr")
	case o.mcpAddr != "":
		return usageError("--mcp-addr is not available in this version: leave it empty")
	case o.maxRequestBytes < leastRequest:
		return usageError("--max-request-bytes must be at least %d: what a proxy says of itself would not fit", leastRequest)
	case o.encodedCacheBytes < 0:
		return usageError("--encoded-cache-bytes must not be negative; 0 keeps nothing")
	case o.grpcAddr == "" && o.httpAddr == "" && o.monitoringAddr == "":
		return usageError("every listen address is empty: nothing would be served")
	}
	for _, check := range []func() error{o.checkValues, o.checkDir, o.kube.check, o.mcp.check} {
		if err := check(); err != nil {
			return err
		}
	}
	if o.clusterID == "" && o.kube.hasPrimary() {
		o.clusterID = defaultClusterID
	}
	if o.writeStatus && !o.kube.hasPrimary() {
		return usageError("--write-status needs a config cluster with an API server: --kubeconfig or --in-cluster")
	}
	if o.autoRegistration && o.clusterID == "" {
		return usageError("--auto-registration needs --cluster-id: the cluster that registered workloads are in")
	}
	return nil
}

// within reports whether a path is that of a folder, or of something in it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && (rel == "." || filepath.IsLocal(rel))
}

// defaultClusterID is Istio's CLUSTER_ID.
const defaultClusterID = "Kubernetes"

func (o *serveOptions) checkDir() error {
	if o.dir == "" {
		return nil
	}
	if o.kube.meshConfig != "" || o.kube.meshNetworks != "" {
		return usageError("--mesh-config and --mesh-networks don't go with --dir, which has its own mesh.yaml and networks.yaml")
	}
	if info, err := os.Stat(o.dir); err != nil {
		return fmt.Errorf("--dir: %w", err)
	} else if !info.IsDir() {
		return fmt.Errorf("--dir: %s is a file; name the folder that holds one folder per cluster", o.dir)
	}
	return nil
}

// domains are names of domains.
var domains = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

func (o *serveOptions) checkValues() error {
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"sync-timeout", o.syncTimeout}, {"stale-after", o.staleAfter}, {"endpoint-debounce", o.endpointQuiet}, {"endpoint-debounce-max", o.endpointMax},
		{"config-debounce", o.configQuiet}, {"config-debounce-max", o.configMax}, {"max-connection-age", o.maxConnectionAge}, {"shutdown-grace", o.shutdownGrace},
		{"auto-registration-grace", o.registrationGrace},
	} {
		if f.d < 0 {
			return usageError("--%s must not be negative", f.name)
		}
	}
	switch {
	case o.endpointMax < o.endpointQuiet:
		return usageError("--endpoint-debounce-max must not be below --endpoint-debounce")
	case o.configMax < o.configQuiet:
		return usageError("--config-debounce-max must not be below --config-debounce")
	case !domains.MatchString(o.domain):
		return usageError("--domain %q is not the name of a domain", o.domain)
	case o.trustDomain != "" && !domains.MatchString(o.trustDomain):
		return usageError("--trust-domain %q is not the name of a domain", o.trustDomain)
	}
	if o.clusterID != "" && !secrets.ValidCluster(o.clusterID) {
		return usageError("--cluster-id %q can't be a cluster's id (letters, digits, '-', '_' and '.', 63 at most, no '-' at an end)", o.clusterID)
	}
	if why := validation.IsDNS1123Label(o.systemNamespace); len(why) > 0 {
		return usageError("--system-namespace %q can't be a namespace: %s", o.systemNamespace, why[0])
	}
	_, err := o.resolvers()
	return err
}

// resolvers are --dns-servers.
func (o *serveOptions) resolvers() (out []netip.AddrPort, err error) {
	for _, s := range o.dnsServers {
		at, err := netip.ParseAddrPort(s)
		if err != nil {
			return nil, usageError("--dns-servers %s: want IP:PORT", s)
		}
		out = append(out, at)
	}
	return out, nil
}

// addresses are where a hub listens; "" = off.
type addresses struct{ grpc, http, monitoring string }
