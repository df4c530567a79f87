package drivertest

import (
	"context"
	"testing"
	"time"

	"github.com/berth-run/berth/sandbox"
)

// freeze freezes a sandbox that writes continuously, and kills it: its programs survive the
// freeze, and its disk is freed by the kill.
func (s lifecycle) freeze(t *testing.T) {
	ctx := t.Context()
	d := s.open(t)
	f, ok := d.(sandbox.Freezer)
	if !ok {
		t.Skip("skipped: the driver cannot freeze")
	}
	b := Start(t, d, sandbox.Spec{ID: "freeze", Template: s.Template})
	b.Must("(while :; do :; done) >/dev/null 2>&1 & echo $! >pids")
	b.Must("(while :; do head -c 1000000 /dev/zero >>big; sync big; sleep 0.01; done) >/dev/null 2>&1 & echo $! >>pids")
	b.Must("sleep 1000 >/dev/null 2>&1 & echo $! >>pids")
	for range 10 {
		if err := f.Freeze(ctx, b.ID); err != nil {
			t.Fatal(err)
		}
		before := b.Stats()
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		if err := b.Client.Ping(short); err == nil {
			t.Error("Ping of a frozen sandbox: got an answer")
		}
		cancel()
		if after := b.Stats(); after.Disk != before.Disk || after.State != sandbox.StateRunning {
			t.Errorf("frozen: got %s with %d bytes, want %s with %d", after.State, after.Disk, sandbox.StateRunning,
				before.Disk)
		}
		if err := f.Thaw(ctx, b.ID); err != nil {
			t.Fatal(err)
		}
		b.Answers()
	}
	b.Must("for p in $(cat pids); do kill -0 $p || exit 1; done")
	for _, frozen := range []bool{true, false} {
		if frozen {
			if err := f.Freeze(ctx, b.ID); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Kill(ctx, b.ID); err != nil { // the second time it is dead
			t.Fatal(err)
		}
		if st := b.Stats(); st.State != sandbox.StateDead || st.Disk != 0 {
			t.Errorf("killed: got %s with %d bytes, want %s with none", st.State, st.Disk, sandbox.StateDead)
		}
	}
	for _, err := range []error{f.Freeze(ctx, b.ID), f.Thaw(ctx, b.ID), d.Destroy(ctx, b.ID)} {
		if err != nil {
			t.Errorf("a dead sandbox: %v", err)
		}
	}
}
