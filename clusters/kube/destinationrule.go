package kube

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// destinationRule fills the row of a DestinationRule and reports whether there is one. A short host is
// made one of the rule's namespace. A rule for some workloads only is not served: it would count for all.
func (c *Converter) destinationRule(row *model.Config, spec *networking.DestinationRule, res *Result) bool {
	spec = proto.CloneOf(spec)
	host, err := c.ruleHost(row.Namespace, spec.Host)
	if err != nil {
		res.problem("it is not in force: host: %v", err)
		return false
	}
	if spec.Host = host; !ruleExport(spec, res) {
		return false
	}
	row.NotServedFields = notServedFields(spec.ProtoReflect(), ruleFields)
	if len(spec.WorkloadSelector.GetMatchLabels()) > 0 {
		row.NotServed = true
		return true
	}
	spec.WorkloadSelector = nil
	trafficPolicy(spec.TrafficPolicy, res)
	row.Spec = spec
	return true
}

// ruleHost is the full name: a name without a dot is that of a service of the namespace.
func (c *Converter) ruleHost(namespace, host string) (string, error) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "*" {
		return host, nil
	}
	if err := validHost(host); err != nil {
		return "", err
	}
	if !strings.Contains(host, ".") {
		return c.host(namespace, host), nil
	}
	return host, nil
}

// ruleExport leaves out what is no namespace. If nothing is left, nobody may see the rule.
func ruleExport(spec *networking.DestinationRule, res *Result) bool {
	var out []string
	for _, s := range trimmed(spec.ExportTo) {
		if s == "*" || s == "." || s == "~" || validLabel(s) {
			out = append(out, s)
			continue
		}
		res.problem("exportTo %q is left out: use \"*\", \".\", \"~\" or a namespace", clip(s))
	}
	if len(out) == 0 && len(spec.ExportTo) > 0 {
		res.problem("it is not in force: exportTo has nothing that can be used")
		return false
	}
	spec.ExportTo = out
	return true
}

// trafficPolicy takes out of a policy what can't be in force.
func trafficPolicy(p *networking.TrafficPolicy, res *Result) {
	if p == nil {
		return
	}
	part := policyPart{where: "trafficPolicy", res: res}
	p.LoadBalancer, p.OutlierDetection, p.Tls = part.balancer(p.LoadBalancer), part.outlier(p.OutlierDetection), part.tls(p.Tls)
	ports := map[uint32]bool{}
	p.PortLevelSettings = slices.DeleteFunc(p.PortLevelSettings, func(l *networking.TrafficPolicy_PortTrafficPolicy) bool {
		n := l.GetPort().GetNumber()
		if _, ok := portNumber(int64(n)); !ok || ports[n] {
			res.problem("trafficPolicy.portLevelSettings of port %d are left out: the port must be 1 to 65535, and there once", n)
			return true
		}
		ports[n] = true
		part.where = fmt.Sprintf("trafficPolicy.portLevelSettings of port %d", n)
		l.LoadBalancer, l.OutlierDetection, l.Tls = part.balancer(l.LoadBalancer), part.outlier(l.OutlierDetection), part.tls(l.Tls)
		return false
	})
}

// policyPart checks the policy of all ports or of one. Its methods give back what can be in force.
type policyPart struct {
	where string
	res   *Result
}

func (p policyPart) bad(field, format string, args ...any) {
	p.res.problem("%s.%s is not in force: %s", p.where, field, fmt.Sprintf(format, args...))
}

func (p policyPart) tls(t *networking.ClientTLSSettings) *networking.ClientTLSSettings {
	if _, known := networking.ClientTLSSettings_TLSmode_name[int32(t.GetMode())]; !known {
		p.bad("tls", "there is no mode %d", t.GetMode())
		return nil
	}
	switch { // In force all the same: a connection that is refused is better than one in cleartext.
	case t.GetCredentialName() != "":
		p.res.problem("%s.tls.credentialName is not served yet: nothing is reached by it, name files instead", p.where)
	case t.GetMode() == networking.ClientTLSSettings_MUTUAL && (t.ClientCertificate == "" || t.PrivateKey == ""):
		p.res.problem("%s.tls of mode MUTUAL has no clientCertificate or no privateKey: nothing is reached by it", p.where)
	}
	return t
}

func (p policyPart) balancer(b *networking.LoadBalancerSettings) *networking.LoadBalancerSettings {
	if faults := localityFaults(b.GetLocalityLbSetting()); len(faults) > 0 {
		for _, f := range faults {
			p.bad("loadBalancer.localityLbSetting", "%s", f)
		}
		b.LocalityLbSetting = nil
	}
	if l := b.GetLocalityLbSetting(); len(l.GetDistribute()) > 0 && len(l.GetFailoverPriority()) > 0 {
		p.bad("loadBalancer.localityLbSetting.failoverPriority", "it has no effect beside distribute, which sets every place's share")
		l.FailoverPriority = nil
	}
	return b
}

func (p policyPart) outlier(o *networking.OutlierDetection) *networking.OutlierDetection {
	ok := true
	bad := func(field, format string, args ...any) {
		p.bad("outlierDetection", "%s: %s", field, fmt.Sprintf(format, args...))
		ok = false
	}
	percent := func(field string, n int64) {
		if n < 0 || n > 100 {
			bad(field, "%d is not 0 to 100", n)
		}
	}
	percent("maxEjectionPercent", int64(o.GetMaxEjectionPercent()))
	percent("minHealthPercent", int64(o.GetMinHealthPercent()))
	percent("failurePercentageThreshold", int64(o.GetFailurePercentageThreshold().GetValue()))
	duration := func(field string, d *durationpb.Duration) {
		if d != nil && (d.CheckValid() != nil || d.AsDuration() < time.Millisecond) {
			bad(field, "at least 1ms is needed")
		}
	}
	duration("interval", o.GetInterval())
	duration("baseEjectionTime", o.GetBaseEjectionTime())
	for _, code := range o.GetOutlierDetectionHttpErrorCodes() {
		if code < 100 || code > 599 {
			bad("outlierDetectionHttpErrorCodes", "%d is no HTTP status", code)
		}
	}
	if !ok {
		return nil
	}
	return o
}
