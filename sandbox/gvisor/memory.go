package gvisor

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
)

var _ sandbox.Snapshotter = (*Driver)(nil)

const (
	checkpointTimeout = 5 * time.Minute
	asleepTimeout     = 5 * time.Second // for the guest to remove its socket
	restoreTimeout    = 20 * time.Second
	restorePerMB      = 50 * time.Millisecond
	rouseTimeout      = 2 * time.Second // for the guest to create another

	wakeName    = "wake"            // beside the guest's socket
	imageDir    = sealed + "/image" // in the sandbox's directory while in use
	versionName = "berth-version"   // the first file of the archive
)

// imageFiles are the files of a runsc checkpoint.
var imageFiles = []string{"checkpoint.img", "pages_meta.img", "pages.img"}

// Checkpoint implements sandbox.Snapshotter. The sandbox is stopped while its memory and its
// disk are copied to a file.
//
// If a process has bound a socket on the host, gVisor panics instead of writing a checkpoint.
func (d *Driver) Checkpoint(ctx context.Context, id string, w io.Writer) error {
	s, err := d.base.Find(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkpointTimeout)
	defer cancel()
	image := s.path(imageDir)
	defer os.RemoveAll(image)
	err = s.awaitSleep(ctx)
	if err == nil {
		err = s.checkpoint(ctx, image)
	}
	if err := errors.Join(err, wake(s.run("guest"))); err != nil {
		return fmt.Errorf("gvisor: checkpoint %s: %w", id, err)
	}
	version, err := d.version()
	if err == nil {
		err = writeImage(w, image, version)
	}
	return err
}

func (s instance) checkpoint(ctx context.Context, image string) error {
	if err := s.running(); err != nil {
		return err
	}
	if err := os.RemoveAll(image); err != nil { // left by a crash
		return err
	}
	if err := os.Mkdir(image, 0o700); err != nil {
		return err
	}
	out, err := s.wall.control(ctx, "checkpoint", "--image-path="+image, "--compression=none",
		"--exclude-committed-zero-pages", "--leave-running", "s")
	if err != nil {
		return fmt.Errorf("%w: %s%s", errors.Join(context.Cause(ctx), err),
			strings.TrimSpace(out[:min(len(out), wordsLimit)]), s.lastWords())
	}
	return nil
}

// awaitSleep returns when the guest has removed its socket.
func (s instance) awaitSleep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, asleepTimeout)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Lstat(s.run("guest/" + socketName)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the guest to sleep: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// rouse wakes and connects to a guest that sleeps although no checkpoint is being written,
// because the server that sent it to sleep has died. lost is the error of the dial.
func (s instance) rouse(ctx context.Context, lost error) (net.Conn, error) {
	if err := s.running(); err != nil {
		return nil, errors.Join(lost, err)
	}
	if err := wake(s.run("guest")); err != nil {
		return nil, errors.Join(lost, err)
	}
	ctx, cancel := context.WithTimeout(ctx, rouseTimeout)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			// It must not wake later, while its memory is being written.
			return nil, errors.Join(lost, unwake(s.run("guest")))
		case <-tick.C:
		}
		conn, err := s.dial(ctx)
		if err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED) {
			return conn, err
		}
	}
}

// wake makes a sleeping guest listen again. guest is the directory of its socket, to which root
// in the sandbox can write.
func wake(guest string) error {
	dir, err := unix.Open(guest, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: guest, Err: err}
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, wakeName, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "create", Path: wakeName, Err: err}
	}
	return os.NewSyscallError("close", unix.Close(fd))
}

// unwake undoes wake if the guest has not noticed it.
func unwake(guest string) error {
	dir, err := unix.Open(guest, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: guest, Err: err}
	}
	defer unix.Close(dir)
	if err := unix.Unlinkat(dir, wakeName, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "remove", Path: wakeName, Err: err}
	}
	return nil
}

// Restore implements sandbox.Snapshotter.
func (d *Driver) Restore(ctx context.Context, id string, r io.Reader) error {
	s, err := d.base.Find(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkpointTimeout)
	defer cancel()
	image := s.path(imageDir)
	defer os.RemoveAll(image)
	version, err := d.version()
	if err == nil {
		err = readImage(r, image, version)
	}
	if err != nil {
		return fmt.Errorf("gvisor: restore %s: %w", id, err)
	}
	// On a busy machine a short runsc operation sometimes hangs.
	ctx, cancel = context.WithTimeoutCause(ctx, restoreTime(image), sandbox.ErrHung)
	defer cancel()
	return d.startFrom(ctx, s, image)
}

// restoreTime returns the time limit of runsc for an image.
func restoreTime(image string) time.Duration {
	most := restoreTimeout
	for _, name := range imageFiles {
		if fi, err := os.Stat(filepath.Join(image, name)); err == nil {
			most += time.Duration(fi.Size()>>20) * restorePerMB
		}
	}
	return most
}

// writeImage writes a checkpoint as an archive.
func writeImage(w io.Writer, dir, version string) error {
	out := tar.NewWriter(w)
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: versionName, Mode: 0o600,
		Size: int64(len(version))}); err != nil {
		return err
	}
	if _, err := io.WriteString(out, version); err != nil {
		return err
	}
	for _, name := range imageFiles {
		if err := writeFile(out, dir, name); err != nil {
			return err
		}
	}
	return out.Close()
}

func writeFile(out *tar.Writer, dir, name string) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: fi.Size(),
		Format: tar.FormatPAX}); err != nil {
		return err
	}
	return copyImage(out, f)
}

// imagePiece is the size in bytes of the reads and writes of an image.
const imagePiece = 1 << 20

// copyImage is io.Copy in large pieces.
func copyImage(w io.Writer, r io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, imagePiece))
	return err
}

// readImage extracts an archive from writeImage of the same version into dir.
func readImage(r io.Reader, dir, version string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	in := tar.NewReader(r)
	for i, name := range append([]string{versionName}, imageFiles...) {
		h, err := in.Next()
		if err != nil {
			return fmt.Errorf("read memory: %w", err)
		}
		if h.Name != name || h.Typeflag != tar.TypeReg {
			return fmt.Errorf("got %q in the image, want %s", h.Name, name)
		}
		if i == 0 {
			if got, err := io.ReadAll(io.LimitReader(in, int64(len(version))+1)); err != nil || string(got) != version {
				return errors.Join(sandbox.ErrForeign, err)
			}
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		err = copyImage(f, in)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	if _, err := in.Next(); !errors.Is(err, io.EOF) {
		return errors.Join(errors.New("the image has extra data"), err)
	}
	return nil
}

// versionOf returns a digest of the programs with which a checkpoint can be restored: runsc,
// which wrote the state, and the guest, whose text the state maps.
func versionOf(paths ...string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		sum := sha256.New()
		for _, path := range paths {
			f, err := os.Open(path)
			if err != nil {
				return "", err
			}
			_, err = io.Copy(sum, f)
			f.Close()
			if err != nil {
				return "", err
			}
		}
		return hex.EncodeToString(sum.Sum(nil)), nil
	})
}
