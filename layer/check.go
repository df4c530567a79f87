package layer

import (
	"archive/tar"
	"encoding/binary"
	"fmt"
	"math"
	"path"
	"strings"
)

// maxElement bounds the length of a name in a directory.
const maxElement = 255

// own is the guest's directory in a sandbox, and state is its only file that a layer may
// contain.
const (
	own   = ".berth"
	state = own + "/state"
)

// Check returns an error for an entry of an imported layer that Apply could not apply in a
// sandbox, or that would remove files that every sandbox needs.
func Check(h *tar.Header) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := clean(h.Name)
	if err != nil {
		return err
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: %.200q %s", ErrInvalid, name, fmt.Sprintf(format, args...))
	}
	for elem := range strings.SplitSeq(name, "/") {
		if len(elem) > maxElement {
			return wrong("has an element of more than %d bytes", maxElement)
		}
	}
	if base := path.Base(name); strings.HasPrefix(base, whiteout) {
		return checkWhiteout(name, wrong)
	}
	if name != state && (name == own || strings.HasPrefix(name, own+"/")) {
		return wrong("is in the directory of the sandbox's own program")
	}
	if h.Size < 0 || h.Uid < 0 || h.Gid < 0 || h.Uid >= math.MaxUint32 || h.Gid >= math.MaxUint32 {
		return wrong("has a size or owner out of range")
	}
	switch h.Typeflag {
	case tar.TypeDir:
	case tar.TypeReg, '\x00', tar.TypeCont, tar.TypeGNUSparse, tar.TypeFifo, tar.TypeChar, tar.TypeBlock:
		if name == "." {
			return wrong("is the root and not a directory")
		}
	case tar.TypeSymlink:
		if name == "." || h.Linkname == "" || len(h.Linkname) > maxName || strings.ContainsRune(h.Linkname, 0) {
			return wrong("is a link without a valid target")
		}
	case tar.TypeLink:
		if _, err := clean(h.Linkname); err != nil || name == "." {
			return wrong("is a link without a valid target")
		}
	default:
		return wrong("has the unknown type %q", h.Typeflag)
	}
	_, err = attributes(h)
	return err
}

func checkWhiteout(name string, wrong func(string, ...any) error) error {
	dir, base := path.Split(name)
	if base == opaque {
		if dir == "" {
			return wrong("removes the whole file system")
		}
		return nil
	}
	switch gone := strings.TrimPrefix(base, whiteout); {
	case gone == "", gone == ".", gone == "..":
		return wrong("is a whiteout without a name")
	case dir == "" && (gone == own || gone == "proc" || gone == "sys" || gone == "dev"):
		return wrong("removes a directory that every sandbox needs")
	case path.Clean(dir) == own:
		return wrong("is in the directory of the sandbox's own program")
	}
	return nil
}

// validCapability reports whether the kernel accepts the value of security.capability: revision
// 2 or 3, with the revision's length.
func validCapability(value string) bool {
	if len(value) < 4 {
		return false
	}
	switch binary.LittleEndian.Uint32([]byte(value)) >> 24 {
	case 2:
		return len(value) == 20
	case 3:
		return len(value) == 24
	}
	return false
}
