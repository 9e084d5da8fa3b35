// Package wire reads and writes the messages of the aggregated discovery service without building
// protobuf messages: responses are put together from byte slices that all streams share, and
// requests are scanned for the few fields that matter. The formats are those of DiscoveryRequest,
// DiscoveryResponse, DeltaDiscoveryRequest and DeltaDiscoveryResponse in
// envoy/service/discovery/v3/discovery.proto.
package wire
