package aggregate

import "net/netip"

// Indexed is the number of hosts and namespaces in the writer's indexes. To be called while the writer
// is idle in a synctest bubble.
func (c *Controller) Indexed() int { return len(c.state.hosts) + len(c.state.sel.spaces) }

// Depth is the number of distinct keys that wait for the writer.
func (c *Controller) Depth() int {
	n := 0
	for _, w := range c.mailboxes() {
		n += w.depth
	}
	return n
}

// Mailboxes is the number of mailboxes in use.
func (c *Controller) Mailboxes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.boxes)
}

// AutomaticAddress is the IPv4 address of a service that asks for one while all are free.
func AutomaticAddress(namespace, host string) netip.Addr {
	k := hostKey{namespace, host}
	return newAutomatic([]asker{{key: k}}, nil)[k][0].Addr()
}
