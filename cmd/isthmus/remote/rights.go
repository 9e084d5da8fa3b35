package remote

import (
	"context"
	"fmt"
	"strings"

	authzv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// right is one verb on one resource.
type right struct {
	group, resource, verb string
	namespace             string // "" in all
	name                  string // of the one object; "" for all
}

func (r right) String() string {
	name := r.resource
	if r.group != "" {
		name += "." + r.group
	}
	if r.namespace != "" {
		name += " " + r.namespace + "/" + r.name
	}
	return r.verb + " " + name
}

// needed reports whether nothing of the cluster can be served without it.
func (r right) needed() bool {
	return r.namespace == "" && (r.group == "" || r.group == "discovery.k8s.io")
}

// rightsOf are those that the manifests grant.
func rightsOf(namespace string, reads Reads) (out []right, err error) {
	objects, err := Manifests(namespace, reads)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if o.GetKind() != "ClusterRole" && o.GetKind() != "Role" {
			continue
		}
		var role rbacv1.Role // has the rules of both
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			return nil, fmt.Errorf("%s: %w", Name(o), err)
		}
		for _, rule := range role.Rules {
			out = append(out, expand(rule, o.GetNamespace())...)
		}
	}
	return out, nil
}

func expand(rule rbacv1.PolicyRule, namespace string) (out []right) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, g := range rule.APIGroups {
		for _, r := range rule.Resources {
			for _, v := range rule.Verbs {
				for _, n := range names {
					out = append(out, right{g, r, v, namespace, n})
				}
			}
		}
	}
	return out
}

// rights asks for each right that the hub uses whether the credential has it.
func (a *attempt) rights(ctx context.Context) Result {
	all, err := rightsOf(a.Namespace, a.Reads)
	if err != nil {
		return failed("", "%v", err)
	}
	var missing []string
	status := Warning
	for _, r := range all {
		allowed, err := a.allowed(ctx, r)
		switch {
		case apierrors.IsUnauthorized(err):
			return failed(a.again(), "the API server does not accept the credential")
		case err != nil:
			return failed("see the API server's log", "the API server does not say whether we may %s: %v", r, plain(err))
		case allowed:
			continue
		case r.needed():
			status = Failed
		}
		missing = append(missing, r.String())
	}
	if len(missing) == 0 {
		return ok("all %d that the hub uses", len(all))
	}
	return Result{Status: status, Detail: "missing: " + strings.Join(missing, ", "), Advice: a.grant()}
}

// grant is what gives the hub the rights that it lacks. The manifests bind them to an account of the hub's own, and to
// no other that a credential may be of.
func (a *attempt) grant() string {
	add := "isthmus cluster add CONTEXT --name " + a.cluster + a.Reads.flags()
	if a.user == "" || a.user == "system:serviceaccount:"+a.Namespace+":"+Account {
		return add
	}
	return fmt.Sprintf("grant them to %s, or move to the hub's own account: %s", a.user, add)
}

// flags are those that say the same.
func (r Reads) flags() (out string) {
	if r.Config {
		out += " --config-from all"
	}
	if r.MCS {
		out += " --mcs"
	}
	if r.Revision != "" {
		out += " --revision " + r.Revision
	}
	return out
}

func (a *attempt) allowed(ctx context.Context, r right) (bool, error) {
	q := &authzv1.SelfSubjectAccessReview{Spec: authzv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authzv1.ResourceAttributes{
		Group: r.group, Resource: r.resource, Verb: r.verb, Namespace: r.namespace, Name: r.name,
	}}}
	answer, err := a.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, q, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return answer.Status.Allowed, nil
}
