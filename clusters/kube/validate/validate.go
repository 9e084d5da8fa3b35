package validate

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"
	telemetry "istio.io/api/telemetry/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Codes of findings. They are stable.
const (
	CodeRequired    = "Required"          // a field is missing
	CodeHost        = "InvalidHost"       // not a DNS name, an address, or a pattern that may stand there
	CodeName        = "InvalidName"       // not a name as Kubernetes has them
	CodeValue       = "InvalidValue"      // none of the words that a field may have
	CodePort        = "InvalidPort"       // not a port, or two of one number or name
	CodeProtocol    = "InvalidProtocol"   // not a protocol, or none that goes with the rest
	CodeAddress     = "InvalidAddress"    // not an address or range
	CodeWeight      = "InvalidWeight"     // negative, or nothing in all
	CodeRange       = "OutOfRange"        // a number that is too large or too small
	CodeDuration    = "InvalidDuration"   // negative, or shorter than what counts
	CodeRegex       = "InvalidRegex"      // not a regular expression of RE2
	CodeHeader      = "InvalidHeader"     // not the name of a header
	CodeLabels      = "InvalidLabels"     // not labels
	CodeExclusive   = "Exclusive"         // fields that exclude each other
	CodeDuplicate   = "Duplicate"         // the same thing twice
	CodeUnreachable = "Unreachable"       // a rule that an earlier one hides, or that no request can match
	CodeDeprecated  = "Deprecated"        // a field with a successor
	CodeIneffective = "Ineffective"       // a setting that does nothing where it is
	CodeTooMany     = "TooManyFindings"   // more is wrong than is told
	CodeExportTo    = "InvalidExportTo"   // not a list of namespaces, ".", "*" or "~"
	CodeTLS         = "InvalidTLS"        // TLS settings that do not go together
	CodeLocality    = "InvalidLocality"   // localities that do not go together
	CodeSelector    = "InvalidSelector"   // a selector that selects nothing or too much
	CodeStatus      = "InvalidStatusCode" // not a status code
)

// most is how many findings one object has.
const most = 64

// Object gives what is wrong with an object, errors first and otherwise in the order of its fields; nothing for kinds
// that it does not know.
func Object(key model.ObjectKey, spec proto.Message) []model.Finding {
	c := &checker{key: key}
	switch s := spec.(type) {
	case *networking.VirtualService:
		virtualService(c, s)
	case *networking.DestinationRule:
		destinationRule(c, s)
	case *networking.Gateway:
		gateway(c, s)
	case *networking.ServiceEntry:
		serviceEntry(c, s)
	case *networking.WorkloadEntry:
		workloadEntry(c, s)
	case *networking.WorkloadGroup:
		workloadGroup(c, s)
	case *networking.Sidecar:
		sidecar(c, s)
	case *networkingv1beta1.ProxyConfig:
		proxyConfig(c, s)
	case *telemetry.Telemetry:
		telemetryObject(c, s)
	}
	if spec != nil {
		deprecated(c, spec.ProtoReflect())
	}
	return c.findings()
}

// Refused reports whether any finding is an error.
func Refused(findings []model.Finding) bool {
	return slices.ContainsFunc(findings, func(f model.Finding) bool { return f.Severity == model.SeverityError })
}

// checker collects the findings of one object. Copies of it share the list and stand for different fields.
type checker struct {
	key   model.ObjectKey
	path  string
	found *[]model.Finding
}

func (c *checker) findings() []model.Finding {
	if c.found == nil {
		return nil
	}
	slices.SortStableFunc(*c.found, func(a, b model.Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	return *c.found
}

// at is the checker of a field.
func (c *checker) at(field string) *checker {
	c.list()
	if c.path != "" {
		field = c.path + "." + field
	}
	return &checker{key: c.key, path: field, found: c.found}
}

// item is the checker of an item of a list.
func (c *checker) item(field string, i int) *checker { return c.at(fmt.Sprintf("%s[%d]", field, i)) }

func (c *checker) list() *[]model.Finding {
	if c.found == nil {
		c.found = new([]model.Finding)
	}
	return c.found
}

func (c *checker) add(code string, s model.Severity, format string, args ...any) {
	list := c.list()
	f := model.Finding{Code: code, Severity: s, Object: c.key, Field: c.path, Message: fmt.Sprintf(format, args...)}
	switch n := len(*list); {
	case n < most:
		*list = append(*list, f)
	case n == most:
		*list = append(*list, model.Finding{Code: CodeTooMany, Severity: s, Object: c.key, Message: "more is wrong with it: mend what is told and look again"})
	}
}

func (c *checker) refuse(code, format string, args ...any) {
	c.add(code, model.SeverityError, format, args...)
}

func (c *checker) warn(code, format string, args ...any) {
	c.add(code, model.SeverityWarning, format, args...)
}

// unless refuses when a condition does not hold, and reports whether it does.
func (c *checker) unless(ok bool, code, format string, args ...any) bool {
	if !ok {
		c.refuse(code, format, args...)
	}
	return ok
}
