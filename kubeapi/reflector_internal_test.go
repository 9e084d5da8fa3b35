package kubeapi

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Why there is a feed of our own: client-go's reflector beside it, against one server.

const bigCluster = 40_000

// podServer serves pods that it makes up while it is asked, so that they cost it no memory.
type podServer struct {
	pods int

	mu         sync.Mutex
	page, last template
}

// template is an encoded message with numbers of a fixed length in it.
type template struct {
	text []byte
	at   []int
}

const digits = 7

func number(i int) string { return fmt.Sprintf("%0*d", digits, i) }

func podName(i int) string { return "pod-" + number(i) }

// fill numbers the message's places upward from first.
func (m template) fill(first int) []byte {
	for i, at := range m.at {
		copy(m.text[at:], number(first+i))
	}
	return m.text
}

// fullPod is a pod as controllers and kubelets leave it: 5 kB.
func fullPod(name string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(name), ResourceVersion: "100",
		Labels: map[string]string{"app": "web", "version": "v1", "pod-template-hash": "7d4b9c6f5d"}, Annotations: map[string]string{"checksum/config": "0123456789abcdef"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: "Update", FieldsV1: metav1.NewFieldsV1(strings.Repeat(`{"f:status":{}}`, 140))}}}}
	for c := range 2 {
		k := corev1.Container{Name: fmt.Sprint("c-", c), Image: "registry.example/web:v1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}
		for e := range 20 {
			k.Env = append(k.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_NUMBER_", e), Value: "the value of this setting"})
		}
		p.Spec.Containers = append(p.Spec.Containers, k)
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: k.Name, Image: k.Image, ImageID: "sha256:0123456789abcdef"})
	}
	p.Spec.NodeName, p.Status.Phase, p.Status.PodIP = "node-1", corev1.PodRunning, "10.1.0.1"
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return p
}

// envelope begins a message of so many bytes: Kubernetes' magic number and the head of a runtime.Unknown.
func envelope(kind string, size int) []byte {
	head := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}}
	meta, _ := head.TypeMeta.Marshal()
	out := append([]byte("k8s\x00\x0a"), byte(len(meta)))
	out = append(out, meta...)
	return binary.AppendUvarint(append(out, 0x12), uint64(size))
}

func newPodServer(t testing.TB, pods int) *Client {
	t.Helper()
	s := &podServer{pods: pods}
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}}
	for i := range pageSize {
		list.Items = append(list.Items, fullPod(podName(i)))
	}
	for _, m := range []*template{&s.last, &s.page} {
		raw, err := list.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		m.text = raw
		for i := range list.Items {
			m.at = append(m.at, bytes.Index(raw, []byte(podName(i)))+len("pod-"))
		}
		list.Continue = "token-" + number(0)
	}
	srv := httptest.NewServer(s)
	c, err := Connect(Options{Config: &rest.Config{Host: srv.URL}, QPS: 1e6, Burst: 1e6, Timing: Timing{Retry: time.Millisecond, RetryMax: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	c.most = bounds{1 << 30, bigCluster, 1 << 30} // whoever does not ask for pages has all in one answer
	t.Cleanup(func() {
		c.Close()
		srv.CloseClientConnections()
		srv.Close()
	})
	return c
}

// ServeHTTP implements http.Handler. As an API server does, it gives all at once to whoever asks for what its
// cache holds (resourceVersion=0), whatever the limit.
func (s *podServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	if q.Get("watch") != "" {
		s.watch(w, r)
		return
	}
	from, _ := strconv.Atoi(strings.TrimPrefix(q.Get("continue"), "token-"))
	to := from + pageSize
	if q.Get("resourceVersion") == "0" || q.Get("limit") == "" {
		to = s.pods
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	size := (to - from) / pageSize * len(s.page.text)
	if to == s.pods {
		size += len(s.last.text) - len(s.page.text)
	}
	_, _ = w.Write(envelope("PodList", size))
	for ; from < to; from += pageSize {
		m := s.page
		if from+pageSize == s.pods {
			m = s.last
		} else {
			copy(m.text[bytes.Index(m.text[:100], []byte("token-"))+len("token-"):], number(from+pageSize))
		}
		_, _ = w.Write(m.fill(from))
	}
}

func (s *podServer) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// shelf is a store that keeps names and objects, pods as a registry does.
type shelf struct {
	mu       sync.Mutex
	objects  map[types.NamespacedName]runtime.Object
	complete bool
	full     bool // lists are asked for until it is not
}

// Set implements Store.
func (s *shelf) Set(n types.NamespacedName, o runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := o.(*corev1.Pod); ok {
		trimPod(p)
	}
	if s.objects == nil {
		s.objects = map[types.NamespacedName]runtime.Object{}
	}
	s.objects[n] = o
}

// Remove implements Store.
func (s *shelf) Remove(n types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, n)
}

// Complete implements Store.
func (s *shelf) Complete(seen map[types.NamespacedName]struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.objects, func(n types.NamespacedName, _ runtime.Object) bool { _, ok := seen[n]; return !ok })
	s.complete = true
}

// Lacking implements Store.
func (s *shelf) Lacking() bool { return s.full }

func (s *shelf) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.complete
}

// trimPod leaves what a registry reads of a pod.
func trimPod(p *corev1.Pod) {
	p.Annotations, p.ManagedFields = nil, nil
	var kept []corev1.Container
	for _, c := range p.Spec.Containers {
		kept = append(kept, corev1.Container{Name: c.Name, Ports: c.Ports})
	}
	p.Spec = corev1.PodSpec{Containers: kept, NodeName: p.Spec.NodeName}
	p.Status = corev1.PodStatus{Phase: p.Status.Phase, Conditions: p.Status.Conditions, PodIP: p.Status.PodIP}
}

// reflected makes a shelf a reflector's store.
type reflected struct{ *shelf }

func podNameOf(o any) types.NamespacedName { return nameOf(o.(*corev1.Pod)) }

func (r reflected) Add(o any) error    { r.Set(podNameOf(o), o.(runtime.Object)); return nil }
func (r reflected) Update(o any) error { return r.Add(o) }
func (r reflected) Delete(o any) error { r.Remove(podNameOf(o)); return nil }
func (r reflected) Resync() error      { return nil }

func (r reflected) Replace(all []any, _ string) error {
	seen := map[types.NamespacedName]struct{}{}
	for _, o := range all {
		seen[podNameOf(o)] = struct{}{}
		r.Set(podNameOf(o), o.(runtime.Object))
	}
	r.Complete(seen)
	return nil
}

var podsAt = Place{Version: "v1", Resource: "pods"}

// lister is a reflector's way to an API server.
type lister struct{ cache.ListWatch }

// IsWatchListSemanticsUnSupported tells a reflector that it can't have objects streamed.
func (*lister) IsWatchListSemanticsUnSupported() bool { return true }

func newLister(c *Client, ask func(*metav1.ListOptions), page func(*corev1.PodList)) *lister {
	l := &lister{}
	l.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		ask(&o)
		out := &corev1.PodList{}
		err := c.list(ctx, c.request(c.core, podsAt, o), out)
		page(out)
		return out, err
	}
	l.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.Watch = true
		return c.watch(ctx, c.request(c.core, podsAt, o))
	}
	return l
}

// way is a way to keep a store equal to what a server has.
type way struct {
	name string
	run  func(ctx context.Context, c *Client, s *shelf)
}

func ways() []way {
	reflector := func(ask func(*metav1.ListOptions), page func(*corev1.PodList)) func(context.Context, *Client, *shelf) {
		return func(ctx context.Context, c *Client, s *shelf) {
			r := cache.NewReflectorWithOptions(newLister(c, ask, page), &corev1.Pod{}, reflected{s}, cache.ReflectorOptions{
				Backoff: &wait.Backoff{Duration: time.Millisecond, Cap: time.Millisecond, Steps: 1, Factor: 1}})
			r.WatchListPageSize = pageSize
			r.RunWithContext(ctx)
		}
	}
	plain, asIs := func(*metav1.ListOptions) {}, func(*corev1.PodList) {}
	return []way{
		{"feed", func(ctx context.Context, c *Client, s *shelf) {
			c.Feed("Pod", podsAt, Required, func() runtime.Object { return &corev1.PodList{} }, s).Run(ctx)
		}},
		{"reflector", reflector(plain, asIs)},
		{"reflector, newest state", reflector(func(o *metav1.ListOptions) { o.ResourceVersion, o.ResourceVersionMatch = "", "" }, asIs)},
		{"reflector, newest state, trimmed pages", reflector(func(o *metav1.ListOptions) { o.ResourceVersion, o.ResourceVersionMatch = "", "" },
			func(l *corev1.PodList) {
				for i := range l.Items {
					trimPod(&l.Items[i])
				}
			})},
	}
}

// plainReflector is a reflector with its own pauses.
func plainReflector() way {
	return way{"reflector", func(ctx context.Context, c *Client, s *shelf) {
		l := newLister(c, func(*metav1.ListOptions) {}, func(*corev1.PodList) {})
		cache.NewReflectorWithOptions(l, &corev1.Pod{}, reflected{s}, cache.ReflectorOptions{}).RunWithContext(ctx)
	}}
}

// begin runs a way until the store is full, and gives what ends it and waits for it.
func (w way) begin(tb testing.TB, c *Client) (*shelf, func()) {
	tb.Helper()
	s := &shelf{}
	ctx, stop := context.WithCancel(klog.NewContext(tb.Context(), logr.Discard()))
	done := make(chan struct{})
	go func() { defer close(done); w.run(ctx, c, s) }()
	for !s.ready() {
		time.Sleep(time.Millisecond)
	}
	return s, func() { stop(); <-done }
}

// The most memory that is in use while the pods of a big cluster are read for the first time.
func BenchmarkFirstListMemory(b *testing.B) {
	for _, w := range ways() {
		b.Run(w.name, func(b *testing.B) {
			var peak, left uint64
			for b.Loop() {
				goruntime.GC()
				c := newPodServer(b, bigCluster)
				stop := sampleHeap(&peak)
				s, end := w.begin(b, c)
				stop()
				goruntime.GC()
				left = max(left, heap())
				end()
				if len(s.objects) != bigCluster {
					b.Fatalf("%d pods", len(s.objects))
				}
			}
			b.ReportMetric(float64(peak)/1e6, "peak-MB")
			b.ReportMetric(float64(left)/1e6, "kept-MB")
		})
	}
}

func heap() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func sampleHeap(peak *uint64) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			case <-time.After(2 * time.Millisecond):
				*peak = max(*peak, heap())
			}
		}
	}()
	return func() { close(end); <-done }
}
