package gvisor

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/statefile"
	"github.com/berth-run/berth/sandbox"
)

// Paths inside a sandbox.
const (
	guestPath   = "/.berth/guest" // the guest program
	guestRunDir = "/.berth/run"   // bound to run/guest on the host
	guestSocket = guestRunDir + "/" + socketName
	socketName  = "guest.sock"
	dataDir     = "/mnt/data"
	hostname    = "sandbox"
)

// user is the uid and gid of the user that commands run as.
const user = 1000

func (d *Driver) seedPath() string { return filepath.Join(d.opts.StateDir, "seed.tar") }

// writeSeed writes the archive that gVisor unpacks into the writable layer of every new
// sandbox: host names and resolver, which reveal nothing of the machine on which the template
// was built, and the working directory.
//
// The alternative, a bind mount for each file, costs a gofer connection each, and root in the
// sandbox could not edit the files.
func writeSeed(path string) error {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range []struct {
		name string
		mode int64
		uid  int
		body string
	}{
		{name: "./", mode: 0o755},
		{name: "./etc/", mode: 0o755},
		{name: "./etc/hostname", mode: 0o644, body: hostname + "\n"},
		{name: "./etc/hosts", mode: 0o644, body: "127.0.0.1\tlocalhost " + hostname +
			"\n::1\tlocalhost ip6-localhost ip6-loopback\n"},
		{name: "./etc/resolv.conf", mode: 0o644, body: "nameserver 127.0.0.1\n"},
		{name: "./mnt/", mode: 0o755},
		{name: "." + dataDir + "/", mode: 0o755, uid: user},
	} {
		h := &tar.Header{Name: e.name, Mode: e.mode, Uid: e.uid, Gid: e.uid, Size: int64(len(e.body)),
			ModTime: seedTime}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write([]byte(e.body)); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if old, err := statefile.ReadFile(path); err == nil && bytes.Equal(old, buf.Bytes()) {
		return nil // a full disk must not prevent a server from starting
	}
	return sandbox.WriteFile(path, buf.Bytes(), 0o600)
}

// seedTime is the constant time of files in the seed.
var seedTime = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// removeOthers removes the entries of a directory, except those whose names start with keep.
func removeOthers(dir, keep string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), keep) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// writeSkeleton creates the directory that is overlaid on every template, with the guest
// program and the mount point of its socket, which the gofer would otherwise create in the
// template. It returns the directory's path.
//
// Its name depends on the program, so that the program of running sandboxes does not change;
// directories of older programs stay while there are sandboxes.
//
// The alternative, a bind mount of the program, costs a gofer connection and shows the sandbox
// the size and use of the host's volume.
func writeSkeleton(root, guest string, sandboxes bool) (string, error) {
	program, err := os.Open(guest)
	if err != nil {
		return "", err
	}
	defer program.Close()
	sum, err := digest(program)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, hex.EncodeToString(sum[:8]))
	if !sandboxes {
		if err := removeOthers(root, filepath.Base(dir)); err != nil {
			return "", err
		}
	}
	if have, err := statefile.Open(filepath.Join(dir, guestPath)); err == nil {
		defer have.Close()
		if old, err := digest(have); err == nil && bytes.Equal(old, sum) {
			return dir, nil
		}
	}
	for _, d := range []string{root, dir, filepath.Join(dir, filepath.Dir(guestPath)),
		filepath.Join(dir, guestRunDir)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return "", err
		}
		if err := os.Chmod(d, 0o755); err != nil { // independent of the umask
			return "", err
		}
	}
	if _, err := program.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	return dir, sandbox.CopyToFile(filepath.Join(dir, guestPath), program, 0o755)
}

// digest returns the SHA-256 digest of the rest of a file. The guest is as large as all else
// that an idle server needs, so it is not read into memory.
func digest(f *os.File) ([]byte, error) {
	h := sha256.New()
	_, err := io.Copy(h, f)
	return h.Sum(nil), err
}
