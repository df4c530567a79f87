// Package embedded contains the guest and gVisor, embedded in the berth binary.
package embedded

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// files holds NAME.zst and NAME.sha256, the digest of the uncompressed content, for each
// program. A plain go build embeds neither.
//
//go:embed files
var files embed.FS

// Programs holds the paths of the extracted programs.
type Programs struct{ Guest, Runsc string }

// Extract writes the programs below dir, under names that contain their digests, and returns their
// paths. It reuses intact files, and is safe for concurrent use by several processes. If the binary
// embeds no programs, Extract returns the programs beside the executable.
func Extract(dir string) (Programs, error) {
	self, err := os.Executable()
	if err != nil {
		return Programs{}, err
	}
	beside := filepath.Dir(self)
	guest, err := extract(files, dir, beside, "berth-guest")
	if err != nil {
		return Programs{}, err
	}
	runsc, err := extract(files, dir, beside, "berth-runsc")
	return Programs{Guest: guest, Runsc: runsc}, err
}

func extract(files fs.FS, dir, beside, name string) (string, error) {
	text, err := fs.ReadFile(files, "files/"+name+".sha256")
	if errors.Is(err, fs.ErrNotExist) {
		path := filepath.Join(beside, name)
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("this berth was built without %s, and none is beside it: run make build", name)
		}
		return path, nil
	}
	if err != nil {
		return "", err
	}
	sum := strings.TrimSpace(string(text))
	if len(sum) != hex.EncodedLen(sha256.Size) {
		return "", fmt.Errorf("%s: invalid digest %q; run make build", name, sum)
	}
	path := filepath.Join(dir, name+"-"+sum[:16])
	if whole(path, sum) {
		return path, nil
	}
	packed, err := files.Open("files/" + name + ".zst")
	if err != nil {
		return "", err
	}
	defer packed.Close()
	if err := unpack(path, packed); err != nil {
		return "", fmt.Errorf("extract %s: %w", name, err)
	}
	if !whole(path, sum) {
		return "", fmt.Errorf("extract %s: the content does not have the digest %s; run make build", name, sum)
	}
	return path, nil
}

// whole reports whether a file has a digest. A file written shortly before a power failure may not.
func whole(path, sum string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return err == nil && hex.EncodeToString(h.Sum(nil)) == sum
}

// unpack extracts a program and renames it into place.
func unpack(path string, packed io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".extract-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	err = copyTo(f, packed)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func copyTo(f *os.File, packed io.Reader) error {
	r, err := zstd.NewReader(packed)
	if err != nil {
		return fmt.Errorf("decompress: %w", err)
	}
	defer r.Close()
	if _, err := io.Copy(f, r); err != nil {
		return err
	}
	if err := f.Chmod(0o755); err != nil {
		return err
	}
	return f.Sync()
}
