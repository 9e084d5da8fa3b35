package foreign

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"unicode"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// Filter says which services are taken, by their names.
type Filter struct{ include, exclude []string }

// NewFilter gives the filter of a spec; nil takes everything.
func NewFilter(f *api.ServiceFilter) Filter {
	if f == nil {
		return Filter{}
	}
	return Filter{include: f.Include, exclude: f.Exclude}
}

// Takes reports whether a service is taken. A pattern that can't be read matches nothing.
func (f Filter) Takes(name string) bool {
	matches := func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return err == nil && ok
	}
	return (len(f.include) == 0 || slices.ContainsFunc(f.include, matches)) && !slices.ContainsFunc(f.exclude, matches)
}

// host gives the name of a service in the mesh.
func (c *converter) host(s Service) string {
	suffix := s.Suffix
	if c.spec.Hosts.Suffix != "" {
		suffix = c.spec.Hosts.Suffix
	}
	if c.spec.Hosts.Mode == api.NamingHigress {
		return s.Name + "." + strings.ReplaceAll(suffix, "_", "-")
	}
	return escaped(s.Name) + "." + escaped(suffix)
}

// alias gives the host's other name, which is a DNS name where the host is none; "" if it is.
func (c *converter) alias(s Service) string {
	if c.spec.Hosts.Mode != api.NamingHigress {
		return ""
	}
	host := c.host(s)
	plain := escaped(s.Name) + strings.TrimPrefix(strings.ToLower(host), strings.ToLower(s.Name))
	if strings.EqualFold(plain, host) || invalidHost(plain) != "" {
		return ""
	}
	return plain
}

// escaped gives a name in lower case in which each byte that can't be part of a DNS name is "-x" and its two
// hexadecimal digits, or "x-x-" and them where a label begins. The hyphen of a "-x" that was there is one of them, so that no two
// names that differ in more than case become one.
func escaped(name string) string {
	name = strings.ToLower(name)
	var b strings.Builder
	start := true // of a label
	for i := range len(name) {
		c, last := name[i], i == len(name)-1
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-' && !start && !last && name[i+1] != 'x' && name[i+1] != '.':
			b.WriteByte(c)
		case c == '.' && !start && !last:
			b.WriteByte(c)
			start = true
			continue
		case start:
			fmt.Fprintf(&b, "x-x-%02x", c)
		default:
			fmt.Fprintf(&b, "-x%02x", c)
		}
		start = false
	}
	return b.String()
}

// invalidHost says why a name can't be a host; "" if it can.
func invalidHost(host string) string {
	if len(host) > 253 {
		return fmt.Sprintf("its host has %d characters, and a DNS name at most 253", len(host))
	}
	if i := strings.IndexFunc(host, unfit); i >= 0 {
		return fmt.Sprintf("its host %q has a character that no host of the mesh can have: use the naming mode %s", host, api.NamingDNS)
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return fmt.Sprintf("the part %q of its host has %d characters; 1 to 63 can be in a DNS name", label, len(label))
		}
	}
	return ""
}

// unfit reports whether a host can't have a character: no request could name it, or it would mean something else than itself, in names
// of proxies' clusters, or as a pattern.
func unfit(r rune) bool {
	return r == '|' || r == '*' || unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar
}

// parseIP reads an IP address. Those of version 6 may be in brackets, in which some registries keep them.
func parseIP(address string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(address)
	if err == nil {
		return a, true
	}
	inner, open := strings.CutPrefix(address, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	a, err = netip.ParseAddr(inner)
	return a, err == nil && open && closed && a.Is6()
}

// dnsName tells names from addresses, and from what is neither.
func dnsName(address string) (name string, ok bool) {
	if _, isIP := parseIP(address); isIP || address == "" || strings.ContainsAny(address, ":/[]@% ") {
		return "", false
	}
	return strings.ToLower(strings.TrimSuffix(address, ".")), true
}

// dnsNames are those of instances, sorted.
func dnsNames(in []Instance) (out []string) {
	for i := range in {
		if n, ok := dnsName(in[i].Address); ok {
			out = append(out, n)
		}
		for _, a := range in[i].Alternatives {
			if n, ok := dnsName(a.Address); ok {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
