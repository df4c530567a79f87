package sandbox

// Templates returns the digests of the templates that sandboxes run on, those in the
// pool included.
func (k *Keeper) Templates() map[string]bool {
	digests := map[string]bool{}
	for _, s := range k.all() {
		digests[s.body.Berth.Template] = true
	}
	k.pool.mu.Lock()
	defer k.pool.mu.Unlock()
	for _, s := range k.pool.ready {
		digests[s.body.Berth.Template] = true
	}
	return digests
}
