package sealed

import "github.com/berth-run/berth"

// A Rotation re-seals the keys of a database with another server's key. Rows keep their keys, so no row
// is written. A driver makes it part of one transaction, beside which no other runs in its process:
//
//  1. Store HideName of all containers with names.
//  2. Call Hold, and store the keys that Reseal returns, and Mark.
//  3. Commit, and call Commit. If either fails, call Abort.
type Rotation struct {
	keys      *Keys
	old, next *generation
	held      bool
}

// Rotate starts a Rotation to another server's key.
func (k *Keys) Rotate(root [32]byte) *Rotation {
	old := k.now.Load()
	return &Rotation{keys: k, old: old, next: &generation{ring: old.ring, root: root, sealed: true, strict: old.strict}}
}

// SetRing sets the ring of the new keys, if it is not the present one.
func (r *Rotation) SetRing(ring Ring) { r.next.ring = ring }

// Mark returns the mark of the new keys.
func (r *Rotation) Mark() []byte { return r.next.mark() }

// HideName is Keys.HideName with the new keys.
func (r *Rotation) HideName(p berth.ProjectID, name string) string { return r.next.hideName(p, name) }

// Reseal returns a key of the ring as the new ring has it.
func (r *Rotation) Reseal(number int64, part [32]byte) [32]byte {
	return r.old.reseal(r.next, number, part)
}

// Hold makes readers of keys that fail wait until Commit or Abort. It may be called again.
func (r *Rotation) Hold() {
	if !r.held {
		r.keys.swapping.Lock()
		r.held = true
	}
}

// Commit makes the new keys those of the database.
func (r *Rotation) Commit() {
	r.keys.now.Store(r.next)
	r.Abort()
}

// Abort ends the rotation.
func (r *Rotation) Abort() {
	if r.held {
		r.held = false
		r.keys.swapping.Unlock()
	}
}
