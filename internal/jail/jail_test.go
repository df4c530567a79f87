package jail_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/jail"
)

// memory is the limit of the tests. It has room for the shadow memory of the race detector.
const memory = 1 << 30

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "allocate" {
		if err := jail.Enter(jail.Limits{CPU: 60, Memory: memory}); err != nil {
			fmt.Println("enter:", err)
			os.Exit(3)
		}
		debug.SetGCPercent(-1) // a collection maps memory, and would notice
		fmt.Println("entered")
		fmt.Println("allocated", allocate(os.Args[2]))
		return
	}
	os.Exit(m.Run())
}

// allocate uses twice the memory of the limit, and returns how much it has.
func allocate(how string) (n int) {
	if how == "over reserved addresses" {
		at, err := unix.MmapPtr(-1, 0, nil, 2*memory, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err == nil {
			at, err = unix.MmapPtr(-1, 0, at, 2*memory, unix.PROT_READ|unix.PROT_WRITE,
				unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED)
		}
		if err != nil {
			panic(err)
		}
		clear(unsafe.Slice((*byte)(at), 2*memory))
		return 2 * memory
	}
	var kept [][]byte
	piece := map[string]int{"at once": 2 * memory, "in pieces": 1 << 20}[how]
	for n < 2*memory {
		b := make([]byte, piece)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		kept = append(kept, b)
		n += len(kept[len(kept)-1])
	}
	return n
}

// A process cannot use more memory than its limit, whichever way it asks for it.
func TestMemory(t *testing.T) {
	for _, how := range []string{"at once", "in pieces", "over reserved addresses"} {
		for range 3 {
			out, err := exec.Command(os.Args[0], "allocate", how).CombinedOutput()
			if err == nil || !strings.HasPrefix(string(out), "entered") || strings.Contains(string(out), "allocated") {
				t.Fatalf("%s: %v, %.200s; want it to be ended", how, err, out)
			}
		}
	}
}
