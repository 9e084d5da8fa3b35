package soak_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/isthmus-mesh/isthmus/test/env"
)

// namespace holds all that the tests make.
const namespace = "shop"

// member is a cluster, the way that the hub takes to it, and what the hub may know of it.
type member struct {
	*env.Cluster
	id   string
	link *env.Link
	hash string // of the newest credential, as the hub shows it

	joined bool // the config cluster has a credential, or it is that cluster
	bad    bool // the newest credential is of no use
	down   bool // the API server does not run
	way    way

	services map[string]bool // that change made
	dirty    bool            // changed since now was read
	now      content
	// known is what the hub may have of a joined cluster without contact: what was there when contact
	// was lost, before or after the last change.
	known []content
}

// way is how the link to an API server is.
type way string

const (
	open way = "open"
	cut  way = "cut"
	hung way = "hung"
)

// contact reports whether the hub can read the cluster.
func (x *member) contact() bool { return !x.down && x.way == open }

// stays is the endpoint of the service steady that every cluster has all the time,
// while others of it come and go.
func (m *mesh) stays(x *member) string { return fmt.Sprintf("%s:%d", m.stayIP(x), env.AppPort) }

func (m *mesh) stayIP(x *member) string { return m.ip(x, 0) }

// ip is an address that only one cluster has.
func (m *mesh) ip(x *member, n int) string {
	return fmt.Sprintf("10.%d.0.%d", 10+slices.Index(m.all(), x), n+1)
}

// steady changes the endpoints of that service.
func (m *mesh) steady(r *rand.Rand, x *member) {
	m.Helper()
	x.dirty = true
	ips := []string{m.stayIP(x)}
	for i := range r.IntN(4) {
		ips = append(ips, fmt.Sprintf("10.8.%d.%d", i, 1+r.IntN(200)))
	}
	r.Shuffle(len(ips), func(i, j int) { ips[i], ips[j] = ips[j], ips[i] })
	x.Apply(m.T, env.Slice(namespace+"/steady", env.AppPort, ips...))
}

// Everything has the same names in every cluster.
const pods, nodes, kinds = 6, 2, 6

func (m *mesh) pod(r *rand.Rand, x *member, i int) any {
	p := env.Pod(fmt.Sprintf("%s/p%d", namespace, i), "app", m.ip(x, 1+i))
	p.Spec.NodeName = fmt.Sprintf("n%d", i%nodes)
	p.Labels["version"] = pick(r, "v1", "v2", "v3")
	if r.IntN(3) == 0 {
		p.Labels[pickedLabel] = "yes"
	}
	if i%2 == 0 {
		p.Labels["security.istio.io/tlsMode"] = "istio"
	}
	return p
}

func node(r *rand.Rand, i int) any {
	return env.Node(fmt.Sprintf("n%d", i), "r1", pick(r, "z1", "z2", "z3"))
}

// furnish makes what a cluster begins with.
func (m *mesh) furnish(r *rand.Rand, x *member) {
	m.Helper()
	x.services, x.way = map[string]bool{}, open
	x.Apply(m.T, env.Service(namespace+"/steady", 80))
	m.steady(r, x)
	x.Apply(m.T, picking)
	for i := range nodes {
		x.Apply(m.T, node(r, i))
	}
	for i := range pods {
		x.Apply(m.T, m.pod(r, x, i))
	}
	for range 3 {
		m.change(r, x)
	}
	for range 2 * perKind {
		m.configure(r, x)
	}
	x.dirty = true
}

// level gives a cluster the content that it has at all other times when this is called.
func (m *mesh) level(x *member) {
	m.Helper()
	for i := range kinds {
		name := fmt.Sprintf("s%d", i)
		x.Delete(m.T, slice(name, 1), slice(name, 2), env.Service(namespace+"/"+name, 80))
	}
	for i := range perKind {
		for kind, name := range map[string]string{"WorkloadEntry": "vm%d", "ServiceEntry": "e%d"} {
			x.Delete(m.T, istio(kind, fmt.Sprintf(name, i)))
		}
		for _, name := range []string{"s%d", "e%d"} {
			x.Delete(m.T, istio("DestinationRule", fmt.Sprintf(name, i)))
		}
	}
	m.furnish(rand.New(rand.NewPCG(1, 1)), x)
}

// istio names an object of the API.
func istio(kind, name string) string {
	return fmt.Sprintf("{apiVersion: networking.istio.io/v1, kind: %s, metadata: {name: %s, namespace: %s}}", kind, name, namespace)
}

// change makes one random change in a cluster.
func (m *mesh) change(r *rand.Rand, x *member) {
	m.Helper()
	x.dirty = true
	name := fmt.Sprintf("s%d", r.IntN(kinds))
	id := namespace + "/" + name
	switch n := r.IntN(20); {
	case n >= 14:
		m.configure(r, x)
	case n >= 10:
		m.steady(r, x)
	case n < 6:
		if !x.services[name] {
			x.services[name] = true
			x.Apply(m.T, env.Service(id, 80))
		}
		m.fill(r, x, name)
	case n == 6:
		x.Apply(m.T, m.pod(r, x, r.IntN(pods)))
	case n == 7:
		x.Delete(m.T, m.pod(r, x, r.IntN(pods)))
	case n == 8:
		x.Apply(m.T, node(r, r.IntN(nodes)))
	case x.services[name]:
		delete(x.services, name)
		for _, s := range []int{1, 2} {
			x.Delete(m.T, slice(name, s))
		}
		x.Delete(m.T, env.Service(id, 80))
	}
}

// fill gives a service other endpoints in one of its slices.
func (m *mesh) fill(r *rand.Rand, x *member, name string) {
	m.Helper()
	x.dirty = true
	n := pick(r, 1, 1, 2)
	s := slice(name, n)
	if r.IntN(8) == 0 {
		x.Delete(m.T, s)
		return
	}
	for i := range pods {
		// One Pod is in both slices, and ready in both.
		first, second := i <= 3, i >= 3
		if n == 1 && !first || n == 2 && !second || r.IntN(2) == 0 {
			continue
		}
		e := env.Of(env.Endpoint(m.ip(x, 1+i)), env.Pod(fmt.Sprintf("%s/p%d", namespace, i), "app", ""))
		if i != 3 {
			*e.Conditions.Ready = r.IntN(4) > 0
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	for range r.IntN(3) { // no Pods stand behind these, and several clusters may have them
		e := env.Endpoint(fmt.Sprintf("10.9.%d.%d", n, 1+r.IntN(200)))
		if !slices.ContainsFunc(s.Endpoints, func(o discoveryv1.Endpoint) bool { return o.Addresses[0] == e.Addresses[0] }) {
			s.Endpoints = append(s.Endpoints, e)
		}
	}
	x.Apply(m.T, s)
}

func slice(service string, n int) *discoveryv1.EndpointSlice {
	s := env.Slice(namespace+"/"+service, env.AppPort)
	s.Name = fmt.Sprintf("%s-%d", service, n)
	return s
}

// refresh reads what an API server says now.
func (m *mesh) refresh(x *member) {
	m.Helper()
	if !x.dirty || x.down {
		return
	}
	a, err := read(m.Context(), x.Cluster)
	if err != nil {
		m.Fatalf("read %s: %v", x.id, err)
	}
	x.now, x.dirty = a.content(x == m.config), false
}

// expected lists what the hub may have of a cluster.
func (m *mesh) expected(x *member) []content {
	m.Helper()
	switch {
	case !x.joined:
		return []content{{}}
	case !x.contact():
		return x.known
	}
	m.refresh(x)
	return []content{x.now}
}

// matches is the expected content that the hub has.
func matches(x *member, got []string, want []content) (content, error) {
	for _, c := range want {
		if slices.Equal(got, c.lines) {
			return c, nil
		}
	}
	return content{}, fmt.Errorf("%s (joined: %t, way: %s, down: %t): the hub differs from the rebuild by%s", x.id, x.joined, x.way, x.down,
		difference(got, want[len(want)-1].lines))
}

// settle waits until the hub has what the API servers of the clusters say.
func (m *mesh) settle(xs ...*member) (chosen map[*member]content) {
	m.Helper()
	want := map[*member][]content{}
	for _, x := range xs {
		want[x] = m.expected(x)
	}
	m.eventually("the hub to have what the API servers say", func() error {
		got, err := m.knows()
		if err != nil {
			return err
		}
		chosen = map[*member]content{}
		for _, x := range xs {
			c, bad := matches(x, got[x.id], want[x])
			chosen[x], err = c, errors.Join(err, bad)
		}
		return err
	})
	return chosen
}

// compare waits until the hub and its proxies have what can be known of all clusters, and nothing else.
func (m *mesh) compare() {
	m.Helper()
	chosen := m.settle(m.all()...)
	got, err := m.knows()
	if err != nil {
		m.Fatal(err)
	}
	for id := range got {
		if !slices.ContainsFunc(m.all(), func(x *member) bool { return x.id == id }) {
			m.Fatalf("the hub knows a cluster %q", id)
		}
	}
	all := content{usable: map[string][]string{}, ejects: chosen[m.config].ejects}
	for _, c := range chosen {
		for name, list := range c.usable {
			if ours(name) {
				all.usable[name] = append(all.usable[name], list...)
			}
		}
	}
	all.tidy()
	m.agree(all)
	for _, x := range m.all() {
		if slices.Contains(chosen[x].usable[outbound("steady")], m.stays(x)) {
			m.guard.demand("steady", m.stays(x))
		}
	}
}
