package e2e

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// A stranger fetches a template of a signed release and starts a container from it. One that the signer has not
// signed, or that was changed afterwards, is refused and leaves nothing.
func TestImageFetch(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("gVisor sandboxes need root")
	}
	files := t.TempDir()
	dir := filepath.Join(files, "latest", "download")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	archive := "berth-base_99.1.0_linux_" + runtime.GOARCH + ".tar"
	tag, err := name.NewTag("base:latest")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(filepath.Join(dir, archive), tag, tinyImage(t, "")); err != nil {
		t.Fatal(err)
	}
	program := "berth_99.1.0_linux_" + runtime.GOARCH + ".tar.gz"
	put(program, "a program")
	sums := ""
	for _, name := range []string{program, archive} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		sums += fmt.Sprintf("%x  %s\n", sha256.Sum256(text), name)
	}
	put("SHA256SUMS", sums)
	key := filepath.Join(t.TempDir(), "key")
	for _, args := range [][]string{{"-q", "-t", "ed25519", "-N", "", "-f", key},
		{"-q", "-Y", "sign", "-n", "berth-release", "-f", key, filepath.Join(dir, "SHA256SUMS")}} {
		if out, err := exec.CommandContext(t.Context(), "ssh-keygen", args...).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen %q: %v: %s", args, err, out)
		}
	}
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	signers := filepath.Join(t.TempDir(), "signers")
	if err := os.WriteFile(signers, append([]byte("publisher@example.com "), public...), 0o600); err != nil {
		t.Fatal(err)
	}
	published := httptest.NewServer(http.FileServer(http.Dir(files)))
	t.Cleanup(published.Close)

	s := &server{t: t, state: t.TempDir(), log: &logBuffer{}}
	from := []string{"--from", published.URL, "--signers", signers}
	if out, err := s.command(append([]string{"upgrade", "--check"}, from...)...).CombinedOutput(); err != nil ||
		!strings.HasPrefix(string(out), "Berth 99.1.0 is out; this is ") {
		t.Errorf("upgrade --check: got %s, %v", out, err)
	}
	fetch := func() (string, error) {
		out, err := s.command(append([]string{"image", "fetch"}, from...)...).CombinedOutput()
		return string(out), err
	}
	whole, err := os.ReadFile(filepath.Join(dir, archive))
	if err != nil {
		t.Fatal(err)
	}
	put(archive, string(whole[:len(whole)-1]))
	if out, err := fetch(); err == nil || !strings.Contains(out, "does not have the checksum of the release") {
		t.Errorf("a changed file: got %s, %v", out, err)
	}
	put(archive, string(whole))
	put("SHA256SUMS", sums+"\n")
	if out, err := fetch(); err == nil || !strings.Contains(out, "no trusted signer has signed the release") {
		t.Errorf("changed checksums: got %s, %v", out, err)
	}
	put("SHA256SUMS", sums)
	if left, err := filepath.Glob(filepath.Join(s.state, "fetch-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	if out, err := fetch(); err != nil || !strings.Contains(out, "download") || !strings.Contains(out, "base sha256:") {
		t.Fatalf("fetch: got %s, %v", out, err)
	}
	s.start()
	t.Cleanup(s.close)
	id, errs, err := s.berth("create")
	if err != nil {
		t.Fatal(err, errs)
	}
	if out, errs, err := s.berth("exec", strings.TrimSpace(id), "/bin/sh", "-c", "greet"); err != nil ||
		out != "hello from an image\n" {
		t.Errorf("got %q, %v: %s", out, err, errs)
	}
}
