package host

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOwnThread checks that a thread that enters a sandbox's namespaces is never the process's
// first, and ends.
func TestOwnThread(t *testing.T) {
	var mu sync.Mutex
	used := make(map[int]bool)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			err := OnOwnThread(func() error {
				mu.Lock()
				defer mu.Unlock()
				used[unix.Gettid()] = true
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if used[os.Getpid()] {
		t.Error("the first thread was used")
	}
	for end := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		alive := slices.DeleteFunc(slices.Collect(maps.Keys(used)), func(tid int) bool {
			_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid))
			return err != nil
		})
		if len(alive) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("threads %v did not end", alive)
		}
	}
}
