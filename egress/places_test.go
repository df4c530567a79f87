package egress

import "testing"

// One container cannot take the places of all: the last quarter is for those with few.
func TestPlaces(t *testing.T) {
	p := NewPlaces(400)
	for own := int64(1); own <= 300; own++ {
		if !p.take(own) {
			t.Fatalf("connection %d of one container: refused", own)
		}
	}
	if p.take(301) {
		t.Error("one container may take the last quarter")
	}
	for range 100 {
		if !p.take(1) {
			t.Fatal("a container with few connections: refused")
		}
	}
	if p.take(1) {
		t.Error("there are more than 400")
	}
	p.give()
	if !p.take(32) || !(*Places)(nil).take(1000) {
		t.Error("a place that is free: refused")
	}
}
