package kube

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/kubeapi"
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

// validHost checks a ServiceEntry host: a DNS name, or one whose first label is "*" or begins with it.
func validHost(s string) error {
	for _, star := range []string{"*.", "*-", "*"} {
		if rest, ok := strings.CutPrefix(s, star); ok {
			return validDNS(rest)
		}
	}
	return validDNS(s)
}

// oddName says why a key is none that an API server would take; "" if it is one. Hosts are made of the names of
// Services and namespaces, and a host such as "*.shop" would be more than that object's own.
func oddName(k model.ObjectKey) string {
	name, what := validation.IsDNS1123Subdomain, "name"
	if k.Kind == KindService || k.Kind == KindNamespace {
		name = validation.IsDNS1123Label
	}
	wrong := name(k.Name)
	if spaceless := k.Kind == KindNamespace || k.Kind == KindNode; len(wrong) == 0 && !spaceless {
		wrong, what = validation.IsDNS1123Label(k.Namespace), "namespace"
	}
	if len(wrong) == 0 {
		return ""
	}
	return "its " + what + " is not one that Kubernetes allows, so it is left out: " + wrong[0]
}

// shownKey is a key in a form that can stand in tables and logs, whatever is in it.
func shownKey(k model.ObjectKey) string {
	if k.Name == "" && k.Namespace == "" || oddName(k) == "" { // without a name it is all objects of the kind
		return k.String()
	}
	return fmt.Sprintf("%s/%q/%q", k.Kind, clip(k.Namespace), clip(k.Name))
}

func clip(s string) string { return kubeapi.Clip(s) }
