package sqlite_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/store/sqlite"
	"github.com/berth-run/berth/store/storetest"
)

func TestRotateKey(t *testing.T) {
	storetest.Rotations(t, 2, []string{"mark replaced", "keys copied", "committed", "keys replaced"},
		func(t *testing.T) string { return filepath.Join(t.TempDir(), "berth.db") },
		func(ctx context.Context, path string, key [32]byte) (storetest.Rotator, error) {
			return sqlite.Open(ctx, path, &sqlite.Options{Key: key})
		})
}

// After a rotation, the former file of keys opens nothing, and leaves no keys on the disk.
func TestRotateFormerFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.db")
	keys, elsewhere := sqlite.KeysPath(path), filepath.Join(t.TempDir(), "keys")
	if err := os.Symlink(elsewhere, keys); err != nil {
		t.Fatal(err)
	}
	db, err := sqlite.Open(t.Context(), path, &sqlite.Options{Key: [32]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	storetest.Fill(t, db)
	former := read(t, elsewhere)
	link := filepath.Join(t.TempDir(), "link") // to the former file, whatever its name becomes
	if err := os.Link(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	if err := db.RotateKey(t.Context(), [32]byte{2}, nil); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if left := read(t, link); len(left) > 4096 {
		t.Errorf("the former file still has %d bytes", len(left))
	}
	if info, err := os.Lstat(keys); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link to the keys is %v, %v", info, err)
	}
	if err := os.WriteFile(elsewhere, former, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, key := range [][32]byte{{1}, {2}} {
		if db, err := sqlite.Open(t.Context(), path, &sqlite.Options{Key: key}); err == nil || !strings.Contains(err.Error(),
			"rotat") {
			t.Errorf("with the former keys and the key %d: got %v, %v", key[0], db, err)
		}
	}
}
