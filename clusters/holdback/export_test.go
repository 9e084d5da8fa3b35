package holdback

// Looks is how often the last run of those that share a Handover has looked through all that it holds.
func Looks(h *Handover) int {
	h.mu.Lock()
	g := h.last
	h.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.looks
}
