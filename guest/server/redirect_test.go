package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRedirects mounts overlays, renames a directory of the lower layer in each, and checks
// whether it was renamed without a copy.
func TestRedirects(t *testing.T) {
	for options, want := range map[string]bool{"": false, ",redirect_dir=on": true, ",redirect_dir=off": false,
		",redirect_dir=nofollow": false} {
		lower, upper, work, root := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
		if err := os.MkdirAll(filepath.Join(lower, "was/in"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("overlay", root, "overlay", 0,
			"lowerdir="+lower+",upperdir="+upper+",workdir="+work+options); err != nil {
			t.Skipf("skipped: no overlay can be mounted: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(root, 0) })
		byDefault := readString(redirectDefault)
		if options == "" {
			want = strings.TrimSpace(byDefault) == "Y"
		}
		if moved := os.Rename(filepath.Join(root, "was"), filepath.Join(root, "is")) == nil; moved != want {
			t.Errorf("%q: a directory is moved: %v", options, moved)
		}
		if got := redirects(readString("/proc/self/mountinfo"), root, byDefault); got != want {
			t.Errorf("%q: got %v, want %v", options, got, want)
		}
	}
	const shown = "36 35 0:42 / / rw,relatime - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w"
	for _, tt := range []struct {
		mountinfo, byDefault string
		want                 bool
	}{
		{shown, "Y\n", true},
		{shown, "N\n", false},
		{shown, "", false},
		{shown + ",redirect_dir=off", "Y\n", false},
		{shown + ",redirect_dir=on\n37 36 0:43 / /other rw - overlay overlay rw,redirect_dir=off", "N\n", true},
	} {
		if got := redirects(tt.mountinfo, "/", tt.byDefault); got != tt.want {
			t.Errorf("%q by default %q: got %v, want %v", tt.mountinfo, tt.byDefault, got, tt.want)
		}
	}
}
