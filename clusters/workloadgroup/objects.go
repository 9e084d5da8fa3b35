package workloadgroup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/kubeapi"
)

// The kind that entries are of, and the versions in which API servers have it, the newest first.
var (
	entriesKind = schema.GroupResource{Group: "networking.istio.io", Resource: "workloadentries"}
	versions    = []string{"v1", "v1beta1", "v1alpha3"}
)

// labelRegistered is on all entries that are made of groups, so that they can be listed without the others.
const labelRegistered = "isthmus.io/auto-registered"

// A replica is taken for dead when it has not said for so long that it lives.
const leaseDuration = time.Minute

// labelLease is on the Leases by which replicas say that they live.
const labelLease = "isthmus.io/replica"

// Objects keeps entries in an API server, from which its registry reads them like others. Replicas say by Leases in a
// namespace that they live.
type Objects struct {
	credential func() *rest.Config
	namespace  string

	mu   sync.Mutex
	last *clients // guarded by mu: of the credential that was used last
}

// clients are those of one credential.
type clients struct {
	of     *rest.Config
	kinds  *kubeapi.Kinds
	client kubernetes.Interface
}

// NewObjects uses an API server with the credential in force, nil while there is none; namespace is that of the Leases.
func NewObjects(credential func() *rest.Config, namespace string) *Objects {
	return &Objects{credential: credential, namespace: namespace}
}

// connect gives the clients of the credential in force.
func (o *Objects) connect() (*clients, error) {
	cfg := o.credential()
	if cfg == nil {
		return nil, errors.New("there is no credential in force of the API server")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last != nil && o.last.of == cfg {
		return o.last, nil
	}
	kinds, err := kubeapi.NewKinds(cfg)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	o.last = &clients{cfg, kinds, client}
	return o.last, nil
}

// resource gives the WorkloadEntries of the API server, in the newest version that it has, and which that is.
func (o *Objects) resource(ctx context.Context) (dynamic.NamespaceableResourceInterface, string, error) {
	c, err := o.connect()
	if err != nil {
		return nil, "", err
	}
	all, version, err := c.kinds.In(ctx, entriesKind, versions...)
	if apierrors.IsNotFound(err) {
		return nil, "", errors.New("the API server has no WorkloadEntries: install the definitions of networking.istio.io")
	}
	return all, version.String(), err
}

// Get implements Entries.
func (o *Objects) Get(ctx context.Context, k Key) (*Entry, error) {
	all, _, err := o.resource(ctx)
	if err != nil {
		return nil, err
	}
	u, err := all.Namespace(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decode(u)
}

// Put implements Entries. What the entry says nothing of stays as it is: owners, finalizers, other conditions. The condition is
// of the status, which is written apart.
func (o *Objects) Put(ctx context.Context, e *Entry) (string, error) {
	all, version, err := o.resource(ctx)
	if err != nil {
		return "", err
	}
	in := all.Namespace(e.Namespace)
	var done *unstructured.Unstructured
	if e.Version == "" {
		done, err = create(ctx, in, e, version)
	} else {
		done, err = replace(ctx, in, e)
	}
	if err != nil {
		return "", err
	}
	have, err := decode(done)
	if err != nil {
		return "", err
	}
	if sameHealth(have.Health, e.Health) {
		return done.GetResourceVersion(), nil
	}
	report(done, e.Health)
	if done, err = in.UpdateStatus(ctx, done, metav1.UpdateOptions{}); err != nil {
		return "", asConflict(err)
	}
	return done.GetResourceVersion(), nil
}

func create(ctx context.Context, in dynamic.ResourceInterface, e *Entry, version string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": "WorkloadEntry"}}
	u.SetNamespace(e.Namespace)
	u.SetName(e.Name)
	if err := encode(e, u); err != nil {
		return nil, err
	}
	done, err := in.Create(ctx, u, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil, ErrConflict
	}
	return done, err
}

func replace(ctx context.Context, in dynamic.ResourceInterface, e *Entry) (*unstructured.Unstructured, error) {
	u, err := in.Get(ctx, e.Name, metav1.GetOptions{})
	if err != nil {
		return nil, asConflict(err)
	}
	if u.GetResourceVersion() != e.Version {
		return nil, ErrConflict
	}
	if err := encode(e, u); err != nil {
		return nil, err
	}
	done, err := in.Update(ctx, u, metav1.UpdateOptions{})
	return done, asConflict(err)
}

// Delete implements Entries.
func (o *Objects) Delete(ctx context.Context, e *Entry) error {
	all, _, err := o.resource(ctx)
	if err != nil {
		return err
	}
	err = all.Namespace(e.Namespace).Delete(ctx, e.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &e.Version}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return asConflict(err)
}

// asConflict makes ErrConflict of what says that an object that was there is not as it was.
func asConflict(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ErrConflict
	}
	return err
}

// List implements Entries.
func (o *Objects) List(ctx context.Context) (out []*Entry, err error) {
	all, _, err := o.resource(ctx)
	if err != nil {
		return nil, err
	}
	opts := metav1.ListOptions{LabelSelector: labelRegistered, Limit: 500}
	for {
		l, err := all.List(ctx, opts)
		if err != nil {
			return nil, fmt.Errorf("list WorkloadEntries: %w", err)
		}
		for i := range l.Items {
			if e, err := decode(&l.Items[i]); err == nil && e.ofGroup() { // others are somebody's who took the label
				out = append(out, e)
			}
		}
		if opts.Continue = l.GetContinue(); opts.Continue == "" {
			return out, nil
		}
	}
}

// Alive implements Entries.
func (o *Objects) Alive(ctx context.Context, controller string) (map[string]bool, error) {
	c, err := o.connect()
	if err != nil {
		return nil, err
	}
	leases := c.client.CoordinationV1().Leases(o.namespace)
	now := metav1.NowMicro()
	seconds := int32(leaseDuration / time.Second)
	mine := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "isthmus-replica-" + controller, Labels: map[string]string{labelLease: "true"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &controller, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
	have, err := leases.Get(ctx, mine.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = leases.Create(ctx, mine, metav1.CreateOptions{})
	case err == nil:
		have.Spec = mine.Spec
		_, err = leases.Update(ctx, have, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("renew the Lease %s/%s: %w", o.namespace, mine.Name, err)
	}
	l, err := leases.List(ctx, metav1.ListOptions{LabelSelector: labelLease})
	if err != nil {
		return nil, fmt.Errorf("list Leases of %s: %w", o.namespace, err)
	}
	out := map[string]bool{controller: true}
	for _, x := range l.Items {
		if s := x.Spec; s.HolderIdentity == nil || s.RenewTime == nil {
			continue
		} else if time.Since(s.RenewTime.Time) < leaseDuration {
			out[*s.HolderIdentity] = true
		} else if time.Since(s.RenewTime.Time) > time.Hour { // nobody asks after it any more
			_ = leases.Delete(ctx, x.Name, metav1.DeleteOptions{}) // the next replica will
		}
	}
	return out, nil
}

// stored is a WorkloadEntry as an API server has it.
type stored struct {
	Metadata metav1.ObjectMeta         `json:"metadata"`
	Spec     *networking.WorkloadEntry `json:"spec"`
	Status   struct {
		Conditions []condition `json:"conditions"`
	} `json:"status"`
}

type condition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	Message            string `json:"message,omitempty"`
	LastTransitionTime string `json:"lastTransitionTime,omitempty"`
}

const conditionHealthy = "Healthy"

func decode(u *unstructured.Unstructured) (*Entry, error) {
	b, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var s stored
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("read WorkloadEntry %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	e := &Entry{
		Key: Key{u.GetNamespace(), u.GetName()}, Labels: s.Metadata.Labels, Annotations: s.Metadata.Annotations, Spec: s.Spec, Version: s.Metadata.ResourceVersion,
	}
	if e.Spec == nil {
		e.Spec = &networking.WorkloadEntry{}
	}
	delete(e.Labels, labelRegistered)
	for _, c := range s.Status.Conditions {
		if c.Type == conditionHealthy {
			e.Health = &Health{Healthy: c.Status == "True", Message: c.Message}
		}
	}
	return e, nil
}

// encode writes an entry into an object.
func encode(e *Entry, u *unstructured.Unstructured) error {
	spec, err := json.Marshal(e.Spec)
	if err != nil {
		return fmt.Errorf("write WorkloadEntry %s: %w", e, err)
	}
	var fields map[string]any
	if err := json.Unmarshal(spec, &fields); err != nil {
		return fmt.Errorf("write WorkloadEntry %s: %w", e, err)
	}
	if have, err := decode(u); err != nil || !proto.Equal(have.Spec, e.Spec) || u.Object["spec"] == nil {
		u.Object["spec"] = fields
	}
	labels := maps.Clone(e.Labels)
	if e.ofGroup() {
		if labels == nil {
			labels = map[string]string{}
		}
		labels[labelRegistered] = "true"
	}
	u.SetLabels(labels)
	u.SetAnnotations(e.Annotations)
	return nil
}

// report sets the condition of an object, among those of others.
func report(u *unstructured.Unstructured, h *Health) {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	list = slices.DeleteFunc(list, func(c any) bool { m, ok := c.(map[string]any); return ok && m["type"] == conditionHealthy })
	if h != nil {
		c := map[string]any{"type": conditionHealthy, "status": "False", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}
		if h.Healthy {
			c["status"] = "True"
		}
		if h.Message != "" {
			c["message"] = h.Message
		}
		list = append(list, c)
	}
	status, _, _ := unstructured.NestedMap(u.Object, "status")
	if status == nil {
		status = map[string]any{}
	}
	status["conditions"] = list
	u.Object["status"] = status
}
