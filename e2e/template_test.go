package e2e

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// programs writes this machine's programs, with the libraries that they need, to an
// archive: the smallest image in which a shell runs.
func programs(t *testing.T, w *tar.Writer, paths ...string) {
	t.Helper()
	done := map[string]bool{}
	for len(paths) > 0 {
		path := paths[0]
		paths = paths[1:]
		if done[path] {
			continue
		}
		done[path] = true
		content, err := os.ReadFile(path)
		if err != nil {
			t.Skipf("skipped: this machine has no %s", path)
		}
		put(t, w, path, string(content))
		f, err := elf.NewFile(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		libraries, err := f.ImportedLibraries()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP {
				interp, _ := io.ReadAll(p.Open())
				paths = append(paths, strings.TrimRight(string(interp), "\x00"))
			}
		}
		for _, lib := range libraries {
			found, _ := filepath.Glob("/lib/*-linux-gnu*/" + lib)
			if len(found) == 0 {
				t.Skipf("skipped: %s was not found, which %s needs", lib, path)
			}
			paths = append(paths, found[0])
		}
	}
}

func put(t *testing.T, w *tar.Writer, path, content string) {
	t.Helper()
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(path, "/"), Mode: 0o755,
		Size: int64(len(content))})
	if err == nil {
		_, err = w.Write([]byte(content))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// tinyImage is an image of a shell and a few programs, with an environment.
func tinyImage(t *testing.T, user string) v1.Image {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	programs(t, w, "/bin/sh", "/usr/bin/id", "/usr/bin/env", "/bin/cat")
	put(t, w, "/opt/tiny/greet", "#!/bin/sh\necho \"$GREETING from $(cat /etc/origin)\"\n")
	put(t, w, "/etc/origin", "an image")
	put(t, w, "/etc/passwd", "root:x:0:0::/root:/bin/sh\napp:x:4711:4711::/srv:/bin/sh\n")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return imageOf(t, buf.Bytes(),
		v1.Config{User: user, Env: []string{"PATH=/opt/tiny:/usr/bin:/bin", "GREETING=hello"}})
}

// imageOf returns an image of one layer, an archive.
func imageOf(t *testing.T, layer []byte, config v1.Config) v1.Image {
	t.Helper()
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		t.Fatal(err)
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", runtime.GOARCH
	c.Config = config
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	return img
}

// TestTemplates pulls images from a registry and runs containers on them.
func TestTemplates(t *testing.T) {
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	state := t.TempDir()
	for tag, user := range map[string]string{"1": "", "app": "app"} {
		ref, err := name.ParseReference(host + "/tiny:" + tag)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(ref, tinyImage(t, user)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(binary(t), "image", "pull", ref.Name(), "--insecure", "--state", state)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	s := startServer(t, state, "template: tiny-1\ncontainers:\n  pool: 1\n")

	t.Run("default", func(t *testing.T) {
		id := s.newContainer()
		for script, want := range map[string]string{"greet": "hello from an image\n", "id -u": "1000\n",
			"echo $HOME $USER": "/home/user user\n", "echo x > /mnt/data/x && cat x": "x\n"} {
			if out, errs, err := s.berth("exec", id, "--", "/bin/sh", "-c", script); err != nil || out != want {
				t.Errorf("%s: got %q, %v, %s, want %q", script, out, err, errs, want)
			}
		}
	})
	t.Run("by name", func(t *testing.T) {
		c, err := s.client().Containers.New(t.Context(), openai.ContainerNewParams{Name: "test"},
			option.WithJSONSet("berth", map[string]any{"template": "tiny-app"}))
		if err != nil {
			t.Fatal(err)
		}
		if out, errs, err := s.berth("exec", c.ID, "--", "/bin/sh", "-c",
			"id -u; echo $HOME; echo y > y; greet"); err != nil || out != "4711\n/srv\nhello from an image\n" {
			t.Errorf("got %q, %v, %s", out, err, errs)
		}
		var got struct{ Berth struct{ Template string } }
		if err := json.Unmarshal([]byte(c.RawJSON()), &got); err != nil || !strings.HasPrefix(got.Berth.Template,
			"sha256:") {
			t.Errorf("the container's template is %q, %v", got.Berth.Template, err)
		}
		_, err = s.client().Containers.New(t.Context(), openai.ContainerNewParams{Name: "test"},
			option.WithJSONSet("berth", map[string]any{"template": got.Berth.Template}))
		if err != nil {
			t.Errorf("by digest: %v", err)
		}
	})
	t.Run("unknown", func(t *testing.T) {
		_, err := s.client().Containers.New(t.Context(), openai.ContainerNewParams{Name: "test"},
			option.WithJSONSet("berth", map[string]any{"template": "none"}))
		if e, ok := err.(*openai.Error); !ok || e.StatusCode != 404 || e.Param != "berth.template" ||
			!strings.Contains(e.Message, "'none'") {
			t.Errorf("got %v", err)
		}
	})
}

// TestBusyBox runs commands in an image whose shell is BusyBox, as in Alpine's: it chooses what it does by the
// name that it is called by.
func TestBusyBox(t *testing.T) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	programs(t, w, "/bin/busybox")
	for _, applet := range []string{"sh", "cat", "id", "env"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet,
			Linkname: "busybox"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	archive, state := filepath.Join(t.TempDir(), "image.tar"), t.TempDir()
	ref, err := name.NewTag("busybox:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(archive, ref, imageOf(t, buf.Bytes(),
		v1.Config{Env: []string{"PATH=/bin"}})); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(binary(t), "image", "load", "-i", archive, "--state",
		state).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := startServer(t, state, "containers:\n  pool: 0\n")
	first, _ := s.answer(shellTask(fence("echo kept >f; export STEP=1; cd /tmp")))
	if _, got := s.answer(after(first, shellTask(fence("echo $STEP; pwd", "cat /mnt/data/f; exit 3",
		"cat missing")))); len(got) != 3 || got[0] != "1\n/tmp\n" || got[1] != "kept\n" {
		t.Errorf("got %q", got)
	}
}

// startServer starts a server on a state directory with a configuration.
func startServer(t *testing.T, state, config string) *server {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("gVisor sandboxes need root")
	}
	path := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, state: state, args: []string{"--config", path}, log: &logBuffer{}}
	s.start()
	t.Cleanup(s.close)
	return s
}
