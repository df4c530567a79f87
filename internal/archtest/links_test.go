package archtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLinks(t *testing.T) {
	broken, err := BrokenLinks("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range broken {
		t.Error(b)
	}
}

func TestBrokenLinksAreFound(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.md": "# One, `two` & three\n[ok](b.md#what-it-is) [ok](#one-two--three) [ok](b.md) [ok](https://x.example/#y)\n" +
			"`[code](none.md)`\n```\n# In code\n[code](none.md)\n```\n[bad](none.md) [bad](b.md#else) [bad](#in-code)\n",
		"b.md": "## What it is\n\n## What it is\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	broken, err := BrokenLinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range broken {
		broken[i] = strings.ReplaceAll(broken[i], dir+"/", "")
	}
	slices.Sort(broken)
	want := []string{"a.md links to #in-code: no such heading", "a.md links to b.md#else: no such heading",
		"a.md links to none.md: no such file", `b.md has "## What it is" twice`}
	if !slices.Equal(broken, want) {
		t.Errorf("got %q, want %q", broken, want)
	}
}
