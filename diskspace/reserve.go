package diskspace

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// reserveName is the file of the reserve in the state directory.
const reserveName = "reserve"

// A reserve is a file with allocated blocks and no content.
type reserve struct {
	path  string
	want  int64
	given bool // it was released and not allocated since
}

// held returns the size of the reserve in bytes.
func (r *reserve) held() int64 {
	var st unix.Stat_t
	if unix.Stat(r.path, &st) != nil {
		return 0
	}
	return min(st.Blocks*512, st.Size)
}

// allocate grows the file to its full size. After an error it has its former size.
func (r *reserve) allocate() error {
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	held := r.held()
	err = unix.Fallocate(int(f.Fd()), 0, 0, r.want)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = fill(f, r.want)
	}
	if err != nil {
		err = errors.Join(&os.PathError{Op: "allocate", Path: r.path, Err: err}, f.Truncate(held))
	}
	return errors.Join(err, f.Close())
}

// fill writes a file on a file system that cannot allocate blocks.
func fill(f *os.File, size int64) error {
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < size; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
			return err
		}
	}
	return f.Sync()
}

// release frees the blocks except leave bytes.
func (r *reserve) release(leave int64) error { return os.Truncate(r.path, leave) }

func (r *reserve) exists() bool {
	_, err := os.Stat(r.path)
	return err == nil
}

// full reports whether an error means that a volume or a quota is full.
func full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
