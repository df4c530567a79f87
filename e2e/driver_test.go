package e2e

import (
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/berth-run/berth/internal/dockertest"
	"github.com/berth-run/berth/internal/longtest"
	"github.com/berth-run/berth/sandbox/drivertest"
	"github.com/berth-run/berth/sandbox/microvm"
)

// TestDrivers has a server run containers with each driver beside gVisor: on a template
// of a registry's image and on one of a snapshot, from snapshots and forks of others, with
// a volume. What berth doctor says before is true.
func TestDrivers(t *testing.T) {
	t.Run("docker", func(t *testing.T) {
		testDriver(t, "docker", "docker:\n  host: "+dockertest.Start(t)+"\n", "engine")
	})
	t.Run("microvm", func(t *testing.T) {
		longtest.Skip(t)
		if _, err := microvm.FindQEMU(""); err != nil {
			t.Skipf("skipped: %v", err)
		}
		kernel := drivertest.Cached(t, "kernel", func(tmp string) error {
			_, err := microvm.FetchKernel(t.Context(), tmp)
			return err
		})
		testDriver(t, "microvm", "microvm:\n  kernel: "+kernel+"\n", "qemu", "vm kernel", "volumes", "kvm")
	})
}

// testDriver runs a server with a driver; doctor finds what else it needs.
func testDriver(t *testing.T, driver, config string, finds ...string) {
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer srv.Close()
	state := t.TempDir()
	ref, err := name.ParseReference(strings.TrimPrefix(srv.URL, "http://") + "/tiny:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, tinyImage(t, "")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(binary(t), "image", "pull", ref.Name(), "--insecure", "--state",
		state).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	config = "driver: " + driver + "\ntemplate: tiny-1\ncontainers:\n  pool: 0\n" + config
	checkDoctor(t, state, config, append(finds, driver)...)

	s := startServer(t, state, config)
	create := func(berth map[string]any) string {
		t.Helper()
		c, err := s.client().Containers.New(t.Context(), openai.ContainerNewParams{Name: "test"},
			option.WithJSONSet("berth", berth))
		if err != nil {
			t.Fatal(err)
		}
		return c.ID
	}
	sh := func(id, script, want string) {
		t.Helper()
		if out, errs, err := s.berth("exec", id, "--", "/bin/sh", "-c", script); err != nil || out != want {
			t.Errorf("%s: got %q, %v, %s, want %q", script, out, err, errs, want)
		}
	}
	must := func(args ...string) string {
		t.Helper()
		out, errs, err := s.berth(args...)
		if err != nil {
			t.Fatalf("berth %s: %v: %s", strings.Join(args, " "), err, errs)
		}
		return strings.TrimSpace(out)
	}
	volume := must("volume", "create", "shelf", "--size", "32m")
	shelf := []map[string]string{{"name": "shelf"}}
	id := create(map[string]any{"volumes": shelf})
	sh(id, "greet; id -u; echo mine >/mnt/data/file; echo ours >/mnt/volumes/shelf/file", "hello from an image\n1000\n")
	snap := must("snapshot", "create", id)
	fork := must("fork", id)
	must("rm", id)
	sh(fork, "greet; cat /mnt/data/file", "hello from an image\nmine\n")
	other := create(map[string]any{"snapshot_id": snap, "volumes": shelf})
	sh(other, "greet; cat /mnt/data/file /mnt/volumes/shelf/file", "hello from an image\nmine\nours\n")

	must("rm", other, fork) // which has the volume as well
	must("volume", "rm", volume)

	if out, err := exec.Command(binary(t), "image", "build", "--from-snapshot", snap, "frozen", "--state",
		state).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sh(create(map[string]any{"template": "frozen"}), "greet; cat /mnt/data/file", "hello from an image\nmine\n")
}

// checkDoctor runs berth doctor, which must have found each of these and nothing wrong
// with it.
func checkDoctor(t *testing.T, state, config string, finds ...string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(binary(t), "doctor", "--json", "--config", path, "--state", state).Output()
	if err != nil {
		t.Fatal(err)
	}
	var findings []struct {
		What, Says, Advice string
		OK                 bool
	}
	if err := json.Unmarshal(out, &findings); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, what := range finds {
		found := false
		for _, f := range findings {
			if f.What == what {
				found = true
				if !f.OK || f.Says == "" {
					t.Errorf("berth doctor: got %+v", f)
				}
				t.Logf("berth doctor: %+v", f)
			}
		}
		if !found {
			t.Errorf("berth doctor says nothing of %s: %s", what, out)
		}
	}
}
