package e2e

import (
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// TestOrdinaryUser has everything done by a user who is not root, with a home and
// nothing else: a template, a server, containers.
func TestOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: only root can become another user")
	}
	const somebody = 54321
	home, err := os.MkdirTemp("/var/tmp", "berth-user-") // which others can reach
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	program, state := filepath.Join(home, "berth"), filepath.Join(home, "state")
	raw, err := os.ReadFile(binary(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chown(home, somebody, somebody), os.Chown(state, somebody, somebody)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BERTH_BIN", program)
	t.Setenv("HOME", home)
	t.Setenv("TMPDIR", home)
	credential := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: somebody, Gid: somebody}}
	run := func(args ...string) (string, error) {
		cmd := exec.Command(program, append(args, "--state", state)...)
		cmd.Dir = home
		cmd.SysProcAttr = credential
		out, err := cmd.CombinedOutput()
		return string(out), err
	}

	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer srv.Close()
	ref, err := name.ParseReference(strings.TrimPrefix(srv.URL, "http://") + "/tiny:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, tinyImage(t, "")); err != nil {
		t.Fatal(err)
	}
	if out, err := run("image", "pull", ref.Name(), "--insecure", "--name", "base"); err != nil {
		t.Fatalf("image pull: %v: %s", err, out)
	}
	out, err := run("doctor")
	if err != nil {
		t.Fatalf("doctor: %v: %s", err, out)
	}
	for _, want := range []string{"ordinary user (uid 54321)", "volumes", "cpu limit",
		"ran a command and destroyed it"} {
		if !strings.Contains(out, want) {
			t.Errorf("the doctor does not say %q:\n%s", want, out)
		}
	}

	s := &server{t: t, state: state, attr: credential, log: &logBuffer{}}
	s.start()
	t.Cleanup(s.close)
	id := s.newContainer()
	must := func(want string, args ...string) {
		t.Helper()
		if out, errs, err := s.berth(args...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%q: got %q, %v, %s, want %q", args, out, err, errs, want)
		}
	}
	sh := func(want, script string) { t.Helper(); must(want, "exec", id, "--", "/bin/sh", "-c", script) }
	sh("hello from an image\n1000\n", "greet; id -u; echo kept >/mnt/data/file")
	must("", "pause", id)
	must("", "resume", id)
	sh("kept\n", "cat /mnt/data/file")
	s.kill()
	s.start()
	sh("kept\n", "cat /mnt/data/file")
	fork, errs, err := s.berth("fork", id)
	if err != nil {
		t.Fatalf("fork: %v: %s", err, errs)
	}
	must("kept\n", "exec", strings.Fields(fork)[0], "--", "/bin/cat", "/mnt/data/file")
	if _, errs, err := s.berth("volume", "create", "data"); err == nil || !strings.Contains(errs,
		"cannot store volumes") {
		t.Errorf("volume create: got %v, %q, want that there are none", err, errs)
	}
	must("", "rm", id)
	if _, err := os.Stat(filepath.Join(state, "gvisor", "sandboxes", id)); err == nil {
		t.Error("the container's directory is still there")
	}
}
