package microvm

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/disktest"
	"github.com/berth-run/berth/internal/longtest"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// TestFullVolume fills the volume of a sandbox that writes. QEMU stops the machine then. A driver
// that is opened on the full volume can freeze, thaw and kill it: it continues when there is
// space, and its blocks are free when it is killed.
func TestFullVolume(t *testing.T) {
	longtest.Skip(t)
	state := filepath.Join(disktest.Ext4(t, 256<<20), "state")
	b := drivertest.Start(t, openTest(t, state), sandbox.Spec{ID: "full", Template: drivertest.Template(t)})
	b.Must("head -c 20000000 /dev/urandom >big && sync")
	fill := disktest.Fill(t, state, 1<<20)
	b.Must("(head -c 20000000 /dev/urandom >more; sync; echo done >written) >/dev/null 2>&1 &")
	stopped := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return b.Client.Ping(ctx) != nil
	}
	for deadline := time.Now().Add(2 * time.Minute); !stopped(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the machine still answers on a full volume")
		}
	}

	d, err := OpenExisting(state, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Freeze(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	if st, err := d.Stats(t.Context(), b.ID); err != nil || st.State != sandbox.StateRunning {
		t.Errorf("frozen: got %+v, %v, want running", st, err)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	if err := d.Thaw(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}

	again := drivertest.Attach(t, d, b.ID) // the first connection may have been lost
	again.Answers()
	again.Must("until test -e written; do sleep .1; done; test $(stat -c %s more) = 20000000")

	disktest.Fill(t, state, 64<<10)
	if err := d.Freeze(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	if err := d.Kill(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	if st, err := d.Stats(t.Context(), b.ID); err != nil || st.State != sandbox.StateDead || st.Disk != 0 {
		t.Errorf("killed: got %+v, %v, want dead without blocks", st, err)
	}
	if free := disktest.Free(t, state); free < 40_000_000 {
		t.Errorf("killed: %d bytes are free, want those of the sandbox", free)
	}
}
