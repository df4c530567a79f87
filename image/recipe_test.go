package image

import (
	"slices"
	"strings"
	"testing"
)

func TestRecipeRefused(t *testing.T) {
	for _, tc := range []struct {
		recipe Recipe
		want   string // in the error
	}{
		{Recipe{}, "name"},
		{Recipe{Name: "../x"}, "name"},
		{Recipe{Name: "x", From: "alpine"}, `"alpine"`},
		{Recipe{Name: "x", Suite: "--help"}, "release"},
		{Recipe{Name: "x", Mirrors: []string{"--version"}}, "apt source"},
		{Recipe{Name: "x", Mirrors: []string{"deb http://a b main\ndeb http://c d main"}}, "apt source"},
		{Recipe{Name: "x", Packages: []string{"jq,less"}}, "package"},
		{Recipe{Name: "x", Packages: []string{"?essential"}}, "package"},
		{Recipe{Name: "x", Exclude: []string{"usr/include/*"}}, "exclude"},
		{Recipe{Name: "x", Exclude: []string{"/x[a]"}}, "exclude"},
		{Recipe{Name: "x", Exclude: []string{"/x\npre-invoke=reboot"}}, "exclude"},
		{Recipe{Name: "x", Files: []File{{Path: "etc/motd"}}}, "absolute"},
		{Recipe{Name: "x", Files: []File{{Path: "/etc/../motd"}}}, "absolute"},
		{Recipe{Name: "x", Files: []File{{Path: "/"}}}, "absolute"},
		{Recipe{Name: "x", Files: []File{{Path: "/a", Mode: 0o100644}}}, "mode"},
		{Recipe{Name: "x", Run: []string{" "}}, "empty"},
		{Recipe{Name: "x", Env: []string{"=1"}}, "KEY=value"},
	} {
		_, err := tc.recipe.complete()
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want an error about %q", tc.recipe, err, tc.want)
		}
	}
	if _, err := Base().complete(); err != nil {
		t.Error(err)
	}
}

func TestRecipeDigest(t *testing.T) {
	base := Base()
	renamed := Base()
	renamed.Name = "other"
	more := Base()
	more.Packages = append(more.Packages, "cowsay")
	if got, want := renamed.Digest(), base.Digest(); got != want {
		t.Errorf("digest under another name: got %s, want %s", got, want)
	}
	if more.Digest() == base.Digest() {
		t.Error("another recipe has the same digest")
	}
}

// The template "full" has all of base, and its recipe is valid.
func TestFull(t *testing.T) {
	full, err := Full().complete()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range Base().Packages {
		if !slices.Contains(full.Packages, p) {
			t.Errorf("lacks %s", p)
		}
	}
	if base, _ := Base().complete(); base.Digest() == full.Digest() || Standard()["full"].Name != "full" {
		t.Error("it is not a template of its own")
	}
}

// E2B's documents and tests call `python`.
func TestBasePython(t *testing.T) {
	for name, recipe := range Standard() {
		if name != "desktop" && !slices.Contains(recipe.Packages, "python-is-python3") {
			t.Errorf("%s has no command python", name)
		}
	}
}

// py3compile matches these lines from the start of a path.
func TestUncompiled(t *testing.T) {
	got := uncompiled([]string{"/usr/*/a.b/*tests/*", "/x?"})
	if want := "re|-4.0|/|/usr/.*/a\\.b/.*tests/.*$\nre|-4.0|/|/x.$"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
