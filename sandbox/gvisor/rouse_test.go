package gvisor

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// A server that sent a guest to sleep may die before its memory is written: the next connection
// wakes the guest, and need not wait until it wakes by itself.
func TestRouse(t *testing.T) {
	d := openTest(t, drivertest.StateDir(t))
	b := drivertest.Start(t, d, sandbox.Spec{ID: "asleep", Template: drivertest.Template(t)})
	s, err := d.base.Find(b.ID)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := b.Client.Sleep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.awaitSleep(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		b.Answers()
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it woke only by itself, in %v", took)
		}
	}
	// An awake guest that has lost its socket is not reachable, and is not woken later, when
	// its memory may be being written.
	b.Must("sudo rm " + guestSocket)
	if conn, err := d.Dial(t.Context(), b.ID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, %v, want no socket", conn, err)
	}
	if _, err := os.Lstat(s.run("guest/" + wakeName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the wake file is left: %v", err)
	}
}
