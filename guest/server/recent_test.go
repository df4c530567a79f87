package server

import (
	"bytes"
	"testing"
)

// TestRecent: the end of a terminal's output is held, and not more than twice its size.
func TestRecent(t *testing.T) {
	var all, recent []byte
	for i := range 100 {
		data := bytes.Repeat([]byte{byte(i)}, i*1000)
		all, recent = append(all, data...), appendRecent(recent, data)
		if len(recent) > 2*maxRecent {
			t.Fatalf("holds %d bytes", len(recent))
		}
		want := all[max(0, len(all)-maxRecent):]
		if got := recent[max(0, len(recent)-maxRecent):]; !bytes.Equal(got, want) {
			t.Fatalf("after %d bytes: got other %d bytes", len(all), len(got))
		}
	}
	if got := appendRecent(recent, make([]byte, 3*maxRecent)); len(got) < maxRecent || len(got) > 3*maxRecent {
		t.Errorf("a large piece: holds %d bytes", len(got))
	}
}
