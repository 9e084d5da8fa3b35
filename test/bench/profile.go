package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/test/bench/world"
)

// profile is a mesh, its proxies, and how much is done to them.
type profile struct {
	name     string
	about    string
	spec     world.Spec
	fleet    world.Fleet
	proxies  int
	sotw     int  // streams over SotW, if not as many: every acknowledgement repeats all names
	together int  // how many proxies may be connecting at one time, 0 for all
	warm     int  // proxies that connect afterwards, when all of their class is encoded
	light    bool // the floor gives most proxies little when they connect: they are too many

	idle         time.Duration
	gap          time.Duration // between isolated changes
	changes      int           // isolated endpoint changes
	churn        int           // background changes per second …
	churnChanges int           // … during which so many are timed
	creates      int
	burst        int
	burstEvery   time.Duration // between the changes of a burst

	floods int           // of the writer: rounds in which every service changes
	limit  time.Duration // of one step
}

// profiles are what can be measured by name. Small is comparable to what is published of other
// control planes: one cluster, a stream for each of a hundred sidecars, everything visible to all.
func profiles() []profile {
	return []profile{
		{
			name: "small", about: "1 cluster, 1 000 services × 10 endpoints, 10 namespaces, 100 streams connecting at once",
			spec:    world.Spec{Members: 1, Services: 1000, Spread: 1, PerMember: 10, Namespaces: 10, Zones: 3},
			fleet:   world.Fleet{Classes: 10},
			proxies: 100, warm: 10,
			idle: 3 * time.Second, gap: 300 * time.Millisecond, changes: 20, churn: 20, churnChanges: 10, creates: 5,
			burst: 300, burstEvery: 2 * time.Millisecond, floods: 3, limit: time.Minute,
		},
		{
			name: "big", about: "50 clusters in 5 networks, 10 000 services in 5 clusters each, 100 000 endpoints, 100 namespaces, 2 000 streams in 60 classes (SotW: 300 streams)",
			spec: world.Spec{Members: 50, Services: 10000, Spread: 5, PerMember: 2, Namespaces: 100, Networks: 5, Zones: 3,
				Workloads: true, Mixed: true},
			fleet:   world.Fleet{Classes: 60, Extensions: 516},
			proxies: 2000, sotw: 300, together: 32, warm: 60, light: true,
			idle: 3 * time.Second, gap: 500 * time.Millisecond, changes: 10, churn: 20, churnChanges: 10, creates: 2,
			burst: 300, burstEvery: 2 * time.Millisecond, floods: 3, limit: 3 * time.Minute,
		},
		{
			name: "tiny", about: "a mesh for trying the benchmark itself",
			spec: world.Spec{Members: 10, Services: 40, Spread: 5, PerMember: 2, Namespaces: 10, Networks: 3, Zones: 2,
				Workloads: true, Mixed: true},
			fleet:   world.Fleet{Classes: 10, Extensions: 8},
			proxies: 20, together: 8, warm: 4, light: true,
			idle: time.Millisecond, gap: time.Millisecond, changes: 2, churn: 50, churnChanges: 2, creates: 2,
			burst: 20, burstEvery: time.Millisecond, floods: 2, limit: time.Minute,
		},
	}
}

func profileNamed(name string) (profile, error) {
	ps := profiles()
	i := slices.IndexFunc(ps, func(p profile) bool { return p.name == name })
	if i < 0 {
		return profile{}, fmt.Errorf("there is no profile %q: use small or big", name)
	}
	return ps[i], nil
}
