package secrets_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/secrets"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// told is what is told of Secrets, as "name key=value" or "name none" or "name: why".
type told struct {
	t    *testing.T
	news chan string
	last map[string]string
}

// followNamed runs something that follows Secrets until the test ends.
func followNamed(t *testing.T, run func(ctx context.Context, out func(string, secrets.Secret)) error) *told {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &told{t: t, news: make(chan string, 1000), last: map[string]string{}}
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, func(name string, s secrets.Secret) {
			var parts []string
			for k, v := range s.Data {
				parts = append(parts, k+"="+string(v))
			}
			text := strings.Join(parts, " ")
			switch {
			case s.Err != "":
				text = "why: " + s.Err
			case s.Data == nil:
				text = "none"
			}
			w.news <- name + " " + text
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("ended with %v", err)
		}
	})
	return w
}

// await waits until something that begins with a text is told.
func (w *told) await(want string) {
	w.t.Helper()
	late := time.NewTimer(2 * time.Minute)
	defer late.Stop()
	var got []string
	for {
		select {
		case s := <-w.news:
			if got = append(got, s); strings.HasPrefix(s, want) {
				return
			}
		case <-late.C:
			w.t.Fatalf("never told: %q; told: %q", want, got)
		}
	}
}

func opaque(name, token string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: %s, namespace: istio-system}, stringData: {token: %s}}", name, token)
}

// TestNamedSecrets: the right to list and watch one Secret is enough for it; that others are refused is told of these. What is not wanted any
// more is not watched any more.
func TestNamedSecrets(t *testing.T) {
	t.Parallel()
	c := servers.Bare(t, 1)[0]
	c.ServiceAccount(t, "istio-system/hub")
	rule := env.Reader("secrets")
	rule.ResourceNames = []string{"mine", "later"}
	c.Apply(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "some"}, Rules: []rbacv1.PolicyRule{rule}}, opaque("mine", "one"), opaque("other", "hush"))
	c.Bind(t, "istio-system/hub", "some")
	link := c.Link(t)
	token := c.Token(t, "istio-system/hub", 3600)
	named := secrets.NewNamed()
	named.Want([]string{"mine", "other", "later"})
	w := followNamed(t, func(ctx context.Context, out func(string, secrets.Secret)) error {
		return secrets.FollowNamed(ctx, link.Config(token), named, secrets.NamedOptions{Namespace: "istio-system", Out: out})
	})
	w.await("later none")
	c.Apply(t, opaque("mine", "two"))
	w.await("mine token=two")
	c.Apply(t, opaque("later", "three"))
	w.await("later token=three")
	c.Delete(t, opaque("mine", ""))
	w.await("mine none")
	w.await("other why: ")
	named.Want([]string{"later"})
	link.DropConnections()
	c.Apply(t, opaque("mine", "four"), opaque("later", "five"))
	w.await("later token=five")
	for len(w.news) > 0 {
		if s := <-w.news; strings.HasPrefix(s, "mine token") {
			t.Errorf("told although nobody wants it: %s", s)
		}
	}
}

// TestMountedSecrets: folders come, are written in several steps, replaced as the kubelet does, and go.
func TestMountedSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	named := secrets.NewNamed()
	named.Want([]string{"a", "b", "../x"})
	w := followNamed(t, func(ctx context.Context, out func(string, secrets.Secret)) error {
		return secrets.FollowMounted(ctx, dir, named, out)
	})
	w.await("../x why: it is not the name of a Secret")
	put := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) {
		t.Helper()
		next := filepath.Join(dir, "b", ".next")
		if err := os.Symlink(to, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(dir, "b", name)); err != nil {
			t.Fatal(err)
		}
	}
	put("a/token", "one")
	w.await("a token=one")
	put("a/token", "two")
	w.await("a token=two")

	put("b/..1/token", "old") // as a volume has them
	link("..1", "..data")
	link("..data/token", "token")
	w.await("b token=old")
	put("b/..2/token", "new")
	link("..2", "..data")
	w.await("b token=new")

	if err := os.RemoveAll(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	w.await("a none")
	put("a/token", "three")
	w.await("a token=three")
	put("a/big", strings.Repeat("x", 2<<20))
	w.await("a why: big is too large")
}

// A folder that is not there is a mistake of whoever starts the hub.
func TestNoMountedSecrets(t *testing.T) {
	t.Parallel()
	err := secrets.FollowMounted(t.Context(), filepath.Join(t.TempDir(), "x"), secrets.NewNamed(), nil)
	if err == nil || !strings.Contains(err.Error(), "folder of secrets") {
		t.Errorf("%v", err)
	}
}

// Contents never show in formatted text.
func TestSecretsAreNotFormatted(t *testing.T) {
	t.Parallel()
	s := secrets.Secret{Data: map[string][]byte{"token": []byte("hush")}}
	if text := fmt.Sprintf("%v %+v %#v %s", s, s, s, s); strings.Contains(text, "hush") || strings.Contains(text, "104") {
		t.Error(text)
	}
}
