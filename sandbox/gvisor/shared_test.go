package gvisor

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// Large files travel in memory that this process and the sandbox share. The sandbox can still
// be written to a file afterwards, and what comes from that file shares memory again.
func TestSharedMemory(t *testing.T) {
	d := openTest(t, drivertest.StateDir(t))
	box := drivertest.Start(t, d, sandbox.Spec{ID: "first", Template: drivertest.Template(t)})
	want := make([]byte, 20<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(want)
	carry := func(box *drivertest.Box) {
		t.Helper()
		for range 2 { // the first large frame is what makes the memory
			if err := box.Client.WriteFile(t.Context(), "/mnt/data", "large", "", bytes.NewReader(want)); err != nil {
				t.Fatal(err)
			}
			body, size, err := box.Client.ReadFile(t.Context(), "/mnt/data", "large", "")
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(body)
			body.Close()
			if err != nil || size != int64(len(want)) || !bytes.Equal(got, want) {
				t.Fatalf("got %d of %d other bytes, %v", len(got), size, err)
			}
		}
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(maps), "berth-arena") {
			t.Error("no memory is shared")
		}
	}
	carry(box)
	image := box.Checkpoint()
	carry(box)
	box.Client.Close()
	second := drivertest.Restore(t, d, sandbox.Spec{ID: "second", Template: drivertest.Template(t)}, image)
	carry(second)
}
