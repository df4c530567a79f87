package layer

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/berth-run/berth/internal/beneath"
)

// Limits bound an archive. Zero values mean DefaultMaxEntries and no limit of bytes.
type Limits struct {
	Bytes   int64 // of its files
	Entries int
}

// Made describes a layer from Make.
type Made struct {
	Digest  string // sha256:… of the archive, as OCI's diff_id
	Bytes   int64  // of its files
	Entries int
	Dropped []string // up to maxDropped names that a layer cannot have
}

// maxDropped bounds Made.Dropped.
const maxDropped = 8

// Make validates the output of Diff and writes it as a layer over the tree at base on this
// machine. It adds whiteouts for files of base that are missing from a changed directory. An
// empty base is an empty tree.
func Make(w io.Writer, r io.Reader, base string, limits Limits) (Made, error) {
	sum := sha256.New()
	made, err := Write(io.MultiWriter(w, sum), r, base, limits)
	if err == nil {
		made.Digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	}
	return made, err
}

// Write is Make without a digest.
func Write(w io.Writer, r io.Reader, base string, limits Limits) (Made, error) {
	m := &maker{in: tar.NewReader(r), out: tar.NewWriter(w), limits: limits}
	if limits.Entries == 0 {
		m.limits.Entries = DefaultMaxEntries
	}
	if base != "" {
		root, err := beneath.Open(base)
		if err != nil {
			return Made{}, err
		}
		defer root.Close()
		m.base = root
	}
	if err := m.run(); err != nil {
		return Made{}, err
	}
	return m.done, nil
}

type maker struct {
	in     *tar.Reader
	out    *tar.Writer
	base   *beneath.Root // nil if base is empty
	limits Limits
	done   Made

	// The changed directory whose children are being listed.
	dir      string
	open     bool
	siblings map[string]bool
	size     int // of the names, in bytes
}

func (m *maker) run() error {
	for {
		h, err := m.in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		if m.done.Entries++; m.done.Entries > m.limits.Entries {
			return fmt.Errorf("%w: more than %d entries", ErrTooLarge, m.limits.Entries)
		}
		name, err := clean(h.Name)
		if err != nil {
			return err
		}
		if h.Typeflag == typeListed {
			err = m.listed(name)
		} else {
			err = m.entry(h, name)
		}
		if err != nil {
			return err
		}
	}
	if err := m.whiteouts(); err != nil {
		return err
	}
	return m.out.Close()
}

// listed records the name of a changed directory's child.
func (m *maker) listed(name string) error {
	if !m.open || path.Dir(name) != m.dir || name == "." {
		return fmt.Errorf("%w: %.200q is not a child of the last directory", ErrInvalid, name)
	}
	if m.size += len(name); m.size > maxSibling {
		return fmt.Errorf("%w: the names in %.200q", ErrTooLarge, m.dir)
	}
	m.siblings[path.Base(name)] = true
	return nil
}

// entry writes an entry with only the metadata that a layer needs.
func (m *maker) entry(h *tar.Header, name string) error {
	if err := m.whiteouts(); err != nil {
		return err
	}
	if strings.HasPrefix(path.Base(name), whiteout) {
		if len(m.done.Dropped) < maxDropped {
			m.done.Dropped = append(m.done.Dropped, name)
		}
		return nil
	}
	out, err := m.header(h, name)
	if err != nil {
		return err
	}
	if err := m.out.WriteHeader(out); err != nil {
		return fmt.Errorf("%w: %.200q: %w", ErrInvalid, name, err)
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	if n, err := copyContent(m.out, m.in); err != nil {
		return err
	} else if n != h.Size {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// header returns the header of an entry as it is written. It counts the bytes of a file,
// and opens a directory for the names of its children.
func (m *maker) header(h *tar.Header, name string) (*tar.Header, error) {
	out := &tar.Header{Format: tar.FormatPAX, Typeflag: h.Typeflag, Name: name, Mode: h.Mode & permissions, Uid: h.Uid,
		Gid: h.Gid, ModTime: h.ModTime}
	switch h.Typeflag {
	case tar.TypeReg:
		out.Size = h.Size
		if m.done.Bytes += h.Size; h.Size < 0 || m.done.Bytes < 0 || m.limits.Bytes > 0 &&
			m.done.Bytes > m.limits.Bytes {
			return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, m.limits.Bytes)
		}
	case tar.TypeDir:
		out.Name += "/"
		m.dir, m.open, m.siblings, m.size = name, true, map[string]bool{}, 0
	case tar.TypeLink:
		target, err := clean(h.Linkname)
		if err != nil {
			return nil, err
		}
		out.Linkname = target
	case tar.TypeSymlink:
		if out.Linkname = h.Linkname; len(h.Linkname) == 0 || len(h.Linkname) > maxName ||
			strings.ContainsRune(h.Linkname, 0) {
			return nil, fmt.Errorf("%w: the target of %.200q", ErrInvalid, name)
		}
	case tar.TypeChar, tar.TypeBlock:
		out.Devmajor, out.Devminor = h.Devmajor, h.Devminor
	case tar.TypeFifo:
	default:
		return nil, fmt.Errorf("%w: %.200q has type %q", ErrInvalid, name, h.Typeflag)
	}
	if name == "." && h.Typeflag != tar.TypeDir {
		return nil, fmt.Errorf("%w: the root is not a directory", ErrInvalid)
	}
	xattrs, err := attributes(h)
	if err != nil {
		return nil, err
	}
	for key, value := range xattrs {
		if out.PAXRecords == nil {
			out.PAXRecords = map[string]string{}
		}
		out.PAXRecords[attribute+key] = value
	}
	return out, nil
}

// whiteouts ends a changed directory: it writes whiteouts for files of base that were not
// listed.
func (m *maker) whiteouts() error {
	if !m.open {
		return nil
	}
	m.open = false
	if m.base == nil || !plainDir(m.base, m.dir) {
		return nil
	}
	f, err := m.base.Open(m.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if m.siblings[e.Name()] {
			continue
		}
		if err := m.out.WriteHeader(&tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeReg,
			Name: join(m.dir, whiteout+e.Name())}); err != nil {
			return err
		}
	}
	return nil
}

// plainDir reports whether a path is a directory, without following links.
func plainDir(root *beneath.Root, name string) bool {
	for at := name; at != "."; at = path.Dir(at) {
		info, err := root.Lstat(at)
		if err != nil || info.Mode().Type() != fs.ModeDir {
			return false
		}
	}
	return true
}
