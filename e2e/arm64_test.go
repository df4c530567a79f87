package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/berth-run/berth/internal/longtest"
)

// TestARM64 runs the server for arm64 in an emulator: it starts on a new state directory, stores a
// response, and has it after a kill. Sandboxes do not run in the emulator.
func TestARM64(t *testing.T) {
	longtest.Skip(t)
	emulator, err := exec.LookPath("qemu-aarch64-static")
	if err != nil || runtime.GOARCH != "amd64" {
		t.Skip("skipped: needs qemu-aarch64-static on amd64")
	}
	program := filepath.Join(t.TempDir(), "berth")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "../cmd/berth")
	build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command(emulator, program, "version").CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "linux/arm64") {
		t.Errorf("berth version: %v: %s", err, out)
	}
	config := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(config, []byte("driver: unsafe-local\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BERTH_BIN", program)
	s := &server{t: t, state: t.TempDir(), wrap: []string{emulator}, args: []string{"--config", config},
		log: &logBuffer{}}
	s.start()
	t.Cleanup(s.close)
	r, err := s.client().Responses.New(t.Context(), responses.ResponseNewParams{Model: "scripted",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hello")}})
	if err != nil || !strings.Contains(r.OutputText(), "hello") {
		t.Fatalf("got %v, %v", r, err)
	}
	s.kill()
	s.start()
	if again, err := s.client().Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{}); err != nil ||
		again.OutputText() != r.OutputText() {
		t.Errorf("after a kill: got %v, %v", again, err)
	}
}
