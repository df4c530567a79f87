package server

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/beneath"
	"github.com/berth-run/berth/layer"

	"github.com/berth-run/berth/guest/changes"
)

// stateName is the path of the shell's state in an archive. The next call starts with that
// state.
const stateName = ".berth/state"

// clockSlack is the time that the clock of files may be behind the guest's.
const clockSlack = 20 * time.Millisecond

// archivePiece is the size of the writes of an archive, in bytes.
const archivePiece = 256 << 10

// An archiver reads the changes of a sandbox, and applies them to a new one.
type archiver struct {
	server *Server
	busy   sync.Mutex // one at a time
}

// tree returns the root of archives: the whole sandbox or, for a guest without a sandbox
// of its own, the working directory.
func (a *archiver) tree() (root, prefix string) {
	if os.Getpid() == 1 {
		return "/", ""
	}
	return a.server.opts.WorkDir, "mnt/data"
}

// skip returns a filter that leaves out the guest's own files and mounted ones, such as
// /etc/hosts under some drivers.
func (a *archiver) skip() func(path string) bool {
	mounted, state := changes.MountPoints(), filepath.Clean(a.server.opts.StateDir)
	return func(path string) bool { return path == "/.berth" || path == state || mounted[path] }
}

// get serves GET /archive: the changes since the sandbox was started, as layer.Diff
// writes them. Commands are frozen for that time.
func (a *archiver) get(w http.ResponseWriter, r *http.Request) {
	if !a.busy.TryLock() {
		http.Error(w, `{"code":409,"message":"an archive is being made or read"}`, http.StatusConflict)
		return
	}
	defer a.busy.Unlock()
	if root, _ := a.tree(); isOverlay(root) && redirects(readString("/proc/self/mountinfo"), root,
		readString(redirectDefault)) {
		http.Error(w, `{"code":501,"message":"the overlay moves directories without copying what is in them"}`,
			http.StatusNotImplemented)
		return
	}
	// A write to a stream without a reader blocks, and fails only after a while.
	defer context.AfterFunc(r.Context(), func() {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
	})()
	defer a.server.freeze()()
	w.Header().Set("Content-Type", "application/x-tar")
	out := bufio.NewWriterSize(w, archivePiece)
	if err := errors.Join(a.write(tar.NewWriter(out)), out.Flush()); err != nil {
		a.server.opts.Log.Warn("archive", "err", err)
		panic(http.ErrAbortHandler) // so that the reader sees a broken stream, not an end
	}
}

func (a *archiver) write(out *tar.Writer) error {
	root, prefix := a.tree()
	d := layer.Differ{Root: root, Prefix: prefix, Since: a.server.started.Add(-clockSlack), Skip: a.skip(),
		Unprivileged: os.Getuid() != 0}
	if isOverlay(root) {
		d.Below = a.server.opts.Created
	}
	if err := d.Diff(out); err != nil {
		return err
	}
	// The state's paths are valid only in a sandbox of its own.
	if state := a.server.shell.state.read(); len(state) > 0 && prefix == "" {
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: stateName, Mode: 0o600,
			Size: int64(len(state))}); err != nil {
			return err
		}
		if _, err := out.Write(state); err != nil {
			return err
		}
	}
	return out.Close()
}

// put serves POST /archive: it applies a layer. It must be the first request to the
// sandbox.
func (a *archiver) put(w http.ResponseWriter, r *http.Request) {
	a.busy.Lock()
	defer a.busy.Unlock()
	if err := a.apply(r.Body); err != nil {
		httpError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (a *archiver) apply(body io.Reader) error {
	path, prefix := a.tree()
	root, err := beneath.Open(path)
	if err != nil {
		return err
	}
	defer root.Close()
	mounted := changes.MountPoints()
	fixed := map[string]bool{}
	if prefix == "" {
		fixed[".berth"] = true
		for at := range mounted {
			fixed[strings.TrimPrefix(at, "/")] = true
		}
	}
	to := layer.Applier{Root: root, Prefix: prefix, Owners: os.Getuid() == 0, Unprivileged: os.Getuid() != 0,
		Fixed: fixed,
		Take: func(name string, h *tar.Header, content io.Reader) (bool, error) {
			if name == stateName && h.Typeflag == tar.TypeReg {
				return true, a.server.shell.state.restore(io.LimitReader(content, maxState+1))
			}
			return name == ".berth" || strings.HasPrefix(name, ".berth/") || prefix == "" && mounted[named(name)], nil
		}}
	if err := to.Apply(body); err != nil {
		return fmt.Errorf("applying: %w", err)
	}
	// Trailing bytes are read, so that the sender can finish.
	_, err = io.Copy(io.Discard, body)
	return err
}

// named returns the path that an entry of a layer changes.
func named(entry string) string {
	dir, base := path.Split(entry)
	return path.Join("/", dir, strings.TrimPrefix(base, ".wh."))
}

// isOverlay reports whether a directory is on an overlay, which copies a file of a lower
// layer, with all directories above it, before the first write.
func isOverlay(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == unix.OVERLAYFS_SUPER_MAGIC
}

// redirectDefault has Y or N: the kernel's default for overlays mounted without the option
// redirect_dir.
const redirectDefault = "/sys/module/overlay/parameters/redirect_dir"

// redirects reports whether the overlay at root renames a directory of its lower layers by
// a note in the upper one. The directory's content then looks unchanged, and an archive
// would lack it at its new place. mountinfo shows an overlay's options only if they differ
// from the default.
func redirects(mountinfo, root, byDefault string) bool {
	on := strings.TrimSpace(byDefault) == "Y"
	for line := range strings.Lines(mountinfo) {
		left, right, _ := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 5 || len(r) < 3 || l[4] != root || r[0] != "overlay" {
			continue
		}
		for option := range strings.SplitSeq(r[2], ",") {
			if value, found := strings.CutPrefix(option, "redirect_dir="); found {
				on = value == "on"
			}
		}
	}
	return on
}

func readString(path string) string {
	raw, _ := os.ReadFile(path)
	return string(raw)
}

// stillTime bounds the wait for processes that do not stop, such as one that waits for a
// child of vfork.
const stillTime = 200 * time.Millisecond

// freeze stops all processes but the guest until thaw is called, and prevents the start of
// others. Processes that were stopped before stay stopped. A guest that shares a machine
// with other processes stops none.
func (s *Server) freeze() (thaw func()) {
	if os.Getpid() != 1 {
		return func() {}
	}
	s.reaper.still.Lock()
	stopped := map[int]bool{}
	for end := time.Now().Add(stillTime); ; time.Sleep(time.Millisecond) { // until no process was started during a pass
		born, moving := false, false
		for _, p := range processList() {
			switch {
			case p.state == 'T' || p.state == 'Z' || p.state == 'X':
			case stopped[p.pid]:
				moving = true // the signal is pending; in clone it may be delivered after the child exists
			case unix.Kill(p.pid, unix.SIGSTOP) == nil:
				stopped[p.pid], born = true, true
			}
		}
		if !born && (!moving || time.Now().After(end)) {
			break
		}
	}
	return func() {
		for pid := range stopped {
			_ = unix.Kill(pid, unix.SIGCONT)
		}
		s.reaper.still.Unlock()
	}
}
