package drivertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/berth-run/berth/sandbox"
)

// copiedState opens a driver on a copy of a state directory whose sandboxes run. The copy has
// none of them, and cannot end them; the original has all.
func (s lifecycle) copiedState(t *testing.T) {
	dir := StateDir(t)
	d := s.Open(t, dir)
	b := Start(t, d, sandbox.Spec{ID: "original", Template: s.Template})
	b.Must("echo precious >file")

	copied := filepath.Join(StateDir(t), "copy")
	// Some files cannot be copied, such as encrypted ones and sockets, as in a real copy.
	if out, err := exec.Command("cp", "-a", dir, copied).CombinedOutput(); err != nil {
		if _, statErr := os.Stat(filepath.Join(copied, "instance")); statErr != nil {
			t.Fatalf("cp: %v: %s", err, out)
		}
	}
	c := s.Open(t, copied)
	if ids, err := c.List(t.Context()); err != nil || len(ids) != 0 {
		t.Errorf("List of the copy: got %q, %v, want none", ids, err)
	}
	_, err := c.Stats(t.Context(), b.ID)
	notFound(t, "Stats of the copy", err)
	if err := c.Destroy(t.Context(), b.ID); err != nil {
		t.Errorf("Destroy by the copy: %v", err)
	}
	own := Start(t, c, sandbox.Spec{ID: b.ID, Template: s.Template}) // of the same id
	own.Answers()
	if err := c.Destroy(t.Context(), b.ID); err != nil {
		t.Errorf("Destroy by the copy: %v", err)
	}
	if stats, err := d.Stats(t.Context(), b.ID); err != nil || stats.State != sandbox.StateRunning {
		t.Errorf("Stats of the original: got %+v, %v, want running", stats, err)
	}
	again := s.Open(t, dir)
	if ids, err := again.List(t.Context()); err != nil || !slices.Equal(ids, []string{b.ID}) {
		t.Errorf("List of the original, opened again: got %q, %v", ids, err)
	}
	if got := Attach(t, again, b.ID).Must("cat file"); got != "precious" {
		t.Errorf("file: got %q, want %q", got, "precious")
	}
	if s.Leftovers != nil {
		for _, l := range s.Leftovers(copied) {
			t.Errorf("left behind by the copy: %s", l)
		}
	}
}
