package image

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/dockertest"
)

func TestMain(m *testing.M) { dockertest.Main(m) }

// TestDockerfile builds with a real engine, from scratch, without a public registry.
func TestDockerfile(t *testing.T) {
	needRoot(t)
	t.Setenv("DOCKER_HOST", dockertest.Host(t))
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	if tool, err := findBuilder(); err != nil || filepath.Base(tool) != "docker" {
		t.Skipf("skipped: the client of Docker is not installed: %s, %v", tool, err)
	}
	dir := tree(t, map[string]string{
		"rootfs.tar": string(archive(shell, "etc/motd=hello", "etc/passwd=app:x:5:6::/srv:/bin/sh\n")),
		"Dockerfile": "FROM scratch\nARG WHO=world\nADD rootfs.tar /\nCOPY motd /etc/motd\nENV WHO=${WHO} PATH=/opt:/bin\nUSER app\nWORKDIR /srv\n",
		"motd":       "from a Dockerfile",
	})
	l := open(t, t.TempDir())
	var out bytes.Buffer
	got, err := l.Dockerfile(t.Context(), "built", dir, []string{"--build-arg", "WHO=me"}, &out, AddOptions{})
	if err != nil {
		t.Fatalf("%v; builder output:\n%s", err, &out)
	}
	if text, err := os.ReadFile(filepath.Join(got.Rootfs, "etc/motd")); err != nil ||
		string(text) != "from a Dockerfile" {
		t.Errorf("content: got %q, %v", text, err)
	}
	if c := got.Config; c.User != "app" || c.WorkingDir != "/srv" || !strings.Contains(strings.Join(c.Env, " "),
		"WHO=me") {
		t.Errorf("configuration: got %+v", c)
	}
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\nCOPY none /\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if _, err := l.Dockerfile(t.Context(), "failed", dir, nil, &out, AddOptions{}); err == nil ||
		!strings.Contains(out.String(), "none") {
		t.Errorf("failing build: got %v; builder output:\n%s", err, &out)
	}
	if left := append(entries(t, l, "building-*"), entries(t, l, "names/failed")...); len(left) != 0 {
		t.Errorf("leftovers: got %v, want none", left)
	}
}

func TestNoBuilder(t *testing.T) {
	l := open(t, t.TempDir())
	t.Setenv("PATH", t.TempDir())
	_, err := l.Dockerfile(t.Context(), "x", t.TempDir(), nil, nil, AddOptions{})
	if err == nil || !strings.Contains(err.Error(), "apt-get install docker.io") {
		t.Errorf("without a builder: %v", err)
	}
	if _, err := l.Dockerfile(t.Context(), "x", "/none", nil, nil, AddOptions{}); err == nil ||
		!strings.Contains(err.Error(), "not a directory") {
		t.Errorf("without a directory: %v", err)
	}
}
