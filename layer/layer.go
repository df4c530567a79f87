// Package layer reads and writes layers: what differs between two file systems, as
// a tar archive in OCI's form.
//
// A layer says what is new or different, and by whiteouts what is gone. Diff finds
// out what has changed since a time; Make makes a layer of that; Apply changes a
// file system as a layer says. Archives are not trusted.
package layer

import (
	"archive/tar"
	"errors"
	"fmt"
	"path"
	"strings"
)

// A whiteout ".wh.NAME" says that NAME is gone; the opaque one, that all that was
// in its directory is. Other names that begin so mean nothing.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// typeKept is the type of an entry of Diff's that says: this child of a changed
// directory is there, and is listed elsewhere if it has changed itself.
const typeKept = 'B'

// Bounds on what an archive may hold.
const (
	maxName    = 4095     // bytes of a path
	maxDepth   = 1024     // elements of a path
	maxXattrs  = 64 << 10 // bytes of an entry's attributes
	maxSibling = 16 << 20 // bytes of the names in one directory
)

// DefaultMaxEntries is how many entries an archive may have if nobody says.
const DefaultMaxEntries = 2_000_000

// ErrTooLarge is returned for an archive that exceeds a bound.
var ErrTooLarge = errors.New("too large")

// ErrInvalid is returned for an archive that is not one of a file system.
var ErrInvalid = errors.New("invalid archive")

// clean returns an entry's path without detours, "." for the root. It is relative
// and stays below the root.
func clean(name string) (string, error) {
	name = strings.TrimSuffix(name, "/")
	for strings.HasPrefix(name, "./") || strings.HasPrefix(name, "/") {
		name = strings.TrimPrefix(strings.TrimPrefix(name, "./"), "/")
	}
	if name == "" {
		name = "."
	}
	// Names need not be UTF-8, which fs.ValidPath asks for.
	if len(name) > maxName || strings.Count(name, "/") >= maxDepth || strings.ContainsRune(name, 0) ||
		path.Clean(name) != name || name == ".." || strings.HasPrefix(name, "../") {
		return "", fmt.Errorf("%w: the name %.200q", ErrInvalid, name)
	}
	return name, nil
}

// attribute is the prefix of the records that hold extended attributes.
const attribute = "SCHILY.xattr."

// attributes returns the extended attributes of an entry that are part of a file
// system's content: those that users set, and capabilities of programs. Others say
// something about the kernel that wrote them.
func attributes(h *tar.Header) (map[string]string, error) {
	kept, size := map[string]string{}, 0
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, attribute)
		if !ok || !portable(name) {
			continue
		}
		if name == capability && !validCapability(value) {
			return nil, fmt.Errorf("%w: the %s of %.200q is malformed", ErrInvalid, name, h.Name)
		}
		if len(name) > maxElement {
			return nil, fmt.Errorf("%w: the name of an attribute of %.200q is longer than %d bytes", ErrInvalid, h.Name, maxElement)
		}
		kept[name] = value
		size += len(name) + len(value)
	}
	if size > maxXattrs {
		return nil, fmt.Errorf("%w: the attributes of %.200q", ErrTooLarge, h.Name)
	}
	return kept, nil
}

// capability is the attribute that gives a program capabilities.
const capability = "security.capability"

func portable(name string) bool {
	return strings.HasPrefix(name, "user.") && name != note || name == capability
}

// permissions are the bits of a mode that are kept, as tar and the kernel have them.
const permissions = 0o7777
