// Package xdstest has what tests of the xDS server need: a client that keeps state the way Envoy
// does ([Envoy]), transports with and without gRPC ([Pipe], [Link]), and small generators that make
// real resources ([Generators]).
package xdstest
