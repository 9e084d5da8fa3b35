package validate

import (
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

const (
	maxHost  = 255
	maxLabel = 63
)

var (
	dnsLabel   = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9_]{0,61}[a-zA-Z0-9])?$`)
	nameLabel  = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$`)
	labelName  = regexp.MustCompile(`^([a-z0-9A-Z]([-a-z0-9A-Z]*[a-z0-9A-Z])?(\.[a-z0-9A-Z]([-a-z0-9A-Z]*[a-z0-9A-Z])?)*/)?[a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?$`)
	labelValue = regexp.MustCompile(`^([a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?)?$`)
	numeric    = regexp.MustCompile(`^[0-9]+$`)
	headerName = regexp.MustCompile("^:?[-!#$%&'*+.^_`|~0-9A-Za-z]+$")
)

// isFQDN reports whether a text is a DNS name; a trailing dot is left aside.
func isFQDN(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > maxHost {
		return false
	}
	if numeric.MatchString(s[strings.LastIndexByte(s, '.')+1:]) {
		return false // it would be read as an address
	}
	for label := range strings.SplitSeq(s, ".") {
		if !dnsLabel.MatchString(label) {
			return false
		}
	}
	return true
}

// isPattern reports whether a text is a DNS name, "*", "*.suffix", or one whose first label begins with a star.
func isPattern(s string) bool {
	rest, wild := strings.CutPrefix(s, "*")
	if !wild || rest == "" {
		return wild || isFQDN(s)
	}
	if partial := rest[0] != '.'; partial {
		return strings.IndexByte(s+".", '.') <= maxLabel && isFQDN(strings.TrimPrefix(rest, "-"))
	}
	return isFQDN(rest[1:])
}

// isPartial reports whether a pattern's star is a part of a label only, as in "*-eu.example.com".
func isPartial(pattern string) bool {
	return len(pattern) > 1 && pattern[0] == '*' && pattern[1] != '.'
}

// whole refuses a star that is a part of a label only.
func (c *checker) whole(pattern string) bool {
	return c.unless(!isPartial(pattern), CodeHost, "%q has a star that is no whole label: write \"*.suffix\"", pattern)
}

func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

func isPrefix(s string) bool {
	_, err := netip.ParsePrefix(s)
	return err == nil
}

// isUnix reports whether a text is the address of a unix domain socket: a path, or a name after "@".
func isUnix(s string) bool { return strings.HasPrefix(s, unixPrefix) }

const unixPrefix = "unix://"

// unixPath checks the part of an address behind "unix://".
func (c *checker) unixPath(s string) {
	path := strings.TrimPrefix(s, unixPrefix)
	c.unless(strings.HasPrefix(path, "/") && !strings.HasSuffix(path, "/") || strings.HasPrefix(path, "@") && len(path) > 1, CodeAddress,
		"%q is not a unix domain socket: write unix:///absolute/path or unix://@name", s)
}

// host checks a pattern or an address.
func (c *checker) host(s string) bool {
	return c.unless(isPattern(s) || isAddress(s), CodeHost, "%q is not a host: write a DNS name, \"*.suffix\" or an address", s)
}

// fqdn checks a name without wildcard.
func (c *checker) fqdn(s string) bool {
	if s == "" {
		c.refuse(CodeRequired, "it names no host")
		return false
	}
	return c.unless(isFQDN(s), CodeHost, "%q is not a DNS name", s)
}

func (c *checker) port(n uint32) bool {
	return c.unless(n >= 1 && n <= math.MaxUint16, CodePort, "%d is not a port: it is between 1 and 65535", n)
}

// optionalPort accepts 0 for none.
func (c *checker) optionalPort(n uint32) {
	if n != 0 {
		c.port(n)
	}
}

func (c *checker) name(s string) bool {
	return c.unless(nameLabel.MatchString(s), CodeName, "%q is not a name: letters, digits and '-', at most 63", s)
}

// labels checks labels, sorted by key.
func (c *checker) labels(l map[string]string) {
	for _, k := range sorted(l) {
		c.unless(isLabel(k), CodeLabels, "%q is not the key of a label", k)
		c.unless(labelValue.MatchString(l[k]), CodeLabels, "%q, the value of %q, is not the value of a label", l[k], k)
	}
}

// isLabel reports whether a text is the name of a label, which may have a domain before it.
func isLabel(s string) bool {
	domain, name, both := strings.Cut(s, "/")
	if !both {
		domain, name = "", s
	}
	return labelName.MatchString(s) && len(domain) <= 253 && len(name) <= 63
}

func sorted[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// claims is what the name of a header begins with that stands for a claim of a verified token.
const claims = "@request.auth.claims"

// isClaim reports whether the name of a header stands for a claim.
func isClaim(s string) bool {
	if len(s) < len(claims) || !strings.EqualFold(s[:len(claims)], claims) {
		return false
	}
	rest := s[len(claims):]
	return len(rest) > 1 && rest[0] == '.' || len(rest) > 2 && rest[0] == '[' && strings.HasSuffix(rest, "]")
}

// pseudo are the headers of HTTP/2 itself.
var pseudo = []string{":method", ":scheme", ":authority", ":path", ":status"}

// matched checks the name of a header that requests are matched by.
func (c *checker) matched(s string) {
	if strings.HasPrefix(s, ":") {
		c.unless(slices.Contains(pseudo, s), CodeHeader, "%q is not the name of a header", s)
		return
	}
	if isClaim(s) {
		c.warn(CodeIneffective, "it matches nothing: RequestAuthentications are not served yet")
		return
	}
	c.header(s)
}

func (c *checker) header(s string) {
	c.unless(headerName.MatchString(s), CodeHeader, "%q is not the name of a header", s)
}

// regex checks a regular expression as proxies read it.
func (c *checker) regex(s string) {
	const longest = 1024
	if !c.unless(len(s) <= longest, CodeRegex, "the regular expression has more than %d bytes", longest) {
		return
	}
	if _, err := regexp.Compile(s); err != nil {
		c.refuse(CodeRegex, "%q is not a regular expression of RE2: %v", s, err)
		return
	}
	switch size, ok := model.RegexSize(s); {
	case !ok:
		c.warn(CodeRegex, "no request matches it: proxies read regular expressions on bytes, without \\x{100} and above, and know Unicode classes by their short names only")
	case size > model.MaxRegexSize:
		c.warn(CodeRegex, "no request matches it: its program has more than %d instructions; repeat less", model.MaxRegexSize)
	}
}

// duration checks that a duration, if there is one, is at least as long as what counts.
func (c *checker) duration(d *durationpb.Duration, atLeast time.Duration) {
	if d == nil {
		return
	}
	const longest = 1<<63 - 1 // nanoseconds
	if err := d.CheckValid(); err != nil || d.Seconds > longest/int64(time.Second) {
		c.refuse(CodeDuration, "%ds is too long: it is at most %ds", d.Seconds, longest/int64(time.Second))
		return
	}
	c.unless(d.AsDuration() >= atLeast, CodeDuration, "%s is too short: it is at least %s", d.AsDuration(), atLeast)
	if atLeast > 0 && d.AsDuration()%time.Millisecond != 0 {
		c.refuse(CodeDuration, "%s is not a number of milliseconds", d.AsDuration())
	}
}

// percent checks a share of a hundred.
func (c *checker) percent(v float64) {
	c.unless(v >= 0 && v <= 100, CodeRange, "%v is not a percentage: it is between 0 and 100", v)
}

func (c *checker) atLeast(v, least int64) {
	c.unless(v >= least, CodeRange, "%d is too small: it is at least %d", v, least)
}

// exportTo checks a list of namespaces. Only a ServiceEntry may be for nobody.
func (c *checker) exportTo(list []string, nobody bool) {
	seen := map[string]bool{}
	for i, e := range list {
		at, said := c.item("exportTo", i), e
		if e == c.key.Namespace {
			e = "."
		}
		switch {
		case seen[e]:
			at.refuse(CodeDuplicate, "%q is there twice", said)
		case e == "~":
			at.unless(nobody, CodeExportTo, "only a ServiceEntry may be exported to nobody (~)")
		case e != "." && e != "*":
			at.name(e)
		}
		seen[e] = true
	}
	if len(list) > 1 && (seen["*"] || seen["~"]) {
		c.at("exportTo").refuse(CodeExportTo, "\"*\" and \"~\" stand alone: leave the others out")
	}
}

// selector checks labels by which workloads are selected.
func (c *checker) selector(l map[string]string) {
	for _, k := range sorted(l) {
		if strings.Contains(k+l[k], "*") {
			c.refuse(CodeSelector, "wildcards are not understood in selectors: write the whole of %q", k+"="+l[k])
			return
		}
		c.unless(k != "", CodeSelector, "the label of %q has no name", l[k])
	}
	c.selectable(l)
}

// selectable warns of labels that no workload can have.
func (c *checker) selectable(l map[string]string) {
	for _, k := range sorted(l) {
		if k != "" && (!isLabel(k) || !labelValue.MatchString(l[k])) {
			c.warn(CodeLabels, "it selects nothing: no workload has the label %q", k+"="+l[k])
		}
	}
}

// selects warns of a selector that is there and says nothing.
func (c *checker) selects(l map[string]string) {
	if len(l) == 0 {
		c.warn(CodeSelector, "it has no labels: name some, or leave it out")
	}
}

// once tells what is there twice.
type once[K comparable] map[K]bool

// note warns of what is there twice and means the same as once.
func (o once[K]) note(c *checker, k K, code, what string) {
	if o[k] {
		c.warn(code, "%s %v is there twice", what, k)
	}
	o[k] = true
}

// check refuses what is there twice.
func (o once[K]) check(c *checker, k K, code, what string) {
	if o[k] {
		c.refuse(code, "%s %v is there twice", what, k)
	}
	o[k] = true
}

// protocols are those that a port may name, in lower case.
var protocols = []string{"http", "http2", "https", "grpc", "grpc-web", "tcp", "tls", "udp", "mongo", "redis", "mysql", "http_proxy"}

func (c *checker) protocol(s string) bool {
	return c.unless(slices.Contains(protocols, strings.ToLower(s)), CodeProtocol, "%q is not a protocol: it is one of %s", s, strings.ToUpper(strings.Join(protocols, ", ")))
}
