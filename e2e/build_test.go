package e2e

import (
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/openai/openai-go/v3"

	"github.com/berth-run/berth/image"
)

// builder returns a directory with a program mmdebstrap that waits until there is a file "go" in the
// directory, and then takes the files of the template that make test has built.
func builder(t *testing.T) string {
	t.Helper()
	images, err := image.Open(filepath.Join(templates(t), "images"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	base, err := images.Get("base")
	if err != nil {
		t.Skipf("no base template in %s: run make test, which builds it", templates(t))
	}
	dir := t.TempDir()
	script := `#!/bin/sh
set -e
for arg; do case $arg in */rootfs) root=$arg ;; esac; done
echo $$ >` + dir + `/begun
until [ -e ` + dir + `/go ]; do sleep 0.05; done
[ ! -e ` + dir + `/broken ] || { echo 'E: no archive' >&2; exit 1; }
cp -al ` + base.Rootfs + ` "$root" 2>/dev/null || cp -a ` + base.Rootfs + ` "$root"
`
	if err := os.WriteFile(filepath.Join(dir, "mmdebstrap"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// newcomer returns a server without a template that finds a builder, and is not started.
func newcomer(t *testing.T, dir string, env ...string) *server {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("gVisor sandboxes need root")
	}
	return &server{t: t, state: t.TempDir(), log: &logBuffer{},
		env: append([]string{"BERTH_BUILD_TEMPLATE=auto", "PATH=" + dir + ":" + os.Getenv("PATH")}, env...)}
}

// exists reports whether there is a file.
func exists(elem ...string) bool {
	_, err := os.Stat(filepath.Join(elem...))
	return err == nil
}

// runsProgram reports whether a process has a path in its arguments.
func runsProgram(path string) bool {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), path) {
			return true
		}
	}
	return false
}

// A server without a template builds the base template while it serves. Killed or stopped during the build, it
// leaves nothing behind, and begins again at its next start.
func TestServeBuildsTemplate(t *testing.T) {
	dir := builder(t)
	program := filepath.Join(dir, "mmdebstrap")
	s := newcomer(t, dir)
	for _, end := range []func(){s.kill, func() {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		if err := s.cmd.Wait(); err != nil {
			t.Error(err)
		}
		if !s.logs("stopped building the base template") {
			t.Errorf("the log does not say that the build stopped:\n%s", s.log)
		}
	}} {
		s.start()
		s.waitUntil("the build begins", func() bool { return exists(dir, "begun") })
		if !s.logs("msg=serving", "template=building") || !s.logs("building the base template in the background") ||
			s.logs("containers cannot start without a template") {
			t.Errorf("the log does not say what happens:\n%s", s.log)
		}
		_, err := s.client().Containers.New(t.Context(), openai.ContainerNewParams{Name: "x"})
		if e, ok := errors.AsType[*openai.Error](err); !ok || e.StatusCode != http.StatusServiceUnavailable ||
			!strings.Contains(e.Message, "The base template is being built (since ") ||
			e.Response.Header.Get("Retry-After") == "" {
			t.Errorf("a container meanwhile: got %v", err)
		}
		end()
		s.waitUntil("the build has ended", func() bool { return !runsProgram(program) })
		if err := os.Remove(filepath.Join(dir, "begun")); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	t.Cleanup(s.close)
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.waitUntil("the template is built", func() bool { return s.logs("built the base template") })
	if left, err := filepath.Glob(filepath.Join(s.state, "images", "building-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	id, errs, err := s.berth("create")
	if err != nil {
		t.Fatal(err, errs)
	}
	if out, errs, err := s.berth("exec", strings.TrimSpace(id), "python3", "-c", "print(6*7)"); err != nil ||
		out != "42\n" {
		t.Errorf("got %q, %v: %s", out, err, errs)
	}
}

// A failed build, and a server that must not build, name the command that builds the template.
func TestServeWithoutTemplate(t *testing.T) {
	dir := builder(t)
	for _, name := range []string{"broken", "go"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		env string
		log []string
	}{
		"fails": {"BERTH_BUILD_TEMPLATE=auto",
			[]string{"failed to make the default template", `next="berth image build --state`, "no archive"}},
		"never": {"BERTH_BUILD_TEMPLATE=never",
			[]string{"containers cannot start without a template", "berth image build"}},
	} {
		t.Run(name, func(t *testing.T) {
			_ = os.Remove(filepath.Join(dir, "begun"))
			s := newcomer(t, dir, c.env)
			s.start()
			t.Cleanup(s.close)
			s.waitUntil("the log says what to do", func() bool { return s.logs(c.log...) })
			if _, errs, err := s.berth("create"); err == nil || !strings.Contains(errs, "berth image build") {
				t.Errorf("got %v: %s", err, errs)
			}
			if name == "never" && exists(dir, "begun") {
				t.Error("the build began")
			}
		})
	}
}

// A server without a template that has an archive of one loads it in place of a build: a kill during that leaves
// nothing behind, and an archive that cannot be read is an error that names the next command.
func TestServeLoadsTemplate(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("gVisor sandboxes need root")
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "base_"+runtime.GOARCH+".tar")
	config := filepath.Join(dir, "berth.yaml")
	if err := os.WriteFile(config, []byte("template_archives: "+dir+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newcomer(t, t.TempDir())
	s.args = []string{"--config", config}
	if err := os.WriteFile(name, []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.start()
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			s.close()
		}
	})
	s.waitUntil("the log says that the archive is broken", func() bool {
		return s.logs("failed to make the default template", `next="berth image build --state`)
	})
	if _, errs, err := s.berth("create"); err == nil || !strings.Contains(errs, "could not be loaded from its archive") {
		t.Errorf("a container without a template: got %v: %s", err, errs)
	}
	s.kill()

	images, err := image.Open(filepath.Join(templates(t), "images"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := images.Get("base"); err != nil {
		t.Skipf("no base template in %s: run make test, which builds it", templates(t))
	}
	if err := images.SaveFile(t.Context(), "base", name, nil); err != nil {
		t.Fatal(err)
	}
	s.start()
	if !s.logs("msg=serving", "template=loading") {
		t.Errorf("the log does not say what happens:\n%s", s.log)
	}
	s.kill()
	s.start()
	s.waitUntil("the template is loaded", func() bool { return s.logs("loaded the template; containers can start") })
	if left, err := filepath.Glob(filepath.Join(s.state, "images", "building-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	id, errs, err := s.berth("create")
	if err != nil {
		t.Fatal(err, errs)
	}
	if out, errs, err := s.berth("exec", strings.TrimSpace(id), "python3", "-c", "print(6*7)"); err != nil ||
		out != "42\n" {
		t.Errorf("got %q, %v: %s", out, err, errs)
	}
}
