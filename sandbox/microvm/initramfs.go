package microvm

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-run/berth/guest/boot"
)

// writeInitramfs writes the initial file system of every machine: the guest program, which is
// its first process, and modules in the order in which they are loaded. It is not compressed,
// because unpacking would take longer than reading.
func writeInitramfs(w io.Writer, guest string, modules []string) error {
	a := &cpio{w: bufio.NewWriter(w)}
	a.dir("dev")
	a.node("dev/console", 5, 1)
	a.file(strings.TrimPrefix(boot.InitPath, "/"), guest, 0o755)
	dir := strings.TrimPrefix(boot.ModuleDir, "/")
	a.dir(dir)
	for i, m := range modules {
		a.file(fmt.Sprintf("%s/%03d-%s", dir, i, filepath.Base(m)), m, 0o644)
	}
	return a.close()
}

// A cpio writes an archive in the kernel's format ("newc"). It records the first error.
type cpio struct {
	w   *bufio.Writer
	err error
	ino int
}

// header writes the header of an entry.
func (a *cpio) header(name string, mode, size, major, minor int) {
	if a.err != nil {
		return
	}
	a.ino++
	// magic ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
	_, a.err = fmt.Fprintf(a.w, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.ino, mode, 0, 0, 1, 0, size, 0, 0, major, minor, len(name)+1, 0, name)
	a.pad(110 + len(name) + 1)
}

// pad pads n bytes to a multiple of four.
func (a *cpio) pad(n int) {
	if a.err == nil {
		_, a.err = a.w.Write(make([]byte, -n&3))
	}
}

func (a *cpio) dir(name string) { a.header(name, 0o040755, 0, 0, 0) }

func (a *cpio) node(name string, major, minor int) { a.header(name, 0o020600, 0, major, minor) }

// file writes the file at path under a name.
func (a *cpio) file(name, path string, perm int) {
	if a.err != nil {
		return
	}
	content, err := os.ReadFile(path)
	if err != nil {
		a.err = err
		return
	}
	a.header(name, 0o100000|perm, len(content), 0, 0)
	if a.err == nil {
		_, a.err = a.w.Write(content)
	}
	a.pad(len(content))
}

// close ends the archive.
func (a *cpio) close() error {
	a.header("TRAILER!!!", 0, 0, 0, 0)
	if a.err != nil {
		return a.err
	}
	return a.w.Flush()
}
