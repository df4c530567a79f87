// Package embedded carries the guest and gVisor inside the one berth binary.
package embedded

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

//go:embed files
var files embed.FS

// Programs are the paths of what Extract put on the disk.
type Programs struct{ Guest, Runsc string }

// Extract writes the programs below dir, each under a name that says what is in
// it, and returns their paths. What is there already is used. In a binary that
// was built without them, the programs beside the executable serve.
func Extract(dir string) (Programs, error) {
	guest, err := extract(dir, "berth-guest")
	if err != nil {
		return Programs{}, err
	}
	runsc, err := extract(dir, "berth-runsc")
	return Programs{Guest: guest, Runsc: runsc}, err
}

func extract(dir, name string) (string, error) {
	packed, err := files.ReadFile("files/" + name + ".zst")
	if errors.Is(err, fs.ErrNotExist) {
		return beside(name)
	}
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(packed)
	path := filepath.Join(dir, name+"-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	r, err := zstd.NewReader(nil)
	if err != nil {
		return "", err
	}
	defer r.Close()
	plain, err := r.DecodeAll(packed, nil)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return path, write(path, plain)
}

// write makes a program appear whole, also when two servers start at once.
func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".extract-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(0o755)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func beside(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("this berth was built without %s, and there is none beside it: run make build", name)
	}
	return path, nil
}
