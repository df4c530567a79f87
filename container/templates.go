package container

// Templates returns the digests of the templates that sandboxes run on, those in
// pools included.
func (k *Service) Templates() map[string]bool {
	digests := map[string]bool{}
	for _, s := range k.index.all() {
		digests[s.body.Berth.Template] = true
	}
	for _, p := range k.pools.all {
		p.mu.Lock()
		for _, s := range p.ready {
			digests[s.body.Berth.Template] = true
		}
		p.mu.Unlock()
	}
	return digests
}
