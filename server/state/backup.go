package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/statefile"
	"github.com/berth-run/berth/store/postgres"
	"github.com/berth-run/berth/store/sqlite"
	"github.com/berth-run/berth/store/transfer"
)

// incomplete is added to the name of a backup until it is complete.
const incomplete = ".incomplete"

// Backup copies the state of a server to a new directory, in an order that makes the copy consistent
// while servers run: a row of the database is written after the content that it refers to, and its key
// is erased before that content is removed. The copy is a state directory with a database file and
// with the contents of blobs, wherever the server has them, and a Manifest. It has the name to only
// when it is complete and on the disk. progress, if it is not nil, is called before each step with what is
// copied.
func Backup(ctx context.Context, state, to, version string, progress func(what string)) (m *Manifest, err error) {
	if !HasDatabase(state) {
		return nil, &fs.PathError{Op: "open database", Path: state, Err: fs.ErrNotExist}
	}
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, fmt.Errorf("%s exists", to))
	}
	if inside, err := isBelow(to, state); err != nil {
		return nil, err
	} else if inside {
		return nil, fmt.Errorf("%s is in the state directory %s; choose a directory outside of it", to, state)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return nil, err
	}
	work := to + incomplete
	if err := os.Mkdir(work, 0o700); errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s exists: another backup is being made, or was interrupted; then remove it", work)
	} else if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(work))
		}
	}()
	db, err := OpenDatabase(ctx, state, Use{URL: os.Getenv(StoreVariable)})
	if err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func(string) {}
	}
	b := &copying{progress: progress, state: state, to: work, db: db,
		m: Manifest{Format: manifestFormat, Berth: version, CreatedAt: time.Now().UTC().Truncate(time.Second)}}
	if err := errors.Join(b.copyAll(ctx), db.Close()); err != nil {
		return nil, err
	}
	progress("checksums")
	if err := b.m.write(ctx, work); err != nil {
		return nil, fmt.Errorf("write checksums: %w", err)
	}
	if err := errors.Join(syncAll(work), os.Rename(work, to), syncAll(filepath.Dir(to))); err != nil {
		return nil, err
	}
	noteBackup(state, &b.m)
	return &b.m, nil
}

// lastBackup is the file of a state directory with the last backup of it, which the status of the server shows.
const lastBackup = "last_backup.json"

// noteBackup notes that a backup is complete. It is complete also if that fails.
func noteBackup(state string, m *Manifest) {
	text, err := json.Marshal(berth.BackupStatus{At: m.CreatedAt.Unix(), Files: int64(m.Files), Bytes: m.Bytes})
	if err == nil {
		// It has no secret, and another user may run the server.
		_ = os.WriteFile(filepath.Join(state, lastBackup), text, 0o644)
	}
}

// LastBackup returns the last backup of a state directory; nil if none is known.
func LastBackup(state string) *berth.BackupStatus {
	text, err := os.ReadFile(filepath.Join(state, lastBackup))
	var b berth.BackupStatus
	if err != nil || json.Unmarshal(text, &b) != nil {
		return nil
	}
	return &b
}

// isBelow reports whether a path is a directory or below it.
func isBelow(path, dir string) (bool, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return false, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return false, err
	}
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel), err
}

// A copying is a backup to a directory that is being made.
type copying struct {
	state, to string
	db        Database
	m         Manifest
	progress  func(what string)
}

func (b *copying) copyAll(ctx context.Context) error {
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"the database", b.copyDatabase},
		{"files and snapshots", b.copyContents},
		{"volumes", func(ctx context.Context) error {
			return copyVolumes(ctx, filepath.Join(b.state, "volumes"), filepath.Join(b.to, "volumes"))
		}},
		{"the audit record", func(ctx context.Context) error {
			if err := os.Mkdir(filepath.Join(b.to, AuditDir), 0o700); err != nil {
				return err
			}
			return audit.Backup(ctx, filepath.Join(b.state, AuditDir), filepath.Join(b.to, AuditDir))
		}},
		{"keys", b.copyKeys}, // last
	} {
		b.progress(step.what)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("back up %s: %w", step.what, err)
		}
	}
	return nil
}

func (b *copying) copyDatabase(ctx context.Context) error {
	file := filepath.Join(b.to, "berth.db")
	db, ok := b.db.(*postgres.DB)
	if !ok {
		b.m.Database = "sqlite"
		return sqlite.Backup(ctx, filepath.Join(b.state, "berth.db"), file)
	}
	b.m.Database = "postgres"
	return db.Export(ctx, false, func(r transfer.Reader) error {
		_, err := sqlite.Import(ctx, file, r)
		return err
	})
}

// copyContents copies the contents of blobs. Blobs deleted during the copy are skipped: their keys
// are not in the backup, so that it shows them as deleted.
func (b *copying) copyContents(ctx context.Context) error {
	p, err := ReadPlace(ctx, b.db)
	if err != nil {
		return err
	}
	b.m.Blobs = p.Where()
	if p.URL != "" {
		results, err := copyBlobContents(ctx, b.to, p, Place{})
		for _, r := range results {
			b.m.Gone += r.Gone
		}
		return err
	}
	for _, kind := range BlobKinds {
		gone, err := copyBlobs(ctx, filepath.Join(b.state, kind), filepath.Join(b.to, kind))
		if err != nil {
			return err
		}
		b.m.Gone += gone
	}
	return nil
}

func (b *copying) copyKeys(ctx context.Context) error {
	keys := filepath.Base(sqlite.KeysPath("berth.db"))
	names := []string{"node_id", "seal.key", keys}
	db, ok := b.db.(*postgres.DB)
	if ok {
		names = names[:2]
	}
	for _, name := range names {
		err := statefile.Copy(ctx, filepath.Join(b.state, name), filepath.Join(b.to, name))
		if name == "node_id" && errors.Is(err, fs.ErrNotExist) { // no server has started yet
			_, err = NodeID(b.to)
		}
		if err != nil {
			return err
		}
	}
	if ok {
		return db.ExportKeys(ctx, filepath.Join(b.to, keys))
	}
	return nil
}

// copyBlobs copies the files below a directory. It skips and counts files that are removed during the copy.
func copyBlobs(ctx context.Context, from, to string) (gone int, err error) {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return 0, err
	}
	err = filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case e.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		case !e.Type().IsRegular():
			return nil
		}
		err = statefile.Copy(ctx, path, filepath.Join(to, rel))
		if errors.Is(err, fs.ErrNotExist) {
			gone++
			return nil
		}
		return err
	})
	return gone, err
}

// copyVolumes copies the file of each volume below a directory.
func copyVolumes(ctx context.Context, from, to string) error {
	images, err := filepath.Glob(filepath.Join(from, "*", "*.img"))
	if err != nil {
		return err
	}
	for _, image := range images {
		rel, err := filepath.Rel(from, image)
		if err != nil {
			return err
		}
		mount := strings.TrimSuffix(filepath.Join(to, rel), ".img")
		if err := os.MkdirAll(mount, 0o700); err != nil {
			return err
		}
		if err := copyVolume(ctx, image, strings.TrimSuffix(image, ".img"), filepath.Join(to, rel)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// ioctl requests from linux/fs.h.
const (
	fiFreeze = 0xC0045877
	fiThaw   = 0xC0045878
)

// copyVolume copies the file of a volume. A mounted volume is frozen during the copy, which flushes
// earlier writes and blocks new ones.
func copyVolume(ctx context.Context, image, dir, to string) (err error) {
	mounted, err := isMount(dir)
	if err != nil {
		return err
	}
	if mounted {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer d.Close()
		if err := unix.IoctlSetInt(int(d.Fd()), fiFreeze, 0); errors.Is(err, unix.EBUSY) {
			return fmt.Errorf(
				"%s is frozen: another backup is being made, or one was killed; then restart the server, or run fsfreeze --unfreeze on it", dir)
		} else if err != nil {
			return &os.PathError{Op: "freeze", Path: dir, Err: err}
		}
		defer func() {
			if terr := unix.IoctlSetInt(int(d.Fd()), fiThaw, 0); terr != nil {
				err = errors.Join(err, fmt.Errorf("thaw %s: %w; run fsfreeze --unfreeze on it", dir, terr))
			}
		}()
	}
	return statefile.Copy(ctx, image, to)
}

// isMount reports whether a directory is another file system than the one it is in.
func isMount(dir string) (bool, error) {
	var own, above unix.Stat_t
	if err := unix.Stat(dir, &own); errors.Is(err, unix.ENOENT) {
		return false, nil
	} else if err != nil {
		return false, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if err := unix.Stat(filepath.Dir(dir), &above); err != nil {
		return false, &os.PathError{Op: "stat", Path: filepath.Dir(dir), Err: err}
	}
	return own.Dev != above.Dev, nil
}

// syncAll writes everything on the file system of a directory to the disk.
func syncAll(dir string) error {
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return &os.PathError{Op: "sync", Path: dir, Err: err}
	}
	return nil
}
