package archtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRooms fails for knots of files and for crowded types.
func TestRooms(t *testing.T) {
	all, err := rooms("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range knots(all) {
		t.Error(problem)
	}
	for _, r := range all {
		if r.arrows > fewArrows {
			t.Logf("%s: %d of %d arrows run back (%d %%)", r.path, r.back, r.arrows, r.share())
		}
	}
}

// TestKnotsAreFound measures a package in which three files use each other in a circle, and a type's methods are in
// two of them.
func TestKnotsAreFound(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"a.go": "package p\n\nimport \"strings\"\n\ntype a struct{ b *b }\n\nfunc (x *a) one() { x.b.two(strings.ToLower) }\n",
		"b.go": "package p\n\ntype b struct{}\n\nfunc (b) two(any) { three() }\n\nfunc (*a) four() {}\n",
		"c.go": "package p\n\nfunc three() { var x a; x.one() }\n",
		"d.go": "package p\n\nvar unused int\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := rooms(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 {
		t.Fatalf("got %d packages, want 1", len(all))
	}
	r := all[0] // a uses b; b uses a and c; c uses a
	if r.arrows != 4 || r.back != 1 || r.methods["a"] != 2 || r.methods["b"] != 1 {
		t.Errorf("got %+v, want 4 arrows, one of them back, and 2 methods of a", r)
	}
	crowded := room{path: "p", arrows: 100, back: 26, methods: map[string]int{"t": 41}}
	if got := strings.Join(knots([]room{crowded}), "\n"); !strings.Contains(got, "p has 26 % of its arrows") ||
		!strings.Contains(got, "p.t has 41 methods") {
		t.Errorf("got the problems\n%s", got)
	}
}
