// Package conformance is the suite that every registry passes. A provider's test describes its source
// with a [Harness] and calls [Run]:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Harness{New: func(t *testing.T, cluster model.ClusterID) conformance.Source { … }})
//	}
//
// The suite knows a source only as a [World] of services and addresses, and a registry only by what
// it tells its sink; each case states one clause of the contract of model.Registry. Registries that never change pass [RunFixed].
package conformance
