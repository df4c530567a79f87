package erofs

import (
	"encoding/binary"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// An entry is a name in a directory.
type entry struct {
	name string
	node *node
}

// readNames returns the names in a directory, without sockets, which an image cannot hold.
func readNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Type()&os.ModeSocket == 0 {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// sortEntries sorts entries by bytes, "." and ".." included, as a lookup expects.
func sortEntries(entries []entry) {
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
}

// split returns the number of leading entries that fit into a block, and their size in bytes.
func split(entries []entry) (count, bytes int) {
	for _, e := range entries {
		need := direntSize + len(e.name)
		if bytes+need > blockSize {
			break
		}
		bytes += need
		count++
	}
	return count, bytes
}

// directorySize returns the size of a directory's content.
func directorySize(entries []entry) int64 {
	size := int64(0)
	for len(entries) > 0 {
		count, bytes := split(entries)
		if entries = entries[count:]; len(entries) > 0 {
			bytes = blockSize
		}
		size += int64(bytes)
	}
	return size
}

// directory returns a directory's content. Each block holds its entries' fixed parts, then
// their names.
func directory(entries []entry) []byte {
	var content []byte
	for len(entries) > 0 {
		count, bytes := split(entries)
		block := make([]byte, bytes, blockSize)
		at := count * direntSize
		for i, e := range entries[:count] {
			d := block[i*direntSize:]
			binary.LittleEndian.PutUint64(d, e.node.nid())
			binary.LittleEndian.PutUint16(d[8:], uint16(at))
			d[10] = kind(e.node.st.Mode)
			at += copy(block[at:], e.name)
		}
		if entries = entries[count:]; len(entries) > 0 {
			block = block[:blockSize]
		}
		content = append(content, block...)
	}
	return content
}

// kind returns a directory entry's file type code.
func kind(mode uint32) byte {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 1
	case unix.S_IFDIR:
		return 2
	case unix.S_IFCHR:
		return 3
	case unix.S_IFBLK:
		return 4
	case unix.S_IFIFO:
		return 5
	}
	return 7 // symbolic link
}
