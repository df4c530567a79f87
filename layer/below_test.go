package layer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/layer"
)

// In an overlay, a Differ does not search below a directory that was never written to.
func TestDiffBelow(t *testing.T) {
	lower, upper, work, root := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	sh(t, lower, "mkdir -p a/b c/d e; echo 1 >a/b/f; echo 2 >c/d/f; echo 3 >a/g")
	created := time.Now().Add(10 * time.Millisecond)
	time.Sleep(time.Until(created.Add(10 * time.Millisecond))) // the kernel's clock for files is coarse
	if err := unix.Mount("overlay", root, "overlay", 0,
		"lowerdir="+lower+",upperdir="+upper+"/,workdir="+work); err != nil {
		t.Skipf("skipped: no overlay can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, 0) })
	sh(t, root, "at=$(stat -c %y a/b/f); echo 4 >a/b/f; touch -d \"$at\" a/b/f")
	names := func(below time.Time) (all []string) {
		t.Helper()
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		if err := errors.Join((&layer.Differ{Root: root, Since: created, Below: below}).Diff(w),
			w.Close()); err != nil {
			t.Fatal(err)
		}
		for in := tar.NewReader(&out); ; {
			h, err := in.Next()
			if errors.Is(err, io.EOF) {
				return slices.Sorted(slices.Values(all))
			} else if err != nil {
				t.Fatal(err)
			}
			if h.Typeflag != 'B' {
				all = append(all, h.Name)
			}
		}
	}
	all := names(time.Time{})
	if !slices.Contains(all, "a/b/f") || slices.Contains(all, "c/d/f") {
		t.Errorf("got %q", all)
	}
	if diff := cmp.Diff(all, names(created)); diff != "" {
		t.Errorf("without and with Below (-all +below):\n%s", diff)
	}
	if got := names(time.Now().Add(time.Hour)); len(got) > 0 {
		t.Errorf("got %q of an unchanged overlay", got)
	}
}
