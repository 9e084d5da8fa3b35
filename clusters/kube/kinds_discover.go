package kube

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/isthmus-mesh/isthmus/kubeapi"
)

// discover gives the version to read of each wanted kind that is served: the newest. A group that can't be
// looked at leaves its kinds in doubt, and no others.
func (k *kinds) discover(ctx context.Context) (found map[string]string, failed map[string]error, err error) {
	var groups metav1.APIGroupList
	err = k.run.api.Get(ctx, &groups, "apis")
	if err == nil && len(groups.Groups) == 0 {
		err = fmt.Errorf("%w: no groups", kubeapi.ErrUnreadable)
	}
	if ctx.Err() == nil {
		k.run.discovery("get", err)
	}
	if err != nil {
		return nil, nil, err
	}
	found, failed = map[string]string{}, map[string]error{}
	for _, g := range groups.Groups {
		var versions []string
		for _, v := range g.Versions {
			versions = append(versions, v.Version)
		}
		slices.SortFunc(versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
		for _, v := range versions {
			k.discoverVersion(ctx, g.Name, v, found, failed)
		}
	}
	return found, failed, nil
}

// discoverVersion looks for the kinds of a group that no newer version has, nor may have.
func (k *kinds) discoverVersion(ctx context.Context, group, v string, found map[string]string, failed map[string]error) {
	left := slices.DeleteFunc(slices.Clone(k.wanted), func(c custom) bool { return c.group != group || found[c.kind] != "" || failed[c.kind] != nil })
	if len(left) == 0 {
		return
	}
	var list metav1.APIResourceList
	err := k.run.api.Get(ctx, &list, "apis", group, v)
	if err == nil && list.GroupVersion != group+"/"+v {
		err, list = fmt.Errorf("%w: not of the group's version", kubeapi.ErrUnreadable), metav1.APIResourceList{}
	}
	for _, c := range left {
		if err != nil && !apierrors.IsNotFound(err) {
			failed[c.kind] = err
		}
		for _, r := range list.APIResources {
			if r.Name == c.resource && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") {
				found[c.kind] = v
			}
		}
	}
}
