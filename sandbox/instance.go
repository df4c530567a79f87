package sandbox

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/statefile"
)

// Instance returns the random name of a state directory, and creates it at the first call. The
// name distinguishes the cgroups, processes and engine containers of one state directory from
// those of others.
//
// The name stays with a directory that is moved, but not with a copy: a file beside it records
// in which directory it was created. In another one, such as a restored backup that is
// inspected while its original runs, Instance calls discard, which removes the copied files of
// sandboxes and nothing else, and creates another name. The sandboxes belong to the original.
func Instance(dir string, discard func() error) (string, error) {
	name, noted := filepath.Join(dir, "instance"), filepath.Join(dir, "instance.directory")
	own, err := directoryIdentity(dir)
	if err != nil {
		return "", err
	}
	raw, err := statefile.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return makeInstance(name, noted, own)
	}
	if err != nil {
		return "", err
	}
	if _, err := hex.DecodeString(string(raw)); err != nil || len(raw) != 12 {
		return "", fmt.Errorf("%s: not an instance name", name)
	}
	was, err := statefile.ReadFile(noted)
	switch {
	case errors.Is(err, fs.ErrNotExist): // created by an earlier version
		return string(raw), WriteFile(noted, []byte(own), 0o600)
	case err != nil:
		return "", err
	case string(was) == own:
		return string(raw), nil
	}
	if err := discard(); err != nil {
		return "", fmt.Errorf("discard the sandboxes of a copied state directory: %w", err)
	}
	return makeInstance(name, noted, own)
}

// FindInstance returns the name of a state directory without creating one. found is false if it
// has none, or is a copy and so has no sandboxes of its own.
func FindInstance(dir string) (name string, found bool, err error) {
	own, err := directoryIdentity(dir)
	if err != nil {
		return "", false, err
	}
	raw, err := statefile.ReadFile(filepath.Join(dir, "instance"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	was, err := statefile.ReadFile(filepath.Join(dir, "instance.directory"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", false, err
	}
	return string(raw), err == nil && string(was) == own, nil
}

func makeInstance(name, noted, own string) (string, error) {
	var b [6]byte
	rand.Read(b[:])
	made := hex.EncodeToString(b[:])
	return made, errors.Join(WriteFile(name, []byte(made), 0o600), WriteFile(noted, []byte(own), 0o600))
}

// directoryIdentity returns an identity that is unique among the directories of this machine:
// device, inode and time of birth. A copy of the files has another inode, and a copy of the
// whole volume another device.
func directoryIdentity(dir string) (string, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return "", &os.PathError{Op: "statx", Path: dir, Err: err}
	}
	return fmt.Sprintf("device %d:%d inode %d birth %d.%09d\n", st.Dev_major, st.Dev_minor, st.Ino, st.Btime.Sec,
		st.Btime.Nsec), nil
}

// Discard removes the content of a directory. It returns an error if anything is mounted below,
// because that is in use, perhaps by another process.
func Discard(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if point := mountedBelow(mounts, dir); point != "" {
		return fmt.Errorf("something is mounted at %s", point)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

var octal = regexp.MustCompile(`\\[0-7]{3}`)

// mountedBelow returns a mount point below dir, or "". mountinfo is in the format of
// proc_pid_mountinfo(5).
func mountedBelow(mountinfo []byte, dir string) string {
	for line := range bytes.Lines(mountinfo) {
		fields := strings.Fields(string(line))
		if len(fields) < 5 {
			continue
		}
		point := octal.ReplaceAllStringFunc(fields[4], func(s string) string {
			n, _ := strconv.ParseUint(s[1:], 8, 8)
			return string([]byte{byte(n)})
		})
		if strings.HasPrefix(point, dir+"/") {
			return point
		}
	}
	return ""
}
