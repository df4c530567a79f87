package container

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// TestGuestDoesNotApplySnapshot starts a container whose guest answers but makes no progress
// with its snapshot. Its start fails with the reason.
func TestGuestDoesNotApplySnapshot(t *testing.T) {
	h, _ := newArchive(t)
	first := h.ready()
	h.sh(first, "echo one >f")
	s := h.snapshot(first)
	h.k.snapshots.stall = 100 * time.Millisecond
	large := make([]byte, 16<<20)
	rand.Read(large)
	h.driver.mu.Lock()
	h.driver.done = func(ctx context.Context, op, id string) {
		b := h.driver.box(id)
		if op != "start" || id == string(first) || b == nil {
			return
		}
		// A guest reads or writes one archive at a time, and the output of this one is not
		// read.
		if err := os.WriteFile(filepath.Join(b.work(), "large"), large, 0o600); err != nil {
			t.Error(err)
		}
		other := guest.NewClient(func(context.Context) (net.Conn, error) {
			ours, theirs := net.Pipe()
			b.accept <- theirs
			return ours, nil
		})
		t.Cleanup(func() { other.Close() })
		unread, err := other.Archive(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { unread.Close() })
	}
	h.driver.mu.Unlock()
	id := h.create(CreateRequest{Source: fromSnapshot(s.ID)}).ID
	_, err := h.trySh(t.Context(), id, "call", "true")
	wantError(t, err, berth.CodeUnavailable, "container_start_failed", "its snapshot could not be restored")
}
