// Package secrets is where the hub will keep what it must not show: credentials of remote clusters,
// watched and checked before they are used, its serving certificates, the certificate authority of the
// mesh, and the certificates of gateways.
//
// Nothing is here yet. The hub reads folders, which need no credentials, and serves plaintext:
// `isthmus serve` refuses to start with --secure-grpc-addr set.
package secrets
