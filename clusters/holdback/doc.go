// Package holdback is the policy for registries whose services suddenly have no instances: it wraps a registry and decides when
// what that one takes away is taken away from proxies too.
//
// A registry that restarts says for a while that nothing is there, and so does one that has lost its storage; a service that was
// really taken down says the same. Told apart they are by how much goes at once:
//
//   - immediate: what the registry says is so.
//   - hold: a service that loses its last instance is held for a time.
//   - protect: removals wait two seconds for others. If together they are more than a share of the registry's endpoints, they are
//     held for a time; else they pass. Instances come back one by one: for a minute after contact was lost, services that lose
//     only some are held too, and all are judged at the end of that minute.
//
// Objects of configuration are judged like that too, each kind for itself: how many of its rows go, of those that there are. Services of
// ServiceEntries, and WorkloadEntries, are two such kinds besides the endpoints. What comes from one object goes alone.
//
// A held service keeps the endpoints that it had, beside those that the registry has. It is let go of when the registry has as
// many again, or when its time is over; an object, when it is there again, or its time is over. Some of what is held back are problems
// in the registry's status, by the object's name, and how many more there are; Held has the number of all, for metrics, and tells of each. Lost contact is no removal: registries say nothing then, and
// nothing is asked of this package.
package holdback
