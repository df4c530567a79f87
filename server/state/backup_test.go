package state

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/disktest"
	"golang.org/x/sys/unix"
)

// A backup in the state directory would be part of the next one.
func TestBackupInState(t *testing.T) {
	state := t.TempDir()
	open, err := Open(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if _, err := Backup(t.Context(), state, filepath.Join(state, "backup"), "test", nil); err == nil ||
		!strings.Contains(err.Error(), "outside of it") {
		t.Errorf("got %v", err)
	}
}

// The server's status shows the last complete backup, and none after one that failed or a file that is damaged.
func TestLastBackup(t *testing.T) {
	state := t.TempDir()
	open, err := Open(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	record, err := audit.Open(filepath.Join(state, AuditDir), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer record.Close()
	if got := LastBackup(state); got != nil {
		t.Errorf("got %+v before the first", got)
	}
	to := filepath.Join(t.TempDir(), "backup")
	m, err := Backup(t.Context(), state, to, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	got := LastBackup(state)
	if got == nil || got.At != m.CreatedAt.Unix() || got.Bytes != m.Bytes || got.Files != int64(m.Files) {
		t.Errorf("got %+v, want %+v", got, m)
	}
	if _, err := Backup(t.Context(), state, to, "test", nil); err == nil {
		t.Error("a backup replaced another")
	}
	if again := LastBackup(state); again == nil || *again != *got {
		t.Errorf("got %+v after a backup that failed", again)
	}
	if err := os.WriteFile(filepath.Join(state, lastBackup), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := LastBackup(state); got != nil {
		t.Errorf("got %+v of a damaged file", got)
	}
}

// A volume that a killed backup left frozen is not copied, and the error says what to do.
func TestBackupOfFrozenVolume(t *testing.T) {
	dir := disktest.Ext4(t, 32<<20)
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := unix.IoctlSetInt(int(d.Fd()), fiFreeze, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.IoctlSetInt(int(d.Fd()), fiThaw, 0)
	err = copyVolume(t.Context(), filepath.Join(filepath.Dir(dir), "image"), dir, filepath.Join(t.TempDir(),
		"copy.img"))
	if err == nil || !strings.Contains(err.Error(), "fsfreeze --unfreeze") {
		t.Errorf("got %v", err)
	}
}

// The copy of a mounted volume contains all earlier writes.
func TestBackupOfMountedVolume(t *testing.T) {
	dir := disktest.Ext4(t, 32<<20)
	image := filepath.Join(filepath.Dir(dir), "image")
	want := bytes.Repeat([]byte("content\n"), 10_000)
	if err := os.WriteFile(filepath.Join(dir, "file"), want, 0o600); err != nil { // not synced
		t.Fatal(err)
	}
	to, at := filepath.Join(t.TempDir(), "copy.img"), t.TempDir()
	if err := copyVolume(t.Context(), image, dir, to); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "later"), want, 0o600); err != nil {
		t.Fatalf("a write to the volume after its copy: %v", err)
	}
	if out, err := exec.Command("mount", "-o", "loop,ro", to, at).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	defer unix.Unmount(at, 0)
	if got, err := os.ReadFile(filepath.Join(at, "file")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file in the copy has %d bytes, %v", len(got), err)
	}
}
