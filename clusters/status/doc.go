// Package status writes on configuration objects what the hub makes of them, for those who look at the objects and not at the
// hub: the condition Accepted, the findings as validation messages in the form of Istio's analysis, and the generation that
// was looked at (istio.meta.v1alpha1.IstioStatus).
//
// Of several replicas the one that holds a Lease writes. A write is made only where what is there differs, at a bounded
// rate; a cluster that does not allow it is told of once and left alone for a while.
package status
