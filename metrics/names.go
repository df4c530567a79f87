package metrics

import "sync"

// names are those that are told apart as labels: the first ones to come.
type names struct {
	most int

	mu   sync.Mutex
	seen map[string]bool
}

// label returns a name as a label.
func (n *names) label(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen == nil {
		n.seen = map[string]bool{}
	}
	if !n.seen[name] && len(n.seen) >= n.most {
		return other
	}
	n.seen[name] = true
	return name
}
