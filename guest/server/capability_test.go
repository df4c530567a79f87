package server

import (
	"bytes"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStarterThread creates starters until one could have had the main thread, whose
// capabilities the kernel shows as those of the process.
func TestStarterThread(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: needs root, to drop capabilities")
	}
	bounding := func() []byte {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := bytes.Cut(status, []byte("CapBnd:"))
		line, _, _ := bytes.Cut(after, []byte("\n"))
		return bytes.TrimSpace(line)
	}
	before := bounding()
	for range 200 {
		s, err := newStarter()
		if err != nil {
			t.Fatal(err)
		}
		defer close(s)
		held := make(chan int)
		s <- func() {
			n, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_NET_ADMIN, 0, 0, 0)
			if err != nil {
				t.Error(err)
			}
			held <- n
		}
		if n := <-held; n != 0 {
			t.Fatal("the starter's thread: got CAP_NET_ADMIN in its bounding set")
		}
		if got := bounding(); !bytes.Equal(got, before) {
			t.Fatalf("the main thread's bounding set: got %s, want %s", got, before)
		}
		runtime.Gosched()
	}
}
