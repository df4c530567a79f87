package guest_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// If there is no room for a call's state, the call reports it and the earlier state stays.
// With room, state is saved again.
func TestNoRoomForState(t *testing.T) {
	b := newBox(t)
	if err := unix.Mount("full", b.state, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	defer unix.Unmount(b.state, unix.MNT_DETACH)
	c := b.client(t)
	one(t, c, "export KEPT=1")
	fill := filepath.Join(b.state, "fill")
	f, err := os.Create(fill)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	f.Close()
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	for range 2 {
		got := one(t, c, "cd / && export X=1 && echo done")
		if got.Stdout != "done\n" || got.Exit != 0 || !strings.Contains(got.Stderr,
			"working directory and exported variables do not carry over") {
			t.Errorf("without room: got %+v", got)
		}
		if got := one(t, c, `echo "$PWD ${X-unset} $KEPT"; exec true`); got.Stdout != b.dir+" unset 1\n" {
			t.Errorf("the call after: got %+v", got)
		}
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	if got := one(t, c, "cd / && export X=1"); got.Stderr != "" {
		t.Errorf("with room: got %+v", got)
	}
	if got := one(t, c, `echo "$PWD ${X-unset} $KEPT"`); got.Stdout != "/ 1 1\n" || got.Stderr != "" {
		t.Errorf("with room: got %+v", got)
	}
}
