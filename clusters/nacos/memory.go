package nacos

import "github.com/isthmus-mesh/isthmus/clusters/foreign"

// Memory is what a Registry leaves to the one that replaces it.
type Memory = foreign.Memory[scope, serviceInfo]
