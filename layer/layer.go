// Package layer reads and writes layers: the difference between two file systems, as a tar
// archive in OCI's format.
//
// A layer has entries for new and changed files, and whiteouts for removed ones. Diff finds the
// changes since a time; Make turns them into a layer; Apply applies a layer to a file system.
// Archives are not trusted.
package layer

import (
	"archive/tar"
	"errors"
	"fmt"
	"path"
	"strings"
)

// A whiteout ".wh.NAME" removes NAME. The opaque whiteout removes all files in its directory.
// Other names that start with the prefix have no effect.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// typeListed is the type of an entry from Diff that lists a child of a changed directory. The
// child has another entry if it has changed itself.
const typeListed = 'B'

// Bounds of an archive.
const (
	maxName    = 4095     // bytes of a path
	maxDepth   = 1024     // elements of a path
	maxXattrs  = 64 << 10 // bytes of an entry's attributes
	maxSibling = 16 << 20 // bytes of the names in one directory
)

// DefaultMaxEntries is the default of Limits.Entries.
const DefaultMaxEntries = 2_000_000

// ErrTooLarge is returned for an archive that exceeds a bound.
var ErrTooLarge = errors.New("too large")

// ErrInvalid is returned for an archive that is not a valid layer.
var ErrInvalid = errors.New("invalid archive")

// clean returns the clean path of an entry, "." for the root. It is relative and stays below
// the root.
func clean(name string) (string, error) {
	name = strings.TrimSuffix(name, "/")
	for strings.HasPrefix(name, "./") || strings.HasPrefix(name, "/") {
		name = strings.TrimPrefix(strings.TrimPrefix(name, "./"), "/")
	}
	if name == "" {
		name = "."
	}
	// Names need not be UTF-8, which fs.ValidPath requires.
	if len(name) > maxName || strings.Count(name, "/") >= maxDepth || strings.ContainsRune(name, 0) ||
		path.Clean(name) != name || name == ".." || strings.HasPrefix(name, "../") {
		return "", fmt.Errorf("%w: invalid name %.200q", ErrInvalid, name)
	}
	return name, nil
}

// attribute is the prefix of the records that hold extended attributes.
const attribute = "SCHILY.xattr."

// attributes returns the extended attributes of an entry that belong to a file system's
// content: those that users set, and capabilities of programs. Others depend on the kernel that
// wrote them.
func attributes(h *tar.Header) (map[string]string, error) {
	found, size := map[string]string{}, 0
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, attribute)
		if !ok || !portable(name) {
			continue
		}
		if name == capability && !validCapability(value) {
			return nil, fmt.Errorf("%w: %s of %.200q is malformed", ErrInvalid, name, h.Name)
		}
		if len(name) > maxElement {
			return nil, fmt.Errorf("%w: the name of an attribute of %.200q is longer than %d bytes", ErrInvalid, h.Name,
				maxElement)
		}
		found[name] = value
		size += len(name) + len(value)
	}
	if size > maxXattrs {
		return nil, fmt.Errorf("%w: the attributes of %.200q", ErrTooLarge, h.Name)
	}
	return found, nil
}

// capability is the attribute that gives a program capabilities.
const capability = "security.capability"

func portable(name string) bool {
	return strings.HasPrefix(name, "user.") && name != note || name == capability
}

// permissions are the mode bits in a layer, as tar and the kernel define them.
const permissions = 0o7777
