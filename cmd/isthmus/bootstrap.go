package main

import (
	"errors"
	"net"
	"net/netip"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
)

func newBootstrap() *cobra.Command {
	var (
		o          bootstrap.Options
		ip, format string
	)
	c := &cobra.Command{
		Use:   "bootstrap --id POD.NAMESPACE --cluster CLUSTER --hub HOST:PORT",
		Short: "Print the configuration that an Envoy starts with",
		Long: `Print the bootstrap of an Envoy proxy: who it is and where its hub listens. Everything else comes
from the hub. The proxy's services are those that have an endpoint at its address (--ip) in its cluster.`,
		Example: `  # a sidecar without interception: the application connects to service ports at the sidecar's address
  isthmus bootstrap --id web-1.shop --cluster east --ip 127.0.0.2 --interception NONE --hub 127.0.0.1:15010 > web.yaml
  envoy -c web.yaml --use-dynamic-base-id

  # a virtual machine that the hub registers (see the documentation of virtual machines)
  isthmus bootstrap --id legacy-1.shop --cluster east --hub 10.0.0.2:15010 --metadata AUTO_REGISTER_GROUP=legacy > legacy.yaml

  # a gateway that listens on every TCP service port, beside it on the same machine
  isthmus bootstrap --type router --id gateway-1.edge --cluster east --hub 127.0.0.1:15010 --expose --admin-port 15100 > gateway.yaml
  envoy -c gateway.yaml --use-dynamic-base-id`,
		Args: none,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		var err error
		if o.IP, err = proxyIP(ip); err != nil {
			return err
		}
		write, ok := map[string]func(bootstrap.Options) ([]byte, error){output.YAML: bootstrap.YAML, output.JSON: bootstrap.JSON}[format]
		if !ok {
			return usageError("-o %s: want yaml or json", format)
		}
		out, err := write(o)
		if err != nil {
			return usageError("%w", err)
		}
		_, err = c.OutOrStdout().Write(out)
		return err
	}
	bindBootstrap(c.Flags(), &o)
	c.Flags().StringVar(&ip, "ip", "", "the workload's address (default: this machine's first address that is not loopback)")
	c.Flags().StringVarP(&format, "output", "o", output.YAML, "yaml or json")
	for _, name := range []string{"id", "cluster", "hub"} {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err) // the flag is defined above
		}
	}
	return c
}

func bindBootstrap(f *pflag.FlagSet, o *bootstrap.Options) {
	f.StringVar(&o.Type, "type", bootstrap.Sidecar, "sidecar or router")
	f.StringVar(&o.ID, "id", "", "the proxy's POD.NAMESPACE (required)")
	f.StringVar(&o.Cluster, "cluster", "", "the cluster that it runs in (required)")
	f.StringVar(&o.Hub, "hub", "", "HOST:PORT of the hub's --grpc-addr (required)")
	f.StringVar(&o.Namespace, "namespace", "", "configuration namespace (default: that of --id)")
	f.StringVar(&o.Network, "network", "", "network that the address belongs to")
	f.StringVar(&o.Locality, "locality", "", "REGION/ZONE/SUBZONE, parts optional")
	f.StringVar(&o.Interception, "interception", bootstrap.Redirect, "how traffic reaches a sidecar: REDIRECT, TPROXY or NONE")
	f.StringVar(&o.DomainSuffix, "domain", "cluster.local", "suffix of service names, as the hub's --domain")
	f.StringVar(&o.ServiceAccount, "service-account", "", "the workload's service account")
	f.StringVar(&o.Node, "node", "", "the Kubernetes node that it runs on")
	f.StringToStringVar(&o.Labels, "label", nil, "the workload's labels, KEY=VALUE; may be repeated")
	f.StringToStringVar(&o.Metadata, "metadata", nil, "more of the node's metadata, KEY=VALUE; may be repeated")
	f.StringVar(&o.CertChain, "cert-chain", "", "PEM file with the workload's certificate chain, for mutual TLS; needs --key and --root-cert")
	f.StringVar(&o.Key, "key", "", "PEM file with the key of --cert-chain")
	f.StringVar(&o.RootCert, "root-cert", "", "PEM file with the certificates that peers are verified by")
	f.Uint16Var(&o.AdminPort, "admin-port", 15000, "port of Envoy's admin interface on 127.0.0.1; 0 = none")
	f.BoolVar(&o.Expose, "expose", false, "routers: listen on every TCP service port, without Gateway configuration")
	f.BoolVar(&o.SelfDiscovery, "self-discovery", false, "sidecars: learn the workload's other instances, for zone-aware balancing; needs --locality")
	f.StringVar(&o.Workload, "workload", "", "name of the Deployment or other owner that the workload's instances share")
	f.BoolVar(&o.SotW, "sotw", false, "use state-of-the-world ADS instead of delta")
}

func proxyIP(flag string) (netip.Addr, error) {
	if flag != "" {
		ip, err := netip.ParseAddr(flag)
		if err != nil {
			return ip, usageError("--ip: %w", err)
		}
		return ip, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, errors.New("this machine has only loopback addresses: name the workload's with --ip")
}
