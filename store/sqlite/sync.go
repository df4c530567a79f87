package sqlite

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Sync implements base.Driver. SQLite holds no locks on its write-ahead log, so opening and closing
// that file is safe.
func (d *core) Sync() error {
	f, err := os.Open(d.path + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the log has been merged into the database
	}
	if err != nil {
		return err
	}
	return errors.Join(unix.Fdatasync(int(f.Fd())), f.Close())
}
