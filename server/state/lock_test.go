package state

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLockAfterKill locks a state directory whose lock is held by what a killed server left: a
// child that has not executed its program yet.
func TestLockAfterKill(t *testing.T) {
	killed := exec.Command("true")
	if err := killed.Run(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		holder int
		wait   bool
	}{
		{"killed", killed.Process.Pid, true},
		{"running", os.Getpid(), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state := t.TempDir()
			path := filepath.Join(state, "lock")
			if err := os.WriteFile(path, fmt.Appendln(nil, tt.holder), 0o600); err != nil {
				t.Fatal(err)
			}
			child, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer child.Close()
			fd := int(child.Fd())
			if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
				t.Fatal(err)
			}
			if tt.wait {
				time.AfterFunc(30*time.Millisecond, func() { _ = unix.Flock(fd, unix.LOCK_UN) })
			}
			unlock, err := Lock(state)
			if !tt.wait {
				if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d", tt.holder)) {
					t.Errorf("got %v, want an error that names process %d", err, tt.holder)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := unlock(); err != nil {
				t.Error(err)
			}
		})
	}
}
