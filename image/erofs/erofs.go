// Package erofs writes trees as images of the read-only file system EROFS.
//
// An image is one file on the host but records any owners, so that an ordinary user can
// create one whose files belong to many. Kernels and gVisor read the basic form written
// here: blocks of 4 KB, no compression, no extended attributes. The layout is:
//
//	block 0    the superblock at 1024, then the first inodes
//	…          inodes of 64 bytes, in slots of 32; the content of short directories and
//	           links follows their inode, in the same block
//	…          the content of files, each at the start of a block
//
// The kernel's Documentation/filesystems/erofs.rst specifies the format.
package erofs

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/layer"
)

const (
	blockSize  = 4096
	slotSize   = 32
	inodeSize  = 64
	direntSize = 12

	superblock     = 1024
	superblockSize = 128
	magic          = 0xe0f5e1e2
)

// Layouts of an inode's content.
const (
	plain  = 0 // in separate blocks
	inline = 2 // full blocks separate, the rest after the inode
)

// Write writes the tree at root as an image. It skips sockets. The tree must not change
// until it returns.
func Write(w io.Writer, root string) error {
	owners, err := layer.OwnersOf(root)
	if err != nil {
		return err
	}
	t := &tree{owners: owners, links: make(map[inode]*node), end: superblock + superblockSize}
	if _, err := t.scan(root, nil); err != nil {
		return err
	}
	if err := t.place(); err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 1<<20)
	if err := t.write(out); err != nil {
		return err
	}
	return out.Flush()
}

// Make writes the tree at root as an image to a file.
func Make(path, root string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(Write(f, root), f.Close())
}

// A tree is the tree to be written.
type tree struct {
	owners layer.Owners
	nodes  []*node // the root first
	links  map[inode]*node
	end    int64 // end of the area allotted so far; while scanning, of the inodes
	blocks int64
}

type inode struct{ dev, ino uint64 }

// A node is a file, directory, link or device.
type node struct {
	path    string // first path found
	st      unix.Stat_t
	links   uint32
	entries []entry // of a directory, sorted
	target  string  // of a symbolic link
	size    int64   // of the content
	layout  uint16
	at      int64 // offset of its inode
	block   int64 // first block of its content
}

// nid returns the number by which directories refer to a node.
func (n *node) nid() uint64 { return uint64(n.at / slotSize) }

// behind returns how many bytes of the content follow the inode.
func (n *node) behind() int64 {
	if n.layout == inline {
		return n.size % blockSize
	}
	return 0
}

// scan adds the file at path and all below it to t, and allots their inodes.
func (t *tree) scan(path string, up *node) (*node, error) {
	st, err := t.owners.Lstat(path)
	if err != nil {
		return nil, err
	}
	id := inode{st.Dev, st.Ino}
	dir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if n := t.links[id]; n != nil && !dir {
		n.links++
		return n, nil
	}
	n := &node{path: path, st: st, links: 1}
	t.nodes = append(t.nodes, n)
	t.links[id] = n
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		n.size = st.Size
	case unix.S_IFLNK:
		if n.target, err = os.Readlink(path); err != nil {
			return nil, err
		}
		n.size = int64(len(n.target))
	case unix.S_IFDIR:
		return n, t.scanDir(n, up)
	}
	t.allot(n)
	return n, nil
}

// scanDir adds a directory's entries. It allots the directory's own inode first: the size of
// the content follows from the names alone.
func (t *tree) scanDir(n, up *node) error {
	n.links++
	if up == nil {
		up = n
	}
	names, err := readNames(n.path)
	if err != nil {
		return err
	}
	n.entries = []entry{{name: ".", node: n}, {name: "..", node: up}}
	for _, name := range names {
		n.entries = append(n.entries, entry{name: name})
	}
	sortEntries(n.entries)
	n.size = directorySize(n.entries)
	t.allot(n)
	for i := range n.entries {
		e := &n.entries[i]
		if e.node != nil {
			continue
		}
		if e.node, err = t.scan(filepath.Join(n.path, e.name), n); err != nil {
			return err
		}
		if e.node.st.Mode&unix.S_IFMT == unix.S_IFDIR {
			n.links++
		}
	}
	return nil
}

// allot assigns an inode's offset. Content that follows the inode must be in the same block.
func (t *tree) allot(n *node) {
	if tail := n.size % blockSize; n.st.Mode&unix.S_IFMT != unix.S_IFREG && tail > 0 && tail <= blockSize-inodeSize {
		n.layout = inline
	}
	n.at = roundUp(t.end, slotSize)
	if space := blockSize - n.at%blockSize; space < inodeSize+n.behind() {
		n.at = roundUp(n.at, blockSize)
	}
	t.end = n.at + inodeSize + n.behind()
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// place assigns the blocks of the contents, after all inodes.
func (t *tree) place() error {
	t.blocks = roundUp(t.end, blockSize) / blockSize
	for _, n := range t.nodes {
		if full := roundUp(n.size-n.behind(), blockSize) / blockSize; full > 0 {
			n.block = t.blocks
			t.blocks += full
		}
	}
	if t.blocks > math.MaxUint32 {
		return errors.New("the tree is too large for an image")
	}
	return nil
}

// write writes the superblock, the inodes and the contents.
func (t *tree) write(w io.Writer) error {
	head := make([]byte, roundUp(t.end, blockSize))
	t.putSuperblock(head[superblock:])
	for i, n := range t.nodes {
		n.putInode(head[n.at:], i+1)
		if tail := n.behind(); tail > 0 {
			content := n.content()
			copy(head[n.at+inodeSize:], content[int64(len(content))-tail:])
		}
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	for _, n := range t.nodes {
		if err := n.writeBlocks(w); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) putSuperblock(b []byte) {
	le := binary.LittleEndian
	le.PutUint32(b, magic)
	b[12] = 12 // the block size is 1<<12
	le.PutUint16(b[14:], uint16(t.nodes[0].nid()))
	le.PutUint64(b[16:], uint64(len(t.nodes)))
	le.PutUint64(b[24:], uint64(time.Unix(t.nodes[0].st.Mtim.Unix()).Unix()))
	le.PutUint32(b[36:], uint32(t.blocks))
}

// putInode encodes the inode in its extended form.
func (n *node) putInode(b []byte, number int) {
	le := binary.LittleEndian
	le.PutUint16(b, 1|n.layout<<1)
	le.PutUint16(b[4:], uint16(n.st.Mode))
	le.PutUint64(b[8:], uint64(n.size))
	switch n.st.Mode & unix.S_IFMT {
	case unix.S_IFCHR, unix.S_IFBLK:
		major, minor := unix.Major(n.st.Rdev), unix.Minor(n.st.Rdev)
		le.PutUint32(b[16:], minor&0xff|major<<8|(minor&^0xff)<<12)
	default:
		le.PutUint32(b[16:], uint32(n.block))
	}
	le.PutUint32(b[20:], uint32(number))
	le.PutUint32(b[24:], n.st.Uid)
	le.PutUint32(b[28:], n.st.Gid)
	sec, nsec := n.st.Mtim.Unix()
	le.PutUint64(b[32:], uint64(sec))
	le.PutUint32(b[40:], uint32(nsec))
	le.PutUint32(b[44:], n.links)
}

// content returns the content of a directory or the target of a link.
func (n *node) content() []byte {
	if n.entries != nil {
		return directory(n.entries)
	}
	return []byte(n.target)
}

// writeBlocks writes the content that is in separate blocks.
func (n *node) writeBlocks(w io.Writer) error {
	size := n.size - n.behind()
	if size == 0 {
		return nil
	}
	var content io.Reader
	if n.st.Mode&unix.S_IFMT == unix.S_IFREG {
		f, err := os.Open(n.path)
		if err != nil {
			return err
		}
		defer f.Close()
		content = f
	} else {
		content = bytes.NewReader(n.content())
	}
	if got, err := io.CopyN(w, content, size); err != nil {
		return fmt.Errorf("%s: %d of %d bytes: %w", n.path, got, size, err)
	}
	_, err := w.Write(make([]byte, roundUp(size, blockSize)-size))
	return err
}
