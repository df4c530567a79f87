package state

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/postgres/pgtest"
)

// The environment of a process that TestRotateKilled kills.
const (
	rotateStateEnv = "BERTH_TEST_ROTATE_STATE"
	rotateStepEnv  = "BERTH_TEST_ROTATE_STEP"
)

// A process that is killed after any step of a rotation leaves a state directory that opens with the key in it, and
// nothing else.
func TestRotateKilled(t *testing.T) {
	discard := slog.New(slog.DiscardHandler)
	if state := os.Getenv(rotateStateEnv); state != "" {
		err := rotateStopped(context.Background(), state, &config.Config{}, discard, func(step string) error {
			if step == os.Getenv(rotateStepEnv) {
				return syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			return nil
		})
		t.Fatalf("the process was not killed: %v", err)
	}
	steps := []string{"next key written", "mark replaced", "keys copied", "committed", "keys replaced", "key replaced"}
	object := store.ObjectKey{Kind: "note", ID: "note_1"}
	for _, url := range []string{"", pgtest.URL(t)} {
		state := t.TempDir()
		t.Setenv(StoreVariable, url)
		use := func(what string) {
			t.Helper()
			s, err := Open(t.Context(), state)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if _, err := s.Store.GetObject(t.Context(), "proj_a", object); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Open(t.Context(), state)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Store.CreateObjects(t.Context(), "proj_a", &store.Object{ObjectKey: object, Body: []byte(`"x"`)})
		if err := errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
		for i, step := range steps {
			if url != "" && step == "keys replaced" {
				continue // there is no file of keys
			}
			former, err := ReadSealKeys(state)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0], "-test.run=^TestRotateKilled$")
			cmd.Env = append(os.Environ(), rotateStateEnv+"="+state, rotateStepEnv+"="+step, "TMPDIR="+t.TempDir())
			out, _ := cmd.CombinedOutput()
			if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
				t.Fatalf("the victim of %q was not killed:\n%s", step, out)
			}
			use("killed after " + step)
			now, err := ReadSealKeys(state)
			if err != nil {
				t.Fatal(err)
			}
			if rotated := now.current != former.current; rotated != (i >= 3) {
				t.Errorf("killed after %q: rotated is %t", step, rotated)
			}
			if _, err := os.Lstat(filepath.Join(state, nextSealFile)); err == nil {
				t.Errorf("killed after %q: the file of the next key is left", step)
			}
			if now.current == former.current {
				continue
			}
			path := filepath.Join(state, sealFile)
			if err := os.WriteFile(path, []byte(former.text()), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(t.Context(), state); err == nil || !strings.Contains(err.Error(), "rotat") ||
				!strings.Contains(err.Error(), "other keys") {
				t.Errorf("the former key after %q: got %v, want a clear refusal", step, err)
			}
			if err := os.WriteFile(path, []byte(now.text()), 0o600); err != nil {
				t.Fatal(err)
			}
			use("with the new key after " + step)
		}
	}
}
