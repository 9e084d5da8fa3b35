package gen

import (
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// defaultRegexSize is the size of programs beyond which Envoy refuses a regular expression unless it is told otherwise. The
// bootstrap of Istio's proxies tells it model.MaxRegexSize.
const defaultRegexSize = 100

// regex gives an expression that Envoy takes; false if there is no telling that it does.
func regex(s string) (*matcherv3.RegexMatcher, bool) {
	m := &matcherv3.RegexMatcher{Regex: s}
	size, ok := model.RegexSize(s)
	if size > defaultRegexSize {
		//lint:ignore SA1019 the only way to allow a larger program without a runtime setting of the proxy
		m.EngineType = &matcherv3.RegexMatcher_GoogleRe2{GoogleRe2: &matcherv3.RegexMatcher_GoogleRE2{MaxProgramSize: u32(model.MaxRegexSize)}}
	}
	return m, ok && size <= model.MaxRegexSize
}
