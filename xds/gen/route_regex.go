package gen

import (
	"regexp"
	"regexp/syntax"
	"strconv"
	"unicode"
	"unicode/utf8"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// Sizes of programs, in instructions. Envoy refuses a regular expression of more than defaultRegexSize unless it is
// told otherwise; the bootstrap of Istio's proxies tells it maxRegexSize.
const (
	defaultRegexSize = 100
	maxRegexSize     = 32768
)

// regex gives an expression that Envoy takes; false if there is no telling that it does.
func regex(s string) (*matcherv3.RegexMatcher, bool) {
	m := &matcherv3.RegexMatcher{Regex: s}
	size, ok := regexSize(s)
	if size > defaultRegexSize {
		//lint:ignore SA1019 the only way to allow a larger program without a runtime setting of the proxy
		m.EngineType = &matcherv3.RegexMatcher_GoogleRe2{GoogleRe2: &matcherv3.RegexMatcher_GoogleRE2{MaxProgramSize: u32(maxRegexSize)}}
	}
	return m, ok && size <= maxRegexSize
}

// regexSize gives an upper bound of the size of an expression's program; false if RE2 does not read it. Go reads
// nearly the same language.
func regexSize(s string) (int, bool) {
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
