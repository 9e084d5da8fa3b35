// Package file has registries whose source is a folder: [NewCluster] reads a member's objects from
// ordinary Kubernetes and Istio YAML, [NewMesh] reads the mesh-wide settings, and [Root] attaches a
// registry for each sub-folder of a folder, as they come and go.
//
// What is on disk is read level-triggered: any event on a folder has its files compared with what
// was last read, and only those that differ are read again. Events say when to look, never what to
// believe, so that atomic renames, symbolic links that are swapped (as Kubernetes does for mounted
// ConfigMaps) and a lost event all lead to the same state.
//
// Nothing half-written takes effect. A file that is written to is read when it has been quiet for a
// moment; a file that disappears or loses objects, for a little longer, since editors replace files
// in several steps. A file that can't be read, or is empty, keeps its last good content and shows
// as a [model.Problem]; a folder that can't be read makes the registry stale, never empty. A member
// whose folder has gone is detached half a second later, if it has not come back.
package file
