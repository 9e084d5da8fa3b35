// Package registries attaches the registries that are declared: by Registry objects and the McpBridge in the system namespace of the config
// cluster, with the Secrets that these name. Read says which declarations are in force; the Manager keeps one registry attached for each.
//
// Each is independent of all others. A change of a declaration or of its Secrets makes a new instance, attached beside the one in force,
// which serves until the new one has delivered everything. What can't be made, for want of a Secret or because the provider refuses
// the settings, is attached as a registry that never delivers and says why.
package registries
