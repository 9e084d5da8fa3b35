package model

import (
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxRegexSize is the size of the largest program, in instructions, that a regular expression of a route may have.
const MaxRegexSize = 32768

// RegexSize gives an upper bound of the size of an expression's program; false if Envoy, which reads RE2 on bytes, does not
// read it. Go reads nearly the same language.
func RegexSize(s string) (int, bool) {
	if s == "" || !plainEscapes(s) {
		return 0, false
	}
	parsed, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return 0, false
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, false
	}
	size := 0
	for i := range prog.Inst {
		size += 2 + min(charSize(prog.Inst[i].Rune), 256)
	}
	return size, true
}

// charSize is at least what a character, or the ranges of a class of characters, take in bytes.
func charSize(ranges []rune) int {
	if len(ranges) == 1 {
		return utf8.RuneLen(ranges[0])
	}
	size := 0
	for i := 1; i < len(ranges); i += 2 {
		if size += 2; ranges[i] > unicode.MaxASCII {
			size += 4
		}
	}
	return size
}

// escape finds those that Go and Envoy's engine, which works on bytes, may read differently, and skips others.
var escape = regexp.MustCompile(`(?s)\\(?:[pP](?:\{\^?([^}]*)\}|(.))|x\{([^}]*)\}|([0-7]{3})|.)`)

// plainEscapes reports whether all Unicode classes are categories and scripts by the names that RE2 has for them,
// and all numbers are those of bytes.
func plainEscapes(s string) bool {
	for _, m := range escape.FindAllStringSubmatch(s, -1) {
		if class := m[1] + m[2]; class != "" && !knownClass(class) {
			return false
		}
		if m[3] != "" && !byteNumber(m[3], 16) || m[4] != "" && !byteNumber(m[4], 8) {
			return false
		}
	}
	return true
}

func byteNumber(digits string, base int) bool {
	_, err := strconv.ParseUint(digits, base, 8)
	return err == nil
}

func knownClass(name string) bool {
	_, category := unicode.Categories[name]
	_, script := unicode.Scripts[name]
	return (category || script || name == "Any") && name != "Cn" && name != "LC"
}

// Opening is what connections to a gateway's server begin with: HTTP, TLS or TCP. Protocol is as users write it.
func Opening(protocol string, tls bool) string {
	switch strings.ToUpper(protocol) {
	case "HTTP", "HTTP2", "GRPC", "GRPC-WEB", "HTTP_PROXY":
		return "HTTP"
	case "HTTPS", "TLS":
		return "TLS"
	}
	if tls {
		return "TLS"
	}
	return "TCP"
}

// CipherSuites are those for TLS 1.2 and before that Envoy knows; those of TLS 1.3 can't be chosen.
func CipherSuites() []string {
	return []string{
		"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384",
		"ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES128-SHA",
		"ECDHE-ECDSA-AES256-SHA", "ECDHE-RSA-AES256-SHA", "AES128-GCM-SHA256", "AES256-GCM-SHA384", "AES128-SHA", "AES256-SHA",
	}
}

// Curves are those for key exchange that Envoy knows.
func Curves() []string {
	return []string{"X25519MLKEM768", "X25519", "P-256", "P-384", "P-521"}
}
