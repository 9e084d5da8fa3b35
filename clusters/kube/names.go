package kube

import (
	"fmt"
	"strings"
)

// validDNS checks a DNS name: labels of letters, digits, "-" and "_", 253 characters at most. Unlike
// the RFC it takes "_", which service names in the field have.
func validDNS(s string) error {
	if len(s) == 0 || len(s) > 253 {
		return fmt.Errorf("%q is not a DNS name: it must have 1 to 253 characters", clip(s))
	}
	for _, label := range strings.Split(strings.TrimSuffix(s, "."), ".") {
		if !validLabel(label) {
			return fmt.Errorf("%q is not a DNS name", s)
		}
	}
	return nil
}

func validLabel(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if !nameByte(s[i]) {
			return false
		}
	}
	return true
}

func nameByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '_'
}

// validHost checks a ServiceEntry host: a DNS name, or one whose first label is "*".
func validHost(s string) error {
	if rest, ok := strings.CutPrefix(s, "*."); ok {
		return validDNS(rest)
	}
	return validDNS(s)
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
