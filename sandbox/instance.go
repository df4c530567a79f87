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

// Instance returns the random name of a state directory, which it makes at the first
// time. It tells the things of one state directory from those of others: cgroups,
// processes, containers of an engine.
//
// The name stays with a directory that is moved, but not with a copy: beside it is noted
// which directory it was made in. In another one, such as a backup that was restored to
// be looked at while its original runs, Instance calls discard, which removes what the
// copy has of sandboxes and touches nothing else, and makes another name. The sandboxes
// are those of the original.
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
	case errors.Is(err, fs.ErrNotExist): // a version before this one has made it
		return string(raw), WriteFile(noted, []byte(own), 0o600)
	case err != nil:
		return "", err
	case string(was) == own:
		return string(raw), nil
	}
	if err := discard(); err != nil {
		return "", fmt.Errorf("discarding the sandboxes of a copied state directory: %w", err)
	}
	return makeInstance(name, noted, own)
}

// FindInstance returns the name of a state directory without making one. found is false if
// it has none, or is a copy: its sandboxes are not its own then.
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

// directoryIdentity returns what no two directories of this machine share: device, inode
// and time of birth. Of these, a copy of the files has another inode, a copy of the
// whole volume another device.
func directoryIdentity(dir string) (string, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return "", &os.PathError{Op: "statx", Path: dir, Err: err}
	}
	return fmt.Sprintf("device %d:%d inode %d birth %d.%09d\n", st.Dev_major, st.Dev_minor, st.Ino, st.Btime.Sec, st.Btime.Nsec), nil
}

// Discard removes all that is in a directory. It refuses to if anything is mounted there,
// which then is in use, perhaps by others.
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

// mountedBelow returns a mount point below dir, "" if there is none, as
// proc_pid_mountinfo(5) has it.
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
