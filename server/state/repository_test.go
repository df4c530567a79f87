package state

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/backup"
	"github.com/berth-run/berth/internal/disktest"
	"github.com/berth-run/berth/internal/s3test"
)

// newState returns a state directory with a database and an audit record.
func newState(t *testing.T) string {
	state := t.TempDir()
	open, err := Open(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	record, err := audit.Open(filepath.Join(state, AuditDir), slog.New(slog.DiscardHandler))
	if err := errors.Join(err, record.Close(), open.Close()); err != nil {
		t.Fatal(err)
	}
	return state
}

// A backup to a directory and to a bucket stores what changed, and is restored on a machine that has only the key.
func TestRepository(t *testing.T) {
	state := newState(t)
	open, err := OpenExisting(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	content := filepath.Join(state, "files", "proj_a", "file-1")
	if err := os.MkdirAll(filepath.Dir(content), 0o700); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 3<<20)
	rand.Read(data) // never fails
	if err := os.WriteFile(content, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]func() string{
		"directory": func() string { return filepath.Join(t.TempDir(), "backups") },
		"bucket":    func() string { return s3test.Start(t).Bucket("backups") },
	} {
		t.Run(name, func(t *testing.T) {
			how := Repeated{To: to(), Version: "test", Keep: backup.Keep{All: time.Hour}}
			first, _, err := BackupTo(t.Context(), state, how)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := open.Projects.Archive(t.Context(), "proj_a"); err != nil {
				t.Fatal(err)
			}
			second, _, err := BackupTo(t.Context(), state, how)
			if err != nil {
				t.Fatal(err)
			}
			if second.Stored >= first.Stored {
				t.Errorf("the second backup stored %d bytes, the first %d", second.Stored, first.Stored)
			}
			key, err := BackupKey(state)
			if err != nil {
				t.Fatal(err)
			}
			from := From{URL: how.To, Key: key, At: time.Now()}
			if m, err := VerifyBackup(t.Context(), from, t.TempDir()); err != nil || m.Name != second.Name {
				t.Errorf("verify: got %+v, %v", m, err)
			}
			restored := filepath.Join(t.TempDir(), "state")
			if m, err := RestoreFrom(t.Context(), From{URL: how.To, Key: key, At: first.CreatedAt}, restored, "", ""); err != nil ||
				m.Name != first.Name {
				t.Fatalf("restore: got %+v, %v", m, err)
			}
			if info, err := os.Stat(filepath.Join(restored, "files", "proj_a", "file-1")); err != nil || info.Size() != 3<<20 {
				t.Errorf("the content: %v, %v", info, err)
			}
			// The restored server must not write to the repository of the original unless it takes it, with its key.
			if _, _, err := BackupTo(t.Context(), restored, how); err == nil {
				t.Error("a server with another key wrote to the repository")
			}
			if err := os.WriteFile(filepath.Join(restored, backupKeyFile), []byte(key.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := BackupTo(t.Context(), restored, how); !errors.Is(err, backup.ErrWriter) {
				t.Errorf("two servers: got %v", err)
			}
			how.Take = true
			if _, _, err := BackupTo(t.Context(), restored, how); err != nil {
				t.Errorf("take: %v", err)
			}
			how.Take = false
			if _, _, err := BackupTo(t.Context(), state, how); !errors.Is(err, backup.ErrWriter) {
				t.Errorf("the former writer: got %v", err)
			}
			from.Key = backup.NewKey()
			if _, err := RestoreFrom(t.Context(), from, filepath.Join(t.TempDir(), "s"), "", ""); err == nil {
				t.Error("another key restored")
			}
		})
	}
}

// A repository that is gone, as one on a volume that is not mounted, is not begun anew.
func TestRepositoryGone(t *testing.T) {
	state := newState(t)
	to := filepath.Join(t.TempDir(), "backups")
	if _, _, err := BackupTo(t.Context(), state, Repeated{To: to}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if _, _, err := BackupTo(t.Context(), state, Repeated{To: to}); !errors.Is(err, backup.ErrMissing) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(to); err == nil {
		t.Error("the directory was made")
	}
}

// Nothing is removed from a repository that hides a backup: its packs would be lost for good.
func TestRepositoryHides(t *testing.T) {
	state := newState(t)
	to := filepath.Join(t.TempDir(), "backups")
	first, _, err := BackupTo(t.Context(), state, Repeated{To: to})
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(to, "backups", first.Name)
	if err := os.Rename(at, to+"-hidden"); err != nil {
		t.Fatal(err)
	}
	how := Repeated{To: to, Keep: backup.Keep{All: time.Nanosecond}}
	if m, _, err := BackupTo(t.Context(), state, how); m == nil || !errors.Is(err, backup.ErrDamaged) {
		t.Errorf("got %+v, %v", m, err)
	}
	if err := os.Rename(to+"-hidden", at); err != nil {
		t.Fatal(err)
	}
	if _, pruned, err := BackupTo(t.Context(), state, how); err != nil || len(pruned.Names) != 2 {
		t.Errorf("got %+v, %v", pruned, err)
	}
}

// A backup to a volume that is full, or to a bucket that is away, fails, and the next one succeeds.
func TestRepositoryOutage(t *testing.T) {
	state := newState(t)
	if err := os.MkdirAll(filepath.Join(state, "files", "p"), 0o700); err != nil {
		t.Fatal(err)
	}
	add := func(name string, size int) {
		data := make([]byte, size)
		rand.Read(data) // never fails
		if err := os.WriteFile(filepath.Join(state, "files", "p", name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bucket := s3test.Start(t)
	to := bucket.Bucket("backups")
	volume := filepath.Join(disktest.Ext4(t, 32<<20), "backups")
	var filler string
	for _, tt := range []struct {
		to        string
		cut, mend func()
	}{
		{to, bucket.Stop, bucket.Restart},
		{volume, func() { filler = disktest.Fill(t, filepath.Dir(volume), 64<<10) }, func() { os.Remove(filler) }},
	} {
		first, _, err := BackupTo(t.Context(), state, Repeated{To: tt.to})
		if err != nil {
			t.Fatal(err)
		}
		add(filepath.Base(filepath.Dir(tt.to))+"-more", 1<<20)
		tt.cut()
		if _, _, err := BackupTo(t.Context(), state, Repeated{To: tt.to}); err == nil {
			t.Errorf("%s: a backup succeeded", tt.to)
		}
		tt.mend()
		key, err := BackupKey(state)
		if err != nil {
			t.Fatal(err)
		}
		from := From{URL: tt.to, Key: key, At: time.Now()}
		if m, err := VerifyBackup(t.Context(), from, t.TempDir()); err != nil || m.Name != first.Name {
			t.Errorf("%s: the backup from before: %v", tt.to, err)
		}
		if _, _, err := BackupTo(t.Context(), state, Repeated{To: tt.to}); err != nil {
			t.Errorf("%s: after the outage: %v", tt.to, err)
		}
		from.At = time.Now()
		if m, err := VerifyBackup(t.Context(), from, t.TempDir()); err != nil || m.Name == first.Name {
			t.Errorf("%s: the backup after the outage: %v", tt.to, err)
		}
	}
}
