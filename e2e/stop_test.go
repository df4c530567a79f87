package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/berth-run/berth"
)

// newVolumeContainer makes a volume and a container that has it, with a file in it.
func (s *server) newVolumeContainer(volume string) (id string) {
	s.t.Helper()
	c := s.client()
	if err := c.Post(s.t.Context(), "volumes", map[string]any{"name": volume, "max_bytes": 32 << 20}, nil); err != nil {
		s.t.Fatal(err)
	}
	made, err := c.Containers.New(s.t.Context(), openai.ContainerNewParams{Name: volume},
		option.WithJSONSet("berth.volumes.0.name", volume))
	if err != nil {
		s.t.Fatal(err)
	}
	if out, errs, err := s.berth("exec", made.ID, "--", "sh", "-c",
		"echo "+volume+" >/mnt/volumes/"+volume+"/f"); err != nil {
		s.t.Fatalf("%q, %v %s", out, err, errs)
	}
	return made.ID
}

// mountsIn returns the mounts below the state directory that a process sees.
func (s *server) mountsIn(process, below string) (found []string) {
	raw, _ := os.ReadFile(filepath.Join("/proc", process, "mountinfo")) // it may have ended
	for line := range strings.Lines(string(raw)) {
		if strings.Contains(line, filepath.Join(s.state, below)) {
			found = append(found, line)
		}
	}
	return found
}

// loops returns the loop devices of files in the state directory.
func (s *server) loops() (found []string) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, path := range files {
		if raw, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(raw), s.state) {
			found = append(found, string(raw))
		}
	}
	return found
}

// processes returns the processes that name the state directory, or work in it.
func (s *server) processes() (found []string) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		line, _ := os.ReadFile(dir + "/cmdline")
		cwd, _ := os.Readlink(dir + "/cwd")
		if strings.Contains(string(line), s.state) || strings.HasPrefix(cwd, s.state) ||
			len(s.mountsIn(filepath.Base(dir), "")) > 0 {
			found = append(found, dir+" "+string(line))
		}
	}
	return found
}

// TestStopUnmountsVolumes stops the server in order. Volumes that no container uses are
// unmounted, those of containers that live on are not, and work on.
func TestStopUnmountsVolumes(t *testing.T) {
	s := newServer(t)
	used, gone := s.newVolumeContainer("used"), s.newVolumeContainer("gone")
	if err := s.client().Containers.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if got := len(s.mountsIn("self", "volumes")); got != 2 {
		t.Errorf("%d volumes are mounted before, want 2", got)
	}
	if _, errs, err := s.berth("stop", "--state", s.state); err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the server did not stop in order: %v", err)
	}
	if got := s.mountsIn("self", "volumes"); len(got) != 1 {
		t.Errorf("got mounts %v, want that of the container that lives", got)
	}
	s.waitUntil("a loop device is detached", func() bool { return len(s.loops()) == 1 })
	s.start()
	if out, errs, err := s.berth("exec", used, "--", "sh", "-c", "cat /mnt/volumes/used/f"); err != nil ||
		out != "used\n" {
		t.Errorf("got %q, %v %s", out, err, errs)
	}
	again, err := s.client().Containers.New(t.Context(), openai.ContainerNewParams{Name: "again"},
		option.WithJSONSet("berth.volumes", []map[string]string{{"name": "gone"}, {"name": "used"}}))
	if err != nil {
		t.Fatal(err)
	}
	if out, errs, err := s.berth("exec", again.ID, "--", "sh", "-c", "cat /mnt/volumes/*/f"); err != nil ||
		out != "gone\nused\n" {
		t.Errorf("got %q, %v %s", out, err, errs)
	}
	if got := s.loops(); len(got) != 2 {
		t.Errorf("got loop devices %v, want one for each volume", got)
	}
}

// TestStopAll ends all that belongs to a state directory, while a server runs on it and
// when none does. Lasting objects are there at the next start.
func TestStopAll(t *testing.T) {
	for _, running := range []bool{true, false} {
		s := newServerWith(t, "containers: {pool: 1}\n")
		id := s.newVolumeContainer("data")
		if out, errs, err := s.berth("exec", id, "--", "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &"); err != nil {
			t.Fatalf("%q, %v %s", out, err, errs)
		}
		if !running {
			s.kill()
		}
		out, errs, err := s.berth("stop", "--all", "--yes", "--state", s.state)
		if err != nil || !strings.Contains(out, "1 container ended") {
			t.Fatalf("got %q, %v: %s", out, err, errs)
		}
		if running {
			if err := s.cmd.Wait(); err != nil {
				t.Errorf("the server did not stop in order: %v", err)
			}
		}
		if got := s.mountsIn("self", ""); len(got) > 0 {
			t.Errorf("mounts are left: %v", got)
		}
		if got := s.groups(); len(got) > 0 {
			t.Errorf("cgroups are left: %v", got)
		}
		s.waitUntil("no process is left", func() bool { return len(s.processes()) == 0 })
		s.waitUntil("no loop device is left", func() bool { return len(s.loops()) == 0 })
		if left, err := os.ReadDir(filepath.Join(s.state, "gvisor", "sandboxes")); err != nil || len(left) > 0 {
			t.Errorf("sandboxes are left: %v, %v", left, err)
		}
		s.start()
		var c berth.Container
		if err := s.client().Get(t.Context(), "containers/"+id, nil, &c); err != nil ||
			c.Status != berth.ContainerExpired || c.Berth.Reason != "host" {
			t.Errorf("got %+v, %v", c, err)
		}
		next, err := s.client().Containers.New(t.Context(), openai.ContainerNewParams{Name: "next"},
			option.WithJSONSet("berth.volumes.0.name", "data"))
		if err != nil {
			t.Fatal(err)
		}
		if out, errs, err := s.berth("exec", next.ID, "--", "cat", "/mnt/volumes/data/f"); err != nil ||
			out != "data\n" {
			t.Errorf("got %q, %v %s", out, err, errs)
		}
		if out, errs, err := s.berth("audit", "verify", "--state", s.state); err != nil {
			t.Errorf("audit verify: %v: %s%s", err, out, errs)
		}
	}
}

// TestStopRefuses stops a directory that is no state directory, and a server that does not end.
func TestStopRefuses(t *testing.T) {
	s := newServer(t)
	if _, errs, err := s.berth("stop", "--all", "--yes", "--state", t.TempDir()); err == nil || !strings.Contains(errs,
		"is not a state directory") {
		t.Errorf("an empty directory: got %v, %s", err, errs)
	}
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_, errs, err := s.berth("stop", "--all", "--yes", "--state", s.state, "--patience", "100ms")
	if err == nil || !strings.Contains(errs, "still uses") {
		t.Errorf("a server that stands still: got %v, %s", err, errs)
	}
	if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait() // the first signal reaches it now
	s.start()
}
