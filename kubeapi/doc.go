// Package kubeapi keeps stores equal to what a Kubernetes API server holds, and says how contact with it is.
//
// A [Client] has connections of its own: they end with it, and none of them ever carries another credential. A
// [Feed] lists the objects of one kind and watches them from then on, into a [Store]. How its requests go is noted
// in the client's [Contact], which judges by that whether what is known may be outdated, and tells in a sentence
// why, and what to do about it: whoever reads an API server says the same words of it.
//
// A server is distrusted: an answer counts only if it is what was asked for, and it is bounded in bytes, items and
// parts before anything is made of it; an event of a watch is bounded too; lists end. What is known is never taken
// for gone because of a server in trouble.
package kubeapi
