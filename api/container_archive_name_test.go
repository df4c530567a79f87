package api

import "testing"

// A Windows program that interprets a name in a ZIP archive as a path finds neither a drive
// nor a parent directory in it.
func TestZipNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a/b.txt": "a/b.txt", `..\..\x.exe`: ".._.._x.exe", `C:\x`: "C__x", "c:x": "c_x", "a/c:x": "a/c_x",
		"ab:c": "ab:c", "1:2": "1:2", ":": ":",
	} {
		if got := zipName(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}
