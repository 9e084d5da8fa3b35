// Package analysis looks at a snapshot as a whole and tells the authors of configuration what they should know: what is
// wrong with an object on its own (see clusters/kube/validate), what of it is not served, what another object took, and
// what it refers to that is not there. It reads published snapshots and changes nothing; nothing that proxies are sent
// depends on it.
package analysis
