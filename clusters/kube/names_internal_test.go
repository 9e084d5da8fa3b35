package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func TestOddNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 64)
	for name, c := range map[string]struct {
		key model.ObjectKey
		ok  bool
	}{
		"service":              {model.ObjectKey{Kind: KindService, Namespace: "shop", Name: "web-1"}, true},
		"service, digits":      {model.ObjectKey{Kind: KindService, Namespace: "shop", Name: "1"}, true},
		"service, dots":        {model.ObjectKey{Kind: KindService, Namespace: "shop", Name: "a.b"}, false},
		"pod, dots":            {model.ObjectKey{Kind: KindPod, Namespace: "shop", Name: "a.b"}, true},
		"pod, long":            {model.ObjectKey{Kind: KindPod, Namespace: "shop", Name: long}, true},
		"service, long":        {model.ObjectKey{Kind: KindService, Namespace: "shop", Name: long}, false},
		"namespace":            {model.ObjectKey{Kind: KindNamespace, Name: "shop"}, true},
		"node":                 {model.ObjectKey{Kind: KindNode, Name: "node-1.example.org"}, true},
		"custom":               {model.ObjectKey{Kind: KindWorkloadEntry, Namespace: "shop", Name: "vm-10.0.0.1-net"}, true},
		"no namespace":         {model.ObjectKey{Kind: KindService, Name: "web"}, false},
		"odd namespace":        {model.ObjectKey{Kind: KindPod, Namespace: "a.b", Name: "web"}, false},
		"namespace, wild card": {model.ObjectKey{Kind: KindNamespace, Name: "*"}, false},
		"wild card":            {model.ObjectKey{Kind: KindService, Namespace: "shop", Name: "*"}, false},
		"path":                 {model.ObjectKey{Kind: KindPod, Namespace: "shop", Name: "a/b"}, false},
		"up":                   {model.ObjectKey{Kind: KindPod, Namespace: "shop", Name: ".."}, false},
		"capitals":             {model.ObjectKey{Kind: KindPod, Namespace: "shop", Name: "UP"}, false},
		"line break":           {model.ObjectKey{Kind: KindPod, Namespace: "shop", Name: "nl\n"}, false},
		"nothing":              {model.ObjectKey{Kind: KindPod, Namespace: "shop"}, false},
	} {
		why, shown := oddName(c.key), shownKey(c.key)
		if c.ok != (why == "") || c.ok != (shown == c.key.String()) {
			t.Errorf("%s: %q, shown as %s", name, why, shown)
		}
		if strings.ContainsAny(why+shown, "\n\r\x00") || len(shown) > 300 {
			t.Errorf("%s can't be shown: %q", name, shown)
		}
	}
}

// An odd name is a fault that goes with its object, also in a list.
func TestOddNamesComeAndGo(t *testing.T) {
	t.Parallel()
	tab := newTable(KindService, 10, newQueue(), func(string, string) {})
	odd := types.NamespacedName{Namespace: "shop", Name: strings.Repeat("x", 254)}
	tab.Set(odd, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: odd.Namespace, Name: odd.Name}})
	tab.Complete(map[types.NamespacedName]struct{}{odd: {}})
	if len(tab.faults) != 1 || tab.count != 0 || tab.full {
		t.Errorf("%d faults, %d objects, full %v", len(tab.faults), tab.count, tab.full)
	}
	tab.Remove(odd)
	if len(tab.faults) != 0 {
		t.Error("the fault stays")
	}
}
