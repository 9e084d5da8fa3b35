package v1alpha1

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Codes of faults, beside those that they share with faults of Istio's kinds. They are stable.
const (
	CodeValue        = "InvalidValue"    // none of the words, or the forms, that a field may have
	CodeUnknownField = "UnknownField"    // a field that the kind does not have
	CodeBridged      = "InvalidInBridge" // a registry of a McpBridge that is not served as it is
)

// Those that are shared: as in clusters/kube/validate.
const (
	codeRequired    = "Required"
	codeAddress     = "InvalidAddress"
	codeName        = "InvalidName"
	codeHost        = "InvalidHost"
	codePort        = "InvalidPort"
	codeProtocol    = "InvalidProtocol"
	codeDuration    = "InvalidDuration"
	codeRange       = "OutOfRange"
	codeExclusive   = "Exclusive"
	codeDuplicate   = "Duplicate"
	codeLocality    = "InvalidLocality"
	codeExportTo    = "InvalidExportTo"
	codeWeight      = "InvalidWeight"
	codeLabels      = "InvalidLabels"
	codeTLS         = "InvalidTLS"
	codeIneffective = "Ineffective"
	codeNotServed   = "NotServed"
)

const (
	mostFaults    = 64                   // are told of one object
	mostAddresses = 32                   // a registry has
	longest       = 365 * 24 * time.Hour // duration that makes sense
)

// Level is what a fault means for its object.
type Level int

// The levels.
const (
	Refused Level = iota // the object is not in force
	Warning              // works, or the part that Field names does not, most likely not as meant
	Info                 // worth knowing
)

// Fault is something about an object that its author should know.
type Fault struct {
	Field   string // path of JSON names with indexes, in the spec: "addresses[0]"
	Code    string
	Message string // a sentence that says what to do
	Level   Level
}

// String gives "field: message".
func (f Fault) String() string { return strings.TrimPrefix(f.Field+": "+f.Message, ": ") }

// Refuses gives the first fault that keeps an object from being in force.
func Refuses(faults []Fault) (Fault, bool) {
	for _, f := range faults {
		if f.Level == Refused {
			return f, true
		}
	}
	return Fault{}, false
}

// checker collects faults. Copies of it share the list and stand for different fields.
type checker struct {
	path  string
	found *[]Fault
}

func newChecker() checker { return checker{found: &[]Fault{}} }

// at is the checker of a field.
func (c checker) at(field string) checker {
	return checker{path: strings.TrimPrefix(c.path+"."+field, "."), found: c.found}
}

// item is the checker of an item of a list.
func (c checker) item(field string, i int) checker { return c.at(fmt.Sprintf("%s[%d]", field, i)) }

func (c checker) add(l Level, code, format string, args ...any) {
	if len(*c.found) < mostFaults {
		*c.found = append(*c.found, Fault{Field: c.path, Code: code, Level: l, Message: fmt.Sprintf(format, args...)})
	}
}

func (c checker) refuse(code, format string, args ...any) { c.add(Refused, code, format, args...) }

// unless refuses when a condition does not hold, and reports whether it does.
func (c checker) unless(ok bool, code, format string, args ...any) bool {
	if !ok {
		c.refuse(code, format, args...)
	}
	return ok
}

var (
	label      = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	dnsLabel   = regexp.MustCompile(`^[a-zA-Z0-9_]([-a-zA-Z0-9_]{0,61}[a-zA-Z0-9_])?$`)
	labelKey   = regexp.MustCompile(`^([a-z0-9A-Z]([-a-z0-9A-Z.]{0,251}[a-z0-9A-Z])?/)?[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?$`)
	labelValue = regexp.MustCompile(`^([a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?)?$`)
	digits     = regexp.MustCompile(`^[0-9]+$`)
	memberName = regexp.MustCompile(`^[a-zA-Z0-9_.]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9_.])?$`)
)

// isDNS reports whether a text is a DNS name. What ends with a number is meant to be an address.
func isDNS(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 {
		return false
	}
	last := ""
	for part := range strings.SplitSeq(s, ".") {
		if last = part; !dnsLabel.MatchString(part) {
			return false
		}
	}
	return !digits.MatchString(last)
}

// secret checks the name of a Secret, which may be left out.
func (c checker) secret(name string) {
	if name != "" {
		c.object(name)
	}
}

// object checks the name of an object.
func (c checker) object(name string) {
	ok := len(name) <= 253
	for part := range strings.SplitSeq(name, ".") {
		ok = ok && label.MatchString(part)
	}
	c.unless(ok, codeName, "%q is not the name of an object: lower-case letters, digits, '-' and '.'", clipped(name))
}

// word checks that a text is one of some words, or empty.
func (c checker) word(s string, words ...string) {
	for _, w := range words {
		if s == w || s == "" {
			return
		}
	}
	c.refuse(CodeValue, "%q is none of %s", clipped(s), strings.Join(words, ", "))
}

// texts checks that no item of a list is empty, or there twice.
func (c checker) texts(field string, list []string) {
	seen := map[string]bool{}
	for i, s := range list {
		at := c.item(field, i)
		at.unless(strings.TrimSpace(s) != "", codeRequired, "it is empty")
		at.unless(!seen[s] || s == "", codeDuplicate, "%q is there twice", clipped(s))
		seen[s] = true
	}
}

// duration checks one that may be left out, and is at least so long.
func (c checker) duration(d *metav1.Duration, least time.Duration) {
	if d == nil {
		return
	}
	c.unless(d.Duration >= least, codeDuration, "%s is too short: at least %s", d.Duration, least)
	c.unless(d.Duration <= longest, codeDuration, "%s is too long", d.Duration)
}

// within checks a number, 0 of which stands for a default.
func (c checker) within(n int64, least, most int64) {
	c.unless(n == 0 || n >= least && n <= most, codeRange, "%d is not between %d and %d", n, least, most)
}

// locality checks "region/zone/subzone".
func (c checker) locality(s string) {
	parts := strings.Split(s, "/")
	ok := len(parts) <= 3 && parts[0] != ""
	for i, p := range parts {
		ok = ok && p == strings.TrimSpace(p) && (p != "" || i == len(parts)-1)
	}
	c.unless(ok, codeLocality, "%q is not a locality: write region/zone/subzone, from the left as much as is known", clipped(s))
}

// exportTo checks a list of namespaces.
func (c checker) exportTo(list []string) {
	for i, ns := range list {
		c.item("exportTo", i).unless(ns == "*" || ns == "." || ns == "~" || label.MatchString(ns), codeExportTo,
			"%q is no namespace: write a namespace, \".\" for the object's own, \"*\" for all or \"~\" for none", clipped(ns))
	}
	if len(list) > 1 {
		for i, ns := range list {
			c.item("exportTo", i).unless(ns != "*" && ns != "~", codeExportTo, "%q stands alone", ns)
		}
	}
}

// protocols are the words for protocols, in lower case, with what connections of them begin with, as far as servers of another could
// not read it; "" for one that is to be found out.
var protocols = map[string]string{
	"auto": "", "tcp": "TCP", "udp": "UDP", "http": "HTTP/1.1", "http2": "HTTP/2", "grpc": "HTTP/2", "grpc-web": "HTTP/2", "http_proxy": "HTTP/1.1", "https": "TLS", "tls": "TLS",
	"mongo": "TCP", "redis": "TCP", "mysql": "TCP", "grpcs": "TLS", "dubbo": "TCP", "tri": "HTTP/2", "triple": "HTTP/2",
}

// protocol checks the word for one, which may be left out.
func (c checker) protocol(s string) {
	_, known := protocols[strings.ToLower(s)]
	c.unless(known || s == "", codeProtocol, "%q is not a protocol that is known: tcp, http, http2, grpc, https, tls …", clipped(s))
}
