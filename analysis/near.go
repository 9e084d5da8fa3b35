package analysis

import (
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// mostGuesses is for how many hosts that are not there another one is looked for: each is compared with all.
const mostGuesses = 50

// otherHost asks after the host that one that no service has may stand for; it gives "" for none. A short name that is a whole one's
// beginning, another first label beside the same rest, and the same first label elsewhere are taken for it, in this order.
func (a *analysis) otherHost(host string) string {
	if a.guesses++; a.guesses > mostGuesses {
		return ""
	}
	first, rest, _ := strings.Cut(host, ".")
	var whole, firsts, elsewhere []string
	for name := range a.pc.Hosts() {
		switch f, r, _ := strings.Cut(name, "."); {
		case strings.HasPrefix(name, host+"."):
			whole = append(whole, name)
		case r == rest:
			firsts = append(firsts, f)
		case f == first && rest != "":
			elsewhere = append(elsewhere, name)
		}
	}
	for _, list := range [][]string{whole, firsts, elsewhere} {
		slices.Sort(list)
	}
	if len(whole) > 0 {
		return didYouMean(whole[0])
	}
	if near := model.Nearest(first, firsts); near != "" {
		return didYouMean(strings.TrimSuffix(near+"."+rest, "."))
	}
	return didYouMean(model.Nearest(host, elsewhere))
}

// otherSubset does the same for a subset of services.
func otherSubset(name string, services []*pushcontext.ServiceView) string {
	var names []string
	for _, s := range services {
		for _, p := range s.Shape.Policies {
			for _, x := range p.Spec.GetSubsets() {
				names = append(names, x.Name)
			}
		}
	}
	slices.Sort(names)
	return didYouMean(model.Nearest(name, names))
}

// otherGateway does the same for a Gateway, "namespace/name": one of the same name elsewhere, or another beside it.
func otherGateway(name string, gates map[string][]*pushcontext.GatewayServer) string {
	namespace, bare, _ := strings.Cut(name, "/")
	var beside []string
	for _, gate := range slices.Sorted(maps.Keys(gates)) {
		switch ns, n, _ := strings.Cut(gate, "/"); {
		case ns == namespace:
			beside = append(beside, n)
		case n == bare:
			return didYouMean(gate)
		}
	}
	if near := model.Nearest(bare, beside); near != "" {
		return didYouMean(namespace + "/" + near)
	}
	return ""
}

func didYouMean(name string) string {
	if name == "" {
		return ""
	}
	return "; did you mean " + name + "?"
}
