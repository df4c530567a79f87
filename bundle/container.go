package bundle

import (
	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// maxFiles is how many files of a container a bundle tells that users put in.
const maxFiles = 1000

// check returns an error unless a container is one as Export writes it.
func (k *ManifestContainer) check() error {
	switch {
	case k.Bytes < 0 || k.Bytes > maxLayer:
		return invalid("its layer has %d bytes", k.Bytes)
	case berth.MemoryLimits[k.MemoryLimit] == 0 || k.ExpiresAfter.Minutes < 1:
		return invalid("its container has no size or no life")
	case len(k.Files) > maxFiles:
		return invalid("its container has %d files of users", len(k.Files))
	}
	for _, f := range k.Files {
		if f == nil || !guest.Below("/", f.Path) || f.Bytes < 0 {
			return invalid("a file of its container has no path or no length")
		}
	}
	return nil
}
