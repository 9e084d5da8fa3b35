package kube

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// factNodes is the kind of the fact which nodes have a label and external addresses.
const factNodes = "Nodes"

// pair is one label; the empty one stands for every node.
type pair struct{ key, value string }

// pairOf is the label of a selector under which its nodes are looked up: the first by key.
func pairOf(selector model.Labels) pair {
	if len(selector) == 0 {
		return pair{}
	}
	key := slices.Min(slices.Collect(maps.Keys(selector)))
	return pair{key, selector[key]}
}

// nodeIndex finds nodes that have external addresses by their labels.
type nodeIndex struct {
	nodes  map[string]*NodeExposure
	byPair map[pair]map[string]*NodeExposure
}

func newNodeIndex() nodeIndex {
	return nodeIndex{nodes: map[string]*NodeExposure{}, byPair: map[pair]map[string]*NodeExposure{}}
}

// set replaces a node, nil removes it, and gives the labels whose nodes are others now.
func (x *nodeIndex) set(node string, next *NodeExposure) (changed []pair) {
	old := x.nodes[node]
	if old == nil && next == nil || old != nil && next != nil && same(old, next) {
		return nil
	}
	for _, at := range old.pairs() {
		delete(x.byPair[at], node)
		if len(x.byPair[at]) == 0 {
			delete(x.byPair, at)
		}
	}
	delete(x.nodes, node)
	for _, at := range next.pairs() {
		if x.byPair[at] == nil {
			x.byPair[at] = map[string]*NodeExposure{}
		}
		x.byPair[at][node] = next
	}
	if next != nil {
		x.nodes[node] = next
	}
	return append(old.pairs(), next.pairs()...)
}

// pairs are the labels under which a node is found, none for nil.
func (n *NodeExposure) pairs() []pair {
	if n == nil {
		return nil
	}
	out := make([]pair, 1, 1+len(n.Labels))
	for k, v := range n.Labels {
		out = append(out, pair{k, v})
	}
	return out
}

func (x *nodeIndex) addresses(at pair, selector model.Labels) []netip.Addr {
	var out []netip.Addr
	for _, n := range x.byPair[at] {
		if len(selector) == 0 || n.Labels.Matches(selector) {
			out = append(out, n.IPs...)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}
