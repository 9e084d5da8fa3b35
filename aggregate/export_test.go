package aggregate

// Indexed is the number of hosts and namespaces in the writer's indexes. To be called while the writer
// is idle in a synctest bubble.
func (c *Controller) Indexed() int { return len(c.state.hosts) + len(c.state.sel.spaces) }
