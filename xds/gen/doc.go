// Package gen turns views into Envoy resources.
//
// A [Generator] makes the resources of one xDS type. It is a set of pure functions: what it builds
// depends only on the view it is given and on the traits of the [Class] that it declared for that
// view, so the memo key (view, generator, class) is complete by construction. To add a type, write
// one file with a Generator and add it to [All].
package gen
