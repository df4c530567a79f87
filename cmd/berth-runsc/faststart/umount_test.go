package faststart

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// unmount runs umountCommand, with input as the content of its descriptor, and reports the rest.
func unmount(t *testing.T, input string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString(input); err != nil {
		t.Fatal(err)
	}
	w.Close()
	cmd := exec.Command("/bin/sh", "-c", exe+` umount --sync-fd=3 /proc; echo $?; test -e /proc/self && echo mounted`)
	cmd.ExtraFiles = []*os.File{r}
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, _ := cmd.CombinedOutput()
	return strings.ReplaceAll(string(out), "\n", " ")
}

func TestUnmount(t *testing.T) {
	if got := unmount(t, "x"); got != "0 " {
		t.Errorf("got %q", got)
	}
}

// The parent has ended before it gave the sign.
func TestUnmountWithoutParent(t *testing.T) {
	if got := unmount(t, ""); got != "1 mounted " {
		t.Errorf("got %q", got)
	}
}
