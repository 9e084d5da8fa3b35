package kube

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	corev1 "k8s.io/api/core/v1"
)

// localityFaults says why a locality setting can't be in force: shares for places leave no place to fail
// over to, shares must make 100, and a region can't fail over to itself.
func localityFaults(l *networking.LocalityLoadBalancerSetting) (out []string) {
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if len(l.GetDistribute()) > 0 && len(l.GetFailover()) > 0 {
		bad("distribute and failover exclude each other, as distribute sets every place's share: remove one of them, " +
			"and give the places to fail over to a small share in distribute if that is the one to keep")
	}
	var froms []string
	for _, d := range l.GetDistribute() {
		froms = append(froms, d.GetFrom())
		shares(d, bad)
	}
	places(froms, "distribute.from", bad)
	for _, f := range l.GetFailover() {
		switch from, to := f.GetFrom(), f.GetTo(); {
		case !region(from) || !region(to):
			bad("failover from %q to %q: both must be regions, without zone and wildcard", clip(from), clip(to))
		case from == to:
			bad("failover from %q to itself: name another region", clip(from))
		}
	}
	for _, label := range l.GetFailoverPriority() {
		switch key, _, _ := strings.Cut(label, "="); {
		case key == "":
			bad("failoverPriority %q names no label", clip(label))
		case len(l.GetFailover()) > 0 && slices.Contains(placeLabels, label):
			bad("failover and %s in failoverPriority exclude each other: remove one of them", label)
		}
	}
	return out
}

// placeLabels are the labels of failoverPriority that say what failover says too.
var placeLabels = []string{corev1.LabelTopologyRegion, corev1.LabelTopologyZone, labelSubzone}

func region(s string) bool { return s != "" && !strings.ContainsAny(s, "/*") }

func shares(d *networking.LocalityLoadBalancerSetting_Distribute, bad func(string, ...any)) {
	sum := uint64(0)
	tos := slices.Sorted(maps.Keys(d.GetTo()))
	for _, to := range tos {
		share := d.To[to]
		if sum += uint64(share); share == 0 {
			bad("distribute from %q to %q has no share: leave it out", clip(d.From), clip(to))
		}
	}
	if sum != 100 {
		bad("the shares of distribute from %q make %d, not 100", clip(d.GetFrom()), sum)
	}
	places(tos, fmt.Sprintf("distribute from %q to", clip(d.GetFrom())), bad)
}

// places checks localities "region/zone/subzone" in which the last part may be "*": each must be well
// formed, and none may be within another.
func places(in []string, what string, bad func(string, ...any)) {
	var good []string
	for _, place := range in {
		if wellFormed(place) {
			good = append(good, place)
		} else {
			bad("%s %q: want region/zone/subzone, with \"*\" at most as the last part", what, clip(place))
		}
	}
	// What is within a place follows it at once when they are sorted by what they cover.
	slices.SortFunc(good, func(a, b string) int { return strings.Compare(covered(a), covered(b)) })
	for i := 1; i < len(good); i++ {
		if strings.HasPrefix(covered(good[i]), covered(good[i-1])) {
			bad("%s %q and %q overlap", what, clip(good[i-1]), clip(good[i]))
		}
	}
}

// covered is what all localities within a place begin with.
func covered(place string) string {
	if place = strings.TrimSuffix(place, "*"); place == "" || strings.HasSuffix(place, "/") {
		return place
	}
	return place + "/"
}

func wellFormed(place string) bool {
	parts := strings.Split(place, "/")
	for i, p := range parts {
		if p == "" || strings.Contains(p, "*") && (p != "*" || i < len(parts)-1) {
			return false
		}
	}
	return len(parts) <= 3
}
