package pushcontext

import (
	"fmt"
	"runtime"
	"testing"
)

// TestManyServicesOfOneAddress: hosts beyond the mesh may all stand for one address, like that of an egress gateway. A commit
// makes what is said of an address once, not once for each of them. It does not run beside other tests, since it counts bytes.
func TestManyServicesOfOneAddress(t *testing.T) {
	allocated := func(services int) uint64 {
		c := Commit{Mesh: testMesh()}
		for i := range services {
			s := spec{key: key("", "ns", fmt.Sprint("host-", i)), ports: []uint16{80}, endpoints: []specEndpoint{{ip: "10.0.0.1", cluster: "c1"}}}
			c.Services = append(c.Services, Change{s.key, s.fresh(c.Mesh)})
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		pc, _ := NewBuilder().Commit(c)
		runtime.ReadMemStats(&after)
		for _, in := range pc.Instances() {
			if got := len(in.Targets.Targets); got != services {
				t.Fatalf("%d targets of %d services", got, services)
			}
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	few, many := allocated(250), allocated(2000)
	if many > 16*few {
		t.Errorf("8 times the services take %d bytes, %d times as many", many, many/few)
	}
}
