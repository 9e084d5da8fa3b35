// Package env runs real Kubernetes API servers for tests: kube-apiservers that
// share one etcd, each with data, keys and rights of its own. There is no kubelet
// and there are no controllers: what a controller would write, such as
// EndpointSlices and the status of Pods, a test writes itself. It needs Linux.
//
// A package of tests has one [Pool], which its TestMain runs:
//
//	var servers env.Pool
//
//	func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		c := servers.Take(t, 2)
//		c[0].Apply(t, env.Service("shop/cart", 80), env.Slice("shop/cart", 8080, "10.1.0.1"))
//		link := c[1].Link(t) // what a client connects to; may be cut, hung and slowed
//		…
//	}
//
// A cluster that a test takes is empty, with the custom resource definitions of
// Istio, the Gateway API and the Multi-Cluster Services API ([Pool.Bare] gives
// it without them); it is no other test's until the test ends. Starting a server
// takes some seconds, emptying one that was used before a fraction of one.
//
// The binaries are $ISTHMUS_KUBE_APISERVER and $ISTHMUS_ETCD or, when these are
// unset, the ones in the user's cache, which test/tools/setup fills on first use:
// building the API server takes about eight minutes, once per machine.
package env
