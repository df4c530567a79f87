package metrics

import "sync"

// names is a bounded set of label values. It accepts the first max names.
type names struct {
	max int

	mu   sync.Mutex
	seen map[string]bool
}

// label returns name, or other if the set is full.
func (n *names) label(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen == nil {
		n.seen = map[string]bool{}
	}
	if !n.seen[name] && len(n.seen) >= n.max {
		return other
	}
	n.seen[name] = true
	return name
}
