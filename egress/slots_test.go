package egress

import "testing"

// One container cannot use up all slots: the last quarter is for containers with few connections.
func TestPlaces(t *testing.T) {
	p := NewSlots(400)
	for own := int64(1); own <= 300; own++ {
		if !p.acquire(own) {
			t.Fatalf("connection %d of one container: refused", own)
		}
	}
	if p.acquire(301) {
		t.Error("one container acquired a slot of the last quarter")
	}
	for range 100 {
		if !p.acquire(1) {
			t.Fatal("a container with few connections: refused")
		}
	}
	if p.acquire(1) {
		t.Error("acquired more than 400 slots")
	}
	p.release()
	if !p.acquire(32) || !(*Slots)(nil).acquire(1000) {
		t.Error("a free slot: refused")
	}
}
