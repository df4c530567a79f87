package layer

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/beneath"
)

const (
	goodCapability = "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	rootCapability = "\x01\x00\x00\x03\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xe8\x03\x00\x00"
)

func withAttribute(name, value string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/su", Mode: 0o4755,
		PAXRecords: map[string]string{attribute + name: value}}
}

// TestCheckRefusesHostileEntries checks which entries an imported layer may contain.
func TestCheckRefusesHostileEntries(t *testing.T) {
	for name, c := range map[string]struct {
		h     *tar.Header
		words string // "" if the entry is allowed
	}{
		"a file":                  {&tar.Header{Typeflag: tar.TypeReg, Name: "mnt/data/f"}, ""},
		"the root":                {&tar.Header{Typeflag: tar.TypeDir, Name: "./"}, ""},
		"the shell's state":       {&tar.Header{Typeflag: tar.TypeReg, Name: ".berth/state"}, ""},
		"a whiteout":              {&tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/.wh.vi"}, ""},
		"a whiteout of all below": {&tar.Header{Typeflag: tar.TypeReg, Name: "opt/.wh..wh..opq"}, ""},
		"a program of root's":     {withAttribute(capability, goodCapability), ""},
		"a program of a user's":   {withAttribute(capability, rootCapability), ""},
		"the root removed": {&tar.Header{Typeflag: tar.TypeReg, Name: ".wh..wh..opq"},
			"removes the whole file system"},
		"the root removed, hidden": {&tar.Header{Typeflag: tar.TypeReg, Name: "./.wh..wh..opq"},
			"removes the whole file system"},
		"the guest removed": {&tar.Header{Typeflag: tar.TypeReg, Name: ".wh..berth"}, "every sandbox needs"},
		"the guest's run removed": {&tar.Header{Typeflag: tar.TypeReg, Name: ".berth/.wh.run"},
			"sandbox's own program"},
		"proc removed":          {&tar.Header{Typeflag: tar.TypeReg, Name: ".wh.proc"}, "every sandbox needs"},
		"nothing removed":       {&tar.Header{Typeflag: tar.TypeReg, Name: "usr/.wh."}, "whiteout without a name"},
		"the directory removed": {&tar.Header{Typeflag: tar.TypeReg, Name: "usr/.wh.."}, "whiteout without a name"},
		"the parent removed":    {&tar.Header{Typeflag: tar.TypeReg, Name: "usr/.wh..."}, "whiteout without a name"},
		"the guest replaced":    {&tar.Header{Typeflag: tar.TypeReg, Name: ".berth/guest"}, "sandbox's own program"},
		"the root a file":       {&tar.Header{Typeflag: tar.TypeReg, Name: "."}, "not a directory"},
		"a climbing name":       {&tar.Header{Typeflag: tar.TypeReg, Name: "../f"}, "invalid name"},
		"a climbing link": {&tar.Header{Typeflag: tar.TypeLink, Name: "f", Linkname: "../../etc/passwd"},
			"link without a valid target"},
		"a long element": {&tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("x", 256)},
			"more than 255 bytes"},
		"a long link": {&tar.Header{Typeflag: tar.TypeSymlink, Name: "f", Linkname: strings.Repeat("x",
			4096)}, "link without a valid target"},
		"an empty link":            {&tar.Header{Typeflag: tar.TypeSymlink, Name: "f"}, "link without a valid target"},
		"an unknown type":          {&tar.Header{Typeflag: 'Z', Name: "f"}, "unknown type"},
		"an owner out of range":    {&tar.Header{Typeflag: tar.TypeReg, Name: "f", Uid: -1}, "out of range"},
		"a capability of nothing":  {withAttribute(capability, "x"), "malformed"},
		"a capability too short":   {withAttribute(capability, goodCapability[:12]), "malformed"},
		"an attribute's long name": {withAttribute("user."+strings.Repeat("x", 256), "1"), "longer than"},
		"large attributes":         {withAttribute("user.x", strings.Repeat("x", 65<<10)), "attributes"},
	} {
		err := Check(c.h)
		switch {
		case c.words == "" && err != nil:
			t.Errorf("%s: got %v, want none", name, err)
		case c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words)):
			t.Errorf("%s: got %v, want an error with %q", name, err, c.words)
		case err != nil && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrTooLarge):
			t.Errorf("%s: got %v, which is neither invalid nor too large", name, err)
		}
	}
}

// TestFixedPathsStay applies layers that remove and replace fixed paths.
func TestFixedPathsStay(t *testing.T) {
	for name, entries := range map[string][]*tar.Header{
		"the root removed": {{Typeflag: tar.TypeReg, Name: ".wh..wh..opq"}},
		"a parent removed": {{Typeflag: tar.TypeReg, Name: ".wh.mnt"}, {Typeflag: tar.TypeReg, Name: ".wh.free"}},
		"it removed": {{Typeflag: tar.TypeReg, Name: "mnt/volumes/.wh.data"},
			{Typeflag: tar.TypeReg, Name: ".wh.free"}},
		"its content removed": {{Typeflag: tar.TypeReg, Name: "mnt/volumes/data/.wh..wh..opq"},
			{Typeflag: tar.TypeReg, Name: ".wh.free"}},
		"it replaced": {{Typeflag: tar.TypeReg, Name: "mnt/volumes/data"}, {Typeflag: tar.TypeReg, Name: ".wh.free"}},
		"its content replaced": {{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "/mnt/volumes/data"},
			{Typeflag: tar.TypeDir, Name: "link/file"},
			{Typeflag: tar.TypeReg, Name: ".wh.free"}},
	} {
		dir := t.TempDir()
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "mnt/volumes/data"), 0o755),
			os.WriteFile(filepath.Join(dir, "mnt/volumes/data/file"), []byte("kept"), 0o600),
			os.Mkdir(filepath.Join(dir, "free"), 0o755)); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range entries {
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		root, err := beneath.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		a := Applier{Root: root, Fixed: map[string]bool{"mnt/volumes/data": true}}
		if err := a.Apply(&b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		root.Close()
		if got, err := os.ReadFile(filepath.Join(dir, "mnt/volumes/data/file")); string(got) != "kept" {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "free")); !os.IsNotExist(err) {
			t.Errorf("%s: a path that is not fixed remains: %v", name, err)
		}
	}
}
