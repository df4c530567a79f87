package statefile

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Copy copies a regular file with its mode and holes to a new file, and syncs the copy.
func Copy(ctx context.Context, from, to string) error {
	in, err := OpenFile(from, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer in.Close()
	fi, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fi.Mode().Perm())
	if err != nil {
		return err
	}
	return errors.Join(copyData(ctx, out, in, fi.Size()), out.Sync(), out.Close())
}

// copyData copies the data of a file and skips its holes.
func copyData(ctx context.Context, out, in *os.File, size int64) error {
	for at := int64(0); at < size; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		data, err := in.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // the rest is a hole
		}
		if err != nil {
			return err
		}
		hole, err := in.Seek(data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		hole = min(hole, data+64<<20)
		if _, err := in.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := out.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(out, in, hole-data); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		at = hole
	}
	return out.Truncate(size)
}
