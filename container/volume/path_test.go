package volume

import (
	"archive/tar"
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
)

func TestCheckPath(t *testing.T) {
	for _, p := range []string{"/mnt/volumes/data", "/mnt/my-data", "/data", "/srv/a/b", "/home/user/data", "/etc/app",
		"/mnt/volumes2/A"} {
		if why := checkPath(p); why != "" {
			t.Errorf("checkPath(%q) = %q, want no reason", p, why)
		}
	}
	for _, p := range []string{"", "/", "data", "./data", "/data/", "/a//b", "/a/../b", "/etc", "/usr", "/usr/bin",
		"/mnt", "/mnt/volumes", "/mnt/volumes/a/b", "/mnt/volumes/A",
		"/proc/1", "/dev/shm", "/sys", "/.berth/guest", "/srv/.wh.etc", "/.wh..wh..opq/x", "/a\x00b",
		"/" + strings.Repeat("a", maxMountPath)} {
		if checkPath(p) == "" {
			t.Errorf("checkPath(%q) has no reason to refuse it", p)
		}
	}
}

func TestMountNames(t *testing.T) {
	at := func(name, path string) berth.VolumeMount { return berth.VolumeMount{Name: name, Path: path} }
	got := mountNames([]berth.VolumeMount{at("a", "/srv/a"), at("b", "/mnt/volumes/a"), at("volume-2", "/x"),
		at("volume-2", "/y")})
	if want := []string{"volume-2", "a", "volume-3", "volume-4"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWriteLinks(t *testing.T) {
	var layer bytes.Buffer
	some, err := WriteLinks(&layer, []berth.VolumeMount{{Name: "a", Path: "/mnt/volumes/a"},
		{Name: "b", Path: "/srv/b"}}, time.Now())
	if err != nil || !some {
		t.Fatal(some, err)
	}
	in := tar.NewReader(&layer)
	h, err := in.Next()
	if err != nil || h.Typeflag != tar.TypeSymlink || h.Name != "srv/b" || h.Linkname != "../mnt/volumes/b" {
		t.Errorf("got %+v, %v", h, err)
	}
	if h, err := in.Next(); err == nil {
		t.Errorf("another link: %+v", h)
	}
	if some, err := WriteLinks(&layer, []berth.VolumeMount{{Name: "a", Path: "/mnt/volumes/a"}},
		time.Now()); err != nil || some {
		t.Errorf("a volume in its place: got %v, %v", some, err)
	}
}
