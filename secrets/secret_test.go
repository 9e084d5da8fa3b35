package secrets_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	k8stesting "k8s.io/client-go/testing"

	"github.com/isthmus-mesh/isthmus/secrets"
)

// born is when the first Secret was made; the others are minutes younger.
var born = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func secret(namespace, name string, minute int, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{secrets.Label: "true"}, ResourceVersion: "1",
			CreationTimestamp: metav1.NewTime(born.Add(time.Duration(minute) * time.Minute)),
		},
		Data: data,
	}
}

// watch is a running source.
type watch struct {
	t      *testing.T
	claims chan []secrets.Claim
	done   chan error
	cancel context.CancelFunc
	mu     sync.Mutex
	events map[string]int // guarded by mu
}

// follow runs a source until the test ends.
func follow(t *testing.T, run func(ctx context.Context, w *watch) error) *watch {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watch{t: t, claims: make(chan []secrets.Claim), done: make(chan error, 1), cancel: cancel, events: map[string]int{}}
	go func() { w.done <- run(ctx, w) }()
	t.Cleanup(w.stop)
	return w
}

func (w *watch) out(ctx context.Context) func([]secrets.Claim) {
	return func(c []secrets.Claim) {
		select {
		case w.claims <- c:
		case <-ctx.Done():
		}
	}
}

func (w *watch) event(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events[name]++
}

// stop ends the source and waits for it.
func (w *watch) stop() {
	w.cancel()
	if err := <-w.done; err != nil {
		w.t.Errorf("ended with %v", err)
	}
	w.done <- nil
}

// await waits for the claims as text.
func (w *watch) await(want ...string) []secrets.Claim {
	w.t.Helper()
	var got []string
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	for {
		select {
		case claims := <-w.claims:
			got = texts(claims)
			if strings.Join(got, "\n") == strings.Join(want, "\n") {
				return claims
			}
		case err := <-w.done:
			w.t.Fatalf("ended with %v", err)
		case <-deadline.C:
			w.t.Fatalf("got claims\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// texts gives claims as "cluster source server" or "cluster source error".
func texts(claims []secrets.Claim) []string {
	out := []string{}
	for _, c := range claims {
		what := fmt.Sprint(c.Err)
		if c.Config != nil {
			what = strings.TrimPrefix(c.Config.Host, "https://")
		}
		source := c.Source[strings.LastIndexByte(c.Source, '/')+1:]
		out = append(out, c.Cluster+" "+source+" "+what)
	}
	return out
}

func server(t testing.TB, host string) []byte {
	return kubeconfig(t, with("server", "https://"+host), with("token", "abc"))
}

func followSecrets(t *testing.T, client *fake.Clientset, o secrets.SecretOptions) *watch {
	t.Helper()
	o.Namespace = "istio-system"
	cfg := serve(t, client)
	return follow(t, func(ctx context.Context, w *watch) error {
		o.OnEvent = w.event
		return secrets.WatchSecrets(ctx, cfg, o, w.out(ctx))
	})
}

// TestSecrets follows Secrets through their life.
func TestSecrets(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	w := followSecrets(t, client, secrets.SecretOptions{})
	w.await()
	api := client.CoreV1().Secrets("istio-system")
	create := func(s *corev1.Secret) {
		t.Helper()
		if _, err := api.Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(secret("istio-system", "young", 2, map[string][]byte{"west": server(t, "w1")}))
	w.await("west young w1")
	create(secret("istio-system", "old", 1, map[string][]byte{"east": server(t, "e1"), "north": server(t, "n1")}))
	w.await("east old e1", "north old n1", "west young w1")

	rotated := secret("istio-system", "old", 1, map[string][]byte{"east": server(t, "e2"), "north": server(t, "n1")})
	rotated.ResourceVersion = "2"
	if _, err := api.Update(t.Context(), rotated, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await("east old e2", "north old n1", "west young w1")
	if err := api.Delete(t.Context(), "young", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await("east old e2", "north old n1")
	w.stop()
	if got := fmt.Sprint(w.events); got != "map[add:2 delete:1 update:1]" {
		t.Errorf("events %s", got)
	}
}

// TestSecretsElsewhereDontCount: only those of the system namespace with the label do.
func TestSecretsElsewhereDontCount(t *testing.T) {
	t.Parallel()
	plain := secret("istio-system", "plain", 0, map[string][]byte{"c": server(t, "c")})
	plain.Labels = nil
	off := secret("istio-system", "off", 0, map[string][]byte{"d": server(t, "d")})
	off.Labels[secrets.Label] = "false"
	client := fake.NewClientset(secret("team", "mine", 0, map[string][]byte{"b": server(t, "b")}), plain, off,
		secret("istio-system", "right", 0, map[string][]byte{"a": server(t, "a")}))
	followSecrets(t, client, secrets.SecretOptions{}).await("a right a")
	for _, a := range client.Actions() {
		if a.GetNamespace() != "istio-system" {
			t.Errorf("%s in namespace %q", a.GetVerb(), a.GetNamespace())
		}
	}
}

// TestDefect18EachKeyCountsAlone: a key that can't be used costs only itself, and the order of keys is always the
// same.
func TestDefect18EachKeyCountsAlone(t *testing.T) {
	t.Parallel()
	data := map[string][]byte{"bad": []byte("{{"), "-no-id": server(t, "x")}
	want := []string{
		"-no-id many its name can't be a cluster id (letters, digits, '-', '_' and '.', 63 at most, no '-' at an end)",
		"bad many kubeconfig: not a kubeconfig: malformed YAML, a value of the wrong type, or a name used twice",
	}
	for i := range 9 {
		data[fmt.Sprint("c", i)] = server(t, fmt.Sprint("h", i))
		want = append(want, fmt.Sprintf("c%d many h%d", i, i))
	}
	followSecrets(t, fake.NewClientset(secret("istio-system", "many", 0, data)), secrets.SecretOptions{}).await(want...)
}

// TestClusterLimit: a Secret with endless keys does not make endless clusters, nor push out those that came before.
func TestClusterLimit(t *testing.T) {
	t.Parallel()
	data := map[string][]byte{}
	for i := range 9 {
		data[fmt.Sprint("a", i)] = server(t, "h")
	}
	client := fake.NewClientset(secret("istio-system", "a-flood", 2, data), secret("istio-system", "first", 1, map[string][]byte{"z": server(t, "z")}))
	followSecrets(t, client, secrets.SecretOptions{Options: secrets.Options{MaxClusters: 3}}).
		await("z first z", "a0 a-flood h", "a1 a-flood h", " a-flood this and all later ones are ignored: there are more than 3 clusters")
}

// TestUnusableKeysPushNothingOut: names that are no cluster ids and credentials that can't be used, of however many there
// are, leave a good Secret in force.
func TestUnusableKeysPushNothingOut(t *testing.T) {
	t.Parallel()
	data := map[string][]byte{}
	for i := range 1100 {
		data[fmt.Sprintf("-%04d", i)] = server(t, "h")
	}
	for i := range 5 {
		data[fmt.Sprint("b", i)] = []byte("{}")
	}
	client := fake.NewClientset(secret("istio-system", "a-flood", 1, data), secret("istio-system", "new", 2, map[string][]byte{"z": server(t, "z")}))
	w := followSecrets(t, client, secrets.SecretOptions{Options: secrets.Options{MaxClusters: 3}})
	claims := <-w.claims
	got := texts(claims)
	if len(got) != 20+3+1+2 {
		t.Fatalf("%d claims: %s", len(got), strings.Join(got, "\n"))
	}
	want := []string{
		"z new z",
		" a-flood this and all later ones are ignored: more than 3 credentials can't be used",
		" a-flood this and all later ones are ignored: more than 20 names can't be cluster ids",
	}
	if tail := got[len(got)-3:]; strings.Join(tail, "\n") != strings.Join(want, "\n") {
		t.Errorf("last are\n%s\nwant\n%s", strings.Join(tail, "\n"), strings.Join(want, "\n"))
	}
}

// TestReplacedSecret: one that is deleted and soon made again was never gone; one that stays away is.
func TestReplacedSecret(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(secret("istio-system", "s", 0, map[string][]byte{"a": server(t, "a")}))
		w := followSecrets(t, client, secrets.SecretOptions{})
		next := func(want string) {
			t.Helper()
			if got := fmt.Sprint(texts(<-w.claims)); got != want {
				t.Errorf("claims %s, want %s", got, want)
			}
		}
		next("[a s a]")
		synctest.Wait() // until it watches: the server does not tell of what was deleted before
		api := client.CoreV1().Secrets("istio-system")
		remove := func() {
			if err := api.Delete(t.Context(), "s", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		remove()
		time.Sleep(400 * time.Millisecond)
		if _, err := api.Create(t.Context(), secret("istio-system", "s", 1, map[string][]byte{"a": server(t, "b")}), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		next("[a s b]")
		remove()
		next("[]")
		w.stop()
	})
}

// TestIncident9EmptyAnswerIsNoList: what stands in front of an API server may answer anything; the claims stay.
func TestIncident9EmptyAnswerIsNoList(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(secret("istio-system", "s", 0, map[string][]byte{"a": server(t, "a")}))
	var mu sync.Mutex
	lists := 0
	client.PrependReactor("list", "secrets", func(k8stesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		lists++
		return lists <= 2, &corev1.SecretList{}, nil // one answer of that kind is not told
	})
	contact := make(chan error, 9)
	w := followSecrets(t, client, secrets.SecretOptions{OnContact: func(err error) { contact <- err }})
	if got := texts(<-w.claims); fmt.Sprint(got) != "[a s a]" {
		t.Errorf("claims %v", got)
	}
	if lost := <-contact; lost == nil {
		t.Error("taken for a list")
	}
}

// TestExpiry: claims say when their credentials end.
func TestExpiry(t *testing.T) {
	t.Parallel()
	at := time.Date(2027, 3, 4, 5, 6, 7, 0, time.UTC)
	cert, key := pair(t, at)
	client := fake.NewClientset(secret("istio-system", "s", 0, map[string][]byte{
		"a": kubeconfig(t, with(), with("token", token(t, at))),
		"b": kubeconfig(t, with(), with("client-certificate-data", cert, "client-key-data", key)),
		"c": kubeconfig(t, with(), with("token", "opaque")),
		"d": kubeconfig(t, with(), with("token", token(t, at.Add(time.Hour)), "client-certificate-data", cert, "client-key-data", key)),
		"e": kubeconfig(t, with(), with("token", "a.b.c")),
	}))
	const s = " s api.example:6443"
	claims := followSecrets(t, client, secrets.SecretOptions{}).await("a"+s, "b"+s, "c"+s, "d"+s, "e"+s)
	for i, want := range []time.Time{at, at, {}, at, {}} {
		if got := claims[i].Expires; !got.Equal(want) {
			t.Errorf("claim %s ends at %v, want %v", claims[i].Cluster, got, want)
		}
	}
}

// TestUnreachableAPIServerAtStart: nothing is told before the Secrets have been listed, for no Secrets and unknown
// Secrets are not the same.
func TestUnreachableAPIServerAtStart(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(secret("istio-system", "s", 0, map[string][]byte{"a": server(t, "a")}))
	var mu sync.Mutex
	failed := 0
	client.PrependReactor("list", "secrets", func(k8stesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		failed++
		return failed <= 2, nil, errors.New("connection refused")
	})
	contact := make(chan error, 9)
	followSecrets(t, client, secrets.SecretOptions{OnContact: func(err error) { contact <- err }}).await("a s a")
	mu.Lock()
	defer mu.Unlock()
	if failed < 3 {
		t.Errorf("listed %d times", failed)
	}
	if lost, found := <-contact, <-contact; lost == nil || found != nil || len(contact) > 0 {
		t.Errorf("told %v, then %v, and %d more", lost, found, len(contact))
	}
}

// TestConnectionsThatEndAtOnce: nobody may take them for watches that have ended.
func TestConnectionsThatEndAtOnce(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(secret("istio-system", "s", 0, map[string][]byte{"a": server(t, "a")}))
	client.PrependWatchReactor("secrets", func(k8stesting.Action) (bool, apiwatch.Interface, error) { return true, nil, errors.New("reset") })
	contact := make(chan error, 99)
	followSecrets(t, client, secrets.SecretOptions{OnContact: func(err error) { contact <- err }}).await("a s a")
	if err := <-contact; err == nil {
		t.Error("told of contact")
	}
}

// TestNoNamespace: an empty namespace would be all namespaces.
func TestNoNamespace(t *testing.T) {
	t.Parallel()
	if err := secrets.WatchSecrets(t.Context(), &rest.Config{}, secrets.SecretOptions{}, nil); err == nil {
		t.Error("no error")
	}
}

// TestUnchangedIsNotReadAgain: claims of one content share one configuration, from one change to the next.
func TestUnchangedIsNotReadAgain(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(secret("istio-system", "s", 0, map[string][]byte{"a": server(t, "a"), "b": server(t, "a")}))
	w := followSecrets(t, client, secrets.SecretOptions{})
	before := w.await("a s a", "b s a")
	if _, err := client.CoreV1().Secrets("istio-system").Create(t.Context(), secret("istio-system", "t", 1, map[string][]byte{"c": server(t, "c")}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	after := w.await("a s a", "b s a", "c t c")
	if before[0].Config != after[0].Config || before[0].Config != before[1].Config {
		t.Error("a kubeconfig was read again")
	}
	if before[0].Hash != before[1].Hash || before[0].Hash == after[2].Hash {
		t.Error("hashes do not tell contents apart")
	}
}
