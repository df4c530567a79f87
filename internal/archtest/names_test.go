package archtest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The map of the house names functions and files that exist.
func TestMapOfTheHouse(t *testing.T) {
	lost, err := LostNames("../..", "docs/life-of-a-response.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lost {
		t.Error(l)
	}
}

func TestLostNamesAreFound(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"a/x.go": "package a\n\ntype Box struct{ Size int }\n\nfunc (b *Box) Open() {}\n\nfunc shut() {}\n",
		"page.md": " 1 │ a/x.go   shut      closes\n 2 │ a        Box.Open  opens\n 3 │ a/x.go   gone      is not there\n" +
			"`a/x.go`, `y.go`, `a/`, `b/`, `a.Box`, `Box.Size`, `a.Box.Open`, `a.Lid`, `Box.Lid`, `other.Word`, `{\"x\":1}`\n",
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"page.md:3: a/x.go declares no gone", "page.md:4: there is no a/y.go", "page.md:4: there is no b/",
		"page.md:4: there is no a.Lid", "page.md:4: there is no Box.Lid"}
	if got, err := LostNames(root, "page.md"); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
