package kube

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// gateway fills the row of a networking.istio.io Gateway and reports whether there is one. The servers that
// are used are those in mode AUTO_PASSTHROUGH, and the row's Spec has no others; a Gateway without any
// is not served.
func gateway(row *model.Config, spec *networking.Gateway, res *Result) bool {
	spec = proto.CloneOf(spec)
	kept := spec.Servers[:0]
	for i, s := range spec.Servers {
		if s.GetTls().GetMode() != networking.ServerTLSSettings_AUTO_PASSTHROUGH {
			row.NotServedFields = append(row.NotServedFields, fmt.Sprintf("servers[%d]", i))
			continue
		}
		if serverInForce(i, s, res) {
			kept = append(kept, s)
		}
	}
	clear(spec.Servers[len(kept):])
	spec.Servers = kept
	row.NotServedFields = append(row.NotServedFields, notServedFields(spec.ProtoReflect(), gatewayFields)...)
	slices.Sort(row.NotServedFields)
	if row.NotServed = len(kept) == 0; !row.NotServed {
		row.Spec = spec
	}
	return true
}

// serverInForce checks a server, and takes out of its hosts those that are wrong.
func serverInForce(i int, s *networking.Server, res *Result) bool {
	if _, ok := portNumber(int64(s.GetPort().GetNumber())); !ok {
		res.problem("servers[%d] is not in force: its port must be 1 to 65535", i)
		return false
	}
	if p := strings.ToUpper(s.Port.Protocol); p != "TLS" && p != "HTTPS" {
		res.problem("servers[%d] is not in force: mode AUTO_PASSTHROUGH needs the protocol TLS, not %q", i, clip(s.Port.Protocol))
		return false
	}
	s.Hosts = slices.DeleteFunc(s.Hosts, func(h string) bool {
		err := serverHost(h)
		if err != nil {
			res.problem("servers[%d]: host is left out: %v", i, err)
		}
		return err != nil
	})
	if len(s.Hosts) == 0 {
		res.problem("servers[%d] is not in force: it has no hosts", i)
		return false
	}
	return true
}

// serverHost checks a host of a server: a name, "*" or "*.suffix", after "namespace/", "*/" or "./".
func serverHost(s string) error {
	namespace, host, found := strings.Cut(s, "/")
	if !found {
		namespace, host = "*", s
	}
	if namespace != "*" && namespace != "." && !validLabel(namespace) {
		return fmt.Errorf("%q: %q is not a namespace", clip(s), clip(namespace))
	}
	if host == "*" {
		return nil
	}
	return validHost(host)
}
